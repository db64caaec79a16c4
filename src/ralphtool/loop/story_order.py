"""Which stories can be worked on at once, and how long the longest chain of them is that wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def find_rounds(waits_for: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Stories that are open, each with those that have to be done before it; as many rounds as the longest chain has.

    A story that waits for one which is not among them, or for itself in a circle, is in no round.
    """
    rounds: list[list[str]] = []
    placed: set[str] = set()
    while ready := [id for id, before in waits_for.items() if id not in placed and placed.issuperset(before)]:
        rounds.append(ready)
        placed.update(ready)
    return rounds
