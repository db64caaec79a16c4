"""Files that git ignores and an attempt made or changed: they are not committed, so they may not help a proof.

They are moved aside while the gates run, and put back. A folder holds them meanwhile, with their paths: what a kill
leaves there is put back by the next run.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ralphtool.core import files, layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.workspace.git import Paths, Repository

# Folders that programs fill while they run: an attempt that runs the tests changes them, and nobody can read a cheat
# out of them without the file that they were made from.
_CACHES = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".cache", ".vite")
) | {"target", ".gradle", ".next", ".turbo", ".nyc_output", "coverage", "htmlcov", ".git", ".vitest", ".jest-cache"}
_CACHE_FILES = (".pyc.tmp", ".log", ".coverage", ".DS_Store", ".tsbuildinfo", ".swp", "package-lock.json.tmp")
_ENVIRONMENTS = frozenset((".venv", "venv", "env", "node_modules", "vendor", ".bundle"))


class IgnoredFiles:
    """The files of a working tree that git ignores."""

    def __init__(self, repository: Repository, ours: Paths) -> None:
        self._repository = repository
        self._ours = ours
        self._aside = os.path.join(layout.in_git(repository.gitdir), "ignored")
        self._since = 0

    def mark(self) -> None:
        """An attempt begins: what changes from here on is its own. By the clock of the disk, which stamps the files."""
        folder = layout.in_git(self._repository.gitdir)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "ignored.mark")
        with open(path, "wb"):
            pass
        os.utime(path)
        self._since = os.stat(path).st_ctime_ns

    def find_changed(self) -> list[str]:
        """Those that were made or changed since the mark, as git names them."""
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "--full-name")
        listed = self._repository.list_items("ls-files", "-z", *options, "--", ":/")
        tops = [path.rstrip("/") for path in listed if not self._ours.cover(path)]
        return sorted(path for top in tops for path in self._walk(top))

    def _walk(self, path: str) -> Iterator[str]:
        full, name = os.path.join(self._repository.top, path), os.path.basename(path)
        if os.path.isdir(full) and not os.path.islink(full):
            if name not in _CACHES:
                for below in _list_folder(full):
                    yield from self._walk(f"{path}/{below}")
        elif not name.endswith(_CACHE_FILES) and self._is_new(full):
            yield path

    def _is_new(self, full: str) -> bool:
        try:
            return os.lstat(full).st_ctime_ns >= self._since > 0
        except OSError:
            return False

    def move_aside(self, paths: Sequence[str]) -> None:
        for path in paths:
            kept = os.path.join(self._aside, path)
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            shutil.move(os.path.join(self._repository.top, path), kept)

    def put_back(self) -> None:
        """Twice is as good as once. What the gates made anew in the same place gives way."""
        for folder, _, names in os.walk(self._aside):
            for name in names:
                kept = os.path.join(folder, name)
                place = os.path.join(self._repository.top, os.path.relpath(kept, self._aside))
                os.makedirs(os.path.dirname(place), exist_ok=True)
                files.clear(place)
                shutil.move(kept, place)
        shutil.rmtree(self._aside, ignore_errors=True)


def _list_folder(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def find_environment(path: str) -> str | None:
    """The installed environment that a file belongs to: `.venv`, `web/node_modules`."""
    parts = path.split("/")
    place = next((number for number, part in enumerate(parts) if part in _ENVIRONMENTS), None)
    return None if place is None else "/".join(parts[: place + 1])
