"""Is something that an agent names as missing really missing? Looked up here, before a human is bothered."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_[A-Z0-9]*[A-Z][A-Z0-9]*\b")
_QUOTED = re.compile(r"[`'\"]([^`'\"\n]{1,200})[`'\"]")
# A slash alone makes no file: and/or, origin/main, /api/login. The last part has to look like a file's name.
_PATH = re.compile(
    r"(?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.-]+/)+[\w-]*\.\w+|(?<![\w/.-])[\w-]+\.(?:json|toml|ya?ml|env|pem|key|csv|sql|txt|md)\b"
)
_KIND = r"(?:command|program|binary|tool|executable)"
_COMMAND = re.compile(
    rf"{_KIND}\s+[`'\"]([A-Za-z0-9][\w.+-]*)[`'\"]"
    rf"|{_KIND}\s+([A-Za-z0-9][\w.+-]*)\s+(?:is|was)\s+(?:missing|not\s+(?:installed|found|there|available))"
    r"|([A-Za-z0-9][\w.+-]*): (?:command )?not found",
    re.IGNORECASE,
)
_LONGEST = 10_000
_LONGEST_ANSWER = 500


class Check(Struct, frozen=True):
    """What came of looking: `is_real` is None when nothing was named that can be looked up."""

    is_real: bool | None
    found: str


def check(text: str, root: str, environ: Mapping[str, str]) -> Check:
    """Looks for the variables, files and commands that a claimed blocker names."""
    text = text[:_LONGEST]
    named = {f"the variable {name}": bool(environ.get(name)) for name in _found(_VARIABLE, text)}
    named |= {f"the file {path}": _exists(root, path) for path in _paths(text)}
    named |= {f"the command {name}": shutil.which(name) is not None for name in _found(_COMMAND, text)}
    if not named:
        return Check(None, "it names nothing that can be looked up")
    missing = [what for what, is_there in named.items() if not is_there]
    if missing:
        return Check(True, f"{_and(missing)} missing")
    return Check(False, f"{_and(list(named))} there")


def answer(message: str, token: str) -> Check | None:
    """What an agent that looked into a blocker found, by the last line of its final message."""
    line = message.rstrip().rpartition("\n")[2].strip()
    for word, is_real in (("REAL", True), ("UNREAL", False)):
        start = f"<promise>{word}:{token}:"
        if line.startswith(start) and line.endswith("</promise>"):
            why = _plain(line[len(start) : -len("</promise>")])
            return Check(is_real, f"an agent looked into it: {why or 'it gave no reason'}")
    return None


def _plain(text: str) -> str:
    """What somebody else wrote, as a line that does nothing to a terminal or a page."""
    words = "".join(mark if mark.isprintable() else " " for mark in text[:_LONGEST_ANSWER]).split()
    return " ".join(words).replace("<", "(").replace(">", ")")


def _and(things: list[str]) -> str:
    return f"{', '.join(things[:5])} {'is' if len(things) == 1 else 'are'}"


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    return list(dict.fromkeys(next(filter(None, found.groups()), found[0]) for found in pattern.finditer(text)))


def _paths(text: str) -> list[str]:
    quoted = [one for one in _QUOTED.findall(text) if "/" in one and " " not in one and "://" not in one]
    plain = [one for one in _PATH.findall(text) if "://" not in one]
    return list(dict.fromkeys([*quoted, *plain]))[:20]


def _exists(root: str, path: str) -> bool:
    try:
        return os.path.lexists(os.path.join(root, os.path.expanduser(path)))
    except ValueError:  # no path can be that
        return False
