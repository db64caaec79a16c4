"""What stands where: the index over document and journal that answers questions without reading them whole.

It is a cache in SQLite: in memory for a small history, else in a file beside the journal. It belongs to exactly one
document, known by its state in the file system, and to the part of one journal that it has read. Learnings and
patterns, and entries that are not in the document yet, stand in it whole.
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
        """Where the records are: bytes of the document, and of the journal, from one position to another."""

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
_MOST = (1 << 62) - 1  # the biggest number that is counted; SQLite's end a little later
_encode = msgspec.json.Encoder().encode


class IndexMismatch(Exception):
    """The index says what the document does not: it has to be made anew."""


class IndexOutdated(Exception):
    """Another process has read on in the journal, and put what it found into the index: look again."""


class CatalogState(Struct):
    """Which document and how much of which journal the tables are about."""

    identity: tuple[int, ...] | None = None  # the document's state in the file system; None if there is none
    layout: Layout = {}
    later: bool = False  # whether the document is of a later 1.x, and may have fields that we don't know
    head: str = ""  # the journal's first line
    last: int = 0  # where its last line begins that we have read,
    last_check: str = ""  # the checksum of that,
    read_to: int = 0  # and where it ends: so much of the journal is in the tables
    # Whether the journal has to be folded before anything is added to it: records in it are damaged, or apply
    # to this document otherwise than they are written.
    mend: bool = False
    has_gaps: bool = False  # whether lines of the journal are damaged: what should stand before an entry may be there
    folded: int = 0  # the number of the last entry that is in the document
    # Whether entries have ids that don't tell their PRD and iteration: then no id is free before we have looked.
    odd: bool = False


class LocatedBatch(NamedTuple):
    """A batch, and where its line stands in the journal. What was never written there stands nowhere."""

    batch: Batch
    start: int = 0
    length: int = 0


class Catalog:
    """One document and the journal on top of it, as tables."""

    def __init__(self, connection: sqlite3.Connection, *, is_filed: bool) -> None:
        self.db = connection
        self.is_filed = is_filed
        self.facts = CatalogState()
        self.pending: list[LocatedBatch] = []  # known, and not in the tables yet
        self._last: dict[str, int] = {}  # the last iteration of PRDs that were asked for, or added to
        # Learnings that got other numbers than the journal gives them: what it says about them later is meant so.
        self.renamed: dict[str, str] = {}
        self.journal_end = 0  # how long the journal's file is, with its room for further lines, as far as we know
        self._version = 0  # counts what other processes did to the file

    @classmethod
    def in_memory(cls) -> Catalog:
        connection = _connect(":memory:")
        connection.executescript(_TABLES)
        return cls(connection, is_filed=False)

    @classmethod
    def from_file(cls, path: str) -> Catalog | None:
        """The one that lies there, if it is ours: a stranger's tables could do things when asked."""
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
            pass  # not a database, or a damaged one: it will be made anew
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

    # --- what it knows --------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Takes notice of what other processes have done to the file: they may have read on in the journal."""
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
        """Keeps the facts with the tables."""
        self.db.execute("INSERT OR REPLACE INTO facts (rowid, json) VALUES (1, ?)", (_encode(self.facts),))

    def fill(self, data: bytes) -> None:
        """Reads a whole document, and checks it; raises document.InvalidDocument."""
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
        """The records of a list, each with where in the list it stands and how long it is."""
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
        """Entries and where they are: in the document, or as an item of a line in the journal; or else their text."""
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
        """What was folded already is 'changed' until the next fold; what was not stays 'new'."""
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

    # --- a batch, on its way into the tables ----------------------------------------------------

    def take(self, written: LocatedBatch) -> None:
        """Remembers a batch that has been resolved."""
        self.pending.append(written)
        for entry in written.batch.entries:
            self._last[entry.prd_id] = entry.iteration

    def is_behind(self, length: int) -> bool:
        """Whether so much of the journal is known, and not in the tables yet."""
        return bool(self.pending) and self.facts.read_to - self.pending[0].start >= length

    def set_aside(self, text: bytes, reason: str) -> None:
        """Remembers a record of the journal that can't be used, until the next fold saves it elsewhere."""
        self.db.execute("DELETE FROM problems WHERE text = ?", (text,))
        self.db.execute("INSERT INTO problems VALUES (?, ?)", (text, reason))
        self.facts.mend = True

    def problems(self) -> list[tuple[bytes, str]]:
        return self.rows("SELECT text, reason FROM problems ORDER BY rowid")

    def settle(self) -> None:
        """Puts what was taken into the tables."""
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

    # --- questions ------------------------------------------------------------------------------

    def find_same_id(self, sources: Sources, entry: Entry) -> Entry | None:
        """The entry that has another one's id already, if there is one."""
        odd = self.rows("SELECT prd_id, iteration FROM odd_ids WHERE id = ?", entry.id)
        prd_id, iteration = odd[0] if odd else (entry.prd_id, min(entry.iteration, _MOST))
        found = self.entries(sources, "WHERE prd_id = ? AND iteration = ?", prd_id, iteration)
        return next((one for one in found if one.id == entry.id), None)

    def has(self, table: str, id: str) -> bool:
        return bool(self._one(f"SELECT 1 FROM {table} WHERE id = ?", id))

    def highest(self, table: str) -> int:
        """The highest number that a learning or a pattern has."""
        self.settle()
        return self._one(f"SELECT max(number) FROM {table}") or 0

    def find_learning_id(self, words: bytes, created_at: str, id: str) -> str | None:
        """The id of this very learning, or of a valid one with the same words."""
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
        """The entries that `where` (and what follows it) selects."""
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
        """What a fold has to add to each list of the document, and what it has to change there."""
        added = {
            table: [text for (text,) in self.rows(f"SELECT text FROM {table} WHERE state = 'new' ORDER BY seq")]
            for table in ("learnings", "patterns")
        }
        entries = self.entries(sources, "WHERE seq > ? ORDER BY seq", self.facts.folded)
        added["entries"] = [_encode(entry) for entry in entries]
        changed = dict(self.rows("SELECT id, text FROM learnings WHERE state = 'changed'"))
        return added, document.edit_learnings(sources.read, self.facts.layout["learnings"], changed) if changed else []

    def folded(self, identity: tuple[int, ...] | None, layout: Layout, places: Sequence[tuple[int, int]]) -> None:
        """Everything is in the document now; `places` tells where the entries are that were not there before."""
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
    import hashlib  # which loads OpenSSL

    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def digest_pattern(pattern: Pattern) -> bytes:
    return digest_words(f"{pattern.name}\0{pattern.description or ''}")
