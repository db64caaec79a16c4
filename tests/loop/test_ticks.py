"""Counters move when the agent ticks, wherever it works: in the user's folder, in a worktree, in a box."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until
from sandbox.boxes import needs_box

TASKS = "openspec/changes/add-login/tasks.md"
SPEC = "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n- [ ] 1.3 Make c\n"
WAYS: dict[str, list[dict[str, Any]]] = {
    "by command": [{"tick": "1.1"}, {"tick": "1.2"}],
    "in the file": [{"run": f"sed -i 's/\\[ \\] 1.1/[x] 1.1/; s/\\[ \\] 1.2/[x] 1.2/' {TASKS}"}],
}


def ticks(lab: Lab) -> list[dict[str, Any]]:
    return [event for event in lab.events() if event["type"] == "ticked"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["here", "worktree", pytest.param("box", marks=needs_box)])
def test_a_tick_is_told_while_the_agent_works(lab: Lab, kind: str, way: str) -> None:
    lab.repository(SPEC, workspace=kind)
    before = (lab.root / TASKS).read_text()
    lab.play(default=[*WAYS[way], {"run": "sleep 3600"}])
    process = lab.start()
    try:
        assert wait_until(lambda: ticks(lab) and ticks(lab)[-1]["tasks_done"] == 2, 90), "no tick was told"
        last = ticks(lab)[-1]
        assert (last["story"], last["ticked"], last["tasks_total"]) == ("1", ["1.1", "1.2"], 3)
        assert not [event for event in lab.events() if event["type"] == "verdict"]
        if kind != "here":
            assert (lab.root / TASKS).read_text() == before, "it is told though the user's own file has no tick"
        if way == "by command":
            [change] = json.loads(lab.run("list", "--json").stdout)["changes"]
            assert (change["tasks_done"], change["stories_done"]) == (2, 0)
            shown = json.loads(lab.run("show", "add-login", "--json").stdout)["stories"][0]["tasks"]
            assert [task["done"] for task in shown] == [True, True, False]
    finally:
        kill(process, 2)


def test_what_is_ticked_last_is_told_before_the_verdict(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository(SPEC).play(default=DONE)
    assert lab.loop().exit_code == 0
    kinds = [event["type"] for event in lab.events() if event["type"] in ("ticked", "verdict")]
    assert kinds[-2:] == ["ticked", "verdict"]
    assert ticks(lab)[-1]["ticked"] == ["1.1", "1.2", "1.3"]
