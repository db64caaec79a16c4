"""A run's record as the full screen follows it: read in slices, and no more kept of it than can be looked at.

A record may have a million lines, and an agent may add a thousand a second. So a slice ends when its time is up, and of
what agents said only the last few hundred things are kept.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ralphtool.record.follow import decoded, seconds
from ralphtool.record.lines import LineReader, quick_type, tells_usage
from ralphtool.views.terminal.live import View
from ralphtool.views.terminal.summary import Fields, cut, duration, last_word, mark, outcome, told, writable
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from typing import Any

    from ralphtool.record.runs import Run

KEPT = 400  # things that agents did and that can still be scrolled back to
_SLICE = 0.03  # seconds of reading, after which there is time for other things
_PIECE = 64 << 10  # bytes that are read at once
_NEAR = 512 << 10  # bytes at the end of a record in which everything is looked at
_FOLDED, _UNFOLDED = 3, 60  # lines of what a tool gave back
_SILENT = ("usage", "quota")  # kinds that are counted, and not told


class Doing(NamedTuple):
    """Something that happened, told in words only when it is shown."""

    number: int
    event: Fields
    name: str  # of the story

    def told(self, *, unfolded: bool = False) -> list[Text]:
        type = self.event.raw("type")
        if type == "gate":
            return [_gate(self.event)]
        if type != "agent":
            line = told(self.event, self.name)
            return [Text(), line] if line and type == "iteration_started" else [line] if line else []
        said = self.event.inside("event")
        return _words(said, said.raw("kind"), _UNFOLDED if unfolded else _FOLDED)


def _gate(event: Fields) -> Text:
    sign = mark("done" if event.is_true("ok") else "failed")
    when = ("before: " if event.raw("when") == "before" else "", "dim")
    took = (f"  {duration(event.number('seconds'))}", "dim")
    return _one_line(Text.assemble(sign, " ", when, f"{event.text('command')}{outcome(event)}", took))


def _one_line(words: Text) -> Text:
    words.no_wrap, words.overflow = True, "ellipsis"
    return words


def _words(said: Fields, kind: str, most: int) -> list[Text]:
    if kind == "message":
        return [Text(line) for line in lines_of(said.raw("text"))]
    if kind == "result":
        return _folded(lines_of(said.raw("text")), most)
    if kind == "tool":
        return [_one_line(Text.assemble(mark("current"), " ", last_word(said)))]
    if kind == "output" and not said.raw("text").strip():
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


class Watched(View):
    """What is known of a run, and the last that happened in it."""

    def __init__(self) -> None:
        super().__init__(self._time)
        self.is_over = False
        self._last = ""  # when something was last heard of it
        self.doings: deque[Doing] = deque(maxlen=KEPT)
        self.count = 0
        self.verdicts: list[Fields] = []
        self.commits: list[Fields] = []
        self.end: Fields | None = None
        self.is_paused = False  # or will be, after this iteration

    def feed(self, event: dict[str, Any]) -> None:
        super().feed(event)
        fields = Fields(event)
        type = fields.raw("type")
        self._last = fields.raw("at") or self._last
        if type == "agent":
            if fields.inside("event").raw("kind") not in _SILENT:
                self._do(fields)
            return
        if type == "verdict":
            self.verdicts.append(fields)
        elif type == "checkpoint":
            self.commits.append(fields)
        elif type == "run_ended":
            self.end = fields
        elif type == "steered" and fields.raw("action") in ("pause", "resume"):
            self.is_paused = fields.raw("action") == "pause"
        elif type in ("paused", "resumed"):
            self.is_paused = type == "paused"
        self._do(fields)

    def _time(self) -> float:
        """The clock stands still with the run."""
        if not self.is_over:
            return time.time()
        last = seconds(self._last)
        return time.time() if last is None else last

    def _do(self, fields: Fields) -> None:
        self.count += 1
        self.doings.append(Doing(self.count, fields, self._name(fields)))

    # --- for the screen

    @property
    def stories(self) -> list[Story]:
        now = self._now.story if self._now else None
        return [Story(id, one.state, id == now) for id, one in self._stories.items()]

    def title_of(self, story: str) -> str:
        return self._name(Fields({"story": story}))

    def head(self, width: int) -> Text:
        return Text("\n").join([self._head(width), self._progress(width)])

    def row(self, story: str, width: int) -> Text:
        """One line, however narrow; which attempt it is stands above what happens."""
        if self._now is None or self._now.story != story:
            return cut(self._story_line(story, width), width)
        one = self._stories[story]
        tasks = f"{one.tasks_done}/{one.tasks_total}  " if one.tasks_total else ""
        right = f"  {tasks}{self._since(self._now.began)}"
        left = cut(Text.assemble(mark("current"), " ", (one.label, "bold")), width - len(right))
        left.pad_right(width - len(right) - left.cell_len)
        return cut(left.append(right), width)

    @property
    def now(self) -> str:
        """What is worked on, in a few words."""
        if self._now is None:
            return ""
        return ": ".join(filter(None, [self._now.attempt, self.title_of(self._now.story)]))

    def foot(self, width: int) -> list[Text]:
        """The gates of this iteration, and what the run waits for."""
        waiting = [self._wait_line(self._waiting)] if self._waiting else []
        return [*self._gate_lines(width, 4), *waiting, *self._pause_lines()]


class Following:
    """A run's record, followed for as long as somebody looks."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.view = Watched()
        self._exact = Watched()  # what `view` becomes once all is read
        self._reader = LineReader(run.path)
        self._restarts = 0
        self._near = _size(run.path) - _NEAR  # what agents did before it can't be scrolled back to
        self._begin_with_the_end()

    def _begin_with_the_end(self) -> None:
        """Of a long record, its first and its last events make a picture while the rest is read."""
        if self._near <= 0:
            self.view = self._exact
            return
        for event in (self.run.start, *decoded(LineReader(self.run.path, self._near).read(_NEAR))):
            self.view.feed(event)

    def read(self) -> None:
        """Reads on for a moment."""
        end = time.monotonic() + _SLICE
        try:
            while self._take(self._reader.read(_PIECE)) and time.monotonic() < end:
                pass
        except OSError:
            return  # it can't be read now; perhaps at the next look
        if not self._reader.is_behind:
            self.view = self._exact

    def _take(self, lines: list[bytes]) -> bool:
        """Takes lines in; tells whether there are more."""
        if self._restarts != self._reader.restarts:
            self._restarts, self._near = self._reader.restarts, 0
            self._exact = Watched()
        if self._reader.offset < self._near:
            lines = [line for line in lines if quick_type(line) != b"agent" or tells_usage(line)]
        for event in decoded(lines):
            self._exact.feed(event)
        return self._reader.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether there is more to be read at once."""
        return self._reader.is_behind


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
