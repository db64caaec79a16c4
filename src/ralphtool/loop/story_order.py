"""Which stories can be worked on at once, and how long the longest chain of dependencies is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def find_rounds(waits_for: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """`waits_for` has the open stories, each with those that must be done before it. There are as many rounds as the
    longest chain has stories.

    A story that waits for one that is not in `waits_for`, or for itself in a cycle, is in no round.
    """
    rounds: list[list[str]] = []
    placed: set[str] = set()
    while ready := [id for id, before in waits_for.items() if id not in placed and placed.issuperset(before)]:
        rounds.append(ready)
        placed.update(ready)
    return rounds
