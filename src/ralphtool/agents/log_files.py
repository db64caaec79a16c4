"""The common part of readers for agents that print for people, and record their work in files.

The output of such an agent mixes its own words with the model's and with the output of commands, so it is only shown.
What happened is read from its files. Both of the agents that we know use litellm, so that library's errors are
classified here.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from ralphtool.agents import Event, Failure, Output, failures
from ralphtool.core import files
from ralphtool.errors import UnsafePath

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 128 << 20  # bytes of a file that an agent writes; no sensible file is longer
TAIL = 64 << 10  # bytes of the end of a final message: enough
_KEPT = 4 << 10
_PAUSE = 0.2  # seconds between two events with output

# The HTTP status of each kind of litellm error.
_STATUSES = {
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "Timeout": 408,
    "RateLimitError": 429,
    "InternalServerError": 500,
    "BadGatewayError": 502,
    "ServiceUnavailableError": 503,
}


class LogFileReader:
    """Shows the last line of the agent's output now and then."""

    is_over = False  # unknown until it exits

    def __init__(self, *, shows: bool = True) -> None:
        self._printed = b""
        self._errors = b""
        self._shown = 0.0 if shows else math.inf

    def feed(self, chunk: bytes) -> Iterable[Event]:
        self._printed = _append_tail(self._printed, chunk)
        now = time.monotonic()
        if now - self._shown < _PAUSE or not (line := find_last_line(self._printed)):
            return ()
        self._shown = now
        return [Output(line)]

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        self._errors = _append_tail(self._errors, chunk)
        return ()

    def last_error(self) -> str:
        """Its last line, which says why it did not start."""
        return find_last_line(self._errors) or find_last_line(self._printed)


def _append_tail(before: bytes, chunk: bytes) -> bytes:
    return (before + chunk[-_KEPT:])[-_KEPT:]


def find_last_line(data: bytes) -> str:
    return data.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace").strip()[-200:]


def read_log(path: str) -> bytes:
    """The content of a file that an agent wrote; empty if it is missing, not a regular file, or too large."""
    try:
        fd = files.open_in_project(path)
    except (OSError, UnsafePath):
        return b""
    with os.fdopen(fd, "rb") as file:
        data = file.read(LONGEST + 1)
    return data if len(data) <= LONGEST else b""


def failure(text: str) -> Failure:
    """A litellm error, which begins with its kind: `litellm.RateLimitError: …`."""
    kind = text.removeprefix("litellm.").partition(":")[0].strip()
    if kind == "ContextWindowExceededError":
        return Failure("context", text[:4000])
    if kind == "APIConnectionError" or "Exception - Connection error" in text:  # litellm calls it a server error
        return Failure("network", text[:4000])
    return failures.failure(text, _STATUSES.get(kind))
