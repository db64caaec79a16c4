"""Agents that tell what they do as JSON, one object a line.

A reader names the lines that matter as types, and makes events of them in `take`. What else an agent prints, whole
lines that are no JSON, half of one at the end, or one without an end, stands in the transcript and is passed over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from msgspec import DecodeError, ValidationError

from ralphtool.agents import TRANSIENT, End, Event, failures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec.json import Decoder

__all__ = ["Lines"]

_PIECE = 1 << 20  # bytes that are looked at together
_SHORT = 2 << 10  # bytes of a line
_KEPT = 4 << 10  # bytes of the end of standard error, which says why a program did not even begin

LineT = TypeVar("LineT")


class Lines(Generic[LineT]):
    """What the readers of such agents share. `decoder` decodes the lines that matter, and refuses all others."""

    decoder: ClassVar[Decoder[object]]
    bulk: ClassVar[bytes] = b"\n"  # how lines begin of which only short ones are read; none begins like this
    longest: ClassVar[int] = 16 << 20  # bytes; nothing that we look for is longer, and a flood shall fill no memory

    def __init__(self, *, reads_all: bool = True) -> None:
        self._short = self.longest if reads_all else _SHORT
        self._begun: list[bytes] = []  # pieces of the line that has not ended yet
        self._size = 0
        self._errors = b""
        self._began = False
        self.is_over = False  # its terminal event has come

    def take(self, line: LineT) -> Iterable[Event]:
        """What one line tells."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """The terminal event is kept for `end`, and what it tells for `rest`: nothing is over before the program is."""
        events: list[Event] = []
        for start in range(0, len(chunk), _PIECE):
            events += self._read(chunk[start : start + _PIECE])
        return events

    def _read(self, piece: bytes) -> list[Event]:
        """Lines are decoded where they stand, and not copied: most of them are long, and tell what tools told."""
        end = piece.find(b"\n")
        if end < 0:
            self._keep_piece(piece)
            return []
        first = self._complete_line(piece[:end])
        events = [*self._events(first)] if first else []
        view, begin = memoryview(piece), end + 1
        while (end := piece.find(b"\n", begin)) >= 0:
            if end > begin:
                events += self._events(view[begin:end])
            begin = end + 1
        self._keep_piece(piece[begin:])
        return events

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        self._errors = (self._errors + chunk[-_KEPT:])[-_KEPT:]
        return ()

    def rest(self) -> Iterable[Event]:
        last = self._complete_line(b"")
        events = list(self._events(last)) if last else []
        if not self._began and (complaint := self._complaint()):  # all that a program said that did not even begin
            failure = failures.failure(complaint)
            events += [failure] if failure.trouble in TRANSIENT else []
        return events

    def without_an_end(self, exit_code: int) -> End:
        """There was no terminal event: whatever the exit code is, that is no success."""
        ending = f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"
        complaint = self._complaint()
        return End(False, reason=f"ended without a final event ({ending}){f': {complaint}' if complaint else ''}")

    def _complaint(self) -> str:
        lines = self._errors.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _keep_piece(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self.longest:
            self._begun.clear()
        elif piece:
            self._begun.append(piece)

    def _complete_line(self, piece: bytes) -> bytes:
        """The line that ends with a piece; an empty one if it was too long."""
        self._keep_piece(piece)
        line = b"".join(self._begun) if self._size <= self.longest else b""
        self._begun.clear()
        self._size = 0
        return line

    def _events(self, line: bytes | memoryview) -> Iterable[Event]:
        if len(line) > self._short and line[: len(self.bulk)] == self.bulk:
            return ()
        decoded = self._decoded(line)
        if decoded is None:
            return ()
        self._began = True
        return self.take(decoded)

    def _decoded(self, line: bytes | memoryview) -> LineT | None:
        try:
            return self.decoder.decode(line)  # type: ignore[return-value]
        except ValidationError:
            return None  # a line that we don't look for
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode_repaired(bytes(line))

    def _decode_repaired(self, line: bytes) -> LineT | None:
        """Programs cut characters in half: their lines are JSON, but not all of it can be decoded."""
        try:
            given = json.loads(line.decode("utf-8", "replace"))
            text = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
            return self.decoder.decode(text)  # type: ignore[return-value]
        except (ValueError, RecursionError):
            return None
