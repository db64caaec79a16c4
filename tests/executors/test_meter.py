"""What an agent's reports add up to: tokens, dollars, quota, and how long it may keep retrying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ralphtool.agents import TRANSIENT, Event, Failure, Message, Output, Quota, Result, Tool, Trouble, Usage
from ralphtool.executors import meter as meter_module
from ralphtool.executors.meter import Meter, Prices, UsageLimits, is_patience_over
from ralphtool.settings import PriceSettings

MILLION = 1_000_000
TABLE = {
    "gpt-x": PriceSettings(input=2.0, output=8.0, cached=0.5),
    "plain": PriceSettings(input=1.0, output=4.0),
    "opus": PriceSettings(input=10.0),
    "codex": PriceSettings(input=100.0),
}
LIMITED = Failure("rate-limit", "slow down")


class Clock:
    """Stands in for the module `time`, so that no test has to wait."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(meter_module, "time", made)
    return made


def counted(*events: Event, names: tuple[str, ...] = ("", "gpt-x"), **limits: float) -> Meter:
    meter = Meter(UsageLimits(**limits), Prices(TABLE, names))
    for event in events:
        meter.count(event)
    return meter


# --- prices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "names", "cost"),
    [
        (Usage(MILLION, MILLION), ("", "gpt-x"), 10.0),
        (Usage(MILLION, 0, cached_tokens=MILLION), ("", "gpt-x"), 0.5),
        (Usage(MILLION, 0, cached_tokens=MILLION // 2), ("", "gpt-x"), 1.25),
        (Usage(MILLION, 0, cached_tokens=MILLION // 2), ("", "plain"), 1.0),
        (Usage(10, 0, cached_tokens=MILLION), ("", "gpt-x"), 0.5),
        (Usage(MILLION, 0, model="gpt-x"), ("opus", "codex"), 2.0),
        (Usage(MILLION, 0, model="unheard-of"), ("opus", "codex"), 10.0),
        (Usage(MILLION, 0, model="unheard-of"), ("", "codex"), 100.0),
        (Usage(MILLION, 0), ("opus", "codex"), 10.0),
        (Usage(MILLION, MILLION), ("unheard-of", "either"), None),
        (Usage(MILLION, MILLION), (), None),
    ],
    ids=[
        "input and output", "from the cache", "half from the cache", "the cache has no price", "more from the cache "
        "than there is", "the model that it tells", "else the configured one", "else its own name",
        "tells no model", "no price", "no name",
    ],
)  # fmt: skip
def test_tokens_have_the_price_of_their_model(usage: Usage, names: tuple[str, ...], cost: float | None) -> None:
    assert Prices(TABLE, names).estimate(usage) == pytest.approx(cost)
    assert counted(usage, names=names).usage.cost == pytest.approx(cost)


def test_a_price_without_a_name_is_nobodys() -> None:
    assert Prices({"gpt-x": TABLE["gpt-x"]}, ("", "mine")).estimate(Usage(MILLION)) is None


def test_what_is_free_has_a_price() -> None:
    meter = Meter(UsageLimits(), Prices({"local": PriceSettings(input=0.0)}, ("local",)))
    meter.count(Usage(MILLION))
    assert meter.usage.cost == 0.0, "which is not the same as unknown"


RATES: list[tuple[list[Usage], float | None]] = [
    ([], None),
    ([Usage(MILLION)], None),
    ([Usage(cost=0.5)], None),
    ([Usage(90, 10, 0.5)], 0.005),
    ([Usage(90), Usage(0, 10), Usage(cost=0.5)], 0.005),
    ([Usage(90, 10, 0.5), Usage(5)], None),
    ([Usage(90, 10, 0.0)], 0.0),
]


@pytest.mark.parametrize(
    ("reports", "rate"),
    RATES,
    ids=["nothing", "no cost", "no tokens", "told", "told at last", "not all of it", "free"],
)
def test_what_a_token_cost_is_known_if_all_was_told(reports: list[Usage], rate: float | None) -> None:
    meter = Meter(UsageLimits(), Prices(TABLE, ("gpt-x",)))
    for report in reports:
        meter.count(report)
    assert meter.rate == (None if rate is None else pytest.approx(rate))


def test_what_tokens_cost_before_they_may_cost_again() -> None:
    earlier = Prices(TABLE, (), rate=0.005)
    assert earlier.estimate(Usage(90, 10)) == pytest.approx(0.5)
    assert earlier.estimate(Usage(MILLION, model="plain")) == pytest.approx(1.0), "a price is known better"


SMALL = Usage(MILLION // 10)  # an estimate of 0.20


@pytest.mark.parametrize(
    ("reports", "cost"),
    [
        ([], None),
        ([SMALL, SMALL], 0.4),
        ([SMALL, SMALL, Usage(cost=0.3)], 0.3),
        ([SMALL, Usage(cost=0.3), SMALL], 0.5),
        ([SMALL, Usage(cost=0.3), SMALL, Usage(cost=0.1)], 0.4),
        ([Usage(MILLION, cost=0.0)], 0.0),
        ([SMALL, Usage(cost=0.0)], 0.0),
    ],
    ids=["nothing", "estimates", "told at last", "and more", "told again", "told that it is free", "free after all"],
)
def test_a_cost_that_is_told_covers_what_was_estimated_before(reports: list[Usage], cost: float | None) -> None:
    assert counted(*reports).usage.cost == pytest.approx(cost)


def test_tokens_add_up_whoever_tells_the_cost() -> None:
    meter = counted(Usage(5, 3, cached_tokens=2, model="a"), Usage(7, 1, 0.5, 4), Usage(model="b"), Usage(1))
    used = meter.usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens, used.model) == (13, 4, 6, "b")


# --- budgets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reports", "is_over"),
    [
        ({}, [Usage(10**12, 10**12, 10.0**9)], False),
        ({"tokens": 10}, [], False),
        ({"tokens": 10}, [Usage(6, 3)], False),
        ({"tokens": 10}, [Usage(6, 4)], True),
        ({"tokens": 10}, [Usage(0, 4), Usage(6)], True),
        ({"tokens": 10}, [Usage(4, 0, cached_tokens=100)], False),
        ({"cost": 0.5}, [Usage(cost=0.49)], False),
        ({"cost": 0.5}, [Usage(cost=0.3), Usage(cost=0.3)], True),
        ({"cost": 0.3}, [SMALL], False),
        ({"cost": 0.3}, [SMALL, SMALL], True),
        ({"cost": 0.3}, [SMALL, Usage(cost=0.2), SMALL], True),
        ({"cost": 0.3}, [Usage(MILLION, 0, 0.1)], False),
        ({"cost": 1e-9}, [], False),
        ({"cost": 1e-9}, [Usage(cost=1e-6)], True),
        ({"tokens": 10, "cost": 5.0}, [Usage(20, cost=0.1)], True),
    ],
)
def test_a_budget_is_over_when_it_is_used_up(limits: dict[str, Any], reports: list[Usage], is_over: bool) -> None:
    assert counted(*reports, **limits).is_over is is_over


# --- quota ------------------------------------------------------------------------------------------


def test_of_each_quota_the_last_word_counts() -> None:
    daily, weekly = Quota(0.4, 10.0, "daily"), Quota(0.9, 20.0, "weekly")
    assert counted().quotas == ()
    assert counted(weekly, daily).quotas == (weekly, daily)
    fresh = Quota(0.1, 30.0, "daily")
    assert set(counted(daily, weekly, fresh).quotas) == {fresh, weekly}, "also if less of it is used than before"
    assert counted(Quota(0.4), Quota(0.2)).quotas == (Quota(0.2),)
    assert not counted(Quota(1.5), tokens=1.0, cost=1.0).is_over, "a quota is no budget"


# --- retrying ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "is_retrying", "failure"),
    [
        ([], False, None),
        ([LIMITED], True, LIMITED),
        ([LIMITED, Tool("run")], False, None),
        ([LIMITED, Message("limit reached")], False, LIMITED),
        ([LIMITED, Usage(5)], True, LIMITED),
        ([LIMITED, Usage(5, 1)], False, LIMITED),
        ([LIMITED, Output("...")], True, LIMITED),
        ([LIMITED, Quota(0.5)], True, LIMITED),
        ([Tool("run"), LIMITED], True, LIMITED),
        ([LIMITED, Failure("network", "gone")], True, Failure("network", "gone")),
        ([LIMITED, Message("hm"), LIMITED], True, LIMITED),
    ],
    ids=[
        "nothing", "failed", "worked on", "said something", "read something", "answered", "printed something",
        "told its quota", "failed after work", "failed otherwise", "failed again",
    ],
)  # fmt: skip
def test_who_has_failed_last_tries_again(events: list[Event], is_retrying: bool, failure: Failure | None) -> None:
    meter = counted(*events)
    assert (meter.is_retrying, meter.failure) == (is_retrying, failure)


def test_patience_runs_from_the_first_failure_whether_or_not_another_comes(clock: Clock) -> None:
    meter = counted(LIMITED, patience=60.0)
    clock.now += 50
    meter.count(LIMITED)
    assert not meter.is_stuck
    clock.now += 11
    assert meter.is_stuck


def test_who_has_failed_once_and_is_quiet_since_is_ended(clock: Clock) -> None:
    meter = counted(LIMITED, patience=60.0)
    clock.now += 60
    assert not meter.is_stuck
    clock.now += 1
    assert meter.is_stuck


NEVER = float("inf")
PATIENCE: list[tuple[float, float, float, float | None, bool]] = [
    # patience, seconds since the first failure, since the last, until it can continue
    (60, 0, 0, None, False),
    (60, 60, 60, None, False),
    (60, 61, 61, None, True),
    (60, 61, 0, None, True),
    (60, 61, 0, 1, True),
    (60, 0, 0, 3600, False),
    (60, 3, 3, 3600, True),
    (60, 3, 3, 57, False),
    (60, 3, 3, 58, True),
    (60, 50, 3, 9, False),
    (60, 50, 3, 11, True),
    (60, 3, 3, -3600, False),
    (60, 3, 3, NEVER, True),
    (4, 3, 3, 45, True),
    (0, 10**6, 10**6, None, False),
    (0, 10**6, 10**6, NEVER, False),
]


@pytest.mark.parametrize(("patience", "failing", "quiet", "reset_in", "is_over"), PATIENCE)
def test_when_patience_is_over(
    patience: float, failing: float, quiet: float, reset_in: float | None, is_over: bool
) -> None:
    assert is_patience_over(patience, failing, quiet, reset_in) is is_over


@pytest.mark.parametrize("sign", [Tool("run"), Message("there it is again"), Result("ok"), Usage(9, 1)])
def test_a_sign_of_life_makes_patience_start_again(clock: Clock, sign: Event) -> None:
    meter = counted(LIMITED, patience=60.0)
    clock.now += 50
    meter.count(sign)
    clock.now += 50
    assert not meter.is_stuck, "it works"
    meter.count(LIMITED)
    clock.now += 50
    assert not meter.is_stuck
    clock.now += 11
    assert meter.is_stuck


@pytest.mark.parametrize("noise", [Output("..."), Quota(0.5), Usage(5), LIMITED])
def test_what_is_no_sign_of_work_leaves_the_clock_running(clock: Clock, noise: Event) -> None:
    meter = counted(LIMITED, patience=60.0)
    clock.now += 50
    meter.count(noise)
    clock.now += 11
    assert meter.is_stuck


STUCK: list[tuple[Trouble, bool]] = [(one, True) for one in TRANSIENT] + [("context", False), ("other", False)]


@pytest.mark.parametrize(("trouble", "is_stuck"), STUCK)
def test_only_what_is_nobodys_fault_is_given_up(clock: Clock, trouble: Trouble, is_stuck: bool) -> None:
    meter = counted(Failure(trouble, "no"), patience=60.0)
    clock.now += 61
    meter.count(Failure(trouble, "no"))
    assert meter.is_stuck is is_stuck


def test_without_a_limit_patience_never_ends(clock: Clock) -> None:
    meter = counted(Failure("rate-limit", "no", clock.now + 10**6))
    clock.now += 10**5
    meter.count(LIMITED)
    assert not meter.is_stuck


FAR: list[tuple[Callable[[float], Any], bool]] = [
    (lambda now: None, False),
    (lambda now: now + 30, False),
    (lambda now: now - 10**6, False),
    (lambda now: now + 3600, True),
    (lambda now: float("inf"), True),
]


@pytest.mark.parametrize(("reset_at", "is_stuck"), FAR, ids=["not told", "soon", "long ago", "too far", "never"])
def test_who_would_have_to_wait_too_long_may_only_say_farewell(
    clock: Clock, reset_at: Callable[[float], Any], is_stuck: bool
) -> None:
    meter = counted(Failure("rate-limit", "no", reset_at(clock.now)), patience=60.0)
    clock.now += 1
    assert not meter.is_stuck, "it may end by itself"
    clock.now += 4
    assert meter.is_stuck is is_stuck
