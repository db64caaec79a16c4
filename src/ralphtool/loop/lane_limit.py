"""How many lanes may work now: fewer after a limit of an agent's, and more again when nothing happens for a while."""

from __future__ import annotations

import time

QUIET = 600.0  # seconds without a limit, after which one more lane is tried


class LaneLimit:
    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._since = 0.0  # when it was last changed

    def shrink(self) -> None:
        """An agent has met a limit: all lanes use the same account, most likely."""
        self._allowed, self._since = max(1, self._allowed // 2), time.monotonic()

    def count(self) -> int:
        if self._allowed < self._most and time.monotonic() - self._since >= QUIET:
            self._allowed, self._since = self._allowed + 1, time.monotonic()
        return self._allowed
