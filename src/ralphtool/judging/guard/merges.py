"""How an agent resolved conflicts with other stories: markers that it left, work that it undid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import HAS_MARKERS, GuardFinding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_MARKERS = re.compile(rb"^<{7}(?: .*)?\n(?:.*\n)*?={7}\r?\n(?:.*\n)*?>{7}(?: .*)?$", re.MULTILINE)

_SIDE = re.compile(r"~[0-9a-f]{40}(?:[0-9a-f]{24})?(?:_\d+)?$")


def find_markers(files: Mapping[str, bytes]) -> list[GuardFinding]:
    """Files in which a conflict was not resolved."""
    return [GuardFinding("conflict-marker", path, HAS_MARKERS) for path, data in files.items() if _MARKERS.search(data)]


def find_sides(paths: Iterable[str]) -> list[GuardFinding]:
    """Files that git renamed because the other side has a folder of that name, or the other way round."""
    told = "it is one side of a conflict, judging by the name that git gave it"
    return [GuardFinding("conflict-marker", path, told) for path in paths if _SIDE.search(path)]


def find_clobbered(
    changed: Collection[str], in_conflict: Collection[str], own: Collection[str], others: Collection[str]
) -> list[GuardFinding]:
    """Files that an agent changed while it resolved a conflict elsewhere. `own` has the files that its story had
    changed before, `others` those of other stories: a file that only they changed was already merged."""
    told = "other stories changed it without a conflict, and their changes are not intact"
    theirs = {*others}.difference(own, in_conflict)
    return [GuardFinding("merge-clobber", path, told) for path in changed if path in theirs]
