"""Follows a record: that of a run under way, from any process, or a replay of one that has ended.

A record may have a million events before it is opened. So the first view is built from its head and its tail, and the
middle is read afterwards, a slice at a time: in the end the view is the same as if every event had been fed to it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ralphtool.record import events
from ralphtool.record.events import Agent, RunEnded, is_activity
from ralphtool.record.lines import LONGEST, LineReader, is_prose, parse_fields
from ralphtool.record.view_parts import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ralphtool.record.events import Event

POLL_SECONDS = 0.25  # between two reads of the record, and between two redraws
_TAIL = 256 << 10
_MAX_READ = 4 << 20  # bytes of one read
_SLICE = 0.2  # seconds of catching up between two redraws
_LONGEST_PAUSE = 2.0  # seconds without an event in a replay: the real pause may be a whole night


class StopSignal(Protocol):
    """Says when to stop following: for example a `threading.Event`."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> object: ...


class Projection(Protocol):
    """Something that events are fed to: a `RunView`, or a wrapper of one."""

    def feed(self, event: Event) -> None: ...


ViewT = TypeVar("ViewT", bound=Projection)


# --- selecting events -------------------------------------------------------------------------------


def decode_all(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        if event := events.decode(line):
            yield event


def skim(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events that matter: of consecutive agent events only the last activity, the end, failures and usage.

    Agents may print thousands of lines a second, and most of them are never decoded.
    """
    words: list[bytes] = []
    for line in lines:
        if is_prose(line):
            words.append(line)
        else:
            yield from _find_last_words(words)
            words = []
            yield from decode_all([line])
    yield from _find_last_words(words)


def _find_last_words(lines: list[bytes]) -> Iterator[Event]:
    """The last activity of each iteration in these lines. The iteration is at the end of a line."""
    last: dict[bytes, Event] = {}
    for line in reversed(lines):
        iteration = line[line.rfind(b'"iteration":') :]
        if iteration not in last:
            event = events.decode(line)
            if isinstance(event, Agent) and is_activity(event.event):
                last[iteration] = event
    yield from reversed(last.values())  # in the order in which they were written


# --- a run under way --------------------------------------------------------------------------------


class Follower(Generic[ViewT]):
    """Keeps a view up to date with a record of any length.

    With `joins`, it shows the current state quickly, and does not return all earlier events. With `detail`, agent
    events are fed in full for the last `detail` bytes; otherwise they are skimmed.
    """

    def __init__(self, path: str, make: Callable[[], ViewT], *, joins: bool, detail: int = 0) -> None:
        self._path = path
        self._make = make
        self._joins = joins
        self._tail = detail or _TAIL
        self._most = detail or _MAX_READ
        self._pick = decode_all if detail else skim
        self._restart()

    def _restart(self) -> None:
        size = os.path.getsize(self._path) if self._joins and os.path.exists(self._path) else 0
        self._start = size - self._tail if size > 2 * self._tail else 0
        self._is_far = True  # catching up has not yet reached the part that the view began with
        self.view = self._make()
        self._first: list[Event] = []
        self._reader = LineReader(self._path, self._start)
        self._whole: ViewT | None = None  # is fed from the beginning, and replaces `view` when it has caught up
        self._behind = LineReader(self._path)
        if self._start:
            self._whole = self._make()
            self._read_head()

    def _read_head(self) -> None:
        """Reads the first event, without which the others can't be interpreted."""
        lines: list[bytes] = []
        while not lines and self._behind.offset == 0:
            lines = self._behind.read(_TAIL, LONGEST)
            if not self._behind.is_behind:
                break
        self._first = list(decode_all(lines[:1]))
        self._feed_whole(lines)

    def _feed_whole(self, lines: list[bytes]) -> None:
        for event in skim(lines) if self._is_far else self._pick(lines):
            if self._whole is not None:
                self._whole.feed(event)

    @property
    def is_behind(self) -> bool:
        """Whether some of the record has not been read into the view yet."""
        return self._whole is not None or self._reader.is_behind

    def read_new(self) -> Iterator[Event]:
        """The new events that matter; each has been fed to the view."""
        lines = self._reader.read(self._most)
        if self._reader.restarts:
            self._restart()
            return
        first, self._first = self._first, []
        for event in (*first, *self._pick(lines)):
            self.view.feed(event)
            yield event

    def catch_up(self, seconds: float = _SLICE) -> bool:
        """Reads some of the earlier events; returns whether any could be read now."""
        is_read = False
        end = time.monotonic() + seconds
        while self._whole is not None and time.monotonic() < end:
            self._feed_whole(self._behind.read(until=self._start if self._is_far else self._reader.offset))
            if self._is_far:
                self._is_far = self._behind.is_behind
            elif self._behind.offset >= self._reader.offset:
                self.view, self._whole = self._whole, None
            elif not self._behind.is_behind:
                return False
            is_read = True
        return is_read

    def read(self, seconds: float) -> None:
        """Feeds new events to the view, and spends the given seconds on earlier ones."""
        end = time.monotonic() + seconds
        while True:
            for _ in self.read_new():
                pass
            left = end - time.monotonic()
            if left <= 0 or not (self._reader.is_behind or self.catch_up(left)):
                return

    def follow_events(self, stop: StopSignal) -> Iterator[Event | None]:
        """New events until the run ends or `stop` is set. None means that there is nothing more at the moment."""
        while True:
            last = stop.is_set()  # checked before reading, so that everything written until then is still shown
            has_more = False
            try:
                for event in self.read_new():
                    yield event
                    if isinstance(event, RunEnded):
                        yield None
                        return
                yield None
                has_more = self._reader.is_behind or self.catch_up()
            except OSError:
                yield None  # it can't be read now; perhaps next time
            if last and not has_more:
                return
            if not has_more:
                stop.wait(POLL_SECONDS)


# --- a replay ---------------------------------------------------------------------------------------


class ReplayClock:
    """The time in a replayed record; at its end, if the run is still under way, the real time."""

    def __init__(self) -> None:
        self.now: float | None = None
        self.is_over = False

    def __call__(self) -> float:
        return time.time() if self.is_over or self.now is None else self.now


class Replay(Generic[ViewT]):
    """A record from its beginning, at `speed` times the real speed; 0 means as fast as it can be read."""

    def __init__(self, path: str, make: Callable[[ReplayClock], ViewT], speed: float) -> None:
        self._reader = LineReader(path)
        self._clock = ReplayClock()
        self._speed = speed
        self._due = self._looked = time.monotonic()
        self.view = make(self._clock)

    def follow_events(self, stop: StopSignal) -> Iterator[Event | None]:
        """Every event of a known type, at its time. None means that it is time to redraw."""
        for line in self.play_lines(stop):
            if line is None:
                yield None
            elif event := events.decode(line):
                self.view.feed(event)
                yield event

    def play_lines(self, stop: StopSignal) -> Iterator[bytes | None]:
        """The same for the lines of events."""
        while True:
            last = stop.is_set()
            for line in self._reader.new():
                fields = parse_fields(line)
                if fields is None:
                    continue
                yield from self._wait_until(str(fields.get("at")))
                yield line
                if fields["type"] == "run_ended":
                    last = True
                    break
            yield None
            if last:
                return
            self._clock.is_over = True
            stop.wait(POLL_SECONDS)

    def _wait_until(self, at: str) -> Iterator[None]:
        """Waits until a moment. Meanwhile the clock advances, and None is yielded for redraws."""
        then, now = parse_time(at), self._clock.now
        if then is not None and now is not None and then > now and self._speed and not self._clock.is_over:
            pause = min((then - now) / self._speed, _LONGEST_PAUSE)
            self._due = max(self._due, time.monotonic() - 1) + pause
            while (left := self._due - time.monotonic()) > 0.02:
                self._clock.now = then - (then - now) * min(1.0, left / pause)
                self._looked = time.monotonic()
                yield None
                time.sleep(min(POLL_SECONDS, left))
        if then is not None:
            self._clock.now = max(then, self._clock.now or then)
        if time.monotonic() - self._looked > POLL_SECONDS:
            self._looked = time.monotonic()
            yield None
