"""A change as its branch has it: ticks and learnings of a run are commits there, but not yet in the user's tree."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ralphtool import specs
from ralphtool.core import files, layout, project
from ralphtool.errors import ChangeNotFound, GitError, SpecError
from ralphtool.workspace.paths import Paths, join_first, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.plan_merge import PlanEdit

_HELD_IN = (layout.BRANCHES, "reftable")  # where a `.git` folder has ralphtool's branches, if not packed


def may_exist(root: str) -> bool:
    """Whether there can be branches of changes, checked without git."""
    git = _dot_git(root)
    if git is None:
        return False
    if not os.path.isdir(git):
        return True  # in a linked worktree it is a file, and the branches are elsewhere
    return any(os.path.exists(os.path.join(git, name)) for name in _HELD_IN) or _is_packed(git, layout.BRANCHES)


def may_be_finished(root: str, change: str) -> bool:
    """Whether `ralphtool finish` can have ended the change, checked without git."""
    git = _dot_git(root)
    if git is None or not os.path.isdir(git):
        return git is not None
    held_in = (layout.FINISHED + change, "reftable")
    return any(os.path.exists(os.path.join(git, name)) for name in held_in) or _is_packed(git, layout.FINISHED)


def read_tip(root: str, change: str) -> str | None:
    """The last commit of the branch, if it can be read without git."""
    from ralphtool.workspace import plain_git  # most commands don't need it

    top = plain_git.find_top(root)
    git = os.path.join(top, ".git") if top else ""
    return plain_git.resolve(git, git, layout.BRANCHES + change) if git else None


def read_fingerprint(root: str) -> tuple[int, ...]:
    """Changes whenever a branch of a change, or the user's last commit, moves. Needs no git, and costs next to nothing:
    git writes a ref aside and then renames it, so that its folder changes."""
    own = git_folder(root)
    if own is None:
        return ()
    git = _find_common(own)
    shared = (layout.BRANCHES, layout.FINISHED, "packed-refs", "reftable")
    places = [os.path.join(own, "HEAD"), os.path.join(own, "logs", "HEAD"), *(os.path.join(git, one) for one in shared)]
    return tuple(number for place in places for number in _read_state(place))


def _find_common(git: str) -> str:
    """The folder with the refs: of a linked worktree, that of the repository."""
    try:
        return os.path.normpath(os.path.join(git, os.fsdecode(files.read(os.path.join(git, "commondir"))).strip()))
    except OSError:
        return git


def _read_state(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError:
        return (0,)
    return (info.st_mtime_ns, info.st_size, info.st_ino)


def check_can_exist(root: str, change: str) -> None:
    """Git refuses some names, and can't have a branch below the name of another one."""
    if (repository := _open_repository(root)) is None:
        return
    if not project.can_be_branch(change):
        raise GitError(
            f"the run needs the branch {layout.branch(change)}, and git accepts no name with '..', or with '.' or "
            "'.lock' at its end: rename the plan. Nothing was changed"
        )
    above, wanted = layout.BRANCHES.rstrip("/"), layout.BRANCHES + change
    for ref in repository.refs(above):
        if ref == above or ref.startswith(f"{wanted}/"):
            import shlex  # a run that goes well does not need it

            name = ref.removeprefix("refs/heads/")
            raise GitError(
                f"the run needs the branch {layout.branch(change)}, which git can't create beside your branch {name}: "
                f"rename yours with `git branch -m {shlex.quote(name)} other-name`. Nothing was changed"
            )


def _is_packed(git: str, refs: str) -> bool:
    try:
        return os.fsencode(f" {refs}") in files.read(os.path.join(git, "packed-refs"))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # git will report the error


def _find_repository(root: str) -> Repository | None:
    """Git is started only if such branches may exist: most lists of changes don't need it."""
    return _open_repository(root) if may_exist(root) else None


def _dot_git(root: str) -> str | None:
    """The `.git` of the repository around a folder: a folder, or a file that names it."""
    known = (os.path.join(folder, ".git") for folder in project.list_parents(os.path.abspath(root)))
    return next((git for git in known if os.path.exists(git)), None)


def git_folder(root: str) -> str | None:
    """The git folder of the working tree around a folder, found without git."""
    git = _dot_git(root)
    if git is None or os.path.isdir(git):
        return git
    try:
        word, _, named = os.fsdecode(files.read(git)).partition(":")
    except OSError:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(git), named.strip())) if word == "gitdir" else None


def _open_repository(root: str) -> Repository | None:
    from ralphtool.workspace.git import Repository  # slower to import than the rest of a short list

    return Repository.find(root)


class Branches:
    """The branches of changes. The one checked out has its spec in the user's tree. Git is started once, for any number
    of changes."""

    def __init__(self, root: str) -> None:
        self._root = root

    @cached_property
    def _by_change(self) -> dict[str, Repository]:
        """The repository, for each change that has a branch."""
        repository = _find_repository(self._root)
        if repository is None:
            return {}
        return dict.fromkeys(
            (ref.removeprefix(layout.BRANCHES) for ref in repository.refs(layout.BRANCHES)), repository
        )

    def has(self, change: str) -> bool:
        """Whether a change has a branch."""
        return change in self._by_change

    @contextmanager
    def open_spec(self, change: str, ref: str | None) -> Iterator[Spec | None]:
        """The spec as its branch has it, while the block runs; None if there is no such branch."""
        repository = self._by_change.get(change)
        if repository is None or repository.head() == layout.BRANCHES + change:
            yield None
            return
        from ralphtool.workspace import spec_files  # most changes have no branch

        with spec_files.copy_spec_files(repository, self._root, change, layout.BRANCHES + change, ref) as folder:
            spec = _open_copy(self._root, folder, change, ref)
            if spec:
                _take_up_edit(repository, self._root, spec, folder)
            yield spec


def open_spec(root: str, change: str, ref: str | None) -> AbstractContextManager[Spec | None]:
    """The spec as the branch has it, while the block runs; None if there is no branch, or it is checked out."""
    return Branches(root).open_spec(change, ref)


def find_edit(spec: Spec) -> PlanEdit | None:
    """The user's edit of a plan that no run has applied yet: its stories have other ids than their state has."""
    return getattr(spec, "edit", None)


def _open_copy(root: str, folder: str, change: str, ref: str | None) -> _BranchSpec | None:
    # Specs that the project's configuration names can't be detected in the copied files.
    for one in [ref] if ref else [*_find_own_ref(root, change), None, *specs.list_configured(root)]:
        try:
            spec = specs.open(folder, change, one)
        except ChangeNotFound:
            continue
        return _BranchSpec(spec, os.path.join(root, os.path.relpath(spec.path, folder)))
    return None


def _find_own_ref(root: str, change: str) -> list[str]:
    """The ref in the user's tree: the copy is in a folder of another name, and some specs are named after theirs."""
    found = [place.ref for place in specs.find_all(root) if place.change == change and not place.error]
    return found if len(found) == 1 else []


def _take_up_edit(repository: Repository, root: str, spec: _BranchSpec, folder: str) -> None:
    """Updates the copy of the plan to what the next run would use."""
    try:
        spec.edit = _preview(repository, root, spec, folder) if _has_other_words(root, spec) else None
    except SpecError as error:
        spec.problem = f"your plan can't be used as it is now, so this is the last valid version: {error}"


def _preview(repository: Repository, root: str, spec: Spec, folder: str) -> PlanEdit | None:
    from ralphtool.workspace import revert, user_plan  # most plans are not edited

    try:
        return user_plan.preview(revert.SpecPlace(repository, root, spec.change, spec.ref), folder)
    except user_plan.UnusablePlan as error:
        raise SpecError(str(error)) from None


def _has_other_words(root: str, spec: Spec) -> bool:
    """Whether the user has edited the plan since a run last looked; checked without git, since most have not."""
    from ralphtool.workspace.plan_merge import spell

    try:
        theirs = specs.open(root, spec.change, spec.ref).stories()
        if not any(one.tasks for one in theirs):
            return False  # no run can use it, and the next one reports that
        return [(one.id, spell(one)) for one in theirs] != [(one.id, spell(one)) for one in spec.stories()]
    except ChangeNotFound:
        return False  # the next run reports it


class _BranchSpec:
    """A spec of the branch under its path in the project."""

    def __init__(self, spec: Spec, path: str) -> None:
        self._spec = spec
        self.path = path
        self.edit: PlanEdit | None = None
        self.problem = ""  # why the user's own version can't be used

    @property
    def warnings(self) -> list[str]:
        return [*filter(None, [self.problem]), *specs.list_warnings(self._spec)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec, name)


# --- the user's newer commits -----------------------------------------------------------------------


def describe_newer_commits(home: Repository, change: str, own: Sequence[str]) -> list[str]:
    """A notice about files that the user has committed since the branch began: a run continues from its branch,
    without them. `own` paths are merged by each run. Empty if another line of work is checked out."""
    base, tip, head = (home.resolve(name) for name in (layout.BASE + change, layout.BRANCHES + change, "HEAD"))
    fork = home.text("merge-base", tip, head, check=False) if tip and head else ""
    base = base or fork  # another clone has no note of it
    if not (base and tip and head) or head in (base, tip) or not home.is_ancestor(base, head):
        return []
    differing = (
        _list_differing(home, fork, head) & _list_differing(home, tip, head) if fork not in ("", head) else set()
    )
    newer = sorted(path for path in differing if not Paths(own).cover(path))
    branch = layout.BRANCHES.removeprefix("refs/heads/") + change
    merge = f"to include them, merge {printable(home.head().removeprefix('refs/heads/'))} into {branch}"
    return [f"the run does not include your newer commits ({join_first(newer)}); {merge}"] if newer else []


def _list_differing(home: Repository, old: str, new: str) -> set[str]:
    found = home.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-commit-id", old, new)
    return set(filter(None, os.fsdecode(found).split("\0")))
