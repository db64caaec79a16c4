"""Fixtures for the tests of the history's store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from history.store.histories import MANY
from history.store.journals import Journaled
from history.store.plain import content
from history.store.samples import MOMENT, PRD, STATUSES, entry, learning, observation, pattern, set_sizes, written
from msgspec import structs

from ralphtool.history import History, state
from ralphtool.history.records import Progress


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here cuts the power, so nothing needs to be synced to disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append except the first goes to the journal, and stays there until a fold."""
    set_sizes(monkeypatch, small=300, share=0)


@pytest.fixture(params=["folded at once", "in the journal", "in the journal, and in the index"])
def history(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A new history, in each of the ways in which it is stored."""
    if request.param != "folded at once":
        set_sizes(monkeypatch, small=300, share=0, unsettled=1 << 20 if request.param == "in the journal" else 1)
    return History(str(tmp_path))


@pytest.fixture
def kept(tmp_path: Path, journaled: None) -> Journaled:
    """Its document has one entry and one learning; the journal has a line of each kind."""
    history = History(str(tmp_path / "kept"))
    os.mkdir(history.root)
    history.append(entry(1), [learning("old")])
    history.append(entry(2, PRD, "failed", observation("J*\n", "blocker", link="learning-0002")), [learning("made", 2)])
    history.append(entry(1, "other"))
    history.add([], [pattern("routes J *")])
    history.count_references(["learning-0001"])
    history.invalidate("learning-0001", "gone")
    history.append(entry(3))
    return Journaled(
        Path(history.path).read_bytes(), Path(history.journal_path).read_bytes(), content(History(history.root).load())
    )


@pytest.fixture(scope="module")
def big() -> bytes:
    """A document above 1 MiB, for the real size limits."""
    words = "A sentence of an agent that has seen something, and tells it at length. " * 14
    entries = tuple(
        structs.replace(
            entry(1 + n // 30, f"story-{n % 30}", STATUSES[n % 4], observation(f"{n}", "blocker", "bug")),
            summary=f"{n}: {words}",
        )
        for n in range(MANY)
    )
    whole = Progress(
        version="1.0",
        created_at=MOMENT,
        entries=entries,
        learnings=tuple(learning(f"learning {n}", n) for n in range(1, 40)),
        patterns=tuple(pattern(f"pattern {n}", n) for n in range(1, 20)),
    )
    data = written(whole)
    assert len(data) > state.SMALL == 1 << 20
    return data
