"""Files that survive a kill: atomic replacement, locks, and private folders under the temporary directory.

It imports little, and only from the standard library: every command that an agent calls imports this module.

One file, although over 500 lines: each further module would make those calls slower.
"""

import errno
import fcntl
import os
import stat

from ralphtool.errors import CorruptState, IoError, UnsafePath, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

# A FIFO planted in place of our file must not block us, and a link must not redirect us.
_PRIVATE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
_MAX_TRIES = 50  # reads of a file that another program keeps writing to


def tmp_dir() -> str:
    """Python's temporary directory, without the cost of importing `tempfile`.

    An unusable TMPDIR is refused: the next command would not find records that were written elsewhere.
    """
    if wanted := os.environ.get("TMPDIR"):
        if not _can_write(wanted):
            raise IoError(f"TMPDIR is {shorten(wanted)}, which is not a writable folder: create it, or unset TMPDIR")
        return os.path.abspath(wanted)
    for folder in (os.environ.get("TEMP"), os.environ.get("TMP"), "/tmp", "/var/tmp", "/usr/tmp"):
        if folder and _can_write(folder):
            return os.path.abspath(folder)
    return os.getcwd()


def _can_write(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def private_path(*parts: str) -> str:
    """The path of one of our files under the temporary directory; those of its folders that exist are checked."""
    folder = tmp_dir()
    for part in parts[:-1]:
        folder = os.path.join(folder, part)
        try:
            info = os.lstat(folder)
        except FileNotFoundError:
            continue
        _check_private(info, folder, stat.S_ISDIR)
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(folder, 0o700)
    return os.path.join(folder, parts[-1])


def make_private_folders(path: str) -> list[str]:
    """Creates the missing folders of a path from `private_path`; returns those that it created."""
    folder = os.path.dirname(path)
    if os.path.lexists(folder):
        return []
    made = make_private_folders(folder)
    try:
        _make_folder(folder, 0o700)
        made.append(folder)
    except FileExistsError:  # another process was faster, possibly another user's
        _check_private(os.lstat(folder), folder, stat.S_ISDIR)
    except OSError:
        for empty in reversed(made):
            os.rmdir(empty)
        raise
    return made


def _make_folder(path: str, mode: int = 0o777) -> None:
    os.mkdir(path, mode)
    try:
        sync_folder(path)
    except OSError:
        os.rmdir(path)
        raise


def ensure_folder(path: str) -> list[str]:
    """Creates one of our folders inside the project if it is missing; refuses a link. Returns what it created."""
    try:
        _make_folder(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise _build_no_folder_error(path) from None
        return []
    return [path]


def _check_private(info: os.stat_result, path: str, kind: "Callable[[int], bool]") -> None:
    if not kind(info.st_mode):
        raise _build_no_folder_error(path) if kind is stat.S_ISDIR else _build_not_plain_error(path)
    if info.st_uid != os.geteuid():
        raise UnsafePath(f"{path} belongs to another user (uid {info.st_uid}): move it away, or set TMPDIR")


def open_private(path: str, flags: int = os.O_RDONLY) -> int:
    """Opens one of our files; raises FileNotFoundError, or UnsafePath if it is not ours."""
    try:
        fd = os.open(path, flags | _PRIVATE_FLAGS, 0o600)
    except FileNotFoundError:
        raise
    except OSError:
        if os.path.lexists(path):
            _check_private(os.lstat(path), path, stat.S_ISREG)
        raise
    try:
        _check_private(os.fstat(fd), path, stat.S_ISREG)
    except UnsafePath:
        os.close(fd)
        raise
    return fd


def open_in_project(path: str, flags: int = os.O_RDONLY) -> int:
    """Opens a file that we keep inside the project, with ordinary permissions; never through a link."""
    try:
        fd = os.open(path, flags | _PRIVATE_FLAGS, 0o666)
    except FileNotFoundError:
        raise
    except OSError:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise _build_not_plain_error(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _build_not_plain_error(path)
    return fd


def _build_no_folder_error(path: str) -> UnsafePath:
    return UnsafePath(f"{path} must be a plain folder, but is a link or a file: move it away")


def _build_not_plain_error(path: str) -> UnsafePath:
    return UnsafePath(f"{path} must be a regular file, but is a link or a special file: move it away")


def read_fd(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, _CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def read_at(fd: int, start: int, end: int) -> bytes:
    """The bytes from start to end; fewer if the file ends earlier."""
    data = os.pread(fd, end - start, start)
    while len(data) < end - start and (more := os.pread(fd, end - start - len(data), start + len(data))):
        data += more
    return data


def write_fd(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_at(fd: int, data: bytes, position: int) -> None:
    written = os.pwrite(fd, data, position)
    while written < len(data):
        written += os.pwrite(fd, data[written:], position + written)


def read_private(path: str) -> bytes:
    fd = open_private(path)
    try:
        return read_fd(fd)
    finally:
        os.close(fd)


def read(path: str) -> bytes:
    """Reads a user's file, following links. Anything but a regular file raises OSError instead of blocking."""
    fd = open_plain(path, os.O_RDONLY)
    try:
        return _read_stable(fd)[0]
    finally:
        os.close(fd)


def _read_stable(fd: int) -> tuple[bytes, os.stat_result]:
    """A file's content, and its state at that time. If another program writes to it meanwhile, it is read again."""
    for _ in range(_MAX_TRIES):
        before = os.fstat(fd)
        os.lseek(fd, 0, os.SEEK_SET)
        data = read_fd(fd)
        if version(before) == version(os.fstat(fd)):
            break
    return data, before


def version(info: os.stat_result) -> tuple[int, int]:
    """Values that change when a file is written to."""
    return info.st_mtime_ns, info.st_size


def open_plain(path: str, flags: int = os.O_RDONLY) -> int:
    """Opens a file of any origin. Anything but a regular file raises OSError instead of blocking."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return fd


class Undo:
    """Undoes the steps of a block if it fails, so that a refused command leaves nothing behind."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def made(self, paths: list[str]) -> None:
        self._steps += [lambda path=path: _remove_path(path) for path in paths]  # type: ignore[misc]

    def step(self, step: "Callable[[], None]") -> None:
        self._steps.append(step)

    def forget(self) -> None:
        """Keeps what was created."""
        self._steps = []

    def __enter__(self) -> "Undo":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind:
            self.roll_back()

    def roll_back(self) -> None:
        for step in reversed(self._steps):
            try:
                step()
            except OSError:
                pass  # the first error is the one to report; anything left over is empty, or counts as abandoned
        self.forget()


def _remove_path(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    else:
        os.unlink(path)


class FileLock:
    """Holds the exclusive lock of a file while the block runs; waits for the current holder.

    Our writers replace files, and a lock stays with the replaced one. So after the wait we check whether
    the path still names the file that we locked, and start again if not. `ours` refuses links and other
    users' files, `here` only links. Files are opened for writing where permitted, because network file
    systems require that for such a lock.
    """

    def __init__(self, path: str, *, ours: bool = False, here: bool = False, make: bool = False) -> None:
        self.path = path
        self._opener = open_private if ours else open_in_project if here else open_plain
        self.make = make
        self.fd = -1

    def __enter__(self) -> "FileLock":
        while True:
            self.fd = self._open()
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX)
                if self._is_current():
                    return self
            except BaseException:
                self._close()
                raise
            self._close()

    def _close(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def _open(self) -> int:
        try:
            return self._opener(self.path, os.O_RDWR | (os.O_CREAT if self.make else 0))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not os.path.lexists(self.path):
                raise
            return self._opener(self.path, os.O_RDONLY)  # a read-only file can be locked too

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self._close()

    def read(self) -> bytes:
        return read_fd(self.fd)


def _aside_path(path: str) -> str:
    # One name for each target, so that the next writer cleans up after a killed one.
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > 200:  # file names are limited to 255 bytes
        import zlib

        name = f"{name[:40]}-{zlib.crc32(os.fsencode(name))}"
    return os.path.join(folder, f".{name}.ralph-aside")


def _write_aside(
    path: str,
    pieces: "Iterable[bytes]",
    mode: int = 0o600,
    like: os.stat_result | None = None,
    aside: str | None = None,
) -> str:
    aside = aside or _aside_path(path)
    try:
        os.unlink(aside)
    except FileNotFoundError:
        pass
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        _write_pieces(fd, pieces, like)
    except BaseException as error:
        os.unlink(aside)
        if isinstance(error, OSError):
            error.filename = error.filename or path
        raise
    finally:
        os.close(fd)
    return aside


def _write_pieces(fd: int, pieces: "Iterable[bytes]", like: os.stat_result | None) -> None:
    for piece in pieces:
        write_fd(fd, piece)
    if like:
        _keep_owner_and_mode(fd, like)
    os.fsync(fd)


def _keep_owner_and_mode(fd: int, like: os.stat_result) -> None:
    if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except PermissionError:
            pass  # only root may change the owner: the new file then belongs to us
    os.fchmod(fd, stat.S_IMODE(like.st_mode))


def _publish(aside: str, path: str, act: "Callable[[str, str], None]") -> None:
    try:
        act(aside, path)
    except OSError as error:
        os.unlink(aside)
        error.filename = error.filename or path
        raise
    sync_folder(path)


def replace(path: str, data: bytes) -> None:
    """Replaces one of our files atomically: a crash leaves the old or the new version. Call it under a lock."""
    _publish(_write_aside(path, (data,)), path, os.replace)


def create(path: str, data: bytes, mode: int) -> None:
    """Creates a user's file atomically; raises FileExistsError if the path is taken. Call it under a lock."""
    aside = _write_aside(path, (data,), mode)
    try:
        publish(aside, path)
        sync_folder(path)
    finally:
        os.unlink(aside)


def prepare(path: str, data: bytes) -> str:
    """Writes one of our files aside, to be published later: by then everything that needs disk space is done."""
    return _write_aside(path, (data,), aside=f"{_aside_path(path)}-{os.getpid()}")


def publish(aside: str, path: str, *, over: bool = False) -> None:
    """Puts a prepared file in place atomically. Unless `over` is set, an existing file raises FileExistsError."""
    (os.replace if over else os.link)(aside, path)


def finish_publish(aside: str, path: str) -> None:
    """Makes a published file durable, and removes its aside file."""
    sync_folder(path)
    remove(aside)


def append(path: str, data: bytes, *, as_line: bool = False) -> None:
    """Appends to a file that we keep inside the project: all of the data, or nothing on failure.

    With `as_line`, an incomplete last line (after a kill, or from another program) is ended first.
    """
    with FileLock(path, here=True, make=True) as held:
        size = os.lseek(held.fd, 0, os.SEEK_END)
        if as_line and size and os.pread(held.fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            write_fd(held.fd, data)
            os.fsync(held.fd)
        except OSError as error:
            os.ftruncate(held.fd, size)
            error.filename = error.filename or path
            raise
    sync_folder(path)


def remove(path: str) -> None:
    """Removes a file durably; a missing one is fine."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    sync_folder(path)


def clear(path: str) -> None:
    """Removes a file or a whole folder, even a read-only one; a missing one is fine."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            _clear_folder(path)
        else:
            _unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except PermissionError:
        os.chmod(folder_of(path), 0o700)
        os.unlink(path)


def _clear_folder(path: str) -> None:
    os.chmod(path, 0o700)
    for name in os.listdir(path):
        clear(os.path.join(path, name))
    os.rmdir(path)


def remove_empty_above(path: str, top: str) -> None:
    """Removes the empty folders above a path, up to but not including `top`."""
    folder = os.path.dirname(path)
    while folder != top and folder.startswith(top):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def sync_folder(path: str) -> None:
    fd = os.open(folder_of(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        error.filename = error.filename or path
        raise
    finally:
        os.close(fd)


def rewrite(path: str, change: "Callable[[bytes], bytes]") -> bool:
    """Replaces a user's file by the result of `change`; returns whether anything changed.

    Our own writers take turns. An editor ignores our lock: if the file changed while we were preparing
    the new one, we start again rather than overwrite the user's work.
    """
    path = os.path.realpath(path)
    while True:
        with FileLock(path) as held:
            old, before = _read_stable(held.fd)
            new = change(old)
            if new == old:
                remove(_aside_path(path))  # a killed writer may have left one
                return False
            aside = _write_aside(path, (new,), like=before)
            if _same_version(before, path):
                _publish(aside, path, os.replace)
                return True
            os.unlink(aside)


def replace_version(path: str, pieces: "Iterable[bytes]", before: os.stat_result | None) -> os.stat_result | None:
    """Replaces the version of a project's file that was there `before`, if any.

    Call it under a lock. Returns the state of the new file. If a program that ignores the lock has changed the file
    meanwhile, it is left alone, and None is returned.
    """
    # Its mode is never more permissive than before, not even while it is being written.
    aside = _write_aside(path, pieces, stat.S_IMODE(before.st_mode) if before else 0o666, like=before)
    if not (_same_version(before, path) if before else not os.path.lexists(path)):
        os.unlink(aside)
        return None
    new = os.stat(aside)
    _publish(aside, path, os.replace)
    return new


def _same_version(before: os.stat_result, path: str) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(before, now) and version(before) == version(now)


def decode(data: bytes, path: str) -> str:
    """The text of one of our own files."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptState(f"{path} is damaged (byte {error.start} is not UTF-8): move it away") from None


def folder_of(path: str) -> str:
    return os.path.dirname(path) or "."
