"""The user's own files in `.ralph`, such as a script that is an agent: if an agent removes them, they are restored.

An agent does so by accident, with `git clean -fdx` for example, and without them the next attempts might fail. Files
that are only changed stay as they are: another program may have its files in `.ralph`, too.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from ralphtool.core import files

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST, _MOST_BYTES, _MOST_FILES = 1 << 20, 64 << 20, 1000  # of what is copied
# Other modules protect these, create them again, or remove what is in them.
_RALPHTOOLS = frozenset(
    ["config.toml", "locks", "prompts", "questions", "steering", "standing", "published", "runs", "usefulness.jsonl"]
)
_BEGINNINGS = ("progress.", "memory.")  # of the history and of the memory's cache, with what is beside them


class OwnFiles:
    """Copies of them, with the same names; nothing else is recorded, so that the next run can recover from a kill."""

    def __init__(self, folder: str, copies: str) -> None:
        self._folder = folder
        self._copies = copies

    def remember(self) -> None:
        wanted = set(self._select())
        self._clear_others(wanted)
        for name in wanted:
            self._copy(name)

    def _clear_others(self, wanted: set[str]) -> None:
        """With the folders that are empty then: now a file may have the name of one."""
        for place, names, inside in os.walk(self._copies, topdown=False):
            for name in (*inside, *names):
                path = os.path.join(place, name)
                is_empty = name in names and not os.listdir(path)
                if is_empty or (name in inside and os.path.relpath(path, self._copies) not in wanted):
                    files.clear(path)

    def _select(self) -> Iterator[str]:
        room = _MOST_BYTES
        for number, (name, size) in enumerate(self._list_small()):
            room -= size
            if room < 0 or number == _MOST_FILES:
                return
            yield name

    def _list_small(self) -> Iterator[tuple[str, int]]:
        for name in _walk(self._folder):
            top = name.split(os.sep)[0]
            if top not in _RALPHTOOLS and not top.startswith(_BEGINNINGS):
                path = os.path.join(self._folder, name)
                version = _read_version(path)
                if version and stat.S_ISREG(version[2]) and version[0] <= _LARGEST and os.access(path, os.R_OK):
                    yield name, version[0]

    def _copy(self, name: str) -> None:
        import shutil  # a run's start does not need it

        source, copy = os.path.join(self._folder, name), os.path.join(self._copies, name)
        if _read_version(source) != _read_version(copy):
            files.make_private_folders(copy)
            with suppress(FileNotFoundError):  # another program has removed its temporary file meanwhile
                shutil.copy2(source, copy)

    def restore_removed(self) -> None:
        import shutil

        for name in _walk(self._copies):
            place = os.path.join(self._folder, name)
            if not os.path.lexists(place) and self._make_folders_above(name):
                shutil.copy2(os.path.join(self._copies, name), place)

    def _make_folders_above(self, name: str) -> bool:
        """False if there is something else in the place of a folder: a link may lead anywhere."""
        folder = self._folder
        for part in name.split(os.sep)[:-1]:
            folder = os.path.join(folder, part)
            if os.path.lexists(folder) and (os.path.islink(folder) or not os.path.isdir(folder)):
                return False
            os.makedirs(folder, exist_ok=True)
        return True


def _walk(folder: str) -> Iterator[str]:
    for place, names, inside in os.walk(folder):
        if place == folder:
            names[:] = [name for name in names if name not in _RALPHTOOLS]
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in inside)


def _read_version(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_size, info.st_mtime_ns, info.st_mode
