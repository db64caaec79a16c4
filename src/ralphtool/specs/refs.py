"""Paths: those that are given where a spec is asked for, and those that an adapter says belong to a change."""

import os

from ralphtool.core import layout
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidValue, SpecError, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A file that belongs to no change that was found: how its name ends says how it is read.
_BY_ENDING = {".md": "checklist", ".markdown": "checklist", ".json": "prd"}


def find_inside(project: str, path: str) -> str:
    """A path as seen from the project; one that is named from where somebody stands is found all the same."""
    here = os.path.abspath(path)
    is_here = os.path.isabs(path) or os.path.exists(here)
    return os.path.relpath(here, project) if is_here else os.path.normpath(path)


def build_ref(path: str) -> str | None:
    """The ref of a file that is read by itself."""
    format = _BY_ENDING.get(os.path.splitext(path)[1])
    return f"{format}:{os.path.normpath(path)}" if format else None


def locate_file(project: str, path: str, find_adapter: "Callable[[str], Any]") -> tuple[str, str]:
    """The name of the change that is read from a file by itself, and its ref."""
    full, ref = os.path.join(project, path), build_ref(path)
    is_there = os.path.lexists(full)
    if ref is None and not is_there:
        raise ChangeNotFound(f"there is no {full}: give --spec the path of a file or folder that contains a change")
    if ref is None:
        raise InvalidValue(
            f"{shorten(path)} contains no change in a format that ralphtool reads: name a Markdown file with boxes, "
            "a JSON file with a list of stories, or a file of a change that `ralphtool list` shows"
        )
    # What is not here may be on the branch of the change: that it is nowhere is told by whoever opens it.
    name_in = getattr(find_adapter(ref.partition(":")[0]), "name_in", None) if is_there else None
    stem = os.path.splitext(os.path.basename(path))[0].lstrip("@")
    return name_in(project, path) if name_in else projects.make_name(stem), ref


def check_places(places: object, format: str, change: str) -> list[str]:
    """What an adapter says belongs to a change: paths below the project's folder, as git can be asked for them."""
    known: list[Any] = list(places) if isinstance(places, (list, tuple)) else [places]
    wrong = [place for place in known if not _is_inside(place)] if isinstance(places, (list, tuple)) else known
    if wrong:
        raise SpecError(
            f"the spec adapter {format} returned the place {shorten(str(wrong[0]))} for {change}: places must be "
            "paths relative to the project's folder and inside it"
        )
    return known


def _is_inside(place: object) -> bool:
    if not isinstance(place, str) or not place or "\0" in place or place.startswith((":", "/")):
        return False
    parts = place.split("/")
    return ".." not in parts and parts[0] not in (layout.FOLDER, ".git")
