"""Codex's own record of a conversation.

Only its end is read, for two things that the output lacks: the tokens of a failed turn, and how much of the
subscription's quota is used. If the record is missing or its format has changed, nothing is reported.
"""

from __future__ import annotations

import os
import time
from typing import Any

from msgspec import DecodeError, Struct

from ralphtool.agents import Quota
from ralphtool.typed import build_decoder

_TAIL = 256 << 10  # bytes


class RateLimitWindow(Struct, frozen=True):
    used_percent: float
    window_minutes: float | None = None
    resets_at: float | None = None

    def quota(self) -> Quota:
        hours = (self.window_minutes or 0) / 60
        name = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours" if hours else ""
        return Quota(self.used_percent / 100, self.resets_at, name)


class RateLimits(Struct, frozen=True):
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None


class TokenCount(Struct, frozen=True, tag="token_count", tag_field="type"):
    info: Any = None
    rate_limits: RateLimits | None = None

    def total(self) -> Any:
        return self.info.get("total_token_usage") if isinstance(self.info, dict) else None

    def quotas(self) -> list[Quota]:
        limits = self.rate_limits or RateLimits()
        return [window.quota() for window in (limits.primary, limits.secondary) if window]


class TokenCountLine(Struct, frozen=True, tag="event_msg", tag_field="type"):
    payload: TokenCount


_COUNTS = build_decoder(TokenCountLine)
_CLOCKS = (time.localtime, time.gmtime)  # either may determine the name of the folder


class RolloutFile:
    """The record of one conversation, in a folder named after the day on which that began."""

    def __init__(self, home: str) -> None:
        self._sessions = os.path.join(home, "sessions")
        self._began = time.time()
        self.thread = ""

    def read_last_count(self) -> TokenCount | None:
        try:
            lines = self._read_tail().split(b"\n") if self.thread else []
        except OSError:
            return None
        for line in reversed(lines):
            try:
                return _COUNTS.decode(line).payload
            except (DecodeError, UnicodeDecodeError, RecursionError):  # another kind of line, or an incomplete one
                continue
        return None

    def _read_tail(self) -> bytes:
        # The agent may have put something else there, which must not block us.
        fd = os.open(self._find_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            file.seek(max(os.fstat(fd).st_size - _TAIL, 0))
            return file.read(_TAIL)

    def _find_path(self) -> str:
        days = {time.strftime("%Y/%m/%d", clock(at)) for clock in _CLOCKS for at in (self._began, time.time())}
        for folder in (os.path.join(self._sessions, day) for day in days):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name.endswith(f"-{self.thread}.jsonl"):
                    return os.path.join(folder, name)
        raise FileNotFoundError(self._sessions)
