"""A run's events unchanged, one line of JSON each, for programs, without any drawing code.

All fields are written, including those that this version does not know.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from ralphtool.core import quickjson
from ralphtool.record.lines import LineReader, parse_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphtool.record.follow import StopSignal

_PAUSE = 0.25  # seconds between two reads of the record


def follow(path: str, stop: StopSignal) -> None:
    """Every event, until the run ends or `stop` is set."""
    write_events(follow_lines(path, stop))


def follow_lines(path: str, stop: StopSignal) -> Iterator[bytes | None]:
    """The lines of a record until its run ends or `stop` is set. None means that there are no more for now."""
    reader = LineReader(path)
    while True:
        last = stop.is_set()  # checked before reading, so that everything written until then is shown
        try:
            yield from reader.new()
        except OSError:
            pass  # it can't be read now; the next read tries again
        yield None
        if last:
            return
        stop.wait(_PAUSE)


def write_events(lines: Iterable[bytes | None]) -> None:
    write_lines(_encode_lines(lines))


def _encode_lines(lines: Iterable[bytes | None]) -> Iterator[str | None]:
    for line in lines:
        if line is None:
            yield None
        elif (event := parse_fields(line)) is not None:
            yield _encode(event)
            if event["type"] == "run_ended":
                return


def _encode(event: dict[str, Any]) -> str:
    try:
        return quickjson.dumps(event)
    except (RecursionError, ValueError):  # nested too deeply, or a number that JSON can't have
        return quickjson.dumps({"at": str(event.get("at", ""))[:100], "type": event["type"]})


def write_lines(lines: Iterable[str | None], stream: Literal["stdout", "stderr"] = "stdout") -> None:
    """Writes lines, and flushes at each None: no more for now."""
    output = getattr(sys, stream)
    if output is None:
        return
    try:
        for line in lines:
            output.flush() if line is None else output.write(f"{line}\n")
        output.flush()
    except OSError:
        setattr(sys, stream, None)  # the reader is gone: Python must not flush it at exit
