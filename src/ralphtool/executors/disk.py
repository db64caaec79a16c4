"""Whether a story met a full disk, and whether its files may be what fills it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.core.disk import count_free, find_full_disk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.executors import Report
    from ralphtool.workspace import Workspace

_LARGE = 1 << 20  # bytes: what most stories write is less
_MANY = 10_000  # files


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
    return size > _LARGE and size > count_free(top)


def _measure(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512  # many small files take up more than their sizes
    except OSError:
        return 0  # removed by the story
