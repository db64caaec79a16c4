"""The spec formats of other packages, found by their entry points."""

import os
import sys

from ralphtool.core import files

ENTRY_POINTS = "ralphtool.specs"
_INSTALLED = (".dist-info", ".egg-info")
_found: "dict[tuple[str, ...], dict[str, str]]" = {}  # by Python's search path


def find_entry_points() -> dict[str, str]:
    """Each format's name and where it is loaded from. Importing `importlib.metadata` costs more than a whole list, so
    we check first whether it is needed, and only once."""
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
    """Whether a package installed there names our group; an archive, which can't be searched, counts as yes."""
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
