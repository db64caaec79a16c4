"""Document, journal and lock as files: what stands open while somebody asks or writes."""

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
# The journal grows by this, in zeros: writing over them costs a disk less than making a file longer, line by line.
_SPARE_BYTES = 1 << 17
_LOOKS, _PAUSE = 5, 0.02
_NO_LOCK_ON_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_READ_ONLY_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EISDIR, errno.ESPIPE, errno.ENXIO)


class DocumentChanged(Exception):
    """Somebody who knows no lock has changed the document meanwhile."""


class Document:
    """progress.json as it is now; where there is none, one without records that nobody has written yet."""

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
        """Whether it is the file that this was the state of, before it got its name."""
        now = self.info
        return now is not None and os.path.samestat(now, info) and files.version(now) == files.version(info)

    def is_changing(self) -> bool:
        """Whether another program is about to write it: what we see may be half of that."""
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
    """The journal as a file: there as long as it holds records, and a little longer than they are.

    It is never asked for its state in the file system: a file whose times somebody has looked at costs the next
    sync more.
    """

    __slots__ = ("_fd", "_refusal", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._refusal: OSError | None = None  # why it can't be written
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno not in _READ_ONLY_ERRORS:
                raise
            self._fd = files.open_in_project(path)  # one that may only be read; or none of ours, which is told
            self._refusal = error

    @property
    def is_there(self) -> bool:
        return self._fd >= 0

    @property
    def head(self) -> str:
        """The first line, which names the journal."""
        return journal.read_head(self._fd) if self._fd >= 0 else ""

    def read(self, start: int, end: int) -> bytes:
        return files.read_at(self._fd, start, end) if start < end else b""

    @property
    def size(self) -> int:
        """With the room for further lines. What is no file is told here, before anything is read from it."""
        if self._fd < 0:
            return 0
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(files.open_in_project(self.path))  # which raises
        return info.st_size

    def write(self, data: bytes, position: int, end: int, like: os.stat_result | None = None) -> int:
        """One synced write; tells where the file ends now, if it ended at `end`. If it fails, all is as it was."""
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
    """The lock of the history: on its folder, which nobody cleans away while there is something in it.

    It stays open in between: an append should cost little more than its write. Where folders can't be locked, as on
    network file systems, a file in it has to do.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = folder
        self._fd = -1
        self._locked = (0, 0)
        self.stamp = -1  # when a file was last made, renamed or removed in the folder
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
        """Whether what we have locked is still what others would lock."""
        try:
            info = os.stat(self._path)
        except FileNotFoundError:
            return False
        self.stamp = info.st_mtime_ns if self._path is self._folder else -1
        return (info.st_dev, info.st_ino) == self._locked

    def open_journal(self, path: str, *, anew: bool = False) -> Journal:
        """The journal, which stays open as long as no file comes into the folder or leaves it.

        Clocks of file systems are coarse: somebody may have been quicker than a tick. So one that was not there is
        looked for again, and so is any journal when the document is another one (`anew`): who folds replaces both.
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

    Who only asks makes nothing, and needs no lock where there is no folder yet.
    """

    __slots__ = ("_journal_path", "_lock", "_path", "_write", "catalog", "document", "has_more", "is_torn", "journal")

    catalog: Catalog

    def __init__(self, path: str, journal_path: str, lock: HistoryLock, *, write: bool) -> None:
        self._path = path
        self._journal_path = journal_path
        self._lock: HistoryLock | None = lock
        self._write = write
        self.has_more = False  # whether the journal has more than the catalog knows
        self.is_torn = False  # whether something stands in the journal behind its last whole line

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
        """Opens the journal anew."""
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
        # Another journal, or an older copy of this one that somebody has put back, differs in that line.
        length = facts.read_to - facts.last
        tail = self.journal.read(facts.last, facts.read_to + 1) if self.journal.is_there else b""
        self.has_more = tail[length:] not in (b"", b"\0")
        is_known = tail[:8] == facts.last_check.encode("latin-1")
        return is_known and (facts.mend or tail[length - 1 : length] == b"\n")

    def read(self, start: int, end: int) -> bytes:
        return self.document.read(start, end)

    def read_journal(self, start: int, end: int) -> bytes:
        return self.journal.read(start, end)
