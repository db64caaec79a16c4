"""When an agent must be stopped early, and the reason that is recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.agents import Failure, Reader
    from ralphtool.executors import Report
    from ralphtool.executors.meter import Meter

_EXIT_GRACE = 30.0  # seconds between an agent's last message and its end


class Watchdog:
    """Watches one agent."""

    def __init__(self, reader: Reader, meter: Meter, stop: Callable[[], bool]) -> None:
        self._reader = reader
        self._meter = meter
        self._stop = stop
        self._over_since: float | None = None
        self._stuck: Failure | None = None  # the failure that it could not recover from within its patience

    def must_end(self) -> bool:
        if self._stop():
            return True
        if self._meter.is_stuck:
            self._stuck = self._meter.failure
        return self._stuck is not None or self._is_lingering()

    def _is_lingering(self) -> bool:
        """A program may still run after its last message, perhaps because of a server that it started."""
        if not self._reader.is_over:
            self._over_since = None
            return False
        self._over_since = self._over_since or time.monotonic()
        return time.monotonic() - self._over_since > _EXIT_GRACE

    def explain(self, report: Report) -> Report:
        """The agent's output while it is being ended does not change the reason."""
        if self._stuck and report.ending == "stopped":
            return structs.replace(report, ending="retrying", failure=self._stuck)
        is_over = self._reader.is_over and report.ending in ("stopped", "silence")
        return structs.replace(report, ending="exit") if is_over and not self._stop() else report
