"""Task Master's tasks.json: tags are changes, tasks stories, subtasks tasks, and only `status` is ever written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import TASKMASTER, done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, UnsafePath
from ralphtool.specs.taskmaster import TaskMaster

FILE = ".taskmaster/tasks/tasks.json"


def make(ralph: Ralph, tasks: Any, tag: str = "master") -> TaskMaster:
    """Writes a file with these tasks; text is the whole file."""
    ralph.write(FILE, tasks if isinstance(tasks, str | bytes) else json.dumps({tag: {"tasks": tasks}}))
    spec = open_spec(ralph, tag)
    assert isinstance(spec, TaskMaster)
    return spec


def task(id: Any, status: Any = "pending", subtasks: Any = (), **more: Any) -> dict[str, Any]:
    return {"id": id, "title": f"Task {id}", "status": status, "subtasks": list(subtasks), "dependencies": [], **more}


# --- reading ----------------------------------------------------------------------------------------


def test_tags_are_changes(ralph: Ralph) -> None:
    ralph.write(FILE, json.dumps({"master": {"tasks": [task(1)]}, "new ui": {"tasks": []}, "x": {"y": 1}}))
    assert specs.adapter("taskmaster").changes(str(ralph.root)) == ["master", "new-ui"]
    assert outline(open_spec(ralph, "master")) == {"1": ["1"]}
    assert open_spec(ralph, "new-ui").stories() == []
    with pytest.raises(ChangeNotFound):
        specs.adapter("taskmaster").open(str(ralph.root), "x")


def test_a_file_without_tags_is_the_tag_master(ralph: Ralph) -> None:
    ralph.write(FILE, json.dumps({"tasks": [task(1), task(2)], "metadata": {}}))
    assert outline(open_spec(ralph, "master")) == {"1": ["1"], "2": ["2"]}


def test_the_older_place_is_looked_at_if_it_is_task_masters(ralph: Ralph) -> None:
    adapter = specs.adapter("taskmaster")
    for other in ("[1, 2]", "{ no", '{"tasks": []}', '{"tasks": [{"name": "build"}]}', '{"version": 2}'):
        ralph.write("tasks/tasks.json", other)
        assert adapter.changes(str(ralph.root)) == [], other
    ralph.write("tasks/tasks.json", json.dumps({"tasks": [task(1)]}))
    assert adapter.changes(str(ralph.root)) == ["master"]
    ralph.write(FILE, TASKMASTER)
    assert adapter.changes(str(ralph.root)) == ["add-login"]


def test_subtasks_are_tasks_and_a_task_without_any_is_its_own(ralph: Ralph) -> None:
    subtasks = [task(1, description="d", details="e"), task("7.2", acceptanceCriteria="f")]
    spec = make(ralph, [task(7, subtasks=subtasks, description="a", details="b", testStrategy="c"), task("8")])
    assert outline(spec) == {"7": ["7.1", "7.2"], "8": ["8"]}
    [first, second] = spec.stories()
    assert first.description == "a\n\nb\n\nHow to test it: c"
    assert [one.text for one in first.tasks] == ["Task 1\nd\ne", "Task 7.2\nf"]
    assert second.tasks[0].text == "Task 8"


@pytest.mark.parametrize(
    ("status", "done", "put_aside"),
    [
        ("pending", False, ""),
        ("in-progress", False, ""),
        ("done", True, ""),
        ("completed", True, ""),
        ("cancelled", True, ""),
        ("review", False, "in review"),
        ("deferred", False, "deferred"),
        ("blocked", False, "blocked"),
        ("whatever", False, ""),
    ],
)
def test_what_a_status_means(ralph: Ralph, status: str, done: bool, put_aside: str) -> None:
    spec = make(ralph, [task(1, status), task(2)])
    [story, _] = spec.stories()
    assert (story.done, story.put_aside) == (done, put_aside)
    handed_out = specs.next_story(spec.stories())
    assert handed_out is not None
    assert handed_out.id == ("2" if done or put_aside else "1")


def test_a_subtask_may_have_its_full_id_as_a_number(ralph: Ralph) -> None:
    spec = make(ralph, [task(29, subtasks=[task(29.1), task(29.2)])])
    assert outline(spec) == {"29": ["29.1", "29.2"]}
    spec.tick("29.2")
    assert done_ids(spec) == ["29.2"]


def test_a_done_task_with_open_subtasks_is_done(ralph: Ralph) -> None:
    spec = make(ralph, [task(1, "done", [task(1, "pending"), task(2, "done")])])
    assert done_ids(spec) == ["1.1", "1.2"]
    before = ralph.read(FILE)
    spec.tick("1.1")
    assert ralph.read(FILE) == before


def test_a_deferred_subtask_keeps_no_task_from_being_done(ralph: Ralph) -> None:
    spec = make(ralph, [task(1, subtasks=[task(1), task(2, "deferred")])])
    spec.tick("1.1")
    assert spec.stories()[0].done
    assert json.loads(ralph.read(FILE))["master"]["tasks"][0]["status"] == "done"


def test_the_highest_priority_comes_first(ralph: Ralph) -> None:
    levels = ["low", "medium", None, "high", "unheard-of"]
    spec = make(ralph, [task(number, priority=level) for number, level in enumerate(levels, 1)])
    assert list(outline(spec)) == ["4", "2", "3", "5", "1"]


def test_dependencies_by_number_text_and_subtask(ralph: Ralph) -> None:
    subtasks = [task(1, dependencies=["2.1"]), task(2, dependencies=[1])]
    spec = make(ralph, [task(1), task(2, dependencies=[1]), task(3, dependencies=["2", 1.1], subtasks=subtasks)])
    assert [story.depends_on for story in spec.stories()] == [(), ("1",), ("2", "1")]


def test_a_dependency_in_another_tag_holds_nothing_up_and_is_told(ralph: Ralph) -> None:
    spec = make(ralph, [task(1, dependencies=[16])])
    assert spec.stories()[0].depends_on == ()
    assert len(spec.warnings) == 1
    assert "'16', which this tag does not have" in spec.warnings[0]


# --- writing ----------------------------------------------------------------------------------------

ODD = """\
 \t{ "zeta" : 1.0e5,\r
\t"add-login" :{"tasks" :[ {"note":"\\u00e9 é 😀 \\"}]{[", "status" :  "pending"  , "id": 1,"title":"A",
    "subtasks":[{"status":"old","title":"a","id":1, "status":\t"in-progress"} , {"title": "b", "id": 2}]},
    {"id" : "2", "title": "B", "x": -0.0, "big": 12345678901234567890 }
  ] } , "status": "pending" }

"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("task", "before", "after"),
    [
        ("1.1", '"status":\t"in-progress"', '"status":\t"done"'),
        ("1.2", '{"title": "b", "id": 2}', '{"title": "b", "id": 2,"status": "done"}'),
        ("2", "12345678901234567890 }", '12345678901234567890, "status": "done" }'),
    ],
)
def test_all_but_the_status_stays_byte_for_byte(ralph: Ralph, mark: str, task: str, before: str, after: str) -> None:
    spec = make(ralph, mark + ODD, "add-login")
    spec.tick(task)
    after = after.replace(', "status"', ',"status"') if task == "2" else after
    assert ralph.read(FILE) == mark + ODD.replace(before, after)
    assert done_ids(spec) == [task]


def test_the_last_subtask_sets_the_task_too_if_it_is_proven(ralph: Ralph) -> None:
    spec = make(ralph, TASKMASTER, "add-login")
    spec.tick("1.1")
    spec.tick("1.2", proven=False)
    assert ralph.read(FILE).count('"done"') == 2
    assert spec.stories()[0].done
    assert not spec.is_marked("1")
    spec.tick("1.2")
    assert ralph.read(FILE) == TASKMASTER.replace('"pending"', '"done"', 3)
    assert spec.is_marked("1")
    spec.untick("1.1")
    assert ralph.read(FILE).count('"done"') == 1


def test_a_task_without_subtasks_is_set_only_if_it_is_proven(ralph: Ralph) -> None:
    spec = make(ralph, TASKMASTER, "add-login")
    spec.tick("2", proven=False)
    assert ralph.read(FILE) == TASKMASTER
    assert done_ids(spec, ["2"]) == ["2"]
    spec.tick("2")
    assert done_ids(spec) == ["2"]


# --- bad input --------------------------------------------------------------------------------------


def test_ids_that_are_there_twice_get_a_suffix_and_a_warning(ralph: Ralph) -> None:
    spec = make(ralph, [task(1, subtasks=[task(1), task(1)]), task("1")])
    assert outline(spec) == {"1": ["1.1", "1.1-2"], "1-2": ["1-2"]}
    assert len(spec.warnings) == 2
    spec.tick("1.1-2")
    written = json.loads(ralph.read(FILE))["master"]["tasks"]
    assert [one["status"] for one in written[0]["subtasks"]] == ["pending", "done"]


@pytest.mark.parametrize(
    ("tasks", "field"),
    [
        ([7], r"master\.tasks\[0\] must be an object"),
        ([task(True)], r"\[0\]\.id must be a number"),
        ([task([1])], r"\[0\]\.id must be"),
        ([task(1, title=7)], r"\[0\]\.title must be a string"),
        ([task(1, status=1)], r"\[0\]\.status must be a string"),
        ([task(1, dependencies="2")], r"\[0\]\.dependencies must be a list"),
        ([task(1, dependencies=[None])], r"\[0\]\.dependencies\[0\] must be an id"),
        ([{**task(1), "subtasks": {}}], r"\[0\]\.subtasks must be a list"),
        ([task(1, subtasks=["x"])], r"\[0\]\.subtasks\[0\] must be an object"),
        ([task(1, details=[])], r"\[0\]\.details must be a string"),
        ([task(1, dependencies=[2]), task(2, dependencies=[1])], "depend on each other"),
    ],
)
def test_a_wrong_type_is_an_error_that_names_the_field(ralph: Ralph, tasks: Any, field: str) -> None:
    spec = make(ralph, tasks)
    before = ralph.snapshot()
    with pytest.raises(SpecError, match=field):
        spec.stories()
    assert ralph.snapshot() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        (TASKMASTER[:100], "not JSON"),
        (TASKMASTER.replace('"id": 1,', '"id": 1, // no', 1), "not JSON"),
        (b'{"master": {"tasks": [{"title": "\xff"}]}}', "not UTF-8"),
        ("[]", "must contain an object"),
        ('{"master": {"tasks": 7}}', "master'?.tasks must be a list"),
        ('{"tasks": "x"}', "tasks must be a list"),
        ('{"epics": []}', "keys are 'epics'"),
    ],
)
def test_a_file_that_is_none_is_refused_with_a_reason(ralph: Ralph, text: str | bytes, told: str) -> None:
    ralph.write(FILE, text)
    before = ralph.snapshot()
    with pytest.raises(SpecError, match=told):
        specs.open(str(ralph.root), "master")
    shown = ralph.run("list")
    assert FILE in shown.stdout + shown.stderr
    assert ralph.snapshot() == before


def test_nulls_and_missing_keys_are_fine(ralph: Ralph) -> None:
    spec = make(ralph, [{"title": None, "subtasks": None, "dependencies": None, "status": None}, {}])
    assert outline(spec) == {"1": ["1"], "2": ["2"]}


def test_a_link_out_of_the_project_is_never_written_to(ralph: Ralph, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(TASKMASTER)
    (ralph.root / ".taskmaster/tasks").mkdir(parents=True)
    (ralph.root / FILE).symlink_to(outside)
    with pytest.raises(UnsafePath):
        open_spec(ralph, "add-login").tick("1.1")
    assert outside.read_text() == TASKMASTER


def test_20_mb_are_read_and_ticked(ralph: Ralph) -> None:
    spec = make(ralph, [task(n, details="x" * 2000, subtasks=[task(1)]) for n in range(1, 9_500)])
    assert len(ralph.read(FILE)) > 20_000_000
    assert len(spec.stories()) == 9_499
    spec.tick("9000.1", proven=False)
    assert ralph.read(FILE).count('"done"') == 1


def test_an_edit_of_task_masters_meanwhile_is_kept(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may write the file between ralphtool's read and write: then ralphtool starts again from its text."""
    from ralphtool.core import files

    spec = make(ralph, TASKMASTER, "add-login")
    theirs = TASKMASTER.replace('"title": "Log in"', '"title": "Log in at last"')
    read = files._read_stable
    calls: list[int] = []

    def interrupted(fd: int) -> Any:
        found = read(fd)
        calls.append(fd)
        if len(calls) == 1:
            (ralph.root / FILE).write_text(theirs)
        return found

    monkeypatch.setattr(files, "_read_stable", interrupted)
    spec.tick("1.1")
    assert ralph.read(FILE) == theirs.replace('"pending"', '"done"', 2).replace('"done"', '"pending"', 1)


def test_an_unknown_task_changes_nothing(ralph: Ralph) -> None:
    spec = make(ralph, TASKMASTER, "add-login")
    for id in ("1", "1.3", "3", ""):
        with pytest.raises(TaskNotFound):
            spec.tick(id)
    assert ralph.read(FILE) == TASKMASTER


# --- by command -------------------------------------------------------------------------------------


def test_a_whole_session(ralph: Ralph) -> None:
    ralph.write(FILE, TASKMASTER)
    ralph.begin()
    assert ralph.agent("task", "done", "1.1").json["remaining"] == ["1.2"]
    ralph.agent("task", "done", "1.2")
    assert ralph.agent("session", "next-story").json["story_id"] == "2"
    ralph.agent("task", "done", "2")
    assert ralph.agent("session", "next-story").json == {"complete": True}
    assert ralph.read(FILE) == TASKMASTER.replace("pending", "done")


def test_new_adds_a_tag_and_keeps_every_other_byte(ralph: Ralph) -> None:
    ralph.write(FILE, TASKMASTER)
    made = ralph.run("new", "Add search", "--json").json
    assert (made["format"], made["change"]) == ("taskmaster", "add-search")
    written = ralph.read(FILE)
    assert written.startswith(f'{TASKMASTER[:-3]},\n  "add-search": {{\n')
    assert written.endswith("\n  }\n}\n")
    assert list(json.loads(written)) == ["add-login", "add-search"]
    assert json.loads(written)["add-login"] == json.loads(TASKMASTER)["add-login"]
    assert outline(open_spec(ralph, "add-search")) == {"1": ["1.1", "1.2"], "2": ["2.1", "2.2"]}
    assert ralph.run("new", "Add search", "--name", "add-search").exit_code == 1
    assert ralph.read(FILE) == written


def test_new_refuses_a_file_without_tags(ralph: Ralph) -> None:
    ralph.write(FILE, json.dumps({"tasks": [task(1)]}))
    before = ralph.snapshot()
    refused = ralph.run("new", "Add search")
    assert refused.exit_code == 1
    assert "has no tags yet" in refused.stderr
    assert ralph.snapshot() == before
