"""A change as its branch has it: ticks and learnings of a run are commits there, and not yet in the user's tree."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ralphtool import config, specs
from ralphtool.errors import ChangeNotFound
from ralphtool.git import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.specs import Spec

BRANCHES = "refs/heads/ralph/"
FINISHED = "refs/ralph/finished/"


def names(root: str) -> list[str]:
    """The changes that have a branch; none without a repository."""
    repository = _repository(root)
    if repository is None:
        return []
    here = repository.head()
    return [ref.removeprefix(BRANCHES) for ref in repository.refs(BRANCHES) if ref != here]


def _repository(root: str) -> Repository | None:
    """Git is only asked where it can have such branches: most lists of changes need none."""
    for folder in (root, *_above(root)):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            packed = os.path.join(git, "packed-refs")
            loose = os.path.isdir(os.path.join(git, BRANCHES))
            return Repository.find(root) if loose or os.path.exists(packed) else None
        if os.path.exists(git):
            return Repository.find(root)
    return None


def _above(folder: str) -> Iterator[str]:
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


@contextmanager
def opened(root: str, change: str, ref: str | None) -> Iterator[Spec | None]:
    """The spec as the branch has it, while the block runs; None if there is no branch, or the tree is on it."""
    repository = _repository(root)
    if repository is None or repository.head() == BRANCHES + change or repository.resolve(BRANCHES + change) is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
        write_out(repository, root, change, BRANCHES + change, folder, named_file(root))
        yield _found(root, folder, change, ref)


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
    for place in filter(None, places):
        path = os.path.normpath(os.path.join(prefix, place))
        for name, data in repository.files_at(commit, path).items():
            target = os.path.join(folder, os.path.relpath(name, prefix))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)


def named_file(project: str) -> str:
    """The file that the configuration names as a change's, if it does."""
    told = (config.spec(project) or "").removeprefix("checklist:")
    return told if os.path.splitext(told)[1] else ""
