"""The index over document and journal, which answers queries without reading them whole.

It is a cache in SQLite: in memory for a small history, else in a file next to the journal. It is valid for exactly one
document, identified by its state in the file system, and for the part of one journal that it has read. It contains the
full text of learnings and patterns, and of entries that are not in the document yet.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from ralphtool import typed
from ralphtool.history import document, journal
from ralphtool.history.document import Layout
from ralphtool.history.journal import Batch, Invalidation, ReferenceCount
from ralphtool.history.records import Entry, Learning, Pattern, parse_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    class Sources(Protocol):
        """The files of the records: bytes of the document and of the journal, from one position to another."""

        def read(self, start: int, end: int) -> bytes: ...

        def read_journal(self, start: int, end: int) -> bytes: ...


_TABLES = """\
CREATE TABLE facts (json BLOB);
CREATE TABLE problems (text BLOB, reason TEXT);
CREATE TABLE entries (seq INTEGER PRIMARY KEY, prd_id TEXT, iteration INTEGER, status TEXT, blockers INTEGER,
  start INTEGER, length INTEGER, item INTEGER, text BLOB);
CREATE INDEX entries_by_prd ON entries (prd_id, iteration);
CREATE INDEX entries_with_blockers ON entries (seq) WHERE blockers > 0;
CREATE TABLE odd_ids (id TEXT PRIMARY KEY, prd_id TEXT, iteration INTEGER) WITHOUT ROWID;
CREATE TABLE learnings (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, number INTEGER, type TEXT, valid INTEGER,
  prd_id TEXT, words BLOB, created_at TEXT, text BLOB, state TEXT);
CREATE INDEX learnings_by_number ON learnings (number);
CREATE INDEX learnings_by_words ON learnings (words);
CREATE INDEX learnings_by_prd ON learnings (prd_id);
CREATE INDEX learnings_by_type ON learnings (valid, type);
CREATE INDEX learnings_to_fold ON learnings (seq) WHERE state <> 'folded';
CREATE TABLE patterns (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, number INTEGER, type TEXT, prd_id TEXT, words BLOB,
  text BLOB, state TEXT);
CREATE INDEX patterns_by_number ON patterns (number);
CREATE INDEX patterns_by_words ON patterns (words);
CREATE TABLE failures (category TEXT PRIMARY KEY, times INTEGER) WITHOUT ROWID;
"""
RecordT = TypeVar("RecordT", Entry, Learning, Pattern)
_IN_DOCUMENT = -1
_MOST = (1 << 62) - 1  # the largest number that is stored; SQLite's limit is a little higher
_encode = msgspec.json.Encoder().encode


class IndexMismatch(Exception):
    """The index does not match the document: it must be rebuilt."""


class IndexOutdated(Exception):
    """Another process has read more of the journal into the index: try again."""


class CatalogState(Struct):
    """The document, and the part of the journal, that the tables are about."""

    identity: tuple[int, ...] | None = None  # the document's state in the file system; None if there is none
    layout: Layout = {}
    later: bool = False  # whether the document is of a later 1.x, which may have unknown fields
    head: str = ""  # the journal's first line
    last: int = 0  # the start of the last line that we have read,
    last_check: str = ""  # its checksum,
    read_to: int = 0  # and its end: the tables contain the journal up to here
    # Whether the journal must be folded before anything is added to it: records in it are damaged, or do not
    # apply to this document as they are written.
    mend: bool = False
    has_gaps: bool = False  # whether lines of the journal are damaged: they may contain missing entries
    folded: int = 0  # the number of the last entry in the document
    # Whether some ids are not `prd_id-iteration`: then every new id must be looked up.
    odd: bool = False


class LocatedBatch(NamedTuple):
    """A batch, and the position of its line in the journal; without one if it was never written there."""

    batch: Batch
    start: int = 0
    length: int = 0


class Catalog:
    """One document and its journal, as tables."""

    def __init__(self, connection: sqlite3.Connection, *, is_filed: bool) -> None:
        self.db = connection
        self.is_filed = is_filed
        self.facts = CatalogState()
        self.pending: list[LocatedBatch] = []  # known, but not in the tables yet
        self._last: dict[str, int] = {}  # the last iteration of PRDs that were queried or added to
        # Learnings that got other numbers than in the journal, where later statements still use the old ones.
        self.renamed: dict[str, str] = {}
        self.journal_end = 0  # the known size of the journal's file, including spare room for further lines
        self._version = 0  # SQLite's counter of changes by other processes

    @classmethod
    def in_memory(cls) -> Catalog:
        connection = _connect(":memory:")
        connection.executescript(_TABLES)
        return cls(connection, is_filed=False)

    @classmethod
    def from_file(cls, path: str) -> Catalog | None:
        """The catalog in that file, if it is ours: queries on another program's tables could have side effects."""
        if os.path.islink(path) or not os.path.isfile(path):
            return None
        found = None
        try:
            found = cls(_connect(path), is_filed=True)
            made = found.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
            if "".join(f"{sql};\n" for (sql,) in made) == _TABLES:
                found.refresh()
                return found
        except (sqlite3.Error, IndexMismatch):
            pass  # not a database, or a damaged one: it will be rebuilt
        if found:
            found.close()
        return None

    def save(self, path: str) -> None:
        """Writes a copy to a file."""
        target = _connect(path)
        try:
            self.db.backup(target)
        finally:
            target.close()

    def close(self) -> None:
        self.db.close()

    def _one(self, question: str, *values: Any) -> Any:
        row = self.db.execute(question, values).fetchone()
        return row[0] if row else None

    # --- loading --------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Reloads the facts if another process changed the file: it may have read more of the journal."""
        version = self._one("PRAGMA data_version")
        if version == self._version:
            return False
        self._version = version
        try:
            self.facts = typed.decode(self._one("SELECT json FROM facts") or b"", CatalogState)
        except msgspec.DecodeError:
            raise IndexMismatch from None
        self.pending, self._last, self.renamed, self.journal_end = [], {}, {}, 0
        return True

    def note(self) -> None:
        """Stores the facts with the tables."""
        self.db.execute("INSERT OR REPLACE INTO facts (rowid, json) VALUES (1, ?)", (_encode(self.facts),))

    def fill(self, data: bytes) -> None:
        """Reads and checks a whole document; raises document.InvalidDocument."""
        self.facts.later = document.check_head(data)
        self.facts.layout = document.measure(data)
        self.db.execute("BEGIN")
        self._add_entries(
            (entry, start, length, _IN_DOCUMENT, None) for entry, start, length in self._records(data, "entries", Entry)
        )
        for learning, _, _ in self._records(data, "learnings", Learning):
            self._add_learning(learning, "folded")
        for pattern, _, _ in self._records(data, "patterns", Pattern):
            self._add_pattern(pattern, "folded")
        self.facts.folded = self._one("SELECT max(seq) FROM entries") or 0
        self.note()
        self.db.execute("COMMIT")

    def _records(self, data: bytes, name: str, kind: type[RecordT]) -> Iterator[tuple[RecordT, int, int]]:
        """The records of a list, each with its offset in the list and its length."""
        span = self.facts.layout.get(name)
        section = data[span.open : span.end] if span else b"[]"
        ids: set[str] = set()
        for number, (raw, start) in enumerate(document.iterate_items(section)):
            record = document.decode(raw, kind, f"{name}[{number}]", self.facts.later)
            if record.id in ids:
                raise document.build_duplicate_error(name, number, record.id)
            ids.add(record.id)
            yield record, start, len(memoryview(raw))

    def _add_entries(self, placed: Iterable[tuple[Entry, int, int, int, bytes | None]]) -> None:
        """Adds entries with their place, in the document or as an item of a line in the journal, or with their text."""
        rows, odd = [], []
        failures: Counter[str] = Counter()
        for entry, *place in placed:
            blockers = sum(observation.type == "blocker" for observation in entry.observations)
            iteration = min(entry.iteration, _MOST)
            rows.append((entry.prd_id, iteration, entry.status, blockers, *place))
            if entry.id != f"{entry.prd_id}-{entry.iteration}":
                odd.append((entry.id, entry.prd_id, iteration))
            if entry.status in ("failed", "blocked"):
                failures.update(observation.category for observation in entry.observations if observation.category)
        self.db.executemany("INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.db.executemany("INSERT INTO odd_ids VALUES (?, ?, ?)", odd)
        self.facts.odd = self.facts.odd or bool(odd)
        counted = "INSERT INTO failures VALUES (?, ?) ON CONFLICT DO UPDATE SET times = times + excluded.times"
        self.db.executemany(counted, failures.items())

    def _add_learning(self, learning: Learning, state: str) -> None:
        self.db.execute(
            "INSERT INTO learnings VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                learning.id,
                parse_number(learning.id),
                learning.type,
                learning.still_valid,
                learning.source_prd_id,
                digest_words(learning.content),
                learning.created_at,
                _encode(learning),
                state,
            ),
        )

    def _change_learning(self, learning: Learning) -> None:
        """An already folded learning is 'changed' until the next fold; an unfolded one stays 'new'."""
        self.db.execute(
            "UPDATE learnings SET valid = ?, text = ?, state = iif(state = 'new', 'new', 'changed') WHERE id = ?",
            (learning.still_valid, _encode(learning), learning.id),
        )

    def _add_pattern(self, pattern: Pattern, state: str) -> None:
        self.db.execute(
            "INSERT INTO patterns VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            (
                pattern.id,
                parse_number(pattern.id),
                pattern.type,
                pattern.source_prd_id or "",
                digest_pattern(pattern),
                _encode(pattern),
                state,
            ),
        )

    # --- putting batches into the tables --------------------------------------------------------

    def take(self, written: LocatedBatch) -> None:
        """Remembers a resolved batch."""
        self.pending.append(written)
        for entry in written.batch.entries:
            self._last[entry.prd_id] = entry.iteration

    def is_behind(self, length: int) -> bool:
        """Whether this much of the journal is known but not in the tables yet."""
        return bool(self.pending) and self.facts.read_to - self.pending[0].start >= length

    def set_aside(self, text: bytes, reason: str) -> None:
        """Remembers an unusable record of the journal, until the next fold saves it elsewhere."""
        self.db.execute("DELETE FROM problems WHERE text = ?", (text,))
        self.db.execute("INSERT INTO problems VALUES (?, ?)", (text, reason))
        self.facts.mend = True

    def problems(self) -> list[tuple[bytes, str]]:
        return self.rows("SELECT text, reason FROM problems ORDER BY rowid")

    def settle(self) -> None:
        """Puts the pending batches into the tables."""
        if not self.pending:
            return
        if self.is_filed and self.refresh():
            raise IndexOutdated
        pending, self.pending = self.pending, []
        self.db.execute("SAVEPOINT settling")
        for written in pending:
            self._insert(written)
        self.note()
        self.db.execute("RELEASE settling")

    def _insert(self, written: LocatedBatch) -> None:
        batch = written.batch
        self._add_entries(
            (entry, written.start, written.length, item, None if written.length else _encode(entry))
            for item, entry in enumerate(batch.entries)
        )
        for learning in batch.learnings:
            self._add_learning(learning, "new")
        for pattern in batch.patterns:
            self._add_pattern(pattern, "new")
        for invalidation in batch.invalidated:
            self._invalidate(invalidation)
        for reference in batch.referenced:
            self._refer(reference)

    def _invalidate(self, one: Invalidation) -> None:
        learning = self.learning(one.about.id)
        if learning and learning.still_valid:
            self._change_learning(invalidate(learning, one.why))

    def _refer(self, one: ReferenceCount) -> None:
        learning = self.learning(one.about.id)
        if learning and learning.times_referenced < one.times:
            self._change_learning(structs.replace(learning, times_referenced=one.times))

    # --- queries --------------------------------------------------------------------------------

    def find_same_id(self, sources: Sources, entry: Entry) -> Entry | None:
        """The existing entry with the same id, if any."""
        odd = self.rows("SELECT prd_id, iteration FROM odd_ids WHERE id = ?", entry.id)
        prd_id, iteration = odd[0] if odd else (entry.prd_id, min(entry.iteration, _MOST))
        found = self.entries(sources, "WHERE prd_id = ? AND iteration = ?", prd_id, iteration)
        return next((one for one in found if one.id == entry.id), None)

    def has(self, table: str, id: str) -> bool:
        return bool(self._one(f"SELECT 1 FROM {table} WHERE id = ?", id))

    def highest(self, table: str) -> int:
        """The highest number of a learning or a pattern."""
        self.settle()
        return self._one(f"SELECT max(number) FROM {table}") or 0

    def find_learning_id(self, words: bytes, created_at: str, id: str) -> str | None:
        """The id of this same learning, or of a valid one with the same words."""
        question = """SELECT id FROM learnings WHERE words = ? AND (valid OR created_at = ?)
            ORDER BY created_at <> ?, id <> ?, seq"""
        found: str | None = self._one(question, words, created_at, created_at, id)
        return found

    def has_pattern(self, words: bytes) -> bool:
        return bool(self._one("SELECT 1 FROM patterns WHERE words = ?", words))

    def last_iteration(self, prd_id: str) -> int:
        last = self._last.get(prd_id)
        if last is None:
            last = self._one("SELECT max(iteration) FROM entries WHERE prd_id = ?", prd_id) or 0
            self._last[prd_id] = last
        return last

    def learning(self, id: str) -> Learning | None:
        self.settle()
        text = self._one("SELECT text FROM learnings WHERE id = ?", id)
        return typed.decode(text, Learning) if text is not None else None

    def rows(self, question: str, *values: Any) -> list[Any]:
        self.settle()
        return self.db.execute(question, values).fetchall()

    def entries(self, sources: Sources, where: str, *values: Any) -> list[Entry]:
        """The entries that this SQL clause selects."""
        question = f"SELECT prd_id, iteration, start, length, item, text FROM entries {where}"
        return [self._entry(sources, *row) for row in self.rows(question, *values)]

    def _entry(
        self, sources: Sources, prd_id: str, iteration: int, start: int, length: int, item: int, text: bytes | None
    ) -> Entry:
        try:
            if text is None and item != _IN_DOCUMENT:
                batch = journal.check_line(start, sources.read_journal(start, start + length)).batch or Batch()
                entry = batch.entries[item]
            else:
                entry = document.decode(
                    text or self._read_document(sources, start, length), Entry, "", self.facts.later
                )
        except (document.InvalidDocument, msgspec.DecodeError, IndexError):
            raise IndexMismatch from None
        if entry.prd_id != prd_id or min(entry.iteration, _MOST) != iteration:
            raise IndexMismatch
        return entry

    def _read_document(self, sources: Sources, start: int, length: int) -> bytes:
        start += self.facts.layout["entries"].open
        return sources.read(start, start + length)

    # --- folding --------------------------------------------------------------------------------

    def list_unfolded(self, sources: Sources) -> tuple[dict[str, list[bytes]], list[document.Edit]]:
        """The records that a fold must add to each list of the document, and its edits there."""
        added = {
            table: [text for (text,) in self.rows(f"SELECT text FROM {table} WHERE state = 'new' ORDER BY seq")]
            for table in ("learnings", "patterns")
        }
        entries = self.entries(sources, "WHERE seq > ? ORDER BY seq", self.facts.folded)
        added["entries"] = [_encode(entry) for entry in entries]
        changed = dict(self.rows("SELECT id, text FROM learnings WHERE state = 'changed'"))
        return added, document.edit_learnings(sources.read, self.facts.layout["learnings"], changed) if changed else []

    def folded(self, identity: tuple[int, ...] | None, layout: Layout, places: Sequence[tuple[int, int]]) -> None:
        """Records that everything is in the document now; `places` are the positions of the newly folded entries."""
        seqs = [seq for (seq,) in self.rows("SELECT seq FROM entries WHERE seq > ? ORDER BY seq", self.facts.folded)]
        moved = [(*place, _IN_DOCUMENT, seq) for place, seq in zip(places, seqs, strict=True)]
        self.db.executemany("UPDATE entries SET start = ?, length = ?, item = ?, text = NULL WHERE seq = ?", moved)
        for table in ("learnings", "patterns"):
            self.db.execute(f"UPDATE {table} SET state = 'folded' WHERE state <> 'folded'")
        self.db.execute("DELETE FROM problems")
        folded = seqs[-1] if seqs else self.facts.folded
        self.journal_end = 0
        self.renamed = {}
        self.facts = CatalogState(identity, layout, later=self.facts.later, folded=folded, odd=self.facts.odd)
        self.note()


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def invalidate(learning: Learning, why: str) -> Learning:
    context = f"{learning.context}\n{why}" if learning.context else why
    return structs.replace(learning, still_valid=False, context=context)


def digest_words(text: str) -> bytes:
    import hashlib  # it loads OpenSSL

    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def digest_pattern(pattern: Pattern) -> bytes:
    return digest_words(f"{pattern.name}\0{pattern.description or ''}")
