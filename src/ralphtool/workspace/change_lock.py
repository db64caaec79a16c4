"""One run per change of a repository: linked worktrees share its branches and refs, but each has a `.ralph`."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.errors import ChangeLocked, GitError
from ralphtool.workspace.checkpoints import find_project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.workspace.git import Repository


@contextmanager
def hold_change(repository: Repository | None, root: str, change: str, holder: str) -> Iterator[None]:
    """Locks a change against runs in other worktrees of the repository. The system releases it if ralphtool dies.

    `holder` says who locks it, as in "the run X".
    """
    if repository is None:
        yield
        return
    folder = os.path.join(layout.in_git(repository.common), "changes")
    os.makedirs(folder, exist_ok=True)
    lock = os.open(os.path.join(folder, f"{change}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(lock, change)
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(f"{holder} in {root}"), 0)
        _check_project(repository, root, change)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, change: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 5000, 0).decode("utf-8", "replace")
        raise ChangeLocked(
            f"{change} is locked by {holder}, which uses the same repository: wait until it ends, or stop it there"
        ) from None


def _check_project(repository: Repository, root: str, change: str) -> None:
    """Another project of the repository would take this one's checkpoints for its own, and revert or merge them."""
    theirs = find_project(repository, change)
    here = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.top))
    if theirs is None or (theirs or ".") == here or not _has_worked(repository.top, theirs, root, change):
        return
    raise GitError(
        f"the branch {layout.branch(change)} belongs to the change {change} of the project "
        f"{theirs or 'at the top of the repository'}: finish that one first, or give this one another name"
    )


def _has_worked(top: str, theirs: str, root: str, change: str) -> bool:
    """Whether the other project is still there. Old checkpoints don't name theirs, so the one at the top must have the
    state of such a change, and this one must not."""
    other = os.path.join(top, theirs)
    if theirs:
        return os.path.isdir(layout.folder(other))
    return os.path.exists(layout.change_state(other, change)) and not os.path.exists(layout.change_state(root, change))
