"""One of several places where stories are worked on side by side, with a thread that waits for what runs there."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from ralphtool.executors import Report
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.workspace.box import Box


class LaneEnd(Struct, frozen=True):
    """A job that has ended: it has a report, or raises the error that nobody expected."""

    lane: Lane
    job: Future[Report]


class Lane:
    """A box, and what runs in it. Whoever starts a job leaves the box alone until its end is told."""

    def __init__(
        self,
        number: int,
        workspace: Box,
        executor: LocalExecutor,
        ends: SimpleQueue[LaneEnd],
        close: Callable[[], None],
    ) -> None:
        self.number = number
        self.workspace = workspace
        self.executor = executor
        self.close = close
        self._ends = ends
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"lane-{number}")
        self._running: Future[Report] | None = None

    def start(self, job: Callable[[], Report]) -> None:
        self._running = self._pool.submit(job)
        self._running.add_done_callback(lambda done: self._ends.put(LaneEnd(self, done)))

    def join(self) -> None:
        """Waits for the end of its job, if there is one."""
        if self._running is not None:
            wait([self._running])
