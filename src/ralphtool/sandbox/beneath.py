"""Access to files below a folder that other programs write to, without following links on the way.

Agents and gates can replace any folder there by a link. Moving, writing or removing a file by its path would then
happen wherever the link leads. Here every folder on the way is opened separately, from the one above it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool.core import files

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(top: str, path: str) -> None:
    """Creates a folder below another. A link or a file in its place is removed."""
    place = top
    for part in filter(None, path.split("/")):
        place = os.path.join(place, part)
        if os.path.islink(place) or not os.path.isdir(place):
            files.clear(place)
            os.mkdir(place)


def is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def is_reached(top: str, path: str) -> bool:
    """Whether the folder of a path exists, without a link on the way to it."""
    try:
        with _open_parent(top, path):
            return True
    except OSError:
        return False


def clear(top: str, path: str) -> None:
    """Removes whatever is there, unless a link is on the way to it."""
    if is_reached(top, path):
        files.clear(os.path.join(top, path))


def unlink(top: str, path: str) -> None:
    """Removes a file; it is not an error if it is gone, or behind a link."""
    try:
        with _open_parent(top, path) as folder:
            os.unlink(os.path.basename(path), dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise


def move(top: str, path: str, to: str, new: str) -> None:
    """Moves a file, a link or a folder from below one folder to below another, and replaces what is there."""
    make_folder(to, os.path.dirname(new))
    clear(to, new)
    with _open_parent(top, path) as source, _open_parent(to, new) as target:
        try:
            os.rename(os.path.basename(path), os.path.basename(new), src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_to_other_disk(top, path, to, new)


def _move_to_other_disk(top: str, path: str, to: str, new: str) -> None:
    """Both parents were reached without a link, and there is nothing at the new place."""
    import shutil  # a run's start does not need it

    source, target = os.path.join(top, path), os.path.join(to, new)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
    files.clear(source)


def copy_file(source: str, top: str, path: str) -> None:
    """Copies a plain file, and replaces what is there."""
    import shutil

    make_folder(top, os.path.dirname(path))
    clear(top, path)
    with open(source, "rb") as old:
        info = os.fstat(old.fileno())
        with open(_create(top, path, stat.S_IMODE(info.st_mode)), "wb") as new:
            shutil.copyfileobj(old, new)
            new.flush()
            os.utime(new.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))


def _create(top: str, path: str, mode: int) -> int:
    with _open_parent(top, path) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(os.path.basename(path), flags, mode, dir_fd=folder)
    os.fchmod(fd, mode)
    return fd


@contextmanager
def _open_parent(top: str, path: str) -> Iterator[int]:
    """The folder that contains a path; raises OSError if a link, or anything else, is in its place."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, os.path.dirname(path).split("/")):
            above, fd = fd, os.open(part, _FOLDER, dir_fd=fd)
            os.close(above)
        yield fd
    finally:
        os.close(fd)


def sweep(top: str, *, with_links: bool = False) -> None:
    """Removes everything that is neither a file, a folder nor a link: opening it could block forever. Makes folders
    accessible that their owner can't read."""
    if with_links and os.path.islink(top):
        files.clear(top)  # only the link, not its target
        return
    for entry in _walk(top):
        is_link = entry.is_symlink()
        if (is_link and with_links) or not (is_link or entry.is_file(follow_symlinks=False)):
            files.clear(entry.path)


def open_folders(top: str) -> None:
    """Makes a folder, and all folders below it, accessible to their owner."""
    for _ in _walk(top):
        pass


def _walk(top: str) -> Iterator[os.DirEntry[str]]:
    """Everything that is not a folder."""
    waiting = [top]
    while waiting:
        for entry in _scan(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                yield entry


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """The contents of a folder; empty if an agent removed it meanwhile."""
    try:
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(folder, mode | 0o700)
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []
