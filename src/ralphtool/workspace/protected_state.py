"""ralphtool's own files in the project, which an agent must not change: changes are detected and reverted.

The history is a special case: other runs and people add to it at any time, and none of that may be lost. Ordinary
growth is kept; any other change is reverted.
"""

from __future__ import annotations

import os
import time
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.core import files, layout, locks, session
from ralphtool.errors import CorruptState, RalphError, SessionNotFound
from ralphtool.history import History, neighbour
from ralphtool.judging.guard.model import GuardFinding

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralphtool.core.session import SessionState
    from ralphtool.history.records import Progress
    from ralphtool.workspace.own_files import OwnFiles

_HISTORY = (layout.HISTORY, layout.HISTORY_APART, "progress.journal")


class _SavedCopy(Struct, frozen=True):
    version: tuple[int, ...]
    mode: int
    is_foreign: bool = False  # belongs to another program, which may write it at any time: there is no copy


class _StateRecord(Struct, frozen=True):
    """Written next to the copies, in case the run is killed."""

    known: dict[str, _SavedCopy | None]


class ProtectedState:
    """The files in `.ralph` that a run of one change depends on, as they were before an agent began.

    The copies are in a private folder, so that the next run can recover from a kill.
    """

    def __init__(self, root: str, change: str, session_id: str, *, is_out_of_reach: bool = False) -> None:
        """`is_out_of_reach`: no agent can write there, so changes are the user's."""
        self.folder = layout.folder(root)
        self._is_out_of_reach = is_out_of_reach
        self.names = ("config.toml", *_HISTORY, f"standing/{change}.json", f"locks/{change}.lock")
        self.change = change
        self.session_id = session_id
        self._known: dict[str, _SavedCopy | None] = {}
        self._copies = files.private_path("ralph", f"kept-{session_id}", "record")
        self._state: SessionState | None = None
        # Without records this is unknown: then it may have been running until now.
        self._last_sign = locks.read_last_heartbeat(root, session_id) or time.time()

    @cached_property
    def _own(self) -> OwnFiles:
        from ralphtool.workspace.own_files import OwnFiles  # a run's start does not need it

        return OwnFiles(self.folder, os.path.join(os.path.dirname(self._copies), "own"))

    def remember(self, state: SessionState) -> None:
        self._state = state
        if not self._is_out_of_reach:
            self._own.remember()
        before = dict(self._known)
        for name in self._list_files():
            self._remember(name)
        if before != self._known:
            files.make_private_folders(self._copies)
            with open(self._copies, "wb") as file:
                file.write(msgspec.json.encode(_StateRecord(self._known)))

    def _list_files(self) -> list[str]:
        if self._is_out_of_reach:
            return []
        prompts = os.path.join(self.folder, "prompts")
        own = sorted(os.listdir(prompts)) if os.path.isdir(prompts) else []
        return [*self.names, *(f"prompts/{name}" for name in own)]

    def _remember(self, name: str) -> None:
        path = os.path.join(self.folder, name)
        version, known = _file_version(path), self._known.get(name)
        if version is None:
            self._known[name] = None
        elif self._is_foreign(name):
            self._known[name] = _SavedCopy((), 0, is_foreign=True)
        elif known is None or known.version != version:
            files.make_private_folders(self._copies)
            import shutil  # a run's start does not need it

            # In one step: after a kill, the next run would restore half a copy.
            shutil.copyfile(path, f"{self._copy_path(name)}.new")
            os.replace(f"{self._copy_path(name)}.new", self._copy_path(name))
            self._known[name] = _SavedCopy(version, os.stat(path).st_mode & 0o777)

    def _is_foreign(self, name: str) -> bool:
        """Whether the file under that name belongs to another program."""
        known = self._known.get(name)
        if name != layout.HISTORY or (known is not None and not known.is_foreign):
            return False
        try:
            return neighbour.is_foreign_file(os.path.join(self.folder, name))
        except (RalphError, OSError):
            return False  # a link or a folder does not belong to another program

    def _copy_path(self, name: str) -> str:
        return os.path.join(os.path.dirname(self._copies), f"copy-of-{name.replace('/', '-')}")

    def recover(self) -> list[GuardFinding]:
        """Reverts an agent's changes from before its run was killed."""
        try:
            self._known = typed.decode(files.read_private(self._copies), _StateRecord).known
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        self._forget_own()
        self._known = {name: one for name, one in self._known.items() if one is None or self._is_whole(name, one)}
        found = self.restore_changed(os.path.join(self.folder, "runs", self.session_id, "touched"), (), is_over=True)
        self.forget()
        return found

    def _is_whole(self, name: str, known: _SavedCopy) -> bool:
        """Whether there is a copy of the recorded version. Without a copy, no agent had begun."""
        if known.is_foreign:
            return True
        try:
            return os.path.getsize(self._copy_path(name)) == known.version[1]
        except (OSError, IndexError):
            return False

    # --- afterwards -----------------------------------------------------------------------------

    def restore_changed(self, keep_in: str, prd_ids: Collection[str], *, is_over: bool = False) -> list[GuardFinding]:
        """Reverts an agent's changes, and returns a finding for each. The changed files are kept in `keep_in`."""
        if self._is_out_of_reach:
            return [] if is_over else self._repair_session()
        for name in ("", "standing", "questions", "steering", "runs", "locks"):
            ensure_real_folder(os.path.join(self.folder, name).rstrip("/"))
        for name in ("questions/answered", f"steering/{self.change}"):
            _remove_if_no_folder(os.path.join(self.folder, name))
        self._own.restore_removed()
        names = {**self._known, **({} if is_over else dict.fromkeys(self._list_files()))}
        changed = [name for name in names if self._differs(name)]
        if set(changed) & set(_HISTORY) and self._has_only_grown(prd_ids):
            changed = [name for name in changed if name not in _HISTORY]
        if is_over:
            changed = [name for name in changed if not self._is_newer(name)]
        found = [self._build_finding(name) for name in sorted(changed)]
        for name in sorted(changed):
            self._restore_file(name, keep_in)
        return found if is_over else found + self._repair_session()

    def _build_finding(self, name: str) -> GuardFinding:
        what = "changed" if os.path.lexists(os.path.join(self.folder, name)) else "removed"
        return GuardFinding("ralph-touched", f".ralph/{name}", f"{what}, and restored")

    def _is_newer(self, name: str) -> bool:
        """Whether a file was changed after the run had ended: then it was not the agent."""
        try:
            return os.lstat(os.path.join(self.folder, name)).st_ctime > self._last_sign + locks.HEARTBEAT_SECONDS
        except OSError:
            return False

    def _differs(self, name: str) -> bool:
        known = self._known.get(name)
        now = _file_version(os.path.join(self.folder, name))
        if (known.version if known else None) == now or (known is not None and known.is_foreign):
            return False
        if known is None or now is None:
            return True
        try:
            return files.read(os.path.join(self.folder, name)) != files.read(self._copy_path(name))
        except OSError:
            return True  # perhaps a folder is in its place

    def _restore_file(self, name: str, keep_in: str) -> None:
        path = os.path.join(self.folder, name)
        if os.path.lexists(path):
            import shutil

            os.makedirs(keep_in, exist_ok=True)
            shutil.move(path, os.path.join(keep_in, name.replace("/", "-")))
        known = self._known.get(name)
        if known is not None:
            ensure_real_folder(os.path.dirname(path))
            files.create(path, files.read(self._copy_path(name)), known.mode)
            self._known[name] = _SavedCopy(_file_version(path) or (), known.mode)

    def _has_only_grown(self, prd_ids: Collection[str]) -> bool:
        """Whether the history was only added to, and not about this change's stories."""
        import shutil
        import tempfile

        if self._known.get(layout.HISTORY) is None and self._is_foreign(layout.HISTORY):
            return False  # another program's document would now hide ralphtool's
        with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
            place = layout.folder(folder)
            os.mkdir(place)
            for name in _HISTORY:
                known = self._known.get(name)
                if known and known.is_foreign:
                    files.create(os.path.join(place, name), b"[]", 0o600)  # whatever it has: ralphtool's is separate
                elif known:
                    shutil.copyfile(self._copy_path(name), os.path.join(place, name))
            try:
                before, now = History(folder).load(), History(os.path.dirname(self.folder)).load()
            except RalphError:
                return False
        return _is_growth(before, now, prd_ids)

    def _repair_session(self) -> list[GuardFinding]:
        """The session file is in a private folder, but an agent runs as the same user."""
        try:
            session.load(self.session_id)
        except (CorruptState, SessionNotFound):
            path = session.path_of(self.session_id)
            files.clear(path)
            files.make_private_folders(path)
            files.replace(path, session.encode(self._state or {}))
            return [GuardFinding("ralph-touched", path, "damaged, and restored to the state before the attempt")]
        return []

    def restore_interrupted(self) -> None:
        """The run ends in the middle of an iteration: its agent's changes are reverted."""
        if self._known:
            self._last_sign = time.time()
            self._forget_own()
            self.restore_changed(os.path.join(self.folder, "runs", self.session_id, "touched"), (), is_over=True)

    def _forget_own(self) -> None:
        """The run itself wrote these files last, not the agent."""
        self._known = {name: one for name, one in self._known.items() if not name.startswith(("standing/", "locks/"))}

    def forget(self) -> None:
        """Removes the copies."""
        files.clear(os.path.dirname(self._copies))


def ensure_real_folder(folder: str) -> None:
    """Ensures that a folder exists, whatever an agent put in its place."""
    if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
        os.unlink(folder)
    os.makedirs(folder, exist_ok=True)


def _remove_if_no_folder(folder: str) -> None:
    """Unlike `ensure_real_folder`, creates nothing: the folder need not exist."""
    if os.path.lexists(folder) and (os.path.islink(folder) or not os.path.isdir(folder)):
        os.unlink(folder)


def _file_version(path: str) -> tuple[int, ...] | None:
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)


def _is_growth(before: Progress, now: Progress, prd_ids: Collection[str]) -> bool:
    entries = {one.id: one for one in now.entries}
    learnings = {one.id: one for one in now.learnings}
    known = {one.id for one in before.entries}
    return (
        all(entries.get(one.id) == one for one in before.entries)
        and all(one.prd_id not in prd_ids for one in now.entries if one.id not in known)
        and all((other := learnings.get(one.id)) and other.content == one.content for one in before.learnings)
        and all(one in now.patterns for one in before.patterns)
    )
