"""Whether a disk is full."""

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_ROOM = 1 << 17  # bytes


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def find_full_disk(places: "Iterable[str]", least: int = LEAST_ROOM) -> str:
    """The first folder whose disk has no room for a small file; empty if all have room."""
    return next((place for place in places if _is_full(place, least)), "")


def count_free(place: str) -> int:
    disk = os.statvfs(place)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # part of it is reserved for root
    return free * disk.f_frsize


def _is_full(place: str, least: int) -> bool:
    try:
        return count_free(place) < least or not _has_file_left(os.statvfs(place))
    except OSError:
        return False  # it is gone, which is a different problem


def _has_file_left(disk: os.statvfs_result) -> bool:
    return disk.f_files == 0 or disk.f_ffree > 0  # some file systems don't limit the number of files
