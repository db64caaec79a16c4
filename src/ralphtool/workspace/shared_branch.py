"""The branch of a change, to which the user may commit during a run: no commit of either is overwritten.

The branch moves only from the commit that was read. The user's commits are merged with the work of the run; if that
fails, the branch stays as the user has it, and the work is kept.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.errors import GitError, TreeBusy
from ralphtool.workspace.git import Repository
from ralphtool.workspace.paths import Paths, join_first, printable
from ralphtool.workspace.revert import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRIES = 10
_PATIENCE = 60.0  # seconds for a git command of the user, which may wait for a commit message
_TICK = 0.1


class BranchConflict(Exception):
    """The branch has moved since the work began, and the work can't be merged into it."""


class SharedBranch:
    """The branch, as a run in a box uses it."""

    def __init__(self, repository: Repository, ref: str, change: str, must_end: Callable[[], bool]) -> None:
        self._repository = repository
        self._ref = ref
        self._name = ref.removeprefix("refs/heads/")
        self._change = change
        self._must_end = must_end

    def find_newer(self, tip: str) -> str | None:
        """The user's newest commit on top of the last checkpoint; None if there is none."""
        if self._repository.read_loose(self._ref) == tip:
            return None
        found = self._repository.resolve(self._ref)
        if found in (None, tip):
            return None
        self._check_built_upon(str(found), tip)
        return found

    def move(self, old: str, new: str) -> str:
        """Moves it from one commit to the next, or to a merge with the user's commits. Returns its new commit."""
        for _ in range(_TRIES):
            found = self._repository.resolve(self._ref)
            goal = new if found in (None, old) else self._merge(str(found), old, new)
            self._move_checked_out(found or old, goal)
            try:
                self._repository.run("update-ref", self._ref, goal, found or "")
            except GitError:
                if self._repository.resolve(self._ref) == found:
                    raise
            else:
                return goal
        raise GitError(
            f"{self._name} keeps moving, because another program commits to it: stop that program, and run again"
        )

    def _merge(self, theirs: str, old: str, ours: str) -> str:
        self._check_built_upon(theirs, old)
        for newer, other in ((ours, theirs), (theirs, ours)):
            if self._repository.is_ancestor(other, newer):
                return newer  # a merge would be empty
        merged = merge(self._repository, *(self._repository.tree_of(one) for one in (old, theirs, ours)))
        if merged.conflicts:
            paths = ", ".join(printable(path) for path in merged.conflicts[:3])
            raise BranchConflict(f"your commit {theirs[:10]} on {self._name} and the run's work both change {paths}")
        message = f"Merge what was committed to {self._name} during the run\n\nRalph-Change: {self._change}\n"
        return self._repository.commit(merged.tree, [theirs, ours], message)

    def _check_built_upon(self, found: str, tip: str) -> None:
        if not self._repository.is_ancestor(tip, found):
            raise BranchConflict(f"{self._name} was moved to {found[:10]}, which lacks the run's checkpoint {tip[:10]}")

    def _move_checked_out(self, old: str, new: str) -> None:
        """If the user has the branch checked out, their next commit would revert the run's work if their files stayed
        behind.

        The files move before the branch: after a kill they have what the branch gets next."""
        for place in list_checked_out(self._repository, self._ref):
            self._wait_for_index(place)
            try:
                move_files(place, old, new)
            except GitError as error:
                raise BranchConflict(str(error)) from None

    def _wait_for_index(self, place: Repository) -> None:
        end, lock = time.monotonic() + _PATIENCE, os.path.join(place.gitdir, "index.lock")
        while os.path.exists(lock) and time.monotonic() < end and not self._must_end():
            time.sleep(_TICK)


def check_committed(place: Repository, ref: str, spared: Sequence[str]) -> None:
    """A run would move the branch below changes that a working tree on it has in tracked files: their next commit would
    revert the run's work. Changes in `spared` paths do no harm."""
    options = ("--no-renames", "--untracked-files=no", "--ignore-submodules=all")
    lines = place.list_items("--no-optional-locks", "status", "--porcelain", "-z", *options, own_index=False)
    known = Paths(spared)
    if changed := [line[3:] for line in lines if not known.cover(line[3:])]:
        name = ref.removeprefix("refs/heads/")
        raise TreeBusy(
            f"{place.top} has the branch {name} checked out, and uncommitted changes in {join_first(changed)}. The run "
            f"would commit to that branch, and committing your changes afterwards would revert its work: commit or "
            "stash them, or switch to another branch. Nothing was changed"
        )


def list_checked_out(repository: Repository, ref: str) -> list[Repository]:
    """The user's working trees in which a branch is checked out."""
    listed = repository.text("worktree", "list", "--porcelain").split("\n\n")
    rows = [dict(line.partition(" ")[::2] for line in one.split("\n")) for one in listed]
    ours = os.path.join(os.path.realpath(layout.in_git(repository.common)), "")
    tops = [row["worktree"] for row in rows if row.get("branch") == ref]
    found = [Repository.find(top) for top in tops if os.path.isdir(top) and not top.startswith(ours)]
    return [one for one in found if one]


def move_files(place: Repository, old: str, new: str, *options: str) -> None:
    """Moves files from one tree to another, and keeps changes in other files; refused if anything would be lost."""
    try:
        place.run("read-tree", "-m", "-u", *options, old, new, own_index=False)
    except GitError as error:
        raise GitError(f"your files in {place.top} would be overwritten: move them, then try again ({error})") from None
