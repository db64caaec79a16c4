"""The ids of a run in OpenTelemetry. They are derived from its name, so any process can compute them.

`ralphtool otel` gives its spans these ids, and every agent gets the id of its span as `TRACEPARENT`: spans that an
agent sends itself are its children.
"""

from __future__ import annotations


def build_trace_id(run: str) -> str:
    """32 hex digits, the same for everything in a run."""
    return _hash(run, 16)


def build_span_id(run: str, kind: str, iteration: int = 0, nth: int = 0) -> str:
    """16 hex digits: the nth span of its kind in an iteration."""
    return _hash(f"{run}\n{kind}\n{iteration}\n{nth}", 8)


def build_traceparent(run: str, iteration: int, nth: int = 0) -> str:
    """The span of an agent as W3C trace context. The second agent of an iteration checks a blocker."""
    return f"00-{build_trace_id(run)}-{build_span_id(run, 'agent', iteration, nth)}-01"


def _hash(text: str, size: int) -> str:
    from hashlib import sha256  # slow to import, because of OpenSSL

    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:size].hex()
