"""Changes that are folders: their names and paths."""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.specs import ChangeLocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Locate = Callable[[str], list[ChangeLocation]]


def locate(
    project: str,
    format: str,
    parent: str,
    is_change: "Callable[[str], bool]",
    *,
    is_usual: bool = True,
    nested: bool = False,
) -> list[ChangeLocation]:
    """The changes in a folder. In the usual folder, a ref has a path only if the names of folder and change differ."""
    try:
        names = sorted(os.listdir(os.path.join(project, parent)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for folder in names:
        place = os.path.join(parent, folder)
        if (name := projects.make_name(folder)) and is_change(os.path.join(project, place)):
            ref = format if is_usual and name == folder else f"{format}:{place}"
            found.append(ChangeLocation(name, ref, nested=nested))
    return found


def find(
    project: str, change: str, where: str | None, is_change: "Callable[[str], bool]", locate: "Locate"
) -> str | None:
    """The path in the project of a change whose folder has another name, or is not at the usual place."""
    if where is None:
        return next((specs.file_of(place.ref) for place in locate(project) if place.change == change), None)
    place = os.path.normpath(where)
    is_there = is_change(os.path.join(project, place)) and projects.make_name(os.path.basename(place)) == change
    return place if is_there else None
