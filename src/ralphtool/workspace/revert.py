"""Trees made from other trees: an attempt on newer work, reverted work, ticked boxes. No file is checked out."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.errors import GitError, InvalidValue
from ralphtool.workspace import spec_files
from ralphtool.workspace.git import Repository
from ralphtool.workspace.paths import Paths, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ralphtool.specs import Spec


class MergedTree(Struct, frozen=True):
    """The result of a merge. With conflicts, the tree contains conflict markers."""

    tree: str
    conflicts: tuple[str, ...] = ()


class RevertedTree(Struct, frozen=True):
    """A tree without the work of some stories, newest first."""

    tree: str
    stories: tuple[str, ...]


class SpecPlace(Struct, frozen=True):
    """Where the files of a change are in a repository."""

    repository: Repository
    root: str  # the project's folder, below the top of the repository
    change: str
    ref: str

    def list_paths(self) -> list[str]:
        """The paths that can belong to the change, as git names them."""
        prefix = os.path.relpath(os.path.realpath(self.root), os.path.realpath(self.repository.top))
        return [os.path.normpath(os.path.join(prefix, one)) for one in specs.places(self.root, self.change, self.ref)]

    def copy(self, tree: str) -> AbstractContextManager[str]:
        """A folder with the files of the change as a tree has them, while the block runs."""
        return spec_files.copy_spec_files(self.repository, self.root, self.change, tree, self.ref)

    @contextmanager
    def open(self, tree: str) -> Iterator[Spec]:
        """The spec as a tree has it, while the block runs; changes to it are lost."""
        with self.copy(tree) as folder:
            yield specs.open(folder, self.change, self.ref)

    def edit(self, tree: str, edit: Callable[[Spec], None]) -> str:
        """The tree with its spec edited."""
        return write_blobs(self.repository, tree, self._edit_files(tree, edit))

    def edit_from(self, tree: str, source: str, edit: Callable[[Spec], None]) -> str:
        """The tree with the spec of another one, edited."""
        return self._replace(tree, source, self._edit_files(source, edit)) if self.list_paths() else tree

    def _edit_files(self, tree: str, edit: Callable[[Spec], None]) -> dict[str, bytes]:
        """The contents of the files that an edit changes."""
        with spec_files.copy_spec_files(self.repository, self.root, self.change, tree, self.ref) as folder:
            before = _read_files(folder)
            edit(specs.open(folder, self.change, self.ref))
            changed = {path: data for path, data in _read_files(folder).items() if before.get(path) != data}
        prefix = os.path.relpath(os.path.realpath(self.root), os.path.realpath(self.repository.top))
        return {os.path.normpath(os.path.join(prefix, path)): data for path, data in changed.items()}

    def take_from(self, tree: str, source: str) -> str:
        """The tree with the spec of another one, which need not be readable."""
        return self._replace(tree, source, {})

    def _replace(self, tree: str, source: str, contents: Mapping[str, bytes]) -> str:
        with open_own_index(self.repository) as own:
            own.run("read-tree", tree)
            own.set_entries(source, self.list_paths(), contents)
            return own.write_tree()


def check_lost(repository: Repository, branch: str | None, story: str, lost: str | None) -> str:
    """The checkpoint of a story that is gone from the branch; raises GitError if it is gone altogether."""
    if lost and repository.resolve(lost):
        return lost
    raise GitError(
        f"the checkpoint of story {story} is gone from {branch}, so its work can't be reverted: undo it by hand, and "
        "untick its boxes"
    )


@contextmanager
def open_own_index(repository: Repository) -> Iterator[Repository]:
    with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
        yield Repository(repository.top, repository.gitdir, repository.common, os.path.join(folder, "index"))


def _read_files(folder: str) -> dict[str, bytes]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def write_blobs(repository: Repository, tree: str, changed: Mapping[str, bytes | None]) -> str:
    """The tree with new contents of some files; None removes a file."""
    if not changed:
        return tree
    with open_own_index(repository) as own:
        own.run("read-tree", tree)
        lines = []
        for path, data in changed.items():
            if data is None:
                lines.append(f"0 {'0' * len(tree)}\t{path}\0")
                continue
            mode = own.text("ls-tree", "--full-tree", "--format=%(objectmode)", tree, "--", path) or "100644"
            blob = os.fsdecode(own.run("hash-object", "-w", "--stdin", input=data)).strip()
            lines.append(f"{mode} {blob}\t{path}\0")
        own.run("update-index", "-z", "--index-info", input=os.fsencode("".join(lines)))
        return own.write_tree()


# --- merging ----------------------------------------------------------------------------------------


def merge(repository: Repository, base: str, ours: str, theirs: str) -> MergedTree:
    """A merge of three trees. They are wrapped in commits so that every version of git knows which one is the base."""
    below = repository.commit(base, [], "base\n")
    return merge_commits(repository, *(repository.commit(tree, [below], "side\n") for tree in (ours, theirs)))


def merge_commits(repository: Repository, *sides: str) -> MergedTree:
    try:
        return MergedTree(repository.text("merge-tree", "--write-tree", *sides).split("\n")[0])
    except GitError:
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        told = os.fsdecode(repository.run("merge-tree", *options, *sides, check=False)).split("\0")
        if not told[0]:
            raise
        return MergedTree(told[0], tuple(dict.fromkeys(filter(None, told[1:]))) or ("(folders)",))


def list_conflicts(place: SpecPlace) -> list[str]:
    """The files in which the branch of the change conflicts with the commit that is checked out, except those that
    `finish` takes from one side: the plan and `.ralph`."""
    sides = [place.repository.resolve(one) for one in ("HEAD", layout.BRANCHES + place.change)]
    if None in sides:
        return []
    try:
        found = merge_commits(place.repository, *map(str, sides)).conflicts
    except GitError:
        return []  # such as commits without a common base
    inside = os.path.relpath(os.path.realpath(layout.folder(place.root)), os.path.realpath(place.repository.top))
    own = Paths([inside, *place.list_paths()])
    return [path for path in found if not own.cover(path)]


def merge_kept(place: SpecPlace, entry: str, commit: str | None, tip: str, branch: str | None) -> str:
    """The tree of a kept attempt on top of the last checkpoint."""
    if commit is None:
        raise InvalidValue(f"the attempt {entry} was not kept: `ralphtool attempts` lists the kept attempts")
    merged = merge_attempt(place, commit, tip)
    if merged.conflicts:
        paths = ", ".join(printable(path) for path in merged.conflicts[:3])
        raise GitError(
            f"the attempt {entry} can't be applied on top of newer work ({paths}); nothing was changed. "
            f"`ralphtool diff {entry}` shows it; to apply it by hand, run `git switch {branch}`"
        )
    return merged.tree


def merge_attempt(place: SpecPlace, attempt: str, tip: str) -> MergedTree:
    """An attempt's work on a newer checkpoint; if only the spec conflicts, with the checkpoint's spec."""
    repository = place.repository
    before, after, now = (repository.tree_of(one) for one in (f"{attempt}^", attempt, tip))
    if before == now:
        return MergedTree(after)
    merged = merge(repository, before, now, after)
    if not merged.conflicts or not all(Paths(place.list_paths()).cover(path) for path in merged.conflicts):
        return merged
    return merge(repository, place.take_from(before, now), now, place.take_from(after, now))


# --- reverting work ---------------------------------------------------------------------------------


def revert(place: SpecPlace, work: Sequence[tuple[str, str]], story: str, tip: str) -> RevertedTree:
    """The tip without the work of a story, and without that of later stories that changed the same lines.

    `work` has the commits of the stories, oldest first. The spec stays as it is.
    """
    first = next(at for at, (id, _) in enumerate(work) if id == story)
    later = list(dict.fromkeys(id for id, _ in reversed(work[first:]) if id != story))
    taken = [story]
    while True:
        order = [(id, commit) for id, commit in reversed(work) if id in taken]
        tree, conflict = _take_back(place, [commit for _, commit in order], tip)
        if not conflict:
            return RevertedTree(tree, tuple(dict.fromkeys(id for id, _ in order)))
        left = [one for one in later if one not in taken]
        if not left:
            raise _build_foreign_error(place, [commit for id, commit in order if id == story], story, conflict)
        touching = [id for id, commit in work if id in left and _has_changed(place.repository, commit, conflict)]
        taken.append(next((one for one in left if one in touching), left[0]))


def _build_foreign_error(place: SpecPlace, commits: Sequence[str], story: str, conflict: Sequence[str]) -> GitError:
    files = ", ".join(printable(path) for path in conflict[:3])
    return GitError(
        f"the work of story {story} can't be reverted: {files} was changed later by a commit that belongs to no story. "
        f"Revert it by hand (git switch ralph/{place.change} && git revert {' '.join(one[:10] for one in commits)}), "
        "and untick its boxes"
    )


def _take_back(place: SpecPlace, commits: Sequence[str], tip: str) -> tuple[str, tuple[str, ...]]:
    """The tree without some commits, reverted in this order; and the paths of conflicts, if it fails."""
    repository = place.repository
    tree = kept = repository.tree_of(tip)
    for commit in commits:
        with_it, without = (place.take_from(repository.tree_of(one), kept) for one in (commit, f"{commit}^"))
        merged = merge(repository, with_it, tree, without)
        if merged.conflicts:
            return tree, merged.conflicts
        tree = merged.tree
    return tree, ()


def _has_changed(repository: Repository, commit: str, paths: Sequence[str]) -> bool:
    changed = repository.changed(f"{commit}^", commit)
    return bool({name for one in changed for name in (one.path, one.old_path)} & set(paths))
