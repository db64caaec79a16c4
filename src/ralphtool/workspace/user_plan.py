"""The user's version of the plan, which may be edited at any time, next to the one that a run works on.

Three versions are merged: what the user had when a run last looked (kept by a ref), what the user has now, and what the
branch has. A run adds only ticks and learnings, so the user's text wins, and both are added to it.
"""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import files, layout
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.specs import markdown
from ralphtool.workspace import plan_merge
from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace, open_own_index, write_blobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ralphtool.specs import Spec, Story
    from ralphtool.workspace.plan_merge import PlanEdit

    Files = Mapping[str, bytes]

# In the git folder of a working tree while a git operation is in progress: then the files may be anything.
_GIT_AT_WORK = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply", "index.lock"),
)


class MergedPlan(Struct, frozen=True, kw_only=True):
    """The user's plan with the ticks of a run."""

    tree: str  # of the branch, with the merged plan
    edit: PlanEdit


class UnusablePlan(Exception):
    """The user's plan can't be used as it is now. The text says why."""


# --- the user's version -----------------------------------------------------------------------------


class UserPlan:
    """Reads the user's own version of a change from their working tree."""

    def __init__(self, home: Repository, place: SpecPlace) -> None:
        """`place` says which files belong to the change in the user's own tree."""
        self._home = home
        self._place = place
        self._branch = home.head()
        self._seen: tuple[object, ...] | None = None

    def has_changed(self) -> bool:
        """Whether it may have changed since it was last taken; cheap, since it is called before each story."""
        return tuple(self._list_states()) != self._seen and self._is_in_use()

    def forget(self) -> None:
        """It was only looked at: the same edit must be found again."""
        self._seen = None

    def _list_states(self) -> list[tuple[object, ...]]:
        paths = [os.path.join(self._home.top, path) for path in self._place.list_paths()]
        found = [entry for path in paths for entry in _list_files(path)]
        return [(path, info.st_ino, info.st_size, info.st_mtime_ns) for path, info in found]

    def take(self, known: str | None) -> str | None:
        """A tree with the files of the change as the user has them now. None if they can't be used now: the user is on
        another or an older branch, a git operation is in progress, or a stash has what was `known`."""
        if not self._is_in_use():
            return None
        seen, tree = tuple(self._list_states()), take_files(self._home, self._place.list_paths())
        if known and (self._is_stashed(tree, known) or self._is_left_behind(tree)):
            return None
        self._seen = seen
        return tree

    def _is_in_use(self) -> bool:
        """Not if the user is on another branch, or if a git operation is in progress: what is there is no edit then."""
        return self._home.head() == self._branch and not self._is_git_at_work()

    def _is_git_at_work(self) -> bool:
        return any(os.path.lexists(os.path.join(self._home.gitdir, name)) for name in _GIT_AT_WORK)

    def _is_left_behind(self, tree: str) -> bool:
        paths = self._place.list_paths()
        return is_left_behind(self._home, self._place.change, paths, self._home.files_at(tree, *paths))

    def _is_stashed(self, tree: str, known: str) -> bool:
        stash = self._home.resolve("refs/stash")
        if stash is None:
            return False
        paths = self._place.list_paths()
        before = self._home.files_at(known, *paths)
        return before != self._home.files_at(tree, *paths) and before == self._home.files_at(stash, *paths)


def is_left_behind(home: Repository, change: str, paths: Sequence[str], theirs: Files) -> bool:
    """Whether the user's plan is not an edit, but older than the run: from an older branch that is checked out now."""
    base, head = home.resolve(layout.BASE + change), home.resolve("HEAD")
    if base is None or head is None:
        return False
    fork = home.text("merge-base", base, head, check=False)
    return bool(fork) and fork != base and home.files_at(fork, *paths) == theirs


def take_files(home: Repository, paths: Sequence[str]) -> str:
    """A tree with only these files and folders, as far as they exist."""
    there = [path for path in paths if os.path.lexists(os.path.join(home.top, path))]
    with open_own_index(home) as own:
        own.run("read-tree", "--empty")
        if there:
            own.run("add", "--all", "--force", "--", *[f":(top,literal){path}" for path in there])
        return own.write_tree()


def _list_files(path: str) -> list[tuple[str, os.stat_result]]:
    """A file, or all files below a folder; files that disappear meanwhile are left out."""
    paths = [path] if not os.path.isdir(path) or os.path.islink(path) else _list_below(path)
    found = []
    for one in paths:
        try:
            found.append((one, os.lstat(one)))
        except OSError:
            continue
    return sorted(found, key=lambda entry: entry[0])


def _list_below(folder: str) -> list[str]:
    return [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]


def find_seen(home: Repository, change: str, paths: Sequence[str]) -> str | None:
    """The commit with the user's version of the plan when a run last looked.

    Another clone has no note of that. There it is the commit with which the branch began, or the first one of the
    change, if the plan was not committed before."""
    branch = layout.BRANCHES + change
    known = home.resolve(layout.START + change)
    if known or home.resolve(branch) is None:
        return known
    fork = home.text("merge-base", "HEAD", branch, check=False)
    own = ["--reverse", "--first-parent", "--format=%H", f"--grep=^Ralph-Change: {change.replace('.', '[.]')}$"]
    first = home.text("log", *own, f"{fork}..{branch}" if fork else branch, "--").partition("\n")[0]
    begun = fork or home.resolve(f"{first}^")  # a shallow clone may not have the fork
    return begun if begun and home.files_at(begun, *paths) else first or None


# --- merging ----------------------------------------------------------------------------------------


def merge(place: SpecPlace, base: str, tip: str, theirs: str, outdated: Collection[str] = ()) -> MergedPlan | None:
    """The tree of `tip` with the user's edits since `base`; None if nothing was edited."""
    repository, paths = place.repository, place.list_paths()
    versions = [repository.files_at(tree, *paths) for tree in (base, tip, theirs)]
    if versions[0] == versions[2]:
        return None
    if not versions[2]:
        raise UnusablePlan("it no longer exists")
    if not any(story.tasks for story in _read_stories(place, theirs)):
        raise UnusablePlan("it no longer has tasks")
    changed = merge_files(*versions)
    if not changed:
        return None
    tree = write_blobs(repository, tip, changed)
    before, ours, edited = (_read_stories(place, one) for one in (base, tip, tree))
    edit = plan_merge.compare(before, ours, edited, outdated)
    made = place.edit(tree, lambda spec: _set_ticks(spec, edit))
    is_known = edit.is_nothing and made == repository.tree_of(tip)  # taken up in another clone
    return None if is_known else MergedPlan(tree=made, edit=edit)


def take_as_it_is(place: SpecPlace, base: str, tip: str, theirs: str) -> MergedPlan | None:
    """Like `merge`, for a plan that can't be read: the user's files, without the ticks of a run."""
    paths = place.list_paths()
    known, now = (place.repository.files_at(tree, *paths) for tree in (base, theirs))
    changed = {path: data for path, data in now.items() if known.get(path) != data}
    if not changed:
        return None
    return MergedPlan(tree=write_blobs(place.repository, tip, changed), edit=plan_merge.PlanEdit())


def preview(place: SpecPlace, folder: str) -> PlanEdit | None:
    """Updates the copy of a branch's plan in a folder to what the next run would use; returns the edit that this needs.

    Nothing else changes. None if there is no edit. For a plan that can't be used, the copy stays as it is.
    """
    repository = place.repository
    paths, tip = place.list_paths(), repository.resolve(layout.BRANCHES + place.change)
    base = find_seen(repository, place.change, paths)
    if base is None or tip is None:
        return None
    theirs = {path: files.read(os.path.join(repository.top, path)) for path in _name_files(repository.top, paths)}
    if is_left_behind(repository, place.change, paths, theirs):
        return None
    known = repository.files_at(tip, *paths)
    changed = merge_files(repository.files_at(base, *paths), known, theirs)
    before, ours = (_read_stories(place, one) for one in (base, tip))
    _write_below(folder, place, changed)
    try:
        edit = _preview_edit(place, folder, before, ours)
    except (ChangeNotFound, SpecError) as error:
        _write_below(folder, place, {path: known.get(path) for path in changed})
        raise UnusablePlan(_shorten_paths(str(error), folder)) from None
    return None if edit.is_nothing else edit


def _preview_edit(place: SpecPlace, folder: str, before: Sequence[Story], ours: Sequence[Story]) -> PlanEdit:
    spec = specs.open(folder, place.change, place.ref)
    stories = spec.stories()
    specs.check(stories, spec.path)
    edit = plan_merge.compare(before, ours, stories)
    _set_ticks(spec, edit)
    return edit


def _shorten_paths(text: str, folder: str) -> str:
    """A copy of the plan is in a temporary folder: a message names the user's file."""
    return text.replace(folder + os.sep, "")


def _name_files(top: str, paths: Sequence[str]) -> list[str]:
    found = [entry for path in paths for entry in _list_files(os.path.join(top, path))]
    return [os.path.relpath(path, top) for path, info in found if stat.S_ISREG(info.st_mode)]


def _write_below(folder: str, place: SpecPlace, changed: Mapping[str, bytes | None]) -> None:
    prefix = os.path.relpath(os.path.realpath(place.root), os.path.realpath(place.repository.top))
    for path, data in changed.items():
        target = os.path.join(folder, os.path.relpath(path, prefix))
        files.clear(target)
        if data is not None:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)


def merge_files(base: Files, ours: Files, theirs: Files) -> dict[str, bytes | None]:
    """The contents that must differ from `ours`; None for a file to remove."""
    changed: dict[str, bytes | None] = {}
    for path in {**base, **theirs}:
        then, mine, now = base.get(path), ours.get(path), theirs.get(path)
        if now in (then, mine):
            continue
        if now and markdown.find_conflict(now.decode("utf-8", "replace")):
            raise UnusablePlan(f"{path} has merge conflict markers in it")
        if mine == then or mine is None:
            changed[path] = now
        elif now is not None:
            changed[path] = _merge_text(then or b"", mine, now)
    return changed


def _merge_text(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """If a run only added lines, such as learnings, they stay; otherwise it ticked boxes, which are set later."""
    old, new = base.splitlines(), ours.splitlines()
    from difflib import SequenceMatcher  # slow to import, and most plans are not edited

    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return _merge_lines(base, ours, theirs) if all(kind in ("equal", "insert") for kind, *_ in steps) else theirs


def _merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
        paths = [os.path.join(folder, name) for name in ("theirs", "base", "ours")]
        for path, data in zip(paths, (theirs, base, ours), strict=True):
            with open(path, "wb") as file:
                file.write(data)
        command = ["git", "merge-file", "-p", "--quiet", "--union", *paths]
        return subprocess.run(command, check=True, capture_output=True).stdout


def _read_stories(place: SpecPlace, tree: str) -> list[Story]:
    with place.copy(tree) as folder:
        try:
            spec = specs.open(folder, place.change, place.ref)
            stories = spec.stories()
            specs.check(stories, spec.path)
            return stories
        except (ChangeNotFound, SpecError) as error:
            raise UnusablePlan(_shorten_paths(str(error), folder)) from None


def _set_ticks(spec: Spec, edit: PlanEdit) -> None:
    untick = getattr(spec, "untick", None)
    for story in spec.stories():
        done = [task.id for task in story.tasks if task.id in edit.done_tasks]
        for task in story.tasks:
            if task.id in done and not task.done:
                spec.tick(task.id, done, proven=True)
            elif untick and task.done and task.id not in done:
                untick(task.id)
