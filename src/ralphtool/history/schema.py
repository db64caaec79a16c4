"""The JSON Schema of the records, generated from their types; and error messages based on it."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import msgspec

from ralphtool.errors import shorten
from ralphtool.history.records import HistoryRecord, Progress, is_moment

_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


@cache
def build_schema() -> dict[str, Any]:
    """The whole document as JSON Schema 2020-12."""
    made = msgspec.json.schema(Progress)
    definitions = made["$defs"]
    whole = definitions.pop("Progress")
    for definition in (whole, *definitions.values()):
        for field in definition["properties"].values():
            _make_portable(field)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://ralph.dev/schemas/progress.json",
        **whole,
        "$defs": definitions,
    }


def _make_portable(field: dict[str, Any]) -> None:
    """Uses patterns that work in every regex dialect; for times, the format is enough."""
    if "format" in field:
        del field["pattern"]
    elif "pattern" in field:
        field["pattern"] = field["pattern"].replace(r"\Z", "$")
        field["not"] = {"pattern": "\n"}  # some dialects allow it before the end
    if "enum" in field:
        field["type"] = "string"


# --- error messages ---------------------------------------------------------------------------------


def explain(error: msgspec.ValidationError, value: object, kind: type[HistoryRecord], where: str = "") -> str:
    """Says which field is wrong, why, and what is allowed there. `where` is the path of the value itself."""
    paths = []
    for steps in (_parse_path(str(error)), []):
        path = where + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
        try:
            found = _describe_problem(path.removeprefix("."), *_follow_path(value, _find_definition(kind), steps))
        except (KeyError, IndexError, TypeError):  # a field name that looks like a path
            continue
        if found:
            return found
        paths.append(path.removeprefix("."))
    return f"{paths[0] or 'the document'}: {shorten(str(error), 200)}"


def _follow_path(value: Any, field: dict[str, Any], steps: list[str | int]) -> tuple[Any, dict[str, Any]]:
    for step in steps:
        value, field = _enter(value, field, step)
    return value, field


def _parse_path(message: str) -> list[str | int]:
    path = message.rpartition(" - at `$")[2].rstrip("`") if " - at `$" in message else ""
    return [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]


def _find_definition(kind: type[HistoryRecord]) -> dict[str, Any]:
    whole = build_schema()
    found: dict[str, Any] = whole if kind is Progress else whole["$defs"][kind.__name__]
    return found


def _enter(value: Any, field: dict[str, Any], step: str | int) -> tuple[Any, dict[str, Any]]:
    inside = field["items"] if isinstance(step, int) else field["properties"][step]
    name = inside.get("$ref", "").rpartition("/")[2]
    return value[step], build_schema()["$defs"][name] if name else inside


def _describe_problem(path: str, value: object, field: dict[str, Any]) -> str | None:
    wanted = field["type"]
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path}: the number is out of range"
    if type(value) is not _TYPES[wanted]:
        return f"{path or 'the document'}: {_format_value(value)} is not {_add_article(wanted)}"
    if isinstance(value, dict):
        return _describe_key_problem(path, value, field)
    if "enum" in field and value not in field["enum"]:
        return f"{path}: {_format_value(value)} is not one of {', '.join(field['enum'])}"
    if field.get("format") == "date-time" and not is_moment(str(value)):
        return f"{path}: {_format_value(value)} is not a date and time with its zone, as in 2026-01-31T09:30:00Z"
    if "pattern" in field and ("\n" in str(value) or not re.search(field["pattern"], str(value), re.ASCII)):
        return f"{path}: {_format_value(value)} does not match {field['pattern']}"
    if "minimum" in field and isinstance(value, int) and value < field["minimum"]:
        return f"{path}: {_format_value(value)} is less than {field['minimum']}"
    return None


def _describe_key_problem(path: str, value: dict[str, Any], field: dict[str, Any]) -> str | None:
    dot = "." if path else ""
    if unknown := [key for key in value if key not in field["properties"]]:
        plain = unknown[0].isidentifier() and unknown[0].isascii() and len(unknown[0]) <= 60
        name = unknown[0] if plain else shorten(unknown[0])
        return f"{path}{dot}{name}: unknown field; the fields are {', '.join(field['properties'])}"
    if missing := [key for key in field["required"] if key not in value]:
        return f"{path}{dot}{missing[0]}: this required field is missing"
    return None


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return msgspec.json.encode(value).decode()[:60]


def _add_article(wanted: str) -> str:
    return f"an {wanted}" if wanted[0] in "aeio" else f"a {wanted}"


def keep_known_fields(value: Any, kind: type[HistoryRecord]) -> Any:
    """The parts of a later version's document that this version knows."""
    return _keep_known(value, _find_definition(kind))


def _keep_known(value: Any, field: dict[str, Any]) -> Any:
    field = build_schema()["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
    if isinstance(value, dict) and "properties" in field:
        properties = field["properties"]
        return {name: _keep_known(inside, properties[name]) for name, inside in value.items() if name in properties}
    if isinstance(value, list) and "items" in field:
        return [_keep_known(inside, field["items"]) for inside in value]
    return value
