"""What the user has changed since a run was killed: told from its agent's changes by the time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository


class AfterKill:
    """The time after the last sign of life of a run. Only times that an agent can't forge count: when the file system
    recorded a change, and not what was written down as the time."""

    def __init__(self, repository: Repository, since: float | None) -> None:
        """`since` is None if the time is not known: then nothing is known to be the user's."""
        self._repository = repository
        self._since = since

    def has_moved(self, ref: str, now: str | None) -> bool:
        """Whether the user moved or deleted a ref last."""
        if self._since is None:
            return False
        log = self._find_path("logs", ref)
        if now is None:
            has_logs = os.path.isdir(os.path.dirname(log))
            return self._is_later(_read_folder_time(log if has_logs else self._find_path(ref)))
        if not (entries := self._read_log(ref)):
            return self._is_later(_read_time(self._find_path(ref)))  # tags have no log
        newest, moment = entries[0]
        file_time = _read_time(log)  # a log may be in another format, without a file of its own
        return newest == now and self.is_later(moment) and (file_time is None or self._is_later(file_time))

    def find_value_at_kill(self, ref: str) -> str | None:
        """The value of a ref when the run was killed, as far as its log reaches."""
        return next((id for id, moment in self._read_log(ref) if not self.is_later(moment)), None)

    def has_changed(self, path: str) -> bool:
        """Whether the user changed or removed a file of git's last."""
        if os.path.lexists(path):
            return self._is_later(_read_time(path))
        folder = os.path.dirname(path)
        # Git's top folder changes all the time, so its time says nothing about one file.
        is_top = folder in (self._repository.common, self._repository.gitdir)
        return not is_top and self._is_later(_read_folder_time(path))

    def is_later(self, moment: int) -> bool:
        """Whether a time in whole seconds, as git records it, is later."""
        return self._is_later(moment + 1)

    def _is_later(self, moment: float | None) -> bool:
        return self._since is not None and moment is not None and moment > self._since

    def _find_path(self, *names: str) -> str:
        return os.path.join(self._repository.common, *names)

    def _read_log(self, ref: str) -> list[tuple[str, int]]:
        """The values of a ref, newest first, each with the time at which it got it."""
        options = ("--walk-reflogs", "--date=unix", "--format=%H %gd")
        lines = self._repository.text("log", *options, ref, "--", check=False).split("\n")
        rows = [(line.partition(" ")[0], line.rpartition("{")[2].rstrip("}")) for line in lines if line]
        return [(id, int(moment)) for id, moment in rows if moment.isdigit()]


def _read_time(path: str) -> float | None:
    try:
        return os.lstat(path).st_ctime
    except OSError:
        return None


def _read_folder_time(path: str) -> float | None:
    """When a file was last created in or removed from the folder of a path, or the next one above that exists."""
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return _read_time(folder)
