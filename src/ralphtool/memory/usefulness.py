"""Which learnings each attempt was shown, and how it ended: `.ralph/usefulness.jsonl`.

One line for each attempt, append-only. A learning is identified by its text: it may be shown before it has an id.
The totals are in the memory's cache, which continues reading where it stopped.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.core import files, layout
from ralphtool.errors import UnsafePath
from ralphtool.history.catalog import digest_words

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from ralphtool.memory.cache import MemoryCache

_AT_ONCE, _TAIL = 1 << 20, 48  # bytes: read at once, and remembered from the end of the last read
_PRIOR_SHOWINGS = 4  # the weight of the prior, in showings
_LEAST = 0.6  # the factor for learnings that never helped: they may still be needed one day
STALE = 8  # showings without help


class ShownItems(Struct, frozen=True):
    """The learnings that an attempt was shown: the digests of their texts, with their ids if any."""

    entry: str
    status: str
    shown: dict[str, str | None]
    at: str = ""  # the time: a restored history uses entry numbers again


class UseCounts(Struct, frozen=True):
    shown: int = 0
    helped: int = 0  # attempts that completed

    @property
    def is_stale(self) -> bool:
        return self.shown >= STALE and not self.helped

    def factor(self, usual: float) -> float:
        """The factor for a score. It is highest for what was hardly shown yet, so that new learnings are not buried."""
        expected = max(usual, 0.1)
        rate = (self.helped + _PRIOR_SHOWINGS * expected) / (self.shown + _PRIOR_SHOWINGS)
        return max(_LEAST, min(1.0, rate / expected))


def path_of(root: str) -> str:
    return layout.usefulness(root)


def digest(text: str) -> str:
    return digest_words(text).hex()


def record_showing(root: str, showing: ShownItems) -> str:
    """Adds a line; returns the problem if that fails. The same attempt may be recorded twice: it counts once."""
    if not showing.shown:
        return ""
    path = path_of(root)
    try:
        files.append(path, msgspec.json.encode(showing) + b"\n", as_line=True)
    except (OSError, UnsafePath) as error:  # only a hint is lost: not worth stopping a run
        return f"can't record which learnings helped: {error}"
    return ""


class UseStore:
    """The totals in a cache."""

    def __init__(self, root: str, cache: MemoryCache) -> None:
        self._path = path_of(root)
        self._cache = cache

    def read_on(self) -> None:
        """Reads new lines. An unreadable file is ignored: `record_showing` reports it."""
        try:
            fd = files.open_in_project(self._path)
        except (OSError, UnsafePath):
            return
        try:
            start = self._read_to(fd)
            while data := files.read_at(fd, start, start + _AT_ONCE):
                read = self._take(data, start)
                if read == start:
                    break  # an incomplete line
                start = read
        finally:
            os.close(fd)

    def _read_to(self, fd: int) -> int:
        """The position where reading stopped. For another file, its start: known attempts are not counted twice."""
        known = self._cache.ask("SELECT value FROM facts WHERE name = 'uses'")
        start, tail = typed.decode(known[0][0], tuple[int, bytes]) if known else (0, b"")
        return start if files.read_at(fd, max(0, start - len(tail)), start) == tail else 0

    def _take(self, data: bytes, start: int) -> int:
        whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == _AT_ONCE else b"")
        showings = [showing for line in whole.splitlines() if (showing := _parse_line(line))]

        def work(db: sqlite3.Connection) -> None:
            for showing in showings:
                _add_counts(db, showing)
            value = msgspec.json.encode((start + len(whole), whole[-_TAIL:]))
            db.execute("INSERT OR REPLACE INTO facts VALUES ('uses', ?)", (value,))

        if whole:
            self._cache.change(work)
        return start + len(whole)

    def of(self, digests: Iterable[str]) -> dict[str, UseCounts]:
        rows = self._cache.select("digest, shown, helped", "uses", "digest", list(digests))
        return {digest: UseCounts(shown, helped) for digest, shown, helped in rows}

    def success_rate(self) -> float:
        """The share of all attempts that completed."""
        [(not_done,), (done,)] = self._cache.ask("SELECT count FROM endings ORDER BY is_done")
        return (int(done) + 1) / (int(done) + int(not_done) + 2)

    def most_helpful(self, limit: int) -> list[str]:
        """The ids of the learnings that were shown to completed attempts most often."""
        rows = self._cache.ask(
            "SELECT id, shown, helped FROM uses WHERE helped > 1 ORDER BY helped DESC LIMIT ?", 4 * limit
        )
        ranked = sorted(rows, key=lambda row: row[2] / (row[1] + 2), reverse=True)
        return [id for id, _, _ in ranked if id][:limit]


def _parse_line(line: bytes) -> ShownItems | None:
    try:
        return typed.decode(line, ShownItems)
    except (ValueError, RecursionError):  # includes msgspec's errors, and invalid UTF-8
        return None  # torn, or not ours


def _add_counts(db: sqlite3.Connection, showing: ShownItems) -> None:
    helped = showing.status == "completed"
    if not db.execute("INSERT OR IGNORE INTO attempts VALUES (?)", (f"{showing.entry} {showing.at}",)).rowcount:
        return
    db.execute("UPDATE endings SET count = count + 1 WHERE is_done = ?", (helped,))
    db.executemany(
        """INSERT INTO uses VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE
        SET id = coalesce(excluded.id, id), shown = shown + 1, helped = helped + excluded.helped""",
        [(digest, id, helped) for digest, id in showing.shown.items()],
    )


def digest_texts(texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """Texts and their ids, in the form of `ShownItems.shown`."""
    return {digest(text): id for text, id in texts.items()}
