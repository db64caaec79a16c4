"""The end of a change: its branch stays as it is, or all of its work goes into the user's working tree at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files, layout
from ralphtool.errors import ChangeNotFound, GitError
from ralphtool.record import change_state, questions, steering
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.workspace.git import ChangedFile


class SquashResult(Struct, frozen=True):
    branch: str
    commit: str
    paths: tuple[str, ...]


def squash(repository: Repository, root: str, change: str) -> SquashResult:
    """Puts the work of the branch into index and files, uncommitted. Where it does not fit, nothing changes."""
    repository.ensure_identity()
    ref = layout.BRANCHES + change
    commit = repository.resolve(ref)
    if commit is None:
        done = repository.resolve(layout.FINISHED + change)
        if done and os.path.exists(change_state.path_of(root, change)):  # somebody was killed at the very end
            _remove_records(root, change)
            return SquashResult(layout.branch(change), done, ())
        raise ChangeNotFound(f"there is no branch ralph/{change}: `ralphtool run {change}` makes it")
    if repository.head() == ref:
        raise GitError(
            f"you are on the branch ralph/{change} itself: `git switch` to the branch that is to have the work"
        )
    repository.run("update-index", "-q", "--refresh", own_index=False, check=False)
    old, new = _find_trees(repository, change, commit)
    changed = repository.changed(old, new)
    room = _SpecFilesAside(repository, change, [one.path for one in changed])
    room.restore_leftovers()
    if not _is_applied(repository, changed):
        _check_obstacles(repository, change, changed)
        with room:
            _apply(repository, change, old, new)
    over = (ref, layout.BASE + change, layout.START + change)
    repository.set_refs({layout.FINISHED + change: commit, **dict.fromkeys(over)})
    _remove_records(root, change)
    return SquashResult(layout.branch(change), commit, tuple(one.path for one in changed))


def _is_applied(repository: Repository, changed: Sequence[ChangedFile]) -> bool:
    """Whether index and files have all of it already: somebody was killed just after that."""
    lines = repository.list_items("ls-files", "-z", "--stage", "--full-name", ":/", own_index=False)
    index = {line.partition("\t")[2]: line.split(" ")[1] for line in lines}
    differing = set(repository.list_items("diff-files", "-z", "--name-only", own_index=False))
    return all(index.get(one.path) == one.new_blob and one.path not in differing for one in changed)


def _remove_records(root: str, change: str) -> None:
    """What was asked has no story any more."""
    for state in change_state.load(root, change).stories.values():
        if state.question:
            questions.archive(questions.path_of(root, state.question.name))
    files.remove(change_state.path_of(root, change))
    steering.clear(root, change)


def _check_obstacles(repository: Repository, change: str, changed: Sequence[ChangedFile]) -> None:
    """Git writes file by file, and stops half-way where a folder is to be a file, or the other way round."""
    for one in changed:
        full = os.path.join(repository.top, one.path)
        above = os.path.dirname(full)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        is_folder = os.path.isdir(full) and not os.path.islink(full) and not one.is_submodule
        if (is_folder and one.new_blob) or os.path.islink(above) or not os.path.isdir(above):
            raise GitError(f"{one.path} can't be written, something else is in its place: move it away, then again")


def _find_trees(repository: Repository, change: str, commit: str) -> tuple[str, str]:
    """Where the user stands, and what that becomes with the branch's work."""
    head = repository.resolve("HEAD")
    if head is None:
        return repository.empty_tree, repository.tree_of(commit)
    if repository.text("merge-base", "HEAD", commit, check=False) == head:
        return repository.tree_of(head), repository.tree_of(commit)
    try:
        return repository.tree_of(head), repository.text("merge-tree", "--write-tree", head, commit).split("\n")[0]
    except GitError as error:
        raise GitError(
            f"ralph/{change} and your branch changed the same lines: merge by hand (`git merge ralph/{change}`); "
            f"{error}"
        ) from None


class _SpecFilesAside:
    """The change's own files may still be uncommitted here. As they are in the branch's first commit, they make way."""

    def __init__(self, repository: Repository, change: str, paths: Sequence[str]) -> None:
        self.repository = repository
        self._index = os.path.join(repository.gitdir, "index")
        base = repository.resolve(layout.BASE + change)
        scope = f"{base}..{layout.BRANCHES}{change}" if base else f"{layout.BRANCHES}{change}"
        first = repository.text("rev-list", "--reverse", scope).split("\n")[0]
        known = repository.files_at(first, ".") if first else {}
        self._paths = [path for path in paths if path in known and self._has_content(known[path], path)]
        self._kept = files.read(self._index) if os.path.exists(self._index) else None

    def _full_path(self, path: str) -> str:
        return os.path.join(self.repository.top, path)

    def _has_content(self, data: bytes, path: str) -> bool:
        return os.path.isfile(self._full_path(path)) and files.read(self._full_path(path)) == data

    def _aside_path(self, path: str) -> str:
        return os.path.join(self.repository.gitdir, "ralph", "finish", path)

    def restore_leftovers(self) -> None:
        """What a kill has left aside goes back to where nothing stands now."""
        top = os.path.join(self.repository.gitdir, "ralph", "finish")
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), top)
                if not os.path.lexists(self._full_path(path)):
                    os.makedirs(os.path.dirname(self._full_path(path)), exist_ok=True)
                    os.rename(self._aside_path(path), self._full_path(path))
        files.clear(top)

    def __enter__(self) -> None:
        for path in self._paths:
            os.makedirs(os.path.dirname(self._aside_path(path)), exist_ok=True)
            os.rename(self._full_path(path), self._aside_path(path))
        if self._paths:
            spec = [f":(top,literal){path}" for path in self._paths]
            self.repository.run("rm", "-q", "--cached", "--ignore-unmatch", "--", *spec, own_index=False)
            if self.repository.resolve("HEAD"):
                self._restore_committed()

    def _restore_committed(self) -> None:
        listed = self.repository.list_items(
            "ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD", "--", *self._paths
        )
        if listed:
            spec = [f":(top,literal){path}" for path in listed]
            options = ("--source=HEAD", "--staged", "--worktree")
            self.repository.run("restore", *options, "--", *spec, own_index=False)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for path in self._paths:
            if kind:
                os.replace(self._aside_path(path), self._full_path(path))
            else:
                os.unlink(self._aside_path(path))
        if kind and self._kept is not None:
            files.replace(self._index, self._kept)


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
