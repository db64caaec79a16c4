"""A third-party runner works like a built-in one: the same work, with the same commands.

It is the scripted agent under another name, so that all its results can be compared with the built-in one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import ACCEPT, DONE, Lab

from ralphtool import agents

RUNNER = '''\
"""A runner like the scripted one, whose agent has a file with rules in the project."""

from msgspec import structs

from ralphtool.agents.scripted import Scripted


class Player(Scripted):
    traits = structs.replace(Scripted.traits, is_kept=True, config_paths=("player.rules", ".player/"))
'''


def install(top: Path, *, entry_point: bool) -> str:
    """Writes the runner as a package, with or without an installer's metadata; returns the folder."""
    site = top / "site"
    (site / "strangers").mkdir(parents=True)
    (site / "strangers/__init__.py").write_text("")
    (site / "strangers/player.py").write_text(RUNNER)
    if entry_point:
        info = site / "strangers-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[ralphtool.agents]\nplayer = strangers.player:Player\n")
    return str(site)


def configure(lab: Lab, name: str, kind: str | None) -> None:
    table = {"args": [str(lab.script)], **({"kind": kind} if kind else {})}
    lines = ["[run]", f'agent = "{name}"', f"[agents.{name}]", *(f"{key} = {json.dumps(table[key])}" for key in table)]
    lab.write(".ralph/config.toml", "\n".join([*lines, "[verify]", "checks = []", "tests = []", ACCEPT]) + "\n")


def normalised(text: str) -> str:
    for pattern, plain in (
        (r"/(ours|theirs)/", "/"),
        (r"\bplayer\b", "scripted"),
        (r"add-login-\d{8}-\d{6}[\w-]*", "RUN"),
        (r"\b[0-9a-f]{7,40}\b", "HASH"),
        (r"\d[\d.,:]*( ?(ms|s|min)\b( \d+ s)?)?", "0"),
        (r"[▁▂▃▄▅▆▇█]+| +|-{3,}", " "),
    ):
        text = re.sub(pattern, plain, text)
    return text


def journey(lab: Lab, name: str, kind: str | None) -> dict[str, Any]:
    """Runs a change from start to end; returns all results."""
    lab.repository()
    configure(lab, name, kind)
    lab.play(default=[{"say": "Let me see."}, *DONE])
    seen: dict[str, Any] = {}
    planned = lab.run("run", "--dry-run", "--json")
    seen["plan"] = (planned.exit_code, json.loads(planned.stdout)["agents"] == [name])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr + done.stdout[-2000:]
    seen["events"] = [event["type"] for event in lab.events(done) if event["type"] != "ticked"]
    seen["kinds"] = [event["event"]["kind"] for event in lab.events(done) if "event" in event]
    seen["entries"] = lab.endings()
    seen["checkpoints"] = lab.checkpoints()
    for command in ("list", "show", "watch", "report"):
        told = lab.run(command, *(["add-login"] if command != "list" else []))
        assert (told.exit_code, bool(told.stdout)) == (0, True), (command, told.stderr)
        seen[command] = normalised(told.stdout)
    for words in (["logs", "add-login-1-1"], ["explain", "add-login-1-1"], ["doctor"], ["finish", "add-login"]):
        told = lab.run(*words)
        seen[words[0]] = (told.exit_code, normalised(told.stdout))
    return seen


@pytest.mark.parametrize(("how", "kind"), [("entry point", None), ("path", "strangers.player:Player")])
def test_it_is_as_good_as_one_of_ours(tmp_path: Path, how: str, kind: str | None) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Lab(tmp_path / "ours"), Lab(tmp_path / "theirs")
    theirs.env["PYTHONPATH"] = install(tmp_path, entry_point=how == "entry point")
    wanted, told = journey(ours, "scripted", None), journey(theirs, "player", kind)
    assert wanted["entries"] == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert "message" in wanted["kinds"]
    for name in wanted:
        assert told[name] == wanted[name], name


@pytest.mark.parametrize(
    "path", ["player.rules", ".player/x.json", "deep/down/.player/rules/x", ".claude/settings.json"]
)
def test_what_configures_it_is_not_for_the_agent(tmp_path: Path, path: str) -> None:
    lab = Lab(tmp_path)
    lab.env["PYTHONPATH"] = install(tmp_path, entry_point=True)
    lab.repository()
    configure(lab, "player", None)
    lab.play(default=[{"run": f"mkdir -p $(dirname {path}); echo all > {path}"}, *DONE])
    told = lab.loop("--max-iterations", "1")
    found = [(one["kind"], one["path"]) for event in lab.events(told) for one in event.get("findings") or ()]
    assert ("agent-config", path) in found


def test_every_kind_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in agents.list_runners()] == list(agents.BUILT_IN)
    monkeypatch.syspath_prepend(install(tmp_path, entry_point=True))
    assert [one.name for one in agents.list_runners()] == [*agents.BUILT_IN, "player"]
    (tmp_path / "site/strangers/player.py").write_text("nonsense = Player\n")
    for name in [name for name in sys.modules if name.startswith("strangers")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_package_that_is_broken_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = install(tmp_path, entry_point=True)
    (tmp_path / "site/strangers/player.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "strangers", raising=False)
    monkeypatch.delitem(sys.modules, "strangers.player", raising=False)
    assert [one.name for one in agents.list_runners()] == list(agents.BUILT_IN)


def test_a_broken_package_that_nobody_uses_stops_nothing(lab: Lab, tmp_path: Path) -> None:
    site = Path(install(tmp_path / "broken", entry_point=True))
    (site / "strangers/player.py").write_text("raise RuntimeError('boom')\n")
    lab.repository().play(default=DONE)
    lab.env["PYTHONPATH"] = str(site)
    assert lab.run("run").exit_code == 0
    assert lab.run("logs", "--json").exit_code == 0
    assert lab.run("doctor").exit_code in (0, 1)
