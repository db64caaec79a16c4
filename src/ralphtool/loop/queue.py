"""What comes of work that was proven upon newer work than it began with. Nothing is run or merged here."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

QueueStep = Literal["settle", "alone", "again", "send-back"]
MOST_RETURNS = 3  # of one story in a row; then a person is asked


class MergeTrial(Struct, frozen=True, kw_only=True):
    """What the gates said about a story at the head of the queue."""

    is_red: bool
    is_moved: bool  # others were done since it began
    is_alone: bool = False  # the gates ran upon what it began with, and not upon the newest work
    has_passed_alone: bool = False


def decide(trial: MergeTrial) -> QueueStep:
    """What is green is settled, and so is what is red by its own fault: that is an attempt like any other.

    Work that is red with the others and green alone is tried with them once more, since tests may be flaky, and then
    goes back to its agent.
    """
    if trial.is_alone:
        return "settle" if trial.is_red else "again"
    if not (trial.is_red and trial.is_moved):
        return "settle"
    return "send-back" if trial.has_passed_alone else "alone"
