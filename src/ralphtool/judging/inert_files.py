"""Copies of added test files that can be seen and read, but do nothing: all their lines are comments.

A test may be about the test folder itself: "every module has a test file". Replay leaves out the files that the story
added, so such a test fails there. Beside these copies it passes, while no code of the story reaches into the old tests,
neither directly nor by way of a module that it imports.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import decode
from ralphtool.judging.roles import find_role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.judging.guard.model import FileChange

_COMMENTS = {
    **dict.fromkeys(("py", "rb"), "#"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "go", "rs", "java", "kt"), "//"),
}


def build_inert_copies(changes: Iterable[FileChange]) -> dict[str, bytes]:
    """The copies of the added test files, by path. A file in another language is left out."""
    added = [one for one in changes if one.old is None and one.new is not None and one.old_path in (None, one.path)]
    copies = {one.path: _comment_out(one) for one in added if find_role(one.path) == "test"}
    return {path: data for path, data in copies.items() if data}


def _comment_out(change: FileChange) -> bytes:
    sign = _COMMENTS.get(change.path.rpartition(".")[2].lower())
    if not sign:
        return b""
    text = decode(change.new)
    package = re.search(r"^package \w+$", text, re.MULTILINE) if change.path.endswith(".go") else None
    # The first two lines of Python and Ruby may name an encoding, in which a comment may be code.
    lines = [sign, sign, *(f"{sign} {line}" for line in text.splitlines())]
    return "\n".join([*lines, *([package[0]] if package else []), ""]).encode("utf-8", "replace")
