"""Values that must not be recorded: those of variables whose names say that they are secret."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST = 8  # shorter ones could be ordinary words
_PUBLIC = "RALPH_TOKEN"  # it is in every prompt
MASK = "[redacted]"
_agent_environ: dict[str, str] = {}  # variables that only an agent gets


def register(environ: "Mapping[str, str]") -> None:
    """Adds variables, besides those of our own environment, whose values may be secret."""
    _agent_environ.update(environ)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is secret, by its name. A short value could be an ordinary word or number."""
    return len(value) >= _SHORTEST and name != _PUBLIC and any(part in name.upper() for part in _NAMES)


def list_values(environ: "Mapping[str, str]" = os.environ) -> tuple[str, ...]:
    """The longest first: one may be part of another."""
    found = {
        value
        for name, value in (*environ.items(), *_agent_environ.items())
        if is_secret(name, value)
        and not any("\ud800" <= character <= "\udfff" for character in value)  # our texts can't contain surrogates
    }
    spelled = {form for value in found for form in _list_json_forms(value)}
    return tuple(sorted(found | spelled, key=len, reverse=True))


def _list_json_forms(value: str) -> tuple[str, ...]:
    """The JSON encodings of a value, where they differ from it."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return ()
    import json

    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]


def mask(value: "Any", secrets: tuple[str, ...], *, except_for: "Collection[str]" = ()) -> "Any":
    """The same value with every secret in its texts masked, except in fields that are not free text."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
    elif isinstance(value, dict):
        return {
            name: inside if name in except_for else mask(inside, secrets, except_for=except_for)
            for name, inside in value.items()
        }
    elif isinstance(value, list | tuple):
        return [mask(inside, secrets, except_for=except_for) for inside in value]
    return value
