"""What holds for every spec format: how a change is found, what follows from its stories, the notes, the contract."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Ralph

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, InvalidName, InvalidValue, SpecError, TaskNotFound
from ralphtool.specs import Adapter, Spec, Story, Task, checklist, markdown, notes
from ralphtool.testing import ContractBroken, check_adapter

# --- what the tests of all formats look at ----------------------------------------------------------


def open_spec(ralph: Ralph, change: str, spec: str | None = None) -> Spec:
    return specs.open(str(ralph.root), change, spec)


def outline(spec: Spec, completed: Collection[str] = ()) -> dict[str, list[str]]:
    """The ids of the stories in order, each with those of its tasks."""
    return {story.id: [task.id for task in story.tasks] for story in spec.stories(completed)}


def done_ids(spec: Spec, completed: Collection[str] = ()) -> list[str]:
    return [task.id for story in spec.stories(completed) for task in story.tasks if task.done]


def all_tasks(spec: Spec) -> list[Task]:
    return [task for story in spec.stories() for task in story.tasks]


def sections_of(text: str) -> list[markdown.Section]:
    """The sections of a text that is no list of tasks."""
    return markdown.sections(text, "")


PRD = """\
{
  "project": "shop",
  "branchName": "ralph/add-login",
  "userStories": [
    {"id": "US-1", "title": "Log in", "acceptanceCriteria": ["a form", "a button"], "passes": false},
    {"id": "US-2", "title": "Log out", "passes": false}
  ]
}
"""

SPECKIT = """\
# Tasks: login

## Phase 1: Setup

- [ ] T001 Make the folder
- [ ] T002 [P] Write the file

## Phase 2: User Story 1 - Log in

- [ ] T003 [P] [US1] Write the form
"""

CHECKLIST = """\
# Plan

## Set up

- [ ] make the folder
- [ ] write the file

## Build

* [ ] compile
"""


def make_openspec(ralph: Ralph) -> str:
    ralph.openspec()
    return "add-login"


def make_prd(ralph: Ralph) -> str:
    ralph.write("prd.json", PRD)
    return "add-login"


def make_speckit(ralph: Ralph) -> str:
    ralph.write("specs/001-login/tasks.md", SPECKIT)
    return "001-login"


def make_checklist(ralph: Ralph) -> str:
    ralph.write("fix_plan.md", CHECKLIST)
    return "fix_plan"


MAKERS: dict[str, Callable[[Ralph], str]] = {
    "openspec": make_openspec,
    "prd": make_prd,
    "speckit": make_speckit,
    "checklist": make_checklist,
}
NOTES_FILES = {
    "openspec": "openspec/changes/add-login/design.md",
    "prd": "add-login-learnings.md",
    "speckit": "specs/001-login/001-login-learnings.md",
    "checklist": "fix_plan-learnings.md",
}

every_format = pytest.mark.parametrize("name", list(MAKERS))


# --- finding ----------------------------------------------------------------------------------------


@every_format
def test_a_change_is_found_by_looking(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    found = open_spec(ralph, change)
    assert (found.adapter, found.change) == (name, change)
    assert Path(found.path).exists()


@every_format
def test_the_commands_know_no_format(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    tasks = ralph.agent("context").json["tasks"]
    for index, task in enumerate(tasks, 1):
        answer = ralph.agent("task", "done", task["id"]).json
        assert answer["remaining"] == [other["id"] for other in tasks[index:]]
        assert answer["story_complete"] is (index == len(tasks))
    assert ralph.agent("status").json["change"] == {"stories_done": 1, "stories_total": 2}


def test_nothing_there_is_change_not_found_and_names_what_is(ralph: Ralph) -> None:
    ralph.openspec().write("fix_plan.md", CHECKLIST)
    with pytest.raises(ChangeNotFound, match=r"no change nope.*add-login, fix_plan"):
        open_spec(ralph, "nope")


def test_an_empty_project_has_no_changes(ralph: Ralph) -> None:
    assert specs.find_all(str(ralph.root)) == []
    with pytest.raises(ChangeNotFound, match="no changes at all"):
        open_spec(ralph, "nope")


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "a b", "a\0b", "x" * 129, ".hidden", "ａ"])
def test_a_name_that_is_none_is_refused_before_looking(ralph: Ralph, name: str) -> None:
    with pytest.raises(InvalidName):
        open_spec(ralph, name)


# --- several formats --------------------------------------------------------------------------------


def test_a_change_in_several_formats_is_an_error_that_names_them(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    with pytest.raises(SpecError, match=r"openspec.*prd.*--spec"):
        open_spec(ralph, "add-login")


def test_four_formats_are_all_named(ralph: Ralph) -> None:
    ralph.openspec(change="PLAN").write("prd.json", PRD.replace("ralph/add-login", "ralph/PLAN"))
    ralph.write("specs/PLAN/tasks.md", SPECKIT).with_name("spec.md").write_text("# Spec\n")
    ralph.write("PLAN.md", CHECKLIST)
    with pytest.raises(SpecError) as caught:
        open_spec(ralph, "PLAN")
    for name in MAKERS:
        assert name in str(caught.value)


@pytest.mark.parametrize("name", ["openspec", "prd"])
def test_spec_decides_between_formats(ralph: Ralph, name: str) -> None:
    ralph.openspec().write("prd.json", PRD)
    assert open_spec(ralph, "add-login", name).adapter == name


def test_what_spec_decided_holds_for_the_whole_session(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    refused = ralph.agent("session", "init", "--change", "add-login")
    assert refused.code == "SPEC_ERROR"
    assert "openspec" in refused.error["error"]
    assert "prd" in refused.error["error"]
    assert "--spec" in refused.error["error"]
    init = ralph.agent("session", "init", "--change", "add-login", "--spec", "prd").json
    assert [story["id"] for story in init["stories"]] == ["US-1", "US-2"]
    ralph.agent("session", "next-story")
    assert ralph.agent("task", "done", "US-1.1").json["remaining"] == ["US-1.2"]
    ralph.agent("learn", "kept in the right place")
    ralph.agent("session", "flush")
    assert "kept in the right place" in ralph.read("add-login-learnings.md")
    assert not ralph.design_file.exists()


def test_show_takes_spec_too(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    assert ralph.run("show", "add-login", "--spec", "openspec", "--json").json["adapter"] == "openspec"
    assert ralph.run("show", "add-login", "--json").exit_code == 1


def test_list_shows_both_of_the_same_name(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    listed = ralph.run("list", "--json").json["changes"]
    assert [(one["name"], one["adapter"]) for one in listed] == [("add-login", "openspec"), ("add-login", "prd")]


def test_an_unknown_format_names_the_known_ones(ralph: Ralph) -> None:
    with pytest.raises(InvalidValue, match=r"no spec format 'kanban'.*openspec, prd, speckit, checklist"):
        open_spec(ralph.openspec(), "add-login", "kanban")


@pytest.mark.parametrize("name", ["openspec", "prd", "speckit", "checklist"])
def test_spec_names_a_format_that_does_not_hold_the_change(ralph: Ralph, name: str) -> None:
    ralph.write("README.md", "hello")
    with pytest.raises(ChangeNotFound):
        open_spec(ralph, "add-login", name)


# --- the list ---------------------------------------------------------------------------------------


@every_format
def test_list_json_has_these_keys(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    [listed] = ralph.run("list", "--json").json["changes"]
    assert {**listed, "path": ""} == {
        "name": change,
        "adapter": name,
        "path": "",
        "stories_total": 2,
        "stories_done": 0,
        "tasks_total": {"openspec": 4, "prd": 3, "speckit": 3, "checklist": 3}[name],
        "tasks_done": 0,
        "locked_by": None,
    }
    assert Path(listed["path"]) == Path(open_spec(ralph, change).path)


@every_format
def test_list_follows_the_session(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    ralph.agent("task", "done", ralph.agent("context").json["tasks"][0]["id"])
    [listed] = ralph.run("list", "--json").json["changes"]
    assert (listed["tasks_done"], listed["stories_done"], listed["locked_by"]) == (1, 0, "s1")


def test_one_broken_change_does_not_hide_the_others(ralph: Ralph) -> None:
    ralph.openspec().write("openspec/changes/broken/tasks.md", b"- [ ] 1.1 \xff\n")
    ralph.write("prd.json", "{")
    result = ralph.run("list", "--json")
    assert result.exit_code == 0
    listed = {one["name"]: one for one in json.loads(result.stdout)["changes"]}
    assert listed["add-login"]["tasks_total"] == 4
    assert listed["broken"]["tasks_total"] is None
    assert "UTF-8" in result.stderr
    assert "prd.json" in result.stderr


# --- a format of somebody else's --------------------------------------------------------------------

STRANGER = '''
"""Jobs, one a line, in jobs.txt: "todo 1 sweep" or "done 1 sweep"."""
import os
from ralphtool.errors import ChangeNotFound, TaskNotFound
from ralphtool.specs import Story, Task, notes


class Jobs:
    adapter, change = "jobs", "jobs"

    def __init__(self, folder, ref):
        self.path, self.ref, self.notes = os.path.join(folder, "jobs.txt"), ref, os.path.join(folder, "jobs-notes.md")

    def _lines(self):
        with open(self.path, newline="") as file:
            return file.read().split("\\n")

    def stories(self, completed=()):
        words = [line.split(None, 2) for line in self._lines() if line.strip()]
        return [Story("all", "All jobs", [Task(id, text, mark == "done") for mark, id, text in words])]

    def tick(self, task_id, completed=(), *, proven=True):
        lines = self._lines()
        at = [n for n, line in enumerate(lines) if line.split()[1:2] == [task_id]]
        if not at:
            raise TaskNotFound(task_id)
        lines[at[0]] = lines[at[0]].replace("todo", "done", 1)
        with open(self.path, "w", newline="") as file:
            file.write("\\n".join(lines))

    def proposal(self):
        return None

    def design(self):
        return None

    def scenarios(self, story):
        return []

    def write_learnings(self, learnings):
        return notes.write_learnings(self.notes, learnings)

    def write_patterns(self, patterns):
        return notes.write_patterns(self.notes, patterns)

    def write_observations(self, observations):
        return notes.write_observations(self.notes, observations)


class Adapter:
    name = "jobs"
    found_in = "jobs.txt"

    def __init__(self, ref):
        self.ref = ref

    def changes(self, project):
        return ["jobs"] if os.path.exists(os.path.join(project, "jobs.txt")) else []

    def open(self, project, change, where=None):
        if change not in self.changes(project):
            raise ChangeNotFound(change)
        return Jobs(project, self.ref)

    def places(self, change, where=None):
        return ["jobs.txt"]


by_path = Adapter("stranger_jobs.formats:by_path")
by_name = Adapter("jobs")
'''


@pytest.fixture
def stranger(ralph: Ralph, tmp_path: Path) -> Ralph:
    """A package with an adapter in it on PYTHONPATH, and a project for it."""
    package = tmp_path / "site" / "stranger_jobs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "formats.py").write_text(STRANGER)
    ralph.env["PYTHONPATH"] = str(package.parent)
    ralph.write("jobs.txt", "todo 1 sweep\ntodo 2 mop\n")
    return ralph


def install(ralph: Ralph, entry_points: str) -> None:
    """What an installer leaves behind for a distribution with entry points."""
    info = Path(ralph.env["PYTHONPATH"]) / "stranger_jobs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-jobs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def whole_session(ralph: Ralph, *more: str) -> None:
    assert ralph.agent("session", "init", "--change", "jobs", *more).json["stories"][0]["tasks_total"] == 2
    assert ralph.agent("session", "next-story").json["story_id"] == "all"
    assert ralph.agent("task", "done", "2").json["remaining"] == ["1"]
    assert ralph.read("jobs.txt") == "todo 1 sweep\ndone 2 mop\n"
    ralph.agent("learn", "mop last", "--task", "2")
    assert ralph.agent("session", "flush").json["learnings_written"] == 1
    assert "- mop last (Task 2)\n" in ralph.read("jobs-notes.md")


def test_an_adapter_by_dotted_path(stranger: Ralph) -> None:
    whole_session(stranger, "--spec", "stranger_jobs.formats:by_path")


def test_an_adapter_by_entry_point(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    [listed] = stranger.run("list", "--json").json["changes"]
    assert (listed["name"], listed["adapter"], listed["tasks_total"]) == ("jobs", "jobs", 2)
    whole_session(stranger)


def test_spec_names_an_entry_point(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    whole_session(stranger, "--spec", "jobs")


def test_an_entry_point_counts_when_formats_collide(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    stranger.openspec(change="jobs")
    refused = stranger.agent("session", "init", "--change", "jobs")
    assert refused.code == "SPEC_ERROR"
    assert "openspec, jobs" in refused.error["error"]
    whole_session(stranger, "--spec", "jobs")


@pytest.mark.parametrize(
    "path", ["stranger_jobs.nowhere:by_path", "stranger_jobs.formats:nothing", "no_such.package:x"]
)
def test_an_adapter_that_is_not_there(stranger: Ralph, path: str) -> None:
    refused = stranger.agent("session", "init", "--change", "jobs", "--spec", path)
    assert refused.code == "INVALID_VALUE"
    assert path in refused.error["error"]


def test_an_entry_point_that_can_not_be_loaded_names_itself(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:gone\n")
    refused = stranger.agent("session", "init", "--change", "jobs", "--spec", "jobs")
    assert refused.code == "INVALID_VALUE"
    assert "stranger_jobs.formats:gone" in refused.error["error"]


# --- what follows from the stories ------------------------------------------------------------------


def story(id: str, *, done: bool = False, optional: bool = False, depends_on: Sequence[str] = ()) -> Story:
    return Story(id, f"Story {id}", [Task(f"{id}.1", "work", done)], None, optional, depends_on)


def next_id(*stories: Story) -> str | None:
    found = specs.next_story(stories)
    return found.id if found else None


def test_stories_come_in_order_and_do_not_wait_for_each_other() -> None:
    assert next_id(story("1"), story("2")) == "1"
    assert next_id(story("1", done=True), story("2")) == "2"
    assert next_id(story("1", done=True), story("2", done=True)) is None


def test_a_story_waits_for_those_it_depends_on() -> None:
    assert next_id(story("1", depends_on=["2"]), story("2")) == "2"
    assert next_id(story("1", depends_on=["2"]), story("2", done=True)) == "1"
    assert next_id(story("1", depends_on=["2", "3"]), story("2", done=True), story("3")) == "3"


def test_optional_stories_come_last() -> None:
    assert next_id(story("1", optional=True), story("2")) == "2"
    assert next_id(story("1", optional=True), story("2", done=True)) == "1"


def test_an_optional_story_that_others_wait_for_is_given() -> None:
    assert next_id(story("1", optional=True), story("2", depends_on=["1"])) == "1"


def test_optional_stories_never_keep_a_change_from_being_complete() -> None:
    assert specs.is_complete([story("1", done=True), story("2", optional=True)])
    assert not specs.is_complete([story("1"), story("2", optional=True, done=True)])
    assert specs.is_complete([])


def test_a_story_without_tasks_is_done_from_the_start() -> None:
    assert Story("1", "Nothing to do", []).done


def test_optional_last_and_complete_without_them_by_command(ralph: Ralph) -> None:
    ralph.openspec("## 1. Extra (optional)\n- [ ] 1.1 gild\n\n## 2. Must\n- [ ] 2.1 build\n").begin()
    assert ralph.agent("status").json["story"]["id"] == "2"
    ralph.agent("task", "done", "2.1")
    status = ralph.agent("status").json
    assert status["change_complete"] is True
    assert status["change"] == {"stories_done": 1, "stories_total": 2}
    assert ralph.agent("session", "next-story").json["story_id"] == "1"
    ralph.agent("task", "done", "1.1")
    assert ralph.agent("session", "next-story").json == {"complete": True}


@pytest.mark.parametrize(
    ("stories", "message"),
    [
        ([story("1", depends_on=["7"])], r"x\.md: story 1 depends on 7, which is not there"),
        ([story("1", depends_on=["1"])], r"1 wait for each other"),
        ([story("1", depends_on=["2"]), story("2", depends_on=["1"])], r"1, 2 wait for each other"),
        (
            [story("1", depends_on=["3"]), story("2", depends_on=["1"]), story("3", depends_on=["2"]), story("4")],
            r"stories 1, 2, 3 wait",
        ),
        ([story("1"), story("1")], r"task id '1\.1' is there twice"),
        ([Story("1", "a", []), Story("1", "b", [])], r"story id '1' is there twice"),
    ],
)
def test_what_would_stall_or_confuse_a_run_is_refused(stories: list[Story], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        specs.check(stories, "x.md")


def test_a_story_behind_a_circle_is_not_blamed_alone() -> None:
    ring = [story("1", depends_on=["2"]), story("2", depends_on=["1"]), story("3", depends_on=["1"])]
    with pytest.raises(SpecError, match="circle"):
        specs.check(ring, "x.md")


def test_dependencies_that_meet_again_are_no_circle() -> None:
    specs.check(
        [story("1"), story("2", depends_on=["1"]), story("3", depends_on=["1"]), story("4", depends_on=["2", "3"])], ""
    )


@pytest.mark.parametrize(
    ("title", "above", "optional"),
    [
        ("Polish (optional)", (), True),
        ("Polish (OPTIONAL)", (), True),
        ("Polish", ("Optional",), True),
        ("Polish", ("Tasks", "Future"), True),
        ("Polish", ("Nice to Have",), True),
        ("Polish", ("nice-to-have:",), True),
        ("Polish", ("Future Work",), True),
        ("Optional", (), True),
        ("4. Nice to Have", (), True),
        ("Polish", ("Tasks",), False),
        ("Optional chaining in the parser", (), False),
        ("Futures and promises", (), False),
        ("Parse", ("Optional arguments",), False),
    ],
)
def test_optional_by_heading_or_by_section(title: str, above: tuple[str, ...], optional: bool) -> None:
    assert markdown.is_optional(title, above) is optional


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Build (depends on 1, 2)", ("1", "2")),
        ("Build (Depends on 1)", ("1",)),
        ("Build (depends on: 1 and 2.)", ("1", "2")),
        ("Build (depends on stories 1; #3) now", ("1", "3")),
        ("Build (depends on 3.1)", ("3.1",)),
        ("Build (depends on Clean up)", ("clean-up",)),
        ("Build (depends on the weather)", ()),
        ("Build depends on 1", ()),
        ("Build", ()),
        ("İlk İş (depends on 1)", ("1",)),  # letters whose lower case is longer must not shift what is read
    ],
)
def test_dependencies_named_in_a_heading(ralph: Ralph, title: str, expected: tuple[str, ...]) -> None:
    others = "".join(
        f"## {head}\n- [ ] {n}.7 x\n" for n, head in enumerate(["1. A", "2. B", "3. C", "3.1 D", "Clean up"])
    )
    ralph.openspec(f"{others}## 9. {title}\n- [ ] 9.1 x\n")
    by_id = {story.id: story.depends_on for story in open_spec(ralph, "add-login").stories()}
    assert by_id["9"] == expected


# --- notes: where they land -------------------------------------------------------------------------


def learning(text: str, day: str = "2026-01-31", story: str | None = None, task: str | None = None) -> dict[str, Any]:
    return {
        "description": text,
        "task_id": task,
        "story_id": story,
        "iteration": 1,
        "timestamp": f"{day}T23:59:59.000001Z",
    }


def pattern(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "timestamp": "2026-01-31T09:30:00Z"}


class Notebook:
    """A design.md, and what writing notes made of it."""

    def __init__(self, folder: Path, text: str | bytes | None) -> None:
        self.path = folder / "design.md"
        if text is not None:
            self.path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def learn(self, *learnings: dict[str, Any]) -> int:
        return notes.write_learnings(str(self.path), learnings)

    def add_patterns(self, *patterns: dict[str, Any]) -> int:
        return notes.write_patterns(str(self.path), patterns)

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode()


@every_format
def test_notes_go_where_the_format_keeps_them(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    spec = open_spec(ralph, change)
    before = ralph.snapshot()
    assert spec.write_learnings([learning("it works", story="1", task="1.1")]) == 1
    path = ralph.root / NOTES_FILES[name]
    assert path.read_text() == "## Learnings\n\n### 2026-01-31 - Story 1\n- it works (Task 1.1)\n"
    assert {**ralph.snapshot(), str(path): None} == {**before, str(path): None}


@every_format
def test_notes_of_a_flush_are_written_through_the_adapter(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    ralph.agent("learn", "one")
    ralph.agent("pattern", "layers", "imports go down")
    ralph.agent("observe", "finding", "slow tests", "--severity", "low")
    assert not (ralph.root / NOTES_FILES[name]).exists()
    assert ralph.agent("session", "flush").json == {"success": True, "learnings_written": 1, "patterns_written": 1}
    text = ralph.read(NOTES_FILES[name])
    assert "\n- one\n" in text
    assert "## Patterns\n\n### layers\nimports go down\n" in text
    assert "- finding: slow tests (low)\n" in text


def test_learnings_are_grouped_by_date_and_story_in_the_order_recorded(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    written = book.learn(
        learning("first", "2026-01-30", story="2", task="2.1"),
        learning("second", "2026-01-31", story="2"),
        learning("third", "2026-01-30", story="2"),
        learning("fourth", "2026-01-31"),
        learning("fifth", "2026-01-31", task="9.9"),
    )
    assert written == 5
    assert book.text == textwrap.dedent("""\
        ## Learnings

        ### 2026-01-30 - Story 2
        - first (Task 2.1)
        - third

        ### 2026-01-31 - Story 2
        - second

        ### 2026-01-31 - General
        - fourth
        - fifth (Task 9.9)
        """)


def test_learnings_land_inside_their_section_when_others_follow(tmp_path: Path) -> None:
    book = Notebook(
        tmp_path,
        "# Design\n\n## Learnings\n\n### 2026-01-01 - Story 1\n- old\n\n## Risks\n\nnone\n\n# Appendix\n\nmore\n",
    )
    assert book.learn(learning("new", story="2")) == 1
    assert book.text == (
        "# Design\n\n## Learnings\n\n### 2026-01-01 - Story 1\n- old\n\n### 2026-01-31 - Story 2\n- new\n"
        "\n## Risks\n\nnone\n\n# Appendix\n\nmore\n"
    )


def test_a_later_flush_of_the_same_date_and_story_joins_its_group(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a", story="1"), learning("x", story="2"))
    assert book.learn(learning("b", story="1")) == 1
    assert book.text == ("## Learnings\n\n### 2026-01-31 - Story 1\n- a\n- b\n\n### 2026-01-31 - Story 2\n- x\n")


def test_the_same_date_and_story_in_another_section_is_another_group(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Log\n\n### 2026-01-31 - Story 1\n- mine\n\n## Learnings\n")
    book.learn(learning("a", story="1"))
    assert book.text == (
        "## Log\n\n### 2026-01-31 - Story 1\n- mine\n\n## Learnings\n\n### 2026-01-31 - Story 1\n- a\n"
    )


def test_an_empty_section_before_another_is_filled(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n\n## Risks\nnone\n")
    book.learn(learning("a"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- a\n\n## Risks\nnone\n"


def test_a_section_right_before_another_heading_is_kept_apart_from_it(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n## Risks\nnone\n")
    book.learn(learning("a"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- a\n\n## Risks\nnone\n"


@pytest.mark.parametrize(
    "title", ["## Learnings", "## learnings", "## Learnings ##", "##  Learnings  ", "  ## Learnings", "##\tLearnings"]
)
def test_the_section_is_recognised_however_it_is_written(tmp_path: Path, title: str) -> None:
    book = Notebook(tmp_path, f"# D\n\n{title}\n\ntext\n")
    book.learn(learning("a"))
    assert book.text == f"# D\n\n{title}\n\ntext\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize(
    "title", ["# Learnings", "### Learnings", "##Learnings", "## Learnings and more", "    ## Learnings"]
)
def test_what_is_not_the_section_is_left_alone(tmp_path: Path, title: str) -> None:
    book = Notebook(tmp_path, f"{title}\n\ntext\n")
    book.learn(learning("a"))
    assert book.text == f"{title}\n\ntext\n\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize("fence", ["```", "~~~", "````markdown", "  ```"])
def test_a_heading_inside_a_fence_is_no_section(tmp_path: Path, fence: str) -> None:
    close = fence.removesuffix("markdown")
    text = f"# D\n\n{fence}\n## Learnings\n{close}\n\n## Risks\n"
    book = Notebook(tmp_path, text)
    book.learn(learning("a"))
    assert book.text == f"{text}\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


def test_a_heading_inside_a_fence_does_not_end_the_section(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n\n```\n## not the end\n```\n\n## Risks\n")
    book.learn(learning("a"))
    assert book.text == ("## Learnings\n\n```\n## not the end\n```\n\n### 2026-01-31 - General\n- a\n\n## Risks\n")


def assert_written_once(book: Notebook, before: str) -> None:
    """Writes twice; what was there stays, and a reader of Markdown finds the learning in its section, once."""
    assert book.learn(learning("precious", story="1")) == 1
    after = book.text
    assert after.startswith(before)
    sections = [one for one in sections_of(after) if one.title == "2026-01-31 - Story 1"]
    assert [one.above for one in sections] == [("Learnings",)]
    assert [line for line in sections[0].prose if line] == ["- precious"]
    assert book.learn(learning("precious", story="1")) == 0
    assert book.text == after
    assert book.learn(learning("second", story="1")) == 1
    assert book.text == after + "- second\n"


@pytest.mark.parametrize(
    "before",
    [
        "text\n\n```\nnobody closed this\n## Learnings\n",
        "text\n\n~~~~ python\n```\nnobody closed this\n",
        "- item\n  ```\n  nobody closed this, inside an item\n",
        "1. item\n\n   ~~~\n   nobody closed this, inside an item\n",
        "- item\n  - inner\n    ```\n    nobody closed this, deep inside\n",
    ],
)
def test_an_unclosed_fence_does_not_swallow_the_section(tmp_path: Path, before: str) -> None:
    assert_written_once(Notebook(tmp_path, before), before)


def test_a_fence_is_not_closed_where_none_was_open(tmp_path: Path) -> None:
    """Four blanks make code, in which a fence is nothing but text; a closing one would open a fence."""
    before = "# D\n\n    ```\n\nno fence\n"
    book = Notebook(tmp_path, before)
    book.learn(learning("a"))
    assert book.text == f"{before}\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize(
    "before",
    [
        "## Learnings\n\n```\nnobody closed this\n",
        "## Learnings\n\n- item\n  ```\n  nor this\n",
    ],
)
def test_an_unclosed_fence_inside_the_section_does_not_swallow_the_group(tmp_path: Path, before: str) -> None:
    assert_written_once(Notebook(tmp_path, before), before)


# --- notes: line endings and files ------------------------------------------------------------------


def test_new_lines_take_the_line_ending_of_the_file(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# Design\r\n\r\n## Learnings\r\n\r\n## Risks\r\n")
    book.learn(learning("a\nb", story="1"))
    assert book.text == (
        "# Design\r\n\r\n## Learnings\r\n\r\n### 2026-01-31 - Story 1\r\n- a\r\n      b\r\n\r\n## Risks\r\n"
    )
    assert book.learn(learning("a\nb", story="1")) == 0
    assert book.learn(learning("c", story="1")) == 1
    assert "- a\r\n      b\r\n- c\r\n\r\n## Risks" in book.text


def test_in_a_mixed_file_what_most_lines_have_decides(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "a\r\nb\r\nc\n")
    book.learn(learning("x"))
    assert book.text == "a\r\nb\r\nc\n\r\n## Learnings\r\n\r\n### 2026-01-31 - General\r\n- x\r\n"
    other = Notebook(tmp_path, "a\r\nb\nc\n")
    other.learn(learning("x"))
    assert other.text == "a\r\nb\nc\n\n## Learnings\n\n### 2026-01-31 - General\n- x\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_without_a_line_feed_at_its_end(tmp_path: Path, ending: str) -> None:
    book = Notebook(tmp_path, f"# D{ending}{ending}last")
    book.learn(learning("x"))
    expected = ["# D", "", "last", "", "## Learnings", "", "### 2026-01-31 - General", "- x", ""]
    assert book.text == ending.join(expected)


def test_the_byte_order_mark_stays_and_hides_no_section(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "\ufeff## Learnings\n")
    book.learn(learning("x"))
    assert book.text == "\ufeff## Learnings\n\n### 2026-01-31 - General\n- x\n"


def test_a_missing_file_is_made_with_the_rights_of_other_files(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    (tmp_path / "other").write_text("")
    book.learn(learning("x"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- x\n"
    assert book.path.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["design.md", "other"]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# D\n")
    book.path.chmod(0o640)
    book.learn(learning("x"))
    assert book.path.stat().st_mode & 0o7777 == 0o640


def test_notes_in_a_file_that_is_not_utf8_are_refused(tmp_path: Path) -> None:
    book = Notebook(tmp_path, b"# D \xff\n")
    with pytest.raises(SpecError, match="UTF-8"):
        book.learn(learning("x"))
    assert book.path.read_bytes() == b"# D \xff\n"


# --- notes: nothing twice, nothing forged -----------------------------------------------------------


def test_what_is_there_already_is_not_written_twice(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    notes_taken = [learning("a", story="1"), learning("b\n\nwith more", story="1"), learning("c")]
    assert book.learn(*notes_taken) == 3
    before = book.text
    assert book.learn(*notes_taken) == 0
    assert book.text == before
    assert book.learn(learning("d", story="1"), *notes_taken) == 1


def test_the_same_words_for_another_task_story_or_day_are_another_learning(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    same = [
        learning("a", story="1"),
        learning("a", story="1", task="1.1"),
        learning("a", story="2"),
        learning("a", "2026-02-01", story="1"),
    ]
    assert book.learn(*same) == 4


def test_a_text_that_begins_like_another_is_not_taken_for_it(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    assert book.learn(learning("use make")) == 1
    assert book.learn(learning("use make\nnot ninja")) == 1
    assert book.learn(learning("use")) == 1
    assert book.text.endswith("- use make\n- use make\n      not ninja\n- use\n")


HOSTILE = [
    "harmless\n## Risks\nmore",
    "## Risks",
    "# Title",
    "###### deep",
    "a\n\n\n# b",
    "a\r## b",
    "a\r\n## b",
    "```\n## c",
    "~~~\nopen fence",
    "a\n```\nopen fence",
    "a\n   ```python\n   x = 1\n   ```\nb",
    "a\n- b\n- [ ] 9.9 c",
    "- dash first",
    "a\n---\nb",
    "a\n===",
    "\t# tab",
    "a\n\t# tab",
    "bell \x07 escape \x1b[31m nul \x00 delete \x7f",
    "trailing blanks   \nsecond   \n\n",
    "emoji 😀 and ütf",
    "<!-- a comment that never ends",
    "a\n<!--\nb",
    "1. # nested",
    "> ## quoted",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_learning_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    before = "# D\n\n## Learnings\n\n## Risks\n\nnone\n"
    book = Notebook(tmp_path, before)
    first = [learning(text, story="1"), learning("after", story="1")]
    assert book.learn(*first) == 2
    once = book.text
    titles = [one.title for one in sections_of(once)]
    assert titles == ["", "D", "Learnings", "2026-01-31 - Story 1", "Risks"]
    assert book.learn(*first) == 0
    assert book.text == once
    assert book.learn(learning("later", story="1")) == 1
    assert book.text == once.replace("- after\n", "- after\n- later\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_pattern_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    book = Notebook(tmp_path, "# D\n\n## Patterns\n\n## Risks\n\nnone\n")
    first = [pattern("one", text), pattern("two", "after")]
    assert book.add_patterns(*first) == 2
    once = book.text
    assert [one.title for one in sections_of(once)] == ["", "D", "Patterns", "one", "two", "Risks"]
    assert book.add_patterns(*first) == 0
    assert book.text == once
    assert book.learn(learning("x")) == 1
    assert book.text == once + "\n## Learnings\n\n### 2026-01-31 - General\n- x\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_an_observation_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    book = Notebook(tmp_path, "# D\n")
    seen = {"type": "blocker", "title": "no disk", "description": text, "timestamp": "2026-01-31T09:30:00Z"}
    assert notes.write_observations(str(book.path), [seen]) == 1
    once = book.text
    assert [one.title for one in sections_of(once)] == ["", "D", "Observations", "2026-01-31 - General"]
    assert notes.write_observations(str(book.path), [seen]) == 0
    assert book.text == once


def test_control_characters_are_made_visible(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a\x1b[2Jb\x00c\x7fd\x9b1me\ttab"))
    assert book.text.endswith("- a\\x1b[2Jb\\x00c\\x7fd\\x9b1me\ttab\n")


@pytest.mark.parametrize("name", ["layers", "Prefer C #", "#", "# Title", "a ## b ##", "```", "naïve 😀", "  padded  "])
def test_a_pattern_of_any_name_is_written_once(tmp_path: Path, name: str) -> None:
    book = Notebook(tmp_path, None)
    assert book.add_patterns(pattern(name, "words")) == 1
    once = book.text
    assert book.add_patterns(pattern(name, "words")) == 0
    assert book.text == once


@pytest.mark.parametrize("id", ["1", "US-1", "1 #", "3.1", "a\n## b", "ü"])
def test_a_learning_of_any_story_is_written_once(tmp_path: Path, id: str) -> None:
    book = Notebook(tmp_path, None)
    assert book.learn(learning("words", story=id)) == 1
    once = book.text
    assert len(sections_of(once)) == 3
    assert book.learn(learning("words", story=id)) == 0
    assert book.text == once


def test_patterns_stand_under_their_heading(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# D\n\n## Patterns\n\n### old\nwords\n\n## Risks\n")
    assert book.add_patterns(pattern("layers", "imports go down\nnever up"), pattern("names", "explain")) == 2
    assert book.text == textwrap.dedent("""\
        # D

        ## Patterns

        ### old
        words

        ### layers
        imports go down
            never up

        ### names
        explain

        ## Risks
        """)


def test_a_pattern_of_the_same_name_that_says_something_else_is_added(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    assert book.add_patterns(pattern("layers", "down")) == 1
    assert book.add_patterns(pattern("layers", "up"), pattern("layers", "down")) == 1
    assert book.text == "## Patterns\n\n### layers\ndown\n\n### layers\nup\n"


def test_learnings_patterns_and_observations_keep_to_their_sections(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a"))
    book.add_patterns(pattern("p", "q"))
    seen = {"type": "finding", "title": "t", "story_id": "2", "timestamp": "2026-01-31T09:30:00Z"}
    notes.write_observations(str(book.path), [seen])
    book.learn(learning("b"))
    assert book.text == textwrap.dedent("""\
        ## Learnings

        ### 2026-01-31 - General
        - a
        - b

        ## Patterns

        ### p
        q

        ## Observations

        ### 2026-01-31 - Story 2
        - finding: t
        """)


def test_an_interrupted_flush_repeated_writes_each_thing_once(ralph: Ralph) -> None:
    """The notes of a flush that was killed before it removed the session are there already."""
    ralph.openspec().begin()
    ralph.agent("learn", "only once")
    ralph.agent("pattern", "p", "only once too")
    session = ralph.session_file().read_bytes()
    lock = ralph.lock_file.read_bytes()
    ralph.agent("session", "flush")
    written = ralph.design_file.read_text()
    ralph.session_file().write_bytes(session)
    ralph.session_file().chmod(0o600)
    ralph.lock_file.write_bytes(lock)
    assert ralph.agent("session", "flush").json == {"success": True, "learnings_written": 0, "patterns_written": 0}
    assert ralph.design_file.read_text() == written


# --- the contract -----------------------------------------------------------------------------------


@every_format
def test_the_built_in_adapters_keep_the_contract(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    check_adapter(specs.adapter(name), str(ralph.root), change)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("openspec", "openspec/changes/add-login/tasks.md"),
        ("speckit", "specs/001-login/tasks.md"),
        ("checklist", "fix_plan.md"),
        ("prd", "prd.json"),
    ],
)
def test_the_contract_holds_with_crlf_and_a_byte_order_mark(ralph: Ralph, name: str, path: str) -> None:
    change = MAKERS[name](ralph)
    file = ralph.root / path
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    check_adapter(specs.adapter(name), str(ralph.root), change)
    assert file.read_bytes().startswith(b"\xef\xbb\xbf")
    assert file.read_bytes().count(b"\r\n") == file.read_bytes().count(b"\n")


def test_a_strangers_adapter_can_be_checked(stranger: Ralph) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(STRANGER, "formats.py", "exec"), namespace)
    check_adapter(namespace["by_path"], str(stranger.root), "jobs")


class WrongSpec(checklist.Checklist):
    """A good spec, for others to spoil."""

    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good.path, good.change, good.ref)

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def rewrite(self, change: Callable[[str], str]) -> None:
        path = Path(self.path)
        path.write_bytes(change(path.read_bytes().decode()).encode())

    def note(self, records: Sequence[dict[str, Any]], file: str = "notes.md") -> int:
        """Writes notes in the simplest way that is right."""
        path = self.folder / file
        old = path.read_text() if path.exists() else ""
        lines = [f"- {' '.join(str(one).split())}\n" for one in records]
        fresh = [line for line in lines if line not in old]
        path.write_text(old + "".join(fresh))
        return len(fresh)


class WrongAdapter:
    name = "wrong"
    found_in = "fix_plan.md"

    def __init__(self, spec: type[WrongSpec] = WrongSpec) -> None:
        self.spec = spec

    def changes(self, project: str) -> list[str]:
        return checklist.changes(project)

    def open(self, project: str, change: str, where: str | None = None) -> Spec:
        return self.spec(checklist.open(project, change, where))

    def places(self, change: str, where: str | None = None) -> list[str]:
        return checklist.places(change, where)


def promise_broken(ralph: Ralph, adapter: Adapter) -> str:
    change = make_checklist(ralph)
    with pytest.raises(ContractBroken) as caught:
        check_adapter(adapter, str(ralph.root), change)
    return str(caught.value)


def test_the_spec_that_is_spoilt_below_is_right(ralph: Ralph) -> None:
    check_adapter(WrongAdapter(), str(ralph.root), make_checklist(ralph))


def test_refused_a_name_that_is_none(ralph: Ralph) -> None:
    adapter = WrongAdapter()
    adapter.name = "my format"
    assert promise_broken(ralph, adapter) == "an adapter's name is a name"


def test_refused_changes_without_the_change(ralph: Ralph) -> None:
    class Forgetful(WrongAdapter):
        def changes(self, project: str) -> list[str]:
            return []

    assert promise_broken(ralph, Forgetful()) == "`changes` names the change"


def test_refused_opening_what_is_not_there(ralph: Ralph) -> None:
    class Credulous(WrongAdapter):
        def open(self, project: str, change: str, where: str | None = None) -> Spec:
            return super().open(project, "fix_plan")

    assert "ChangeNotFound" in promise_broken(ralph, Credulous())


def test_refused_another_error_for_what_is_not_there(ralph: Ralph) -> None:
    class Rude(WrongAdapter):
        def open(self, project: str, change: str, where: str | None = None) -> Spec:
            if change != "fix_plan":
                raise KeyError(change)
            return super().open(project, change)

    assert "ChangeNotFound" in promise_broken(ralph, Rude())


class WrongName(WrongSpec):
    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good)
        self.change = "other"


class WrongPath(WrongSpec):
    """Reads the right file, and tells people of another."""

    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good)
        self.path = f"{good.path}.not"


class WritesWhenRead(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        (self.folder / "cache").write_text("x")
        return super().stories(completed)


class WritesWhenAsked(WrongSpec):
    def design(self) -> str | None:
        (self.folder / "cache").write_text("x")
        return None


class NoTitle(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return [Story(one.id, "", one.tasks) for one in super().stories(completed)]


class TwiceTheSame(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return [Story(one.id, one.title, [Task("1", "x", False)] * 2) for one in super().stories(completed)]


class NothingToDo(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return []


class TicksNothing(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        if task_id not in [task.id for one in self.stories() for task in one.tasks]:
            raise TaskNotFound(task_id)


class TicksAll(TicksNothing):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("[ ]", "[x]"))


class TicksTheWrongOne(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick("1.2" if task_id == "1.1" else task_id)


class AcceptsAnyTask(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        try:
            super().tick(task_id)
        except TaskNotFound:
            pass


class WritesForAnUnknownTask(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        (self.folder / "log").write_text(task_id)
        super().tick(task_id)


class TidiesUp(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("* [", "- ["))


class ChangesLineEndings(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"))


class KeepsALog(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        (self.folder / "log").write_text(task_id)


class CountsTicks(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text + ".")


class MiscountsLearnings(WrongSpec):
    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        super().write_learnings(learnings)
        return 1


class WritesNoPatterns(WrongSpec):
    def write_patterns(self, patterns: Sequence[dict[str, Any]]) -> int:
        return len(patterns)


class CountsAgain(WrongSpec):
    def write_observations(self, observations: Sequence[dict[str, Any]]) -> int:
        super().write_observations(observations)
        return len(observations)


class WritesAgain(WrongSpec):
    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        with (self.folder / "notes.md").open("a") as file:
            file.write("- learnt\n")
        return super().write_learnings(learnings)


class Forges(WrongSpec):
    ending = "\n"

    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        path = self.folder / "notes.md"
        text = "".join(f"- {one['description']}\n" for one in learnings).replace("\n", self.ending)
        fresh = not path.exists()
        path.write_bytes(text.encode())
        return len(learnings) if fresh else 0


class ForgesWithCarriageReturns(Forges):
    ending = "\r\n"


class ForgesWithABlank(Forges):
    ending = "\n "


class WritesOverNotes(WrongSpec):
    """Each kind of note takes the place of all that was in the file."""

    def write_patterns(self, patterns: Sequence[dict[str, Any]]) -> int:
        path = Path(self.notes_file)
        text = "".join(f"### {one['name']}\n" for one in patterns)
        fresh = path.read_text() != text
        path.write_text(text)
        return len(patterns) if fresh else 0


@pytest.mark.parametrize(
    ("spec", "promise"),
    [
        (WrongName, "a spec knows the name of its change"),
        (WrongPath, "a spec's path exists"),
        (WritesWhenRead, "reading changes nothing"),
        (WritesWhenAsked, "reading changes nothing"),
        (NoTitle, "every story has an id and a title"),
        (TwiceTheSame, "twice"),
        (NothingToDo, "the sample has two open tasks or more"),
        (TicksNothing, "ticking 1.1 ticks 1.1, and nothing else"),
        (TicksAll, "ticking 1.1 ticks 1.1, and nothing else"),
        (TicksTheWrongOne, "ticking 1.1 ticks 1.1, and nothing else"),
        (AcceptsAnyTask, "`tick` raises TaskNotFound for a task that is not there"),
        (WritesForAnUnknownTask, "an unknown task changes nothing"),
        (TidiesUp, "ticking 1.1 keeps all other bytes"),
        (ChangesLineEndings, "ticking 1.1 keeps all other bytes"),
        (KeepsALog, "ticking 1.1 changes one file at the most"),
        (CountsTicks, "ticking 1.1 keeps all other bytes"),
        (MiscountsLearnings, "writing learnings tells how many were written"),
        (WritesNoPatterns, "writing patterns writes something"),
        (CountsAgain, "writing the same observations again writes none"),
        (WritesAgain, "writing the same learnings again changes nothing"),
        (Forges, "a note forges no heading"),
        (ForgesWithCarriageReturns, "a note forges no heading"),
        (ForgesWithABlank, "a note forges no heading"),
        (WritesOverNotes, "writing patterns keeps"),
    ],
)
def test_refused_with_the_promise_named(ralph: Ralph, spec: type[WrongSpec], promise: str) -> None:
    assert promise in promise_broken(ralph, WrongAdapter(spec))
