"""Paths as git names them, and as people read them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Paths:
    """A set of files and folders. A lookup takes the same time however many there are."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = {name.rstrip("/") for name in names}

    def cover(self, path: str) -> bool:
        """Whether a path is one of them, or below one of them."""
        path = path.rstrip("/")
        while path:
            if path in self.names:
                return True
            path = os.path.dirname(path)
        return False


def join_first(paths: Sequence[str]) -> str:
    """The first few paths, for a line of text."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{', '.join(printable(path) for path in paths[:3])}{more}"


def printable(path: str) -> str:
    """A path, which need not be valid text, as text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def exclude(path: str) -> tuple[str, ...]:
    """Pathspecs that exclude a path. They are patterns: `git add` fails for a literal path that git ignores anyway."""
    plain = re.search(r"[\w.]", path)
    if plain is None:
        return (f":(exclude,top,literal){path}",)
    pattern = f"{_escape(path[: plain.start()])}[{plain[0]}]{_escape(path[plain.end() :])}"
    return f":(exclude,top,glob){pattern}", f":(exclude,top,glob){pattern}/**"


def _escape(text: str) -> str:
    return re.sub(r"[*?\[\\]", r"\\\g<0>", text)
