"""A run in progress: its events as a live picture, as lines, or as JSON.

Only the file of events is read, so the run may be another process, and does not depend on this view. When the output
can't be written (the pipe is closed, the terminal is gone), the view ends, never the run.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ralphtool.record.events import RunEnded
from ralphtool.record.follow import Follower, Replay
from ralphtool.record.view_parts import parse_time
from ralphtool.views.terminal import raw
from ralphtool.views.terminal.run_lines import RunLines, keep_recent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.record.follow import StopSignal


def print_json(path: str, stop: StopSignal, speed: float | None = None) -> None:
    """Every event as one line of JSON; with a `speed`, as a replay."""
    raw.write_events(raw.follow_lines(path, stop) if speed is None else Replay(path, RunLines, speed).play_lines(stop))


RunLinesT = TypeVar("RunLinesT", bound=RunLines)


class WatchOptions(NamedTuple):
    """How a run is watched."""

    speed: float | None = None  # replays from the beginning, faster by this factor
    lead: int | None = None  # the number of earlier lines that are shown; all if None

    def open_source(self, path: str, view: type[RunLinesT]) -> Follower[RunLinesT] | Replay[RunLinesT]:
        if self.speed is None:
            return Follower(path, view, joins=self.lead is not None)
        return Replay(path, view, self.speed)


FROM_THE_START = WatchOptions()
JOINING = WatchOptions(lead=10)


def print_lines(path: str, stop: StopSignal, look: WatchOptions = FROM_THE_START) -> None:
    """One line for each event that matters."""
    raw.write_lines(_format_lines(look.open_source(path, RunLines), stop, look.lead))


def print_lines_aside(path: str, stop: StopSignal) -> None:
    """The same on standard error, if standard output is for a program."""
    raw.write_lines(_format_lines(FROM_THE_START.open_source(path, RunLines), stop, None), "stderr")


def _format_lines(
    source: Follower[RunLines] | Replay[RunLines], stop: StopSignal, lead: int | None
) -> Iterator[str | None]:
    lines: list[str] = []
    for event in source.follow_events(stop):
        if event is None:
            yield from keep_recent(lines, lead, ["..."], head=1)
            yield None
            lines, lead = [], None
        elif not isinstance(event, RunEnded) and (
            told := source.view.describe(event)
        ):  # the summary reports the end better
            lines.append(f"[{source.view.format_elapsed(event)}] {told.plain}")


def show_live(path: str, stop: StopSignal, look: WatchOptions = FROM_THE_START) -> None:
    """The picture, with past events above it. At the end the picture disappears; the lines above stay."""
    if not _can_draw():
        return print_lines(path, stop, look)
    from ralphtool.views.terminal import picture

    try:
        picture.draw(look.open_source(path, picture.RunDisplay), stop, look.lead)
    except OSError:
        sys.stdout = None


def show_last(path: str, at: str, stop: StopSignal) -> None:
    """The last picture of a dead run, as it was at a given time; without a terminal, its last lines."""
    if not _can_draw():
        return print_lines(path, stop, JOINING)
    from ralphtool.views.terminal import picture

    try:
        picture.draw_last(path, parse_time(at), stop, JOINING.lead)
    except OSError:
        sys.stdout = None


def _can_draw() -> bool:
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
    return sys.stdout is not None and sys.stdout.isatty() and not dumb
