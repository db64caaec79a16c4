"""The next step for work that was merged with other work: a table."""

from __future__ import annotations

import pytest

from ralphtool.loop import lane_limit
from ralphtool.loop.budget import NOTHING, Budget, RemainingBudget
from ralphtool.loop.lane_limit import LaneLimit
from ralphtool.loop.queue import MergeTrial, QueueStep, decide
from ralphtool.loop.story_order import find_rounds
from ralphtool.settings import RunSettings

ROWS: dict[str, tuple[MergeTrial, QueueStep]] = {
    "green, and nobody else was done": (MergeTrial(is_red=False, is_moved=False), "settle"),
    "green together": (MergeTrial(is_red=False, is_moved=True), "settle"),
    "red, and nobody else was done: its own fault": (MergeTrial(is_red=True, is_moved=False), "settle"),
    "red together: whose fault is it?": (MergeTrial(is_red=True, is_moved=True), "alone"),
    "red alone: its own fault": (MergeTrial(is_red=True, is_moved=False, is_alone=True), "settle"),
    "green alone: was the test flaky?": (MergeTrial(is_red=False, is_moved=False, is_alone=True), "again"),
    "flaky": (MergeTrial(is_red=False, is_moved=True, has_passed_alone=True), "settle"),
    "red together, twice": (MergeTrial(is_red=True, is_moved=True, has_passed_alone=True), "send-back"),
}


@pytest.mark.parametrize(("trial", "step"), ROWS.values(), ids=ROWS)
def test_what_comes_of_it(trial: MergeTrial, step: QueueStep) -> None:
    assert decide(trial) == step


ORDERS: dict[str, tuple[dict[str, list[str]], list[list[str]]]] = {
    "independent": ({"1": [], "2": [], "3": []}, [["1", "2", "3"]]),
    "a chain": ({"1": [], "2": ["1"], "3": ["1", "2"]}, [["1"], ["2"], ["3"]]),
    "a fork": ({"1": [], "2": ["1"], "3": ["1"], "4": []}, [["1", "4"], ["2", "3"]]),
    "a circle": ({"1": ["2"], "2": ["1"], "3": []}, [["3"]]),
    "waits for one that is skipped": ({"2": ["1"]}, []),
}


@pytest.mark.parametrize(("waits_for", "rounds"), ORDERS.values(), ids=ORDERS)
def test_which_stories_can_be_worked_on_at_once(waits_for: dict[str, list[str]], rounds: list[list[str]]) -> None:
    assert find_rounds(waits_for) == rounds


def test_lanes_halve_at_a_limit_and_come_back_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ralphtool.loop.lane_limit.time.monotonic", lambda: now[0])
    limit = LaneLimit(8)
    counts = [limit.count()]
    for _ in range(5):
        limit.shrink()
        counts.append(limit.count())
    assert counts == [8, 4, 2, 1, 1, 1]
    now[0] += lane_limit.QUIET - 1
    assert limit.count() == 1
    grown = []
    for _ in range(8):
        now[0] += lane_limit.QUIET
        grown.append(limit.count())
    assert grown == [2, 3, 4, 5, 6, 7, 8, 8]


def test_what_others_may_use_is_not_given_twice() -> None:
    budget = Budget(RunSettings(max_tokens=1000, max_cost=10.0, story_tokens=600))
    assert budget.remaining_for("1", NOTHING, 4).tokens == 250
    held = RemainingBudget(0.0, 250, 2.5)
    assert budget.remaining_for("2", held, 3).tokens == 250
    assert budget.remaining_for("2", held, 3).cost == 2.5
    assert budget.remaining_for("2", RemainingBudget(0.0, 1000, 0.0), 1).tokens == 1e-9
    assert budget.remaining_for("1").tokens == 600
