"""What a person reads about a proof besides its result: files that were set aside, and how tests were changed."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import decode
from ralphtool.workspace.paths import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.judging.guard.model import FileChange

_MOST_LINES = 200  # of a diff in a question


def render_diff(changes: Sequence[FileChange]) -> str:
    """The diff of changed tests, for a person; cut if it gets long."""
    lines = [line for one in changes for line in _diff_lines(one)]
    more = [f"… and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join(map(printable, [*lines[:_MOST_LINES], *more]))


def _diff_lines(change: FileChange) -> list[str]:
    old, new = (decode(data).splitlines() for data in (change.old, change.new))
    return list(difflib.unified_diff(old, new, change.old_path or change.path, change.path, n=1, lineterm=""))


def describe_ignored(
    aside: Sequence[str], inside: Sequence[str], environments: Sequence[str], *, is_anew: bool
) -> Iterable[str]:
    if inside:
        yield f"changed files of a submodule were set aside for the gates, and are not committed: {join_paths(inside)}"
    if ignored := [path for path in aside if path not in inside]:
        yield f"files that git ignores were set aside for the gates: {join_paths(ignored)}"
    if is_anew:
        yield f"`setup` rebuilt the environment of the gates: {join_paths(environments)}"
    elif environments:
        yield f"the gates ran with packages that the attempt installed: {join_paths(environments)}"


def join_paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(map(printable, paths[:3])) + more
