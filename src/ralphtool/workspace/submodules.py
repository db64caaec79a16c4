"""Repositories inside the repository, as far as a run needs to know about them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import GuardFinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.workspace.git import ChangedFile, Repository


def list_registered(repository: Repository) -> list[str]:
    listed = repository.text("config", "--file", ".gitmodules", "--get-regexp", r"\.path$", check=False)
    return [path for line in listed.split("\n") if (path := line.partition(" ")[2])]


def read_head(repository: Repository, path: str) -> str:
    """The commit that a submodule has checked out; empty if it has none."""
    folder = os.path.join(repository.top, path)
    has_own = os.path.lexists(os.path.join(folder, ".git"))
    return repository.text("-C", folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False) if has_own else ""


def find_dirty(repository: Repository) -> list[str]:
    """The submodules with uncommitted files."""
    if not os.path.isfile(os.path.join(repository.top, ".gitmodules")):
        return []
    paths = [f":(top,literal){path}" for path in list_registered(repository)]
    options = ("--porcelain=v2", "-z", "--no-renames", "--ignore-submodules=none")
    rows = repository.list_items("status", *options, "--", *paths) if paths else []
    # As in `1 .M S.M. 160000 160000 160000 <id> <id> <path>`: M is a changed file, U an untracked one.
    return [row.split(" ", 8)[8] for row in rows if re.match(r"1 .. S.(?:M.|.U) ", row)]


def find_embedded(repository: Repository, changed: Sequence[ChangedFile]) -> list[GuardFinding]:
    """New repositories inside the repository that are not submodules."""
    told = "a repository inside the repository: its files can't be committed"
    new = [one.path for one in changed if one.is_submodule and one.status == "A"]
    known = list_registered(repository) if new else []
    return [GuardFinding("git-touched", path, told) for path in new if path not in known]
