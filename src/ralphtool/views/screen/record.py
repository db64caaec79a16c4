"""A run's record as the full screen follows it: read in slices, and no more kept of it than can be looked at.

A record may have a million lines, and an agent may add a thousand a second. So a slice ends when its time is up, and of
what agents said only the last few hundred things are kept.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ralphtool import agents
from ralphtool.record.events import Agent, Gate, IterationStarted
from ralphtool.record.follow import Follower
from ralphtool.record.run_view import seconds_of
from ralphtool.views.terminal.live import Picture
from ralphtool.views.terminal.summary import (
    attempt,
    cut,
    duration,
    last_word,
    mark,
    one_line,
    outcome,
    told,
    writable,
)
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from ralphtool.record.events import Event, Said
    from ralphtool.record.runs import Run

KEPT = 400  # things that agents did and that can still be scrolled back to
_SLICE = 0.03  # seconds of reading, after which there is time for other things
_NEAR = 512 << 10  # bytes at the end of a record in which everything is looked at
_FOLDED, _UNFOLDED = 3, 60  # lines of what a tool gave back


class Doing(NamedTuple):
    """Something that happened, told in words only when it is shown."""

    number: int
    event: Event
    name: str  # of the story

    def told(self, *, unfolded: bool = False) -> list[Text]:
        if isinstance(self.event, Gate):
            return [_gate(self.event)]
        if isinstance(self.event, Agent):
            return _words(self.event.event, _UNFOLDED if unfolded else _FOLDED)
        line = told(self.event, self.name)
        return [Text(), line] if line and isinstance(self.event, IterationStarted) else [line] if line else []


def _gate(event: Gate) -> Text:
    sign = mark("done" if event.ok else "failed")
    when = ("before: " if event.when == "before" else "", "dim")
    took = (f"  {duration(event.seconds)}", "dim")
    return _one_line(Text.assemble(sign, " ", when, f"{one_line(event.command)}{outcome(event)}", took))


def _one_line(words: Text) -> Text:
    words.no_wrap, words.overflow = True, "ellipsis"
    return words


def _words(said: Said, most: int) -> list[Text]:
    match said:
        case agents.Message():
            return [Text(line) for line in lines_of(said.text)]
        case agents.Result():
            return _folded(lines_of(said.text), most)
        case agents.Tool():
            return [_one_line(Text.assemble(mark("current"), " ", last_word(said)))]
        case agents.Output() if not said.text.strip():
            return []
    return [last_word(said)]


def _folded(lines: list[str], most: int) -> list[Text]:
    shown = lines if len(lines) <= most + 1 else lines[:most]
    words = [_one_line(Text(f"    {line}", style="dim")) for line in shown]
    if len(lines) > len(shown):
        words.append(Text(f"    {plural(len(lines) - len(shown), 'more line', 'more lines')}", style="dim italic"))
    return words


def lines_of(text: str, longest: int = 20_000) -> list[str]:
    """A text of several lines that somebody else wrote, fit to be shown."""
    return [writable(line.expandtabs(4).rstrip()) for line in text[:longest].strip().replace("\r\n", "\n").split("\n")]


class Story(NamedTuple):
    id: str
    state: str
    is_current: bool


class Watched(Picture):
    """What is known of a run, and the last that happened in it."""

    def __init__(self) -> None:
        super().__init__(self._time)
        self.is_over = False
        self._last = ""  # when something was last heard of it
        self.doings: deque[Doing] = deque(maxlen=KEPT)
        self.count = 0

    def feed(self, event: Event) -> None:
        super().feed(event)
        self._last = event.at or self._last
        if isinstance(event, Agent) and isinstance(event.event, agents.Usage | agents.Quota):
            return  # counted, and not shown
        self.count += 1
        self.doings.append(Doing(self.count, event, self.name_of(getattr(event, "story", None))))

    def _time(self) -> float:
        """The clock stands still with the run."""
        last = seconds_of(self._last) if self.is_over else None
        return time.time() if last is None else last

    # --- for the screen

    @property
    def stories(self) -> list[Story]:
        return [Story(id, self.run.stories[id].state, self.at_work(id) is not None) for id in self.story_ids]

    def head(self, width: int) -> Text:
        return Text("\n").join([self._head(width), self._progress(width)])

    def row(self, story: str, width: int) -> Text:
        """One line, however narrow; which attempt it is stands above what happens."""
        now, one = self.at_work(story), self.run.stories[story]
        if now is None:
            return cut(self._story_line(story, width), width)
        tasks = f"{one.tasks_done}/{one.tasks_total}  " if one.tasks_total else ""
        right = f"  {tasks}{self._since(now.began)}"
        left = cut(Text.assemble(mark("current"), " ", (self.name_of(story), "bold")), width - len(right))
        left.pad_right(width - len(right) - left.cell_len)
        return cut(left.append(right), width)

    @property
    def now(self) -> str:
        """What is worked on, in a few words."""
        now = self.run.attempt
        if now is None:
            return ""
        return ": ".join(filter(None, [attempt(now.start.attempt, now.start.attempts), self.name_of(now.start.story)]))

    def foot(self, width: int) -> list[Text]:
        """The gates of this iteration, and what the run waits for."""
        waiting = [self._wait_line(self.run.waiting)] if self.run.waiting else []
        return [*self._gate_lines(width, 4), *waiting, *self._pause_lines()]


class Following:
    """A run's record, followed for as long as somebody looks."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._follower = Follower(run.path, Watched, joins=True, detail=_NEAR)
        self.read(0.0)

    @property
    def view(self) -> Watched:
        return self._follower.view

    @property
    def is_behind(self) -> bool:
        """Whether there is more to be read at once."""
        return self._follower.is_behind

    def read(self, seconds: float = _SLICE) -> None:
        """Reads on for a moment."""
        try:
            self._follower.read(seconds)
        except OSError:
            pass  # it can't be read now; perhaps at the next look
