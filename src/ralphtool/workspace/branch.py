"""A change as its branch has it: ticks and learnings of a run are commits there, and not yet in the user's tree."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ralphtool import specs
from ralphtool.core import files, layout, project
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.workspace import spec_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository

_HELD_IN = (layout.BRANCHES, "reftable")  # where a repository's folder has branches of ours, if not in its packed refs


def may_exist(root: str) -> bool:
    """Whether there can be branches of changes, found without asking git."""
    git = _dot_git(root)
    if git is None:
        return False
    if not os.path.isdir(git):
        return True  # in a linked working tree it is a file, and the branches are elsewhere
    return any(os.path.exists(os.path.join(git, name)) for name in _HELD_IN) or _is_packed(git)


def _is_packed(git: str) -> bool:
    try:
        return os.fsencode(f" {layout.BRANCHES}") in files.read(os.path.join(git, "packed-refs"))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # git will say what is wrong with it


def _find_repository(root: str) -> Repository | None:
    """Git is only asked where it can have such branches: most lists of changes need none."""
    return _open_repository(root) if may_exist(root) else None


def _dot_git(root: str) -> str | None:
    """The `.git` of the repository around a folder: its folder, or a file that names it."""
    known = (os.path.join(folder, ".git") for folder in project.list_parents(os.path.abspath(root)))
    return next((git for git in known if os.path.exists(git)), None)


def git_folder(root: str) -> str | None:
    """Where git keeps what belongs to the working tree around a folder, found without asking git."""
    git = _dot_git(root)
    if git is None or os.path.isdir(git):
        return git
    try:
        word, _, named = os.fsdecode(files.read(git)).partition(":")
    except OSError:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(git), named.strip())) if word == "gitdir" else None


def _open_repository(root: str) -> Repository | None:
    from ralphtool.workspace.git import Repository  # which costs more than the rest of a short list

    return Repository.find(root)


class Branches:
    """The branches of changes that the tree is not on. Git is asked once, for however many changes are looked at."""

    def __init__(self, root: str) -> None:
        self._root = root

    @cached_property
    def _by_change(self) -> dict[str, Repository]:
        """The repository, for each change that has a branch."""
        repository = _find_repository(self._root)
        if repository is None:
            return {}
        here, refs = repository.head(), repository.refs(layout.BRANCHES)
        return {ref.removeprefix(layout.BRANCHES): repository for ref in refs if ref != here}

    @contextmanager
    def open_spec(self, change: str, ref: str | None) -> Iterator[Spec | None]:
        """The spec as its branch has it, while the block runs; None if there is none."""
        repository = self._by_change.get(change)
        if repository is None:
            yield None
            return
        with spec_files.copy_spec_files(repository, self._root, change, layout.BRANCHES + change, ref) as folder:
            spec = _open_copy(self._root, folder, change, ref)
            if spec and _has_other_words(self._root, spec):
                from ralphtool.workspace import revert, user_plan

                user_plan.preview(revert.SpecPlace(repository, self._root, change, spec.ref), folder)
            yield spec


def open_spec(root: str, change: str, ref: str | None) -> AbstractContextManager[Spec | None]:
    """The spec as the branch has it, while the block runs; None if there is no branch, or the tree is on it."""
    return Branches(root).open_spec(change, ref)


def _open_copy(root: str, folder: str, change: str, ref: str | None) -> Spec | None:
    # What the project's configuration names is not found by looking at what was written out.
    for one in [ref] if ref else [*_find_own_ref(root, change), None, *specs.list_configured(root)]:
        try:
            spec = specs.open(folder, change, one)
        except ChangeNotFound:
            continue
        shown: Any = _BranchSpec(spec, os.path.join(root, os.path.relpath(spec.path, folder)))
        return shown  # type: ignore[no-any-return]
    return None


def _find_own_ref(root: str, change: str) -> list[str]:
    """Where the user's tree has it. The copy is in a folder of another name, and some files are named after theirs."""
    found = [place.ref for place in specs.find_all(root) if place.change == change and not place.error]
    return found if len(found) == 1 else []


def _has_other_words(root: str, spec: Spec) -> bool:
    """Whether the user has edited the plan since a run last looked; found without git, since most have not."""
    from ralphtool.workspace.plan_merge import spell

    try:
        theirs = specs.open(root, spec.change, spec.ref).stories()
        if not any(one.tasks for one in theirs):
            return False  # no run can use that, and the next one says so
        return [(one.id, spell(one)) for one in theirs] != [(one.id, spell(one)) for one in spec.stories()]
    except (ChangeNotFound, SpecError):
        return False  # the next run says so


class _BranchSpec:
    """A spec of the branch under the name that it has in the project."""

    def __init__(self, spec: Spec, path: str) -> None:
        self._spec = spec
        self.path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec, name)
