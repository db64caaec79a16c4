"""The boxes of a change beside its first one, where stories are worked on side by side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.errors import GitError, InvalidValue
from ralphtool.sandbox import layers
from ralphtool.workspace.box import Box
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Callable


def make_slot(project: str, change: str, slot: int, must_end: Callable[[], bool]) -> Box:
    repository = Repository.find(project)
    if repository is None:
        raise InvalidValue("stories are worked on side by side in a git repository only: `git init` makes one")
    return Box(repository, project, change, must_end, slot)


def take_up_left(repository: Repository, project: str, change: str) -> list[str]:
    """Keeps the work that a killed run has left in its slots, and removes them; returns what is worth telling."""
    folder = os.path.join(layout.in_git(repository.common), "worktrees")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for name in names if name.rpartition("@")[0] == change]
    for name in found:
        place = Box(repository, project, change, slot=int(name.rpartition("@")[2]))
        try:
            place.open(change, ())
            place.close()
        except (GitError, OSError):
            pass  # whatever is left of it can't be read any more
        remove_slot(repository, name)
    text = f"work that the last run had begun in {len(found)} boxes is kept: `git for-each-ref {layout.INTERRUPTED}`"
    return [text] if found else []


def remove_slot(repository: Repository, name: str) -> None:
    """A working tree of ours, with all that belongs to it."""
    ours = layout.in_git(repository.common)
    for folder in ("worktrees", "boxes"):
        layers.remove_folder(os.path.join(ours, folder, name))
    with files.FileLock(os.path.join(ours, "worktrees.lock"), make=True):
        repository.run("worktree", "prune")
