"""The change state as plain data, for commands that only read it and must be fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import files, layout, quickjson
from ralphtool.errors import CorruptState

if TYPE_CHECKING:
    from typing import Any


def load_change_state(root: str, change: str) -> dict[str, Any]:
    """Empty before the first run."""
    path = layout.change_state(root, change)
    try:
        fields = quickjson.loads(files.read(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError:
        raise _damaged_error(path) from None
    if not (isinstance(fields, dict) and _is_sound(fields)):
        raise _damaged_error(path)
    return fields


def _is_sound(fields: dict[str, Any]) -> bool:
    stories = fields.get("stories", {})
    if not isinstance(stories, dict) or not all(isinstance(one, dict) for one in stories.values()):
        return False
    asked = [one.get("question") for one in stories.values()]
    told = [one.get("told", []) for one in (fields, *stories.values())]
    return all(one is None or isinstance(one, dict) for one in asked) and all(map(_are_texts, told))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _damaged_error(path: str) -> CorruptState:
    return CorruptState(f"{path} is damaged: run `ralphtool doctor` to see what to do")
