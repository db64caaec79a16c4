"""A whole run over a change in each format whose stories have a mark of their own, besides those of their tasks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab
from specs.formats import MAKERS, open_spec

from ralphtool import specs

FORMATS = ("kiro", "taskmaster", "backlog")
KIRO = ".kiro/specs/login/tasks.md"
# For each format, an edit that an agent could make so that the second story looks done.
FORGED = {
    "kiro": rf"sed -i 's/\[ \] 2\./[x] 2./' {KIRO}",
    "taskmaster": r"""sed -i '/"2"/s/"pending"/"done"/' .taskmaster/tasks/tasks.json""",
    "backlog": "sed -i 's/status: To Do/status: Done/' 'backlog/tasks/task-2 - Log-in.md'",
}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def prepare(lab: Lab, format: str) -> tuple[str, list[str]]:
    """Creates a repository with a change in that format; returns the change, and the ids of its stories."""
    lab.repository()
    shutil.rmtree(lab.root / "openspec")
    change = MAKERS[format](lab)
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=a spec")
    return change, [story.id for story in open_spec(lab, change).stories()]


def check_done(lab: Lab, change: str, ids: list[str], folder: Path) -> None:
    """On the branch, every story is done and marked as done."""
    assert lab.checkpoints(change) == ids
    lab.git("worktree", "add", "--quiet", str(folder), f"ralph/{change}")
    spec: Any = specs.open(str(folder), change)
    assert [(story.done, spec.is_marked(story.id)) for story in spec.stories()] == [(True, True)] * len(ids)


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_ticks_the_tasks_and_marks_the_stories(lab: Lab, tmp_path: Path, format: str) -> None:
    change, ids = prepare(lab, format)
    lab.play(default=DONE)
    done = lab.loop(change)
    assert done.exit_code == 0, done.stderr
    assert [status for _, status in lab.endings()] == ["completed", "completed"]
    check_done(lab, change, ids, tmp_path / "branch")


@pytest.mark.parametrize("boxes", ["1\\.[12]", "1\\."])
def test_boxes_that_are_ticked_by_hand_count_with_and_without_that_of_the_story(
    lab: Lab, tmp_path: Path, boxes: str
) -> None:
    change, ids = prepare(lab, "kiro")
    steps = [
        {"run": f"echo work > a.txt && sed -i 's/\\[ \\] {boxes}/[x&/; s/\\[x\\[ /[x/' {KIRO}"},
        {"complete": True},
    ]
    lab.play({"story": "1", "steps": steps}, default=DONE)
    assert lab.loop(change).exit_code == 0
    assert [status for _, status in lab.endings()] == ["completed", "completed"]
    check_done(lab, change, ids, tmp_path / "branch")


@pytest.mark.parametrize("format", FORMATS)
def test_marking_another_story_as_done_fails_the_attempt(lab: Lab, tmp_path: Path, format: str) -> None:
    change, ids = prepare(lab, format)
    forge = [{"run": f"echo work > a.txt && {FORGED[format]}"}, {"tick": "all"}, {"complete": True}]
    lab.play({"story": ids[0], "attempt": 1, "steps": forge}, default=DONE)
    assert lab.loop(change).exit_code == 0
    assert [status for _, status in lab.endings()] == ["failed", "completed", "completed"]
    check_done(lab, change, ids, tmp_path / "branch")


def test_a_converted_change_keeps_what_the_branch_has_ticked(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    told = lab.run("convert", "add-login", "checklist", "--name", "login")
    assert told.exit_code == 0, told.stderr
    text = lab.read("plans/login.md")
    assert "- [x] 1.2 Make b" in text
    assert "- [ ] 2.1 Make c" in text
