"""Repositories inside the repository, as far as a run has to know of them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository


def list_registered(repository: Repository) -> list[str]:
    listed = repository.text("config", "--file", ".gitmodules", "--get-regexp", r"\.path$", check=False)
    return [path for line in listed.split("\n") if (path := line.partition(" ")[2])]


def find_dirty(repository: Repository) -> list[str]:
    """Those with files that no commit of theirs has."""
    if not os.path.isfile(os.path.join(repository.top, ".gitmodules")):
        return []
    paths = [f":(top,literal){path}" for path in list_registered(repository)]
    options = ("--porcelain=v2", "-z", "--no-renames", "--ignore-submodules=none")
    rows = repository.list_items("status", *options, "--", *paths) if paths else []
    # As in `1 .M S.M. 160000 160000 160000 <id> <id> <path>`: M is a changed file, U one that is not tracked.
    return [row.split(" ", 8)[8] for row in rows if re.match(r"1 .. S.(?:M.|.U) ", row)]
