"""What is known of a run, and its events as lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from ralphtool.record.events import Gate, WorkerJoined
from ralphtool.record.run_view import RunView
from ralphtool.record.view_parts import parse_time
from ralphtool.views.amounts import format_stopwatch
from ralphtool.views.terminal.event_lines import describe_event
from ralphtool.views.terminal.phrases import format_story
from ralphtool.views.terminal.styled import assemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.record.events import Event
    from ralphtool.views.terminal.styled import StyledLine

LineT = TypeVar("LineT")


class RunLines:
    """What is known of a run, and its events as lines."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.run = RunView()

    def feed(self, event: Event) -> None:
        self.run.feed(event)

    def format_elapsed(self, event: Event) -> str:
        """How long the run was under way when the event happened."""
        at = parse_time(event.at)
        return format_stopwatch((at or 0.0) - (self.run.began or at or 0.0))

    def describe(self, event: Event) -> StyledLine | None:
        """The event as one line; None if nobody needs to be told."""
        if isinstance(event, WorkerJoined) and self.is_known_worker(event):
            return None
        name = self.format_name(getattr(event, "story", None))
        line = describe_event(event, name)
        is_beside = isinstance(event, Gate) and len(self.run.current) > 1  # whose gate that was is not plain then
        return assemble(f"{name}: ", *line) if line and is_beside else line

    def is_known_worker(self, event: WorkerJoined) -> bool:
        """Whether that was told of the iteration already."""
        story = self.run.stories.get(event.story)
        return story is not None and story.is_known_worker(event)

    def format_name(self, story: str | None) -> str:
        known = self.run.stories.get(story or "")
        return format_story(known.id, known.title) if known else format_story(story)


def keep_recent(lines: list[LineT], lead: int | None, gap: list[LineT], head: int) -> list[LineT]:
    """Of what had happened before somebody looked, the end, and so many lines of its head."""
    if lead is None or len(lines) <= head + lead:
        return lines
    return lines[:head] + gap + lines[-lead:]
