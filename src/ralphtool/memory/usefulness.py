"""Which learnings were shown, and how the attempt ended that they were shown to: `.ralph/usefulness.jsonl`.

One line for each attempt, only ever added to. A learning is known by its words: it may be shown before it has an id.
The sums stand in the memory's cache, which reads on where it had stopped.
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

_AT_ONCE, _TAIL = 1 << 20, 48  # bytes: read at once, and remembered of what was read last
_PRIOR_SHOWINGS = 4  # so many showings without a result are believed in beforehand
_LEAST = 0.6  # what never helped still counts so much: it may be needed for once
STALE = 8  # showings without help


class ShownItems(Struct, frozen=True):
    """What an attempt was shown: the digests of the words, with the ids as far as there are any."""

    entry: str
    status: str
    shown: dict[str, str | None]
    at: str = ""  # when: a history that was put back uses the numbers of entries again


class UseCounts(Struct, frozen=True):
    shown: int = 0
    helped: int = 0  # attempts that completed

    @property
    def is_stale(self) -> bool:
        return self.shown >= STALE and not self.helped

    def factor(self, usual: float) -> float:
        """What a score is multiplied by. Who was hardly shown yet has the most: nothing new is buried under the old."""
        expected = max(usual, 0.1)
        rate = (self.helped + _PRIOR_SHOWINGS * expected) / (self.shown + _PRIOR_SHOWINGS)
        return max(_LEAST, min(1.0, rate / expected))


def path_of(root: str) -> str:
    return layout.usefulness(root)


def digest(text: str) -> str:
    return digest_words(text).hex()


def record_showing(root: str, showing: ShownItems) -> str:
    """Adds a line; tells what is wrong if that can't be. The same attempt may be noted twice: it counts once."""
    if not showing.shown:
        return ""
    path = path_of(root)
    try:
        files.append(path, msgspec.json.encode(showing) + b"\n", as_line=True)
    except (OSError, UnsafePath) as error:  # a hint is lost, and no work: nobody should stop for it
        return f"can't record which learnings helped: {error}"
    return ""


class UseStore:
    """The sums, as a cache holds them."""

    def __init__(self, root: str, cache: MemoryCache) -> None:
        self._path = path_of(root)
        self._cache = cache

    def read_on(self) -> None:
        """Takes in what has been noted since. What can't be read is left out: `record_showing` reports it."""
        try:
            fd = files.open_in_project(self._path)
        except (OSError, UnsafePath):
            return
        try:
            start = self._read_to(fd)
            while data := files.read_at(fd, start, start + _AT_ONCE):
                read = self._take(data, start)
                if read == start:
                    break  # a line that is being written
                start = read
        finally:
            os.close(fd)

    def _read_to(self, fd: int) -> int:
        """Where reading had stopped. In another file than that, at its beginning: what is known counts once."""
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
        """The part of all attempts that completed."""
        [(not_done,), (done,)] = self._cache.ask("SELECT count FROM endings ORDER BY is_done")
        return (int(done) + 1) / (int(done) + int(not_done) + 2)

    def most_helpful(self, limit: int) -> list[str]:
        """The ids of what was shown most often to attempts that completed."""
        rows = self._cache.ask(
            "SELECT id, shown, helped FROM uses WHERE helped > 1 ORDER BY helped DESC LIMIT ?", 4 * limit
        )
        ranked = sorted(rows, key=lambda row: row[2] / (row[1] + 2), reverse=True)
        return [id for id, _, _ in ranked if id][:limit]


def _parse_line(line: bytes) -> ShownItems | None:
    try:
        return typed.decode(line, ShownItems)
    except (ValueError, RecursionError):  # also of msgspec, and of what is not UTF-8
        return None  # torn, or not ours: it is no record of a showing


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
    """Texts and their ids as a showing has them."""
    return {digest(text): id for text, id in texts.items()}
