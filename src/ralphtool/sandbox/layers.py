"""The folders of the user's tree that git ignores, as a box has them: `.venv`, `node_modules`, `target`.

A new worktree has none of them, and no gate would run without them. A box sees the user's own folders, and its changes
go into separate ones: the user's stay unchanged.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ralphtool.core import files
from ralphtool.sandbox import beneath
from ralphtool.sandbox.bubblewrap import BoxPlan, Layer, build_overlay_command
from ralphtool.sandbox.shown import SECRET_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CACHES = frozenset(("__pycache__", ".pytest_cache", ".hypothesis", ".git", ".DS_Store", ".idea"))
_ENVIRONMENTS = frozenset((".venv", "venv", "env", "node_modules", "vendor", ".bundle", ".tox", ".nox", "target"))
_MOST_LAYERS = 40
_PATIENCE = 20.0  # seconds
_MOST_FILES, _LARGEST = 200, 10 << 20  # number of files that are copied, and bytes of each


class IgnoredPlaces(NamedTuple):
    """The paths that git ignores in the user's tree."""

    folders: list[str]
    files: list[str]


def find_ignored(listed: Iterable[str], is_ours: Callable[[str], bool], *, is_home: bool = False) -> IgnoredPlaces:
    """The paths that a box shows, from those that git lists; folders end with `/` there. In a repository that is a home
    folder, ignored files are private: only environments are taken from there."""
    known = [path for path in listed if not is_ours(path.rstrip("/")) and not is_cache(path) and not _is_secret(path)]
    if is_home:
        known = [path for path in known if path.endswith("/") and os.path.basename(path[:-1]) in _ENVIRONMENTS]
    folders = [path.rstrip("/") for path in known if path.endswith("/")]
    return IgnoredPlaces(folders[:_MOST_LAYERS], [path for path in known if not path.endswith("/")][:_MOST_FILES])


def _is_secret(path: str) -> bool:
    return bool(SECRET_FOLDERS & set(path.rstrip("/").split("/")))


def is_cache(path: str) -> bool:
    return bool(_CACHES & set(path.rstrip("/").split("/"))) or path.endswith((".pyc", ".log", ".swp"))


class BoxFolder(Struct, frozen=True, kw_only=True):
    """A folder that git ignores, in a box. Attempts write on top of what the setup and the gates of a checkpoint
    wrote: what one attempt leaves or breaks there does not affect the next."""

    path: str  # in the tree
    source: str  # the user's own, or an empty one
    place: str  # where it is mounted
    store: str  # for changes; empty: it is read-only

    @property
    def base(self) -> str:
        return os.path.join(self.store, "base")

    @property
    def upper(self) -> str:
        return os.path.join(self.store, "upper") if self.store else ""

    def build_layer(self, *, is_attempt: bool) -> Layer:
        if not self.store:
            return Layer(source=self.source, place=self.place)
        work, merged = (os.path.join(self.store, name) for name in ("work", "merged"))
        above = (self.base,) if is_attempt else ()
        upper = self.upper if is_attempt else self.base
        return Layer(source=self.source, place=self.place, above=above, upper=upper, work=work, merged=merged)

    def prepare(self) -> None:
        for name in ("base", "upper", "work", "merged") if self.store else ():
            make_usable(os.path.join(self.store, name))

    def read_own_ignore(self) -> bytes:
        """Its .gitignore if it ignores everything, as those of `uv venv` do: no file outside it says so."""
        for folder in (self.base, self.source) if self.store else (self.source,):
            path = os.path.join(folder, ".gitignore")
            if os.path.isfile(path) and not os.path.islink(path):
                data = files.read(path)
                lines = data.splitlines()
                return data if b"*" in lines and not any(line.startswith(b"!") for line in lines) else b""
        return b""

    def begin_attempt(self) -> None:
        folders = [os.path.join(self.store, name) for name in ("upper", "work")] if self.store else []
        # An overlay always leaves something in its work folder: so a used one never counts as empty.
        for folder in folders if not all(map(_is_empty, folders)) else ():
            make_empty(folder)


def build_folder(top: str, path: str, store: str, *, source: str = "", with_overlay: bool = True) -> BoxFolder:
    place = os.path.join(top, path)
    own = os.path.join(store, quote(path)) if with_overlay else ""
    return BoxFolder(path=path, source=source or place, place=place, store=own)


def build_layers(top: str, folders: Iterable[str], store: str) -> list[Layer]:
    """A layer for each folder; changes are kept below `store`."""
    return [build_folder(top, path, store).build_layer(is_attempt=False) for path in folders]


def make_usable(folder: str) -> None:
    """Makes sure that it exists and is accessible to its owner."""
    os.makedirs(folder, exist_ok=True)
    if stat.S_IMODE(os.stat(folder).st_mode) & 0o700 != 0o700:
        os.chmod(folder, 0o700)


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        return False  # it is missing, or inaccessible


def make_empty(folder: str) -> None:
    remove_folder(folder)
    os.makedirs(folder)


def quote(path: str) -> str:
    """A path as a single file name."""
    return path.replace("%", "%25").replace("/", "%2F")


def unquote(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


def can_overlay(store: str) -> bool:
    """Whether an overlay can be mounted on this file system: tested, because containers often refuse it."""
    trial = os.path.join(store, "trial")
    [layer] = build_layers(trial, ["lower"], trial)
    os.makedirs(layer.source, exist_ok=True)
    prepare([layer])
    as_user = None if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    plan = BoxPlan(top=trial, slot=trial, home=trial, layers=(layer,), as_user=as_user)
    try:
        command = build_overlay_command(plan, ["/bin/true"])
        return subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        remove_folder(trial)


def hide(folder: str, name: str) -> None:
    """Hides a file of the layers below, with the mark that an overlay uses for a removed file."""
    path = os.path.join(folder, name)
    if not os.path.lexists(path):
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def list_written(upper: str) -> list[str]:
    """The files and links that were written in a layer itself."""
    beneath.open_folders(upper)
    found = []
    for parent, folders, names in os.walk(upper):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        paths = [os.path.join(parent, name) for name in (*names, *links)]
        found += [os.path.relpath(path, upper) for path in paths if os.path.islink(path) or os.path.isfile(path)]
    return found


def prepare(layers: Iterable[Layer]) -> None:
    for layer in layers:
        if layer.upper:
            for folder in (layer.upper, layer.work, layer.merged):
                os.makedirs(folder, exist_ok=True)


def reset(layer: Layer) -> None:
    """Discards its changes."""
    for folder in (layer.upper, layer.work):
        make_empty(folder)


def remove_folder(folder: str) -> None:
    """Also removes folders without any permissions, which an overlay or an agent may leave."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    if os.path.isdir(folder) and not os.path.islink(folder):
        os.chmod(folder, 0o700)
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def copy_files(top: str, slot: str, paths: Iterable[str]) -> None:
    """Copies single files, such as `.env`, that the user has and git ignores. Some may belong to another user."""
    for path in paths:
        source = os.path.join(top, path)
        is_plain = os.path.isfile(source) and not os.path.islink(source)
        if is_plain and os.access(source, os.R_OK) and os.path.getsize(source) <= _LARGEST:
            beneath.copy_file(source, slot, path)


def list_unreadable(top: str, known: IgnoredPlaces) -> list[str]:
    """The paths that can't be read, and so can't be shown."""
    folders = [path for path in known.folders if not os.access(os.path.join(top, path), os.R_OK | os.X_OK)]
    paths = [path for path in known.files if os.path.isfile(os.path.join(top, path))]
    return [*folders, *(path for path in paths if not os.access(os.path.join(top, path), os.R_OK))]
