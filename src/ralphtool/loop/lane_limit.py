"""How many lanes may work now: fewer after an agent reaches a limit, and more again after a quiet period."""

from __future__ import annotations

import time

QUIET = 600.0  # seconds without a limit, after which one more lane is tried


class LaneLimit:
    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._since = 0.0  # when it was last changed

    def shrink(self) -> None:
        """An agent has reached a limit: all lanes most likely use the same account."""
        self._allowed, self._since = max(1, self._allowed // 2), time.monotonic()

    def count(self) -> int:
        if self._allowed < self._most and time.monotonic() - self._since >= QUIET:
            self._allowed, self._since = self._allowed + 1, time.monotonic()
        return self._allowed
