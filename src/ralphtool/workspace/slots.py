"""The additional boxes of a change, for working on stories side by side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.errors import GitError
from ralphtool.sandbox import layers
from ralphtool.workspace.box import Box
from ralphtool.workspace.worktree import prune_worktrees

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.workspace.git import Repository


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
        layers.remove_folder(os.path.join(ours, "worktrees", name))
    prune_worktrees(repository)
    for name in names:
        layers.remove_folder(os.path.join(ours, "boxes", name))
