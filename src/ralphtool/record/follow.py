"""Reading a record for somebody who looks on: a run that goes on, from wherever it is, or one that is played again.

A record may have a million events before anybody looks. So the first picture is made of its head and its tail, and what
is between is read afterwards, a slice at a time: then the picture is what it would be had every event been fed to it.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ralphtool.record.lines import LONGEST, LineReader, fields_of, quick_type, tells_usage
from ralphtool.views.terminal.summary import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ralphtool.views.terminal.raw import Stop

    Event = dict[str, Any]

PAUSE = 0.25  # seconds between two looks at the record, and between two pictures
_TAIL = 256 << 10
_MOST = 4 << 20  # bytes that are read at one look
_SLICE = 0.2  # seconds of catching up between two pictures
_LONGEST_PAUSE = 2.0  # seconds in which nothing happens when a record is played: nights are long


class View(Protocol):
    """Whoever wants to know what has happened."""

    def feed(self, event: Event) -> None: ...


Seen = TypeVar("Seen", bound=View)


def seconds(at: str) -> float | None:
    """A moment in RFC 3339 as seconds since the epoch."""
    try:
        found = datetime.fromisoformat(at)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def decoded(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        if event := fields_of(line):
            yield event


# --- what agents say --------------------------------------------------------------------------------


def is_word(said: Fields) -> bool:
    """Whether it is worth being shown as what an agent does now."""
    kind = said.raw("kind")
    return kind not in ("usage", "quota", "result") and (kind != "output" or bool(said.raw("text").strip()))


def skimmed(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events that matter: of all that an agent says in a row only its last word, its failures, and what it used.

    Agents may print thousands of lines a second, and most of them are never decoded.
    """
    words: list[bytes] = []
    for line in lines:
        if quick_type(line) == b"agent" and not tells_usage(line) and b'"kind":"failure"' not in line:
            words.append(line)
        else:
            yield from _last_word(words)
            words = []
            yield from decoded([line])
    yield from _last_word(words)


def _last_word(words: list[bytes]) -> Iterator[Event]:
    for event in decoded(reversed(words)):
        if is_word(Fields(event).inside("event")):
            yield event
            return


# --- a run that goes on -----------------------------------------------------------------------------


class Follower(Generic[Seen]):
    """Keeps a view up to date with a record of any length.

    One that `joins` a run is quick to know how that stands, and is not told all that has happened before.
    """

    def __init__(self, path: str, make: Callable[[], Seen], *, joins: bool) -> None:
        self._path = path
        self._make = make
        self._joins = joins
        self._begin()

    def _begin(self) -> None:
        size = os.path.getsize(self._path) if self._joins and os.path.exists(self._path) else 0
        start = size - _TAIL if size > 2 * _TAIL else 0
        self.view = self._make()
        self._first: list[Event] = []
        self._reader = LineReader(self._path, start)
        self._whole: Seen | None = None  # is fed with all that comes before, and takes over when it is there
        self._behind = LineReader(self._path)
        if start:
            self._whole = self._make()
            self._take_head()

    def _take_head(self) -> None:
        """Without the first event, nothing is known of what the others talk about."""
        lines: list[bytes] = []
        while not lines and self._behind.offset == 0:
            lines = self._behind.read(_TAIL, LONGEST)
            if not self._behind.is_behind:
                break
        self._first = list(decoded(lines[:1]))
        self._feed_whole(lines)

    def _feed_whole(self, lines: list[bytes]) -> None:
        for event in skimmed(lines):
            if self._whole is not None:
                self._whole.feed(event)

    @property
    def is_behind(self) -> bool:
        """Whether the view would be another if all that is there had been read."""
        return self._whole is not None or self._reader.is_behind

    def new(self) -> Iterator[Event]:
        """The events that matter among those that have come; the view has been fed with each."""
        lines = self._reader.read(_MOST)
        if self._reader.restarts:
            self._begin()
            return
        first, self._first = self._first, []
        for event in (*first, *skimmed(lines)):
            self.view.feed(event)
            yield event

    def catch_up(self, seconds: float = _SLICE) -> bool:
        """Reads some of what came before; tells whether there was any that can be read now."""
        is_read = False
        end = time.monotonic() + seconds
        while self._whole is not None and time.monotonic() < end:
            self._feed_whole(self._behind.read(until=self._reader.offset))
            if self._behind.offset >= self._reader.offset:
                self.view, self._whole = self._whole, None
            elif not self._behind.is_behind:
                return False
            is_read = True
        return is_read

    def events(self, stop: Stop) -> Iterator[Event | None]:
        """What is new until the run ends or `stop` is set. None means that there is nothing more for the moment."""
        while True:
            last = stop.is_set()  # asked before reading: what was written until then is still shown
            has_more = False
            try:
                for event in self.new():
                    yield event
                    if event["type"] == "run_ended":
                        yield None
                        return
                yield None
                has_more = self._reader.is_behind or self.catch_up()
            except OSError:
                yield None  # it can't be read now; perhaps at the next look
            if last and not has_more:
                return
            if not has_more:
                stop.wait(PAUSE)


# --- a run that is played again ---------------------------------------------------------------------


class Clock:
    """The time in a record that is played; at its end, if the run still goes on, that on the wall."""

    def __init__(self) -> None:
        self.now: float | None = None
        self.is_over = False

    def __call__(self) -> float:
        return time.time() if self.is_over or self.now is None else self.now


class Replay(Generic[Seen]):
    """A record from its beginning, `speed` times as quick as it happened; 0 is as quick as it can be read."""

    def __init__(self, path: str, make: Callable[[Clock], Seen], speed: float) -> None:
        self._reader = LineReader(path)
        self._clock = Clock()
        self._speed = speed
        self._due = self._looked = time.monotonic()
        self.view = make(self._clock)

    def events(self, stop: Stop) -> Iterator[Event | None]:
        """Every event when its time has come. None means that it is time for a picture."""
        while True:
            last = stop.is_set()
            for event in decoded(self._reader.new()):
                yield from self._time_until(event)
                self.view.feed(event)
                yield event
                if event["type"] == "run_ended":
                    last = True
                    break
            yield None
            if last:
                return
            self._clock.is_over = True
            stop.wait(PAUSE)

    def _time_until(self, event: Event) -> Iterator[None]:
        """Lets the time pass until an event. The clock goes on meanwhile, and pictures are drawn."""
        then, now = seconds(Fields(event).raw("at")), self._clock.now
        if then is not None and now is not None and then > now and self._speed and not self._clock.is_over:
            pause = min((then - now) / self._speed, _LONGEST_PAUSE)
            self._due = max(self._due, time.monotonic() - 1) + pause
            while (left := self._due - time.monotonic()) > 0.02:
                self._clock.now = then - (then - now) * min(1.0, left / pause)
                self._looked = time.monotonic()
                yield None
                time.sleep(min(PAUSE, left))
        if then is not None:
            self._clock.now = max(then, self._clock.now or then)
        if time.monotonic() - self._looked > PAUSE:
            self._looked = time.monotonic()
            yield None
