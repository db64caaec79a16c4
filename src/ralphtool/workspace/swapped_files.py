"""Files of an attempt put back as they were, and forth again, in the working tree itself.

A proof runs gates on two trees that are in no commit: the work with the tests as they were, and the old source with the
new tests. To make these trees and check them out takes a dozen git commands. The few files that differ are known, with
their contents, so they are written instead. Where git would write something else (filters, line ends, submodules, large
files), this can't be used.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files
from ralphtool.sandbox import beneath
from ralphtool.workspace.paths import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ralphtool.workspace.git import ChangedFile

_LINK, _PROGRAM = "120000", "100755"
_ATTRIBUTES = ".gitattributes"


class FileState(Struct, frozen=True):
    """A file as git has it; nothing is there where there is no mode."""

    mode: str = ""
    data: bytes = b""


GONE = FileState()


def list_states(
    changed: Iterable[ChangedFile], blobs: Mapping[str, bytes]
) -> dict[str, tuple[FileState, FileState]] | None:
    """What each changed path was and is; None if some of it was not read, or can't be written by us."""
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
    """Whether no attributes of git's can say that a file looks different in the working tree."""
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
    """The changed files of an attempt, each of which is in place as it was or as it is."""

    def __init__(self, top: str, states: Mapping[str, tuple[FileState, FileState]]) -> None:
        self._top = top
        self._states = states
        self._shown = {path: new for path, (_, new) in states.items()}

    def has_swapped(self, path: str) -> bool:
        """Whether something else is in place than the work."""
        return path in self._states and self._shown[path] != self._states[path][1]

    def show(self, is_old: Callable[[str], bool], contents: Mapping[str, bytes], moment: int) -> None:
        """Puts some of the files in place as they were, the others as they are, or with other contents."""
        wanted = {path: self._choose(path, is_old, contents) for path in self._states}
        # What is not as in the work is always written anew: git can't tell whether the last gate has changed it.
        work = {path: new for path, (_, new) in self._states.items()}
        changes = {path: state for path, state in wanted.items() if not state == self._shown[path] == work[path]}
        self._shown |= changes
        _write_all(self._top, changes, moment)

    def _choose(self, path: str, is_old: Callable[[str], bool], contents: Mapping[str, bytes]) -> FileState:
        old, new = self._states[path]
        name = printable(path)
        if name in contents:
            return FileState(new.mode or old.mode, contents[name])
        return old if is_old(name) else new


def _write_all(top: str, states: Mapping[str, FileState], moment: int) -> None:
    """First those go that are not just written anew: a file can take the place of a folder. Their time is `moment`."""
    for path, state in states.items():
        full = os.path.join(top, path)
        if not beneath.is_reached(top, path) or _is_rewritable(full, state):
            continue
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
            os.unlink(full)
            files.remove_empty_above(full, top)
    for path, state in states.items():
        if state.mode:
            # A gate may have put a link in the place of a folder: it could lead anywhere, and goes.
            beneath.make_folder(top, os.path.dirname(path))
            _write(os.path.join(top, path), state, moment)


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
    mode = 0o777 if state.mode == _PROGRAM else 0o666  # less what the user's umask takes away
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(state.data)
        file.flush()
        os.utime(fd, (moment, moment))


def set_time(top: str, path: str, moment: int) -> None:
    full = os.path.join(top, path)
    if beneath.is_reached(top, path) and os.path.isfile(full) and not os.path.islink(full):
        os.utime(full, (moment, moment))
