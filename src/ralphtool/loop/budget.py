"""The limits of a run and what it has spent: time, iterations, tokens, money; in total and for each story."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ralphtool.core.amounts import format_duration

if TYPE_CHECKING:
    from ralphtool.agents import Runner
    from ralphtool.executors import Report
    from ralphtool.settings import RunSettings, Settings


_SAME_TIME = 4.0  # seconds
_MOST_TIMES_FULL = 3


class UsageTotals:
    """The totals of what was spent."""

    def __init__(self) -> None:
        self.agent_seconds = self.gate_seconds = self.cost = 0.0
        self.input_tokens = self.output_tokens = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, report: Report) -> None:
        self.agent_seconds += report.agent_seconds
        self.gate_seconds += report.gate_seconds
        self.cost += report.usage.cost or 0.0
        self.input_tokens += report.usage.input_tokens
        self.output_tokens += report.usage.output_tokens

    def as_dict(self) -> dict[str, Any]:
        return {
            "seconds": round(self.agent_seconds + self.gate_seconds, 3),
            "agent_seconds": round(self.agent_seconds, 3),
            "gate_seconds": round(self.gate_seconds, 3),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": round(self.cost, 6),
        }


class RemainingBudget(Struct, frozen=True):
    """What one iteration may still use; 0 means no limit."""

    seconds: float
    tokens: float
    cost: float


NOTHING = RemainingBudget(0.0, 0.0, 0.0)


class Budget:
    """The limits of a run, and how much of them is used up."""

    def __init__(self, limits: RunSettings) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._stories: dict[str, UsageTotals] = {}
        self.total = UsageTotals()
        self.iterations = 0
        self._full_disk, self._times_full, self._found_full = "", 0, 0.0

    def totals_of(self, story: str) -> UsageTotals:
        return self._stories.setdefault(story, UsageTotals())

    def add(self, story: str, report: Report) -> None:
        self.total.add(report)
        self.totals_of(story).add(report)
        self._note_disk(report)

    def _note_disk(self, report: Report) -> None:
        """Several reports of a full disk at about the same time count as one."""
        now = time.monotonic()
        if report.full_disk and now - self._found_full > _SAME_TIME:
            self._times_full, self._found_full = self._times_full + 1, now
        self._full_disk = report.full_disk
        if report.gates_ran and not report.full_disk:
            self._times_full = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def sleep_uncounted(self, seconds: float) -> None:
        """Waits, without counting the wait as time of the run."""
        began = time.monotonic()
        time.sleep(seconds)
        self._began += time.monotonic() - began

    def describe_reached_limit(self) -> str:
        """Describes the limit that is reached; empty if none is."""
        limits = self._limits
        if limits.max_iterations and self.iterations >= limits.max_iterations:
            counted = "1 iteration" if limits.max_iterations == 1 else f"{limits.max_iterations} iterations"
            return f"the limit of {counted} is reached (--max-iterations)"
        if limits.max_time and self.seconds >= limits.max_time:
            return f"the limit of {format_duration(limits.max_time)} is reached (--max-time)"
        if limits.max_tokens and self.total.tokens >= limits.max_tokens:
            return f"the limit of {limits.max_tokens:,} tokens is reached (--max-tokens)"
        if limits.max_cost and self.total.cost >= limits.max_cost:
            return f"the limit of {_describe_cost(limits.max_cost)} is reached (--max-cost)"
        if self._times_full >= _MOST_TIMES_FULL and self._full_disk:
            return f"the disk of {self._full_disk} keeps running full: free some space there, and run again"
        return ""

    @property
    def is_exhausted(self) -> bool:
        """Whether the run has no tokens or no money left."""
        limits = self._limits
        return bool(limits.max_tokens and self.total.tokens >= limits.max_tokens) or bool(
            limits.max_cost and self.total.cost >= limits.max_cost
        )

    def has_time_for(self, seconds: float) -> bool:
        return not self._limits.max_time or self.seconds + seconds < self._limits.max_time

    def is_story_exhausted(self, story: str) -> bool:
        """Whether a story has used up its budget."""
        limits, used = self._limits, self.totals_of(story)
        return bool(limits.story_tokens and used.tokens >= limits.story_tokens) or bool(
            limits.story_cost and used.cost >= limits.story_cost
        )

    def remaining_for(self, story: str, held: RemainingBudget = NOTHING, sharers: int = 1) -> RemainingBudget:
        """`held` is what other iterations may still use at the same time; `sharers` share what is left."""
        limits, used, total = self._limits, self.totals_of(story), self.total
        tokens, cost = total.tokens + held.tokens, total.cost + held.cost
        return RemainingBudget(
            _smallest_remaining((limits.max_time, self.seconds)),
            _smallest_remaining((limits.max_tokens, tokens, sharers), (limits.story_tokens, used.tokens)),
            _smallest_remaining((limits.max_cost, cost, sharers), (limits.story_cost, used.cost)),
        )


def _describe_cost(dollars: float) -> str:
    """As in `$0.50`; exactly, where a limit is finer than cents."""
    return f"${dollars:,.2f}" if round(dollars, 2) == dollars else f"${dollars:.15g}"


def _smallest_remaining(*limits: tuple[float, float] | tuple[float, float, int]) -> float:
    """What is left of the tightest limit. A used-up limit leaves almost nothing, since 0 means no limit."""
    left = [max((limit - used) / (sharers[0] if sharers else 1), 1e-9) for limit, used, *sharers in limits if limit]
    return min(left) if left else 0.0


def explain_unknown_cost(runner: Runner, settings: Settings) -> str:
    """Why the cost of an agent is unknown; empty if it may be known."""
    if runner.traits.cost == "none":
        return "it does not report its usage"
    if runner.traits.cost == "tokens" and not settings.prices:
        return f"it reports only tokens, and no price is configured for them: set [prices.{runner.name}]"
    return ""
