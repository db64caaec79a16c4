"""The kinds of values of settings: their constraints, a description and an example of each."""

from __future__ import annotations

import re
import typing
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ralphtool import typed
from ralphtool.settings.positions import find_nearest, join_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# msgspec encodes some strings to check them, and a flag may contain bytes that are not UTF-8.
_REFUSED = (msgspec.ValidationError, UnicodeEncodeError)


class BadValue(Exception):
    """A value that its setting does not allow; `key` is the wrong key inside it, if it is a table."""

    def __init__(self, hint: str = "", key: str | None = None) -> None:
        self.hint = hint
        self.key = key


class TooBig(Exception):
    """A number above the maximum of its setting."""


class ValueKind(NamedTuple):
    """One kind of value in words and by example (as TOML). The annotated type has the constraints."""

    words: str
    example: str
    most: str = ""
    """The maximum in words, if a number above it has its own message."""
    parse: Callable[[object], object] | None = None
    """Turns the written value into the number that it means."""
    typed: Callable[[str], object] = str
    """Turns a flag's text into the value that TOML would have."""
    metavar: str = "TEXT"
    """What stands for the value in the help of a flag."""


# --- reading ----------------------------------------------------------------------------------------


@cache
def list_types(table: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each setting of a table, with its constraints; without None, since TOML has no null."""
    hints = typing.get_type_hints(table, include_extras=True)
    return {key: _drop_none(hints[key]) for key in table.__struct_fields__}


def _drop_none(hint: Any) -> Any:
    others = [one for one in typing.get_args(hint) if one is not type(None)]
    return others[0] if type(None) in typing.get_args(hint) else hint


def find_kind(hint: Any) -> ValueKind:
    """The last ValueKind of a type; for choices it is built from them."""
    for mark in reversed(getattr(hint, "__metadata__", ())):
        if isinstance(mark, ValueKind):
            return mark
    *others, last = (f'"{choice}"' for choice in typing.get_args(hint))
    return ValueKind(f"{', '.join(others)} or {last}", "", metavar="|".join(typing.get_args(hint)))


def read_value(hint: Any, value: object) -> object:
    """Converts a TOML value to the type of its setting. Raises BadValue or TooBig."""
    kind = find_kind(hint)
    number = kind.parse(value) if kind.parse else value
    try:
        read = typed.convert(number, hint)
    except _REFUSED:
        raise _explain(hint, number) from None
    return read + 0.0 if isinstance(read, float) else read  # TOML has -0.0


def read_flag(hint: Any, value: object) -> object:
    """The value of a flag; a string is parsed as the user typed it."""
    return read_value(hint, find_kind(hint).typed(value) if isinstance(value, str) else value)


def _explain(hint: Any, value: object) -> BadValue | TooBig:
    most = find_kind(hint).most
    if most and isinstance(value, int | float) and value > hint.__metadata__[0].le:
        return TooBig(f"is too big: the maximum is {most}")
    if isinstance(value, str) and typing.get_origin(hint) is typing.Literal:
        near = find_nearest(value, typing.get_args(hint))
        return BadValue(f': did you mean "{near}"?' if near else "")
    return next(_find_bad_items(hint, value), BadValue())


def _find_bad_items(hint: Any, value: object) -> Iterator[BadValue]:
    """The wrong items of a list or a table, if the setting allows a list or a table at all."""
    if isinstance(value, list | tuple) and _fits(hint, []):
        for number, item in enumerate(value, 1):
            if not _fits(hint, [item]):
                yield BadValue(f" (see item {number})")
    if isinstance(value, dict) and _fits(hint, {}):
        for key, item in value.items():
            if not _fits(hint, {key: item}):
                yield BadValue(f" (see {join_keys((key,))})", key)


def _fits(hint: Any, value: object) -> bool:
    try:
        typed.convert(value, hint)
    except _REFUSED:
        return False
    return True


# --- spellings --------------------------------------------------------------------------------------


def _parse_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    pattern = r"(?:([0-9.]+)h)? ?(?:([0-9.]+)m)? ?(?:([0-9.]+)s)?|([0-9.]+)"
    found = re.fullmatch(pattern, value.strip())
    if found is None or not found[0]:
        raise BadValue
    try:
        return sum(float(part or 0) * size for part, size in zip(found.groups(), (3600, 60, 1, 1), strict=True))
    except ValueError:  # 1.2.3
        raise BadValue from None


def _parse_share(value: object) -> float:
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", value.strip()) if isinstance(value, str) else None
    if found is None:
        raise BadValue
    return float(found[1]) / 100


def _read_number(text: str) -> object:
    """The number in a flag's text, as in TOML; else the text itself, which is then a bad value."""
    try:
        return int(text) if re.fullmatch(r"-?[0-9]{1,100}", text) else float(text)
    except ValueError:
        return text


def _read_boolean(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


# --- the kinds --------------------------------------------------------------------------------------

_MOST = 10**12  # of tokens, dollars, attempts: more is a typo
_LONGEST = 366 * 24 * 3600  # system timers reject much longer durations

_CHARACTER = r"[^\x00\ud800-\udfff]"  # an argument can't contain NUL, nor UTF-8 a lone surrogate
_PORT = r"(?!0+\Z)(?:[0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"  # 1 to 65535

LIMIT = "limit"  # marks a setting of a run as one of its limits


def describe_whole(least: int, example: str) -> ValueKind:
    return ValueKind(f"a whole number, at least {least}", example, most=str(_MOST), typed=_read_number, metavar="N")


def describe_dollars(example: str) -> ValueKind:
    return ValueKind("a number, at least 0", example, most=str(_MOST), typed=_read_number, metavar="DOLLARS")


def describe_text(example: str, metavar: str = "TEXT") -> ValueKind:
    return ValueKind("a non-empty string", f'"{example}"', metavar=metavar)


def describe_list(what: str, example: str) -> ValueKind:
    return ValueKind(f"a list of {what}", example)


Argument = Annotated[str, Meta(pattern=rf"\A{_CHARACTER}*\Z")]
Text = Annotated[str, Meta(pattern=rf"\A(?=\s*\S){_CHARACTER}*\Z")]
Texts = tuple[Text, ...]
Variable = Annotated[str, Meta(pattern=rf"\A(?:(?!=){_CHARACTER})+\Z")]
Port = Annotated[str, Meta(pattern=rf"\A(?:[A-Za-z0-9._-]+:|\[[0-9a-f:.]+\]:)?{_PORT}\Z")]

Seconds = Annotated[
    float,
    Meta(ge=0, le=_LONGEST),
    ValueKind("a duration", '"30m"', most="a year", parse=_parse_duration, metavar="DURATION"),
]
MOST_LANES = 8  # on one machine
Lanes = Annotated[
    int,
    Meta(ge=1, le=500),
    ValueKind(f"a whole number from 1 to {MOST_LANES}, with workers up to 500", "4", typed=_read_number, metavar="N"),
]
Attempts = Annotated[int, Meta(ge=1, le=_MOST), describe_whole(1, "3")]
Budget = Annotated[int, Meta(ge=1, le=_MOST), describe_whole(1, "20000")]
Count = Annotated[int, Meta(ge=0, le=_MOST), describe_whole(0, "20")]
Dollars = Annotated[float, Meta(ge=0, le=_MOST), describe_dollars("2.50")]
Share = Annotated[float, Meta(gt=0, le=1), ValueKind("a share", '"80%"', parse=_parse_share)]
Switch = Annotated[bool, ValueKind("true or false", "true", typed=_read_boolean)]
Environment = Annotated[dict[Variable, Argument], ValueKind("a table of strings", '{ PORT = "8080" }')]
