"""The diff guard on the spec: an agent ticks its own boxes and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging.guard.samples import altered

from ralphtool import specs
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.judging.guard.spec import inspect_spec
from ralphtool.specs import Story

TASKS = """\
# Tasks

## 1. Set up

- [ ] 1.1 Make the folder
* [x] **1.2** Write the file

## 2. Build (see `[ ]`)

- [ ] 2.1 Compile
  - [ ] 2.2 Link
"""


def stories_of(tmp_path: Path, text: str) -> list[Story]:
    """As the adapter reads them, from a real file."""
    file = tmp_path / "openspec/changes/shop/tasks.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return specs.open(str(tmp_path), "shop", "openspec").stories()


def spec_findings(tmp_path: Path, new: str, story: str = "1", old: str = TASKS) -> list[GuardFinding]:
    before, after = {"tasks.md": old.encode()}, {"tasks.md": new.encode()}
    return inspect_spec(before, after, stories_of(tmp_path, old), stories_of(tmp_path, new), story)


SPEC_CASES = {
    "nothing": (TASKS, []),
    "own box": (altered("- [ ] 1.1", "- [x] 1.1", TASKS), []),
    "own box, capital": (altered("- [ ] 1.1", "- [X] 1.1", TASKS), []),
    "another story's box": (altered("- [ ] 2.1", "- [x] 2.1", TASKS), ["other-story-ticked"]),
    "an indented box of another": (altered("- [ ] 2.2", "- [x] 2.2", TASKS), ["other-story-ticked"]),
    "own and another's": (TASKS.replace("- [ ]", "- [x]"), ["other-story-ticked"] * 2),
    "unticked": (altered("* [x]", "* [ ]", TASKS), ["unticked"]),
    "text": (altered("Make the folder", "Make a folder", TASKS), ["spec-edited"]),
    "text and box": (altered("- [ ] 1.1 Make the", "- [x] 1.1 Make a", TASKS), ["spec-edited"]),
    "a task gone": (altered("- [ ] 1.1 Make the folder\n", "", TASKS), ["spec-edited"]),
    "a task more": (TASKS + "- [x] 2.3 Ship\n", ["spec-edited"]),
    "a blank line at the end": (TASKS + "\n", ["spec-edited"]),
    "no line feed at the end": (TASKS[:-1], ["spec-edited"]),
    "trailing blanks": (altered("Compile", "Compile ", TASKS), ["spec-edited"]),
    "a box that is none": (altered("`[ ]`", "`[x]`", TASKS), ["spec-edited"]),
    "a heading": (altered("## 2. Build", "## 2. Build (optional)", TASKS), ["spec-edited"]),
    "another mark": (altered("* [x]", "* [X]", TASKS), ["spec-edited"]),
}


@pytest.mark.parametrize("name", SPEC_CASES)
def test_only_own_boxes_may_be_ticked(name: str, tmp_path: Path) -> None:
    new, wanted = SPEC_CASES[name]
    assert [finding.kind for finding in spec_findings(tmp_path, new)] == wanted


@pytest.mark.parametrize("name", [name for name in SPEC_CASES if not name.startswith("no line")])
def test_line_endings_make_no_difference(name: str, tmp_path: Path) -> None:
    new, wanted = SPEC_CASES[name]
    old, new = TASKS.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    assert [finding.kind for finding in spec_findings(tmp_path, new, old=old)] == wanted


def test_changed_line_endings_are_an_edit(tmp_path: Path) -> None:
    assert [one.kind for one in spec_findings(tmp_path, TASKS.replace("\n", "\r\n"))] == ["spec-edited"]


def test_the_first_line_that_differs_is_told(tmp_path: Path) -> None:
    [found] = spec_findings(tmp_path, altered("2.1 Compile", "2.1 Ship", TASKS))
    assert found == GuardFinding("spec-edited", "tasks.md", "line 10: - [ ] 2.1 Ship")


def test_what_an_adapter_ticks_is_what_is_allowed(tmp_path: Path) -> None:
    old = "## A\n- [ ](x) one\n1. [ ] two\n+ [] three\n## B\n- [ ] two\n"
    file = tmp_path / "TODO.md"
    file.write_text(old)
    spec = specs.open(str(tmp_path), "TODO", "checklist")
    before = spec.stories()
    for task in before[0].tasks:
        spec.tick(task.id)
    new = file.read_bytes()
    assert new.count(b"[x]") == 3
    told = inspect_spec({"TODO.md": old.encode()}, {"TODO.md": new}, before, spec.stories(), "1")
    assert told == []
    told = inspect_spec({"TODO.md": old.encode()}, {"TODO.md": new}, before, spec.stories(), "2")
    assert [one.kind for one in told] == ["other-story-ticked"] * 3


def test_marks_around_a_task_do_not_hide_it(tmp_path: Path) -> None:
    old = altered("- [ ] 1.1 Make the folder", "- [ ] **1.1 Make** the folder", TASKS)
    old = altered("- [ ] 2.1 Compile", "- [ ] __2.1 Compile__", old)
    assert spec_findings(tmp_path, altered("- [ ] **1.1", "- [x] **1.1", old), old=old) == []
    [found] = spec_findings(tmp_path, altered("- [ ] __2.1", "- [x] __2.1", old), old=old)
    assert found.kind == "other-story-ticked"


def test_a_box_in_a_fence_is_no_task(tmp_path: Path) -> None:
    old = TASKS + "\n```\n- [ ] 1.9 not a task\n```\n"
    found = spec_findings(tmp_path, old.replace("[ ] 1.9", "[x] 1.9").replace("[ ] 1.1", "[x] 1.1"), old=old)
    assert [(one.kind, one.detail[:7]) for one in found] == [("spec-edited", "line 14")]


def test_boxes_of_other_files_are_no_tasks(tmp_path: Path) -> None:
    stories = stories_of(tmp_path, TASKS)
    before: dict[str, bytes | None] = {"tasks.md": TASKS.encode(), "spec.md": b"- [ ] shall\n", "proposal.md": None}
    after = {**before, "spec.md": b"- [x] shall\n", "design.md": b"new\n"}
    found = inspect_spec(before, after, stories, stories, "1")
    assert [(one.kind, one.path) for one in found] == [("spec-edited", "design.md"), ("spec-edited", "spec.md")]
    gone = inspect_spec(before, {**before, "spec.md": None}, stories, stories, "1")
    assert gone == [GuardFinding("spec-edited", "spec.md", "the file is gone")]


PRD = """\
{"userStories": [
  {"id": "US-1", "title": "A", "passes": false},
  {"id": "US-2", "title": "B", "passes": true}
]}
"""
PRD_CASES = [
    (PRD, []),
    (altered('"A", "passes": false', '"A", "passes": true', PRD), ["passes-flipped"]),
    (altered('"A", "passes": false', '"A", "p\\u0061sses": true', PRD), ["passes-flipped", "spec-edited"]),
    (altered('"B", "passes": true', '"B", "passes": false', PRD), ["unticked"]),
    (altered('"A"', '"C"', PRD), ["spec-edited"]),
    (altered('"A", "passes": false', '"C", "passes": true', PRD), ["passes-flipped", "spec-edited"]),
    (PRD + "\n", ["spec-edited"]),
    (PRD.replace("  ", "    "), ["spec-edited"]),
    ("[" * 100_000, ["spec-edited"]),
    ("", ["spec-edited"]),
]


@pytest.mark.parametrize(("new", "wanted"), PRD_CASES, ids=range(len(PRD_CASES)))
def test_prd_json_is_not_for_the_agent(new: str, wanted: list[str]) -> None:
    found = inspect_spec({"prd.json": PRD.encode()}, {"prd.json": new.encode()}, [], [], "US-1", done_key="passes")
    assert [one.kind for one in found] == wanted
