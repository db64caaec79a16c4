"""The history of a project: the result of every iteration, the learnings, and the queries on them.

`records.py` defines its records, `store.py` stores them: any number of processes may use it at once.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from ralphtool import typed
from ralphtool.errors import InvalidValue, shorten
from ralphtool.history import document, migrate
from ralphtool.history.catalog import digest_words, invalidate
from ralphtool.history.document import InvalidDocument
from ralphtool.history.journal import Batch, Invalidation, LearningRef, ReferenceCount
from ralphtool.history.records import (
    Category,
    Entry,
    Learning,
    Observation,
    Pattern,
    Progress,
    decode,
    learning_id,
    pattern_id,
)
from ralphtool.history.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphtool.history.migrate import Migration
    from ralphtool.history.records import EntryStatus, LearningType, PatternType
    from ralphtool.history.state import HistoryState

__all__ = ["History"]

_ALL = -1  # for SQLite: no limit
_MOST = 1 << 62


class EntryObservation(Struct, frozen=True):
    """An observation, and the entry that contains it."""

    entry: Entry
    observation: Observation


class KnowledgeUpdate(Struct, frozen=True):
    """All knowledge, or the changes since a mark."""

    mark: str  # for the next query
    is_whole: bool  # whether this is everything, not only the changes
    learnings: list[Learning]  # the valid ones
    patterns: list[Pattern]
    gone: list[str]  # ids of learnings that are no longer valid


class _Mark(Struct, frozen=True):
    """How much of which document and journal a caller has seen."""

    identity: tuple[int, ...] | None
    head: str
    last: int
    last_check: str
    read_to: int
    learnings: int
    patterns: int


class AttemptCounts(Struct, frozen=True):
    """How the attempts of one PRD, or of all of them, ended."""

    prd_id: str
    attempts: int
    completed: int
    failed: int
    blocked: int
    partial: int


class History(Store):
    """The history of the project in a folder. Every query reads the current state."""

    migration: Migration | None = None  # the one of the first use
    _migrated = False
    _migrating = False

    @classmethod
    def open_read_only(cls, root: str) -> History:
        """For reading only: a progress.txt is not migrated."""
        found = cls(root)
        found._migrated = True
        return found

    def first_use(self) -> None:
        if not self._migrated and not self._migrating:
            try:
                self.migration = self.migrate()
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise  # otherwise the project is read-only: its history is read as it is

    def migrate(self, *, dry_run: bool = False) -> Migration | None:
        """Migrates a progress.txt, if there is one; returns its contents."""
        self._migrating = True
        try:
            found = migrate.plan(self) if dry_run else migrate.run(self)
        finally:
            self._migrating = False
        self._migrated = not dry_run
        return found

    def describe_migration(self) -> list[str]:
        """For people: the first use has moved one of their files."""
        if self.migration is None:
            return []
        old, new = (os.path.relpath(path, self.root) for path in (self.migration.path, self.migration.backup))
        return [f"{old} of another loop is now part of the history; the file is kept as {new}"]

    # --- adding ---------------------------------------------------------------------------------

    def append(self, entry: Entry, learnings: Iterable[Learning] = (), shown: Iterable[str] = ()) -> Batch:
        """Adds an entry and its learnings at once. Returns what was new, with its final ids.

        The entry must follow the last one of its PRD. One that already exists is not added again.
        `shown` are the ids of learnings that were in its prompt: the count of each is increased.
        """
        learnings, wanted = tuple(learnings), Counter(shown)

        def make(state: HistoryState) -> Batch:
            return Batch(entries=(entry,), learnings=learnings, referenced=_build_references(state, wanted))

        return self.write(make)

    def append_next(self, prd_id: str, make: Callable[[int], Entry]) -> Entry:
        """Adds an entry for the next iteration of a PRD, safely even if other processes are adding entries."""
        batch = self.write(lambda state: Batch(entries=(make(state.catalog.last_iteration(prd_id) + 1),)))
        return batch.entries[0]

    def add(self, learnings: Iterable[Learning] = (), patterns: Iterable[Pattern] = ()) -> Batch:
        """Adds learnings and patterns from outside an iteration, and numbers them.

        Those whose exact text already exists are left out. Returns what was new.
        """
        learnings, patterns = tuple(learnings), tuple(patterns)

        def make(state: HistoryState) -> Batch:
            # All get the next number: the first new one keeps it, and those after it count up.
            learning = learning_id(state.catalog.highest("learnings") + 1)
            pattern = pattern_id(state.catalog.highest("patterns") + 1)
            return Batch(
                learnings=tuple(structs.replace(one, id=learning) for one in learnings),
                patterns=tuple(structs.replace(one, id=pattern) for one in patterns),
            )

        return self.write(make) if learnings or patterns else Batch()

    def invalidate(self, id: str, why: str) -> Learning:
        """Marks a learning as no longer valid. The reason is added to its context."""
        found: list[Learning] = []

        def make(state: HistoryState) -> Batch:
            learning = state.catalog.learning(id)
            if learning is None:
                raise InvalidValue(
                    f"there is no learning {shorten(id)}: `ralphtool progress learnings` lists all learnings"
                )
            found.append(invalidate(learning, why) if learning.still_valid else learning)
            return Batch(
                invalidated=(Invalidation(_build_learning_ref(learning), why),) if learning.still_valid else ()
            )

        self.write(make)
        return found[-1]

    def forget(self, ids: Iterable[str], why: str, besides: str | None = None) -> None:
        """Marks learnings as no longer valid, all or none. `besides` must exist and be valid."""
        wanted = list(ids)

        def make(state: HistoryState) -> Batch:
            found = {id: state.catalog.learning(id) for id in [*wanted, *([besides] if besides is not None else [])]}
            for id, learning in found.items():
                if learning is None or not learning.still_valid:
                    is_old = "is already marked as no longer valid" if learning else "does not exist"
                    raise InvalidValue(f"{shorten(id)} {is_old}: `ralphtool memory` lists the valid learnings")
            gone = [learning for id, learning in found.items() if learning and id != besides]
            return Batch(invalidated=tuple(Invalidation(_build_learning_ref(one), why) for one in gone))

        self.write(make)

    def count_references(self, ids: Iterable[str]) -> None:
        """Counts that these learnings were in one more prompt."""
        wanted = Counter(ids)

        if wanted:
            self.write(lambda state: Batch(referenced=_build_references(state, wanted)))

    # --- everything -----------------------------------------------------------------------------

    def export(self) -> bytes:
        """The document as it would be after a fold."""
        return self.ask(_export)

    def load(self) -> Progress:
        """Everything, read and checked."""
        found = self.whole_document()
        try:
            return document.parse(*found) if found else document.parse(self.export(), is_measured=True)
        except InvalidDocument:
            pass  # it may have been read while being written; otherwise the next check reports it
        try:
            return document.parse(self.export())
        except InvalidDocument as error:
            raise self.build_corrupt_error(error) from None

    def check(self) -> None:
        """Raises CorruptState if nothing can be added to the history. A missing one is fine."""
        with self._turn:
            self.first_use()
            self._check_folder()
            if os.path.lexists(self.path) or os.path.lexists(self.journal_path):
                self.ask(lambda state: None)

    def problems(self) -> list[str]:
        """The problems of records in the journal; the next write sets these records aside."""
        return self.ask(lambda state: [reason for _, reason in state.catalog.problems()])

    # --- queries --------------------------------------------------------------------------------

    def entries(self, *, last: int | None = None, prd_id: str | None = None) -> list[Entry]:
        """The last entries, or all of them, oldest first; for one PRD, or for all."""
        return self._entries("", last, prd_id)

    def _entries(self, condition: str, last: int | None, prd_id: str | None) -> list[Entry]:
        conditions = [condition] if condition else []
        values: list[str | int] = []
        if prd_id is not None:
            conditions.append("prd_id = ?")
            values.append(prd_id)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        limit = _ALL if last is None else min(max(last, 0), _MOST)
        found = self.ask(
            lambda state: state.catalog.entries(state, f"{where} ORDER BY seq DESC LIMIT ?", *values, limit)
        )
        return found[::-1]

    def last_entry(self, prd_id: str) -> Entry | None:
        return next(iter(self.entries(last=1, prd_id=prd_id)), None)

    def attempts(self, prd_id: str) -> int:
        """The number of a PRD's entries."""
        return int(self._rows("SELECT count(*) FROM entries WHERE prd_id = ?", prd_id)[0][0])

    def observations(self, *, last: int | None = None, prd_id: str | None = None) -> list[EntryObservation]:
        """The observations in the last entries, or in all of them."""
        return _list_observations(self.entries(last=last, prd_id=prd_id))

    def blockers(self, *, last: int | None = None, prd_id: str | None = None) -> list[EntryObservation]:
        """The blockers among these observations."""
        found = self._entries("blockers > 0", None, prd_id) if last is None else self.entries(last=last, prd_id=prd_id)
        return [seen for seen in _list_observations(found) if seen.observation.type == "blocker"]

    def learnings(
        self,
        types: Sequence[LearningType] = (),
        *,
        prd_id: str | None = None,
        valid_only: bool = True,
        last: int | None = None,
    ) -> list[Learning]:
        """Learnings, in the order in which they were recorded; optionally of some types or one PRD, or the last few."""
        conditions, values = _build_conditions(types, prd_id)
        if valid_only:
            conditions.append("valid")
        return [decode(text, Learning) for text in self._texts("learnings", conditions, values, last)]

    def patterns(
        self, types: Sequence[PatternType] = (), *, prd_id: str | None = None, last: int | None = None
    ) -> list[Pattern]:
        """Patterns, with the same options."""
        return [decode(text, Pattern) for text in self._texts("patterns", *_build_conditions(types, prd_id), last)]

    def _texts(self, table: str, conditions: list[str], values: list[str], last: int | None) -> list[bytes]:
        limit = _ALL if last is None else min(max(last, 0), _MOST)
        question = f"SELECT text FROM {table}{_join_conditions(conditions)} ORDER BY seq DESC LIMIT ?"
        return [text for (text,) in self._rows(question, *values, limit)][::-1]

    def find_learnings(self, ids: Sequence[str]) -> list[Learning]:
        """The valid learnings among these ids, in no particular order."""
        places = ", ".join("?" * len(ids))
        rows = self._rows(f"SELECT text FROM learnings WHERE valid AND id IN ({places})", *ids)
        return [decode(text, Learning) for (text,) in rows]

    def find_patterns(self, ids: Sequence[str]) -> list[Pattern]:
        rows = self._rows(f"SELECT text FROM patterns WHERE id IN ({', '.join('?' * len(ids))})", *ids)
        return [decode(text, Pattern) for (text,) in rows]

    def learnt(self, since: str = "") -> KnowledgeUpdate:
        """All knowledge, or the changes since the mark of an earlier result, at a cost proportional to the changes."""
        return self.ask(lambda state: _build_update(state, since))

    def failures(self, *, last: int | None = None, prd_id: str | None = None) -> dict[Category, int]:
        """How often each category was observed in failed or blocked entries; the most frequent first."""
        if last is None and prd_id is None:
            return dict(self._rows("SELECT category, times FROM failures ORDER BY times DESC, category"))
        failed = [one for one in self.entries(last=last, prd_id=prd_id) if one.status in ("failed", "blocked")]
        times = Counter(one.observation.category for one in _list_observations(failed) if one.observation.category)
        return dict(sorted(times.items(), key=lambda item: (-item[1], item[0])))

    def tallies(self) -> list[AttemptCounts]:
        """How the attempts of each PRD ended, in the order in which they were last tried."""
        ends = ", ".join(f"sum(status = '{status}')" for status in ("completed", "failed", "blocked", "partial"))
        rows = self._rows(f"SELECT prd_id, count(*), {ends} FROM entries GROUP BY prd_id ORDER BY max(seq)")
        return [AttemptCounts(*row) for row in rows]

    def endings(self, last: int) -> list[EntryStatus]:
        """How the last entries ended, oldest first."""
        return [status for (status,) in self._rows("SELECT status FROM entries ORDER BY seq DESC LIMIT ?", last)][::-1]

    def counts(self) -> dict[str, int]:
        """How many records there are of each kind."""
        tables = {"entries": "entries", "learnings": "learnings", "patterns": "patterns"}
        valid = {"valid_learnings": "learnings WHERE valid"}
        questions = {name: f"SELECT count(*) FROM {rest}" for name, rest in (tables | valid).items()}
        return {name: int(self._rows(question)[0][0]) for name, question in questions.items()}

    def next_learning_number(self) -> int:
        return self.ask(lambda state: state.catalog.highest("learnings")) + 1

    def next_pattern_number(self) -> int:
        return self.ask(lambda state: state.catalog.highest("patterns")) + 1

    def _rows(self, question: str, *values: str | int) -> list[Any]:
        return self.ask(lambda state: state.catalog.rows(question, *values))


def _build_references(state: HistoryState, wanted: Counter[str]) -> tuple[ReferenceCount, ...]:
    found = [learning for id in wanted if (learning := state.catalog.learning(id))]
    return tuple(ReferenceCount(_build_learning_ref(one), one.times_referenced + wanted[one.id]) for one in found)


def _build_learning_ref(learning: Learning) -> LearningRef:
    return LearningRef(learning.id, learning.created_at, digest_words(learning.content).hex())


def _build_update(state: HistoryState, since: str) -> KnowledgeUpdate:
    facts, rows = state.catalog.facts, state.catalog.rows
    # If only the journal has grown, everything new is at the end.
    known = _parse_mark(since)
    is_whole = known is None or not _has_only_grown(state, known)
    after = (0, 0) if is_whole or known is None else (known.learnings, known.patterns)
    learnings = rows("SELECT seq, text FROM learnings WHERE seq > ? AND valid ORDER BY seq", after[0])
    patterns = rows("SELECT seq, text FROM patterns WHERE seq > ? ORDER BY seq", after[1])
    gone = rows("SELECT id FROM learnings WHERE state <> 'folded' AND NOT valid") if not is_whole else []
    read = (facts.identity, facts.head, facts.last, facts.last_check, facts.read_to)
    ends = (rows("SELECT max(seq) FROM learnings")[0][0] or 0, rows("SELECT max(seq) FROM patterns")[0][0] or 0)
    return KnowledgeUpdate(
        msgspec.json.encode(_Mark(*read, *ends)).decode(),
        is_whole,
        [decode(text, Learning) for _, text in learnings],
        [decode(text, Pattern) for _, text in patterns],
        [id for (id,) in gone],
    )


def _has_only_grown(state: HistoryState, known: _Mark) -> bool:
    """Whether the document is the same, and the journal too, up to where it was read."""
    facts = state.catalog.facts
    if (known.identity, known.head) != (facts.identity, facts.head) or known.read_to > facts.read_to:
        return False
    return not known.read_to or state.read_journal(known.last, known.last + 8) == known.last_check.encode()


def _parse_mark(text: str) -> _Mark | None:
    try:
        return typed.decode(text, _Mark)
    except msgspec.DecodeError:
        return None


def _export(state: HistoryState) -> bytes:
    grown = document.build_update(state.read, state.catalog.facts.layout, *state.catalog.list_unfolded(state))
    return b"".join(document.apply_edits(state.read, state.document.size, grown.edits))


def _list_observations(entries: Iterable[Entry]) -> list[EntryObservation]:
    return [EntryObservation(entry, observation) for entry in entries for observation in entry.observations]


def _build_conditions(types: Sequence[str], prd_id: str | None) -> tuple[list[str], list[str]]:
    conditions = [f"type IN ({', '.join('?' * len(types))})"] if types else []
    return conditions + (["prd_id = ?"] if prd_id is not None else []), [*types, *([] if prd_id is None else [prd_id])]


def _join_conditions(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
