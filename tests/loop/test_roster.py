"""Which agent is next when agents reach their limits: the order, the waiting, and the reserve."""

from __future__ import annotations

import pytest

from ralphtool.agents import Quota
from ralphtool.loop import roster as roster_module
from ralphtool.loop.roster import NextAgent, Roster

DAY = 24 * 3600.0
NOW = 1_800_000_000.0


class Clock:
    """Stands in for the module `time`, so that no test has to wait."""

    def __init__(self) -> None:
        self.now = NOW

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(roster_module, "time", made)
    return made


def test_the_first_that_is_free_works(clock: Clock) -> None:
    roster = Roster(["a", "b", "c"])
    assert roster.next() == NextAgent(0)
    roster.mark_unavailable(0, "rate-limit: a", NOW + 100)
    assert roster.next() == NextAgent(1)
    roster.mark_unavailable(1, "overload: b", NOW + 50)
    assert roster.next() == NextAgent(2)
    assert [roster.explain_unavailable(agent) for agent in range(3)] == ["rate-limit: a", "overload: b", ""]
    assert [roster.name(agent) for agent in range(3)] == ["a", "b", "c"]


def test_who_is_free_again_goes_first_again(clock: Clock) -> None:
    roster = Roster(["a", "b"])
    roster.mark_unavailable(0, "limited", NOW + 100)
    roster.mark_available(1)
    clock.now += 99
    assert roster.next() == NextAgent(1)
    clock.now += 1
    assert roster.next() == NextAgent(0)
    assert roster.explain_unavailable(0) == "", "that is over"


def test_if_all_rest_the_one_that_is_free_soonest_is_waited_for(clock: Clock) -> None:
    roster = Roster(["a", "b", "c"])
    for agent, seconds in enumerate((300, 100, 200)):
        roster.mark_unavailable(agent, f"limited: {agent}", NOW + seconds)
    assert roster.next() == NextAgent(1, 100.0, "limited: 1")
    clock.now += 40
    assert roster.next() == NextAgent(1, 60.0, "limited: 1")
    roster.mark_unavailable(1, "limited once more", clock.now + 500)
    assert roster.next() == NextAgent(2, 160.0, "limited: 2")


def waits(roster: Roster, clock: Clock, times: int, reset_in: float | None = None) -> list[float]:
    """How long an unavailable agent rests, each time its turn comes again."""
    found = []
    for _ in range(times):
        roster.mark_unavailable(0, "limited", None if reset_in is None else clock.now + reset_in)
        found.append(roster.next().seconds)
        clock.now += found[-1]
    return found


def test_who_tells_no_time_rests_longer_each_time(clock: Clock) -> None:
    assert waits(Roster(["a"]), clock, 8) == [30, 60, 120, 240, 480, 900, 900, 900]


def test_success_forgets_the_failures(clock: Clock) -> None:
    roster = Roster(["a"])
    waits(roster, clock, 4)
    roster.mark_available(0)
    assert waits(roster, clock, 2) == [30, 60]


def test_each_agent_has_its_own_failures(clock: Clock) -> None:
    roster = Roster(["a", "b"])
    for _ in range(3):
        roster.mark_unavailable(0, "limited", None)
    roster.mark_unavailable(1, "limited", None)
    assert roster.next() == NextAgent(1, 30.0, "limited")


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (NOW + 5, 5),
        (NOW + 0.5, 0.5),
        (NOW + 7 * DAY, 7 * DAY),
        (NOW + 35 * DAY, 35 * DAY),
        (None, 30),
        (0.0, 30),
        (-5.0, 30),
        (NOW, 30),
        (NOW - 3600, 30),
        (float("-inf"), 30),
        (float("nan"), 30),
        (NOW + 36 * DAY, 30),
        (NOW * 1000, 30),
        (float("inf"), 30),
    ],
)
def test_a_time_counts_if_it_can_be_one(clock: Clock, told: float | None, seconds: float) -> None:
    roster = Roster(["a"])
    roster.mark_unavailable(0, "limited", told)
    assert roster.next().seconds == pytest.approx(seconds)


def test_a_time_is_believed_twice_in_a_row(clock: Clock) -> None:
    """An agent that says again and again that it takes a few seconds does not know."""
    roster = Roster(["a"])
    assert waits(roster, clock, 4, reset_in=5.0) == [5, 5, 120, 240]
    roster.mark_available(0)
    assert waits(roster, clock, 3, reset_in=5.0) == [5, 5, 120], "work in between makes it trustworthy again"


def test_a_time_that_is_later_than_we_would_wait_counts_each_time(clock: Clock) -> None:
    assert waits(Roster(["a"]), clock, 4, reset_in=5000.0) == [5000] * 4


def test_a_limit_can_be_met_any_number_of_times(clock: Clock) -> None:
    """A night of outage, with an agent that says each time to try again in a few seconds."""
    assert min(waits(Roster(["a"]), clock, 2000, reset_in=5.0)) >= 5.0


# --- the reserve ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop_at", "quotas", "seconds"),
    [
        (None, [Quota(1.0, NOW + 100)], 0),
        (0.8, [], 0),
        (0.8, [Quota(0.79, NOW + 100)], 0),
        (0.8, [Quota(0.8, NOW + 100)], 100),
        (0.8, [Quota(1.2, NOW + 100)], 100),
        (0.8, [Quota(0.9)], 3600),
        (0.8, [Quota(0.9, NOW - 1)], 3600),
        (0.8, [Quota(0.9, float("inf"))], 3600),
        (0.8, [Quota(0.9, NOW + 100, "daily"), Quota(0.85, NOW + 5 * DAY, "weekly")], 5 * DAY),
        (0.8, [Quota(0.85, NOW + 5 * DAY, "weekly"), Quota(0.9, NOW + 100, "daily")], 5 * DAY),
        (0.8, [Quota(0.9, NOW + 100, "daily"), Quota(0.7, NOW + 5 * DAY, "weekly")], 100),
    ],
    ids=[
        "no reserve", "no quota", "below", "at it", "over it", "no time", "time is over", "absurd",
        "two, the later one last", "two, the later one first", "one of two",
    ],
)  # fmt: skip
def test_who_has_used_up_his_share_rests(
    clock: Clock, stop_at: float | None, quotas: list[Quota], seconds: float
) -> None:
    roster = Roster(["a"], [stop_at])
    roster.mark_available(0, quotas)
    assert roster.next().seconds == pytest.approx(seconds)
    assert bool(roster.explain_unavailable(0)) is bool(seconds)


def test_the_reserve_is_each_agents_own(clock: Clock) -> None:
    roster = Roster(["a", "b"], [0.5])
    roster.mark_available(0, [Quota(0.6, NOW + 100, "weekly")])
    assert roster.next() == NextAgent(1)
    roster.mark_available(1, [Quota(0.99, NOW + 100)])
    assert roster.next() == NextAgent(1)
    assert roster.explain_unavailable(0) == "a has used 60% of its weekly quota, and stops at 50%"


def test_a_quota_without_a_name_is_told_without_one(clock: Clock) -> None:
    roster = Roster(["a"], [0.5])
    roster.mark_available(0, [Quota(0.6, NOW + 100)])
    assert roster.explain_unavailable(0) == "a has used 60% of its quota, and stops at 50%"


def test_of_several_quotas_the_one_that_is_waited_for_is_told(clock: Clock) -> None:
    roster = Roster(["a"], [0.5])
    roster.mark_available(0, [Quota(0.9, NOW + 100, "daily"), Quota(0.6, NOW + 200, "weekly")])
    assert roster.explain_unavailable(0) == "a has used 60% of its weekly quota, and stops at 50%"


def test_resting_is_no_failure(clock: Clock) -> None:
    roster = Roster(["a"], [0.5])
    roster.mark_available(0, [Quota(0.6)])
    clock.now += 3600
    assert waits(roster, clock, 2) == [30, 60]
