"""Bad input: names of sessions, changes and stories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli.bad_input.calls import INIT, RUNNING, ok, refused, refused_for_people
from project import Ralph

from ralphtool import specs
from ralphtool.core import learnings_file, lifecycle, locks, session
from ralphtool.errors import InvalidName

BAD_NAMES = [
    "..",
    ".",
    "../x",
    "../../etc/passwd",
    "a/b",
    "a/",
    "/etc/passwd",
    "a\\b",
    "a b",
    " a",
    "a ",
    "a\n",
    "a\tb",
    "a\x1b[31m",
    "a\x7f",
    ".hidden",
    "-dash",
    "_under",
    "a:b",
    "a*",
    "a~",
    "a%2fb",
    "$HOME",
    "é",
    "аdd-login",  # the first letter is Cyrillic
    "add‐login",  # not the ASCII hyphen
    "ａdd-login",  # full width
    "s１",
    "add-login\u200b",
    "add\u202elogin",
    "\udcff",  # a byte that is not UTF-8
    "x" * 129,
    "x" * 4000,
]


class TestNames:
    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[1:20])
    def test_session_id(self, project: Ralph, name: str) -> None:
        # All commands use the same check: a few are enough for the rarer names.
        for command in (INIT, *RUNNING) if name in ("../x", "a b", "x" * 4000) else (INIT, ("status",), ("learn", "x")):
            error = refused(project, *command, session=name)
            assert error["code"] == "INVALID_NAME"
            assert "session id" in error["error"]
            assert "letters, digits" in error["error"]
            assert len(error["error"]) < 500

    @pytest.mark.parametrize("name", ["", *BAD_NAMES], ids=lambda name: ascii(name)[1:20])
    def test_change(self, project: Ralph, name: str) -> None:
        error = refused(project, "session", "init", f"--change={name}")
        assert error["code"] == "INVALID_NAME"
        assert "change's name" in error["error"]
        assert "letters, digits" in error["error"]
        assert len(error["error"]) < 500

    @pytest.mark.parametrize("name", ["../x", "a/b", "a b", ".hidden", "é", "x" * 4000], ids=lambda name: name[:9])
    def test_change_of_the_people_s_commands(self, project: Ralph, name: str) -> None:
        for command in ("show", "unlock", "learnings"):
            assert "change's name" in refused_for_people(project, command, name)

    def test_empty_session_id_is_a_missing_one(self, project: Ralph) -> None:
        for command in (INIT, *RUNNING):
            assert refused(project, *command, session="")["code"] == "SESSION_REQUIRED"

    @pytest.mark.parametrize("name", ["a\0b", "\0", "add-login\0.lock"])
    def test_nul_which_no_argument_can_carry(self, project: Ralph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(project.tmp))
        root = str(project.root)
        attempts: list[Callable[[], object]] = [
            lambda: session.path_of(name),
            lambda: session.load(name),
            lambda: session.LockedSession(name),
            lambda: learnings_file.path_of(name),
            lambda: learnings_file.ensure(name),
            lambda: locks.read_lock(root, name),
            lambda: lifecycle.unlock(root, name),
            lambda: lifecycle.begin(root, name, "add-login"),
            lambda: lifecycle.begin(root, "s1", name),
            lambda: specs.open(root, name),
            lambda: specs.open(root, name, "openspec"),
        ]
        before = project.snapshot()
        for attempt in attempts:
            with pytest.raises(InvalidName):
                attempt()
        assert project.snapshot() == before

    def test_the_longest_names_work(self, project: Ralph) -> None:
        longest = "x" * 128
        project.openspec(change=longest)
        project.begin(longest, longest)
        ok(project, "learn", "x", session=longest)
        ok(project, "task", "done", "1.1", session=longest)
        assert ok(project, "session", "flush", session=longest)["learnings_written"] == 1

    @pytest.mark.parametrize("name", ["0", "A", "a.b", "a..b", "a-", "A_b-c.D9", "con", "x.json", "x.lock"])
    def test_odd_names_that_are_fine(self, project: Ralph, name: str) -> None:
        project.openspec(change=name)
        project.begin(name, name)
        assert project.session(name)["change_name"] == name
        ok(project, "session", "flush", session=name)

    @pytest.mark.parametrize(
        "ref",
        [
            "nothing",
            "os.path",
            "os.path:join",
            "json:no_such",
            "no.such.module",
            ".",
            "..",
            "...x",
            ".x",
            ":",
            "openspec.",
            "a b",
            "\udcff",
            "\udcff.x",
            "x" * 4000,
        ],
        ids=lambda ref: ascii(ref)[1:20],
    )
    def test_spec_format(self, project: Ralph, ref: str) -> None:
        assert refused(project, *INIT, "--spec", ref)["code"] == "INVALID_VALUE"

    @pytest.mark.parametrize(
        "ref", ["add-login.md", "../add-login.md", "/nowhere/add-login.md", "openspec/add-login.md"]
    )
    def test_spec_file_that_is_not_there(self, project: Ralph, ref: str) -> None:
        error = refused(project, *INIT, "--spec", ref)
        assert error["code"] == "CHANGE_NOT_FOUND"
        assert "--spec" in error["error"]
