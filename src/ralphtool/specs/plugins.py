"""The spec formats that other packages bring, by the entry points of this group."""

import os
import sys

from ralphtool.core import files

ENTRY_POINTS = "ralphtool.specs"
_INSTALLED = (".dist-info", ".egg-info")
_found: "dict[tuple[str, ...], dict[str, str]]" = {}  # by where Python looks for packages


def find_entry_points() -> dict[str, str]:
    """Each format's name and where it is loaded from. Asking Python costs more than a whole list, so we look first,
    and once."""
    places = tuple(sys.path)
    if places not in _found:
        _found[places] = _look_for_entry_points()
    return _found[places]


def _look_for_entry_points() -> dict[str, str]:
    if not any(_may_bring_formats(folder) for folder in sys.path):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _may_bring_formats(folder: str) -> bool:
    """Whether a package that is installed there names our group; what can't be looked into, such as an archive, may."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return os.path.isfile(folder)
    marks = [os.path.join(folder, name, "entry_points.txt") for name in names if name.endswith(_INSTALLED)]
    return any(_has_our_group(path) for path in marks)


def _has_our_group(path: str) -> bool:
    try:
        return f"[{ENTRY_POINTS}]".encode() in files.read(path)
    except OSError:
        return False
