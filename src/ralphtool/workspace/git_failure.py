"""Why a git command failed: in its own words, or because a disk was full."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from ralphtool.core.disk import find_full_disk
from ralphtool.errors import GitError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_HUGE_PAGE = 1 << 21  # bytes: the most that the system looks for at once, for a file that it keeps in memory


def explain_failure(name: str, status: int, errors: bytes, places: Sequence[str]) -> GitError:
    """`places` are the folders that git uses. Their disks are looked at now: soon, there may be room again."""
    said = errors.decode("utf-8", "replace").strip() or f"exit status {status}"
    full = _find_full_disk(status, said, places)
    told = f" (the disk of {full} is full: free some space there)" if full else ""
    return GitError(f"git {name}: {said}{told}", full)


def _find_full_disk(status: int, said: str, places: Sequence[str]) -> str:
    if any(line.endswith(_FULL) for line in said.splitlines()):
        return find_full_disk(places) or places[0]
    # It gets this signal if there is no page left for a file with holes that it reads.
    return find_full_disk(places, _HUGE_PAGE) if status == -signal.SIGBUS else ""
