"""The metrics of a run, from the spans of its agents and attempts: tokens, time and dollars.

They are cumulative and end with the last span that they count, so sending them again changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.views.otel.model import Attributes, Span

# From the conventions. The bounds of durations continue above 81.92 s: agents work for minutes and hours.
_TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
_SECOND_BOUNDS = tuple(round(0.01 * 2**power, 2) for power in range(21))
_SHARED = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.agent.name", "gen_ai.request.model")


class Point(Struct, kw_only=True):
    """The values of one metric that have the same attributes."""

    attributes: Attributes
    start: int
    at: int
    buckets: list[int]
    count: int = 0
    sum: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def add(self, value: float, bounds: tuple[float, ...]) -> None:
        self.least = min(self.least, value) if self.count else value
        self.most = max(self.most, value)
        self.count += 1
        self.sum += value
        self.buckets[bisect_left(bounds, value)] += 1


class Metric(Struct, kw_only=True):
    """A histogram; without bounds, a sum."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...] = ()
    by_attributes: dict[tuple[tuple[str, object], ...], Point] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        return list(self.by_attributes.values())

    def add(self, value: float, attributes: Attributes, start: int, at: int) -> None:
        key = tuple(attributes.items())
        if key not in self.by_attributes:
            buckets = [0] * (len(self.bounds) + 1)
            self.by_attributes[key] = Point(attributes=attributes, start=start, at=at, buckets=buckets)
        point = self.by_attributes[key]
        point.add(value, self.bounds)
        point.at = max(point.at, at)


class MetricSums:
    """Adds up spans as they end."""

    def __init__(self) -> None:
        self._tokens = Metric(
            name="gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            bounds=_TOKEN_BOUNDS,
        )
        self._seconds = Metric(
            name="gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            bounds=_SECOND_BOUNDS,
        )
        self._cost = Metric(name="ralphtool.cost", unit="{USD}", description="What the attempts cost.")
        self._attempts = Metric(name="ralphtool.attempts", unit="{attempt}", description="Attempts, by verdict.")

    def add(self, span: Span, start: int) -> bool:
        """Counts a span of an agent or an attempt. Returns whether it is one. `start` is the start of the run."""
        told = span.attributes
        if "ralphtool.iteration" in told:
            return self._add_attempt(span, start)
        if told.get("gen_ai.operation.name") != "invoke_agent":
            return False
        shared = {name: told[name] for name in _SHARED if name in told}
        start = min(start, span.start)
        for kind in ("input", "output"):
            count = told.get(f"gen_ai.usage.{kind}_tokens")
            if isinstance(count, int):
                self._tokens.add(float(count), shared | {"gen_ai.token.type": kind}, start, span.end)
        failed = {"error.type": told["error.type"]} if "error.type" in told else {}
        self._seconds.add((span.end - span.start) / 1e9, shared | failed, start, span.end)
        return True

    def _add_attempt(self, span: Span, start: int) -> bool:
        told, start = span.attributes, min(start, span.start)
        by: Attributes = {"gen_ai.agent.name": told.get("ralphtool.agent", "")}
        if "ralphtool.verdict" in told:  # an attempt that was cut off has none
            self._attempts.add(1.0, by | {"ralphtool.verdict": told["ralphtool.verdict"]}, start, span.end)
        if isinstance(cost := told.get("ralphtool.cost"), float):
            self._cost.add(cost, by, start, span.end)
        return True

    def list_metrics(self) -> list[Metric]:
        """The metrics that have a value."""
        return [metric for metric in (self._tokens, self._seconds, self._cost, self._attempts) if metric.by_attributes]


def build_metrics(spans: Iterable[Span]) -> list[Metric]:
    """The metrics of a run, from its spans."""
    spans, sums = list(spans), MetricSums()
    start = min((span.start for span in spans), default=0)
    for span in spans:
        sums.add(span, start)
    return sums.list_metrics()
