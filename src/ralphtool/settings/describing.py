"""Settings in words: their defaults as TOML, and the docstrings under their fields."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from ralphtool.settings.values import Seconds, find_kind, list_types

if TYPE_CHECKING:
    from msgspec import Struct


def write_default(table: type[Struct], key: str) -> str:
    """The default of a setting, as TOML; empty if there is none."""
    value = getattr(table(), key)
    if value is None:
        return ""
    if find_kind(list_types(table)[key]) is find_kind(Seconds):
        size, unit = next(((n, u) for n, u in ((3600, "h"), (60, "m")) if value and value % n == 0), (1, "s"))
        return f'"{value / size:g}{unit}"' if value else '"0"'
    return msgspec.json.encode(value).decode()  # TOML is the same for all defaults here


def read_docstrings(*modules: str) -> dict[tuple[str, str], str]:
    """The docstring under each field. Python drops them, so they are read from the source, if it is available.

    It is read line by line, so each field must be on one line: every run needs the help of its flags, and parsing the
    source would take a quarter of the start-up time.
    """
    import inspect

    try:
        source = "\n".join(inspect.getsource(sys.modules[name]) for name in modules)
    except OSError:
        return {}
    found: dict[tuple[str, str], str] = {}
    table = field = ""
    for line in source.splitlines():
        if line.startswith("class "):
            table = line[len("class ") :].partition("(")[0]
        elif line.startswith('    """') and line.endswith('"""') and field:
            found[table, field] = line.strip()[3:-3]
        name = line[4:].partition(":")[0] if line.startswith("    ") else ""
        field = name if name.isidentifier() else ""
    return found
