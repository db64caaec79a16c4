"""Describes why gates can't be trusted in a workspace: which tests fail, the first line of the cause, the fix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files

if TYPE_CHECKING:
    from ralphtool.judging.gates import GateResult

_MOST_TESTS = 3  # names of tests in a line
_LONGEST = 160
_READ = 1 << 20
# Compiled when first used: every run imports this before its first event.
_ESCAPES = r"\x1b\[[0-9;?]*[A-Za-z]"
_CAUSE = (
    r"(?i)\b\w*(?:Error|Exception)\b\s*[:(]|\bfatal:|\berror:|\bpanicked\b|no such file|not found|permission denied"
    r"|connection refused|read-only file system|please tell me who you are"
)
_TITLE = r"ERROR: \w+ \("  # of unittest, above the traceback of a test


class Trouble(Struct, frozen=True, kw_only=True):
    """What is wrong with gates in a workspace. `is_partial`: some tests fail there, all others can be trusted.

    `blind` are gates that stay green with broken code at the project's own path, so that they are blind anywhere.
    """

    what: str = ""
    causes: tuple[str, ...] = ()
    help: str = ""
    is_partial: bool = False
    blind: tuple[str, ...] = ()


def describe_difference(inside: GateResult, outside: GateResult) -> Trouble:
    """The trouble of a gate that passes in the user's own folder, but not with the same files in a workspace."""
    known = frozenset(outside.failed or ())
    only = [name for name in inside.failed or () if name not in known]
    named = f": {_join(only)}" if only else ""
    cause = find_cause(read_output(inside))
    passed = inside.tests.counts.passed if inside.tests else 0
    return Trouble(
        what=f"`{inside.command}` passes in your own folder, but not there{named}",
        causes=(cause,) if cause else (),
        is_partial=bool(only) and passed > len(only),
    )


def find_cause(output: str) -> str:
    """The first line of an output that reports an error."""
    lines = [re.sub(_ESCAPES, "", line).strip() for line in output.splitlines()]
    shown = [line[2:].strip() for line in lines if line.startswith("E ")]  # pytest's lines about a failure
    plain = [line for line in lines if not re.match(_TITLE, line)]
    found = next((line for line in [*shown, *plain] if re.search(_CAUSE, line)), "")
    printable = "".join(mark if mark.isprintable() else " " for mark in found)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}…"


def read_output(result: GateResult) -> str:
    return "\n".join(filter(None, (_read(result.log), _read(f"{result.log}.err"))))


def _read(path: str) -> str:
    try:
        return files.read(path)[-_READ:].decode("utf-8", "replace")
    except OSError:
        return ""


def _join(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_TESTS} more" if len(names) > _MOST_TESTS else ""
    return ", ".join(names[:_MOST_TESTS]) + more
