"""progress.json and its journal as one, for any number of processes at once.

    append ──► journal, synced ──► fold: a new progress.json in the place of the old one, and an empty journal
                     ▲
    questions ── catalog (what stands where) ──► the few records that are asked for

One lock, on the journal, for whoever writes and whoever asks. While the document is small, an append is a fold; later
it is one synced line, and a fold comes when the journal has grown to a tenth of the document. Every batch in the
journal can be applied twice without harm, so a fold that was killed between its two steps needs no mending.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ralphtool import files, secrets, session
from ralphtool.errors import CorruptState, InvalidValue
from ralphtool.history import document, journal, schema
from ralphtool.history.catalog import Catalog, Stale, Unfit, Written
from ralphtool.history.document import Invalid
from ralphtool.history.journal import Batch
from ralphtool.history.records import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.history.document import Grown

    Result = TypeVar("Result")

SMALL = 1 << 20  # below this, every append is folded at once
_SHARE = 10  # the journal is folded when it has grown to this part of the document
_UNSETTLED = SMALL  # so much of the journal waits until it goes into the index: that is dear, and cheap to read again
# The journal grows by this, in zeros: writing over them costs a disk less than making a file longer, line by line.
_ROOM = 1 << 17
_NOT_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EISDIR, errno.ESPIPE, errno.ENXIO)
# Fields that refer to something, or say one of a few words. All others are texts that an agent may have written.
_NO_FREE_TEXT = {
    *("id", "prd_id", "timestamp", "iteration", "status", "type", "category", "severity", "action_taken", "confidence"),
    *("related_learning_id", "source_prd_id", "source_entry_id", "created_at", "discovered_at", "recovery_action"),
}
_PATIENCE = 20  # so often do we begin anew when somebody who knows no lock replaces the document


class _Changed(Exception):
    """Somebody who knows no lock has changed the document meanwhile."""


class Document:
    """progress.json as it is now; where there is none, one without records that nobody has written yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.info = _info(path)
        self._fd = -1
        self._data = b""
        if self.info is None:
            name = os.path.basename(os.path.dirname(os.path.dirname(path)))
            self._data = document.empty(session.now(), name)
        self.size = self.info.st_size if self.info else len(self._data)
        self.identity = _identity(self.info)

    def read(self, start: int, end: int) -> bytes:
        if self.info is None:
            return self._data[start:end]
        if self._fd < 0:
            self._fd = files.open_here(self.path)
            if _identity(os.fstat(self._fd)) != self.identity:
                raise _Changed
        data = files.read_at(self._fd, start, end)
        if len(data) < end - start:
            raise _Changed
        return data

    def is_current(self) -> bool:
        return _identity(_info(self.path)) == self.identity

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _info(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(info: os.stat_result | None) -> tuple[int, ...] | None:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) if info else None


class Journal:
    """The journal as a file: there as long as it holds records, and a little longer than they are.

    It is never asked for its state in the file system: a file whose times somebody has looked at costs the next
    sync more.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            self.head = journal.head_of(self._fd)
        except (FileNotFoundError, NotADirectoryError):
            self.head = ""
        except OSError as error:
            self.close()
            if error.errno not in _NOT_TO_WRITE:
                raise
            self._fd = files.open_here(path)  # one that may only be read; or none of ours, which is told
            self.head = journal.head_of(self._fd)

    @property
    def is_there(self) -> bool:
        return self._fd >= 0

    def read(self, start: int, end: int) -> bytes:
        return files.read_at(self._fd, start, end)

    def has_more(self, position: int) -> bool:
        """Whether anything has been written from that position on."""
        return self._fd >= 0 and os.pread(self._fd, 1, position) not in (b"", b"\0")

    def rest(self, position: int) -> bytes:
        return files.read_at(self._fd, position, os.fstat(self._fd).st_size) if self._fd >= 0 else b""

    def write(self, data: bytes, position: int, end: int) -> int:
        """One synced write; tells where the file ends now, if it ended at `end`. If it fails, all is as it was."""
        is_new = self._fd < 0
        if is_new:
            self._fd = files.open_here(self.path, os.O_RDWR | os.O_CREAT)
        if position + len(data) > end:
            data += bytes(_ROOM)
            end = position + len(data)
        try:
            files.write_at(self._fd, data, position)
            os.fdatasync(self._fd)
            if is_new:
                files.sync_folder(self.path)
            return end
        except OSError as error:
            self.remove() if is_new else self.cut(position)
            error.filename = error.filename or self.path
            raise

    def cut(self, position: int) -> None:
        os.ftruncate(self._fd, position)

    def remove(self) -> None:
        if self._fd >= 0:
            self.close()
            files.remove(self.path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class _Lock(files.Locked):
    """The lock of the history. The file stays open in between: an append should cost little more than its write."""

    def __init__(self, path: str) -> None:
        super().__init__(path, here=True)
        self._pid = 0

    def __enter__(self) -> _Lock:
        # After a fork both processes have the same open file, and with it the same lock.
        if self.fd >= 0 and self._pid == os.getpid():
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            if self._still_there():
                return self
        self.close()
        self._pid = os.getpid()
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)
        self.fd = -1

    def __del__(self) -> None:
        self.close()


class State:
    """Document and journal while their lock is held, and the catalog of both.

    Who only asks makes no file, and goes without a lock where there is none yet.
    """

    def __init__(self, path: str, journal_path: str, lock: _Lock, *, write: bool) -> None:
        self._path = path
        self._journal_path = journal_path
        self._lock: _Lock | None = lock
        lock.make = write
        self.is_torn = False  # whether something stands in the journal behind its last whole line
        self.catalog: Catalog

    def __enter__(self) -> State:
        try:
            if self._lock:
                self._lock.__enter__()
        except (FileNotFoundError, NotADirectoryError):
            if self._lock and self._lock.make:
                raise
            self._lock = None
        try:
            self.journal = Journal(self._journal_path)
            self.document = Document(self._path)
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.document.close()
        self.journal.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock:
            self._lock.__exit__()

    @property
    def is_small(self) -> bool:
        return self.document.size < SMALL

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def read(self, start: int, end: int) -> bytes:
        return self.document.read(start, end)

    def read_journal(self, start: int, end: int) -> bytes:
        return self.journal.read(start, end)


class Store:
    """Document, journal and index of one project: appending and folding, and the state of both for whoever asks."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folder = os.path.join(root, ".ralph")
        self.path = os.path.join(self.folder, "progress.json")
        self.journal_path = os.path.join(self.folder, "progress.journal")
        self.damaged_path = os.path.join(self.folder, "progress.journal.damaged")
        self.index_path = os.path.join(self.folder, "progress.index")
        self.lock_path = os.path.join(self.folder, "progress.lock")
        self.notices: list[str] = []  # what went wrong meanwhile, and was answered for; somebody should hear of it
        self._catalog: Catalog | None = None
        self._trusts_index = True
        self._pid = os.getpid()
        self._lock = _Lock(self.lock_path)
        self._turn = threading.RLock()
        self._secrets = secrets.values()
        self._secret_texts = [msgspec.json.encode(secret)[1:-1] for secret in self._secrets]

    def close(self) -> None:
        """Gives back what it holds open; it can be used again. Whoever forgets this loses nothing."""
        self._forget()
        self._lock.close()

    # --- opening --------------------------------------------------------------------------------

    def first_use(self) -> None:
        """What has to be done once, before anything else."""

    def ask(self, question: Callable[[State], Result]) -> Result:
        """Answers a question from document and journal as they are now."""
        return self._with_state(lambda state: question(self._settled(state)), write=False)

    def next_iteration(self, prd_id: str) -> int:
        """The number of the next entry of a PRD."""
        return self._with_state(lambda state: state.catalog.last_iteration(prd_id), write=False) + 1

    def _with_state(self, work: Callable[[State], Result], *, write: bool) -> Result:
        self.first_use()
        for _ in range(_PATIENCE):
            try:
                with self._turn, State(self.path, self.journal_path, self._lock, write=write) as state:
                    return self._do(work, state)
            except (_Changed, Stale):
                pass
            except FileNotFoundError:
                if not files.own_dir(self.folder):
                    raise
            except (sqlite3.Error, Unfit):
                self._remove_index()
                self._trusts_index = False  # where it can't be used, it is done without
        raise CorruptState(f"{self.path} changes again and again: let the other program finish, then try again")

    def _do(self, work: Callable[[State], Result], state: State) -> Result:
        try:
            state.catalog = self._current(state)
            return work(state)
        except BaseException:
            self._forget()  # it may be ahead of what was written
            raise

    # --- the catalog ----------------------------------------------------------------------------

    def _current(self, state: State) -> Catalog:
        """The catalog of what is there now: the one that we have, the one in the file, or a new one."""
        if self._pid != os.getpid():  # after a fork: SQLite's connections don't survive one
            self._pid, self._catalog = os.getpid(), None
        catalog = self._catalog
        if catalog is None or not _fits(catalog, state):
            self._forget()
            catalog = self._catalog = self._from_file(state) or self._made(state)
            _read_on(catalog, state)
        elif state.journal.has_more(catalog.facts.read_to):
            _read_on(catalog, state)
        return catalog

    def _settled(self, state: State) -> State:
        """With everything in the tables. Another process may have put it there already."""
        if state.catalog.is_filed and state.catalog.refresh():
            state.catalog = self._current(state)
        state.catalog.settle()
        return state

    def _may_file(self, state: State) -> bool:
        """Only a big history has its index in a file, and only whoever holds the lock touches that."""
        return self._trusts_index and state.is_locked and not state.is_small

    def _from_file(self, state: State) -> Catalog | None:
        if not self._may_file(state):
            return None
        catalog = Catalog.from_file(self.index_path)
        if catalog and not _fits(catalog, state):
            catalog.close()
            return None
        return catalog

    def _made(self, state: State) -> Catalog:
        """Reads the whole document. A big one leaves an index behind, so that this happens once."""
        catalog = Catalog.in_memory()
        catalog.facts.identity = state.document.identity
        try:
            catalog.fill(state.read(0, state.document.size))
        except Invalid as error:
            if not state.document.is_current():
                raise _Changed from None  # we read it while somebody was writing it
            raise self.broken(error) from None
        return self._filed(catalog, state) or catalog

    def broken(self, error: Invalid) -> CorruptState:
        return CorruptState(f"{self.path}: {error}; mend it, or put back one that was good (it is left as it is)")

    def _filed(self, catalog: Catalog, state: State) -> Catalog | None:
        """The same catalog in a file beside the journal, where one can be written."""
        if not self._may_file(state):
            return None
        aside = f"{self.index_path}.aside"
        try:
            self._remove_index()
            catalog.save(aside)
            os.replace(aside, self.index_path)
            filed = Catalog.from_file(self.index_path)
        except (OSError, sqlite3.Error):
            return None  # a folder that we may only read, or a full disk: then it is made again next time
        if filed:
            catalog.close()
        return filed

    def _forget(self) -> None:
        if self._catalog:
            self._catalog.close()
        self._catalog = None

    def _remove_index(self) -> None:
        for path in (f"{self.index_path}-journal", self.index_path, f"{self.index_path}.aside"):
            try:
                os.unlink(path)
            except OSError:
                pass  # it is only a cache; what can't be removed is not believed either

    def whole_document(self) -> bytes | None:
        """The document as it lies there, read while nobody folds; None if there is more to it than that."""
        with self._turn, State(self.path, self.journal_path, self._lock, write=False) as state:
            try:
                return None if state.journal.head else state.read(0, state.document.size)
            except _Changed:
                return None

    # --- writing --------------------------------------------------------------------------------

    def write(self, make: Callable[[State], Batch]) -> Batch:
        """Writes a batch that is made while the lock is held; tells what of it was new, with its final ids."""
        return self._with_state(lambda state: self._write(state, make(state)), write=True)

    def create(self, batch: Batch) -> None:
        """Makes the document, with these records in it, if there is none."""

        def make(state: State) -> None:
            if state.document.info is None:
                self._fold(state, self._fit_to_write(batch)[1])

        self._with_state(make, write=True)

    def _write(self, state: State, wanted: Batch) -> Batch:
        if state.catalog.facts.mend:
            self._fold(state)  # before anything is added to a journal that does not apply as it is written
        data, wanted = self._fit_to_write(wanted)
        if wanted.is_more_than_entries or state.catalog.is_behind(_UNSETTLED):
            self._settled(state)
        batch = state.catalog.resolve(wanted)
        if not batch:
            return batch
        if state.is_small:
            self._fold(state, batch)
        else:
            self._add_line(state, batch, data if batch is wanted else journal.encode(batch))
        return batch

    def _fit_to_write(self, batch: Batch) -> tuple[bytes, Batch]:
        """The batch as JSON and read back: every field checked, no secret in its texts. Raises InvalidValue."""
        data = _encoded(batch)
        if any(text in data for text in self._secret_texts):
            plain = secrets.masked(msgspec.json.decode(data), self._secrets, except_for=_NO_FREE_TEXT)
            data = msgspec.json.encode(plain)
        try:
            return data, journal.decode(data)
        except msgspec.ValidationError as error:
            raise InvalidValue(schema.explain(error, msgspec.json.decode(data), Progress)) from None

    def _add_line(self, state: State, batch: Batch, data: bytes) -> None:
        """One synced write behind the last whole line. If that fails, the journal is as it was."""
        facts = state.catalog.facts
        head = b"" if facts.read_to else journal.new_head()
        line = journal.line(data)
        if state.is_torn:
            state.journal.cut(facts.read_to)
            state.catalog.journal_end = 0
        state.catalog.journal_end = state.journal.write(head + line, facts.read_to, state.catalog.journal_end)
        facts.head = head.decode() or facts.head
        state.catalog.take(Written(batch, facts.read_to + len(head), len(line) - 1))
        facts.read_to += len(head) + len(line)
        if facts.read_to * _SHARE >= state.document.size:
            self._fold_now_or_later(state)

    # --- folding --------------------------------------------------------------------------------

    def fold(self) -> bool:
        """Puts everything into progress.json; tells whether there was anything to put."""
        if not os.path.lexists(self.journal_path):
            return False
        return self._with_state(self._fold_all, write=True)

    def _fold_all(self, state: State) -> bool:
        if state.journal.is_there:
            self._fold(state)
            return True
        return False

    def _fold_now_or_later(self, state: State) -> None:
        """What was to be written is safe in the journal. A fold that fails is tried again by the next append."""
        try:
            self._fold(state)
        except (OSError, _Changed) as error:
            self._forget()
            why = f": {error}" if isinstance(error, OSError) else ", because somebody else was writing it"
            self.notices.append(f"{self.path} could not be brought up to date{why}; what is new stays in the journal")

    def _fold(self, state: State, batch: Batch | None = None) -> None:
        self._settled(state)
        catalog, old = state.catalog, state.document
        self._set_aside(catalog)
        catalog.db.execute("BEGIN")
        if batch:
            catalog.take(Written(batch))
        grown = document.grow(old.read, catalog.facts.layout, *catalog.unfolded(state))
        if not files.supersede(self.path, document.pieces(old.read, old.size, grown.edits), old.info):
            raise _Changed
        state.journal.remove()
        old.close()
        state.document = Document(self.path)
        self._note_fold(state, grown)

    def _note_fold(self, state: State, grown: Grown) -> None:
        catalog = state.catalog
        try:
            catalog.folded(state.document.identity, grown.layout, grown.places)
            catalog.db.execute("COMMIT")
            if not (state.is_small or catalog.is_filed):
                self._catalog = state.catalog = self._filed(catalog, state) or catalog
        except sqlite3.Error:
            self._forget()  # the records are where they belong; what is where will be read again
            self._remove_index()

    def _set_aside(self, catalog: Catalog) -> None:
        """Saves the records that can't be used, before the journal that holds them is emptied."""
        problems = catalog.problems()
        if not problems:
            return
        known = _lines_of(self.damaged_path)  # a fold that was killed may have saved them already
        fresh = {text: reason for text, reason in problems if text not in known}
        files.append(self.damaged_path, b"".join(b"# %b\n%b\n" % (fresh[text].encode(), text) for text in fresh))
        for _, reason in problems:
            self.notices.append(f"a record of {self.journal_path} was put into {self.damaged_path}: {reason}")


def _fits(catalog: Catalog, state: State) -> bool:
    """Whether a catalog is about this document and this journal; of the journal it may know only a part."""
    facts = catalog.facts
    return facts.identity == state.document.identity and (not facts.read_to or facts.head == state.journal.head)


def _read_on(catalog: Catalog, state: State) -> None:
    """Reads what has been added to the journal since."""
    facts = catalog.facts
    data, _, rest = state.journal.rest(facts.read_to).partition(b"\0")
    whole = journal.whole_lines(data)
    lines = journal.read(data[:whole], facts.read_to)
    if line := journal.without_end(data[whole:], facts.read_to + whole):
        lines.append(line)
        facts.mend = True
        whole = len(data)
    state.is_torn = whole < len(data) or bool(rest.strip(b"\0"))
    catalog.db.execute("BEGIN")
    for line in lines:
        _apply(catalog, line)
    facts.head = state.journal.head
    facts.read_to += whole
    if facts.mend:
        catalog.settle()
        catalog.note()
    catalog.db.execute("COMMIT")


def _apply(catalog: Catalog, line: journal.Line) -> None:
    if line.batch is None:
        catalog.set_aside(line.text, line.problem or "")
        return
    aside: list[tuple[bytes, str]] = []
    batch = catalog.resolve(line.batch, aside)
    for text, reason in aside:
        catalog.set_aside(text, reason)
    if batch == line.batch:
        catalog.take(Written(batch, line.start, len(line.text)))
    else:
        catalog.facts.mend = True
        catalog.take(Written(batch))


def _encoded(batch: Batch) -> bytes:
    try:
        return journal.encode(batch)
    except (TypeError, ValueError) as error:  # also a UnicodeEncodeError
        raise InvalidValue(f"the record can't be written as JSON: {error}") from None


def _lines_of(path: str) -> list[bytes]:
    try:
        fd = files.open_here(path)
    except FileNotFoundError:
        return []
    try:
        return files.read_fd(fd).split(b"\n")
    finally:
        os.close(fd)
