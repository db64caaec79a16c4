"""The line of a setting in a TOML file, the notation of its name, and the valid name nearest to a wrong one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KeyPath = tuple[str, ...]  # of a setting: ("run", "timeout")

# Strings and comments, in which line ends and brackets have no meaning; and line ends and brackets themselves.
_PIECE = r'''"""(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]'''
_UNQUOTED = r"\s*([\w.-]{1,40})\s*=\s*([A-Za-z][\w./-]{0,60})\s*(?:#.*)?"
_ON_ONE_LINE = r"\s*(\[[\w. \"'-]{1,60}\])\s*([\w.-]{1,40}\s*=.*)"
_DEEPEST = 4  # agents.NAME.env.VARIABLE


def find_lines(text: str) -> dict[KeyPath, int]:
    """The line on which each setting is first named. The parser gives no positions, but can parse single statements."""
    import tomllib  # slow to import, and only needed if there is a file

    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, statement in _split_statements(text):
        is_header = statement.lstrip().startswith("[")
        paths = list(_list_paths(tomllib.loads(statement), () if is_header else table))
        if is_header:
            table = max(paths, key=len)
        for path in paths:
            found.setdefault(path, line)
    return found


def find_broken_line(text: str) -> int:
    """The line of the first statement that can't be parsed alone; else of the last, which contradicts another."""
    import tomllib

    line = 1
    for line, statement in _split_statements(text.rstrip()):
        try:
            tomllib.loads(statement)
        except (ValueError, RecursionError):
            return line
    return line


def advise_on_line(text: str, line: int) -> str:
    """What to do about a line that is not TOML. The most common mistakes are a text without quotes, and a table and its
    setting on one line, as sentences name them."""
    lines = text.split("\n")
    wrong = lines[line - 1] if line <= len(lines) else ""
    if found := re.fullmatch(_ON_ONE_LINE, wrong):
        return f"write {found[1]} once, on a line of its own, and the setting below it"
    found = re.fullmatch(_UNQUOTED, wrong)
    if found and found[2] not in ("true", "false", "inf", "nan"):
        return f'text needs quotes, as in {found[1]} = "{found[2]}"'
    return "correct that line, or delete it"


def _split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header and each assignment, with the number of its first line; blank lines and comments too.

    Correct up to the first invalid statement: after an open quote or bracket, the rest may be split anywhere.
    """
    line, start, depth = 1, 0, 0
    for piece in re.finditer(_PIECE, text + "\n", re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece[0], 0)
        if piece[0] == "\n" and depth == 0:
            statement = text[start : piece.end()]
            yield line, statement
            line, start = line + statement.count("\n"), piece.end()
    yield line, text[start:]


def _list_paths(given: object, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(given, dict) and len(path) < _DEEPEST:
        for key, value in given.items():
            yield (*path, key)
            yield from _list_paths(value, (*path, key))


def join_keys(path: KeyPath) -> str:
    """The keys as TOML writes them. The file is not trusted, so odd keys are quoted and cut."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else shorten(key) for key in path)


def find_nearest(wrong: str, right: Iterable[str]) -> str | None:
    """Ignores case, and dashes for underscores. Huge keys are cut: they match nothing anyway."""
    import difflib  # slow to import, and only needed for errors

    found = difflib.get_close_matches(wrong[:80].lower().replace("-", "_"), sorted(right), n=1)
    return found[0] if found else None
