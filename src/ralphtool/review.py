"""What people should know about what is known: how often each learning helped, what is stale, what is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import usefulness
from ralphtool.usefulness import STALE, Use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history.records import Learning
    from ralphtool.knowledge import Knowledge

_NEIGHBOURS = 8  # texts that are most like another, among which a repeat of it would be


class Row(Struct, frozen=True):
    """A learning, and how it fared."""

    learning: Learning
    shown: int
    helped: int


class Stale(Struct, frozen=True):
    id: str
    why: str


class Repeat(Struct, frozen=True):
    """Two learnings that say the same: the earlier one, and the later one that could go."""

    keep: str
    merge: str


class Review(Struct, frozen=True):
    rows: list[Row]
    stale: list[Stale]
    repeats: list[Repeat]


def review(knowledge: Knowledge, learnings: Sequence[Learning]) -> Review:
    """Looks through learnings; each is compared with what is most like it among all that is known."""
    rows = _rows(knowledge, learnings)
    stale = [Stale(row.learning.id, _never_helped(row)) for row in rows if Use(row.shown, row.helped).is_stale]
    repeats: list[Repeat] = []
    for one in learnings:
        for other in _neighbours(knowledge, one):
            match = knowledge.memory.same(one.content, other.content)
            if match.is_opposite:
                stale.append(Stale(other.id, f"{one.id}, which came later, says the opposite"))
            elif match.level == "same":
                repeats.append(Repeat(other.id, one.id))
    return Review(rows, stale, repeats)


def _rows(knowledge: Knowledge, learnings: Sequence[Learning]) -> list[Row]:
    digests = {one.id: usefulness.digest(one.content) for one in learnings}
    uses = knowledge.uses.of(digests.values())
    found = [(one, uses.get(digests[one.id], Use())) for one in learnings]
    # What was shown elsewhere, or before this was counted, stands in the history alone.
    return [Row(one, max(use.shown, one.times_referenced), use.helped) for one, use in found]


def _never_helped(row: Row) -> str:
    return f"shown {row.shown} times, {STALE} or more, and no attempt completed with it"


def _neighbours(knowledge: Knowledge, one: Learning) -> list[Learning]:
    """The earlier ones that are most like it."""
    ids = [id for id, _ in knowledge.memory.search(one.content, _NEIGHBOURS) if id != one.id]
    found = knowledge.history.learnings_of([id for id in ids if id.startswith("learning-")])
    return [other for other in found if (other.created_at, other.id) < (one.created_at, one.id)]
