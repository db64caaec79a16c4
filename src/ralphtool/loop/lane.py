"""One of several places where stories are worked on side by side, with a thread that waits for what runs there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from ralphtool.executors import Report
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.workspace.box import Box


class LaneEnd(Struct, frozen=True):
    """What came of a job; `error` is one that nobody expected."""

    lane: Lane
    report: Report | None = None
    error: BaseException | None = None


class Lane:
    """A box, and what runs in it. Whoever starts a job leaves the box alone until its end is told."""

    def __init__(self, number: int, workspace: Box, executor: LocalExecutor, ends: SimpleQueue[LaneEnd]) -> None:
        self.number = number
        self.workspace = workspace
        self.executor = executor
        self._ends = ends
        self._thread: threading.Thread | None = None

    def start(self, job: Callable[[], Report]) -> None:
        self._thread = threading.Thread(target=self._run, args=(job,), name=f"lane {self.number}", daemon=True)
        self._thread.start()

    def _run(self, job: Callable[[], Report]) -> None:
        try:
            end = LaneEnd(self, report=job())
        except BaseException as error:
            end = LaneEnd(self, error=error)
        self._ends.put(end)

    def join(self) -> None:
        """Waits for the end of its job, if there is one."""
        if self._thread is not None:
            self._thread.join()
