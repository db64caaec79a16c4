"""The stories that have a checkpoint, according to the commits of a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.workspace.git import Repository

_ARROW = " -> "


def read_checkpoints(repository: Repository, change: str) -> dict[str, str]:
    """Each story with its commit, oldest first."""
    base = repository.resolve(layout.BASE + change)
    ref = layout.BRANCHES + change
    one_line = "valueonly,separator=%x2C)"
    keys = f"%(trailers:key=Ralph-Change,{one_line}%x00%(trailers:key=Ralph-Story,{one_line}"
    form = "%x00".join(["%H", keys, *map(_build_field, ("Rejected", "Removed", "Renumbered"))])
    told = repository.text("log", "--reverse", f"--format={form}", f"{base}..{ref}" if base else ref, "--")
    found: dict[str, str] = {}
    for line in told.split("\n"):
        if line.count("\0") == 5:
            commit, name, story, *more = line.split("\0")
            found = _apply(found, commit, story, *(one.split("\x1f") for one in more)) if name == change else found
    return found


def _build_field(name: str) -> str:
    """The git format for the values of a trailer that may occur several times."""
    return f"%(trailers:key=Ralph-{name},valueonly,separator=%x1F)"


def _apply(
    found: dict[str, str], commit: str, story: str, rejected: list[str], removed: list[str], renumbered: Iterable[str]
) -> dict[str, str]:
    names = dict(one.split(_ARROW, 1) for one in renumbered if _ARROW in one)
    gone = {story, *rejected, *removed}
    left = {names.get(id, id): made for id, made in found.items() if id not in gone}
    return left | ({story: commit} if story else {})


def build_trailers(removed: Iterable[str], renumbered: Iterable[tuple[str, str]]) -> str:
    """The trailers about stories in the commit of an edited plan."""
    lines = [f"Ralph-Removed: {id}\n" for id in removed]
    return "".join([*lines, *(f"Ralph-Renumbered: {old}{_ARROW}{new}\n" for old, new in renumbered)])
