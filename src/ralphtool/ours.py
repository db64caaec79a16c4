"""Our own files in the project, which an agent has no business with: noticed when touched, and put back.

The history is the exception that needs care: other runs and people add to it at any time, and nothing of theirs may be
lost. What grew in the ordinary way is left; anything else is put back.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import files, session
from ralphtool.errors import CorruptState, RalphError, SessionNotFound
from ralphtool.guard import Finding
from ralphtool.history import History

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralphtool.history.records import Progress
    from ralphtool.session import State

_HISTORY = ("progress.json", "progress.journal")
_SMALL = 1 << 20  # what is bigger is kept as a file


class _Copy(Struct, frozen=True):
    version: tuple[int, ...]
    data: bytes | None  # None: it lies in the folder of copies
    mode: int


class Ours:
    """What was in `.ralph` before an agent began, as far as a run of one change depends on it."""

    def __init__(self, root: str, change: str, session_id: str) -> None:
        self.folder = os.path.join(root, ".ralph")
        self.names = ("config.toml", *_HISTORY, f"standing/{change}.json", f"locks/{change}.lock")
        self.session_id = session_id
        self._known: dict[str, _Copy | None] = {}
        self._copies = files.private_path("ralph", "kept", f"{session_id}-")
        self._state: State | None = None

    def remember(self, state: State) -> None:
        self._state = state
        for name in self._all():
            self._remember(name)

    def _all(self) -> list[str]:
        prompts = os.path.join(self.folder, "prompts")
        own = sorted(os.listdir(prompts)) if os.path.isdir(prompts) else []
        return [*self.names, *(f"prompts/{name}" for name in own)]

    def _remember(self, name: str) -> None:
        path = os.path.join(self.folder, name)
        version, known = _version(path), self._known.get(name)
        if version is None:
            self._known[name] = None
        elif known is None or known.version != version:
            self._known[name] = self._copied(name, path, version)

    def _copied(self, name: str, path: str, version: tuple[int, ...]) -> _Copy:
        info = os.stat(path)
        if info.st_size <= _SMALL:
            return _Copy(version, files.read(path), info.st_mode & 0o777)
        files.make_private_folders(self._copies)
        shutil.copyfile(path, self._copies + name.replace("/", "-"))
        return _Copy(version, None, info.st_mode & 0o777)

    # --- afterwards -----------------------------------------------------------------------------

    def touched(self, keep_in: str, prd_ids: Collection[str]) -> list[Finding]:
        """What an agent changed. It is put back, and what stood there is kept in a folder."""
        changed = [name for name in {**self._known, **dict.fromkeys(self._all())} if self._differs(name)]
        if changed and set(changed) <= set(_HISTORY) and self._grew(prd_ids):
            return []
        found = []
        for name in sorted(changed):
            self._put_back(name, keep_in)
            found.append(Finding("ralph-touched", f".ralph/{name}", "changed, and put back"))
        return found + self._mend_session()

    def _differs(self, name: str) -> bool:
        known = self._known.get(name)
        now = _version(os.path.join(self.folder, name))
        if (known.version if known else None) == now:
            return False
        if known is None or now is None:
            return True
        return files.read(os.path.join(self.folder, name)) != self._data(name, known)

    def _data(self, name: str, known: _Copy) -> bytes:
        return files.read(self._copies + name.replace("/", "-")) if known.data is None else known.data

    def _put_back(self, name: str, keep_in: str) -> None:
        path = os.path.join(self.folder, name)
        if os.path.lexists(path):
            os.makedirs(keep_in, exist_ok=True)
            shutil.move(path, os.path.join(keep_in, name.replace("/", "-")))
        known = self._known.get(name)
        if known is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            files.create(path, self._data(name, known), known.mode)
            self._known[name] = _Copy(_version(path) or (), known.data, known.mode)

    def _grew(self, prd_ids: Collection[str]) -> bool:
        """Whether somebody else only added to the history, and nothing about this change's stories."""
        with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
            place = os.path.join(folder, ".ralph")
            os.mkdir(place)
            for name in _HISTORY:
                if known := self._known.get(name):
                    files.create(os.path.join(place, name), self._data(name, known), 0o600)
            try:
                before, now = History(folder).load(), History(os.path.dirname(self.folder)).load()
            except RalphError:
                return False
        return _is_growth(before, now, prd_ids)

    def _mend_session(self) -> list[Finding]:
        """The session's file lies in a private folder, but an agent is the same user."""
        try:
            session.load(self.session_id)
        except (CorruptState, SessionNotFound):
            path = session.path_of(self.session_id)
            if os.path.lexists(path):
                os.unlink(path)
            files.replace(path, session.encode(self._state or {}))
            return [Finding("ralph-touched", path, "damaged, and put back as it was before the attempt")]
        return []

    def forget(self) -> None:
        """Removes the copies."""
        folder, prefix = os.path.split(self._copies)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.startswith(prefix):
                files.remove(os.path.join(folder, name))


def _version(path: str) -> tuple[int, ...] | None:
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
