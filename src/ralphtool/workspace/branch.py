"""A change as its branch has it: ticks and learnings of a run are commits there, and not yet in the user's tree."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ralphtool import specs
from ralphtool.core import config, layout
from ralphtool.errors import ChangeNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository


def _repository(root: str) -> Repository | None:
    """Git is only asked where it can have such branches: most lists of changes need none."""
    for folder in (root, *_above(root)):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            packed = os.path.join(git, "packed-refs")
            loose = os.path.isdir(os.path.join(git, layout.BRANCHES))
            return _found_repository(root) if loose or os.path.exists(packed) else None
        if os.path.exists(git):
            return _found_repository(root)
    return None


def _found_repository(root: str) -> Repository | None:
    from ralphtool.workspace.git import Repository  # which costs more than the rest of a short list

    return Repository.find(root)


def _above(folder: str) -> Iterator[str]:
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


class Branches:
    """The branches of changes that the tree is not on. Git is asked once, for however many changes are looked at."""

    def __init__(self, root: str) -> None:
        self._root = root

    @cached_property
    def _found(self) -> dict[str, Repository]:
        """The repository, for each change that has a branch."""
        repository = _repository(self._root)
        if repository is None:
            return {}
        here, refs = repository.head(), repository.refs(layout.BRANCHES)
        return {ref.removeprefix(layout.BRANCHES): repository for ref in refs if ref != here}

    @contextmanager
    def opened(self, change: str, ref: str | None) -> Iterator[Spec | None]:
        """The spec as its branch has it, while the block runs; None if there is none."""
        repository = self._found.get(change)
        if repository is None:
            yield None
            return
        import tempfile

        with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
            write_out(repository, self._root, change, layout.BRANCHES + change, folder, named_file(self._root))
            yield _found(self._root, folder, change, ref)


def opened(root: str, change: str, ref: str | None) -> AbstractContextManager[Spec | None]:
    """The spec as the branch has it, while the block runs; None if there is no branch, or the tree is on it."""
    return Branches(root).opened(change, ref)


def _found(root: str, folder: str, change: str, ref: str | None) -> Spec | None:
    try:
        spec = specs.open(folder, change, ref)
    except ChangeNotFound:
        return None
    shown: Any = _Shown(spec, os.path.join(root, os.path.relpath(spec.path, folder)))
    return shown  # type: ignore[no-any-return]


class _Shown:
    """A spec of the branch under the name that it has in the project."""

    def __init__(self, spec: Spec, path: str) -> None:
        self._spec = spec
        self.path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec, name)


def write_out(repository: Repository, root: str, change: str, commit: str, folder: str, named: str = "") -> None:
    """Writes out the files of a commit that any format could keep the change in; `named` is one more."""
    prefix = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.top))
    places = [f"openspec/changes/{change}", "prd.json", f"specs/{change}", "fix_plan.md", "PLAN.md", "TODO.md", named]
    paths = [os.path.normpath(os.path.join(prefix, place)) for place in filter(None, places)]
    for name, data in repository.files_at(commit, *paths).items():
        target = os.path.join(folder, os.path.relpath(name, prefix))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)


def named_file(project: str) -> str:
    """The file that the configuration names as a change's, if it does."""
    told = (config.spec(project) or "").removeprefix("checklist:")
    return told if os.path.splitext(told)[1] else ""
