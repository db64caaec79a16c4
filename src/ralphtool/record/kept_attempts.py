"""The commits of a project's own attempts.

All projects and worktrees of a repository share the refs of attempts, but each has a history. Two of them may have had
an attempt of the same name: then the ref names the newer one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.errors import GitError
from ralphtool.workspace.checkpoints import read_project

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.history import History
    from ralphtool.history.records import Entry
    from ralphtool.workspace.git import Repository


def read_all(repository: Repository) -> dict[str, str]:
    """The commits of all attempts in the repository, by entry."""
    return {ref.removeprefix(layout.ATTEMPTS): commit for ref, commit in repository.refs(layout.ATTEMPTS).items()}


def read_own(repository: Repository, root: str, history: History, wanted: Iterable[str]) -> dict[str, str]:
    """The commits of those entries whose work is kept, and is this project's."""
    kept = read_all(repository)
    there = [one for one in wanted if one in kept]
    prd_ids = {one.rpartition("-")[0] for one in there}
    known = {entry.id: entry for prd_id in prd_ids for entry in history.entries(prd_id=prd_id)}
    found = {one: find_own(repository, root, kept[one], known.get(one)) for one in there}
    return {id: commit for id, commit in found.items() if commit}


def find_own(repository: Repository, root: str, commit: str, entry: Entry | None) -> str | None:
    """The commit of an entry, given the one that its ref names; None if only the work of others is left."""
    if entry and entry.git_commits:
        own = entry.git_commits[-1]
        return commit if commit in entry.git_commits else repository.resolve(own)
    here = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.top))
    return commit if read_project(repository, commit) == here.removeprefix(".") else None


def build_lost_error(repository: Repository, name: str, commit: str) -> GitError:
    """The ref of an attempt names the work of another project."""
    project = read_project(repository, commit)
    whose = f"the project {project}" if project else "another project or worktree"
    return GitError(
        f"{layout.ATTEMPTS}{name} is an attempt of {whose}, which has a change of the same name. If this project had "
        "an attempt of that name, its work is no longer in the repository"
    )
