"""Git's own files and refs, which an agent must not change: changes are detected and reverted.

Where the user may work in the repository at the same time, only what is the agent's is reverted: its hooks, and what
its own git commands report. Any other change is reported, with the command that reverts it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.core import files, layout
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.workspace.after_kill import AfterKill
from ralphtool.workspace.agent_trace import AgentTrace
from ralphtool.workspace.protected_config import restore_config
from ralphtool.workspace.protected_refs import ProtectedRefs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.workspace.agent_trace import TracedGit
    from ralphtool.workspace.git import Repository

_INFO = ("info/exclude", "info/attributes", "info/grafts", "info/sparse-checkout")
_OWN = ("config.worktree", "HEAD")  # of one working tree
_SHARED = ("config", *_INFO)  # the user may change them in another working tree
_HUSKY = (b"hookspath = .husky", b"hookspath = .husky/_")  # set by installing a common package
_LARGEST = 4 << 20
_MOST_TRACED = 5000  # refs: git reports each one that a command lists


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
    stash: list[bytes] = []
    run: str = ""  # whose agent it was about to start


class ProtectedGit:
    """The state before an agent began.

    `shared`: people may work in other worktrees of the repository, so not every change is the agent's.
    """

    def __init__(self, repository: Repository, branch: str, *, shared: bool) -> None:
        self.repository = repository
        self.branch = branch
        self.shared = shared
        self._files: dict[str, _SavedFile | None] = {}
        self._refs = ProtectedRefs(repository, branch)
        self._trace = AgentTrace(os.path.join(layout.in_git(repository.gitdir), "agent-git"))
        self._notices: list[str] = []
        self.tip = ""  # the branch's commit
        self.run = ""
        self.is_out_of_reach = False  # an agent can't touch it: changes are the user's

    @property
    def agent_variables(self) -> dict[str, str]:
        """For the environment of an agent: its git commands report what they do."""
        is_traced = not self.is_out_of_reach and len(self._refs.refs or ()) <= _MOST_TRACED
        return self._trace.variables if is_traced else {}

    def _look_for_worktrees(self) -> None:
        """The user may add one at any time, and has worked there even if it is gone afterwards."""
        self.shared = self.shared or _has_users_worktrees(self.repository.common)

    def take_notices(self) -> list[str]:
        """What changed since an agent began, and may be the user's."""
        taken, self._notices = self._notices, []
        return taken

    def remember(self, tip: str) -> None:
        if self.is_out_of_reach:
            self.tip = tip
            return
        known = self._files, self._refs.refs, self._refs.stash, self.tip
        self._files, self.tip = self._read_files(), tip
        self._look_for_worktrees()
        self._trace.restart()
        if self.shared or self._refs.refs is None:
            self._refs.remember()
        self._refs.keep(tip)
        if known != (self._files, self._refs.refs, self._refs.stash, self.tip):
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
        saved = {path: one for path, one in named.items() if one}
        known = _GitRecord(list(named), saved, self._refs.refs, self.tip, self._refs.stash, self.run)
        files.replace(self._record_path, msgspec.json.encode(known))

    def recover(self, since: float | None = None) -> None:
        """Reverts an agent's changes from before its run was killed; `take_notices` returns what was done.

        Changes after `since` are the user's; None if that time is not known."""
        if (known := self._read_record()) is None:
            return
        self._files = {os.path.join(self.repository.common, path): known.files.get(path) for path in known.paths}
        self._refs.refs, self._refs.stash, self.tip = known.refs, known.stash, known.tip
        found = self.restore_changed(AfterKill(self.repository, since))
        self._notices = [*(f"{one.path}: {one.detail}" for one in found), *self._notices]

    def find_killed_run(self) -> str:
        """The run whose agent was not over when it was killed; empty if that is not known."""
        known = self._read_record()
        return known.run if known else ""

    def _read_record(self) -> _GitRecord | None:
        try:
            known = typed.decode(files.read(self._record_path), _GitRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        # An earlier version wrote absolute paths, maybe before the project was moved.
        return None if any(map(os.path.isabs, known.paths)) else known

    def forget(self) -> None:
        if self.is_out_of_reach and not os.path.exists(self._record_path):
            return
        self._refs.let_go()
        self._trace.clear()
        files.remove(self._record_path)

    def restore_changed(self, late: AfterKill | None = None) -> list[GuardFinding]:
        """Reverts the changes, and returns a finding for each. `late`: the run was killed, and the user may have
        worked here since."""
        self._look_for_worktrees()
        self.unlock()
        if self.is_out_of_reach:
            return []
        traced = self._trace.read() if self.shared else None
        found = self._restore_files(traced, late)
        refs = self._refs.restore(traced, late)
        found += refs.findings
        self._notices += refs.notices
        if found or self._notices:
            self._refs.refs = None
            if self.shared:  # each change is reported once
                self._files = self._read_files()
                self._refs.remember()
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
        paths = [self._git_path(name) for name in (*_OWN, *_SHARED)]
        hooks = os.path.join(self.repository.common, "hooks")
        paths += [os.path.join(hooks, name) for name in _list_names(hooks)]
        return {path: _read_saved(path) for path in paths}

    def _git_path(self, name: str) -> str:
        return os.path.join(self.repository.gitdir if name in _OWN else self.repository.common, name)

    def _restore_files(self, traced: TracedGit | None, late: AfterKill | None) -> list[GuardFinding]:
        now = self._read_files()
        changed = sorted(path for path in {*now, *self._files} if now.get(path) != self._files.get(path))
        # All are looked up first: what is restored leaves its own time.
        later = [path for path in changed if late and late.has_changed(path)]
        found = []
        for path in changed:
            if traced is not None and self._is_shared(path):
                found += self._settle_shared(path, traced, is_late=late is not None)
            elif path in later:
                self._notices += self._describe_kept(path)
            else:
                found += self._restore_file(path, now.get(path), is_late=late is not None)
        return found

    def _restore_file(self, path: str, now: _SavedFile | None, *, is_late: bool) -> list[GuardFinding]:
        kept = self._keep_copy(path)
        _restore_file(path, self._files.get(path))
        if _is_harmless(path, self._files.get(path), now):
            return []
        shown = f"; the changed file is {kept}" if is_late and kept else ""
        return [self._find(f"changed by the agent, and restored{shown}", path)]

    def _describe_kept(self, path: str) -> list[str]:
        """A file that the user changed last stays, but the agent may have changed it before."""
        if os.path.basename(path) == "HEAD":
            return []
        command = self._build_command(path, self._files.get(path))
        changed = "changed" if os.path.lexists(path) else "removed"
        return [
            f"{self._display_name(path)} was {changed} after the run had been killed, and is left as it is. If it "
            f"wasn't you, run `{command}`"
        ]

    def _is_shared(self, path: str) -> bool:
        return path in [self._git_path(name) for name in _SHARED]

    def _settle_shared(self, path: str, traced: TracedGit, *, is_late: bool) -> list[GuardFinding]:
        """A file that the user may have changed too. Only settings can be known to be the agent's."""
        before = self._files.get(path)
        others, found = ["it"], []
        if os.path.basename(path) == "config" and before is not None:
            self._keep_copy(path)
            reverted = restore_config(self.repository, path, before.data, traced)
            others = reverted.others
            if reverted.named:
                found = [self._find(f"{', '.join(reverted.named)} changed by the agent, and restored", path)]
        if others and not is_late:
            self._notices.append(self._describe_shared(path, before, others))
        return found

    def _describe_shared(self, path: str, before: _SavedFile | None, others: Sequence[str]) -> str:
        name = self._display_name(path)
        what = name if others == ["it"] else f"{', '.join(others)} in {name}"
        command = self._build_command(path, before)
        return f"{what} changed while the agent worked, maybe by you. If it wasn't you, run `{command}`"

    def _build_command(self, path: str, before: _SavedFile | None) -> str:
        """The command that restores a file; keeps a copy for that."""
        if before is None:
            return f"rm {shlex.quote(path)}"
        kept = self._find_copy_path(path, f"before-{time.time_ns()}")
        _restore_file(kept, before)
        return f"cp {shlex.quote(kept)} {shlex.quote(path)}"

    def _find(self, detail: str, path: str) -> GuardFinding:
        return GuardFinding("git-touched", self._display_name(path), detail)

    def _keep_copy(self, path: str) -> str | None:
        """Keeps the changed file, and returns where: the user may have changed it after all. HEAD is left out: every
        switch changes it."""
        if not os.path.isfile(path) or os.path.basename(path) == "HEAD":
            return None
        kept = self._find_copy_path(path, str(os.lstat(path).st_mtime_ns))
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        shutil.copy2(path, kept)
        return kept

    def _find_copy_path(self, path: str, ending: str) -> str:
        name = os.path.relpath(path, self.repository.common).replace("/", "-")
        return os.path.join(layout.in_git(self.repository.common), "touched", f"{name}-{ending}")

    def _display_name(self, path: str) -> str:
        return os.path.join(".git", os.path.relpath(path, self.repository.common))


def _has_users_worktrees(common: str) -> bool:
    """Whether there are linked worktrees other than those of ralphtool."""
    folder = os.path.join(common, "worktrees")
    ours = os.path.join(os.path.realpath(layout.in_git(common)), "worktrees", "")
    return any(not _read_place(os.path.join(folder, name)).startswith(ours) for name in _list_names(folder))


def _read_place(folder: str) -> str:
    """Where a linked worktree is, as its folder in git's own says; empty if that is not known."""
    try:
        return os.path.realpath(os.fsdecode(files.read(os.path.join(folder, "gitdir"))).strip())
    except OSError:
        return ""


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
