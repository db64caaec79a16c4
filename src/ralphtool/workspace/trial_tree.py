"""A temporary workspace like that of a run: it belongs to no change, and is removed completely."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.core.locks import read_start_time
from ralphtool.errors import GitError
from ralphtool.workspace.box import Box
from ralphtool.workspace.slots import remove_slots
from ralphtool.workspace.worktree import Worktree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.workspace.git import Repository

_NAME = "_trial-"  # no change can have this name


@contextmanager
def open_trial(repository: Repository, project: str, kind: str) -> Iterator[Worktree]:
    """A box or a worktree with the files of the user's last commit. Its ref is not a branch, so people don't see it."""
    remove_left(repository)
    name = f"{_NAME}{os.getpid()}"
    place = (Box if kind == "box" else Worktree)(repository, project, name)
    place.branch, place.ref = None, layout.TRIALS + name
    is_new = not os.path.lexists(layout.folder(project))  # a box creates `.ralph`, to mount it
    try:
        place.open(name, ())
        try:
            yield place
        finally:
            place.close()
    finally:
        _remove(repository, name)
        if is_new:
            files.remove_empty_above(os.path.join(layout.folder(project), "nothing"), project)


def remove_left(repository: Repository) -> None:
    """Removes the trees of killed commands."""
    folders = [os.path.join(layout.in_git(repository.common), name) for name in ("worktrees", "boxes")]
    names = {name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}
    for name in names:
        number = name.removeprefix(_NAME)
        if name.startswith(_NAME) and number.isdecimal() and not read_start_time(int(number)):
            _remove(repository, name)


def _remove(repository: Repository, name: str) -> None:
    remove_slots(repository, name)
    refs = [prefix + name for prefix in (layout.TRIALS, layout.START, layout.BASE)]
    try:
        repository.set_refs({ref: None for ref in refs if repository.resolve(ref)})
    except GitError:
        pass  # another command has removed them at the same moment
