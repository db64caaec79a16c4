"""Ignored files that attempts created or changed: they are not committed, so they must not help a proof.

They are moved aside while the gates run, and put back. Meanwhile a folder has them under their paths: after a kill,
the next run puts them back. A list with their times is kept, so that files of one attempt don't help a later one
either; a file that the user has written since is no longer on that list.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.sandbox import beneath
from ralphtool.workspace.environments import ENVIRONMENTS
from ralphtool.workspace.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphtool.workspace.git import Repository

# Folders that programs fill while they run: an attempt that runs the tests changes them.
_CACHES = frozenset(
    (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".gradle", ".next", ".turbo", ".git")
)
# In these, only files that could replace a program or change its startup are checked.
_BUILT = frozenset((".tox", ".nox", "target"))
_STARTUP = re.compile(
    r"(?:.*/)?(?:[^/]*\.pth|(?:site|user)customize\.py|conftest\.py|pyvenv\.cfg)|(?:.*/)?(?:_pytest|pytest|pluggy)/.*\.py"
    r"|(?:.*/)?bin/(?:python[\d.]*|pytest|py\.test|tox|nox)|(?:.*/)?node_modules/(?:\.bin/)?(?:jest|vitest|mocha|ava)\b.*"
    r"|(?:.*/)?node_modules/@(?:jest|vitest)/.*"
)
_PROGRAM_OF_CARGO = re.compile(r"(?:.*/)?target/.*/deps/[\w-]+")
_CACHE_FILES = (".pyc.tmp", ".log", ".coverage", ".DS_Store", ".tsbuildinfo", ".swp", "package-lock.json.tmp")
_WHOLE = ".whole"  # the suffix of a folder that was moved aside


class IgnoredFiles:
    """The files of a working tree that git ignores."""

    def __init__(self, repository: Repository, ours: Paths, elsewhere: Mapping[str, str] | None = None) -> None:
        """`elsewhere` has folders whose changed files are in another place: what a box wrote below `.venv`. More can
        be added to it later."""
        self._repository = repository
        self._elsewhere = {} if elsewhere is None else elsewhere
        self._ours = ours
        folder = layout.in_git(repository.gitdir)
        self._aside = os.path.join(folder, "ignored")
        self._folders = os.path.join(folder, "environments")
        self._list = os.path.join(folder, "ignored.json")
        self._since = 0

    def _locate(self, path: str) -> tuple[str, str]:
        """The folder that contains a file with this name in git, and the path below it. No link leads further."""
        for folder, place in self._elsewhere.items():
            if path == folder or path.startswith(f"{folder}/"):
                above, name = os.path.split(place)
                return above, name + path[len(folder) :]
        return self._repository.top, path

    def _find_place(self, path: str) -> str:
        """The full path of a file with this name in git."""
        return os.path.join(*self._locate(path))

    def mark(self) -> None:
        """An attempt begins: later changes belong to it. Uses the clock of the disk, which stamps the files."""
        folder = layout.in_git(self._repository.gitdir)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "ignored.mark")
        with open(path, "wb"):
            pass
        os.utime(path)
        self._since = os.stat(path).st_ctime_ns

    # --- what attempts have made ----------------------------------------------------------------

    def find_changed(self, listed: Sequence[str] | None = None) -> list[str]:
        """The files that were created or changed since the mark, or left by an earlier attempt, as git names them.

        `listed` has the ignored paths, if they are already known. Compiled files are removed: they are created again
        when needed.
        """
        found = sorted(self._find_changed(self.list_ignored() if listed is None else listed))
        compiled = [path for path in found if _is_compiled(path)]
        for path in compiled:
            beneath.unlink(*self._locate(path))
        return [path for path in found if path not in set(compiled)]

    def list_ignored(self) -> list[str]:
        """Files, and folders with `/` at the end. Git also lists what is in a folder that ignores itself."""
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "--full-name")
        listed = self._repository.list_items("ls-files", "-z", *options, "--", ":/")
        folders = Paths(path for path in listed if path.endswith("/"))
        return [path for path in listed if not folders.cover(os.path.dirname(path.rstrip("/")))]

    def _find_changed(self, listed: Sequence[str]) -> Iterator[str]:
        known = self._read_list()
        tops = [path.rstrip("/") for path in listed if not self._ours.cover(path)]
        for top in dict.fromkeys([*tops, *self._elsewhere]):
            for path in self._walk(top, is_built=bool(_BUILT & set(top.split("/")))):
                changed = self._read_time(path)
                if changed >= self._since > 0 or (changed and known.get(path) == changed):
                    yield path

    def _walk(self, path: str, *, is_built: bool) -> Iterator[str]:
        full, name = self._find_place(path), os.path.basename(path)
        if os.path.isdir(full) and not os.path.islink(full):
            if name not in _CACHES:
                for below in _list_folder(full):
                    yield from self._walk(f"{path}/{below}", is_built=is_built or name in _BUILT)
        elif not name.endswith(_CACHE_FILES) and (not is_built or _is_compiled(path) or _STARTUP.fullmatch(path)):
            yield path

    def _read_time(self, path: str) -> int:
        try:
            return os.lstat(self._find_place(path)).st_ctime_ns
        except OSError:
            return 0

    # --- aside, and back ------------------------------------------------------------------------

    def move_aside(self, paths: Sequence[str]) -> None:
        os.makedirs(self._aside, exist_ok=True)
        for path in paths:
            if _is_taken(self._aside, path):
                beneath.clear(*self._locate(path))  # the gates created it again: the attempt's file is kept
            elif beneath.is_reached(*self._locate(path)):
                beneath.move(*self._locate(path), self._aside, path)

    def move_folders_aside(self, paths: Sequence[str]) -> None:
        os.makedirs(self._folders, exist_ok=True)
        for path in paths:
            beneath.move(*self._locate(path), self._folders, path + _WHOLE)
            if path in self._elsewhere:
                os.makedirs(self._elsewhere[path])

    def put_folders_back(self, *, keep_new: bool) -> None:
        """Puts whole folders back in place of the new ones; with `keep_new`, a folder that has a new one is removed."""
        for folder, names, _ in os.walk(self._folders):
            for name in [name for name in names if name.endswith(_WHOLE)]:
                names.remove(name)
                kept = os.path.relpath(os.path.join(folder, name), self._folders)
                place = self._locate(kept.removesuffix(_WHOLE))
                if not (keep_new and beneath.is_reached(*place) and os.path.isdir(os.path.join(*place))):
                    beneath.move(self._folders, kept, *place)
        files.clear(self._folders)

    def put_back(self) -> None:
        """May be repeated. Replaces files that the gates created in the same places."""
        self.put_folders_back(keep_new=False)
        returned = []
        for folder, folders, names in os.walk(self._aside):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                path = os.path.relpath(os.path.join(folder, name), self._aside)
                beneath.move(self._aside, path, *self._locate(path))
                returned.append(path)
        if returned:
            self._remember(returned)
        files.clear(self._aside)

    def _remember(self, paths: Sequence[str]) -> None:
        times = self._read_list() | {path: self._read_time(path) for path in paths}
        there = {path: time for path, time in times.items() if self._read_time(path) == time}
        files.replace(self._list, json.dumps(there).encode())  # JSON can encode any file name

    def _read_list(self) -> dict[str, int]:
        """A damaged list counts as empty: it only names what attempts have left."""
        try:
            with open(self._list, "rb") as file:
                read = json.loads(file.read())
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) else {}


def _is_taken(top: str, path: str) -> bool:
    """Whether a path already exists, or a file is in place of one of its folders."""
    if os.path.lexists(os.path.join(top, path)):
        return True
    while (path := os.path.dirname(path)) and not os.path.lexists(os.path.join(top, path)):
        pass
    return bool(path) and not os.path.isdir(os.path.join(top, path))


def _is_compiled(path: str) -> bool:
    return path.endswith(".pyc") or _PROGRAM_OF_CARGO.fullmatch(path) is not None


def _list_folder(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def find_environment(path: str) -> str | None:
    """The installed environment that a file belongs to: `.venv`, `web/node_modules`."""
    parts = path.split("/")
    place = next((number for number, part in enumerate(parts) if part in ENVIRONMENTS), None)
    return None if place is None else "/".join(parts[: place + 1])


def is_startup_file(path: str) -> bool:
    """Whether a program reads it before anything else, and it is not part of how a project installs itself."""
    name = path.rpartition("/")[2]
    is_own = name.startswith(
        ("__editable__", "_editable_impl_", "__editables_", "easy-install", "distutils-precedence")
    )
    return bool(_STARTUP.fullmatch(path)) and not is_own
