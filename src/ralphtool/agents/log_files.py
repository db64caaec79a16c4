"""Agents that print for people, and write down in files what they did: what their readers share.

What such an agent prints is a mixture of its own words and the model's, and of whatever commands say: it is only shown.
What has happened is read from its files when it is gone. Both that we know reach their models through litellm, so that
library's errors are told apart here.
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

LONGEST = 128 << 20  # bytes of a file that an agent writes; nothing sensible is longer
TAIL = 64 << 10  # so much of the end of a final message is enough
_KEPT = 4 << 10
_PAUSE = 0.2  # seconds between two pieces of output that are shown

# The HTTP status that each kind of litellm's errors stands for.
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
    """Shows the last line of what the agent prints, now and then."""

    is_over = False  # only its end tells that

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
        """The last that it said, which tells why it did not even begin."""
        return find_last_line(self._errors) or find_last_line(self._printed)


def _append_tail(before: bytes, chunk: bytes) -> bytes:
    return (before + chunk[-_KEPT:])[-_KEPT:]


def find_last_line(data: bytes) -> str:
    return data.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace").strip()[-200:]


def read_log(path: str) -> bytes:
    """A file that an agent wrote; nothing if it is not there, no plain file, or beyond all bounds."""
    try:
        fd = files.open_in_project(path)
    except (OSError, UnsafePath):
        return b""
    with os.fdopen(fd, "rb") as file:
        data = file.read(LONGEST + 1)
    return data if len(data) <= LONGEST else b""


def describe_exit(exit_code: int) -> str:
    return f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"


def failure(text: str) -> Failure:
    """An error of litellm's, which begins with its kind: `litellm.RateLimitError: …`."""
    kind = text.removeprefix("litellm.").partition(":")[0].strip()
    if kind == "ContextWindowExceededError":
        return Failure("context", text[:4000])
    if kind == "APIConnectionError" or "Exception - Connection error" in text:  # which it takes for the server's
        return Failure("network", text[:4000])
    return failures.failure(text, _STATUSES.get(kind))
