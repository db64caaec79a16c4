"""Adds a worker's events to the record of the run while they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ralphtool import typed
from ralphtool.core import session
from ralphtool.executors.orders import Beat
from ralphtool.record import events

if TYPE_CHECKING:
    from ralphtool.executors import Assignment
    from ralphtool.executors.orders import Result
    from ralphtool.record.log import Log

# The events that a worker may report. Only the loop records events about the run and its results.
_TOLD = (events.Setup, events.GateStarted, events.Gate, events.Agent, events.Ticked, events.Notice, events.Denied)


class LiveRecord:
    """The events of one job, as far as they are recorded here."""

    def __init__(self, log: Log, folder: str, assignment: Assignment) -> None:
        self._log = log
        self._folder = folder
        self._assignment = assignment
        self._known = 0  # bytes of the worker's record
        self._missing: list[slice] = []  # parts that came too fast to be sent live
        self._worker = ""
        self._root = ""

    def take(self, heartbeat: bytes) -> None:
        """Adds the new events at the end of a worker's record."""
        if not heartbeat:
            return
        try:
            beat = typed.decode_msgpack(heartbeat, Beat)
        except msgspec.MsgspecError:
            return  # the whole record comes at the end
        self._meet(beat)
        if beat.offset > self._known:
            self._missing.append(slice(self._known, beat.offset))
            self._known = beat.offset
        self._add(beat.lines[self._known - beat.offset :])

    def _meet(self, beat: Beat | Result) -> None:
        """A second worker begins from the start: the events of the first one stay in the record."""
        if (beat.worker, beat.root) != (self._worker, self._root):
            self._worker, self._root, self._known, self._missing = beat.worker, beat.root, 0, []
            one = self._assignment
            self._log.note(events.WorkerJoined(worker=beat.worker, iteration=one.number, story=one.story))

    def finish(self, result: Result, lines: bytes) -> None:
        """Adds the missing events, once the whole record of the job has arrived."""
        self._meet(result)
        for missing in self._missing:
            self._add_lines(lines[missing])
        self._add(lines[self._known :])

    def _add(self, lines: bytes) -> None:
        whole = lines[: lines.rfind(b"\n") + 1]
        self._known += len(whole)
        self._add_lines(whole)

    def _add_lines(self, lines: bytes) -> None:
        for line in lines.splitlines():
            event = events.decode(self.use_own_paths(line))
            if isinstance(event, _TOLD):
                # The clock of the other machine may be ahead: no event may be in the future.
                self._log.note(self._set_place(event), at=min(event.at, session.now()))

    def _set_place(self, event: Any) -> Any:
        """Whatever a worker reports, the iteration and the story are those of this job."""
        one = self._assignment
        known = {"iteration": one.number, "story": one.story}
        return structs.replace(event, **{name: value for name, value in known.items() if hasattr(event, name)})

    def use_own_paths(self, data: bytes) -> bytes:
        """In the end, the worker's records are here, under local paths."""
        return data.replace(_spell(self._root), _spell(self._folder)) if self._root else data


def _spell(path: str) -> bytes:
    """A path as it appears inside a JSON string."""
    return msgspec.json.encode(path)[1:-1]
