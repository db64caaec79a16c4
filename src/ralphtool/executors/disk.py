"""Whether a disk is full, and whether the files of a story may be what fills it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.executors import Report
    from ralphtool.workspace import Workspace

_LEAST_ROOM = 1 << 17  # bytes
_LARGE = 1 << 20  # bytes: what most stories write is less
_MANY = 10_000  # files


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def find_full_disk(places: Iterable[str]) -> str:
    """The first folder whose disk has no room for a small file; empty if all have room."""
    return next((place for place in places if _is_full(place)), "")


def look_at(report: Report, workspace: Workspace, folder: str) -> Report:
    """Adds to the report whether one of these disks is full, or was full before."""
    full = report.full_disk or find_full_disk((workspace.root, folder))
    top = os.path.join(workspace.root, "../" * workspace.prefix.count("/"))  # what the paths are relative to
    return structs.replace(report, full_disk=full, fills_disk=bool(full) and _may_fill(top, report.paths))


def _may_fill(top: str, paths: Sequence[str]) -> bool:
    """Whether these files, together, are many, or larger than what is left of their disk."""
    if len(paths) > _MANY:
        return True
    size = sum(_measure(os.path.join(top, path)) for path in paths)
    return size > _LARGE and size > _count_free(top)


def _is_full(place: str) -> bool:
    try:
        return _count_free(place) < _LEAST_ROOM or not _has_file_left(os.statvfs(place))
    except OSError:
        return False  # it is gone, which is a different problem


def _count_free(place: str) -> int:
    disk = os.statvfs(place)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # part of it is reserved for root
    return free * disk.f_frsize


def _has_file_left(disk: os.statvfs_result) -> bool:
    return disk.f_files == 0 or disk.f_ffree > 0  # some file systems don't limit the number of files


def _measure(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512  # many small files take up more than their sizes
    except OSError:
        return 0  # removed by the story
