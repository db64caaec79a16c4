"""What an agent has used up while it runs, what it complains of, and whether it has to be ended for that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.agents import TRANSIENT, Event, Failure, Message, Quota, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.settings import PriceSettings

_MILLION = 1_000_000
_LIMIT_GRACE = 2.0  # seconds in which an agent that has met a limit may end by itself


class UsageLimits(Struct, frozen=True):
    """What an agent may use up; 0 is no limit."""

    tokens: float = 0.0
    cost: float = 0.0
    patience: float = 0.0  # seconds of trying again


class Prices(Struct, frozen=True):
    """What an agent's tokens cost, where it tells nothing but them."""

    table: Mapping[str, PriceSettings]
    names: tuple[str, ...] = ()  # the model that it was told to use, and its own name
    rate: float | None = None  # dollars for a token, as it told them in earlier iterations

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
        self._first_retry: float | None = None  # of a row that nothing has broken yet
        self._last_retry = 0.0
        self._told_cost: float | None = None
        self._estimate: float | None = None  # of what came after the last cost that was told
        self._quotas: dict[str, Quota] = {}  # the last word on each
        self.usage = Usage()
        self.failure: Failure | None = None  # the last one, unless the agent has got over it

    def count(self, event: Event) -> None:
        match event:
            case Usage():
                self.usage = self._sum(event)
            case Failure():
                self._last_retry = time.monotonic()
                self._first_retry = self._first_retry or self._last_retry
                self.failure = event
            case Quota():
                self._quotas[event.name] = event
            case Tool():
                self.failure = self._first_retry = None
            case Message():  # which may be nothing but the failure in other words
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
        """What a token cost, if all of that was told."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return self._told_cost / tokens if self._told_cost is not None and self._estimate is None and tokens else None

    @property
    def is_over(self) -> bool:
        """Whether a budget is used up."""
        tokens, cost = self.usage.input_tokens + self.usage.output_tokens, self.usage.cost or 0.0
        return 0 < self._limits.tokens <= tokens or 0 < self._limits.cost <= cost

    @property
    def is_retrying(self) -> bool:
        """Whether a failure is the last that was heard of it."""
        return self._first_retry is not None

    @property
    def is_stuck(self) -> bool:
        """Whether it has done nothing but fail again for too long, or would have to.

        One that has failed once and is quiet since may well be at work: the clock of silence is for that.
        """
        failure, patience = self.failure, self._limits.patience
        if failure is None or self._first_retry is None or failure.trouble not in TRANSIENT or not patience:
            return False
        is_hopeless = failure.reset_at is not None and failure.reset_at - time.time() > patience
        has_waited = time.monotonic() - self._last_retry > _LIMIT_GRACE
        return self._last_retry - self._first_retry > patience or (is_hopeless and has_waited)
