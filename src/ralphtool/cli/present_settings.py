"""Existing settings: their values, and what `ralphtool init` would add."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

from ralphtool.cli import detect
from ralphtool.core import files
from ralphtool.errors import InvalidValue, from_os_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.cli.detect import DetectedProject

_HIDDEN = ("env",)  # their values may be secret


def compare(found: DetectedProject, path: str) -> dict[str, list[str]]:
    """`set`: the settings of a file, one a line; `proposed`: lines to add. Raises InvalidValue."""
    tables = _read_tables(path)
    return {"set": list(_list_lines((), tables)), "proposed": _propose(found, tables)}


def _read_tables(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(files.read(path).decode())
    except OSError as error:
        raise InvalidValue(str(from_os_error(error))) from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise InvalidValue(f"{error}; run `ralphtool doctor` for details") from None


def _list_lines(path: tuple[str, ...], table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict) and key not in _HIDDEN:
            yield from _list_lines((*path, key), value)
        elif key in _HIDDEN:
            yield f"{'.'.join((*path, key))}: {', '.join(value) if isinstance(value, dict) else 'set'}"
        else:
            yield f"{'.'.join((*path, key))} = {json.dumps(value, ensure_ascii=False, default=str)}"


def _propose(found: DetectedProject, tables: dict[str, Any]) -> list[str]:
    """Detected settings that are missing or empty in the file."""
    run, verify = _get_table(tables, "run"), _get_table(tables, "verify")
    lines = []
    if found.agents and not run.get("agent") and not run.get("agents"):
        lines += ["[run]", f'agent = "{found.agents[0]}"']
    gates = [one for one in found.gates if not verify.get(one.kind)]
    if gates:
        commands = [detect.render_commands(kind, gates) for kind in ("checks", "tests")]
        lines += ["[verify]", *detect.render_notes(gates), *filter(None, commands)]
    return lines


def _get_table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    found = tables.get(name)
    return found if isinstance(found, dict) else {}
