"""Detects an agent's ticks while it works: those in the spec of its workspace, and those in the session."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Version = tuple[int, int, int, int]  # mode, inode, time and size of a file
_BETWEEN = 0.5  # seconds between two looks
_LARGEST = 4 << 20  # bytes of a file: reading more than the size of a spec would take too long


class TickWatch:
    """Watches the files that contain the ticks. Nothing is read until one of them has changed."""

    def __init__(
        self,
        paths: Sequence[str],
        read: Callable[[], frozenset[str]],
        known: frozenset[str],
        tell: Callable[[frozenset[str]], None],
    ) -> None:
        self._paths = paths
        self._read = read
        self._known = known
        self._tell = tell
        self._last_look = 0.0
        self._versions = self._read_versions()

    def look_and_ask(self, stop: Callable[[], bool]) -> bool:
        """Looks whenever the caller checks whether the agent must be stopped."""
        self.look()
        return stop()

    def look(self, *, at_once: bool = False) -> None:
        """Cheap enough to call all the time."""
        now = time.monotonic()
        if now - self._last_look < _BETWEEN and not at_once:
            return
        self._last_look = now
        versions = self._read_versions()
        if versions == self._versions:
            return
        self._versions = versions
        try:
            ticked = self._read() if _are_readable(versions) else self._known
        except (RalphError, OSError):
            return  # the agent is writing it, or has broken it: the verdict shows which
        if ticked != self._known:
            self._known = ticked
            self._tell(ticked)

    def _read_versions(self) -> list[_Version | None]:
        return [_read_version(path) for path in self._paths]


def _read_version(path: str) -> _Version | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mode, info.st_ino, info.st_mtime_ns, info.st_size


def _are_readable(versions: Sequence[_Version | None]) -> bool:
    found = [one for one in versions if one]
    return all(stat.S_ISREG(mode) and size <= _LARGEST for mode, _, _, size in found)
