"""Edits JSON text in place: finds the positions of values, and changes one of them.

Everything else (keys, their order, spacing, escapes, numbers) stays as it is.
"""

from ralphtool.core import quickjson
from ralphtool.errors import SpecError
from ralphtool.specs import markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def parse_object(text: str, path: str) -> "dict[str, Any]":
    try:
        value = quickjson.loads(text)
    except ValueError as error:
        markdown.refuse_conflict(text, path)
        raise SpecError(f"{path} is not JSON ({error}): fix it. Comments and trailing commas are not allowed") from None
    if not isinstance(value, dict):
        raise SpecError(f"{path} must contain an object, not {NAMES.get(type(value), 'nothing')}")
    return value


def find(text: str, *way: "str | int") -> int:
    """The index of the value at this path of keys and positions, outermost first; KeyError if it is missing."""
    at = quickjson.skip_space(text, 0)
    for step in way:
        at = _find_element(text, at, step) if isinstance(step, int) else _find_member(text, at, step)
    return at


def replace(text: str, at: int, value: str) -> str:
    """Replaces the value that begins there by another one, given as JSON."""
    return text[:at] + value + text[quickjson.scan_value(text, at)[1] :]


def add_member(text: str, start: int, member: str) -> str:
    """Adds a member to the object that begins there, after its last one and with the same spacing."""
    members = _list_members(text, start)
    if not members:
        return f"{text[: start + 1]}{member}{text[start + 1 :]}"
    first = text.index('"', start)
    end = members[-1][2]
    return f"{text[:end]},{text[start + 1 : first]}{member}{text[end:]}"


def _list_members(text: str, start: int) -> "list[tuple[str, int, int]]":
    """The key, and the start and end of the value, of every member of the object that begins at `start`."""
    members = []
    index = quickjson.skip_space(text, start + 1)
    while text[index] != "}":
        key, index = quickjson.scan_value(text, index)
        value = quickjson.skip_space(text, quickjson.skip_space(text, index) + 1)
        end = quickjson.scan_value(text, value)[1]
        members.append((key, value, end))
        index = quickjson.skip_space(text, end)
        if text[index] == ",":
            index = quickjson.skip_space(text, index + 1)
    return members


def _find_member(text: str, start: int, key: str) -> int:
    for name, value, _ in reversed(_list_members(text, start)):  # of a duplicate key, the last one counts
        if name == key:
            return value
    raise KeyError(key)


def _find_element(text: str, start: int, position: int) -> int:
    index = quickjson.skip_space(text, start + 1)
    for _ in range(position):
        end = quickjson.skip_space(text, quickjson.scan_value(text, index)[1])
        index = quickjson.skip_space(text, end + 1)
    return index
