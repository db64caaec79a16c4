"""What an agent has used up while it runs, what it complains of, and whether it has to be ended for that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.agents import TRANSIENT, Event, Failure, Message, Quota, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.settings import Price

_MILLION = 1_000_000
_FAREWELL = 2.0  # seconds in which an agent that has met a limit may end by itself


class Limits(Struct, frozen=True):
    """What an agent may use up; 0 is no limit."""

    tokens: float = 0.0
    cost: float = 0.0
    patience: float = 0.0  # seconds of trying again


class Prices(Struct, frozen=True):
    """What an agent's tokens cost, where it tells nothing but them."""

    table: Mapping[str, Price]
    names: tuple[str, ...] = ()  # the model that it was told to use, and its own name

    def estimate(self, usage: Usage) -> float:
        price = next((self.table[name] for name in (usage.model, *self.names) if name in self.table), None)
        if price is None:
            return 0.0
        cached = price.input if price.cached is None else price.cached
        fresh = max(usage.input_tokens - usage.cached_tokens, 0)
        return (fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output) / _MILLION


class Meter:
    def __init__(self, limits: Limits, prices: Prices) -> None:
        self._limits = limits
        self._prices = prices
        self._retrying_since: float | None = None
        self._told_cost = 0.0
        self._estimate = 0.0  # of what came after the last cost that was told
        self.usage = Usage(cost=0.0)
        self.failure: Failure | None = None  # the last one, unless the agent has got over it
        self.quota: Quota | None = None  # of several the one that is used up most

    def count(self, event: Event) -> None:
        match event:
            case Usage():
                self.usage = self._sum(event)
            case Failure():
                self._retrying_since = self._retrying_since or time.monotonic()
                self.failure = event
            case Quota():
                self.quota = max(filter(None, (self.quota, event)), key=lambda one: one.used)
            case Tool():
                self.failure = self._retrying_since = None
            case Message():  # which may be nothing but the failure in other words
                self._retrying_since = None

    def _sum(self, more: Usage) -> Usage:
        if more.cost is None:
            self._estimate += self._prices.estimate(more)
        else:
            self._told_cost, self._estimate = self._told_cost + more.cost, 0.0
        used = self.usage
        return Usage(
            used.input_tokens + more.input_tokens,
            used.output_tokens + more.output_tokens,
            self._told_cost + self._estimate,
            used.cached_tokens + more.cached_tokens,
            more.model or used.model,
        )

    @property
    def is_over(self) -> bool:
        """Whether a budget is used up."""
        tokens, cost = self.usage.input_tokens + self.usage.output_tokens, self.usage.cost or 0.0
        return 0 < self._limits.tokens <= tokens or 0 < self._limits.cost <= cost

    @property
    def is_retrying(self) -> bool:
        """Whether a failure is the last that was heard of it."""
        return self._retrying_since is not None

    @property
    def is_stuck(self) -> bool:
        """Whether it has done nothing but try again for too long, or would have to."""
        failure, patience = self.failure, self._limits.patience
        if failure is None or self._retrying_since is None or failure.trouble not in TRANSIENT or not patience:
            return False
        retrying = time.monotonic() - self._retrying_since
        is_hopeless = failure.reset_at is not None and failure.reset_at - time.time() > patience
        return retrying > patience or (is_hopeless and retrying > _FAREWELL)
