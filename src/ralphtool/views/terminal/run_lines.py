"""The state of a run, and its events as lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from ralphtool.core.amounts import format_stopwatch
from ralphtool.record.events import Gate, WorkerJoined
from ralphtool.record.run_view import RunView
from ralphtool.record.view_parts import parse_time
from ralphtool.views.terminal.event_lines import describe_event
from ralphtool.views.terminal.phrases import format_story
from ralphtool.views.terminal.styled import assemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.record.events import Event
    from ralphtool.views.terminal.styled import StyledLine

LineT = TypeVar("LineT")


class RunLines:
    """The state of a run, and its events as lines."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.run = RunView()
        self._story = ""  # the one that the last line was about

    def feed(self, event: Event) -> None:
        self.run.feed(event)

    def format_elapsed(self, event: Event) -> str:
        """The time from the start of the run to the event."""
        at = parse_time(event.at)
        return format_stopwatch((at or 0.0) - (self.run.began or at or 0.0))

    def describe(self, event: Event) -> StyledLine | None:
        """The event as one line; None if it is not worth a line."""
        if isinstance(event, WorkerJoined) and self.is_known_worker(event):
            return None
        story = getattr(event, "story", None)
        name = self.format_name(story)
        line = describe_event(event, name)
        # Then the line must name the gate's story.
        is_beside = isinstance(event, Gate) and (len(self.run.current) > 1 or event.story not in ("", self._story))
        self._story = story if story and line else self._story
        return assemble(f"{name}: ", *line) if line and is_beside else line

    def is_known_worker(self, event: WorkerJoined) -> bool:
        """Whether this was already reported for the iteration."""
        story = self.run.stories.get(event.story)
        return story is not None and story.is_known_worker(event)

    def format_name(self, story: str | None) -> str:
        known = self.run.stories.get(story or "")
        return format_story(known.id, known.title) if known else format_story(story)


def keep_recent(lines: list[LineT], lead: int | None, gap: list[LineT], head: int) -> list[LineT]:
    """The last `lead` lines, and the first `head` lines; all if `lead` is None."""
    if lead is None or len(lines) <= head + lead:
        return lines
    return lines[:head] + gap + lines[-lead:]
