"""Switches files of an attempt between old and new, in the working tree itself.

A proof runs gates on two trees that are not in any commit: the work with the old tests, and the old source with the new
tests. Creating and checking out these trees takes a dozen git commands. The few files that differ are known, with
their contents, so they are written directly. If git would write something else (filters, line endings, submodules,
large files), this can't be used.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from ralphtool.core import files
from ralphtool.sandbox import beneath
from ralphtool.workspace.paths import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ralphtool.workspace.git import ChangedFile

_LINK, _PROGRAM, _FILE = "120000", "100755", "100644"
_ATTRIBUTES = ".gitattributes"


class FileState(Struct, frozen=True):
    """A file as git has it; without a mode, there is no file."""

    mode: str = ""
    data: bytes = b""


GONE = FileState()

# Files that are neither in their old nor in their new state; None removes one, bytes leave it its mode.
Contents: TypeAlias = "Mapping[str, FileState | bytes | None]"


def list_states(
    changed: Iterable[ChangedFile], blobs: Mapping[str, bytes]
) -> dict[str, tuple[FileState, FileState]] | None:
    """The old and new state of each changed path; None if some were not read, or only git can write them."""
    found: dict[str, tuple[FileState, FileState]] = {}
    for one in changed:
        if one.is_submodule or any(blob and blob not in blobs for blob in (one.old_blob, one.new_blob)):
            return None
        old = FileState(one.old_mode, blobs[one.old_blob]) if one.old_blob else GONE
        new = FileState(one.new_mode, blobs[one.new_blob]) if one.new_blob else GONE
        if one.path == one.old_path:
            found[one.path] = (old, new)
        else:
            found[one.old_path] = (old, GONE)
            found[one.path] = (GONE, new)
    return found


def is_written_as_it_is(top: str, common: str, paths: Iterable[str]) -> bool:
    """Whether no git attributes can make a file look different in the working tree."""
    paths, folders = list(paths), {""}
    if os.path.lexists(os.path.join(common, "info", "attributes")):
        return False
    if any(os.path.basename(path) == _ATTRIBUTES for path in paths):
        return False  # one side has them
    for path in paths:
        while path := os.path.dirname(path):
            folders.add(path)
    return not any(os.path.lexists(os.path.join(top, folder, _ATTRIBUTES)) for folder in folders)


class SwappedFiles:
    """The changed files of an attempt, each in place in its old or its new state."""

    def __init__(self, top: str, states: Mapping[str, tuple[FileState, FileState]]) -> None:
        self._top = top
        self._states = states
        self._shown = {path: new for path, (_, new) in states.items()}

    @property
    def paths(self) -> Iterable[str]:
        return self._states

    def can_show(self, contents: Contents) -> bool:
        """Whether it can put these contents in place: it knows only the files that the attempt has changed."""
        names = set(map(printable, self._states))
        return all(name in names and data is not None for name, data in contents.items())

    def has_swapped(self, path: str) -> bool:
        """Whether something other than the work is in place."""
        return path in self._states and self._shown[path] != self._states[path][1]

    def find_changed(self) -> dict[str, FileState]:
        """Files that something else has changed since they were put in place, and how they were."""
        return {path: state for path, state in self._shown.items() if not _is_as(self._top, path, state)}

    def show(self, is_old: Callable[[str], bool], contents: Contents, moment: int) -> None:
        """Puts some files in place in their old state, the others in their new state, or with other contents."""
        wanted = {path: self._choose(path, is_old, contents) for path in self._states}
        # Files that differ from the work are always written anew: git can't tell whether the last gate changed them.
        work = {path: new for path, (_, new) in self._states.items()}
        changes = {path: state for path, state in wanted.items() if not state == self._shown[path] == work[path]}
        self._shown |= changes
        _write_all(self._top, changes, moment)

    def _choose(self, path: str, is_old: Callable[[str], bool], contents: Contents) -> FileState:
        old, new = self._states[path]
        name = printable(path)
        if (data := contents.get(name)) is not None:
            return data if isinstance(data, FileState) else FileState(new.mode or old.mode, data)
        return old if is_old(name) else new


def build_swap(
    top: str, common: str, changed: Iterable[ChangedFile], blobs: Mapping[str, bytes]
) -> SwappedFiles | None:
    """None if only git can write the files."""
    states = list_states(changed, blobs)
    return SwappedFiles(top, states) if states is not None and is_written_as_it_is(top, common, states) else None


def _write_all(top: str, states: Mapping[str, FileState], moment: int) -> None:
    """First removes files that can't be overwritten, since a file can replace a folder. Written files get `moment`."""
    for path, state in states.items():
        full = os.path.join(top, path)
        if not beneath.is_reached(top, path) or _is_rewritable(full, state):
            continue
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
            os.unlink(full)
            files.remove_empty_above(full, top)
    for path, state in states.items():
        if state.mode:
            # A gate may have replaced a folder by a link: it could lead anywhere, so it is removed.
            beneath.make_folder(top, os.path.dirname(path))
            _write(os.path.join(top, path), state, moment)


def _is_as(top: str, path: str, state: FileState) -> bool:
    """Whether a file is in this state. A folder in its place is not the file."""
    try:
        return _read_state(os.path.join(top, path)) == state if beneath.is_reached(top, path) else not state.mode
    except OSError:
        return False


def read_in_place(top: str, path: str, most: int) -> bytes | None:
    """The contents of a file or a link; None for anything else, behind a link, or with more bytes."""
    full = os.path.join(top, path)
    try:
        state = _read_state(full) if beneath.is_reached(top, path) and os.lstat(full).st_size <= most else GONE
    except OSError:
        return None
    return state.data if state.mode else None


def _read_state(full: str) -> FileState:
    try:
        mode = os.lstat(full).st_mode
    except FileNotFoundError:
        return GONE
    if stat.S_ISLNK(mode):
        return FileState(_LINK, os.fsencode(os.readlink(full)))
    if not stat.S_ISREG(mode):
        return GONE
    return FileState(_PROGRAM if mode & 0o100 else _FILE, files.read(full))


def _is_rewritable(full: str, state: FileState) -> bool:
    """Whether a plain file becomes a plain file, with the same permissions."""
    try:
        mode = os.lstat(full).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) and state.mode not in ("", _LINK) and bool(mode & 0o100) == (state.mode == _PROGRAM)


def _write(path: str, state: FileState, moment: int) -> None:
    if state.mode == _LINK:
        os.symlink(state.data, os.fsencode(path))
        return
    mode = 0o777 if state.mode == _PROGRAM else 0o666  # minus the user's umask
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(state.data)
        file.flush()
        os.utime(fd, (moment, moment))


def set_time(top: str, path: str, moment: int) -> None:
    full = os.path.join(top, path)
    if beneath.is_reached(top, path) and os.path.isfile(full) and not os.path.islink(full):
        os.utime(full, (moment, moment))
