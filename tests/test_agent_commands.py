"""The nine commands of `ralphtool agent`: what they print, what they refuse, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, SPEC, Ralph, Result

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

CODES = {
    "SESSION_REQUIRED",
    "SESSION_NOT_FOUND",
    "SESSION_EXISTS",
    "STORY_REQUIRED",
    "STORY_NOT_FOUND",
    "CHANGE_NOT_FOUND",
    "CHANGE_LOCKED",
    "TASK_NOT_FOUND",
    "TASK_OUT_OF_SCOPE",
    "INVALID_NAME",
    "INVALID_VALUE",
    "SPEC_ERROR",
    "CORRUPT_STATE",
    "UNSAFE_PATH",
    "IO_ERROR",
    "USAGE",
}

PRD = """\
{
  "branchName": "ralph/shop",
  "unknown": [1, 2.50],
  "userStories": [
    {"id": "US-1", "title": "Cart", "acceptanceCriteria": ["can add", "can remove"], "priority": 1, "passes": false},
    {"id": "US-2", "title": "Pay", "priority": 2, "passes": false}
  ]
}
"""

# Holds a change as `ralphtool run` does, until its stdin is closed.
HOLD = """
import sys
from ralphtool import specs
from ralphtool.core import lifecycle, locks
root, change, session_id = sys.argv[1:]
spec = specs.open(root, change)
lifecycle.begin(root, session_id, change, spec.ref, owner=locks.this_process())
print("held", flush=True)
sys.stdin.read()
"""

# Runs a command while, just before it makes a folder, somebody else makes the same one.
BE_QUICKER = """
import os, sys
making = []
def somebody(event, arguments):
    if event == "os.mkdir" and arguments[0] not in making:
        making.append(arguments[0])
        os.mkdir(arguments[0], 0o700)
sys.addaudithook(somebody)
from ralphtool.cli import agent
status = agent.main(sys.argv[1:])
assert len(making) > 2
sys.exit(status)
"""


def ok(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that has to succeed."""
    return ralph.agent(*arguments, **more).json


def init(ralph: Ralph, change: str = "add-login", session: str = "s1") -> dict[str, Any]:
    return ok(ralph, "session", "init", "--change", change, session=session)


def start_owner(ralph: Ralph, change: str, session: str) -> subprocess.Popen[bytes]:
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(ralph.root), change, session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ralph.env,
        cwd=ralph.root,
    )
    assert owner.stdout
    assert owner.stdout.readline() == b"held\n"
    return owner


def finish(owner: subprocess.Popen[bytes]) -> None:
    owner.kill()
    owner.communicate(timeout=30)


@contextmanager
def held_by_a_run(ralph: Ralph, change: str = "add-login", session: str = "s1") -> Iterator[subprocess.Popen[bytes]]:
    """While the block runs, a process is alive that holds the change as `ralphtool run` does."""
    owner = start_owner(ralph, change, session)
    try:
        yield owner
    finally:
        finish(owner)


def record_one_of_each(ralph: Ralph, session: str = "s1") -> None:
    """Fills all four buffers of a session."""
    ok(ralph, "session", "next-story", session=session)
    ok(ralph, "learn", f"learnt by {session}", session=session)
    ok(ralph, "pattern", f"Pattern of {session}", "how", session=session)
    ok(ralph, "observe", "finding", f"seen by {session}", session=session)
    ok(ralph, "task", "done", "1.1", session=session)


def buffers(state: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: state[name] for name in ("learnings", "patterns", "observations", "completed_tasks")}


class TestWhatIsPrinted:
    """Exactly the keys of the contract, with the right values, and null for what is absent."""

    def test_session_init(self, project: Ralph) -> None:
        printed = init(project)
        assert MOMENT.fullmatch(printed.pop("created_at"))
        assert printed == {
            "session_id": "s1",
            "change_name": "add-login",
            "stories": [
                {"id": "1", "title": "Set up", "tasks_total": 2, "tasks_done": 0},
                {"id": "2", "title": "Build", "tasks_total": 2, "tasks_done": 0},
            ],
        }

    def test_session_init_counts_what_is_done(self, project: Ralph) -> None:
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ] 1.2", "[X] 1.2"))
        assert [story["tasks_done"] for story in init(project)["stories"]] == [1, 0]

    def test_session_next_story(self, project: Ralph) -> None:
        init(project)
        expected = {"complete": False, "story_id": "1", "story_title": "Set up", "iteration": 1}
        assert ok(project, "session", "next-story") == expected

    def test_session_next_story_when_all_is_done(self, project: Ralph) -> None:
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ]", "[x]"))
        init(project)
        result = project.agent("session", "next-story")
        assert result.stdout == '{"complete": true}\n'
        assert project.session()["iteration"] == 0

    def test_session_flush(self, project: Ralph) -> None:
        project.begin()
        record_one_of_each(project)
        expected = {"success": True, "learnings_written": 1, "patterns_written": 1}
        assert ok(project, "session", "flush") == expected

    def test_context(self, project: Ralph) -> None:
        project.write("openspec/changes/add-login/design.md", "# How\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["lint it"]\ntests = ["try it"]\n')
        project.begin()
        learning = ok(project, "learn", "a fact")["learning"]
        pattern = ok(project, "pattern", "Layers", "downward")["pattern"]
        ok(project, "task", "done", "1.2")
        assert ok(project, "context") == {
            "story": {"id": "1", "title": "Set up", "description": None},
            "tasks": [
                {"id": "1.1", "description": "Make the folder", "done": False},
                {"id": "1.2", "description": "Write the file", "done": True},
            ],
            "proposal": "# Why\nUsers want in.\n",
            "design": "# How\n",
            "scenarios": [
                {
                    "capability": "auth",
                    "requirement": "Login",
                    "name": "Good password",
                    "given": ["a known user"],
                    "when": ["the password is right"],
                    "then": ["the user is in"],
                }
            ],
            "learnings": [learning],
            "patterns": [pattern],
            "verify": {"checks": ["lint it"], "tests": ["try it"]},
        }

    def test_context_of_a_bare_change(self, ralph: Ralph) -> None:
        ralph.write("openspec/changes/bare/tasks.md", "## 1. One\nSome words.\n\n- [ ] 1.1 do\n")
        ralph.begin("bare")
        assert ok(ralph, "context") == {
            "story": {"id": "1", "title": "One", "description": "Some words."},
            "tasks": [{"id": "1.1", "description": "do", "done": False}],
            "proposal": None,
            "design": None,
            "scenarios": [],
            "learnings": [],
            "patterns": [],
            "verify": {"checks": [], "tests": []},
        }

    def test_context_gives_the_stored_objects(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "build first", "--type", "build-command")
        ok(project, "pattern", "Layers", "downward", "--type", "file-structure")
        context, state = ok(project, "context"), project.session()
        assert context["learnings"] == state["learnings"]
        assert context["patterns"] == state["patterns"]
        assert "build-command" in context["learnings"][0].values()
        assert "file-structure" in context["patterns"][0].values()

    def test_task_done(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "task", "done", "1.1") == {
            "success": True,
            "task_id": "1.1",
            "remaining": ["1.2"],
            "story_complete": False,
            "scenarios": None,
        }

    def test_task_done_of_the_last_one(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.2")
        printed = ok(project, "task", "done", "1.1")
        assert set(printed) == {"success", "task_id", "remaining", "story_complete", "scenarios"}
        assert (printed["remaining"], printed["story_complete"]) == ([], True)
        assert printed["scenarios"] == ok(project, "context")["scenarios"]
        assert [scenario["name"] for scenario in printed["scenarios"]] == ["Good password"]

    def test_status(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        assert ok(project, "status") == {
            "story": {"id": "1", "tasks_done": 1, "tasks_total": 2},
            "change": {"stories_done": 0, "stories_total": 2},
            "story_complete": False,
            "change_complete": False,
        }

    def test_status_when_all_is_done(self, project: Ralph) -> None:
        project.begin()
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ]", "[x]"))
        assert ok(project, "status") == {
            "story": {"id": "1", "tasks_done": 2, "tasks_total": 2},
            "change": {"stories_done": 2, "stories_total": 2},
            "story_complete": True,
            "change_complete": True,
        }

    def test_learn(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "learn", "a fact", "--task", "1.1", "--type", "tool-usage")
        assert MOMENT.fullmatch(printed["learning"].pop("timestamp"))
        assert printed == {
            "success": True,
            "learning": {"description": "a fact", "task_id": "1.1", "story_id": "1", "iteration": 1},
            "total_learnings": 1,
        }

    def test_pattern(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "pattern", "Layers", "imports go downward", "--type", "file-structure")
        assert MOMENT.fullmatch(printed["pattern"].pop("timestamp"))
        assert printed == {
            "success": True,
            "pattern": {"name": "Layers", "description": "imports go downward"},
            "total_patterns": 1,
        }

    def test_observe(self, project: Ralph) -> None:
        project.begin()
        more = ("--description", "waits", "--file", "a.py", "--category", "bug", "--severity", "high")
        printed = ok(project, "observe", "blocker", "It hangs", *more)
        assert MOMENT.fullmatch(printed["observation"].pop("timestamp"))
        assert printed == {
            "success": True,
            "observation": {
                "type": "blocker",
                "title": "It hangs",
                "description": "waits",
                "file": "a.py",
                "category": "bug",
                "severity": "high",
                "story_id": "1",
                "iteration": 1,
            },
            "total_observations": 1,
        }

    def test_absent_values_are_null(self, project: Ralph) -> None:
        init(project)
        learning = ok(project, "learn", "a fact")["learning"]
        assert set(learning) == {"description", "task_id", "story_id", "iteration", "timestamp"}
        assert (learning["task_id"], learning["story_id"], learning["iteration"]) == (None, None, 0)
        observation = ok(project, "observe", "finding", "odd")["observation"]
        absent = ("description", "file", "category", "severity", "story_id")
        assert {name: observation[name] for name in absent} == dict.fromkeys(absent)
        assert observation["iteration"] == 0

    def test_totals_count_up(self, project: Ralph) -> None:
        init(project)
        for total in (1, 2, 3):
            assert ok(project, "learn", f"fact {total}")["total_learnings"] == total
            assert ok(project, "pattern", f"name {total}", "d")["total_patterns"] == total
            assert ok(project, "observe", "finding", f"title {total}")["total_observations"] == total

    def test_stdout_is_one_line_of_ascii(self, project: Ralph) -> None:
        """No terminal, locale or log is harmed by what an agent recorded."""
        project.begin()
        result = project.agent("learn", "\x1b[31mröt\x7f\u2028")
        assert result.json["learning"]["description"] == "\x1b[31mröt\x7f\u2028"
        assert result.stdout.endswith("}\n")
        assert result.stdout[:-1].isascii()
        assert result.stdout[:-1].isprintable()

    def test_any_locale_will_do(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "learn", "größer", LC_ALL="C")["learning"]["description"] == "größer"


def refuse(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that has to fail and change nothing."""
    before = ralph.snapshot()
    error = ralph.agent(*arguments, **more).error
    assert ralph.snapshot() == before
    return error


def provoke_session_required(project: Ralph) -> dict[str, Any]:
    return refuse(project, "status", session=None)


def provoke_session_not_found(project: Ralph) -> dict[str, Any]:
    return refuse(project, "status", session="nobody")


def provoke_session_exists(project: Ralph) -> dict[str, Any]:
    project.openspec(change="other")
    init(project)
    return refuse(project, "session", "init", "--change", "other")


def provoke_story_required(project: Ralph) -> dict[str, Any]:
    init(project)
    return refuse(project, "context")


def provoke_story_not_found(project: Ralph) -> dict[str, Any]:
    init(project)
    return refuse(project, "context", RALPH_STORY="99")


def provoke_change_not_found(project: Ralph) -> dict[str, Any]:
    return refuse(project, "session", "init", "--change", "nothing")


def provoke_change_locked(project: Ralph) -> dict[str, Any]:
    init(project)
    return refuse(project, "session", "init", "--change", "add-login", session="s2")


def provoke_task_not_found(project: Ralph) -> dict[str, Any]:
    project.begin()
    return refuse(project, "task", "done", "9.9")


def provoke_task_out_of_scope(project: Ralph) -> dict[str, Any]:
    project.begin()
    return refuse(project, "task", "done", "2.1")


def provoke_invalid_name(project: Ralph) -> dict[str, Any]:
    return refuse(project, "session", "init", "--change", "../x")


def provoke_invalid_value(project: Ralph) -> dict[str, Any]:
    project.begin()
    return refuse(project, "observe", "rumour", "title")


def provoke_spec_error(project: Ralph) -> dict[str, Any]:
    project.tasks_file.unlink()
    return refuse(project, "session", "init", "--change", "add-login")


def provoke_corrupt_state(project: Ralph) -> dict[str, Any]:
    init(project)
    project.session_file().write_text("{")
    return refuse(project, "status")


def provoke_unsafe_path(project: Ralph) -> dict[str, Any]:
    init(project)
    project.session_file().rename(project.home / "moved")
    project.session_file().symlink_to(project.home / "moved")
    return refuse(project, "status")


def provoke_io_error(project: Ralph) -> dict[str, Any]:
    project.begin()
    (project.tasks_file.parent / ".tasks.md.ralph-aside").mkdir()  # no room to write aside
    return refuse(project, "task", "done", "1.1")


def provoke_usage(project: Ralph) -> dict[str, Any]:
    return refuse(project, "learn")


PROVOKE: dict[str, Callable[[Ralph], dict[str, Any]]] = {
    name.removeprefix("provoke_").upper(): function
    for name, function in list(globals().items())
    if name.startswith("provoke_")
}


class TestCodes:
    def test_every_code_is_provoked(self) -> None:
        assert set(PROVOKE) == CODES

    @pytest.mark.parametrize("code", sorted(CODES))
    def test_code(self, project: Ralph, code: str) -> None:
        assert PROVOKE[code](project)["code"] == code

    def test_failure_exits_with_1_and_usage_with_2(self, project: Ralph) -> None:
        assert project.agent("status", session="nobody").exit_code == 1
        assert project.agent("learn").exit_code == 2

    def test_stderr_is_one_line_with_one_object(self, project: Ralph) -> None:
        for arguments in (("status",), ("learn",), ("session", "init", "--change", "é\x1b")):
            stderr = project.agent(*arguments).stderr
            assert stderr.count("\n") == 1
            assert stderr[:-1].isascii()
            assert stderr[:-1].isprintable()

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("SESSION_REQUIRED", "ralphtool run"),
            ("SESSION_NOT_FOUND", "session init"),
            ("SESSION_EXISTS", "flush"),
            ("STORY_REQUIRED", "next-story"),
            ("STORY_NOT_FOUND", "1, 2"),
            ("CHANGE_NOT_FOUND", "ralphtool list"),
            ("CHANGE_LOCKED", "ralphtool unlock add-login"),
            ("TASK_NOT_FOUND", "1.1, 1.2"),
            ("TASK_OUT_OF_SCOPE", "story 2"),
            ("INVALID_VALUE", "blocker, finding, completion"),
            ("USAGE", "learn TEXT"),
        ],
    )
    def test_the_message_names_the_next_step(self, project: Ralph, code: str, said: str) -> None:
        assert said in PROVOKE[code](project)["error"]


class TestCommandLine:
    @pytest.mark.parametrize(
        "words",
        [
            [],
            [""],
            ["--"],
            ["-"],
            ["unknown"],
            ["Learn", "x"],
            ["session"],
            ["session", "begin"],
            ["task"],
            ["task", "undo", "1.1"],
            ["done", "1.1"],
            ["--session", "s1", "status"],
            ["status", "now"],
            ["status", "--json"],
            ["status", "-v"],
            ["status", ""],
            ["context", "1"],
            ["context", "--", "1"],
            ["session", "next-story", "2"],
            ["session", "flush", "--force"],
            ["session", "init"],
            ["session", "init", "add-login"],
            ["session", "init", "--change"],
            ["session", "init", "--change", "add-login", "more"],
            ["session", "init", "--change", "add-login", "--change", "add-login"],
            ["session", "init", "--chang", "add-login"],
            ["session", "init", "-c", "add-login"],
            ["task", "done"],
            ["task", "done", "1.1", "1.2"],
            ["task", "done", "--all"],
            ["learn"],
            ["learn", "two", "texts"],
            ["learn", "x", "--task"],
            ["learn", "x", "--task", "1.1", "--task", "1.2"],
            ["learn", "x", "--task", "1.1", "--task=1.1"],
            ["learn", "x", "--type"],
            ["learn", "x", "--story", "1"],
            ["learn", "x", "--TASK", "1.1"],
            ["learn", "--text"],
            ["learn", "-5"],
            ["learn", "--", "x", "--task", "1.1"],
            ["pattern"],
            ["pattern", "name"],
            ["pattern", "name", "description", "more"],
            ["pattern", "name", "description", "--task", "1.1"],
            ["observe"],
            ["observe", "finding"],
            ["observe", "finding", "title", "description"],
            ["observe", "finding", "title", "--file"],
            ["observe", "finding", "title", "--severity", "low", "--severity", "low"],
        ],
        ids=" ".join,
    )
    def test_a_wrong_one_is_usage(self, project: Ralph, words: list[str]) -> None:
        """Seen before anything else is looked at: there is no such session either."""
        before = project.snapshot()
        result = project.agent(*words)
        assert result.code == "USAGE"
        assert result.exit_code == 2
        assert project.snapshot() == before

    def test_unknown_command_names_the_known_ones(self, project: Ralph) -> None:
        message = project.agent("lern", "x").error["error"]
        assert "'lern x'" in message
        assert "learn" in message
        assert "ralphtool agent --help" in message

    def test_huge_unknown_command_is_cut(self, project: Ralph) -> None:
        assert len(project.agent("x" * 100_000).error["error"]) < 1000

    def test_option_with_an_equals_sign(self, project: Ralph) -> None:
        ok(project, "session", "init", "--change=add-login")
        assert ok(project, "learn", "x", "--task=1.1")["learning"]["task_id"] == "1.1"
        assert ok(project, "learn", "--task=a=b", "x")["learning"]["task_id"] == "a=b"

    def test_options_may_come_first(self, project: Ralph) -> None:
        project.begin()
        learning = ok(project, "learn", "--task", "1.1", "--type", "tool-usage", "a fact")["learning"]
        assert (learning["description"], learning["task_id"]) == ("a fact", "1.1")

    def test_after_two_dashes_all_is_text(self, project: Ralph) -> None:
        project.begin()
        for text in ("--text", "--help", "-h", "--task", "--", "-"):
            if text != "-":  # that one is stdin wherever it stands
                assert ok(project, "learn", "--", text)["learning"]["description"] == text
        assert ok(project, "learn", "--task", "1.1", "--", "-x")["learning"]["task_id"] == "1.1"

    def test_the_value_of_an_option_may_begin_with_a_dash(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "observe", "finding", "title", "--description", "-v is ignored", "--file=-x")
        assert printed["observation"]["description"] == "-v is ignored"
        assert printed["observation"]["file"] == "-x"

    @pytest.mark.parametrize("words", [["--help"], ["-h"], ["learn", "--help"], ["session", "init", "--help"]])
    def test_help_is_for_people_and_says_whom_the_commands_are_for(self, ralph: Ralph, words: list[str]) -> None:
        result = ralph.agent(*words, session=None)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "programs" in result.stdout
        assert not result.stdout.startswith("{")
        for command in ("session init", "next-story", "flush", "context", "task done", "status"):
            assert command in result.stdout
        for command in ("learn", "pattern", "observe", "RALPH_SESSION", "RALPH_STORY"):
            assert command in result.stdout
        assert ralph.snapshot().keys() == set()


class TestStoryScope:
    def test_the_variable_comes_before_the_session(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "status", RALPH_STORY="2")["story"]["id"] == "2"
        assert ok(project, "context", RALPH_STORY="2")["story"]["title"] == "Build"
        assert ok(project, "learn", "x", RALPH_STORY="2")["learning"]["story_id"] == "2"
        assert ok(project, "observe", "finding", "x", RALPH_STORY="2")["observation"]["story_id"] == "2"
        assert project.agent("task", "done", "1.1", RALPH_STORY="2").code == "TASK_OUT_OF_SCOPE"
        assert ok(project, "task", "done", "2.1", RALPH_STORY="2")["remaining"] == ["2.10"]
        assert project.session()["current_story_id"] == "1"

    def test_the_variable_alone_is_enough(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "status", RALPH_STORY="2")["story"]["id"] == "2"

    def test_an_empty_variable_counts_as_absent(self, project: Ralph) -> None:
        init(project)
        assert project.agent("status", RALPH_STORY="").code == "STORY_REQUIRED"
        assert ok(project, "learn", "x", RALPH_STORY="")["learning"]["story_id"] is None
        ok(project, "session", "next-story")
        assert ok(project, "status", RALPH_STORY="")["story"]["id"] == "1"

    @pytest.mark.parametrize("command", [("context",), ("status",), ("task", "done", "1.1")], ids=" ".join)
    def test_who_needs_a_story(self, project: Ralph, command: tuple[str, ...]) -> None:
        init(project)
        assert refuse(project, *command)["code"] == "STORY_REQUIRED"
        assert refuse(project, *command, RALPH_STORY="none")["code"] == "STORY_NOT_FOUND"

    def test_who_needs_none(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "learn", "x")["learning"]["story_id"] is None
        assert ok(project, "observe", "finding", "x")["observation"]["story_id"] is None
        assert "story_id" not in ok(project, "pattern", "n", "d")["pattern"]
        day = project.session()["learnings"][0]["timestamp"][:10]
        ok(project, "session", "flush")
        assert f"### {day} - General\n- x\n" in project.design_file.read_text()

    def test_iteration_counts_the_stories_handed_out(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "learn", "before")["learning"]["iteration"] == 0
        assert ok(project, "session", "next-story")["iteration"] == 1
        assert ok(project, "session", "next-story") == {
            "complete": False,
            "story_id": "1",
            "story_title": "Set up",
            "iteration": 2,
        }
        assert ok(project, "learn", "after")["learning"]["iteration"] == 2
        assert ok(project, "observe", "finding", "x")["observation"]["iteration"] == 2
        assert project.session()["iteration"] == 2


class TestTaskDone:
    def test_one_box_is_all_that_changes(self, project: Ralph) -> None:
        project.begin()
        before = project.tasks_file.read_bytes()
        ok(project, "task", "done", "1.1")
        assert project.tasks_file.read_bytes() == before.replace(b"[ ] 1.1 ", b"[x] 1.1 ")

    def test_it_is_idempotent(self, project: Ralph) -> None:
        project.begin()
        first = project.agent("task", "done", "1.1").stdout
        after = project.snapshot()
        assert project.agent("task", "done", "1.1").stdout == first
        assert project.snapshot() == after

    @pytest.mark.parametrize("order", [["1.1", "1.10"], ["1.10", "1.1"]], ids=" ".join)
    def test_1_1_is_not_1_10(self, ralph: Ralph, order: list[str]) -> None:
        text = "## 1. One\n\n- [ ] 1.10 ten\n- [ ] 1.1 one\n- [ ] 1.11 eleven\n"
        ralph.openspec(text).begin()
        for task in order:
            ok(ralph, "task", "done", task)
            text = text.replace(f"[ ] {task} ", f"[x] {task} ")
            assert ralph.tasks_file.read_text() == text
        assert ok(ralph, "status")["story"]["tasks_done"] == 2

    def test_what_is_ticked_already_stays_as_it_was_written(self, project: Ralph) -> None:
        text = project.tasks_file.read_text().replace("[ ] 1.1", "[X] 1.1")
        project.tasks_file.write_text(text)
        project.begin()
        assert ok(project, "task", "done", "1.1")["remaining"] == ["1.2"]
        assert project.tasks_file.read_text() == text
        assert project.session()["completed_tasks"] == ["1.1"]

    def test_a_box_cleared_by_hand_is_ticked_again(self, project: Ralph) -> None:
        project.begin()
        before = project.tasks_file.read_bytes()
        ok(project, "task", "done", "1.1")
        project.tasks_file.write_bytes(before)
        assert ok(project, "status")["story"]["tasks_done"] == 0
        ok(project, "task", "done", "1.1")
        assert ok(project, "status")["story"]["tasks_done"] == 1
        assert project.session()["completed_tasks"] == ["1.1"]

    @pytest.mark.parametrize("task", ["1", "1.", "1.3", "01.1", "1.1 ", " 1.1", "１.1", "x" * 5000])
    def test_no_such_task(self, project: Ralph, task: str) -> None:
        project.begin()
        error = refuse(project, "task", "done", task)
        assert error["code"] == "TASK_NOT_FOUND"
        assert len(error["error"]) < 500

    def test_a_task_of_another_story_names_both(self, project: Ralph) -> None:
        project.begin()
        error = refuse(project, "task", "done", "2.10")
        assert error["code"] == "TASK_OUT_OF_SCOPE"
        assert "story 2" in error["error"]
        assert "1" in error["error"].partition("scope is")[2]

    def test_file_mode_is_kept(self, project: Ralph) -> None:
        project.tasks_file.chmod(0o640)
        project.begin()
        ok(project, "task", "done", "1.1")
        assert project.tasks_file.stat().st_mode & 0o777 == 0o640


class TestNextStory:
    def order(self, ralph: Ralph) -> list[str]:
        """All stories as they are handed out, each done before the next one is asked for."""
        init(ralph)
        seen: list[str] = []
        while "story_id" in (answer := ok(ralph, "session", "next-story")):
            seen.append(answer["story_id"])
            assert len(seen) < 20, "it goes on for ever"
            for task in ok(ralph, "context")["tasks"]:
                if not task["done"]:
                    ok(ralph, "task", "done", task["id"])
        assert answer == {"complete": True}
        return seen

    def test_by_number(self, ralph: Ralph) -> None:
        ralph.openspec("## 10. Ten\n- [ ] 10.1 a\n## 2. Two\n- [ ] 2.1 b\n## 1. One\n- [x] 1.1 c\n")
        assert self.order(ralph) == ["2", "10"]

    def test_optional_stories_come_last(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. Extra (optional)\n- [ ] 1.1 a\n## 2. Two\n- [ ] 2.1 b\n## 3. Three\n- [ ] 3.1 c\n")
        assert self.order(ralph) == ["2", "3", "1"]

    def test_dependencies_are_waited_for(self, ralph: Ralph) -> None:
        ralph.openspec(
            "## 1. A (depends on 3)\n- [ ] 1.1 a\n## 2. B (depends on 1, 3)\n- [ ] 2.1 b\n## 3. C\n- [ ] 3.1 c\n"
        )
        assert self.order(ralph) == ["3", "1", "2"]

    def test_what_waits_for_an_optional_story_comes_after_it(self, ralph: Ralph) -> None:
        ralph.openspec(
            "## 1. One (depends on 2)\n- [ ] 1.1 a\n## 2. Two (optional)\n- [ ] 2.1 b\n## 3. Three\n- [ ] 3.1 c\n"
        )
        assert self.order(ralph) == ["3", "2", "1"]

    def test_a_story_without_tasks_is_done(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. Nothing\n\n## 2. Two\n- [ ] 2.1 b\n")
        assert self.order(ralph) == ["2"]

    def test_the_open_one_is_given_again(self, project: Ralph) -> None:
        init(project)
        assert [ok(project, "session", "next-story")["story_id"] for _ in range(3)] == ["1", "1", "1"]

    def test_stories_do_not_wait_for_each_other_otherwise(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "2.1", RALPH_STORY="2")
        assert project.session()["completed_tasks"] == ["2.1"]

    def test_the_change_is_complete_without_its_optional_stories(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. One\n- [ ] 1.1 a\n## 2. Two (optional)\n- [ ] 2.1 b\n").begin()
        assert ok(ralph, "status")["change_complete"] is False
        ok(ralph, "task", "done", "1.1")
        assert ok(ralph, "status") == {
            "story": {"id": "1", "tasks_done": 1, "tasks_total": 1},
            "change": {"stories_done": 1, "stories_total": 2},
            "story_complete": True,
            "change_complete": True,
        }
        assert ok(ralph, "session", "next-story")["story_id"] == "2", "optional, but still to be had"

    def test_an_empty_change_is_complete(self, ralph: Ralph) -> None:
        ralph.openspec("")
        assert init(ralph)["stories"] == []
        assert ok(ralph, "session", "next-story") == {"complete": True}


class TestRecording:
    def test_a_megabyte_from_stdin(self, project: Ralph) -> None:
        project.begin()
        text = "größer\n" * 150_000
        printed = ok(project, "learn", "-", "--task", "1.1", stdin=text.encode())
        assert printed["learning"]["description"] == text.rstrip("\n")
        assert printed["learning"]["task_id"] == "1.1"
        assert project.session()["learnings"] == [printed["learning"]]
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert project.design_file.read_text().count("größer") == 150_000

    def test_a_pattern_from_stdin(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "pattern", "Layers", "-", stdin=b"downward\nalways\n")
        assert printed["pattern"]["description"] == "downward\nalways"

    def test_as_much_as_an_argument_holds(self, project: Ralph) -> None:
        project.begin()
        text = "x" * (128 * 1024 - 100)
        assert ok(project, "learn", text)["learning"]["description"] == text

    def test_text_is_kept_word_for_word(self, project: Ralph) -> None:
        project.begin()
        text = "  \"quoted\" 'single' \\back\\ \t tab\n## line two\r\n\x01\x1b[0m end  "
        assert ok(project, "learn", text)["learning"]["description"] == text
        assert project.session()["learnings"][0]["description"] == text

    @pytest.mark.parametrize("kind", ["codebase-pattern", "build-command", "test-pattern", "dependency-quirk"])
    def test_types_of_learnings(self, project: Ralph, kind: str) -> None:
        project.begin()
        ok(project, "learn", "x", "--type", kind)
        assert kind in project.session()["learnings"][0].values()

    @pytest.mark.parametrize("kind", ["blocker", "finding", "completion"])
    def test_types_of_observations(self, project: Ralph, kind: str) -> None:
        project.begin()
        assert ok(project, "observe", kind, "x")["observation"]["type"] == kind

    @pytest.mark.parametrize("title", ["設定　画面が開かない", "no\u00a0break", "emoji 👩‍👩‍👧", "עברית"])
    def test_titles_and_names_in_any_script(self, project: Ralph, title: str) -> None:
        project.begin()
        assert ok(project, "observe", "finding", title)["observation"]["title"] == title
        assert ok(project, "pattern", title, "d")["pattern"]["name"] == title

    @pytest.mark.parametrize(
        "words",
        [
            ["learn", ""],
            ["learn", " \n\t "],
            ["learn", "x", "--type", "api-pattern"],
            ["learn", "x", "--type", ""],
            ["learn", "x", "--task", ""],
            ["learn", "x", "--task", "1\n2"],
            ["pattern", "", "d"],
            ["pattern", "n", ""],
            ["pattern", "two\nlines", "d"],
            ["pattern", "n", "d", "--type", "build-command"],
            ["observe", "finding", ""],
            ["observe", "finding", "two\nlines"],
            ["observe", "Finding", "x"],
            ["observe", "finding", "x", "--category", "weather"],
            ["observe", "finding", "x", "--severity", "HIGH"],
            ["observe", "finding", "x", "--description", ""],
            ["observe", "finding", "x", "--file", ""],
        ],
        ids=repr,
    )
    def test_what_can_not_be_used_is_an_invalid_value(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refuse(project, *words)["code"] == "INVALID_VALUE"


class TestSessionFile:
    def test_content_of_a_new_one(self, project: Ralph) -> None:
        printed = init(project)
        assert project.session() == {
            "session_id": "s1",
            "change_name": "add-login",
            "current_story_id": None,
            "created_at": printed["created_at"],
            "learnings": [],
            "patterns": [],
            "completed_tasks": [],
            "iteration": 0,
            "observations": [],
        }

    def test_content_after_work(self, project: Ralph) -> None:
        created_at = init(project)["created_at"]
        ok(project, "session", "next-story")
        learning = ok(project, "learn", "x", "--task", "1.1")["learning"]
        pattern = ok(project, "pattern", "n", "d")["pattern"]
        observation = ok(project, "observe", "finding", "t")["observation"]
        ok(project, "task", "done", "1.1")
        assert project.session() == {
            "session_id": "s1",
            "change_name": "add-login",
            "current_story_id": "1",
            "created_at": created_at,
            "learnings": [learning],
            "patterns": [pattern],
            "completed_tasks": ["1.1"],
            "iteration": 1,
            "observations": [observation],
        }

    def test_nobody_else_may_read_it(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        for folder in (project.tmp / "ralph", project.tmp / "ralph/sessions", project.tmp / "ralphtool"):
            assert folder.stat().st_mode & 0o777 == 0o700
        for file in (project.session_file(), project.tmp / "ralphtool/add-login-learnings.md"):
            assert file.stat().st_mode & 0o777 == 0o600

    def test_accumulated_learnings_are_read(self, project: Ralph) -> None:
        project.begin()
        learning = ok(project, "learn", "old name")["learning"]
        state = project.session()
        state["accumulated_learnings"] = state.pop("learnings")
        project.session_file().write_text(json.dumps(state))
        assert ok(project, "context")["learnings"] == [learning]
        assert ok(project, "learn", "new name")["total_learnings"] == 2
        assert ok(project, "session", "flush")["learnings_written"] == 2

    def test_a_file_without_the_later_fields_is_read(self, project: Ralph) -> None:
        project.begin()
        state = project.session()
        for name in ("iteration", "observations", "patterns"):
            del state[name]
        project.session_file().write_text(json.dumps(state))
        assert ok(project, "observe", "finding", "x")["observation"]["iteration"] == 0
        assert ok(project, "pattern", "n", "d")["total_patterns"] == 1

    def test_two_sessions_at_once_on_two_changes(self, project: Ralph) -> None:
        project.openspec(change="other")
        project.begin()
        project.begin("other", "s2")
        ok(project, "learn", "mine")
        ok(project, "learn", "yours", session="s2")
        ok(project, "session", "flush")
        assert "mine" in project.design_file.read_text()
        assert "yours" not in project.design_file.read_text()
        assert ok(project, "context", session="s2")["learnings"][0]["description"] == "yours"

    def test_long_ids_that_begin_alike_do_not_meet(self, project: Ralph) -> None:
        """A name may have 128 characters; each session's file is written on its own."""
        sessions = ["x" * 127 + letter for letter in "ab"]
        for session, change in zip(sessions, ("add-login", "other"), strict=True):
            project.openspec(change=change)
            init(project, change, session)
        running = [
            start_agent(project, session, "learn", f"of {session[-1]}") for _ in range(15) for session in sessions
        ]
        results = [process.communicate(timeout=60) for process in running]
        assert [process.returncode for process in running] == [0] * 30, results
        for session in sessions:
            texts = [one["description"] for one in project.session(session)["learnings"]]
            assert texts == [f"of {session[-1]}"] * 15


def start_agent(ralph: Ralph, session: str, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": session},
        cwd=cwd or ralph.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class TestLock:
    def test_same_session_same_change(self, project: Ralph) -> None:
        init(project)
        error = refuse(project, "session", "init", "--change", "add-login")
        assert error["code"] == "CHANGE_LOCKED"
        assert "s1" in error["error"]

    def test_same_session_other_change(self, project: Ralph) -> None:
        project.openspec(change="other")
        init(project)
        error = refuse(project, "session", "init", "--change", "other")
        assert error["code"] == "SESSION_EXISTS"
        assert not (project.root / ".ralph/locks/other.lock").exists()

    def test_other_session_same_change(self, project: Ralph) -> None:
        init(project, session="holder")
        error = refuse(project, "session", "init", "--change", "add-login", session="s2")
        assert error["code"] == "CHANGE_LOCKED"
        assert "holder" in error["error"]

    def test_it_outlives_init_and_all_but_the_flush(self, project: Ralph) -> None:
        init(project)
        record_one_of_each(project)
        assert refuse(project, "session", "init", "--change", "add-login", session="s2")["code"] == "CHANGE_LOCKED"
        ok(project, "session", "flush")
        assert init(project, session="s2")["session_id"] == "s2"

    def test_init_alone_leaves_no_process_in_it(self, project: Ralph) -> None:
        init(project)
        assert json.loads(project.lock_file.read_text())["owner"] is None

    def test_of_many_inits_at_once_exactly_one_wins(self, project: Ralph) -> None:
        arguments = ("session", "init", "--change", "add-login")
        running = [start_agent(project, f"s{number}", *arguments) for number in range(12)]
        errors = [process.communicate(timeout=60)[1] for process in running]
        assert sorted(process.returncode for process in running) == [0] + [1] * 11
        assert {json.loads(error)["code"] for error in errors if error} == {"CHANGE_LOCKED"}
        [winner] = [number for number, process in enumerate(running) if process.returncode == 0]
        assert json.loads(project.lock_file.read_text())["session_id"] == f"s{winner}"
        assert [path.name for path in (project.tmp / "ralph/sessions").iterdir()] == [f"s{winner}.json"]

    def test_somebody_else_makes_each_folder_a_moment_before_us(self, project: Ralph) -> None:
        """As when the first sessions of two projects begin at once."""
        done = subprocess.run(
            [sys.executable, "-c", BE_QUICKER, "session", "init", "--change", "add-login"],
            env={**project.env, "RALPH_SESSION": "s1"},
            cwd=project.root,
            capture_output=True,
            timeout=60,
        )
        assert Result(done).json["session_id"] == "s1"

    def test_a_lock_whose_session_is_gone_is_reclaimed(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert init(project, session="s2")["session_id"] == "s2"
        assert json.loads(project.lock_file.read_text())["session_id"] == "s2"

    def test_a_lock_whose_session_is_gone_is_reclaimed_by_its_own_id(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert init(project)["session_id"] == "s1"

    def test_a_lock_whose_session_id_serves_another_project_now(self, project: Ralph, tmp_path: Path) -> None:
        init(project)
        project.session_file().unlink()
        other = project.root / "nested"
        project.write("nested/openspec/changes/another/tasks.md", "")
        ok(project, "session", "init", "--change", "another", cwd=other)
        assert init(project, session="s2")["session_id"] == "s2"
        assert project.session()["change_name"] == "another", "not ours to take"

    def test_a_dead_owner_is_followed_and_its_buffers_carried_over(self, project: Ralph) -> None:
        with held_by_a_run(project, session="dead"):
            record_one_of_each(project, "dead")
            left = buffers(project.session("dead"))
        init(project, session="heir")
        assert buffers(project.session("heir")) == left
        assert not project.session_file("dead").exists()
        assert project.session("heir")["iteration"] == 0
        printed = ok(project, "session", "flush", session="heir")
        assert printed == {"success": True, "learnings_written": 1, "patterns_written": 1}
        assert project.design_file.read_text().count("learnt by dead") == 1

    def test_a_dead_owner_is_followed_by_the_same_id(self, project: Ralph) -> None:
        with held_by_a_run(project):
            record_one_of_each(project)
            left = buffers(project.session())
        init(project)
        assert buffers(project.session()) == left
        assert json.loads(project.lock_file.read_text())["owner"] is None

    def test_a_dead_owner_that_nobody_has_waited_for(self, project: Ralph) -> None:
        """A zombie still has its pid, and does nothing any more."""
        owner = start_owner(project, "add-login", "dead")
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        try:
            assert init(project, session="heir")["session_id"] == "heir"
        finally:
            finish(owner)

    def test_a_pid_that_serves_another_process_now(self, project: Ralph) -> None:
        with held_by_a_run(project) as owner:
            lock = json.loads(project.lock_file.read_text())
            assert lock["owner"]["pid"] == owner.pid
            lock["owner"]["start_time"] = "another boot/17"
            project.lock_file.write_text(json.dumps(lock))
            assert init(project, session="s2")["session_id"] == "s2"

    def test_a_live_owner_is_left_alone(self, project: Ralph) -> None:
        with held_by_a_run(project, session="alive") as owner:
            record_one_of_each(project, "alive")
            error = refuse(project, "session", "init", "--change", "add-login", session="s2")
            assert error["code"] == "CHANGE_LOCKED"
            assert "session alive" in error["error"]
            assert str(owner.pid) in error["error"]

    def test_the_heir_of_an_heir_has_it_all(self, project: Ralph) -> None:
        for session in ("a", "b", "c"):
            with held_by_a_run(project, session=session):
                ok(project, "learn", f"by {session}", session=session)
        init(project, session="d")
        assert [one["description"] for one in project.session("d")["learnings"]] == ["by a", "by b", "by c"]


class TestUnlock:
    def test_the_buffers_pass_to_the_next_session(self, project: Ralph) -> None:
        init(project, session="old")
        record_one_of_each(project, "old")
        left = buffers(project.session("old"))
        assert project.run("unlock", "add-login").exit_code == 0
        init(project, session="new")
        assert buffers(project.session("new")) == left
        assert project.agent("status", session="old").code == "SESSION_NOT_FOUND"

    def test_what_is_learnt_after_the_unlock_is_not_lost(self, project: Ralph) -> None:
        project.begin(session="old")
        assert project.run("unlock", "add-login").exit_code == 0
        ok(project, "learn", "late", session="old")
        init(project, session="new")
        assert [one["description"] for one in project.session("new")["learnings"]] == ["late"]

    def test_the_old_session_may_still_flush(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        assert project.run("unlock", "add-login").exit_code == 0
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert not project.lock_file.exists()

    def test_a_live_owner_needs_force(self, project: Ralph) -> None:
        with held_by_a_run(project, session="alive") as owner:
            ok(project, "learn", "kept", session="alive")
            before = project.snapshot()
            result = project.run("unlock", "add-login")
            assert (result.exit_code, result.stdout) == (1, "")
            assert str(owner.pid) in result.stderr
            assert "--force" in result.stderr
            assert project.snapshot() == before
            assert project.run("unlock", "add-login", "--force").exit_code == 0
            init(project, session="next")
        assert [one["description"] for one in project.session("next")["learnings"]] == ["kept"]

    def test_a_dead_owner_needs_none(self, project: Ralph) -> None:
        with held_by_a_run(project):
            pass
        assert project.run("unlock", "add-login").exit_code == 0
        assert init(project, session="next")["session_id"] == "next"

    def test_nothing_to_unlock(self, project: Ralph) -> None:
        before = project.snapshot()
        result = project.run("unlock", "add-login")
        assert result.exit_code == 0
        assert "not locked" in result.stdout
        assert project.snapshot() == before

    def test_after_the_session_is_gone_nothing_is_left(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert project.run("unlock", "add-login").exit_code == 0
        assert not project.lock_file.exists()


class TestFlush:
    def test_it_frees_the_change_and_ends_the_session(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        ok(project, "session", "flush")
        assert not project.lock_file.exists()
        assert not project.session_file().exists()
        assert project.agent("learn", "y").code == "SESSION_NOT_FOUND"

    def test_twice(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        ok(project, "session", "flush")
        assert refuse(project, "session", "flush")["code"] == "SESSION_NOT_FOUND"

    def test_interrupted_before_the_end_it_writes_nothing_twice(self, project: Ralph) -> None:
        """The lock or the session is still there, the notes are written: as if killed in between."""
        project.begin()
        record_one_of_each(project)
        session, lock = project.session_file().read_bytes(), project.lock_file.read_bytes()
        ok(project, "session", "flush")
        design = project.design_file.read_bytes()
        for lock_is_left in (True, False):
            project.session_file().write_bytes(session)
            if lock_is_left:
                project.lock_file.write_bytes(lock)
            printed = ok(project, "session", "flush")
            assert printed == {"success": True, "learnings_written": 0, "patterns_written": 0}
            assert project.design_file.read_bytes() == design
            assert not project.session_file().exists()
            assert not project.lock_file.exists()

    def test_with_empty_buffers_it_writes_nothing(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        files = {path: path.read_bytes() for path in (project.root / "openspec").rglob("*") if path.is_file()}
        printed = ok(project, "session", "flush")
        assert printed == {"success": True, "learnings_written": 0, "patterns_written": 0}
        assert {path: path.read_bytes() for path in (project.root / "openspec").rglob("*") if path.is_file()} == files
        assert not project.design_file.exists()

    def test_nothing_reaches_the_spec_before(self, project: Ralph) -> None:
        before = {path: data for path, data in project.snapshot().items() if "openspec" in path}
        init(project)
        ok(project, "learn", "x")
        ok(project, "pattern", "n", "d")
        ok(project, "observe", "finding", "t")
        assert {path: data for path, data in project.snapshot().items() if "openspec" in path} == before

    def test_a_lock_that_somebody_else_has_by_now_stays(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        kept = project.session_file().read_bytes()
        project.session_file().unlink()
        init(project, session="s2")
        project.session_file().write_bytes(kept)
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert json.loads(project.lock_file.read_text())["session_id"] == "s2"

    def test_the_next_session_of_the_same_day_joins_the_group(self, project: Ralph) -> None:
        for text in ("first", "second"):
            project.begin()
            ok(project, "learn", text)
            ok(project, "session", "flush")
        assert project.design_file.read_text().endswith("- Story 1\n- first\n- second\n")


class TestWhereTheProjectIs:
    COMMANDS = (
        ("session", "next-story"),
        ("context",),
        ("status",),
        ("task", "done", "1.1"),
        ("learn", "x"),
        ("pattern", "n", "d"),
        ("observe", "finding", "t"),
        ("session", "flush"),
    )

    def run_all(self, project: Ralph, folder: Path) -> None:
        for command in self.COMMANDS:
            ok(project, *command, cwd=folder)
        assert "[x] 1.1" in project.tasks_file.read_text()
        assert "- x\n" in project.design_file.read_text()
        assert not project.lock_file.exists()

    def test_from_a_folder_below(self, project: Ralph) -> None:
        below = project.root / "src/deep"
        below.mkdir(parents=True)
        ok(project, "session", "init", "--change", "add-login", cwd=below)
        assert project.lock_file.exists()
        self.run_all(project, below)

    @pytest.mark.parametrize("mark", ["specs", "openspec", ".ralph", ".git"])
    def test_from_a_folder_below_that_looks_like_a_project(self, project: Ralph, mark: str) -> None:
        init(project)
        below = project.root / "packages/api"
        (below / mark).mkdir(parents=True)
        self.run_all(project, below)
        assert list((below / mark).iterdir()) == []

    def test_from_a_project_below_with_a_change_of_that_name_that_another_session_holds(self, project: Ralph) -> None:
        project.write("nested/openspec/changes/add-login/tasks.md", "## 7. Other\n- [ ] 7.1 x\n")
        nested = project.root / "nested"
        ok(project, "session", "init", "--change", "add-login", session="s2", cwd=nested)
        init(project)
        self.run_all(project, nested)
        assert (nested / ".ralph/locks/add-login.lock").exists()

    def test_init_takes_the_nearest(self, project: Ralph) -> None:
        project.write("nested/openspec/changes/inner/tasks.md", "## 7. Other\n- [ ] 7.1 x\n")
        nested = project.root / "nested"
        assert ok(project, "session", "init", "--change", "inner", cwd=nested)["stories"][0]["id"] == "7"
        assert (nested / ".ralph/locks/inner.lock").exists()
        assert not (project.root / ".ralph").exists()

    def test_tmpdir_is_honoured(self, project: Ralph) -> None:
        elsewhere = project.home / "other-tmp"
        elsewhere.mkdir()
        ok(project, "session", "init", "--change", "add-login", TMPDIR=str(elsewhere))
        assert (elsewhere / "ralph/sessions/s1.json").is_file()
        assert not (project.tmp / "ralph").exists()
        assert project.agent("status").code == "SESSION_NOT_FOUND"


class TestVerificationCommands:
    def verify(self, project: Ralph) -> tuple[list[str], list[str]]:
        init(project)
        found = ok(project, "context", RALPH_STORY="1")["verify"]
        assert set(found) == {"checks", "tests"}
        return found["checks"], found["tests"]

    def test_from_the_configuration(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["a", "b c"]\ntests = ["d"]\ntimeout = "20m"\n')
        assert self.verify(project) == (["a", "b c"], ["d"])

    def test_empty_lists_are_an_answer(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", "[verify]\nchecks = []\ntests = []\n")
        assert self.verify(project) == ([], [])

    def test_what_is_not_configured_is_inferred(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["mine"]\n')
        assert self.verify(project) == (["mine"], ["cargo test"])

    @pytest.mark.parametrize(
        "text",
        [
            'verify.checks = ["a", "b"]\nverify.tests = ["c"]\n',
            'verify = { checks = ["a", "b"], tests = ["c"] }\n',
            '[ verify ]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '["verify"]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[verify] # how we prove it\nchecks = ["a", "b"] # two\ntests = ["c"]\n',
            '[verify]\n"checks" = ["a", "b"]\n\'tests\' = ["c"]\n',
            '[verify]\nchecks = ["\\u0061", "b"]\ntests = ["""c"""]\n',
            "[verify]\nchecks = ['a', 'b',]\ntests = [ 'c' , ]\n",
            '[verify]\nchecks = [\n  "a", # first\n  # none\n  "b",\n]\ntests = [\n"c"\n]\n',
            '[verify]\r\nchecks = ["a", "b"]\r\ntests = ["c"]\r\n',
            '\ufeff[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[run]\nagent = "x"\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n[memory]\nchecks = ["z"]\n',
            '[run]\nnote = """\n[verify]\nchecks = ["z"]\n"""\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[verify]\nchecks=["a","b"]\ntests=["c"]\n\n[agents.verify]\nargs = ["z"]\n',
            '[other]\nverify = ["z"]\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '# [verify]\n[verify]\n\tchecks = ["a", "b"]\n\ttests = ["c"]\n# tests = ["z"]\n',
        ],
    )
    def test_any_toml_will_do(self, project: Ralph, text: str) -> None:
        project.write(".ralph/config.toml", text)
        assert self.verify(project) == (["a", "b"], ["c"])

    @pytest.mark.parametrize("command", ['echo "#1"', "echo [x]", "a = b", "cd 'x y'; run", "größer", "]", "a\\b", ""])
    def test_commands_with_marks_in_them(self, project: Ralph, command: str) -> None:
        project.write(".ralph/config.toml", f"[verify]\nchecks = [{json.dumps(command)}]\ntests = []\n")
        assert self.verify(project) == ([command], [])

    def test_nothing_to_go_by(self, project: Ralph) -> None:
        assert self.verify(project) == ([], [])

    def test_cargo(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        assert self.verify(project) == (["cargo check"], ["cargo test"])

    def test_package_json(self, project: Ralph) -> None:
        project.write("package.json", '{"scripts": {"test": "vitest", "lint": "eslint .", "build": "tsc"}}')
        assert self.verify(project) == (["npm run lint"], ["npm test"])

    def test_package_json_with_another_tool(self, project: Ralph) -> None:
        project.write("package.json", '{"scripts": {"test": "vitest", "typecheck": "tsc"}}')
        project.write("pnpm-lock.yaml", "")
        assert self.verify(project) == (["pnpm run typecheck"], ["pnpm test"])

    @pytest.mark.parametrize(
        "text",
        [
            '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}',
            '{"scripts": {}}',
            '{"scripts": ["test"]}',
            "[]",
            "{broken",
            "",
            "[" * 100_000,
        ],
        ids=lambda text: text[:20],
    )
    def test_package_json_without_tests(self, project: Ralph, text: str) -> None:
        project.write("package.json", text)
        assert self.verify(project) == ([], [])

    def test_pyproject(self, project: Ralph) -> None:
        project.write("pyproject.toml", "[tool.ruff]\n[tool.mypy]\n[tool.pytest.ini_options]\n")
        assert self.verify(project) == (["ruff check .", "mypy ."], ["python -m pytest"])

    @pytest.mark.parametrize("name", ["setup.py", "setup.cfg", "pyproject.toml"])
    def test_python_with_a_folder_of_tests(self, project: Ralph, name: str) -> None:
        project.write(name, "")
        project.write("tests/test_x.py", "")
        assert self.verify(project) == ([], ["python -m pytest"])

    def test_go(self, project: Ralph) -> None:
        project.write("go.mod", "module x\n")
        assert self.verify(project) == (["go vet ./..."], ["go test ./..."])

    def test_makefile(self, project: Ralph) -> None:
        project.write("Makefile", "lint check: x\n\ttrue\ntest:\n\ttrue\n\n# other: x\nother:\n\ttrue\n")
        assert self.verify(project) == (["make lint", "make check"], ["make test"])

    def test_two_languages(self, project: Ralph) -> None:
        project.write("Cargo.toml", "")
        project.write("go.mod", "")
        checks, tests = self.verify(project)
        assert sorted(checks) == ["cargo check", "go vet ./..."]
        assert sorted(tests) == ["cargo test", "go test ./..."]


class TestPrd:
    def shop(self, ralph: Ralph) -> Ralph:
        ralph.write("prd.json", PRD)
        return ralph

    def test_criteria_are_tasks_that_the_session_keeps(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        assert [task["id"] for task in ok(ralph, "context")["tasks"]] == ["US-1.1", "US-1.2"]
        printed = ok(ralph, "task", "done", "US-1.1")
        assert (printed["remaining"], printed["story_complete"]) == (["US-1.2"], False)
        assert ralph.read("prd.json") == PRD
        assert ralph.session()["completed_tasks"] == ["US-1.1"]
        assert ok(ralph, "status")["story"] == {"id": "US-1", "tasks_done": 1, "tasks_total": 2}

    def test_the_last_one_sets_passes_and_nothing_else(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "task", "done", "US-1.2")
        printed = ok(ralph, "task", "done", "US-1.1")
        assert (printed["remaining"], printed["story_complete"], printed["scenarios"]) == ([], True, [])
        assert ralph.read("prd.json") == PRD.replace('1, "passes": false', '1, "passes": true')
        assert ok(ralph, "session", "next-story")["story_id"] == "US-2"

    def test_without_criteria_the_title_is_the_task(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        assert ok(ralph, "context", RALPH_STORY="US-2")["tasks"] == [
            {"id": "US-2.1", "description": "Pay", "done": False}
        ]
        ok(ralph, "task", "done", "US-2.1", RALPH_STORY="US-2")
        assert ralph.read("prd.json") == PRD.replace('2, "passes": false', '2, "passes": true')

    def test_in_a_run_passes_waits_for_the_gates(self, ralph: Ralph) -> None:
        self.shop(ralph)
        with held_by_a_run(ralph, "shop"):
            ok(ralph, "session", "next-story")
            ok(ralph, "task", "done", "US-1.1")
            printed = ok(ralph, "task", "done", "US-1.2")
            assert (printed["remaining"], printed["story_complete"]) == ([], True)
            assert ok(ralph, "status")["story_complete"] is True
            assert ralph.read("prd.json") == PRD

    def test_what_was_done_before_is_taken_over(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "task", "done", "US-1.1")
        assert ralph.run("unlock", "shop").exit_code == 0
        ralph.begin("shop", "s2")
        assert ok(ralph, "status", session="s2")["story"]["tasks_done"] == 1

    def test_learnings_go_beside_it(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "learn", "a fact", "--task", "US-1.1")
        ok(ralph, "session", "flush")
        assert ralph.read("shop-learnings.md").endswith("- Story US-1\n- a fact (Task US-1.1)\n")
        assert ralph.read("prd.json") == PRD


def test_scenarios_belong_to_their_capability_and_requirement(project: Ralph) -> None:
    project.write("openspec/changes/add-login/specs/deep/er/spec.md", SPEC.replace("Login", "Logout"))
    project.begin()
    found = {(one["capability"], one["requirement"]) for one in ok(project, "context")["scenarios"]}
    assert found == {("auth", "Login"), ("deep/er", "Logout")}
