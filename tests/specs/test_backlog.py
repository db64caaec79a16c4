"""Backlog.md's tasks: a file is a story, its criteria are tasks, and its status is set with the last one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE
from project import REPOSITORY, Ralph
from specs.formats import BACKLOG, done_ids, make_backlog, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, UnsafePath
from ralphtool.specs.backlog import BacklogSpec

CRITERIA = "\n## Acceptance Criteria\n<!-- AC:BEGIN -->\n- [ ] #1 a\n- [ ] #2 b\n<!-- AC:END -->\n"
FIRST = "backlog/tasks/task-1 - Set-up.md"


def add(ralph: Ralph, number: str, front: str = "", body: str = CRITERIA, prefix: str = "TASK") -> str:
    """Adds the file of a task; returns its path."""
    path = f"backlog/tasks/{prefix.lower()}-{number} - Task.md"
    status = "" if "status:" in front else "status: To Do\n"
    ralph.write(path, f"---\nid: {prefix}-{number}\ntitle: Task {number}\n{status}{front}---\n{body}")
    return path


def backlog(ralph: Ralph, change: str = "backlog") -> BacklogSpec:
    spec = open_spec(ralph, change, "backlog")
    assert isinstance(spec, BacklogSpec)
    return spec


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    ralph.write("backlog/config.yml", 'project_name: "x"\nstatuses: ["To Do", "Doing", "Shipped"]\n')
    (ralph.root / "backlog/tasks").mkdir()
    return ralph


# --- which task belongs to which change -------------------------------------------------------------


def test_a_milestone_and_a_task_with_sub_tasks_are_changes(project: Ralph) -> None:
    add(project, "1")
    add(project, "2", "milestone: v1.0\n")
    add(project, "3", "milestone: 'Second round'\n")
    add(project, "4")
    add(project, "4.1", "parent_task_id: task-4\n")
    add(project, "4.1.1", "parent_task_id: TASK-4.1\n")
    add(project, "5", "milestone: m-1\n")
    add(project, "5.1", "parent_task_id: TASK-5\n")
    changes = specs.adapter("backlog").changes(str(project.root))
    assert changes == ["backlog", "m-1", "second-round", "task-4", "v1.0"]
    found = {change: sorted(outline(backlog(project, change))) for change in changes}
    assert found == {
        "backlog": ["TASK-1"],
        "m-1": ["TASK-5", "TASK-5.1"],
        "second-round": ["TASK-3"],
        "task-4": ["TASK-4", "TASK-4.1", "TASK-4.1.1"],
        "v1.0": ["TASK-2"],
    }
    with pytest.raises(ChangeNotFound):
        backlog(project, "v2.0")


def test_a_parent_waits_for_its_sub_tasks(project: Ralph) -> None:
    add(project, "4")
    add(project, "4.1", "parent_task_id: task-4\n")
    add(project, "4.2", "parent_task_id: task-4\ndependencies: [task-4.1]\n")
    waits = {story.id: story.depends_on for story in backlog(project, "task-4").stories()}
    assert waits == {"TASK-4": ("TASK-4.1", "TASK-4.2"), "TASK-4.1": (), "TASK-4.2": ("TASK-4.1",)}
    add(project, "4.2", "parent_task_id: task-4\ndependencies: [task-4]\n")
    waits = {story.id: story.depends_on for story in backlog(project, "task-4").stories()}
    assert waits == {"TASK-4": (), "TASK-4.1": (), "TASK-4.2": ("TASK-4",)}


def test_parents_in_a_circle_are_no_endless_loop(project: Ralph) -> None:
    add(project, "1", "parent_task_id: TASK-2\n")
    add(project, "2", "parent_task_id: TASK-1\n")
    changes = specs.adapter("backlog").changes(str(project.root))
    assert sum(len(outline(backlog(project, change))) for change in changes) == 2


def test_a_task_that_names_itself_as_its_parent_has_none(project: Ralph) -> None:
    add(project, "5", "parent_task_id: task-5\n")
    assert specs.adapter("backlog").changes(str(project.root)) == ["backlog"]


@pytest.mark.parametrize("folder", ["backlog", ".backlog"])
def test_where_a_backlog_is_found(ralph: Ralph, folder: str) -> None:
    ralph.write(f"{folder}/tasks/task-1 - Set-up.md", BACKLOG)
    assert specs.adapter("backlog").changes(str(ralph.root)) == ["add-login"]


def test_a_folder_of_that_name_need_not_be_a_backlog(ralph: Ralph) -> None:
    ralph.write("backlog/tasks/clean up.md", "- [ ] x\n")
    assert specs.adapter("backlog").changes(str(ralph.root)) == []


# --- one file ---------------------------------------------------------------------------------------


def test_criteria_are_tasks_and_a_file_without_any_is_its_own(project: Ralph) -> None:
    body = "\n## Description\n\nWhy.\n- [ ] no task\n" + CRITERIA + "\n## Definition of Done\n- [x] #1 docs\n"
    add(project, "1", body=body + "\n## Implementation Plan\n\nHow.\n")
    add(project, "2", body="\n## Acceptance criteria (the what)\n\n- [ ] without a number\n- [X] another\n")
    add(project, "3", body="")
    spec = backlog(project)
    assert outline(spec) == {
        "TASK-1": ["TASK-1.#1", "TASK-1.#2", "TASK-1.dod.#1"],
        "TASK-2": ["TASK-2.#1", "TASK-2.#2"],
        "TASK-3": ["TASK-3"],
    }
    assert spec.stories()[0].description == "Why.\n\n- [ ] no task\n\n## Implementation Plan\n\nHow."
    assert done_ids(spec) == ["TASK-1.dod.#1", "TASK-2.#2"]


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("title: Log in", "Log in"),
        ("title: 'Log out: ''x'''", "Log out: 'x'"),
        ('title: "say \\"hi\\""', 'say "hi"'),
        ("title: >-\n  One that goes\n  over lines", "One that goes over lines"),
        ("title: |\n  first", "first"),
        ("title: plain # with a comment", "plain"),
        ("title: goes on\n  here", "goes on here"),
        ("title: a #1 b", "a"),
    ],
)
def test_titles_in_the_shapes_of_yaml(project: Ralph, front: str, title: str) -> None:
    project.write(FIRST, f"---\nid: TASK-1\n{front}\nstatus: To Do\n---\n{CRITERIA}")
    assert backlog(project).stories()[0].title == title


@pytest.mark.parametrize(
    "front",
    [
        "dependencies: [TASK-1, task-2]",
        'dependencies: ["task-1", "TASK-2"]',
        "dependencies:\n  - TASK-1\n  - task-2",
        "dependencies:\n- 'TASK-1'\n- TASK-2",
        "dependencies: [back-1, back-2]",
        "dependencies:\n  [\n    TASK-1,\n    TASK-2\n  ]",
    ],
)
def test_dependencies_in_the_shapes_of_yaml(project: Ralph, front: str) -> None:
    add(project, "1")
    add(project, "2")
    add(project, "3", f"{front}\n")
    assert backlog(project).stories()[2].depends_on == ("TASK-1", "TASK-2")


def test_a_dependency_of_another_change_blocks_until_it_is_done(project: Ralph) -> None:
    first = add(project, "1", "milestone: m-1\n")
    add(project, "2", "dependencies: [TASK-1]\n")
    spec = backlog(project)
    assert [(one.depends_on, one.put_aside) for one in spec.stories()] == [((), "blocked")]
    assert "TASK-2 waits for TASK-1, which belongs to the change m-1" in spec.warnings[0]
    assert specs.next_story(spec.stories()) is None
    project.write(first, project.read(first).replace("To Do", "Done"))
    assert [one.put_aside for one in backlog(project).stories()] == [""]


def test_a_dependency_that_is_completed_or_unknown_holds_nothing_up(project: Ralph) -> None:
    project.write("backlog/completed/task-7 - Old.md", "---\nid: TASK-7\n---\n")
    project.write("backlog/archive/tasks/task-8 - Older.md", "---\nid: TASK-8\n---\n")
    add(project, "9", "dependencies: [task-7, task-8, task-99]\n")
    spec = backlog(project)
    assert [(one.depends_on, one.put_aside) for one in spec.stories()] == [((), "")]
    assert len(spec.warnings) == 1
    assert "depends on 'task-99'" in spec.warnings[0]


def test_high_priority_comes_first_then_the_board_then_the_number(project: Ralph) -> None:
    add(project, "10")
    add(project, "9")
    add(project, "3", "ordinal: 2000\n")
    add(project, "4", "ordinal: 1000\n")
    add(project, "5", "priority: low\n")
    add(project, "6", "priority: high\n")
    assert list(outline(backlog(project))) == ["TASK-6", "TASK-5", "TASK-4", "TASK-3", "TASK-9", "TASK-10"]


@pytest.mark.parametrize(
    ("status", "done", "put_aside"),
    [
        ("To Do", False, ""),
        ("Doing", False, ""),
        ("Shipped", True, ""),
        ("'Done'", True, ""),
        ("Completed", True, ""),
        ("Won't Do", True, ""),
        ("Draft", False, "a draft"),
        ("Blocked", False, "blocked"),
        ("In Review", False, "in review"),
    ],
)
def test_what_a_status_means(project: Ralph, status: str, done: bool, put_aside: str) -> None:
    add(project, "1", f"status: {status}\n")
    [story] = backlog(project).stories()
    assert (story.done, story.put_aside) == (done, put_aside)


# --- writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("status: To Do", "status: Shipped"),
        ("status: 'To Do'", "status: 'Shipped'"),
        ('status:   "To Do"', 'status:   "Shipped"'),
        ("status: To Do # soon", "status: Shipped # soon"),
        ("status:", "status: Shipped"),
    ],
)
def test_the_last_criterion_sets_the_status_and_keeps_every_other_byte(
    project: Ralph, ending: str, before: str, after: str
) -> None:
    path = add(project, "1", f"{before}\nx: ' odd'\n")
    project.write(path, project.read(path).replace("\n", ending))
    old = project.read(path)
    spec = backlog(project)
    spec.tick("TASK-1.#1")
    assert project.read(path) == old.replace("[ ] #1", "[x] #1")
    spec.tick("TASK-1.#2", proven=False)
    assert project.read(path) == old.replace("[ ]", "[x]")
    assert not spec.is_marked("TASK-1")
    spec.tick("TASK-1.#2")
    assert project.read(path) == old.replace("[ ]", "[x]").replace(before, after)
    assert spec.is_marked("TASK-1")


def test_a_missing_status_is_added(project: Ralph) -> None:
    project.write(FIRST, "---\nid: TASK-1\ntitle: A\n---\n")
    backlog(project).tick("TASK-1", proven=False)
    assert project.read(FIRST) == "---\nid: TASK-1\ntitle: A\n---\n"
    backlog(project).tick("TASK-1")
    assert project.read(FIRST) == "---\nid: TASK-1\ntitle: A\nstatus: Shipped\n---\n"


def test_a_task_that_is_opened_again_is_to_do(project: Ralph) -> None:
    path = add(project, "1")
    before = project.read(path)
    spec = backlog(project)
    for task in ("TASK-1.#1", "TASK-1.#2"):
        spec.tick(task)
    for task in ("TASK-1.#1", "TASK-1.#2"):
        spec.untick(task)
    assert project.read(path) == before


def test_boxes_in_the_front_matter_are_no_criteria(project: Ralph) -> None:
    path = add(project, "1", "notes: |\n  ## Acceptance Criteria\n  - [ ] #1 trap\n")
    backlog(project).tick("TASK-1.#1")
    assert "- [ ] #1 trap" in project.read(path)
    assert "- [x] #1 a" in project.read(path)


# --- bad input --------------------------------------------------------------------------------------


def test_an_id_that_is_there_twice_gets_a_suffix_and_a_warning(project: Ralph) -> None:
    add(project, "1")
    project.write("backlog/tasks/task-1 - Other.md", f"---\nid: task-1\ntitle: B\nstatus: To Do\n---\n{CRITERIA}")
    spec = backlog(project)
    assert outline(spec) == {"task-1": ["task-1.#1", "task-1.#2"], "TASK-1-2": ["TASK-1-2.#1", "TASK-1-2.#2"]}
    assert len(spec.warnings) == 1
    spec.tick("TASK-1-2.#1")
    assert "[x]" in project.read("backlog/tasks/task-1 - Task.md")
    assert "[x]" not in project.read("backlog/tasks/task-1 - Other.md")


def test_criteria_with_the_same_number_are_told_apart(project: Ralph) -> None:
    path = add(project, "1", body="## Acceptance Criteria\n- [ ] #1 a\n- [ ] #1 b\n")
    spec = backlog(project)
    assert outline(spec) == {"TASK-1": ["TASK-1.#1", "TASK-1.#1-2"]}
    assert len(spec.warnings) == 1
    spec.tick("TASK-1.#1-2")
    assert project.read(path).endswith("- [ ] #1 a\n- [x] #1 b\n")


def test_a_file_without_front_matter_is_no_task_and_told(project: Ralph) -> None:
    add(project, "1")
    project.write("backlog/tasks/task-2 - Cut.md", "---\nid: TASK-2\ntitle: cut o")
    project.write("backlog/tasks/epics/notes.md", "# Notes\n")
    project.write("backlog/tasks/readme.md", "# Tasks\n")
    spec = backlog(project)
    assert list(outline(spec)) == ["TASK-1"]
    assert [text.partition(" has no ")[0] for text in spec.warnings] == [
        str(project.root / "backlog/tasks/task-2 - Cut.md")
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"## Acceptance Criteria\n- [ ] #1 \xff\n", "not UTF-8"),
        (b"## Acceptance Criteria\n```\n- [ ] #1 a\n", "never closed"),
    ],
)
def test_a_file_that_cant_be_read_is_refused(project: Ralph, body: bytes, told: str) -> None:
    project.write(FIRST, b"---\nid: TASK-1\ntitle: A\n---\n" + body)
    before = project.snapshot()
    with pytest.raises(SpecError, match=told):
        backlog(project).stories()
    assert project.snapshot() == before


def test_a_circle_is_refused(project: Ralph) -> None:
    add(project, "1", "dependencies: [TASK-2]\n")
    add(project, "2", "dependencies: [TASK-1]\n")
    with pytest.raises(SpecError, match="depend on each other"):
        backlog(project).stories()


def test_a_link_out_of_the_project_is_never_written_to(project: Ralph, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(BACKLOG)
    (project.root / FIRST).symlink_to(outside)
    with pytest.raises(UnsafePath):
        backlog(project, "add-login").tick("TASK-1.#1")
    assert outside.read_text() == BACKLOG


def test_20_mb_are_read_and_ticked(project: Ralph) -> None:
    rows = "".join(f"- [ ] #{number} {'x' * 500}\n" for number in range(1, 40_000))
    path = add(project, "1", body=f"## Acceptance Criteria\n{rows}")
    assert len(project.read(path)) > 20_000_000
    backlog(project).tick("TASK-1.#39000")
    assert project.read(path).count("[x]") == 1


def test_an_unknown_task_changes_nothing(project: Ralph) -> None:
    add(project, "1")
    before = project.snapshot()
    for id in ("TASK-1", "TASK-1.#3", "TASK-2.#1", ""):
        with pytest.raises(TaskNotFound):
            backlog(project).tick(id)
    assert project.snapshot() == before


# --- by command -------------------------------------------------------------------------------------


def test_a_whole_session(ralph: Ralph) -> None:
    make_backlog(ralph)
    ralph.begin()
    ralph.agent("task", "done", "TASK-1.#1")
    assert ralph.agent("task", "done", "TASK-1.#2").json["story_complete"] is True
    assert ralph.read(FIRST) == BACKLOG.replace("[ ]", "[x]").replace("To Do", "Done")
    assert ralph.agent("session", "next-story").json["story_id"] == "TASK-2"
    ralph.agent("task", "done", "TASK-2")
    assert ralph.agent("session", "next-story").json == {"complete": True}


def test_new_adds_tasks_with_the_next_numbers(project: Ralph) -> None:
    add(project, "7")
    project.write("backlog/completed/task-12 - Old.md", "---\nid: TASK-12\n---\n")
    before = project.snapshot()
    made = project.run("new", "Add search", "--json").json
    assert (made["format"], made["change"]) == ("backlog", "add-search")
    spec = backlog(project, "add-search")
    assert list(outline(spec)) == ["TASK-13", "TASK-14"]
    assert spec.stories()[1].depends_on == ("TASK-13",)
    after = project.snapshot()
    assert {path: after[path] for path in before} == before
    assert project.run("new", "Add search", "--name", "add-search").exit_code == 1
    assert not [path for path in after if "aside" in path]


# --- the real program -------------------------------------------------------------------------------

INSTALLED = REPOSITORY / ".tools/backlog/node_modules/.bin"
PROGRAM = shutil.which("backlog", path=os.pathsep.join([str(INSTALLED), os.environ["PATH"]]))


@pytest.mark.skipif(PROGRAM is None, reason="backlog.md is not installed: scripts/test --all does that")
def test_the_real_program_and_we_read_and_write_the_same(ralph: Ralph) -> None:
    def run(*arguments: str) -> str:
        env = {**ralph.env, "NO_COLOR": "1"}
        done = subprocess.run(
            [str(PROGRAM), *arguments],
            cwd=ralph.root,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout

    subprocess.run(["git", "init", "--quiet"], cwd=ralph.root, env=ralph.env, check=True)
    run("init", "demo", "--defaults", "--agent-instructions", "none")
    long = "A title that is so long that a writer of YAML folds it over two lines or more: it is, isn't it?"
    run(
        "task", "create", long, "-d", "Why", "--ac", "a form", "--ac", "an error", "--dod", "docs", "--priority", "high"
    )
    run("task", "create", "Log out", "--dep", "task-1")
    spec = backlog(ralph)
    assert outline(spec) == {"TASK-1": ["TASK-1.#1", "TASK-1.#2", "TASK-1.dod.#1"], "TASK-2": ["TASK-2"]}
    assert [(one.title, one.depends_on) for one in spec.stories()] == [(long, ()), ("Log out", ("TASK-1",))]
    for task in ("TASK-1.#1", "TASK-1.#2", "TASK-1.dod.#1"):
        spec.tick(task)
    shown = run("task", "1", "--plain")
    assert "Done" in shown.partition("Priority")[0]
    assert shown.count("- [x]") == 3
    assert "- [ ]" not in shown
    run("task", "edit", "2", "-s", "Done")
    assert all(story.done for story in spec.stories())
    made = ralph.run("new", "Add search", "--format", "backlog", "--json").json
    listed = run("task", "list", "--plain")
    assert "TASK-3 - The first working part (ac: 0/2)" in listed
    assert made["change"] == "add-search"


def test_a_parent_gives_its_change_the_title(project: Ralph) -> None:
    add(project, "4")
    add(project, "4.1", "parent_task_id: task-4\n")
    project.write("backlog/tasks/task-4 - Four.md", "---\nid: task-4\ntitle: Pay online\nstatus: To Do\n---\n")
    assert project.run("show", "task-4").stdout.startswith("Pay online (task-4)")
