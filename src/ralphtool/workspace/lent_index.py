"""The index that people and agents see in a working tree: a copy of ralphtool's index, which they can't write to."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ralphtool.core import files

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository


class LentIndex:
    """Tracks whether the copy is still the one that was lent last."""

    def __init__(self) -> None:
        self._state: tuple[int, ...] = ()

    def renew(self, repository: Repository) -> None:
        """Copies ralphtool's index, unless the copy is up to date."""
        theirs = os.path.join(repository.gitdir, "index")
        if self._state and self._state == read_state(theirs, repository.index):
            return
        files.clear(f"{theirs}.ralph-aside")  # it may be a link
        shutil.copyfile(repository.index, f"{theirs}.ralph-aside")
        os.replace(f"{theirs}.ralph-aside", theirs)
        self._state = read_state(theirs, repository.index)


def read_state(*paths: str) -> tuple[int, ...]:
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return ()
    return tuple(number for info in found for number in (info.st_ino, info.st_size, info.st_mtime_ns))
