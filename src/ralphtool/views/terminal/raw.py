"""A run's events as they are, one line of JSON for each: for programs, and without anything that draws."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from ralphtool.core import quickjson
from ralphtool.record.lines import LineReader, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Event = dict[str, Any]

_PAUSE = 0.25  # seconds between two looks at the record


class Stop(Protocol):
    """Says when nobody needs to look any longer: a `threading.Event`, for one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> object: ...


def follow(path: str, stop: Stop) -> None:
    """Every event, until the run ends or `stop` is set."""
    write(every(path, stop))


def write(happened: Iterable[Event | None]) -> None:
    put(None if event is None else _json(event) for event in happened)


def every(path: str, stop: Stop) -> Iterator[Event | None]:
    """The run's events until it ends or `stop` is set. None means that there is nothing more for the moment."""
    reader = LineReader(path)
    while True:
        last = stop.is_set()  # asked before reading: what was written until then is still shown
        try:
            for event in filter(None, map(fields_of, reader.new())):
                yield event
                if event["type"] == "run_ended":
                    last = True
                    break
        except OSError:
            pass  # it can't be read now; perhaps at the next look
        yield None
        if last:
            return
        stop.wait(_PAUSE)


def _json(event: Event) -> str:
    try:
        return quickjson.dumps(event)
    except RecursionError:
        return quickjson.dumps({"at": str(event.get("at", ""))[:100], "type": event["type"]})


def put(lines: Iterable[str | None]) -> None:
    """Writes lines, and hands them on whenever there is nothing more for the moment."""
    if sys.stdout is None:
        return
    try:
        for line in lines:
            sys.stdout.flush() if line is None else sys.stdout.write(f"{line}\n")
    except OSError:
        sys.stdout = None  # nobody reads on, so there is nothing to flush at the end
