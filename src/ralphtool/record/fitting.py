"""Values of an untrusted record: only what matches its type and fits into memory is kept."""

from __future__ import annotations

import types
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, structs

from ralphtool import typed

_TEXT, _ITEM, _LATER_ITEM = 8000, 1000, 60  # characters of a text, and of one in a list
_ITEMS, _SHOWN = 1000, 20  # items in a list, and how many of them are shown
_FREE = 64 << 10  # bytes of a value without a type

StructT = TypeVar("StructT", bound=Struct)


def fit(kind: Any, value: object) -> Any:
    """As much of a value as matches a type; UNSET if nothing does."""
    try:
        return typed.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for half a surrogate pair in a tag or a key
        if isinstance(value, dict):
            member = _find_struct(kind, value)
            return UNSET if member is None else _fit_fields(member, value)
        if get_origin(kind) is tuple and get_args(kind)[1:] == (...,) and isinstance(value, list):
            item = get_args(kind)[0]
            return tuple(fitted for one in value if (fitted := fit(item, one)) is not UNSET)
        return UNSET


def _find_struct(kind: Any, value: dict[str, Any]) -> type[Struct] | None:
    """The struct that a value is meant for: in a union, the only one, or the one with its tag."""
    if isinstance(kind, types.UnionType):
        members = [one for one in get_args(kind) if one is not type(None)]
        if len(members) == 1:
            return _find_struct(members[0], value)
        return next((one for one in members if _has_tag(one, value)), None)
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _has_tag(kind: Any, value: dict[str, Any]) -> bool:
    config = getattr(kind, "__struct_config__", None)
    return config is not None and config.tag_field is not None and value.get(config.tag_field) == config.tag


def _fit_fields(kind: type[Struct], value: dict[str, Any]) -> Any:
    fields = {}
    for field in structs.fields(kind):
        if field.encode_name in value and (fitted := fit(field.type, value[field.encode_name])) is not UNSET:
            fields[field.name] = fitted
    is_whole = all(field.name in fields or not field.required for field in structs.fields(kind))
    return kind(**fields) if is_whole else UNSET


# --- limiting the size ------------------------------------------------------------------------------


def trim(event: StructT) -> StructT:
    """An event with texts and lists truncated to a maximum."""
    return structs.replace(event, **{name: _trim_value(getattr(event, name)) for name in event.__struct_fields__})


def _trim_value(value: Any) -> Any:
    match value:
        case str():
            return value[:_TEXT]
        case Struct():
            return trim(value)
        case tuple():
            return tuple(map(_trim_item, range(_ITEMS), value))
        case dict() | list():
            return value if _measure(value) <= _FREE else None
    return value


def _measure(value: Any) -> int:
    """The bytes that a value without a type takes as JSON; more than fit if it has half a surrogate pair."""
    try:
        return len(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return _FREE + 1


def _trim_item(number: int, item: Any) -> Any:
    if isinstance(item, str):
        return item[: _ITEM if number < _SHOWN else _LATER_ITEM]
    return _trim_value(item)
