"""Runs over specs in other places, or of other shapes, than the usual OpenSpec change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab import DONE, Lab


def prepare(lab: Lab, path: str, text: str) -> Lab:
    lab.repository()
    lab.git("rm", "-rq", "openspec")
    lab.write(path, text)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "The spec")
    return lab.play(default=DONE)


BOXES = "## 1. Log in\n\n- [ ] 1.1 form\n- [ ] 1.2 polish (optional)\n"
FEATURES = {
    "project": "shop",
    "features": [
        {"id": "a", "description": "Log in", "steps": ["form", "button"], "status": "pending"},
        {"id": "b", "description": "Log out", "steps": ["button"], "status": "done"},
    ],
}
MARKED = [{"id": "a", "title": "Log in", "criteria": [{"text": "form", "passes": False}], "passes": False}]
SPECS: dict[str, tuple[str, str, str, str]] = {
    "a plan": ("plans/login.md", BOXES, "login", "- [x] 1.1 form"),
    "a nested change": ("packages/web/openspec/changes/login/tasks.md", BOXES, "login", "- [x] 1.1 form"),
    "a folder with blanks": ("openspec/changes/my login/tasks.md", BOXES, "my-login", "- [x] 1.1 form"),
    "a feature of specify": (".specify/specs/001-login/tasks.md", BOXES, "001-login", "- [x] 1.1 form"),
    "features with a status": (
        "feature_list.json",
        json.dumps(FEATURES),
        "shop",
        '"form", "button"], "status": "done"',
    ),
    "criteria with marks": (
        "plans/prd.json",
        json.dumps(MARKED),
        "project",
        '"form", "passes": true}], "passes": true',
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_it_is_found_worked_off_and_committed(lab: Lab, name: str) -> None:
    path, text, change, expected = SPECS[name]
    prepare(lab, path, text)
    before = lab.users_state()
    result = lab.loop()
    assert result.exit_code == 0, result.stdout + result.stderr
    assert expected in lab.git("show", f"ralph/{change}:{path}")
    assert lab.users_state() == before
    [listed] = [one for one in lab.run("list", "--json").json["changes"] if one["name"] == change]
    assert listed["stories_done"] == listed["stories_total"]


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_a_story_without_tasks_is_told_and_leaves_the_run_unfinished(lab: Lab, workspace: str) -> None:
    lab.repository("## 1. Log in\n\n- [ ] 1.1 form\n\n## 2. Form fields\n\n1. The address\n", workspace=workspace)
    lab.play(default=DONE)
    result = lab.loop()
    assert result.exit_code == 1
    told: list[dict[str, Any]] = lab.events(result)
    assert any("below the heading of story 2" in event["text"] for event in told if event["type"] == "notice")
    ended = told[-1]
    assert "story 2 has no tasks" in ended["reason"]
    assert [(row["id"], row["state"]) for row in ended["stories"]] == [("1", "done"), ("2", "open")]
    assert lab.checkpoints() == ["1"]


def test_what_is_blocked_is_never_handed_to_an_agent(lab: Lab) -> None:
    prepare(lab, "TODO.md", "## Now\n- [ ] a\n## Blocked\n- [ ] b\n## Deferred\n- [ ] c\n")
    result = lab.loop()
    assert result.exit_code == 1
    assert lab.checkpoints("TODO") == ["1"]
    assert "story 2 is blocked" in lab.events(result)[-1]["reason"]


def test_what_is_deferred_does_not_keep_a_run_from_being_done(lab: Lab) -> None:
    prepare(lab, "TODO.md", "## Now\n- [ ] a\n## Deferred\n- [ ] c\n")
    assert lab.loop().exit_code == 0
    assert lab.checkpoints("TODO") == ["1"]


def test_a_prd_that_is_named_after_its_folder_hides_no_other_change(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.write("prd.json", '[{"id": "1", "title": "A", "passes": false}]')
    lab.write("fix_plan.md", "## One\n- [ ] a\n")
    lab.git("add", "prd.json", "fix_plan.md")
    lab.git("commit", "--quiet", "--message=more")
    assert lab.run("run", "fix_plan").exit_code == 0
    shown = lab.run("show", "fix_plan")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "[x] 1. One" in shown.stdout
