"""One of several places where stories are worked on side by side, with a thread that waits for its programs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from ralphtool.core import layout
from ralphtool.record.log import LaneLog
from ralphtool.workspace import slots

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from ralphtool.executors import LaneExecutor, Report
    from ralphtool.loop.change import Change
    from ralphtool.loop.run_place import RunPlace
    from ralphtool.workspace.box import Box


class LaneEnd(Struct, frozen=True):
    """A job that has ended: it has a report, or raises an unexpected error."""

    lane: Lane
    job: Future[Report]


class Lane:
    """A box and its executor. While a job runs, nothing else may touch the box."""

    def __init__(
        self,
        number: int,
        workspace: Box,
        executor: LaneExecutor,
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


class LanePool:
    """The lanes of a run: opened when needed, and removed at its end. They are like its first workspace."""

    def __init__(self, place: RunPlace, change: Change, must_end: Callable[[], bool]) -> None:
        self.ends: SimpleQueue[LaneEnd] = SimpleQueue()
        self._place = place
        self._first = cast("Box", place.workspace)
        self._project = change.root
        self._must_end = must_end
        self._lanes: list[Lane] = []
        self._stack = ExitStack()

    def __enter__(self) -> LanePool:
        self._stack.callback(self._remove_slots)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)  # lanes get the exception, and repair what was interrupted

    def find_free(self, busy: Container[int]) -> Lane:
        """A free lane, or a new one if there is none; a lane whose folder was removed meanwhile is closed."""
        for lane in [one for one in self._lanes if one.number not in busy]:
            if lane.workspace.is_there:
                return lane
            self.close(lane)
        taken = {one.number for one in self._lanes}
        return self._open(next(number for number in count(1) if number not in taken))

    def _open(self, number: int) -> Lane:
        stack = self._stack.enter_context(ExitStack())
        try:
            lane = self._fill(number, stack)
        except BaseException:
            stack.close()
            self._remove_slots(number)
            raise
        self._lanes.append(lane)
        return lane

    def _fill(self, number: int, stack: ExitStack) -> Lane:
        place = slots.make_slot(self._first, self._project, number, self._must_end)
        place.open_beside(self._first)
        stack.callback(place.close)
        opened = structs.replace(self._place, workspace=place, slot=number, log=LaneLog(self._place.log))
        return Lane(number, place, stack.enter_context(opened.open()), self.ends, stack.close)

    def close(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        lane.close()
        self._remove_slots(lane.number)

    def _remove_slots(self, *numbers: int) -> None:
        """Without numbers, removes all slots: once the lanes are closed, one call of git is enough."""
        change, home = self._first.change, self._first.home
        names = [layout.slot_name(change, number) for number in numbers] or layout.list_slots(home.common, change)
        if names:
            slots.remove_slots(home, *names)
