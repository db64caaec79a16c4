"""Counts what an agent uses up while it runs, tracks its failures, and decides whether it must be ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.agents import TRANSIENT, Event, Failure, Message, Quota, Result, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.agents import Runner
    from ralphtool.executors import Report
    from ralphtool.settings import PriceSettings

_MILLION = 1_000_000
_LIMIT_GRACE = 2.0  # seconds in which an agent that reached a limit may end by itself


class UsageLimits(Struct, frozen=True):
    """What an agent may use up; 0 means no limit."""

    tokens: float = 0.0
    cost: float = 0.0
    patience: float = 0.0  # seconds of retrying


class Prices(Struct, frozen=True):
    """The cost of an agent's tokens, if it reports only tokens."""

    table: Mapping[str, PriceSettings]
    names: tuple[str, ...] = ()  # the model that it is configured to use, and its own name
    rate: float | None = None  # dollars per token, as it reported them in earlier iterations

    def estimate(self, usage: Usage) -> float | None:
        price = next((self.table[name] for name in (usage.model, *self.names) if name in self.table), None)
        if price is None:
            return None if self.rate is None else self.rate * (usage.input_tokens + usage.output_tokens)
        cached = price.input if price.cached is None else price.cached
        fresh = max(usage.input_tokens - usage.cached_tokens, 0)
        return (fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output) / _MILLION


class Meter:
    def __init__(self, limits: UsageLimits, prices: Prices) -> None:
        self._limits = limits
        self._prices = prices
        self._first_retry: float | None = None  # since the last sign of work
        self._last_retry = 0.0
        self._told_cost: float | None = None
        self._estimate: float | None = None  # of the usage after the last reported cost
        self._quotas: dict[str, Quota] = {}  # the last report of each
        self.usage = Usage()
        self.failure: Failure | None = None  # the last one, unless the agent has recovered from it

    def count(self, event: Event) -> None:
        match event:
            case Usage():
                self.usage = self._sum(event)
                if event.output_tokens:  # a thinking model has answered, although there is no message yet
                    self._first_retry = None
            case Failure():
                self._last_retry = time.monotonic()
                self._first_retry = self._first_retry or self._last_retry
                self.failure = event
            case Quota():
                self._quotas[event.name] = event
            case Tool():
                self.failure = self._first_retry = None
            case Message() | Result():  # a message may only repeat the failure
                self._first_retry = None

    def _sum(self, more: Usage) -> Usage:
        if more.cost is not None:
            self._told_cost, self._estimate = (self._told_cost or 0.0) + more.cost, None
        elif (estimate := self._prices.estimate(more)) is not None:
            self._estimate = (self._estimate or 0.0) + estimate
        known = [cost for cost in (self._told_cost, self._estimate) if cost is not None]
        used = self.usage
        return Usage(
            used.input_tokens + more.input_tokens,
            used.output_tokens + more.output_tokens,
            sum(known) if known else None,
            used.cached_tokens + more.cached_tokens,
            more.model or used.model,
        )

    @property
    def quotas(self) -> tuple[Quota, ...]:
        return tuple(self._quotas.values())

    @property
    def rate(self) -> float | None:
        """The cost per token, if all costs were reported."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return self._told_cost / tokens if self._told_cost is not None and self._estimate is None and tokens else None

    @property
    def is_over(self) -> bool:
        """Whether a budget is used up."""
        tokens, cost = self.usage.input_tokens + self.usage.output_tokens, self.usage.cost or 0.0
        return 0 < self._limits.tokens <= tokens or 0 < self._limits.cost <= cost

    @property
    def is_retrying(self) -> bool:
        """Whether the agent's last sign of life is a failure."""
        return self._first_retry is not None

    @property
    def is_stuck(self) -> bool:
        """Whether it has failed, or will fail, for too long without a sign of work."""
        failure, first = self.failure, self._first_retry
        if failure is None or first is None or failure.trouble not in TRANSIENT:
            return False
        now = time.monotonic()
        reset_in = None if failure.reset_at is None else failure.reset_at - time.time()
        return is_patience_over(self._limits.patience, now - first, now - self._last_retry, reset_in)


def is_patience_over(patience: float, failing: float, quiet: float, reset_in: float | None) -> bool:
    """Whether an agent must be ended, given the seconds since its first and last failure, and until it can continue.

    Silence is not a sign of work: a program that waits for hours may report that only once.
    """
    if not patience:
        return False
    is_hopeless = reset_in is not None and failing + reset_in > patience
    return failing > patience or (is_hopeless and quiet > _LIMIT_GRACE)


def add_login_advice(report: Report, runner: Runner) -> Report:
    """Waiting does not help an agent that is not logged in: the message must say how to log in."""
    failure = report.failure
    if failure is None or failure.trouble != "login" or not runner.traits.login_hint:
        return report
    return structs.replace(
        report, failure=structs.replace(failure, text=f"{runner.traits.login_hint} ({failure.text})")
    )


def find_smaller_limit(one: float, other: float) -> float:
    """The smaller of two limits; 0 means no limit."""
    return min(one, other) if one and other else one or other
