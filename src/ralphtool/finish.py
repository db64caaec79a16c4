"""The end of a change: its branch stays as it is, or all of its work goes into the user's working tree at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import files, standing
from ralphtool.branch import BRANCHES, FINISHED
from ralphtool.errors import ChangeNotFound
from ralphtool.git import GitError, Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

_BASE = "refs/ralph/base/"


class Finished(Struct, frozen=True):
    branch: str
    commit: str
    paths: tuple[str, ...]


def squash(repository: Repository, root: str, change: str) -> Finished:
    """Puts the work of the branch into index and files, uncommitted. Where it does not fit, nothing changes."""
    repository.ensure_identity()
    ref = BRANCHES + change
    commit = repository.resolve(ref)
    if commit is None:
        raise ChangeNotFound(f"there is no branch ralph/{change}: `ralphtool run {change}` makes it")
    if repository.head() == ref:
        raise GitError(
            f"you are on the branch ralph/{change} itself: `git switch` to the branch that is to have the work"
        )
    old, new = _trees(repository, change, commit)
    paths = [one.path for one in repository.changed(old, new)]
    put_aside = _make_way(repository, change, paths)
    try:
        _apply(repository, change, old, new)
    except GitError:
        for path, aside in put_aside:
            os.rename(aside, path)
        raise
    for _, aside in put_aside:
        os.unlink(aside)
    repository.set_refs({FINISHED + change: commit, ref: None, _BASE + change: None})
    files.remove(standing.path_of(root, change))
    return Finished(f"ralph/{change}", commit, tuple(paths))


def _trees(repository: Repository, change: str, commit: str) -> tuple[str, str]:
    """Where the user stands, and what that becomes with the branch's work."""
    head = repository.resolve("HEAD")
    if head is None:
        return repository.empty_tree(), repository.tree_of(commit)
    if repository.text("merge-base", "HEAD", commit, check=False) == head:
        return repository.tree_of(head), repository.tree_of(commit)
    try:
        return repository.tree_of(head), repository.text("merge-tree", "--write-tree", head, commit).split("\n")[0]
    except GitError as error:
        raise GitError(
            f"ralph/{change} and your branch changed the same lines: merge by hand (`git merge ralph/{change}`); "
            f"{error}"
        ) from None


def _make_way(repository: Repository, change: str, paths: Sequence[str]) -> list[tuple[str, str]]:
    """The change's own files may still be uncommitted here. As they are in the branch's first commit, they may go."""
    base = repository.resolve(_BASE + change)
    scope = f"{base}..{BRANCHES}{change}" if base else f"{BRANCHES}{change}"
    first = repository.text("rev-list", "--reverse", scope).split("\n")[0]
    known = repository.files_at(first, ".") if first else {}
    tracked = set(os.fsdecode(repository.run("ls-files", "-z", own_index=False)).split("\0"))
    moved = []
    for path in paths:
        full = os.path.join(repository.top, path)
        if path not in tracked and os.path.isfile(full) and files.read(full) == known.get(path):
            os.rename(full, f"{full}.ralph-aside")
            moved.append((full, f"{full}.ralph-aside"))
    return moved


def _apply(repository: Repository, change: str, old: str, new: str) -> None:
    patch = repository.run("diff-tree", "-p", "--binary", "--full-index", old, new)
    if not patch:
        return
    try:
        repository.run("apply", "--index", "--whitespace=nowarn", "-", input=patch, own_index=False)
    except GitError as error:
        raise GitError(
            f"uncommitted work of yours is in the way of ralph/{change}: commit or stash it, then again; nothing was "
            f"changed ({error})"
        ) from None
