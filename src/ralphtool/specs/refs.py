"""Paths: those that are given as a spec, and those that belong to a change according to its adapter."""

import os

from ralphtool.core import layout
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidValue, SpecError, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# For a file that belongs to no known change, the ending of its name decides the format.
_BY_ENDING = {".md": "checklist", ".markdown": "checklist", ".json": "prd"}


def find_inside(project: str, path: str) -> str:
    """A path relative to the project, given relative to the project or to the current folder."""
    here = os.path.abspath(path)
    is_here = os.path.isabs(path) or os.path.exists(here)
    return os.path.relpath(here, project) if is_here else os.path.normpath(path)


def build_ref(path: str) -> str | None:
    """The ref of a single file."""
    format = _BY_ENDING.get(os.path.splitext(path)[1])
    return f"{format}:{os.path.normpath(path)}" if format else None


def locate_file(project: str, path: str, find_adapter: "Callable[[str], Any]") -> tuple[str, str]:
    """The name and the ref of the change in a single file."""
    full, ref = os.path.join(project, path), build_ref(path)
    is_there = os.path.lexists(full)
    if ref is None and not is_there:
        raise ChangeNotFound(f"there is no {full}: give --spec the path of a file or folder that contains a change")
    if ref is None:
        raise InvalidValue(
            f"{shorten(path)} contains no change in a format that ralphtool reads: name a Markdown file with boxes, "
            "a JSON file with a list of stories, or a file of a change that `ralphtool list` shows"
        )
    # A missing file may be on the branch of the change; if it is nowhere, opening it fails.
    name_in = getattr(find_adapter(ref.partition(":")[0]), "name_in", None) if is_there else None
    stem = os.path.splitext(os.path.basename(path))[0].lstrip("@")
    return name_in(project, path) if name_in else projects.make_name(stem), ref


def check_places(places: object, format: str, change: str) -> list[str]:
    """Checks an adapter's places: they must be paths below the project's folder that can be passed to git."""
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
