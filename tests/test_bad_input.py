"""Bad input: one clear error, the right code, and not one byte changed anywhere."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, TASKS, Ralph, Result

from ralphtool import specs
from ralphtool.core import learnings_file, lifecycle, locks, session
from ralphtool.errors import InvalidName

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
INIT = ("session", "init", "--change", "add-login")
# The commands of a session that has begun. The first six look at the lock and at the spec, the others don't.
WITH_SPEC = (("session", "next-story"), ("context",), ("status",), ("task", "done", "1.1"))
WITH_LOCK = (*WITH_SPEC, ("session", "flush"))
RECORDING = (("learn", "x"), ("pattern", "n", "d"), ("observe", "finding", "t"))
RUNNING = (*WITH_LOCK, *RECORDING)


def ok(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that has to succeed."""
    return ralph.agent(*arguments, **more).json


def refused(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that has to fail with one clear error, and to change nothing: not a byte, not a folder."""
    before = ralph.snapshot()
    result = ralph.agent(*arguments, **more)
    assert ralph.snapshot() == before
    error = result.error
    assert result.stderr.count("\n") == 1
    assert result.stderr[:-1].isascii()
    assert result.stderr[:-1].isprintable()
    assert len(error["error"]) < 1500
    return error


def refused_for_people(ralph: Ralph, *arguments: str) -> str:
    """The same for the commands that people type: they get a line of text."""
    before = ralph.snapshot()
    result = ralph.run(*arguments)
    assert ralph.snapshot() == before
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


# --- names ------------------------------------------------------------------------------------------

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
    "add‐login",  # a hyphen that is not the one of the keyboard
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
        # One function checks it for all of them: for the rarer names a few are enough.
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
            lambda: session.Held(name),
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


# --- what is planted where our files go -------------------------------------------------------------


def plant(kind: str, path: Path, ralph: Ralph) -> None:
    """Puts something else where `path` is or would be; what was there is good, and lies elsewhere now."""
    original = ralph.home / "original"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        shutil.move(path, original)
    elif kind in ("link", "foreign"):
        original.write_text("somebody's own\n")
    if kind == "link":
        path.symlink_to(original)
    elif kind == "dangling link":
        path.symlink_to(ralph.home / "not there")
    elif kind == "link to a folder":
        path.symlink_to(ralph.home)
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("a file\n")
    else:
        assert kind == "foreign"
        shutil.move(original, path)
        os.chown(path, NOBODY, NOBODY)


def only_root(kind: str) -> Any:
    """A parameter that needs the right to give files away, where it needs that."""
    marks = [pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")] if kind == "foreign" else []
    return pytest.param(kind, marks=marks)


LINKS = ["link", "dangling link", "link to a folder", "link to itself"]
FOR_A_FILE = [only_root(kind) for kind in [*LINKS, "fifo", "folder", "foreign"]]
FOR_A_FOLDER = [only_root(kind) for kind in [*LINKS, "fifo", "file", "foreign"]]


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


class TestPlanted:
    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_a_session_is_to_be_made(self, project: Ralph, kind: str) -> None:
        private(private(project.tmp / "ralph") / "sessions")
        plant(kind, project.session_file(), project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.session_file()) in error["error"]
        assert "move it away" in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_session_is(self, project: Ralph, kind: str) -> None:
        project.begin()
        plant(kind, project.session_file(), project)
        for command in RUNNING:
            error = refused(project, *command)
            assert error["code"] == "UNSAFE_PATH"
            assert str(project.session_file()) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_lock_is_to_be_made(self, project: Ralph, kind: str) -> None:
        plant(kind, project.lock_file, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.lock_file) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_lock_is(self, project: Ralph, kind: str) -> None:
        project.begin()
        plant(kind, project.lock_file, project)
        for command in WITH_LOCK:
            error = refused(project, *command)
            assert error["code"] == "UNSAFE_PATH"
            assert str(project.lock_file) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_unlock_does_not_follow_what_is_where_the_lock_is(self, project: Ralph, kind: str) -> None:
        """The human may have it put aside, or be told to do so: what it leads to is left alone either way."""
        project.begin()
        ok(project, "learn", "kept")
        plant(kind, project.lock_file, project)
        before = project.snapshot()
        result = project.run("unlock", "add-login")
        after = project.snapshot()
        locks_of = str(project.lock_file)
        assert {path: content for path, content in after.items() if not path.startswith(locks_of)} == {
            path: content for path, content in before.items() if not path.startswith(locks_of)
        }
        if result.exit_code:
            assert "move it away" in result.stderr
            assert after == before
        else:
            assert not os.path.lexists(project.lock_file)
            assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_learnings_file_goes(self, project: Ralph, kind: str) -> None:
        path = private(project.tmp / "ralphtool") / "add-login-learnings.md"
        plant(kind, path, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(path) in error["error"]
        assert "move it away" in refused_for_people(project, "learnings", "add-login")

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions", "ralphtool"])
    @pytest.mark.parametrize("kind", FOR_A_FOLDER)
    def test_where_our_temporary_folders_go(self, project: Ralph, folder: str, kind: str) -> None:
        plant(kind, project.tmp / folder, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.tmp / folder) in error["error"]

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions"])
    @pytest.mark.parametrize("kind", FOR_A_FOLDER)
    def test_where_our_temporary_folders_are(self, project: Ralph, folder: str, kind: str) -> None:
        project.begin()
        plant(kind, project.tmp / folder, project)
        for command in RUNNING:
            assert refused(project, *command)["code"] == "UNSAFE_PATH"

    @pytest.mark.parametrize("folder", [".ralph", ".ralph/locks"])
    @pytest.mark.parametrize("kind", [*LINKS, "fifo", "file"])
    def test_where_our_folders_of_the_project_go(self, project: Ralph, folder: str, kind: str) -> None:
        plant(kind, project.root / folder, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.root / folder) in error["error"]

    @pytest.mark.parametrize("folder", [".ralph", ".ralph/locks"])
    def test_where_our_folders_of_the_project_are(self, project: Ralph, folder: str) -> None:
        """A link to what was there: no transition of the lock goes through it."""
        project.begin()
        ok(project, "learn", "x")
        plant("link", project.root / folder, project)
        assert refused(project, "session", "flush")["code"] == "UNSAFE_PATH"
        # The change is held as well: either may be told first.
        assert refused(project, *INIT, session="s2")["code"] in ("UNSAFE_PATH", "CHANGE_LOCKED")
        assert "move it away" in refused_for_people(project, "unlock", "add-login")

    def test_a_socket_where_the_session_is(self, project: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
        project.begin()
        project.session_file().unlink()
        monkeypatch.chdir(project.session_file().parent)  # a socket's path is short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("s1.json")
            assert refused(project, "learn", "x")["code"] == "UNSAFE_PATH"

    def test_a_link_where_we_write_aside_is_not_followed(self, project: Ralph) -> None:
        """The names under which new content is prepared can be guessed."""
        project.begin()
        victim = project.home / "victim"
        victim.write_text("precious")
        for folder, name in (
            (project.session_file().parent, "s1.json"),
            (project.tasks_file.parent, "tasks.md"),
            (project.tasks_file.parent, "design.md"),
        ):
            (folder / f".{name}.ralph-aside").symlink_to(victim)
        ok(project, "learn", "x")
        ok(project, "task", "done", "1.1")
        ok(project, "session", "flush")
        assert victim.read_text() == "precious"
        assert "[x] 1.1" in project.tasks_file.read_text()
        assert "- x\n" in project.design_file.read_text()

    def test_folders_of_ours_that_are_open_to_all_are_closed(self, project: Ralph) -> None:
        for folder in ("ralph", "ralph/sessions", "ralphtool"):
            (project.tmp / folder).mkdir()
            (project.tmp / folder).chmod(0o777)
        project.begin()
        for folder in ("ralph", "ralph/sessions", "ralphtool"):
            assert (project.tmp / folder).stat().st_mode & 0o777 == 0o700


# --- damaged session and lock files -----------------------------------------------------------------


def changed(**fields: Any) -> Callable[[bytes], bytes]:
    """The same file with other values."""
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


def without(field: str) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({name: value for name, value in json.loads(data).items() if name != field}).encode()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "blank": lambda data: b" \n",
    "truncated": lambda data: data[: len(data) // 2],
    "torn at the last character": lambda data: data.rstrip()[:-1],
    "torn at the first": lambda data: data[:1],
    "binary": lambda data: bytes(range(256)),
    "zeros": lambda data: bytes(len(data)),
    "not UTF-8": lambda data: data.replace(b"add-login", b"add-\xff"),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "twice": lambda data: data + data,
    "with a comment": lambda data: b"// mine\n" + data,
    "a list": lambda data: b"[]",
    "null": lambda data: b"null",
    "a text": lambda data: b'"session"',
    "a number": lambda data: b"1e999",
    "not a number": lambda data: b"NaN",
    "an empty object": lambda data: b"{}",
    "nested deeply": lambda data: b'{"a":' + b"[" * 200_000,
    "somebody else's": lambda data: b'{"name": "left-pad", "version": "1.0.0"}',
    "a file with a number too long": lambda data: b'{"iteration": ' + b"1" * 5000 + b"}",
}

SESSION_DAMAGE = DAMAGE | {
    "of another session": changed(session_id="s2"),
    "without an id": without("session_id"),
    "without a change": without("change_name"),
    "without a date": without("created_at"),
    "change is null": changed(change_name=None),
    "change is a path": changed(change_name="../../x"),
    "date is a number": changed(created_at=5),
    "story is a number": changed(current_story_id=5),
    "iteration is a text": changed(iteration="1"),
    "iteration is a bool": changed(iteration=True),
    "iteration is a fraction": changed(iteration=1.5),
    "learnings are an object": changed(learnings={}),
    "learnings are null": changed(learnings=None),
    "a learning is a text": changed(learnings=["x"]),
    "a learning has no text": changed(learnings=[{"task_id": None}]),
    "a learning's text is a list": changed(learnings=[{"description": ["x"]}]),
    "a pattern has no name": changed(patterns=[{"description": "x"}]),
    "an observation has no title": changed(observations=[{"type": "finding"}]),
    "completed tasks are numbers": changed(completed_tasks=[1.1]),
}

LOCK_DAMAGE = DAMAGE | {
    "of another change": changed(change_name="other"),
    "without a session": without("session_id"),
    "without a file": without("session_file"),
    "without a date": without("acquired_at"),
    "session and file differ": changed(session_id="s2"),
    "file is relative": changed(session_file="ralph/sessions/s1.json"),
    "file is elsewhere": changed(session_id="passwd", session_file="/etc/passwd.json"),
    "file is a number": changed(session_file=5),
    "owner is a text": changed(owner="me"),
    "owner has no pid": changed(owner={"start_time": "1", "machine": "x"}),
    "owner's pid is a text": changed(owner={"pid": "1", "start_time": "1", "machine": "x"}),
    "unlocked is a text": changed(unlocked="no"),
    "inherits is a text": changed(inherits="all"),
    "inherits from elsewhere": changed(inherits=[["/etc/shadow", "x"]]),
    "inherits from a number": changed(inherits=[5]),
    "format is a number": changed(spec=5),
}


def damage(path: Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


class TestDamagedSession:
    @pytest.mark.parametrize("how", SESSION_DAMAGE)
    def test_every_command_refuses_it(self, project: Ralph, how: str) -> None:
        project.begin()
        ok(project, "learn", "kept")
        damage(project.session_file(), SESSION_DAMAGE[how])
        # All of them read it by one function: a few are enough for the rarer kinds.
        for command in RUNNING if how in ("empty", "truncated", "binary", "somebody else's") else RUNNING[-4:]:
            error = refused(project, *command)
            assert error["code"] == "CORRUPT_STATE"
            assert str(project.session_file()) in error["error"]
            assert "move it away" in error["error"]

    @pytest.mark.parametrize("how", ["empty", "truncated", "binary", "somebody else's", "of another session"])
    def test_init_refuses_it_too(self, project: Ralph, how: str) -> None:
        project.begin()
        damage(project.session_file(), SESSION_DAMAGE[how])
        project.lock_file.unlink()
        assert refused(project, *INIT)["code"] == "CORRUPT_STATE"

    @pytest.mark.parametrize("how", ["empty", "truncated", "binary", "somebody else's", "of another session"])
    def test_its_lock_is_not_taken_for_abandoned(self, project: Ralph, how: str) -> None:
        """What can't be read may still be mended: only a human gives it up."""
        project.begin()
        damage(project.session_file(), SESSION_DAMAGE[how])
        assert refused(project, *INIT, session="s2")["code"] == "CHANGE_LOCKED"

    def test_the_way_out_that_the_message_names(self, project: Ralph) -> None:
        project.begin()
        damage(project.session_file(), SESSION_DAMAGE["truncated"])
        message = refused(project, "status")["error"]
        assert "`ralphtool unlock" in message
        project.session_file().rename(project.home / "damaged")
        assert project.run("unlock", "add-login").exit_code == 0
        assert ok(project, *INIT)["session_id"] == "s1"

    def test_unknown_keys_are_kept(self, project: Ralph) -> None:
        project.begin()
        damage(project.session_file(), changed(later={"version": 2}))
        ok(project, "learn", "x")
        assert project.session()["later"] == {"version": 2}


def test_whatever_else_we_keep_under_the_temporary_directory_may_be_damaged(project: Ralph) -> None:
    """Told, or put up with; a bug of ours it is not."""
    project.begin()
    others = [path for path in project.tmp.rglob("*") if path.is_file() and path != project.session_file()]
    assert others
    for how in ("empty", "binary", "zeros", "a text"):
        for path in others:
            damage(path, DAMAGE[how])
        for command in WITH_SPEC:
            result = project.agent(*command)
            assert result.exit_code == 0 or result.code == "CORRUPT_STATE"


class TestDamagedLock:
    @pytest.mark.parametrize("how", LOCK_DAMAGE)
    def test_every_command_that_reads_it_refuses_it(self, project: Ralph, how: str) -> None:
        project.begin()
        damage(project.lock_file, LOCK_DAMAGE[how])
        calls = [(INIT, "s2"), *[(command, "s1") for command in WITH_LOCK]]
        for command, caller in calls if how in ("empty", "truncated", "binary", "somebody else's") else calls[::5]:
            error = refused(project, *command, session=caller)
            assert error["code"] == "CORRUPT_STATE"
            assert str(project.lock_file) in error["error"]
            assert "ralphtool unlock add-login" in error["error"]

    @pytest.mark.parametrize("how", LOCK_DAMAGE)
    def test_unlock_puts_it_aside(self, project: Ralph, how: str) -> None:
        project.begin()
        ok(project, "learn", "kept")
        damage(project.lock_file, LOCK_DAMAGE[how])
        damaged = project.lock_file.read_bytes()
        result = project.run("unlock", "add-login")
        assert (result.exit_code, result.stderr) == (0, "")
        assert not project.lock_file.exists()
        [aside] = project.lock_file.parent.glob("add-login.lock*")
        assert str(aside) in result.stdout
        assert aside.read_bytes() == damaged
        assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("command", RECORDING, ids=" ".join)
    def test_recording_goes_on(self, project: Ralph, command: tuple[str, ...]) -> None:
        project.begin()
        damage(project.lock_file, LOCK_DAMAGE["binary"])
        assert ok(project, *command)["success"] is True

    @pytest.mark.parametrize("content", [b"precious", b"{}", b'{"session_id": "victim"}'])
    def test_a_lock_from_a_stranger_s_repository_removes_nothing(self, project: Ralph, content: bytes) -> None:
        """Locks lie in the project, so one can come with it: it may name files, but not have them removed."""
        project.begin()
        victim = project.home / "ralph/sessions/victim.json"
        victim.parent.mkdir(parents=True)
        victim.write_bytes(content)
        fields = changed(session_id="victim", session_file=str(victim), unlocked=True)
        damage(project.lock_file, fields)
        project.agent(*INIT, session="s2")
        project.agent("session", "flush", session="s2")
        assert victim.read_bytes() == content


# --- tasks.md and what lies beside it ---------------------------------------------------------------


def break_tasks(ralph: Ralph, how: str) -> None:
    texts = {
        "not UTF-8": TASKS.encode().replace(b"folder", b"f\xf6lder"),
        "UTF-16": TASKS.encode("utf-16"),
        "a task id twice": TASKS.replace("2.10 Link", "1.1 Link").encode(),
        "a task id twice in one story": TASKS.replace("1.2 Write", "1.1 Write").encode(),
        "depends on nothing": TASKS.replace("2. Build", "2. Build (depends on 7)").encode(),
        "waits for itself": TASKS.replace("2. Build", "2. Build (depends on 2)").encode(),
    }
    ralph.tasks_file.unlink()
    if how == "a folder":
        ralph.tasks_file.mkdir()
    elif how != "missing":
        ralph.tasks_file.write_bytes(texts[how])


BROKEN_TASKS = [
    "missing",
    "not UTF-8",
    "UTF-16",
    "a task id twice",
    "a task id twice in one story",
    "depends on nothing",
    "waits for itself",
]


class TestBrokenTasks:
    @pytest.mark.parametrize("how", BROKEN_TASKS)
    def test_spec_error(self, project: Ralph, how: str) -> None:
        break_tasks(project, how)
        error = refused(project, *INIT)
        assert error["code"] == "SPEC_ERROR"
        assert str(project.tasks_file) in error["error"]

    @pytest.mark.parametrize("how", BROKEN_TASKS)
    def test_spec_error_in_a_session(self, project: Ralph, how: str) -> None:
        project.begin()
        break_tasks(project, how)
        for command in WITH_SPEC:
            assert refused(project, *command)["code"] == "SPEC_ERROR"

    def test_a_folder_in_its_place(self, project: Ralph) -> None:
        break_tasks(project, "a folder")
        error = refused(project, *INIT)
        assert error["code"] in ("SPEC_ERROR", "IO_ERROR")
        assert str(project.tasks_file) in error["error"]

    @pytest.mark.parametrize("command", [("context",), ("session", "flush")], ids=" ".join)
    @pytest.mark.parametrize("file", ["tasks.md", "proposal.md", "design.md"])
    def test_a_fifo_does_not_keep_us_waiting(self, project: Ralph, file: str, command: tuple[str, ...]) -> None:
        """Nobody will ever write into it, and nobody watches at night."""
        project.begin()
        ok(project, "learn", "x")
        path = project.tasks_file.parent / file
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        done = subprocess.run(
            [COMMAND, "agent", *command],
            env={**project.env, "RALPH_SESSION": "s1"},
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=15,
        )
        result = Result(done)
        if command == ("context",) or file == "design.md":
            assert result.code in ("SPEC_ERROR", "IO_ERROR", "UNSAFE_PATH")
            assert str(path) in result.error["error"]
        else:
            assert result.json["learnings_written"] == 1, "it needs neither"

    def test_learnings_are_kept_and_flushed_all_the_same(self, project: Ralph) -> None:
        project.begin()
        break_tasks(project, "missing")
        ok(project, "learn", "x")
        assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("file", ["proposal.md", "design.md", "specs/auth/spec.md"])
    def test_not_utf_8_beside_it(self, project: Ralph, file: str) -> None:
        project.begin()
        path = project.write(f"openspec/changes/add-login/{file}", b"# caf\xe9\n")
        error = refused(project, "context")
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]
        assert ok(project, "status")["story"]["id"] == "1"

    def test_the_last_task_is_not_ticked_when_its_scenarios_can_not_be_read(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        path = project.write("openspec/changes/add-login/specs/auth/spec.md", b"\xff")
        error = refused(project, "task", "done", "1.2")
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]

    def test_design_that_can_not_be_read_keeps_the_learnings(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        path = project.write("openspec/changes/add-login/design.md", b"\xff")
        error = refused(project, "session", "flush")
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]
        path.write_text("# Design\n")
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert path.read_text().endswith("- x\n")

    def test_design_that_is_a_folder_keeps_the_learnings(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        project.design_file.mkdir()
        error = refused(project, "session", "flush")
        assert error["code"] in ("SPEC_ERROR", "IO_ERROR")
        assert str(project.design_file) in error["error"]
        project.design_file.rmdir()
        assert ok(project, "session", "flush")["learnings_written"] == 1


class TestUnusualTasksThatWork:
    def test_empty(self, ralph: Ralph) -> None:
        ralph.openspec(b"")
        assert ok(ralph, *INIT)["stories"] == []
        assert ok(ralph, "session", "next-story") == {"complete": True}
        assert ok(ralph, "session", "flush")["success"] is True

    def test_twenty_megabytes(self, ralph: Ralph) -> None:
        stories, tasks, text = 50, 10, "word " * 8000
        lines = [
            f"## {story}. Story {story}\n\n"
            + "".join(f"- [ ] {story}.{task} {text}\n" for task in range(1, tasks + 1))
            + "\n"
            for story in range(1, stories + 1)
        ]
        data = "".join(lines).encode()
        assert len(data) > 20_000_000
        ralph.openspec(data).begin()
        assert ok(ralph, "task", "done", "1.1")["remaining"] == [f"1.{n}" for n in range(2, 11)]
        assert ok(ralph, "status")["change"] == {"stories_done": 0, "stories_total": stories}
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.1 ", b"[x] 1.1 ", 1)

    def test_twenty_megabytes_of_many_tasks(self, ralph: Ralph) -> None:
        count, text = 100_000, "do a small thing here, " * 8
        data = ("## 1. One\n\n" + "".join(f"- [ ] 1.{n} {text}\n" for n in range(1, count + 1))).encode()
        assert len(data) > 19_000_000
        ralph.openspec(data)
        assert ok(ralph, *INIT)["stories"] == [{"id": "1", "title": "One", "tasks_total": count, "tasks_done": 0}]
        ok(ralph, "task", "done", "1.5499", RALPH_STORY="1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.5499 ", b"[x] 1.5499 ", 1)

    def test_crlf(self, ralph: Ralph) -> None:
        data = TASKS.replace("\n", "\r\n").encode()
        ralph.openspec(data).begin()
        assert ok(ralph, "context")["tasks"][1] == {"id": "1.2", "description": "Write the file", "done": False}
        ok(ralph, "task", "done", "1.2")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.2", b"[x] 1.2")

    def test_byte_order_mark(self, ralph: Ralph) -> None:
        data = "\ufeff## 1. One\n- [ ] 1.1 a\n".encode()
        ralph.openspec(data).begin()
        assert ok(ralph, "status")["story"] == {"id": "1", "tasks_done": 0, "tasks_total": 1}
        ok(ralph, "task", "done", "1.1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ]", b"[x]")

    @pytest.mark.parametrize("fence", ["```", "~~~", "`````", "```md", "   ```"])
    def test_boxes_in_fences_are_no_tasks(self, ralph: Ralph, fence: str) -> None:
        end = fence.replace("md", "")
        data = f"## 1. One\n{fence}\n- [ ] 1.1 example\n## 9. No story\n{end}\n- [ ] 1.1 real\n".encode()
        ralph.openspec(data)
        assert ok(ralph, *INIT)["stories"] == [{"id": "1", "title": "One", "tasks_total": 1, "tasks_done": 0}]
        ok(ralph, "task", "done", "1.1", RALPH_STORY="1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.1 real", b"[x] 1.1 real")

    def test_control_characters_and_no_line_feed_at_the_end(self, ralph: Ralph) -> None:
        data = b"## 1. One\x1b[31m\n- [ ] 1.1 a\x00b\x07\n- [ ] 1.2 \xe2\x80\xa8c"
        ralph.openspec(data).begin()
        result = ralph.agent("context")
        assert [task["id"] for task in result.json["tasks"]] == ["1.1", "1.2"]
        assert result.stdout[:-1].isprintable()
        ok(ralph, "task", "done", "1.2")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.2", b"[x] 1.2")


# --- prd.json ---------------------------------------------------------------------------------------

STORY: dict[str, Any] = {"id": "US-1", "title": "Cart", "acceptanceCriteria": ["can add"], "passes": False}


def prd(*stories: object, **more: Any) -> bytes:
    return json.dumps({"branchName": "ralph/shop", **more, "userStories": list(stories)}, indent=2).encode()


INIT_SHOP = ("session", "init", "--change", "shop")

NOT_JSON = {
    "empty": b"",
    "line comment": prd(STORY).replace(b"{", b"{ // ours\n", 1),
    "block comment": b"/* ours */ " + prd(STORY),
    "hash comment": b"# ours\n" + prd(STORY),
    "trailing comma in an object": prd(STORY).replace(b"false\n", b"false,\n"),
    "trailing comma in a list": prd(STORY).replace(b"    }\n", b"    },\n"),
    "NaN": prd({**STORY, "priority": float("nan")}),
    "Infinity": prd({**STORY, "priority": float("inf")}),
    "single quotes": b"{'userStories': []}",
    "unquoted key": b"{userStories: []}",
    "truncated": prd(STORY)[:-20],
    "twice": prd(STORY) * 2,
    "binary": bytes(range(256)),
    "not UTF-8": prd(STORY).replace(b"Cart", b"C\xe4rt"),
    "UTF-16": prd(STORY).decode().encode("utf-16"),
    "raw line feed in a text": prd(STORY).replace(b"Cart", b"Ca\nrt"),
    "deep nesting": b'{"userStories": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep nesting of objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}

WRONG_TYPES: dict[str, tuple[bytes, str]] = {
    "a list at the top": (b"[]", "object"),
    "a text at the top": (b'"shop"', "object"),
    "null at the top": (b"null", "object"),
    "no stories": (b'{"branchName": "shop"}', "userStories"),
    "stories are null": (b'{"branchName": "shop", "userStories": null}', "userStories"),
    "stories are an object": (b'{"branchName": "shop", "userStories": {}}', "userStories"),
    "stories are a text": (b'{"branchName": "shop", "userStories": "x"}', "userStories"),
    "a story is a text": (prd("Cart"), "userStories[0]"),
    "a story is null": (prd(STORY, None), "userStories[1]"),
    "id is a list": (prd({**STORY, "id": ["US-1"]}), "userStories[0].id"),
    "id is a fraction": (prd({**STORY, "id": 1.5}), "userStories[0].id"),
    "id is a bool": (prd({**STORY, "id": True}), "userStories[0].id"),
    "title is a number": (prd({**STORY, "title": 5}), "userStories[0].title"),
    "description is a list": (prd({**STORY, "description": []}), "userStories[0].description"),
    "criteria are a text": (prd({**STORY, "acceptanceCriteria": "x"}), "userStories[0].acceptanceCriteria"),
    "a criterion is a number": (prd({**STORY, "acceptanceCriteria": ["x", 5]}), "acceptanceCriteria[1]"),
    "a criterion is null": (prd({**STORY, "acceptanceCriteria": [None]}), "acceptanceCriteria[0]"),
    "priority is a text": (prd({**STORY, "priority": "high"}), "userStories[0].priority"),
    "priority is a bool": (prd({**STORY, "priority": True}), "userStories[0].priority"),
    "passes is a text": (prd({**STORY, "passes": "yes"}), "userStories[0].passes"),
    "passes is a number": (prd({**STORY, "passes": 1}), "userStories[0].passes"),
    "optional is a text": (prd({**STORY, "optional": "no"}), "userStories[0].optional"),
    "labels are a text": (prd({**STORY, "labels": "optional"}), "userStories[0].labels"),
    "a label is an object": (prd({**STORY, "labels": [{}]}), "labels[0]"),
    "dependsOn is a text": (prd({**STORY, "dependsOn": "US-2"}), "userStories[0].dependsOn"),
    "dependsOn holds an object": (prd({**STORY, "dependsOn": [{}]}), "dependsOn[0]"),
    "an id twice": (prd(STORY, STORY), "US-1"),
    "depends on nothing": (prd({**STORY, "dependsOn": ["US-9"]}), "US-9"),
    "waits for itself": (prd({**STORY, "dependsOn": ["US-1"]}), "US-1"),
}


class TestBrokenPrd:
    @pytest.mark.parametrize("how", NOT_JSON)
    def test_not_json(self, ralph: Ralph, how: str) -> None:
        path = ralph.write("prd.json", NOT_JSON[how])
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]

    @pytest.mark.parametrize("how", NOT_JSON)
    def test_not_json_any_more(self, ralph: Ralph, how: str) -> None:
        ralph.write("prd.json", prd(STORY))
        ralph.begin("shop")
        ralph.write("prd.json", NOT_JSON[how])
        for command in (("status",), ("task", "done", "US-1.1")):
            assert refused(ralph, *command)["code"] == "SPEC_ERROR"

    @pytest.mark.parametrize("how", WRONG_TYPES)
    def test_wrong_types(self, ralph: Ralph, how: str) -> None:
        content, named = WRONG_TYPES[how]
        path = ralph.write("prd.json", content)
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]
        assert named in error["error"]

    def test_a_folder_in_its_place(self, ralph: Ralph) -> None:
        (ralph.root / "prd.json").mkdir()
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] in ("CHANGE_NOT_FOUND", "SPEC_ERROR", "IO_ERROR")
        assert str(ralph.root) in error["error"]

    @pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
    def test_a_broken_one_does_not_keep_other_changes_from_working(self, project: Ralph, content: bytes) -> None:
        project.write("prd.json", content)
        assert ok(project, *INIT)["change_name"] == "add-login"


class TestUnusualPrdThatWorks:
    def finish(self, ralph: Ralph, content: bytes) -> bytes:
        """Does the one task of the one story; what the file is then."""
        path = ralph.write("prd.json", content)
        ralph.begin("shop")
        [task] = ok(ralph, "context")["tasks"]
        assert ok(ralph, "task", "done", task["id"])["story_complete"] is True
        return path.read_bytes()

    def test_unknown_keys_and_spacing_are_kept(self, ralph: Ralph) -> None:
        content = (
            b'{"zeta":1.50 , "branchName"\t:"ralph/shop",\r\n"userStories":[ {"passes":false,"extra":{"passes":false},'
            b'"n":1E+2,"id":"US-1","title":"Caf\\u00e9 \xe2\x82\xac \\/"} ],"passes":false}\r\n\r\n'
        )
        assert self.finish(ralph, content) == content.replace(b'{"passes":false,"extra"', b'{"passes":true,"extra"')

    def test_byte_order_mark(self, ralph: Ralph) -> None:
        content = b"\xef\xbb\xbf" + prd(STORY)
        assert self.finish(ralph, content) == content.replace(b"false", b"true")

    def test_missing_passes_is_added(self, ralph: Ralph) -> None:
        after = self.finish(ralph, prd({"id": "US-1", "title": "Cart"}))
        assert json.loads(after)["userStories"] == [{"id": "US-1", "title": "Cart", "passes": True}]

    @pytest.mark.parametrize("priority", [None, 0, -1, 2.5, 10**400, 1e308])
    def test_any_number_is_a_priority(self, ralph: Ralph, priority: object) -> None:
        after = self.finish(ralph, prd({**STORY, "priority": priority}))
        assert json.loads(after)["userStories"][0] == {**STORY, "priority": priority, "passes": True}

    def test_nulls_count_as_absent(self, ralph: Ralph) -> None:
        nulls = dict.fromkeys(["description", "acceptanceCriteria", "passes", "labels", "dependsOn", "optional"])
        after = self.finish(ralph, prd({"id": "US-1", "title": "Cart", **nulls}))
        assert json.loads(after)["userStories"][0]["passes"] is True

    @pytest.mark.parametrize(
        "id",
        ["a b", "a #", "../x", "1\n## Forged", "\x1b[31m", "\ud800", "é", "x" * 5000],
        ids=lambda text: ascii(text)[:20],
    )
    def test_any_text_is_an_id(self, ralph: Ralph, id: str) -> None:
        """It is no name of a file; what comes of it is harmless."""
        path = ralph.write("prd.json", prd({**STORY, "id": id}))
        ralph.begin("shop")
        assert ok(ralph, "status")["story"]["id"] == id
        ok(ralph, "learn", "x")
        assert flush_twice(ralph, ralph.root / "shop-learnings.md")["learnings_written"] == 1
        check_harmless(ralph.root / "shop-learnings.md", ["## Learnings", "### "])
        assert sorted(ralph.root.iterdir()) == [ralph.root / ".ralph", path, ralph.root / "shop-learnings.md"]


# --- what agents say --------------------------------------------------------------------------------

HOSTILE = {
    "heading": "## Decisions\n- forged",
    "heading in the second line": "fact\n## Decisions\n### 2020-01-01 - Story 9\n- forged",
    "indented heading": "fact\n   # Top\n\t## Tab\n    ## Four",
    "underlined heading": "Title\n=====\nSub\n---\n",
    "heading after blank lines": "fact\n\n\n## Decisions\n\n\n- forged",
    "heading with CR": "fact\r## Decisions\r\n# Top\r",
    "heading with other line ends": "fact\x0b## a\x0c## b\x1c## c\x1d## d\x1e## e\x85## f\u2028## g\u2029## h",
    "open fence": "fact\n```\nnever closed",
    "fence at once": "```\nnever closed",
    "tilde fence": "~~~~\nnever closed\n~~~",
    "open comment": "<!-- never closed",
    "HTML": "<h2>Decisions</h2><script>alert(1)</script>",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f" + "".join(map(chr, range(128, 160))) + "end",
    "ESC sequences": "\x1b[2J\x1b]0;title\x07\x1b[31mred\x9b0m",
    "quotes": """'single' "double" `back` \\ $(id) ${HOME} %s {0}""",
    "boxes": "[ ] 1.1 not a task\n- [ ] 1.2 nor this",
    "list items": "a\n- b\n* c\n1. d",
    "rule": "---\n***\n",
    "bidi and zero width": "a\u202eb\u200bc\ufeffd",
}


def check_harmless(path: Path, headings: list[str]) -> None:
    """No heading but ours, and no control character raw."""
    text = path.read_bytes().decode()
    found = [line for line in text.split("\n") if line.lstrip(" ").startswith("#") and not line.startswith("    ")]
    assert len(found) == len(headings), found
    assert all(line.startswith(head) for line, head in zip(found, headings, strict=True)), found
    raw = {character for character in text if unicodedata.category(character) == "Cc"}
    assert raw <= {"\n", "\t"}


def flush_twice(ralph: Ralph, notes: Path | None = None) -> dict[str, Any]:
    """Flushes, and again as if the first had been killed before its end: nothing may come twice."""
    notes = notes or ralph.design_file
    kept = ralph.session_file().read_bytes()
    printed = ok(ralph, "session", "flush")
    written = notes.read_bytes().decode()
    ralph.session_file().write_bytes(kept)
    assert ok(ralph, "session", "flush") == {"success": True, "learnings_written": 0, "patterns_written": 0}
    assert notes.read_bytes().decode() == written
    return printed


class TestHostileText:
    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_a_learning(self, project: Ralph, text: str) -> None:
        project.write("openspec/changes/add-login/design.md", "# Design\n\n## Learnings\n\n## After\n\nEnd.\n")
        project.begin()
        result = project.agent("learn", text)
        assert result.json["learning"]["description"] == text
        assert result.stdout[:-1].isprintable()
        ok(project, "learn", "the next one")
        assert flush_twice(project)["learnings_written"] == 2
        check_harmless(project.design_file, ["# Design", "## Learnings", "### ", "## After"])
        lines = project.design_file.read_text().split("\n")
        assert "- the next one" in lines
        assert lines[-4:] == ["## After", "", "End.", ""]

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_a_pattern(self, project: Ralph, text: str) -> None:
        project.begin()
        ok(project, "pattern", "Name", text)
        ok(project, "pattern", "Other", "the next one")
        assert flush_twice(project)["patterns_written"] == 2
        check_harmless(project.design_file, ["## Patterns", "### Name", "### Other"])

    @pytest.mark.parametrize("name", ["## a", "C #", "#", "a ##", "a   b", "`code`", "[ ] box", "- item", "<!--", "*"])
    def test_in_a_pattern_s_name(self, project: Ralph, name: str) -> None:
        project.begin()
        ok(project, "pattern", name, "description")
        assert flush_twice(project)["patterns_written"] == 1
        check_harmless(project.design_file, ["## Patterns", "### "])

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_an_observation(self, project: Ralph, text: str) -> None:
        project.begin()
        ok(project, "observe", "finding", "## Title", "--description", text, "--file", text)
        ok(project, "learn", "the next one")
        flush_twice(project)
        text = project.design_file.read_text()
        levels = [line.split()[0] for line in text.split("\n") if line.startswith("#")]
        check_harmless(project.design_file, levels)
        assert levels in (["##", "###"], ["##", "###", "##", "###"])

    def test_a_megabyte_of_headings_on_stdin(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "-", stdin=b"## Forged\n\x1b[31m```\n" * 55_000)
        assert flush_twice(project)["learnings_written"] == 1
        assert project.design_file.stat().st_size > 1_000_000
        check_harmless(project.design_file, ["## Learnings", "### "])

    @pytest.mark.parametrize("story", ["1\n## Forged", "\x1b[31m", "## x", "../x", "x" * 4000, "\udcff"], ids=ascii)
    def test_in_the_story_s_variable(self, project: Ralph, story: str) -> None:
        """Refused, or taken and harmless."""
        project.begin()
        before = project.snapshot()
        result = project.agent("learn", "fact", RALPH_STORY=story)
        if result.exit_code:
            assert result.code == "INVALID_VALUE"
            assert project.snapshot() == before
        else:
            flush_twice(project)
            check_harmless(project.design_file, ["## Learnings", "### "])

    @pytest.mark.parametrize("story", ["1\n2", "\x1b[31m", "x" * 4000, "\udcff", "\u0661"], ids=ascii)
    def test_in_the_story_s_variable_where_a_story_is_needed(self, project: Ralph, story: str) -> None:
        project.begin()
        for command in (("context",), ("status",), ("task", "done", "1.1")):
            assert refused(project, *command, RALPH_STORY=story)["code"] in ("INVALID_VALUE", "STORY_NOT_FOUND")

    @pytest.mark.parametrize(
        "words",
        [
            ["learn", "caf\udce9"],
            ["learn", "\udcff" * 4000],
            ["learn", "x", "--task", "\udcff"],
            ["learn", "x", "--type", "\udcff"],
            ["pattern", "\udcff", "d"],
            ["pattern", "n", "\udcff"],
            ["observe", "\udcff", "t"],
            ["observe", "finding", "\udcff"],
            ["observe", "finding", "t", "--description", "\udcff"],
            ["observe", "finding", "t", "--file", "\udcff"],
            ["observe", "finding", "t", "--category", "\udcff"],
            ["learn", "x", "--task", "a\nb"],
            ["learn", "x", "--task", "\x1b[31m"],
            ["learn", "x", "--task", "x" * 4000],
            ["pattern", "a\nb", "d"],
            ["pattern", "\x1b[31m", "d"],
            ["pattern", "x" * 4000, "d"],
            ["observe", "finding", "a\nb"],
            ["observe", "finding", "\x7f"],
            ["observe", "x" * 4000, "t"],
        ],
        ids=lambda words: ascii(words)[:50],
    )
    def test_what_is_no_text_or_no_label(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refused(project, *words)["code"] == "INVALID_VALUE"

    @pytest.mark.parametrize(
        "words", [["task", "done", "\udcff"], ["task", "done", "1.1\n"], ["task", "done", "\x1b[31m"]], ids=ascii
    )
    def test_in_a_task_s_id(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refused(project, *words)["code"] == "TASK_NOT_FOUND"

    @pytest.mark.parametrize("words", [["\udcff"], ["learn", "x", "--\udcff", "y"], ["\x1b[31m", "\x07"]], ids=ascii)
    def test_in_a_wrong_command_line(self, project: Ralph, words: list[str]) -> None:
        assert refused(project, *words)["code"] == "USAGE"

    @pytest.mark.parametrize("data", [b"caf\xe9", b"\xff\xfe\x00x", b"\xed\xa0\x80", b"", b"\n\r\n", b" \t "])
    def test_on_stdin(self, project: Ralph, data: bytes) -> None:
        project.begin()
        for words in (("learn", "-"), ("pattern", "n", "-")):
            assert refused(project, *words, stdin=data)["code"] == "INVALID_VALUE"

    def test_nul_on_stdin(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "learn", "-", stdin=b"a\0b")["learning"]["description"] == "a\0b"
        flush_twice(project)
        check_harmless(project.design_file, ["## Learnings", "### "])

    def test_too_much_on_stdin(self, project: Ralph) -> None:
        project.begin()
        error = refused(project, "learn", "-", stdin=b"x" * (64 << 20))
        assert error["code"] == "INVALID_VALUE"
        assert "too long" in error["error"]


# --- folders and disks ------------------------------------------------------------------------------


def bound_by_permissions() -> list[str]:
    """Before a command: what makes permissions count, also for root."""
    if not IS_ROOT:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    return ["setpriv", "--bounding-set=-all"]


def run_bound(ralph: Ralph, *arguments: str, caller: str = "s1") -> Result:
    done = subprocess.run(
        [*bound_by_permissions(), COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": caller},
        cwd=ralph.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return Result(done)


def files_of(ralph: Ralph) -> dict[str, bytes | str]:
    return {path: content for path, content in ralph.snapshot().items() if content is not None}


def io_error(ralph: Ralph, result: Callable[[], Result]) -> str:
    """An error of the system's, after which every file is as it was."""
    before = files_of(ralph)
    ended = result()
    assert ended.code == "IO_ERROR"
    assert files_of(ralph) == before
    return str(ended.error["error"])


class TestUnwritableFolder:
    def test_of_the_change_when_a_task_is_ticked(self, project: Ralph) -> None:
        project.begin()
        project.tasks_file.parent.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, "task", "done", "1.1"))
        assert str(project.tasks_file.parent) in message
        assert "permissions" in message
        project.tasks_file.parent.chmod(0o700)
        assert ok(project, "task", "done", "1.1")["remaining"] == ["1.2"]

    @pytest.mark.parametrize("has_design", [True, False])
    def test_of_the_change_at_the_flush(self, project: Ralph, has_design: bool) -> None:
        if has_design:
            project.write("openspec/changes/add-login/design.md", "# Design\n")
        project.begin()
        ok(project, "learn", "kept")
        project.tasks_file.parent.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, "session", "flush"))
        assert str(project.tasks_file.parent) in message
        project.tasks_file.parent.chmod(0o700)
        assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("command", [*RECORDING, ("session", "next-story")], ids=" ".join)
    def test_of_the_sessions_when_something_is_recorded(self, project: Ralph, command: tuple[str, ...]) -> None:
        project.begin()
        folder = project.session_file().parent
        folder.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *command))
        assert str(folder) in message
        folder.chmod(0o700)
        assert ok(project, *command)

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions", "ralphtool"])
    def test_under_the_temporary_directory_at_init(self, project: Ralph, folder: str) -> None:
        (project.tmp / folder).mkdir(parents=True)
        (project.tmp / "ralph").mkdir(exist_ok=True)
        (project.tmp / "ralph").chmod(0o700)
        (project.tmp / folder).chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *INIT))
        assert str(project.tmp / folder) in message
        (project.tmp / folder).chmod(0o700)
        assert ok(project, *INIT, session="s2")["session_id"] == "s2", "the failed one holds nothing"

    @pytest.mark.parametrize("folder", ["", ".ralph", ".ralph/locks"])
    def test_of_the_project_at_init(self, project: Ralph, folder: str) -> None:
        path = project.root / folder
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *INIT))
        assert str(path) in message
        path.chmod(0o700)
        assert ok(project, *INIT, session="s2")["session_id"] == "s2"

    def test_of_the_locks_at_the_flush(self, project: Ralph) -> None:
        """Two places are written here: doing it again finishes it."""
        project.begin()
        ok(project, "learn", "once")
        project.lock_file.parent.chmod(0o500)
        assert run_bound(project, "session", "flush").code == "IO_ERROR"
        assert project.session_file().exists()
        project.lock_file.parent.chmod(0o700)
        ok(project, "session", "flush")
        assert project.design_file.read_text().count("once") == 1
        assert not project.lock_file.exists()
        assert not project.session_file().exists()

    @pytest.mark.parametrize("file", ["session", "lock", "tasks"])
    def test_a_file_that_may_not_be_read(self, project: Ralph, file: str) -> None:
        project.begin()
        path = {"session": project.session_file(), "lock": project.lock_file, "tasks": project.tasks_file}[file]
        path.chmod(0)
        before = project.snapshot()
        result = run_bound(project, "status")
        assert result.code == "IO_ERROR" or (file, result.code) == ("tasks", "SPEC_ERROR")
        assert str(path) in result.error["error"]
        assert project.snapshot() == before


def run_without_room(ralph: Ralph, room: int, *arguments: str) -> Result:
    """Files may not grow beyond `room` bytes: writing fails as on a full disk, after a part of it."""
    done = subprocess.run(
        [COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": "s1"},
        cwd=ralph.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    return Result(done)


@pytest.mark.parametrize("room", [0, 20])
class TestNoRoom:
    @pytest.mark.parametrize("command", [*RECORDING, ("task", "done", "1.1"), ("session", "next-story")], ids=" ".join)
    def test_in_a_session(self, project: Ralph, room: int, command: tuple[str, ...]) -> None:
        project.begin()
        io_error(project, lambda: run_without_room(project, room, *command))
        assert ok(project, *command)

    def test_at_init(self, project: Ralph, room: int) -> None:
        io_error(project, lambda: run_without_room(project, room, *INIT))
        assert ok(project, *INIT, session="s2")["session_id"] == "s2"

    @pytest.mark.parametrize("has_design", [True, False])
    def test_at_the_flush(self, project: Ralph, room: int, has_design: bool) -> None:
        if has_design:
            project.write("openspec/changes/add-login/design.md", "# Design\n")
        project.begin()
        ok(project, "learn", "kept")
        message = io_error(project, lambda: run_without_room(project, room, "session", "flush"))
        assert str(project.design_file) in message
        assert ok(project, "session", "flush")["learnings_written"] == 1


class TestFileWhereAFolderIsExpected:
    @pytest.mark.parametrize("path", ["openspec", "openspec/changes", "openspec/changes/add-login", "specs"])
    def test_of_a_spec(self, ralph: Ralph, path: str) -> None:
        ralph.write(path, "a file\n")
        error = refused(ralph, *INIT)
        assert error["code"] == "CHANGE_NOT_FOUND"
        assert "ralphtool list" in error["error"]

    def test_the_scenarios_folder(self, project: Ralph) -> None:
        shutil.rmtree(project.tasks_file.parent / "specs")
        project.write("openspec/changes/add-login/specs", "a file\n")
        project.begin()
        assert ok(project, "context")["scenarios"] == []

    @pytest.mark.parametrize("name", ["fix_plan.md", "PLAN.md"])
    def test_a_folder_named_like_a_checklist_is_none(self, project: Ralph, name: str) -> None:
        (project.root / name).mkdir()
        assert ok(project, *INIT)["change_name"] == "add-login"

    def test_a_folder_named_like_a_prd_does_not_keep_other_changes_from_working(self, project: Ralph) -> None:
        (project.root / "prd.json").mkdir()
        assert ok(project, *INIT)["change_name"] == "add-login"

    @pytest.mark.parametrize("name", ["package.json", "Cargo.toml", "Makefile", "pyproject.toml", "go.mod"])
    def test_a_folder_named_like_a_build_file(self, project: Ralph, name: str) -> None:
        (project.root / name).mkdir()
        project.begin()
        assert ok(project, "context")["story"]["id"] == "1"


# --- the configuration ------------------------------------------------------------------------------

NOT_TOML = {
    "prose": b"please run the tests\n",
    "open table": b"[run\n",
    "a key twice": b"[run]\na = 1\na = 2\n",
    "a table twice": b"[run]\n[run]\n",
    "open text": b'[run]\nagent = "claude\n',
    "JSON": b'{"run": {}}',
    "binary": bytes(range(256)),
    "not UTF-8": b'[run]\nagent = "caf\xe9"\n',
    "UTF-16": "[run]\n".encode("utf-16"),
    "nested deeply": b"a = " + b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "a number too long": b"a = " + b"1" * 5000 + b"\n",
    "control character": b'[run]\nagent = "a\x00b"\n',
}

WRONG_SETTINGS = {
    "verify is a number": (b"verify = 3\n", "verify"),
    "verify is a list": (b"verify = []\n", "verify"),
    "verify is a list of tables": (b'[[verify]]\nchecks = ["a"]\n', "verify"),
    "checks are a text": (b'[verify]\nchecks = "make lint"\n', "verify.checks"),
    "checks are a number": (b"[verify]\nchecks = 3\n", "verify.checks"),
    "checks hold a number": (b'[verify]\nchecks = ["a", 3]\n', "verify.checks"),
    "checks hold a list": (b'[verify]\nchecks = [["a"]]\n', "verify.checks"),
    "tests are a text": (b'[verify]\ntests = "make test"\n', "verify.tests"),
    "tests are a table": (b"[verify.tests]\nall = true\n", "verify.tests"),
    "tests are true": (b"verify.tests = true\n", "verify.tests"),
}


class TestConfiguration:
    @pytest.mark.parametrize("how", NOT_TOML)
    def test_not_toml(self, project: Ralph, how: str) -> None:
        path = project.write(".ralph/config.toml", NOT_TOML[how])
        error = refused(project, *INIT)
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]

    @pytest.mark.parametrize(
        "lines",
        [
            b'checks = ["a" "b"]',
            b'checks = [, "a"]',
            b'checks = ["a"]\nchecks = ["b"]',
            b'checks = ["a"',
            b"checks = [a]",
            b"checks",
            b"checks = ",
            b'checks = ["a"] ["b"]',
            b'checks = ["a\x00b"]',
            b'checks = ["a"]\nplease run the tests',
            b'checks = ["a"]\ntimeout = "20m',
            b'checks = ["a"]\n[verify]\ntests = ["b"]',
        ],
    )
    def test_not_toml_where_the_commands_are(self, project: Ralph, lines: bytes) -> None:
        """What is read quickly is read no more leniently: else two commands would tell two things."""
        project.begin()
        path = project.write(".ralph/config.toml", b"[verify]\n" + lines + b"\n")
        error = refused(project, "context")
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]

    @pytest.mark.parametrize("how", WRONG_SETTINGS)
    def test_wrong_types(self, project: Ralph, how: str) -> None:
        content, named = WRONG_SETTINGS[how]
        project.begin()
        path = project.write(".ralph/config.toml", content)
        error = refused(project, "context")
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]
        assert named in error["error"]

    @pytest.mark.parametrize("content", [b"run = 3\n", b"[run]\nspec = 3\n", b'[run]\nspec = ["a.md"]\n'])
    def test_wrong_types_of_what_names_the_spec(self, project: Ralph, content: bytes) -> None:
        path = project.write(".ralph/config.toml", content)
        error = refused(project, *INIT)
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]
        assert "run" in error["error"].removeprefix(str(path))

    def test_a_folder_in_its_place(self, project: Ralph) -> None:
        path = project.root / ".ralph/config.toml"
        path.mkdir(parents=True)
        error = refused(project, *INIT)
        assert error["code"] in ("INVALID_VALUE", "IO_ERROR")
        assert str(path) in error["error"]

    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"# nothing\n", b"[verify]\n", b"\r\n"])
    def test_empty_ones_work(self, project: Ralph, content: bytes) -> None:
        project.write(".ralph/config.toml", content)
        project.begin()
        assert ok(project, "context")["verify"] == {"checks": [], "tests": []}
