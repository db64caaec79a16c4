"""Bad input: damaged session and lock files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.bad_input.calls import INIT, RECORDING, RUNNING, WITH_LOCK, WITH_SPEC, ok, refused
from project import Ralph


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
        # All commands read it with the same function: a few are enough for the rarer kinds.
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
        """An unreadable session may still be repaired: only a person can give it up."""
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
    """Reported or tolerated, but never a crash."""
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
        """Locks are in the project, so one can come with it: it may name files, but must not cause their removal."""
        project.begin()
        victim = project.home / "ralph/sessions/victim.json"
        victim.parent.mkdir(parents=True)
        victim.write_bytes(content)
        fields = changed(session_id="victim", session_file=str(victim), unlocked=True)
        damage(project.lock_file, fields)
        project.agent(*INIT, session="s2")
        project.agent("session", "flush", session="s2")
        assert victim.read_bytes() == content
