"""Spans and metrics as OTLP/JSON: ids as hex digits, 64-bit numbers as strings, as the protocol requires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ralphtool import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.views.otel.metrics import Metric, Point
    from ralphtool.views.otel.model import Attributes, Span, SpanEvent, Value

_SCOPE = {"name": "ralphtool", "version": __version__}
_INTERNAL = 1  # SpanKind
_ERROR = 2  # StatusCode
_CUMULATIVE = 2  # AggregationTemporality
_SAMPLED = 1  # in the flags of a span


def encode_spans(run: str, spans: Iterable[Span]) -> bytes:
    """One request with these spans, on one line."""
    inside = {"scope": _SCOPE, "spans": [_encode_span(span) for span in spans]}
    return msgspec.json.encode({"resourceSpans": [{"resource": _build_resource(run), "scopeSpans": [inside]}]})


def encode_metrics(run: str, metrics: Iterable[Metric]) -> bytes:
    """One request with these metrics, on one line."""
    inside = {"scope": _SCOPE, "metrics": [_encode_metric(metric) for metric in metrics]}
    return msgspec.json.encode({"resourceMetrics": [{"resource": _build_resource(run), "scopeMetrics": [inside]}]})


def _build_resource(run: str) -> dict[str, Any]:
    named: Attributes = {"service.name": "ralphtool", "service.version": __version__, "service.instance.id": run}
    return {"attributes": _encode_attributes(named)}


def _encode_span(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": _SAMPLED,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _encode_attributes(span.attributes),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    if span.parent_id:
        encoded["parentSpanId"] = span.parent_id
    if span.events:
        encoded["events"] = [_encode_event(event) for event in span.events]
        encoded["droppedEventsCount"] = span.dropped_events
    return encoded


def _encode_event(event: SpanEvent) -> dict[str, Any]:
    told = _encode_attributes(event.attributes)
    return {"timeUnixNano": str(event.at), "name": event.name, "attributes": told}


def _encode_attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _encode_metric(metric: Metric) -> dict[str, Any]:
    told = {"name": metric.name, "unit": metric.unit, "description": metric.description}
    if not metric.bounds:
        points = [_encode_point(point) | {"asDouble": point.sum} for point in metric.points]
        return told | {"sum": _encode_data(points) | {"isMonotonic": True}}
    points = [_encode_point(point) | _encode_buckets(metric, point) for point in metric.points]
    return told | {"histogram": _encode_data(points)}


def _encode_data(points: list[dict[str, Any]]) -> dict[str, Any]:
    return {"dataPoints": points, "aggregationTemporality": _CUMULATIVE}


def _encode_point(point: Point) -> dict[str, Any]:
    return {
        "attributes": _encode_attributes(point.attributes),
        "startTimeUnixNano": str(point.start),
        "timeUnixNano": str(point.at),
    }


def _encode_buckets(metric: Metric, point: Point) -> dict[str, Any]:
    return {
        "count": str(point.count),
        "sum": point.sum,
        "min": point.least,
        "max": point.most,
        "bucketCounts": [str(count) for count in point.buckets],
        "explicitBounds": list(metric.bounds),
    }
