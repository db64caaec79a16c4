"""Whether a file that configures tests was changed only to follow files that the work moved: `lib/` is `src/` now."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.judging.guard.model import FileChange

_WORD = re.compile(r"[\w-]+")
# Keys that say where a project's own code is, and nothing about how it is tested.
_KEY_NAMES = (
    "pythonpath tool pytest ini_options setuptools packages find where package-dir package_dir hatch build targets"
    " wheel poetry include from rootDir roots main module exports types typings files bin baseUrl paths path"
)
_KEYS = frozenset(_KEY_NAMES.split())


def only_follows_moves(config: FileChange, changes: Sequence[FileChange]) -> bool:
    """Whether each new word is part of the new path of a moved file, and each removed word part of an old path."""
    moved = [one for one in changes if one.old_path and one.old is not None and one.new is not None]
    if config.old is None or config.new is None or not moved:
        return False
    old, new = _count_words(config.old), _count_words(config.new)
    here, there = (_list_parts(paths) for paths in ([one.path for one in moved], [str(one.old_path) for one in moved]))
    return (new - old).keys() <= here | _KEYS and (old - new).keys() <= there | _KEYS


def _count_words(data: bytes) -> Counter[str]:
    return Counter(_WORD.findall(data.decode("utf-8", "replace")))


def _list_parts(paths: Iterable[str]) -> set[str]:
    return {part for path in paths for part in re.split(r"[/.]", path)}
