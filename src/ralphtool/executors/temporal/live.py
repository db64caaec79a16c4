"""What happens on a worker, told here while it happens: its events go into the record of the run."""

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

# What a worker may tell. What a run is, and what comes of it, is told by its loop alone.
_TOLD = (events.Setup, events.GateStarted, events.Gate, events.Agent, events.Ticked, events.Notice, events.Denied)


class LiveRecord:
    """The events of one job, as far as they are recorded here."""

    def __init__(self, log: Log, folder: str, assignment: Assignment) -> None:
        self._log = log
        self._folder = folder
        self._assignment = assignment
        self._known = 0  # bytes of the worker's record
        self._missing: list[slice] = []  # what came too fast to be told live
        self._worker = ""
        self._root = ""

    def take(self, heartbeat: bytes) -> None:
        """Adds what is new in the end of a worker's record."""
        if not heartbeat:
            return
        try:
            beat = typed.decode_msgpack(heartbeat, Beat)
        except msgspec.MsgspecError:
            return  # all of it comes at the end
        self._meet(beat)
        if beat.offset > self._known:
            self._missing.append(slice(self._known, beat.offset))
            self._known = beat.offset
        self._add(beat.lines[self._known - beat.offset :])

    def _meet(self, beat: Beat | Result) -> None:
        """A second worker begins from the start: what the first has told stays told."""
        if (beat.worker, beat.root) != (self._worker, self._root):
            self._worker, self._root, self._known, self._missing = beat.worker, beat.root, 0, []
            one = self._assignment
            self._log.note(events.WorkerJoined(worker=beat.worker, iteration=one.number, story=one.story))

    def finish(self, result: Result, lines: bytes) -> None:
        """Adds what is missing, once the whole record of the job has come."""
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
                # The clock of another machine may be ahead of ours: nothing happens after now.
                self._log.note(self._set_place(event), at=min(event.at, session.now()))

    def _set_place(self, event: Any) -> Any:
        """Whatever a worker says of it: the iteration and the story are those of this job."""
        one = self._assignment
        known = {"iteration": one.number, "story": one.story}
        return structs.replace(event, **{name: value for name, value in known.items() if hasattr(event, name)})

    def use_own_paths(self, data: bytes) -> bytes:
        """The worker's records are here by the end, under our own paths."""
        return data.replace(_spell(self._root), _spell(self._folder)) if self._root else data


def _spell(path: str) -> bytes:
    """As it stands inside of a JSON string."""
    return msgspec.json.encode(path)[1:-1]
