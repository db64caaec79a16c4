"""Decides what happens to work that was proven on newer work than it began with. Runs and merges nothing."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

QueueStep = Literal["settle", "alone", "again", "send-back"]
MOST_RETURNS = 3  # of one story in a row; then a person is asked


class MergeTrial(Struct, frozen=True, kw_only=True):
    """The gates' result for the story at the head of the queue."""

    is_red: bool
    is_moved: bool  # other stories were done since it began
    is_alone: bool = False  # the gates ran on the checkpoint that it began with, not on the newest work
    has_passed_alone: bool = False


def decide(trial: MergeTrial) -> QueueStep:
    """Green work is settled, and so is work that is red by its own fault: that is an attempt like any other.

    Work that is red with the others but green alone is tried with them once more, since tests may be flaky, and then
    sent back to its agent.
    """
    if trial.is_alone:
        return "settle" if trial.is_red else "again"
    if not (trial.is_red and trial.is_moved):
        return "settle"
    return "send-back" if trial.has_passed_alone else "alone"
