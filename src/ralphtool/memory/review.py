"""What people should know about what is known: how often each learning helped, what is stale, what is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.history.records import number_of
from ralphtool.memory import usefulness
from ralphtool.memory.usefulness import Use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history.records import Learning
    from ralphtool.memory.knowledge import Knowledge

_COMPARED = 2000  # characters
_NEAR = 0.25  # below this score nothing says the same
_NEIGHBOURS = 8  # texts that are most like another, among which a repeat of it would be


class Row(Struct, frozen=True):
    """A learning, and how it fared."""

    learning: Learning
    use: Use

    @property
    def shown(self) -> int:
        """What was shown elsewhere, or before this was noted, is counted in the history alone."""
        return max(self.use.shown, self.learning.times_referenced)

    @property
    def helped(self) -> int:
        return self.use.helped


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
    if not learnings:
        return Review([], [], [])
    rows = _rows(knowledge, learnings)
    stale = [Stale(row.learning.id, _never_helped(row)) for row in rows if row.use.is_stale]
    repeats: list[Repeat] = []
    for one in learnings:
        for other in _neighbours(knowledge, one):
            match = knowledge.memory.same(one.content[:_COMPARED], other.content[:_COMPARED])
            if match.is_opposite:
                stale.append(Stale(other.id, f"{one.id}, which came later, says the opposite"))
            elif match.level == "same":
                repeats.append(Repeat(other.id, one.id))
    return Review(rows, stale, repeats)


def _rows(knowledge: Knowledge, learnings: Sequence[Learning]) -> list[Row]:
    digests = {one.id: usefulness.digest(one.content) for one in learnings}
    uses = knowledge.uses.of(digests.values())
    return [Row(one, uses.get(digests[one.id], Use())) for one in learnings]


def _never_helped(row: Row) -> str:
    return f"shown {row.use.shown} times, and no attempt completed with it"


def _neighbours(knowledge: Knowledge, one: Learning) -> list[Learning]:
    """The earlier ones that are most like it."""
    near = knowledge.memory.search(one.content[:_COMPARED], _NEIGHBOURS)
    ids = [id for id, score in near if score >= _NEAR and id != one.id]
    found = knowledge.history.learnings_of([id for id in ids if id.startswith("learning-")])
    return [other for other in found if number_of(other.id) < number_of(one.id)]
