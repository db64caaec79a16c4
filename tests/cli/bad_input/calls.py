"""Calls with bad input: one clear error, the right code, and not one byte changed anywhere."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from project import Ralph

INIT = ("session", "init", "--change", "add-login")
# The commands of a session that has begun. Those of RECORDING read neither the lock nor the spec.
WITH_SPEC = (("session", "next-story"), ("context",), ("status",), ("task", "done", "1.1"))
WITH_LOCK = (*WITH_SPEC, ("session", "flush"))
RECORDING = (("learn", "x"), ("pattern", "n", "d"), ("observe", "finding", "t"))
RUNNING = (*WITH_LOCK, *RECORDING)


def ok(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that must succeed."""
    return ralph.agent(*arguments, **more).json


def refused(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that must fail with one clear error, and change nothing: not a byte, not a folder."""
    before = ralph.snapshot()
    result = ralph.agent(*arguments, **more)
    assert ralph.snapshot() == before
    error = result.error
    assert result.stderr.count("\n") == 1
    assert result.stderr[:-1].isascii()
    assert result.stderr[:-1].isprintable()
    assert len(error["error"]) < 1500
    return error


def refused_for_people(ralph: Ralph, *arguments: str) -> str:
    """The same for the commands for people, which print a line of text."""
    before = ralph.snapshot()
    result = ralph.run(*arguments)
    assert ralph.snapshot() == before
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def check_harmless(path: Path, headings: list[str]) -> None:
    """No heading except ralphtool's, and no raw control character."""
    text = path.read_bytes().decode()
    found = [line for line in text.split("\n") if line.lstrip(" ").startswith("#") and not line.startswith("    ")]
    assert len(found) == len(headings), found
    assert all(line.startswith(head) for line, head in zip(found, headings, strict=True)), found
    raw = {character for character in text if unicodedata.category(character) == "Cc"}
    assert raw <= {"\n", "\t"}


def flush_twice(ralph: Ralph, notes: Path | None = None) -> dict[str, Any]:
    """Flushes twice, as if the first had been killed before its end: nothing may be written twice."""
    notes = notes or ralph.design_file
    kept = ralph.session_file().read_bytes()
    printed = ok(ralph, "session", "flush")
    written = notes.read_bytes().decode()
    ralph.session_file().write_bytes(kept)
    assert ok(ralph, "session", "flush") == {"success": True, "learnings_written": 0, "patterns_written": 0}
    assert notes.read_bytes().decode() == written
    return printed
