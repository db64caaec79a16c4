"""The working trees of a change: the additional boxes for stories side by side, and the end of all of them."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import layout
from ralphtool.errors import GitError
from ralphtool.sandbox import layers
from ralphtool.workspace.box import Box
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_git import find_record
from ralphtool.workspace.worktree import Worktree, prune_worktrees

if TYPE_CHECKING:
    from collections.abc import Callable


def make_slot(first: Box, project: str, slot: int, must_end: Callable[[], bool]) -> Box:
    return Box(first.home, project, first.change, must_end, slot)


def take_up_left(repository: Repository, project: str, change: str) -> list[str]:
    """Keeps the work that a killed run left in its slots, and removes them; returns notices."""
    before = repository.refs(layout.INTERRUPTED)
    for name in layout.list_slots(repository.common, change):
        place = Box(repository, project, change, slot=int(name.rpartition("@")[2]))
        if os.path.isdir(place.place):
            _keep_work(place)
        remove_slots(repository, name)
    kept = [ref for ref in repository.refs(layout.INTERRUPTED) if ref not in before]
    return [f"unfinished work of the last run is kept: {', '.join(kept)}"] if kept else []


def _keep_work(place: Box) -> None:
    try:
        place.open(place.change, ())  # keeps interrupted work
        place.close()
    except (GitError, OSError):
        pass  # the rest of it can no longer be read


def remove_slots(repository: Repository, *names: str) -> None:
    """Removes worktrees of ralphtool, with everything that belongs to them. Their boxes are removed last: if this is
    killed, the next run finds the slots by them."""
    ours = layout.in_git(repository.common)
    for name in names:
        _remove_worktree(os.path.join(ours, "worktrees"), name)
    prune_worktrees(repository)
    for name in names:
        layers.remove_folder(os.path.join(ours, "boxes", name))


def _remove_worktree(folder: str, name: str) -> None:
    """Renames it first: a half removed one would look like one in which files were deleted."""
    place, aside = os.path.join(folder, name), os.path.join(folder, layout.HALF_REMOVED + name)
    layers.remove_folder(aside)
    if os.path.lexists(place):
        os.rename(place, aside)
        layers.remove_folder(aside)


# --- the end of a change ----------------------------------------------------------------------------


class LeftTrees(Struct, frozen=True):
    """The working trees of a change that ends."""

    names: tuple[str, ...]  # whose work is kept: they may be removed
    kept: tuple[str, ...]  # the refs that keep unfinished work
    notices: tuple[str, ...]


def keep_left(repository: Repository, project: str, change: str, newest: str | None) -> LeftTrees:
    """Keeps the unfinished work in all working trees of a change. `newest` is its last commit, if that is known."""
    names, kept, notices = [], [], []
    for name in list_of_change(repository, change):
        place = _find_place(repository, name)
        try:
            left = _find_left(repository, project, name)
            ref = left.keep_work(newest) if _has_files(place) else None
            notices += left.take_notices() if _has_files(place) else []
        except (GitError, OSError) as error:
            told = f"{place} may hold unfinished work that can't be read ({error}), so it is not removed"
            notices.append(f"{told}. To remove it: rm -rf {shlex.quote(place)} && git worktree prune")
            continue
        names.append(name)
        kept += [ref] if ref else []
    return LeftTrees(tuple(names), tuple(dict.fromkeys(kept)), tuple(notices))


def list_of_change(repository: Repository, change: str) -> list[str]:
    return [name for name in layout.list_working_trees(repository.common) if name.partition("@")[0] == change]


def remove_left(repository: Repository, left: LeftTrees) -> list[str]:
    """Removes the working trees; returns notices about those that can't be removed."""
    try:
        remove_slots(repository, *left.names)
    except (GitError, OSError):
        pass  # what is left is looked up
    ours = layout.in_git(repository.common)
    folders = [
        os.path.join(ours, *parts)
        for name in left.names
        for parts in (("worktrees", name), ("worktrees", layout.HALF_REMOVED + name), ("boxes", name))
    ]
    there = [shlex.quote(path) for path in folders if os.path.lexists(path)]
    return [f"a folder that is no longer needed can't be removed: rm -rf {path}" for path in there]


def _find_place(repository: Repository, name: str) -> str:
    return os.path.join(layout.in_git(repository.common), "worktrees", name)


def _has_files(place: str) -> bool:
    """Whether there is anything but git's own link: a killed command may have left just that."""
    return os.path.isdir(place) and os.listdir(place) not in ([], [".git"])


def _find_left(repository: Repository, project: str, name: str) -> Worktree:
    """A box, unless an agent that worked without one was killed: then git's own files must be restored."""
    change, _, slot = name.partition("@")
    found = Repository.find(_find_place(repository, name))
    has_box = os.path.isdir(os.path.join(layout.in_git(repository.common), "boxes", name))
    is_boxed = has_box and not (found and os.path.exists(find_record(found.gitdir)))
    return (Box if is_boxed else Worktree)(repository, project, change, slot=int(slot or 0))
