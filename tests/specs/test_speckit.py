"""Spec Kit features: phases are stories, `T001` is a task, Setup and Foundational come first."""

from __future__ import annotations

import textwrap

import pytest
from project import Ralph
from specs.formats import all_tasks, done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.specs import Scenario, Spec, speckit

FEATURE = "001-photo-albums"
FILE = f"specs/{FEATURE}/tasks.md"

TEMPLATE = """\
---
description: "Task list"
---

# Tasks: Photo albums

**Input**: Design documents from `/specs/001-photo-albums/`

## Format: `[ID] [P?] [Story] Description`

- **[P]**: Can run in parallel

## Phase 1: Setup (Shared Infrastructure)

**Purpose**: Project initialization

- [X] T001 Create project structure per implementation plan
- [ ] T002 Initialize project
- [ ] T003 [P] Configure linting

---

## Phase 2: Foundational (Blocking Prerequisites)

- [ ] T004 Set up the database

**Checkpoint**: Foundation ready

## Phase 3: User Story 1 - Albums (Priority: P1) 🎯 MVP

**Goal**: Albums by date

### Tests for User Story 1 (OPTIONAL - only if tests requested) ⚠️

- [ ] T005 [P] [US1] Contract test in tests/contract/test_albums.py

### Implementation for User Story 1

- [ ] T006 [P] [US1] Create Album model in src/models/album.py
- [ ] T007 [US1] Implement AlbumService (depends on T005, T006)

## Phase 4: User Story 2 - Sharing (Priority: P2)

- [ ] T008 [US2] Share an album (depends on T007)

## Phase N: Polish & Cross-Cutting Concerns

- [ ] T009 [P] Documentation updates in docs/

## Dependencies & Execution Order

- **Setup (Phase 1)**: No dependencies

## Parallel Example: User Story 1

```bash
- [ ] T010 not a task
```
"""

SPEC = """\
# Feature Specification: Photo albums

## User Scenarios & Testing

### User Story 1 - Albums (Priority: P1)

Some words.

**Acceptance Scenarios**:

1. **Given** some photos, **When** the page opens, **Then** they are grouped by date
2. **Given** none, **When** the page opens, **Then** a hint is shown

### User Story 2 - Sharing (Priority: P2)

1. **Given** an album, **When** it is shared, **Then** a link is made, **And** it works

### Edge Cases

- What happens when the disk is full?
"""


def opened(ralph: Ralph, tasks: str | bytes) -> Spec:
    ralph.write(FILE, tasks)
    return open_spec(ralph, FEATURE)


def waits(spec: Spec) -> dict[str, tuple[str, ...]]:
    return {story.id: story.depends_on for story in spec.stories()}


# --- phases and tasks -------------------------------------------------------------------------------


def test_the_template_of_spec_kit(ralph: Ralph) -> None:
    spec = opened(ralph, TEMPLATE)
    assert outline(spec) == {
        "1": ["T001", "T002", "T003"],
        "2": ["T004"],
        "3": ["T005", "T006", "T007"],
        "4": ["T008"],
        "N": ["T009"],
    }
    titles = [story.title for story in spec.stories()]
    assert titles[0] == "Setup (Shared Infrastructure)"
    assert titles[2].startswith("User Story 1 - Albums")
    assert done_ids(spec) == ["T001"]
    assert [story.optional for story in spec.stories()] == [False] * 5


def test_marks_for_parallel_and_user_story_stay_in_the_text(ralph: Ralph) -> None:
    texts = {task.id: task.text for task in all_tasks(opened(ralph, TEMPLATE))}
    assert texts["T003"] == "[P] Configure linting"
    assert texts["T006"] == "[P] [US1] Create Album model in src/models/album.py"
    assert texts["T007"] == "[US1] Implement AlbumService (depends on T005, T006)"


@pytest.mark.parametrize(
    ("heading", "id", "title"),
    [
        ("## Phase 3: Polish", "3", "Polish"),
        ("## Phase 3.1: Polish", "3.1", "Polish"),
        ("## Phase 3 - Polish", "3", "Polish"),
        ("## Phase 3 — Polish", "3", "Polish"),
        ("## Phase 3 Polish", "3", "Polish"),
        ("## PHASE 3: Polish", "3", "Polish"),
        ("### Phase 3: Polish", "3", "Polish"),
        ("# Phase 3: Polish ##", "3", "Polish"),
        ("## Phase N: Polish", "N", "Polish"),
        ("## Phase 3", "3", "Phase 3"),
        ("## Phase 3:", "3", "Phase 3:"),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_number_of_the_phase_is_the_id(ralph: Ralph, heading: str, id: str, title: str, ending: str) -> None:
    [story] = opened(ralph, f"{heading}{ending}{ending}- [ ] T001 x{ending}").stories()
    assert (story.id, story.title) == (id, title)


def test_phases_with_a_point_in_their_number(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        "## Phase 3.1: Setup\n- [ ] T001 a\n## Phase 3.2: Tests First\n- [ ] T002 b\n"
        "## Phase 3.3: Core\n- [ ] T003 c\n## Phase 3.10: Polish\n- [ ] T004 d\n",
    )
    assert outline(spec) == {"3.1": ["T001"], "3.2": ["T002"], "3.3": ["T003"], "3.10": ["T004"]}
    assert list(outline(spec)) == ["3.1", "3.2", "3.3", "3.10"]


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("- [ ] T001 text", False),
        ("- [X] T001 text", True),
        ("* [x] T001 text", True),
        ("+ [ ] T001 text", False),
        ("1. [ ] T001 text", False),
        ("\t- [ ]\tT001 text", False),
        ("   -  [ ]  T001  text  ", False),
        ("- [ ] **T001** text", False),
        ("- [ ] T001: text", False),
        ("- [ ] T001. text", False),
        ("- [ ] `T001` text", False),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_task_is_read_however_it_is_written(ralph: Ralph, line: str, done: bool, ending: str) -> None:
    [task] = all_tasks(opened(ralph, f"## Phase 1: A{ending}{line}{ending}"))
    assert (task.id, task.text, task.done) == ("T001", "text", done)


@pytest.mark.parametrize("id", ["T1", "T0001", "T012a", "T-7"])
def test_ids_of_other_lengths(ralph: Ralph, id: str) -> None:
    assert outline(opened(ralph, f"## Phase 1: A\n- [ ] {id} text\n")) == {"1": [id]}


def test_boxes_without_an_id_and_outside_of_phases_are_work_too(ralph: Ralph) -> None:
    spec = opened(
        ralph, "- [ ] T000 early\n## Phase 1: A\n- [ ] text\n- [ ] Try it\n## Notes\n- [ ] T001 x\n## More\nprose\n"
    )
    assert outline(spec) == {"tasks": ["T000"], "1": ["1.#1", "1.#2"], "notes": ["T001"]}


def test_the_legend_of_the_template_is_no_box(ralph: Ralph) -> None:
    spec = opened(ralph, "## Format\n- [P] can run in parallel\n## Phase 1: A\n- [ ] T001 [P] x\n")
    assert outline(spec) == {"1": ["T001"]}


def test_boxes_below_any_heading_are_work_too(ralph: Ralph) -> None:
    spec = opened(
        ralph, "# Tasks\n### Early\n- [ ] T001 x\n## Phase 1: A\n- [ ] T002 x\n## Notes\n### Late\n- [ ] T003 x\n"
    )
    assert sorted(task.id for task in all_tasks(spec)) == ["T001", "T002", "T003"]


def test_the_same_phase_twice_is_one_story(ralph: Ralph) -> None:
    spec = opened(
        ralph, "## Phase 1: A\n- [ ] T001 x\n## Phase 2: B\n- [ ] T002 x\n## Phase 1: A again\n- [ ] T003 x\n"
    )
    assert outline(spec) == {"1": ["T001", "T003"], "2": ["T002"]}


def test_fences_hide_boxes_and_phases(ralph: Ralph) -> None:
    spec = opened(ralph, "## Phase 1: A\n- [ ] T001 x\n```\n## Phase 2: B\n- [ ] T002 x\n```\n- [ ] T003 x\n")
    assert outline(spec) == {"1": ["T001", "T003"]}


def test_ticking_keeps_every_other_byte(ralph: Ralph) -> None:
    text = "\ufeff" + TEMPLATE.replace("\n", "\r\n").replace("T006", "T006 \t", 1)
    spec = opened(ralph, text)
    spec.tick("T006")
    assert (ralph.root / FILE).read_bytes().decode() == text.replace("- [ ] T006", "- [x] T006")
    assert done_ids(spec) == ["T001", "T006"]


def test_a_phase_without_tasks_is_not_done_and_no_other_phase_waits_for_it(ralph: Ralph) -> None:
    spec = opened(ralph, "## Phase 1: Setup\n\nnothing\n\n## Phase 2: B\n- [ ] T001 x\n")
    assert [(story.id, story.done, story.depends_on) for story in spec.stories()] == [
        ("1", False, ()),
        ("2", False, ()),
    ]
    assert "story 1" in specs.list_warnings(spec)[0]


# --- order ------------------------------------------------------------------------------------------


def test_setup_and_foundational_come_before_all_else(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        "## Phase 3: User Story 1\n- [ ] T003 x\n## Phase 1: Setup\n- [ ] T001 x\n"
        "## Phase 4: Polish\n- [ ] T004 x\n## Phase 2: Foundational (Blocking)\n- [ ] T002 x\n",
    )
    assert list(outline(spec)) == ["1", "2", "3", "4"]
    assert waits(spec) == {"1": (), "2": ("1",), "3": ("1", "2"), "4": ("1", "2")}


def test_nothing_else_is_given_while_the_groundwork_is_open(ralph: Ralph) -> None:
    spec = opened(ralph, TEMPLATE)
    given = []
    while story := specs.next_story(spec.stories()):
        given.append(story.id)
        for task in story.tasks:
            spec.tick(task.id)
    assert given == ["1", "2", "3", "4", "N"]


def test_depends_on_a_task_is_depending_on_its_phase(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        "## Phase 1: A\n- [ ] T001 x (depends on T003)\n## Phase 2: B\n- [ ] T002 y depends on T003 and T002\n"
        "## Phase 3: C\n- [ ] T003 z\n## Phase 4: D\n- [ ] T004 z (Depends On: T001, T003, T004)\n",
    )
    assert waits(spec) == {"1": ("3",), "2": ("3",), "3": (), "4": ("1", "3")}


def test_depends_on_a_task_in_the_heading_of_a_phase(ralph: Ralph) -> None:
    spec = opened(ralph, "## Phase 1: A\n- [ ] T001 x\n## Phase 2: B (depends on T001)\n- [ ] T002 x\n")
    assert waits(spec) == {"1": (), "2": ("1",)}


@pytest.mark.parametrize("first", ["A", "Setup"])
def test_phases_that_need_tasks_of_each_other_come_in_order(ralph: Ralph, first: str) -> None:
    """Tasks that depend on each other across two phases are not a cycle themselves: phases are coarser."""
    spec = opened(
        ralph,
        f"## Phase 1: {first}\n- [ ] T001 x\n- [ ] T002 x (depends on T003)\n"
        "## Phase 2: B\n- [ ] T003 x\n- [ ] T004 x (depends on T001)\n",
    )
    assert waits(spec) == {"1": (), "2": ("1",)}


def test_depends_on_is_read_in_any_language(ralph: Ralph) -> None:
    """Letters whose lower case is longer must not shift the text that is read."""
    spec = opened(ralph, f"## Phase 1: A\n- [ ] T001 x\n## Phase 2: B\n- [ ] T002 y depends on T001 {'İ' * 40}\n")
    assert waits(spec) == {"1": (), "2": ("1",)}


def test_depends_on_a_phase_in_its_heading(ralph: Ralph) -> None:
    spec = opened(ralph, "## Phase 1: A (depends on Phase 2)\n- [ ] T001 x\n## Phase 2: B\n- [ ] T002 x\n")
    assert waits(spec) == {"1": ("2",), "2": ()}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("## Phase 1: A\n- [ ] T001 x (depends on T009)\n", "depends on T009, which does not exist"),
        (
            "## Phase 1: A (depends on 2)\n- [ ] T001 x\n## Phase 2: B (depends on Phase 1)\n- [ ] T002 x\n",
            "1, 2 depend on each other",
        ),
        ("## Phase 1: A (depends on 7)\n- [ ] T001 x\n", "depends on 7, which does not exist"),
    ],
)
def test_circles_and_unknown_dependencies_are_spec_errors(ralph: Ralph, tasks: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        opened(ralph, tasks).stories()


def test_optional_phases(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        "## Phase 1: A\n- [ ] T001 x\n## Phase 2: B (Optional)\n- [ ] T002 x\n# Future\n## Phase 3: C\n- [ ] T003 x\n",
    )
    assert [story.optional for story in spec.stories()] == [False, True, True]


def test_a_section_for_optional_tests_makes_no_phase_optional(ralph: Ralph) -> None:
    [story] = opened(ralph, "## Phase 1: A\n### Tests (optional)\n- [ ] T001 x\n### Code\n- [ ] T002 y\n").stories()
    assert not story.optional


# --- finding ----------------------------------------------------------------------------------------


def test_folders_with_tasks_are_changes(ralph: Ralph) -> None:
    ralph.write(FILE, TEMPLATE)
    ralph.write("specs/002-empty/spec.md", SPEC)
    ralph.write("specs/notes.md", "- [ ] T001 x\n")
    ralph.write("specs/with blank/tasks.md", "- [ ] T001 x\n")
    assert speckit.changes(str(ralph.root)) == [FEATURE, "002-empty", "with-blank"]
    assert open_spec(ralph, "002-empty", "speckit").stories() == []
    with pytest.raises(ChangeNotFound):
        open_spec(ralph, "003-none", "speckit")


def test_not_utf8_is_a_spec_error(ralph: Ralph) -> None:
    with pytest.raises(SpecError, match="UTF-8"):
        opened(ralph, b"## Phase 1: \xff\n").stories()


def test_an_empty_file_has_no_stories(ralph: Ralph) -> None:
    assert opened(ralph, "").stories() == []


# --- spec.md, plan.md and scenarios -----------------------------------------------------------------


def scenarios_by_story(ralph: Ralph, spec_text: str) -> dict[str, list[Scenario]]:
    ralph.write(f"specs/{FEATURE}/spec.md", spec_text)
    spec = opened(ralph, TEMPLATE)
    return {story.id: spec.scenarios(story) for story in spec.stories()}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_phase_gets_the_scenarios_of_its_user_story(ralph: Ralph, ending: str) -> None:
    found = scenarios_by_story(ralph, SPEC.replace("\n", ending))
    first, second = found["3"]
    assert (first.capability, first.requirement) == (FEATURE, "User Story 1 - Albums (Priority: P1)")
    assert (first.given, first.when, first.then) == (["some photos"], ["the page opens"], ["they are grouped by date"])
    assert second.given == ["none"]
    [shared] = found["4"]
    assert shared.requirement == "User Story 2 - Sharing (Priority: P2)"
    assert shared.then == ["a link is made", "it works"]


def test_a_phase_without_a_user_story_gets_all_scenarios(ralph: Ralph) -> None:
    assert [len(found) for found in scenarios_by_story(ralph, SPEC).values()] == [3, 3, 2, 1, 3]


def test_user_story_1_is_not_user_story_10(ralph: Ralph) -> None:
    text = SPEC.replace("User Story 2", "User Story 10")
    assert [one.given for one in scenarios_by_story(ralph, text)["3"]] == [["some photos"], ["none"]]


def test_a_scenario_inside_a_fence_is_none(ralph: Ralph) -> None:
    assert scenarios_by_story(ralph, f"```\n{SPEC}```\n")["N"] == []


def test_spec_and_plan_are_proposal_and_design(ralph: Ralph) -> None:
    spec = opened(ralph, TEMPLATE)
    assert (spec.proposal(), spec.design()) == (None, None)
    ralph.write(f"specs/{FEATURE}/spec.md", "what\n")
    ralph.write(f"specs/{FEATURE}/plan.md", "how\n")
    assert (spec.proposal(), spec.design()) == ("what\n", "how\n")


def test_a_whole_session(ralph: Ralph) -> None:
    ralph.write(FILE, TEMPLATE)
    ralph.write(f"specs/{FEATURE}/spec.md", SPEC)
    ralph.begin(FEATURE)
    assert ralph.agent("task", "done", "T002").json["remaining"] == ["T003"]
    assert ralph.agent("task", "done", "T004").code == "TASK_OUT_OF_SCOPE"
    done = ralph.agent("task", "done", "T003").json
    assert done["story_complete"] is True
    assert len(done["scenarios"]) == 3
    ralph.agent("learn", "mind the database", "--task", "T004")
    ralph.agent("session", "flush")
    expected = TEMPLATE.replace("[ ] T002", "[x] T002").replace("[ ] T003", "[x] T003")
    assert ralph.read(FILE) == expected
    written = ralph.read(f"specs/{FEATURE}/{FEATURE}-learnings.md")
    assert written.endswith(" - Story 1\n- mind the database (Task T004)\n")
    assert textwrap.dedent(written) == written
