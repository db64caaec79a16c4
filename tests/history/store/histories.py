"""Histories with records, small and big, and ways to overwrite them."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from history.store.plain import Content, counted, invalid
from history.store.samples import PRD, entry, learning, observation, pattern

from ralphtool.history import History


def fill(history: History) -> Content:
    """Adds records of every kind; returns the expected content."""
    seen = (observation("slow", "blocker", "performance"), observation("bug", "finding", "bug"))
    friction = observation("no make", "blocker", "tooling-friction", "learning-0001")
    history.append(entry(1, PRD, "failed", *seen))
    history.append(entry(2, PRD, "blocked", friction, *seen), [learning("make is missing")])
    history.append_next("other", lambda iteration: entry(iteration, "other", "partial", observation("fine")))
    history.append_next(PRD, entry)
    history.add([learning("ruff first", kind="test-pattern", prd="other")], [pattern("routes"), pattern("tests")])
    history.invalidate("learning-0001", "it is there now")
    history.count_references(["learning-0002"])
    history.append_next("other", lambda iteration: entry(iteration, "other", "blocked", observation("b", "blocker")))
    first = invalid(learning("make is missing"), "it is there now")
    return Content(
        (
            entry(1, PRD, "failed", *seen),
            entry(2, PRD, "blocked", friction, *seen),
            entry(1, "other", "partial", observation("fine")),
            entry(3),
            entry(2, "other", "blocked", observation("b", "blocker")),
        ),
        (first, counted(learning("ruff first", 2, "test-pattern", "other"), 1)),
        (pattern("routes"), pattern("tests", 2)),
    )


def diff(old: bytes, new: bytes) -> tuple[list[str], list[str]]:
    """The removed and the added lines."""
    lines = list(difflib.unified_diff(old.decode().split("\n"), new.decode().split("\n"), n=0, lineterm=""))[2:]
    return [one[1:] for one in lines if one[0] == "-"], [one[1:] for one in lines if one[0] == "+"]


def overwrite(path: Path, data: bytes, how: str = "anew") -> None:
    """Writes as other programs do: git recreates files, editors write in place or rename another file over it.

    Waits until the clock has moved since the last write: otherwise the change could not be detected.
    """
    path.parent.mkdir(exist_ok=True)
    probe = path.with_name("probe")
    while path.exists():
        probe.write_bytes(b"")
        moved = probe.stat().st_ctime_ns > path.stat().st_ctime_ns
        probe.unlink()
        if moved:
            break
    if how == "anew":
        path.unlink(missing_ok=True)
    elif how == "over it":
        path.with_name("new").write_bytes(data)
        path.with_name("new").replace(path)
        return
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


MANY = 900


def with_big(root: Path, big: bytes) -> History:
    """A history with an index, and a journal that is partly in the index."""
    (root / ".ralph").mkdir(parents=True)
    (root / ".ralph/progress.json").write_bytes(big)
    history = History(str(root))
    history.append_next(PRD, entry)
    assert history.attempts(PRD) == 1
    history.append_next(PRD, lambda iteration: entry(iteration, PRD, "failed", observation("x", "blocker", "stub")))
    history.add([learning("new")], [pattern("new")])
    history.invalidate("learning-0003", "why")
    history.append_next(PRD, entry)
    assert os.path.exists(history.index_path)
    assert os.path.exists(history.journal_path)
    return history


def some_answers(history: History) -> list[object]:
    return [
        *(history.entries(last=3), history.entries(last=2, prd_id="story-7"), history.blockers(last=2)),
        *(history.learnings(valid_only=False), history.patterns(), history.failures(), history.tallies()),
        *(history.counts(), history.next_iteration(PRD), history.next_learning_number(), history.endings(4)),
    ]
