"""Which gates repair the work that they test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from ralphtool.executors.rewritten_work import RewrittenWork
from ralphtool.judging.gates import GateResult
from ralphtool.judging.guard.model import FileChange
from ralphtool.workspace import Workspace

SNAPSHOT = "tests/__snapshots__/a.test.js.snap"
CACHE = ".pytest_cache/v/cache/nodeids"
WORK: dict[str, bytes | None] = {
    **{"a.py": b"x=1\n", "b.py": b"y=1\n", "data.bin": b"\0"},
    **{SNAPSHOT: b"exports[`a`]", CACHE: b"[]"},
}
GREEN = GateResult(command="make", ok=True, exit_code=0, why="", seconds=0.0, failed=(), tally=None, log="")
Files = dict[str, bytes | None]


class Place:
    """A folder in which gates are functions."""

    def __init__(self) -> None:
        self.files: Files = dict(WORK)

    def read_in_place(self, paths: Sequence[str]) -> Files:
        return {path: self.files[path] for path in paths}


def count_up() -> Callable[[Files], None]:
    runs = iter(range(9))
    return lambda files: files.update({"a.py": b"%d" % next(runs)})


def write_once() -> Callable[[Files], None]:
    runs = iter(["a.py"])
    return lambda files: files.update(dict.fromkeys(runs, b"by the user"))


GATES: dict[str, tuple[Callable[[Files], None], str]] = {
    "a formatter": (lambda files: files.update({"a.py": b"x = 1\n"}), "it changes a.py"),
    "of two files": (lambda files: files.update({"a.py": b"", "b.py": b""}), "it changes a.py, b.py"),
    "a program that removes a file": (lambda files: files.update({"b.py": None}), "it changes b.py"),
    "a report with the time": (count_up(), ""),
    "a user who saves meanwhile": (write_once(), ""),
    "a database": (lambda files: files.update({"data.bin": b"\0\0"}), ""),
    "the form of a snapshot": (lambda files: files.update({SNAPSHOT: b"// Jest Snapshot\nexports[`a`]"}), ""),
    "a cache": (lambda files: files.update({CACHE: b"['a']"}), ""),
    "a program that changes nothing": (lambda files: None, ""),
}


@pytest.mark.parametrize("name", GATES)
def test_only_a_repair_is_accused(name: str) -> None:
    gate, why = GATES[name]
    place = Place()
    work = RewrittenWork(cast("Workspace", place), [FileChange(path, None, data) for path, data in WORK.items()])

    def run(commands: Sequence[str]) -> list[GateResult]:
        if commands == ["make"]:
            gate(place.files)
        return [GREEN]

    run(["make"])
    changed = work.find_changed()
    place.files = dict(WORK)
    work.remember()
    results, repairs = work.run_again(["true", "make", "make test"], changed, run)
    assert results == [GREEN] * 3
    assert [(one.command, one.why) for one in repairs] == ([("make", why)] if why else [])
