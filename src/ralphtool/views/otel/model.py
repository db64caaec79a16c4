"""Spans, open and ended. `otlp.py` encodes them as OTLP."""

from __future__ import annotations

from msgspec import Struct, field

from ralphtool.core.text import make_lines_printable, make_printable

Value = str | int | float | bool
Attributes = dict[str, Value]

_NAME, _TEXT, _CONTENT = 120, 1000, 32_000  # characters
_MOST_EVENTS = 128  # per span, as in the SDKs of OpenTelemetry


class SpanEvent(Struct, frozen=True):
    """Something that happened at one moment within a span."""

    name: str
    at: int
    attributes: Attributes = {}


class Span(Struct, frozen=True, kw_only=True):
    """A span that has ended. Times are nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    start: int
    end: int
    attributes: Attributes = {}
    error: str | None = None
    """What went wrong, perhaps without a word about it; None if nothing did"""
    events: tuple[SpanEvent, ...] = ()
    dropped_events: int = 0


class OpenSpan(Struct, kw_only=True):
    """A span that has not ended yet."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    start: int
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    events: list[SpanEvent] = field(default_factory=list)
    dropped_events: int = 0

    def note(self, name: str, at: int, attributes: Attributes) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(SpanEvent(name, at, attributes))
        else:
            self.dropped_events += 1

    def fail(self, kind: str, message: str = "") -> None:
        self.attributes["error.type"] = clean(kind)
        self.error = clean(message)

    def close(self, at: int) -> Span:
        return Span(
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            name=self.name,
            start=self.start,
            end=max(self.start, at),
            attributes=self.attributes,
            error=self.error,
            events=tuple(self.events),
            dropped_events=self.dropped_events,
        )


def clean(text: str) -> str:
    """The beginning of a text; control characters become visible."""
    return make_printable(text[:_TEXT])


def clean_name(text: str) -> str:
    return make_printable(text[:_NAME])


def clean_content(text: str) -> str:
    """The same for a text of several lines."""
    return make_lines_printable(text[:_CONTENT])
