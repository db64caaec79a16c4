"""Kiro's specs: numbered boxes are stories, the boxes below them tasks, and criteria are scenarios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import Ralph
from properties import THOROUGH
from specs.formats import done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import SpecError, TaskNotFound, UnsafePath
from ralphtool.specs.kiro import Kiro

TASKS = """\
# Implementation Plan

## Overview

What all of it is about.

## Tasks

- [x] 1. Set up project structure
  - [x] 1.1 Create the types
    - in `lib/types.ts`
    - _Requirements: 1.1, 1.2_
  - [ ]* 1.2 Write a property test
    - **Property 1: it holds**
    - **Validates: Requirements 2.1**
- [-] 2. Log in
  - Users want in.
  - [ ] 2.1 Write the form
    - _Requirements: 2_
  - [~] 2.2 Check the password
    - _Requirements: 1.1-1.2, 2.2_
- [ ] 3. Checkpoint - Ensure all tests pass
- [ ]* 4. Polish

## Notes

Tasks marked with `*` are optional.
"""

REQUIREMENTS = """\
# Requirements Document

## Introduction

Users want in, and 2 more things.

## Requirements

### Requirement 1: Types

**User Story:** As a developer, I want types, so that mistakes show.

#### Acceptance Criteria

1. WHEN a type is wrong THEN the system SHALL say so
2. IF there is no type, THEN THE System SHALL guess
   one

### Requirement 2: Login

#### Acceptance Criteria

1. WHILE nobody is logged in, WHEN a page is asked for THE System SHALL show the form
2. THE System SHALL keep passwords hashed
"""


def make(ralph: Ralph, tasks: str | bytes = TASKS, **more: str | bytes) -> Kiro:
    ralph.write(".kiro/specs/login/tasks.md", tasks)
    for name, text in more.items():
        ralph.write(f".kiro/specs/login/{name}.md", text)
    spec = open_spec(ralph, "login")
    assert isinstance(spec, Kiro)
    return spec


def tasks_of(ralph: Ralph) -> str:
    return ralph.read(".kiro/specs/login/tasks.md")


# --- reading ----------------------------------------------------------------------------------------


def test_numbered_boxes_are_stories_and_those_below_them_tasks(ralph: Ralph) -> None:
    spec = make(ralph)
    assert outline(spec) == {"1": ["1.1", "1.2"], "2": ["2.1", "2.2"], "3": ["3"], "4": ["4"]}
    [first, second, third, fourth] = spec.stories()
    assert (first.title, second.title) == ("Set up project structure", "Log in")
    assert second.description == "- Users want in."
    assert first.tasks[0].text.split("\n") == ["Create the types", "- in `lib/types.ts`", "- _Requirements: 1.1, 1.2_"]
    assert third.tasks[0].text == "Checkpoint - Ensure all tests pass"
    assert [story.optional for story in spec.stories()] == [False, False, False, True]
    assert not fourth.done
    assert spec.warnings == []


def test_an_optional_task_keeps_no_story_from_being_done(ralph: Ralph) -> None:
    [first, second, *_] = make(ralph).stories()
    assert [task.optional for task in first.tasks] == [False, True]
    assert (first.done, second.done) == (True, False)


def test_what_is_begun_or_queued_is_open(ralph: Ralph) -> None:
    assert done_ids(make(ralph)) == ["1.1"]


@pytest.mark.parametrize("mark", ["1.2*", "1.2\\*", "1.2.*"])
def test_the_star_of_an_optional_task_may_follow_its_number(ralph: Ralph, mark: str) -> None:
    spec = make(ralph, f"- [ ] 1. A\n  - [ ] 1.1 a\n  - [ ] {mark} (P) b\n  - [ ] **1.3** c\n")
    [story] = spec.stories()
    found = [(task.id, task.text, task.optional) for task in story.tasks]
    assert found == [("1.1", "a", False), ("1.2", "(P) b", True), ("1.3", "c", False)]


def test_a_story_whose_tasks_are_all_optional_is_work_itself(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] 1. Add the listener\n  - in `app.js`\n- [ ]* 1.1 Write a test\n")
    [story] = spec.stories()
    assert [(task.id, task.optional) for task in story.tasks] == [("1", False), ("1.1", True)]
    assert story.tasks[0].text == "Add the listener\n- in `app.js`"
    spec.tick("1")
    assert tasks_of(ralph) == "- [x] 1. Add the listener\n  - in `app.js`\n- [ ]* 1.1 Write a test\n"
    assert spec.stories()[0].done


def test_sub_tasks_need_not_be_indented(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] 17. A\n- [ ] 17.1 b\n- [ ] 17.2 c\n- [ ] 18. D\n- [ ] 18.1 e\n")
    assert outline(spec) == {"17": ["17.1", "17.2"], "18": ["18.1"]}


def test_numbered_headings_are_stories_too(ralph: Ralph) -> None:
    spec = make(ralph, "# Plan\n\n## 1. Set up\n\nFirst.\n\n- [ ] 1.1 (P) a\n- [ ] 1.2 b\n\n## 2. Build\n- [ ] c\n")
    assert outline(spec) == {"1": ["1.1", "1.2"], "2": ["2.#1"]}
    assert [(story.title, story.description) for story in spec.stories()] == [("Set up", "First."), ("Build", None)]


def test_boxes_without_numbers_are_work_too(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] Set up\n  - [ ] make the folder\n  - [ ] write the file\n- [ ] 検証\n")
    assert outline(spec) == {"set-up": ["set-up.#1", "set-up.#2"], "task": ["task"]}


def test_sub_tasks_can_be_counted_within_their_story(ralph: Ralph) -> None:
    assert outline(make(ralph, "- [ ] 3. A\n  - [ ] 1. b\n  - [ ] 2. c\n")) == {"3": ["3.1", "3.2"]}


def test_bold_numbers_are_numbers(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] **1. Set up**\n  - [ ] **1.1** a\n")
    assert outline(spec) == {"1": ["1.1"]}
    assert spec.stories()[0].title == "Set up"


def test_dependencies_are_those_that_are_named(ralph: Ralph) -> None:
    text = "- [ ] 1. A\n  - [ ] 1.1 a\n- [ ] 2. B (depends on 1)\n- [ ] 3. C\n  - [ ] 3.1 c\n    - _Depends: 1.1, 2_\n"
    assert [story.depends_on for story in make(ralph, text).stories()] == [(), ("1",), ("1", "2")]


def test_a_spec_without_tasks_yet_is_a_change(ralph: Ralph) -> None:
    ralph.write(".kiro/specs/v0.7.0-search/requirements.md", REQUIREMENTS)
    ralph.write(".kiro/specs/empty/.config.kiro", "{}")
    assert specs.adapter("kiro").changes(str(ralph.root)) == ["v0.7.0-search"]
    assert open_spec(ralph, "v0.7.0-search").stories() == []


# --- scenarios --------------------------------------------------------------------------------------


def test_the_criteria_that_tasks_name_are_their_scenarios(ralph: Ralph) -> None:
    spec = make(ralph, requirements=REQUIREMENTS)
    first, second, third, _ = ([one.name for one in spec.scenarios(story)] for story in spec.stories())
    assert first == ["1.1", "1.2", "2.1"]
    assert second == ["1.1", "1.2", "2.1", "2.2"]
    assert third == []


def test_a_criterion_is_parted_as_ears_has_it(ralph: Ralph) -> None:
    spec = make(ralph, requirements=REQUIREMENTS)
    found = {one.name: one for one in spec.scenarios(spec.stories()[1])}
    assert found["1.1"].requirement == "Requirement 1: Types"
    assert (found["1.1"].when, found["1.1"].then) == (["a type is wrong"], ["the system SHALL say so"])
    assert (found["1.2"].when, found["1.2"].then) == (["there is no type"], ["THE System SHALL guess\none"])
    assert (found["2.1"].given, found["2.1"].when) == (["nobody is logged in"], ["a page is asked for"])
    assert found["2.1"].then == ["THE System SHALL show the form"]
    assert (found["2.2"].when, found["2.2"].then) == ([], ["THE System SHALL keep passwords hashed"])


def test_the_criteria_of_a_bugfix_bring_their_whole_number(ralph: Ralph) -> None:
    bug = "# Bug\n\n## Current\n\n1.1 WHEN a THEN it crashes\n\n## Expected\n\n2.1 WHEN a THEN it SHALL not\n"
    spec = make(ralph, "- [ ] 1. Fix\n  - _Requirements: 2.1_\n", bugfix=bug)
    [only] = spec.scenarios(spec.stories()[0])
    assert (only.name, only.when, only.then) == ("2.1", ["a"], ["it SHALL not"])


def test_requirements_and_design_are_context(ralph: Ralph) -> None:
    spec = make(ralph, requirements=REQUIREMENTS, design="# Design\n")
    assert (spec.proposal(), spec.design()) == (REQUIREMENTS, "# Design\n")


# --- ticking ----------------------------------------------------------------------------------------


def test_a_parent_is_ticked_with_its_last_required_task(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] 1. A\n  - [ ] 1.1 a\n  - [ ]* 1.2 b\n  - [ ] 1.3 c\n")
    spec.tick("1.1")
    assert tasks_of(ralph) == "- [ ] 1. A\n  - [x] 1.1 a\n  - [ ]* 1.2 b\n  - [ ] 1.3 c\n"
    assert not spec.is_marked("1")
    spec.tick("1.3")
    assert tasks_of(ralph) == "- [x] 1. A\n  - [x] 1.1 a\n  - [ ]* 1.2 b\n  - [x] 1.3 c\n"
    assert spec.is_marked("1")
    spec.untick("1.1")
    assert tasks_of(ralph) == "- [ ] 1. A\n  - [ ] 1.1 a\n  - [ ]* 1.2 b\n  - [x] 1.3 c\n"


def test_a_parent_that_somebody_left_open_is_ticked_too(ralph: Ralph) -> None:
    spec = make(ralph, "- [-] 1. A\n  - [x] 1.1 a\n  - [x] 1.2 b\n")
    assert spec.stories()[0].done
    assert not spec.is_marked("1")
    spec.tick("1.2")
    assert tasks_of(ralph) == "- [x] 1. A\n  - [x] 1.1 a\n  - [x] 1.2 b\n"


# --- bad input --------------------------------------------------------------------------------------


def test_an_id_that_is_there_twice_gets_a_suffix_and_a_warning(ralph: Ralph) -> None:
    spec = make(ralph, "- [ ] 1. A\n  - [ ] 1.1 a\n  - [ ] 1.1 b\n- [ ] 1. B\n  - [ ] 1.1 c\n")
    assert outline(spec) == {"1": ["1.1", "1.1-2"], "1-2": ["1.1-3"]}
    assert len(spec.warnings) == 3
    assert "'1.1' is used twice" in spec.warnings[1]
    spec.tick("1.1-3")
    assert tasks_of(ralph) == "- [ ] 1. A\n  - [ ] 1.1 a\n  - [ ] 1.1 b\n- [x] 1. B\n  - [x] 1.1 c\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"- [ ] 1. A\n- [ ] 2. \xff\n", "not UTF-8"),
        ("- [ ] 1. A\n  - _Depends: 2_\n- [ ] 2. B\n  - _Depends: 1_\n", "depend on each other"),
        ("- [ ] 1. A\n  - _Depends: 9_\n", "depends on 9"),
        ("```\n- [ ] 1. A\n", "never closed"),
    ],
)
def test_what_would_confuse_a_run_is_refused_and_left_alone(ralph: Ralph, text: str | bytes, told: str) -> None:
    spec = make(ralph, text)
    before = ralph.snapshot()
    with pytest.raises(SpecError, match=told):
        spec.stories()
    assert ralph.snapshot() == before


def test_a_bad_byte_in_the_requirements_is_replaced_and_told(ralph: Ralph) -> None:
    spec = make(ralph, requirements=REQUIREMENTS.encode() + b"\xff\n", design=b"\xfe")
    assert "\ufffd" in str(spec.proposal())
    assert spec.design() == "\ufffd"
    assert [one.name for one in spec.scenarios(spec.stories()[0])] == ["1.1", "1.2", "2.1"]
    assert [text.rpartition("/")[2].partition(" ")[0] for text in spec.warnings] == ["requirements.md", "design.md"]


@pytest.mark.parametrize("end", [6, 20, 60, 150])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(ralph: Ralph, end: int) -> None:
    spec = make(ralph, TASKS[:end])
    known = [task for tasks in outline(make(ralph)).values() for task in tasks]
    ralph.write(".kiro/specs/login/tasks.md", TASKS[:end])
    assert {task for tasks in outline(spec).values() for task in tasks} <= {*known, "1", "2"}
    assert spec.warnings == []


def test_a_link_out_of_the_project_is_never_written_to(ralph: Ralph, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(TASKS)
    make(ralph)
    (ralph.root / ".kiro/specs/login/tasks.md").unlink()
    (ralph.root / ".kiro/specs/login/tasks.md").symlink_to(outside)
    with pytest.raises(UnsafePath):
        open_spec(ralph, "login").tick("2.1")
    assert outside.read_text() == TASKS


def test_20_mb_are_read_and_ticked(ralph: Ralph) -> None:
    """With `scripts/test --all`; otherwise 5 MB."""
    many = 38_000 if THOROUGH else 9_500
    rows = [f"- [ ] {n}. Story\n  - [ ] {n}.1 task {'x' * 500}\n" for n in range(1, many)]
    text = "".join(rows)
    assert len(text) > (20_000_000 if THOROUGH else 5_000_000)
    spec = make(ralph, text)
    assert len(spec.stories()) == len(rows)
    spec.tick(f"{many - 100}.1")
    assert tasks_of(ralph).count("[x]") == 2


def test_an_unknown_task_changes_nothing(ralph: Ralph) -> None:
    spec = make(ralph)
    for id in ("1", "9.9", "2", ""):
        with pytest.raises(TaskNotFound):
            spec.tick(id)
    assert tasks_of(ralph) == TASKS


# --- by command -------------------------------------------------------------------------------------


def test_a_whole_session(ralph: Ralph) -> None:
    make(ralph, "- [ ] 1. A\n  - [ ] 1.1 a\n    - _Requirements: 1.1_\n- [ ] 2. B\n", requirements=REQUIREMENTS)
    ralph.begin("login")
    done = ralph.agent("task", "done", "1.1").json
    assert (done["story_complete"], [one["name"] for one in done["scenarios"]]) == (True, ["1.1"])
    assert ralph.agent("session", "next-story").json["story_id"] == "2"
    ralph.agent("task", "done", "2")
    assert ralph.agent("session", "next-story").json == {"complete": True}
    assert tasks_of(ralph).count("[x]") == 3


def test_new_begins_a_spec_where_kiro_is_used(ralph: Ralph) -> None:
    (ralph.root / ".kiro/specs").mkdir(parents=True)
    made = ralph.run("new", "Add search", "--json").json
    assert (made["format"], made["change"]) == ("kiro", "add-search")
    spec = open_spec(ralph, "add-search")
    assert outline(spec) == {"1": ["1.1", "1.2"], "2": ["2.1", "2.2"]}
    assert [one.name for one in spec.scenarios(spec.stories()[0])] == ["1.1", "1.2"]
    assert spec.stories()[1].depends_on == ("1",)
    assert (
        json.loads(ralph.run("new", "Add search", "--name", "add-search", "--json").stderr)["code"] == "INVALID_VALUE"
    )
