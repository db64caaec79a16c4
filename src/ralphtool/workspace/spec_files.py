"""Writes out the files of a change as a commit has them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool import specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.workspace.git import Repository


@contextmanager
def copy_spec_files(repository: Repository, root: str, change: str, commit: str, ref: str | None) -> Iterator[str]:
    """A folder with the files of a commit that belong to the change, while the block runs."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ralph-") as place:
        folder = os.path.join(place, change)  # some changes are named after their folder
        os.mkdir(folder)
        write_spec_files(repository, root, change, commit, folder, ref)
        yield folder


def write_spec_files(repository: Repository, root: str, change: str, commit: str, folder: str, ref: str | None) -> None:
    """Writes out the files of a commit that belong to the change; without a ref, those of every format."""
    prefix = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.top))
    places = specs.places(root, change, ref)
    paths = [os.path.normpath(os.path.join(prefix, place)) for place in places]
    for name, data in (repository.files_at(commit, *paths) if paths else {}).items():
        target = os.path.join(folder, os.path.relpath(name, prefix))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
