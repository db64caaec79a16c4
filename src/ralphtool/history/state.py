"""Document, journal and lock as files, which are open during a query or a write."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING

from ralphtool.core import files, session
from ralphtool.history import document, journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.history.catalog import Catalog, CatalogState

SMALL = 1 << 20  # below this, every append is folded at once
# The journal grows by this, in zeros: overwriting them is cheaper than extending the file line by line.
_SPARE_BYTES = 1 << 17
_LOOKS, _PAUSE = 5, 0.02
_NO_LOCK_ON_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_READ_ONLY_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EISDIR, errno.ESPIPE, errno.ENXIO)


class DocumentChanged(Exception):
    """A program that ignores the lock has changed the document meanwhile."""


class Document:
    """The current progress.json; if there is none, an empty one that is not written yet."""

    __slots__ = ("_data", "_fd", "identity", "info", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.info = _read_info(path)
        self._fd = -1
        self._data = b""
        if self.info is None:
            name = os.path.basename(os.path.dirname(os.path.dirname(path)))
            self._data = document.build_empty(session.now(), os.fsencode(name).decode("utf-8", "replace"))
        self.size = self.info.st_size if self.info else len(self._data)
        self.identity = _build_identity(self.info)

    def read(self, start: int, end: int) -> bytes:
        if self.info is None:
            return self._data[start:end]
        if self._fd < 0:
            try:
                self._fd = files.open_in_project(self.path)
            except FileNotFoundError:
                raise DocumentChanged from None
            if _build_identity(os.fstat(self._fd)) != self.identity:
                raise DocumentChanged
        data = files.read_at(self._fd, start, end)
        if len(data) < end - start:
            raise DocumentChanged
        return data

    def is_version(self, info: os.stat_result) -> bool:
        """Whether it is the file that had this state before it was put in place."""
        now = self.info
        return now is not None and os.path.samestat(now, info) and files.version(now) == files.version(info)

    def is_changing(self) -> bool:
        """Whether another program is writing it: we may have seen an incomplete version."""
        for _ in range(_LOOKS):
            if _build_identity(_read_info(self.path)) != self.identity:
                return True
            time.sleep(_PAUSE)
        return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _read_info(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _build_identity(info: os.stat_result | None) -> tuple[int, ...] | None:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) if info else None


class Journal:
    """The journal as a file: it exists while it has records, and is a little longer than they are.

    An append never reads its metadata: after a stat, the next sync of a file costs more.
    """

    __slots__ = ("_fd", "_refusal", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._refusal: OSError | None = None  # why it is not writable
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno not in _READ_ONLY_ERRORS:
                raise
            self._fd = files.open_in_project(path)  # a read-only one; this raises if it is not ours
            self._refusal = error

    @property
    def is_there(self) -> bool:
        return self._fd >= 0

    @property
    def head(self) -> str:
        """The first line, which identifies the journal."""
        return journal.read_head(self._fd) if self._fd >= 0 else ""

    def read(self, start: int, end: int) -> bytes:
        return files.read_at(self._fd, start, end) if start < end else b""

    @property
    def size(self) -> int:
        """With the spare room. Raises if it is not a regular file, before anything is read from it."""
        if self._fd < 0:
            return 0
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(files.open_in_project(self.path))  # raises
        return info.st_size

    def write(self, data: bytes, position: int, end: int, like: os.stat_result | None = None) -> int:
        """One synced write; returns the new end of the file, which ended at `end`. A failure changes nothing."""
        if self._refusal:
            raise self._refusal
        is_new = position == 0
        if self._fd < 0:
            self._fd = files.open_in_project(self.path, os.O_RDWR | os.O_CREAT)
            if like:
                os.fchmod(self._fd, stat.S_IMODE(like.st_mode) & 0o666)  # as private as the document is
        if position + len(data) > end:
            data += bytes(_SPARE_BYTES)
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

    def close(self, close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            close(self._fd)
        self._fd = -1


class HistoryLock:
    """The lock of the history: on its folder, which can't be removed while it contains files.

    It stays open in between, so that an append costs little more than its write. If folders can't be locked, as on
    network file systems, a file in it is locked instead.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = folder
        self._fd = -1
        self._locked = (0, 0)
        self.stamp = -1  # when a file in the folder was last created, renamed or removed
        self._journal: Journal | None = None
        self._journal_stamp = -1

    def __enter__(self) -> HistoryLock:
        while True:
            if self._fd < 0:
                self._fd = self._open()
                info = os.fstat(self._fd)
                self._locked = (info.st_dev, info.st_ino)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self._is_there():
                return self
            self.close()

    def _open(self) -> int:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            os.close(fd)
            if error.errno not in _NO_LOCK_ON_FOLDERS:
                raise
            self._path = os.path.join(self._folder, "progress.lock")
            return files.open_in_project(self._path, os.O_RDWR | os.O_CREAT)
        return fd

    def _is_there(self) -> bool:
        """Whether other processes would still lock the same file or folder."""
        try:
            info = os.stat(self._path)
        except FileNotFoundError:
            return False
        self.stamp = info.st_mtime_ns if self._path is self._folder else -1
        return (info.st_dev, info.st_ino) == self._locked

    def open_journal(self, path: str, *, anew: bool = False) -> Journal:
        """The journal, which stays open until a file is added to the folder or removed from it.

        File system clocks are coarse, so another process may have changed the folder within one tick. So a missing
        journal is looked up again, and so is any journal if the document changed (`anew`): a fold replaces both.
        """
        known = self._journal
        if anew or known is None or not known.is_there or self.stamp < 0 or self._journal_stamp != self.stamp:
            self._close_journal()
            known, self._journal_stamp = Journal(path), self.stamp
            self._journal = known
        return known

    def _close_journal(self) -> None:
        if self._journal:
            self._journal.close()
        self._journal = None

    def __exit__(self, *exception: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self, close: Callable[[int], None] = os.close) -> None:
        if self._journal:
            self._journal.close(close)
        self._journal = None
        if self._fd >= 0:
            close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        self.close()


class HistoryState:
    """Document and journal while their lock is held, and the catalog of both.

    A query creates nothing, and needs no lock if there is no folder yet.
    """

    __slots__ = ("_journal_path", "_lock", "_path", "_write", "catalog", "document", "has_more", "is_torn", "journal")

    catalog: Catalog

    def __init__(self, path: str, journal_path: str, lock: HistoryLock, *, write: bool) -> None:
        self._path = path
        self._journal_path = journal_path
        self._lock: HistoryLock | None = lock
        self._write = write
        self.has_more = False  # whether the journal has lines that are not in the catalog
        self.is_torn = False  # whether the journal has something after its last complete line

    def __enter__(self) -> HistoryState:
        try:
            if self._lock:
                self._lock.__enter__()
        except (FileNotFoundError, NotADirectoryError):
            if self._write:
                raise
            self._lock = None
        try:
            path = self._journal_path
            self.journal = self._lock.open_journal(path) if self._lock else Journal(path)
            self.document = Document(self._path)
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.document.close()
        if self._lock is None:
            self.journal.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock:
            self._lock.__exit__()

    def reopen_journal(self) -> None:
        """Opens the journal again."""
        if self._lock:
            self.journal = self._lock.open_journal(self._journal_path, anew=True)

    @property
    def is_small(self) -> bool:
        return self.document.size < SMALL

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def fits(self, facts: CatalogState) -> bool:
        """Whether these are facts about this document and this journal, which may have grown since."""
        if facts.identity != self.document.identity:
            return False
        if not facts.read_to:
            self.has_more = self.journal.is_there
            return True
        # Another journal, or a restored older copy of this one, differs in that line.
        length = facts.read_to - facts.last
        tail = self.journal.read(facts.last, facts.read_to + 1) if self.journal.is_there else b""
        self.has_more = tail[length:] not in (b"", b"\0")
        is_known = tail[:8] == facts.last_check.encode("latin-1")
        return is_known and (facts.mend or tail[length - 1 : length] == b"\n")

    def read(self, start: int, end: int) -> bytes:
        return self.document.read(start, end)

    def read_journal(self, start: int, end: int) -> bytes:
        return self.journal.read(start, end)
