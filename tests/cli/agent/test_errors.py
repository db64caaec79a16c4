"""The nine commands of `ralphtool agent`: error codes, and the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cli.agent.calls import init, ok, refuse
from project import Ralph

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
    project.tasks_file.write_bytes(b"## 1. A\n\n- [ ] 1.1 caf\xe9\n")
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
    (project.tasks_file.parent / ".tasks.md.ralph-aside").mkdir()  # the aside file can't be created
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
        """Detected before anything else is checked: there is no such session either."""
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
            if text != "-":  # that one means stdin in any position
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
