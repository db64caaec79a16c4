"""Properties of `ralphtool agent`: any order of commands, by any sessions."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from properties import OURS, examples

from ralphtool.cli import agent
from ralphtool.core import lifecycle

TASKS = """\
# Tasks

## 1. One
- [ ] 1.1 a
- [ ] 1.10 b

## 2. Two (depends on 1)
- [ ] 2.1 c

## 3. Three (optional)
- [ ] 3.1 d
"""
CHANGES = ("alpha", "beta")
SESSIONS = ("s1", "s2", "s3")
STORY_OF = {"1.1": "1", "1.10": "1", "2.1": "2", "3.1": "3"}


class Buffer:
    """A session in the model."""

    def __init__(self, change: str) -> None:
        self.change = change
        self.story: str | None = None
        self.iteration = 0
        self.notes: list[str] = []
        self.completed: list[str] = []


class Interleavings(RuleBasedStateMachine):
    """Sessions of two changes call the agent's commands in any order; a small model says what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.top = tempfile.TemporaryDirectory()
        root = Path(self.top.name)
        self.root, self.tmp = root / "project", root / "tmp"
        self.tmp.mkdir()
        for change in CHANGES:
            (self.root / "openspec/changes" / change).mkdir(parents=True)
            self.file(change, "tasks.md").write_text(TASKS)
        self.sessions: dict[str, Buffer] = {}
        self.holder: dict[str, str] = {}
        self.unlocked: set[str] = set()
        self.done: dict[str, set[str]] = {change: set() for change in CHANGES}
        self.flushed: dict[str, list[str]] = {change: [] for change in CHANGES}
        self.count = 0

    def teardown(self) -> None:
        self.top.cleanup()

    def file(self, change: str, name: str) -> Path:
        return self.root / "openspec/changes" / change / name

    # --- calling the real commands ---

    def call(self, session: str, *arguments: str) -> tuple[str, dict[str, Any]]:
        """The error's code or an empty text, and the output."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self.surroundings(session), redirected(1, out.fileno()), redirected(2, err.fileno()), not_for_ever():
                exit_code = agent.main(arguments)
            printed, failed = contents(out.fileno()), contents(err.fileno())
        if exit_code == 0:
            assert failed == b""
            return "", json.loads(printed)
        assert printed == b""
        error = json.loads(failed)
        assert set(error) == {"success", "error", "code"}
        return error["code"], error

    @contextmanager
    def surroundings(self, session: str) -> Iterator[None]:
        kept, here = dict(os.environ), os.getcwd()
        os.environ.update({"RALPH_SESSION": session, "TMPDIR": str(self.tmp)})
        os.environ.pop("RALPH_STORY", None)
        os.chdir(self.root)
        try:
            yield
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(kept)

    def fresh_word(self) -> str:
        self.count += 1
        return f"n{self.count}n"

    # --- the commands ---

    @rule(session=st.sampled_from(SESSIONS), change=st.sampled_from(CHANGES))
    def init(self, session: str, change: str) -> None:
        code, answer = self.call(session, "session", "init", "--change", change)
        held = change in self.holder and change not in self.unlocked
        busy = session in self.sessions and self.holder.get(change) != session
        if held or busy:
            allowed = {"CHANGE_LOCKED"} if held else set()
            assert code in allowed | ({"SESSION_EXISTS"} if busy else set())
            return
        assert code == "", answer
        fresh = Buffer(change)
        if heir_of := self.holder.get(change):
            legacy = self.sessions.pop(heir_of)
            fresh.notes, fresh.completed = legacy.notes, legacy.completed
        self.sessions[session] = fresh
        self.holder[change] = session
        self.unlocked.discard(change)
        assert [story["id"] for story in answer["stories"]] == ["1", "2", "3"]
        assert sum(story["tasks_done"] for story in answer["stories"]) == len(self.done[change])

    def expected_next(self, change: str) -> str | None:
        done = self.done[change]
        if not {"1.1", "1.10"} <= done:
            return "1"
        return "2" if "2.1" not in done else "3" if "3.1" not in done else None

    @rule(session=st.sampled_from(SESSIONS))
    def next_story(self, session: str) -> None:
        code, answer = self.call(session, "session", "next-story")
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        expected = self.expected_next(state.change)
        if expected is None:
            assert answer == {"complete": True}
            return
        state.story = expected
        state.iteration += 1
        assert (answer["story_id"], answer["iteration"]) == (expected, state.iteration)

    @rule(session=st.sampled_from(SESSIONS), task=st.sampled_from([*STORY_OF, "9.9"]))
    def task_done(self, session: str, task: str) -> None:
        code, answer = self.call(session, "task", "done", task)
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        if state.story is None:
            assert code == "STORY_REQUIRED"
        elif task not in STORY_OF:
            assert code == "TASK_NOT_FOUND"
        elif STORY_OF[task] != state.story:
            assert code == "TASK_OUT_OF_SCOPE"
        else:
            self.done[state.change].add(task)
            if task not in state.completed:
                state.completed.append(task)
            mine = [other for other, story in STORY_OF.items() if story == state.story]
            assert answer["remaining"] == [other for other in mine if other not in self.done[state.change]]

    @rule(session=st.sampled_from(SESSIONS), kind=st.sampled_from(["learn", "pattern", "observe"]))
    def note(self, session: str, kind: str) -> None:
        word = self.fresh_word()
        arguments = {
            "learn": ["learn", word],
            "pattern": ["pattern", word, "text"],
            "observe": ["observe", "finding", word],
        }
        code, answer = self.call(session, *arguments[kind])
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        state.notes.append(word)
        if kind == "learn":
            assert answer["learning"]["story_id"] == state.story
            assert answer["learning"]["iteration"] == state.iteration

    @rule(session=st.sampled_from(SESSIONS))
    def look(self, session: str) -> None:
        code, answer = self.call(session, "status")
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        if state.story is None:
            assert code == "STORY_REQUIRED"
            return
        done = self.done[state.change]
        assert answer["story"]["id"] == state.story
        assert answer["change_complete"] is ({"1.1", "1.10", "2.1"} <= done)

    @precondition(lambda self: bool(self.sessions))
    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        code, answer = self.call(session, "session", "flush")
        assert code == "", answer
        state = self.sessions.pop(session)
        self.flushed[state.change] += state.notes
        del self.holder[state.change]
        self.unlocked.discard(state.change)

    @rule(session=st.sampled_from(SESSIONS))
    def flush_what_is_not_there(self, session: str) -> None:
        if session not in self.sessions:
            assert self.call(session, "session", "flush")[0] == "SESSION_NOT_FOUND"

    @rule(change=st.sampled_from(CHANGES))
    def unlock(self, change: str) -> None:
        with self.surroundings("s1"), not_for_ever():
            done = lifecycle.unlock(str(self.root), change)
        assert (done is None) == (change not in self.holder)
        if change in self.holder:
            self.unlocked.add(change)

    @rule(change=st.sampled_from(CHANGES))
    def an_editor_saves_a_note_of_its_own(self, change: str) -> None:
        word = self.fresh_word()
        path = self.file(change, "design.md")
        old = path.read_text() if path.exists() else ""
        path.write_text(f"{word}\n\n{old}")
        self.flushed[change].append(word)

    # --- what must hold after each of them ---

    @invariant()
    def nothing_is_lost_and_nothing_twice(self) -> None:
        for change in CHANGES:
            path = self.file(change, "design.md")
            found = re.findall(r"n[0-9]+n", path.read_text() if path.exists() else "")
            assert sorted(found) == sorted(self.flushed[change])
        folder_of_sessions = self.tmp / "ralph/sessions"
        files = sorted(folder_of_sessions.iterdir()) if folder_of_sessions.exists() else []
        assert [file.name for file in files] == [f"{session}.json" for session in sorted(self.sessions)]
        for file in files:
            state = json.loads(file.read_text())
            model = self.sessions[file.stem]
            buffered = re.findall(
                r"n[0-9]+n", json.dumps([state[name] for name in ("learnings", "patterns", "observations")])
            )
            assert sorted(buffered) == sorted(model.notes)
            assert state["completed_tasks"] == model.completed

    @invariant()
    def boxes_are_those_that_were_ticked(self) -> None:
        for change in CHANGES:
            expected = TASKS
            for task in self.done[change]:
                expected = expected.replace(f"- [ ] {task} ", f"- [x] {task} ")
            assert self.file(change, "tasks.md").read_text() == expected

    @invariant()
    def locks_are_exclusive(self) -> None:
        place = self.root / ".ralph/locks"
        names = sorted(path.name for path in place.glob("*.lock"))
        assert names == [f"{change}.lock" for change in CHANGES if change in self.holder]
        for change, session in self.holder.items():
            fields = json.loads((place / f"{change}.lock").read_text())
            assert (fields["session_id"], fields["unlocked"]) == (session, change in self.unlocked)


class StuckError(BaseException):
    """A command waits for a lock that will never be released."""


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Fails if a call does not return: alone in its project, a command has nothing to wait for."""

    def stop(*_: object) -> None:
        raise StuckError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 3)
    try:
        yield
    except StuckError:
        raise AssertionError("the command waits for ever") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def redirected(fd: int, target: int) -> Iterator[None]:
    kept = os.dup(fd)
    os.dup2(target, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)


def contents(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, 1 << 20)


def test_a_session_begun_again_and_again_waits_for_nobody() -> None:
    """A session that takes over one of the same id inherits from its own file: it must not wait for that file."""
    state = Interleavings()
    for _ in range(3):
        state.init(session="s1", change="alpha")
        state.note(session="s1", kind="learn")
        state.unlock(change="alpha")
    state.init(session="s2", change="alpha")
    state.nothing_is_lost_and_nothing_twice()
    assert len(state.sessions["s2"].notes) == 3
    state.teardown()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(OURS, max_examples=examples(80), stateful_step_count=40)
