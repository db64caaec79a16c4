"""Reviews the learnings for people: how often each one helped, which are stale, and which are repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.history.records import parse_number
from ralphtool.memory import usefulness
from ralphtool.memory.usefulness import UseCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history.records import Learning
    from ralphtool.memory.knowledge import KnowledgeBase

_COMPARED = 2000  # characters
_NEAR = 0.25  # below this score, no text says the same
_NEIGHBOURS = 8  # the most similar texts, which would include a repeat


class ReviewRow(Struct, frozen=True):
    """A learning, and its use."""

    learning: Learning
    use: UseCounts

    @property
    def shown(self) -> int:
        """Showings elsewhere, or before they were recorded here, are counted only in the history."""
        return max(self.use.shown, self.learning.times_referenced)

    @property
    def helped(self) -> int:
        return self.use.helped


class StaleLearning(Struct, frozen=True):
    id: str
    why: str


class RepeatedLearning(Struct, frozen=True):
    """Two learnings that say the same: the earlier one, and the later one, which could be removed."""

    keep: str
    merge: str


class Review(Struct, frozen=True):
    rows: list[ReviewRow]
    stale: list[StaleLearning]
    repeats: list[RepeatedLearning]


def review_learnings(knowledge: KnowledgeBase, learnings: Sequence[Learning]) -> Review:
    """Reviews learnings; each is compared with the most similar ones among all that are known."""
    if not learnings:
        return Review([], [], [])
    rows = _build_rows(knowledge, learnings)
    stale = [StaleLearning(row.learning.id, _describe_stale(row)) for row in rows if row.use.is_stale]
    repeats: list[RepeatedLearning] = []
    for one in learnings:
        for other in _find_neighbours(knowledge, one):
            match = knowledge.memory.same(one.content[:_COMPARED], other.content[:_COMPARED])
            if match.is_opposite:
                stale.append(StaleLearning(other.id, f"the later {one.id} says the opposite"))
            elif match.level == "same":
                repeats.append(RepeatedLearning(other.id, one.id))
    return Review(rows, stale, repeats)


def _build_rows(knowledge: KnowledgeBase, learnings: Sequence[Learning]) -> list[ReviewRow]:
    digests = {one.id: usefulness.digest(one.content) for one in learnings}
    uses = knowledge.uses.of(digests.values())
    return [ReviewRow(one, uses.get(digests[one.id], UseCounts())) for one in learnings]


def _describe_stale(row: ReviewRow) -> str:
    return f"shown {row.use.shown} times, but no attempt with it completed"


def _find_neighbours(knowledge: KnowledgeBase, one: Learning) -> list[Learning]:
    """The most similar earlier ones."""
    near = knowledge.memory.search(one.content[:_COMPARED], _NEIGHBOURS)
    ids = [id for id, score in near if score >= _NEAR and id != one.id]
    found = knowledge.history.find_learnings([id for id in ids if id.startswith("learning-")])
    return [other for other in found if parse_number(other.id) < parse_number(one.id)]
