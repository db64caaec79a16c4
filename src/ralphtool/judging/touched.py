"""Tests that an attempt changed, in the files that it changed.

The old tests can't even be loaded if the story removed something that one of them uses. Those that are unchanged and
pass are not lost.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ralphtool.judging.guard.diff import read_tests
from ralphtool.judging.guard.inline import extract_tests
from ralphtool.judging.guard.model import LONGEST, decode
from ralphtool.judging.roles import find_role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.judging.guard.model import FileChange, ParsedTestFile, Test

_IMPORT = re.compile(
    r"(?:from\s+[\w.]+\s+import\b|import\b|use\s|package\s|mod\s|#include\b|require\b|(?:const|let|var)\s.*\brequire\(|"
    r"export\s.*\bfrom\b|(?:\w+\s+)?\"[\w./-]+\"$|[()},]+;?$|(?://|#|\*|/\*).*|[\w, ]+,?$)"
)


def find_touched_tests(changes: Sequence[FileChange]) -> frozenset[str] | None:
    """The names of the old tests that are gone or whose text changed; None if that is unknown."""
    found: set[str] = set()
    for change in changes:
        if change.old is not None:
            before, after = _read(change.old_path or change.path, change.old), _read(change.path, change.new)
            if before is None or after is None:
                return None
            found |= _list_touched(before, after)
    return frozenset(found)


def _read(path: str, data: bytes | None) -> ParsedTestFile | None:
    text = decode(data if find_role(path) == "test" else extract_tests(data or b"", path))
    file = read_tests(path, text, False) if len(text) <= LONGEST else None
    return None if file is None or file.coarse else file


def _list_touched(before: ParsedTestFile, after: ParsedTestFile) -> set[str]:
    if _list_rest(before) - _list_rest(after):
        return {one.bare for one in before.tests.values()}  # any of them may use those values
    changed = {name for name, one in before.beside.items() if not _is_same(one, after.beside.get(name))}
    return {
        one.bare
        for name, one in before.tests.items()
        if not _is_same(one, after.tests.get(name)) or changed & set(re.findall(r"\w+", " ".join(one.lines)))
    }


def _is_same(old: Test, new: Test | None) -> bool:
    return new is not None and (old.lines, old.outer_skips, old.cases) == (new.lines, new.outer_skips, new.cases)


def _list_rest(file: ParsedTestFile) -> Counter[str]:
    """The lines that belong to no function, without imports and comments."""
    lines = Counter(line for one in file.text.split("\n") if (line := one.strip()) and not _IMPORT.match(line))
    for one in (*file.tests.values(), *file.beside.values()):
        lines.subtract(one.lines)
    return +lines
