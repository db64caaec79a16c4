"""Git's own files and refs, which an agent must not change: changes are detected and reverted."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.core import files, layout
from ralphtool.judging.guard.model import GuardFinding

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository

_INFO = ("info/exclude", "info/attributes", "info/grafts", "info/sparse-checkout")
_OWN = ("config.worktree", "HEAD")  # of one working tree
_FILES = (*_OWN, "config", "logs/refs/stash", *_INFO)
_HUSKY = (b"hookspath = .husky", b"hookspath = .husky/_")  # set by installing a common package
_LARGEST = 4 << 20


class _SavedFile(Struct, frozen=True):
    data: bytes  # of a link: its target
    mode: int
    is_link: bool = False


class _GitRecord(Struct, frozen=True):
    """The saved state, as it is written to disk. Paths are relative to git's folder: a project may be moved."""

    paths: list[str]
    files: dict[str, _SavedFile]
    refs: dict[str, str] | None
    tip: str  # of the branch that a run works on


class ProtectedGit:
    """The state before an agent began.

    `shared`: people may work in other worktrees of the repository, so files that all of them use are left alone.
    """

    def __init__(self, repository: Repository, branch: str, *, shared: bool) -> None:
        self.repository = repository
        self.branch = branch
        self.shared = shared or bool(_list_names(os.path.join(repository.common, "worktrees")))
        self._files: dict[str, _SavedFile | None] = {}
        self._refs: dict[str, str] | None = None
        self.tip = ""  # the branch's commit
        self.is_out_of_reach = False  # an agent can't touch it: changes are the user's

    def remember(self, tip: str) -> None:
        if self.is_out_of_reach:
            self.tip = tip
            return
        known = self._files, self._refs, self.tip
        self._files, self.tip = self._read_files(), tip
        if self._refs is None and not self.shared:
            self._refs = self._read_refs()
        if known != (self._files, self._refs, self.tip):
            self._write()

    def expect(self, tip: str) -> None:
        """The run itself is about to move its branch."""
        self.tip = tip
        if self._files:
            self._write()

    @property
    def _record_path(self) -> str:
        return find_record(self.repository.gitdir)

    def _write(self) -> None:
        """After a kill, the next run needs to know the old state."""
        named = {os.path.relpath(path, self.repository.common): one for path, one in self._files.items()}
        known = _GitRecord(list(named), {path: one for path, one in named.items() if one}, self._refs, self.tip)
        files.replace(self._record_path, msgspec.json.encode(known))

    def recover(self) -> list[GuardFinding]:
        """Reverts an agent's changes from before its run was killed."""
        try:
            known = typed.decode(files.read(self._record_path), _GitRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        if any(map(os.path.isabs, known.paths)):
            return []  # written by an earlier version, maybe before the project was moved
        self._files = {os.path.join(self.repository.common, path): known.files.get(path) for path in known.paths}
        self._refs, self.tip = known.refs, known.tip
        return self.restore_changed()

    def forget(self) -> None:
        files.remove(self._record_path)

    def restore_changed(self) -> list[GuardFinding]:
        """Reverts the changes, and returns a finding for each."""
        self.unlock()
        if self.is_out_of_reach:
            return []
        found = [*self._restore_files(), *self._restore_refs()]
        if found:
            self._refs = None
        return found

    def unlock(self) -> None:
        """A killed git command leaves its lock behind, and no program that could hold it is running now.

        Locks in a shared folder are left alone: other processes may hold them."""
        own = self.repository.gitdir
        for place in {own} if self.shared and own != self.repository.common else {own, self.repository.common}:
            for name in ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", f"{self.branch}.lock"):
                files.clear(os.path.join(place, name))

    # --- files ----------------------------------------------------------------------------------

    def _read_files(self) -> dict[str, _SavedFile | None]:
        paths = [self._git_path(name) for name in (_OWN if self.shared else _FILES)]
        hooks = os.path.join(self.repository.common, "hooks")
        paths += [os.path.join(hooks, name) for name in _list_names(hooks)]
        return {path: _read_saved(path) for path in paths}

    def _git_path(self, name: str) -> str:
        return os.path.join(self.repository.gitdir if name in _OWN else self.repository.common, name)

    def _restore_files(self) -> list[GuardFinding]:
        now = self._read_files()
        changed = [path for path in {*now, *self._files} if now.get(path) != self._files.get(path)]
        for path in changed:
            self._keep_copy(path)
            _restore_file(path, self._files.get(path))
        named = [path for path in sorted(changed) if not _is_harmless(path, self._files.get(path), now.get(path))]
        return [
            GuardFinding("git-touched", self._display_name(path), "changed by the agent, and restored")
            for path in named
        ]

    def _keep_copy(self, path: str) -> None:
        """Keeps the changed file: the user may have changed it after all. HEAD is left out: every switch changes it."""
        inside = os.path.relpath(path, self.repository.common)
        if os.path.isfile(path) and os.path.basename(path) != "HEAD":
            folder = os.path.join(layout.in_git(self.repository.common), "touched")
            os.makedirs(folder, exist_ok=True)
            shutil.copy2(path, os.path.join(folder, f"{inside.replace('/', '-')}-{os.lstat(path).st_mtime_ns}"))

    def _display_name(self, path: str) -> str:
        return os.path.join(".git", os.path.relpath(path, self.repository.common))

    # --- refs -----------------------------------------------------------------------------------

    def _read_refs(self) -> dict[str, str]:
        """Branches, tags and the stash, except branches that runs move."""
        every = self.repository.refs("refs/heads", "refs/tags", "refs/stash")
        return {name: value for name, value in every.items() if not name.startswith(layout.BRANCHES)}

    def _restore_refs(self) -> list[GuardFinding]:
        """Restores refs that were moved. New refs do no harm, and may be the user's."""
        if self._refs is None:
            return []
        now = self._read_refs()
        changed = {name: value for name, value in self._refs.items() if now.get(name) != value}
        self.repository.set_refs(dict(changed))
        return [GuardFinding("git-touched", name, "moved by the agent, and restored") for name in sorted(changed)]


def find_record(gitdir: str) -> str:
    """The path of the saved state. In a worktree without a box, the file exists while an agent works, or was killed."""
    return os.path.join(layout.in_git(gitdir), "internals.json")


def _list_names(folder: str) -> list[str]:
    try:
        return [name for name in sorted(os.listdir(folder)) if not name.endswith(".sample")]
    except OSError:
        return []


def _read_saved(path: str) -> _SavedFile | None:
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return _SavedFile(os.fsencode(os.readlink(path)), 0, is_link=True)
        is_file = stat.S_ISREG(info.st_mode) and info.st_size <= _LARGEST
        return _SavedFile(files.read(path), stat.S_IMODE(info.st_mode)) if is_file else None
    except OSError:
        return None


def _restore_file(path: str, before: _SavedFile | None) -> None:
    files.clear(path)
    if before is None:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if before.is_link:
        os.symlink(before.data, path)
    else:
        files.create(path, before.data, before.mode)


def _is_harmless(path: str, before: _SavedFile | None, after: _SavedFile | None) -> bool:
    """A branch that an agent switched to and back, or a setting from installing packages."""
    if os.path.basename(path) == "HEAD":
        return True
    if os.path.basename(path) != "config" or before is None or after is None:
        return False
    known = before.data.split(b"\n")
    added = [line.strip().lower() for line in after.data.split(b"\n") if line not in known]
    return all(not line or line in _HUSKY or line.startswith(b"[") for line in added)


def remove_index_lock(index: str) -> None:
    """Only a killed run can have left it: nothing else uses this index."""
    files.clear(f"{index}.lock")
