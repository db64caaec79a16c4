"""progress.json and its journal as one, for any number of processes at once.

    append ──► journal, synced ──► fold: a new progress.json in the place of the old one, and an empty journal
                     ▲
    queries ── catalog (positions) ──► the few requested records

One lock, on the folder, covers both writes and queries. While the document is small, an append is a fold; later it is
one synced line, and a fold happens when the journal has grown to a tenth of the document. Every batch in the journal
can be applied twice without harm, so a fold that was killed between its two steps needs no repair.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import weakref
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ralphtool.core import files, layout, secrets
from ralphtool.errors import CorruptState, InvalidValue, RalphError
from ralphtool.history import document, journal, neighbour
from ralphtool.history.catalog import Catalog, IndexMismatch, IndexOutdated, LocatedBatch
from ralphtool.history.document import InvalidDocument, VersionTooNew
from ralphtool.history.journal import Batch
from ralphtool.history.records import Progress
from ralphtool.history.resolve import resolve
from ralphtool.history.state import Document, DocumentChanged, HistoryLock, HistoryState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.history.catalog import CatalogState
    from ralphtool.history.document import DocumentUpdate

    Result = TypeVar("Result")

_SHARE = 10  # the journal is folded when it reaches 1/_SHARE of the document's size
_UNSETTLED = 1 << 20  # bytes of the journal before it goes into the index, which costs more than reading it again
# Fields with references or fixed words. All others are texts that an agent may have written.
_NO_FREE_TEXT = {
    *("id", "prd_id", "timestamp", "iteration", "status", "type", "category", "severity", "action_taken", "confidence"),
    *("related_learning_id", "source_prd_id", "source_entry_id", "created_at", "discovered_at", "recovery_action"),
}
_MOST_FAULTS = 2  # of the index: after the first, it is rebuilt
_MAX_TRIES = 20  # if a program that ignores the lock keeps replacing the document


class Store:
    """Document, journal and index of one project: appending, folding, and querying their state."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folder = layout.folder(root)
        self.path = layout.history(root)
        self.journal_path = os.path.join(self.folder, "progress.journal")
        self.damaged_path = os.path.join(self.folder, "progress.journal.damaged")
        self.index_path = os.path.join(self.folder, "progress.index")
        self.notices: list[str] = []  # problems that were handled, but that people should see
        self._index_faults = 0
        self._had_document = False
        self._is_checked = False
        self._failed_fold: dict[str, int] = {}  # the journal that could not be folded, and its size for the next try
        self._undo = files.Undo()  # for what did not exist before the first use
        self._begin()
        _all.add(self)
        self._secrets = secrets.list_values()
        self._secret_texts = [msgspec.json.encode(secret)[1:-1] for secret in self._secrets]

    def _begin(self) -> None:
        """Sets up the state of one process: after a fork, neither locks nor SQLite connections can be used."""
        self._lock = HistoryLock(self.folder)
        self._turn = threading.RLock()
        self._catalog: Catalog | None = None
        self._state: HistoryState | None = None  # the open one

    def close(self) -> None:
        """Closes its files; it can be used again. Nothing is lost if this is not called."""
        with self._turn:
            self._forget()
            self._lock.close()

    # --- opening --------------------------------------------------------------------------------

    def first_use(self) -> None:
        """Called once, before anything else."""

    def ask(self, question: Callable[[HistoryState], Result]) -> Result:
        """Runs a query on the current document and journal."""
        return self._with_state(lambda state: question(self._settled(state)), write=False)

    def next_iteration(self, prd_id: str) -> int:
        """The number of the next entry of a PRD."""
        return self._with_state(lambda state: state.catalog.last_iteration(prd_id), write=False) + 1

    def _with_state(self, work: Callable[[HistoryState], Result], *, write: bool) -> Result:
        with self._turn:
            self.first_use()
            if self._state:  # a query from inside a write
                return work(self._state)
            return self._patiently(work, write=write)

    def _patiently(self, work: Callable[[HistoryState], Result], *, write: bool) -> Result:
        """Works with document and journal; starts again if they change meanwhile, or the index fails."""
        for _ in range(_MAX_TRIES):
            try:
                self._check_folder()
                self._follow_others()
                with HistoryState(self.path, self.journal_path, self._lock, write=write) as self._state:
                    return self._do(work, self._state)
            except (DocumentChanged, IndexOutdated):
                pass
            except FileNotFoundError:
                if not write:
                    raise
                self._undo.made(files.ensure_folder(self.folder))
            except (sqlite3.Error, IndexMismatch):
                self._index_faults += 1
                if self._index_faults > _MOST_FAULTS:
                    raise
            finally:
                self._state = None
        raise CorruptState(f"{self.path} keeps changing: wait until the other program is finished, then try again")

    def _check_folder(self) -> None:
        """A link in a cloned repository must not redirect us."""
        if not self._is_checked and os.path.lexists(self.folder):
            files.ensure_folder(self.folder)
            self._is_checked = True

    def _follow_others(self) -> None:
        """Another process may have created the history under the separate name, besides another program's file."""
        apart = layout.history_apart(self.root)
        if self.path != apart and os.path.lexists(apart):
            self.path = apart

    def _do(self, work: Callable[[HistoryState], Result], state: HistoryState) -> Result:
        try:
            state.catalog = self._find_catalog(state)
            done = work(state)
            if state.catalog.is_filed:
                self._index_faults = 0
            return done
        except BaseException as error:
            self._forget()  # it may be ahead of the files
            if isinstance(error, RalphError | OSError):
                self._take_back(state)
            raise

    def _take_back(self, state: HistoryState) -> None:
        """A refused command leaves nothing behind. The lock is still held: a waiting process will lock a new folder."""
        if state.is_locked and not (os.path.lexists(self.path) or os.path.lexists(self.journal_path)):
            self._undo.roll_back()

    # --- the catalog ----------------------------------------------------------------------------

    def _find_catalog(self, state: HistoryState) -> Catalog:
        """The catalog for the current files: the one in memory, the one in the index file, or a new one."""
        catalog = self._catalog
        if catalog is None or not state.fits(catalog.facts):
            self._forget()
            state.reopen_journal()
            self._wait_for_document(state)
            catalog = self._catalog = self._load_index(state) or self._made(state)
            _read_new_lines(catalog, state)
        elif state.has_more:
            _read_new_lines(catalog, state)
        return catalog

    def _wait_for_document(self, state: HistoryState) -> None:
        """Some programs remove the old file before they put a new one in place: then it is missing for a moment."""
        is_there = state.document.info is not None
        if not is_there and (self._had_document or state.journal.is_there) and state.document.is_changing():
            raise DocumentChanged
        self._had_document = is_there

    def _settled(self, state: HistoryState) -> HistoryState:
        """Puts everything into the tables. Another process may already have done so."""
        if state.catalog.is_filed and state.catalog.refresh():
            state.catalog = self._find_catalog(state)
        state.catalog.settle()
        return state

    def _can_save_index(self, state: HistoryState) -> bool:
        """Only a large history has its index in a file. If that can't be used, it works without."""
        return self._index_faults < _MOST_FAULTS and state.is_locked and not state.is_small

    def _load_index(self, state: HistoryState) -> Catalog | None:
        if self._index_faults or not self._can_save_index(state):
            return None
        catalog = Catalog.from_file(self.index_path)
        if catalog and not state.fits(catalog.facts):
            catalog.close()
            return None
        return catalog

    def _made(self, state: HistoryState) -> Catalog:
        """Reads the whole document. For a large one, the index is saved, so that this happens only once."""
        catalog = Catalog.in_memory()
        catalog.facts.identity = state.document.identity
        data = state.read(0, state.document.size)
        try:
            catalog.fill(data)
        except InvalidDocument as error:
            if state.document.is_changing() or self._step_aside(data):
                raise DocumentChanged from None  # it was read while being written, or is not ours
            raise self.build_corrupt_error(error) from None
        return self._save_index(catalog, state) or catalog

    def _step_aside(self, data: bytes) -> bool:
        """Leaves another program's progress.json alone: from now on, ours has another name."""
        apart = layout.history_apart(self.root)
        if self.path == apart or not neighbour.is_foreign(data):
            return False
        self.path = apart
        return True

    def build_corrupt_error(self, error: InvalidDocument) -> CorruptState:
        advice = "" if isinstance(error, VersionTooNew) else "; fix it, or restore a backup"
        return CorruptState(f"{self.path}: {error}{advice} (the file is not changed)")

    def _save_index(self, catalog: Catalog, state: HistoryState) -> Catalog | None:
        """Saves the catalog to a file next to the journal, if possible."""
        if not self._can_save_index(state):
            return None
        aside = f"{self.index_path}.aside"
        try:
            self._remove_index()
            catalog.save(aside)
            if state.document.info:
                os.chmod(aside, stat.S_IMODE(state.document.info.st_mode) & 0o666)  # as private as the document is
            os.replace(aside, self.index_path)
            filed = Catalog.from_file(self.index_path)
        except (OSError, sqlite3.Error):
            self._remove_index()
            return None  # a read-only folder, or a full disk: it is built again next time
        if filed:
            catalog.close()
        return filed

    def _forget(self) -> None:
        if self._catalog:
            self._had_document = self._had_document or self._catalog.facts.identity is not None
            self._catalog.close()
        self._catalog = None

    def _remove_index(self) -> None:
        aside = f"{self.index_path}.aside"
        for path in (f"{self.index_path}-journal", self.index_path, aside, f"{aside}-journal"):
            try:
                os.unlink(path)
            except OSError:
                pass  # only a cache; one that can't be removed is not used either

    def whole_document(self) -> tuple[bytes, bool] | None:
        """The document's bytes, and whether its layout is known; None if they are not the whole history."""
        with self._turn:
            self.first_use()
            if self._state:
                return None
            self._check_folder()
            with HistoryState(self.path, self.journal_path, self._lock, write=False) as state:
                try:
                    data = None if state.journal.is_there else state.read(0, state.document.size)
                    return None if data is None else (data, self._has_current_catalog(state) or document.is_plain(data))
                except DocumentChanged:
                    return None

    def _has_current_catalog(self, state: HistoryState) -> bool:
        if self._catalog is None or not state.fits(self._catalog.facts):
            self._forget()
            self._catalog = self._load_index(state)
        return self._catalog is not None

    # --- writing --------------------------------------------------------------------------------

    def write(self, make: Callable[[HistoryState], Batch]) -> Batch:
        """Writes a batch that is built while the lock is held; returns what was new, with final ids."""
        return self._with_state(lambda state: self._write(state, make(state)), write=True)

    def create(self, batch: Batch) -> bool:
        """Creates the document with these records, if there is none; returns whether it did."""

        def make(state: HistoryState) -> bool:
            if state.document.info is None:
                self._fold(state, resolve(state.catalog, state, self._prepare_batch(batch)[1]))
                return True
            return False

        return self._with_state(make, write=True)

    def masked(self, text: str) -> str:
        """The text as the history would contain it: without secrets."""
        return str(secrets.mask(text, self._secrets))

    def _write(self, state: HistoryState, wanted: Batch) -> Batch:
        if state.catalog.facts.mend:
            self._fold(state)  # nothing may be added to a journal that does not apply as it is written
        data, wanted = self._prepare_batch(wanted)
        if wanted.is_more_than_entries or state.catalog.is_behind(_UNSETTLED):
            self._settled(state)
        batch = resolve(state.catalog, state, wanted)
        if not batch:
            return batch
        if state.is_small:
            self._fold(state, batch)
        else:
            self._add_line(state, batch, data if batch is wanted else journal.encode(batch))
        return batch

    def _prepare_batch(self, batch: Batch) -> tuple[bytes, Batch]:
        """The batch as JSON, and parsed again: every field checked, no secret in its texts. Raises InvalidValue."""
        data = _encode_batch(batch)
        if self._secret_texts and any(text in data for text in self._secret_texts):
            plain = secrets.mask(msgspec.json.decode(data), self._secrets, except_for=_NO_FREE_TEXT)
            data = msgspec.json.encode(plain)
        try:
            return data, journal.decode(data)
        except msgspec.ValidationError as error:
            from ralphtool.history import schema

            raise InvalidValue(schema.explain(error, msgspec.json.decode(data), Progress)) from None

    def _add_line(self, state: HistoryState, batch: Batch, data: bytes) -> None:
        """One synced write after the last complete line. On failure, the journal is unchanged."""
        facts = state.catalog.facts
        head = b"" if facts.read_to else journal.build_head()
        line = journal.encode_line(data)
        if state.is_torn:
            state.journal.cut(facts.read_to)
            state.catalog.journal_end = 0
        state.catalog.journal_end = state.journal.write(
            head + line, facts.read_to, state.catalog.journal_end, state.document.info
        )
        facts.head = head.decode() or facts.head
        facts.last, facts.last_check = facts.read_to + len(head), line[:8].decode()
        facts.read_to = facts.last + len(line)
        state.catalog.take(LocatedBatch(batch, facts.last, len(line) - 1))
        if facts.read_to * _SHARE >= state.document.size and self._failed_fold.get(facts.head, 0) < facts.read_to:
            self._fold_now_or_later(state)

    # --- folding --------------------------------------------------------------------------------

    def fold(self) -> bool:
        """Puts everything into progress.json; returns whether there was anything to fold."""
        if not os.path.lexists(self.journal_path):
            return False
        return self._with_state(self._fold_all, write=True)

    def _fold_all(self, state: HistoryState) -> bool:
        if state.journal.is_there:
            self._fold(state)
            return True
        return False

    def _fold_now_or_later(self, state: HistoryState) -> None:
        """The new records are already safe in the journal. A failed fold is tried again when that has doubled."""
        facts = state.catalog.facts
        try:
            self._fold(state)
        except (OSError, DocumentChanged, IndexOutdated, IndexMismatch, InvalidDocument, sqlite3.Error) as error:
            self._failed_fold = {facts.head: 2 * facts.read_to}
            self._forget()
            why = ", because another program was writing it" if isinstance(error, DocumentChanged) else f" ({error})"
            self.notices.append(f"{self.path} could not be updated{why}; new records stay in the journal")

    def _fold(self, state: HistoryState, batch: Batch | None = None) -> None:
        self._settled(state)
        catalog, old = state.catalog, state.document
        self._set_aside(catalog)
        catalog.db.execute("BEGIN")
        if batch:
            catalog.take(LocatedBatch(batch))
        grown = document.build_update(old.read, catalog.facts.layout, *catalog.list_unfolded(state))
        new = files.replace_version(self.path, document.apply_edits(old.read, old.size, grown.edits), old.info)
        if new is None:
            raise DocumentChanged
        state.journal.remove()
        state.is_torn = False
        old.close()
        state.document = Document(self.path)
        self._note_fold(state, grown, new)

    def _note_fold(self, state: HistoryState, grown: DocumentUpdate, new: os.stat_result) -> None:
        """The records are in the document. If anything fails here, the index is rebuilt."""
        catalog = state.catalog
        if not state.document.is_version(new):  # another program has already replaced it
            self._forget()
            return
        try:
            catalog.folded(state.document.identity, grown.layout, grown.places)
            catalog.db.execute("COMMIT")
            if not (state.is_small or catalog.is_filed):
                self._catalog = state.catalog = self._save_index(catalog, state) or catalog
        except sqlite3.Error:
            self._forget()
            self._remove_index()

    def _set_aside(self, catalog: Catalog) -> None:
        """Saves the unusable records before their journal is removed."""
        problems = catalog.problems()
        if not problems:
            return
        known = _read_lines(self.damaged_path)  # a killed fold may already have saved them
        fresh = {text: reason for text, reason in problems if text not in known}
        files.append(self.damaged_path, b"".join(b"# %b\n%b\n" % (fresh[text].encode(), text) for text in fresh))
        for _, reason in problems:
            self.notices.append(f"a record of {self.journal_path} was moved to {self.damaged_path}: {reason}")


_all: weakref.WeakSet[Store] = weakref.WeakSet()


def _begin_all() -> None:
    for store in _all:
        store._begin()


os.register_at_fork(after_in_child=_begin_all)


def _read_new_lines(catalog: Catalog, state: HistoryState) -> None:
    """Reads the new lines of the journal."""
    facts = catalog.facts
    catalog.journal_end = state.journal.size
    found = journal.read_lines(state.read_journal(facts.read_to, catalog.journal_end), facts.read_to)
    state.is_torn = found.is_torn
    catalog.db.execute("BEGIN")
    for line in (*found.lines, *found.doubtful):
        _apply_line(catalog, state, line)
    facts.head = state.journal.head
    if found.length:
        facts.last, facts.last_check = _find_last(found.lines, facts)
        facts.read_to += found.length
    if facts.mend or any(line.batch and line.batch.is_more_than_entries for line in found.lines):
        catalog.settle()
        catalog.note()  # part of it may already be in the tables, but not in the stored facts
    catalog.db.execute("COMMIT")


def _find_last(lines: list[journal.JournalLine], facts: CatalogState) -> tuple[int, str]:
    return (lines[-1].start, lines[-1].text[:8].decode("latin-1")) if lines else (0, facts.head[:8])


def _apply_line(catalog: Catalog, state: HistoryState, line: journal.JournalLine) -> None:
    facts = catalog.facts
    if line.batch is None:
        catalog.set_aside(line.text, line.problem or "")
        facts.has_gaps = True
        return
    aside: list[tuple[bytes, str]] = []
    batch = resolve(catalog, state, line.batch, aside)
    for text, reason in aside:
        catalog.set_aside(text, reason)
    if batch == line.batch:
        facts.mend = facts.mend or not line.is_whole
        catalog.take(LocatedBatch(batch, line.start, len(line.text)))
    else:
        facts.mend = True
        catalog.take(LocatedBatch(batch))


def _encode_batch(batch: Batch) -> bytes:
    try:
        return journal.encode(batch)
    except (TypeError, ValueError) as error:  # includes UnicodeEncodeError
        raise InvalidValue(f"the record can't be written as JSON: {error}") from None


def _read_lines(path: str) -> list[bytes]:
    try:
        fd = files.open_in_project(path)
    except FileNotFoundError:
        return []
    try:
        return files.read_fd(fd).split(b"\n")
    finally:
        os.close(fd)
