"""Agents that report what they do as JSON, one object per line.

A reader defines the lines that matter as types, and turns them into events in `take`. All other output (lines that
are not JSON, an incomplete last line, a line without an end) is in the transcript and is ignored here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from msgspec import DecodeError, ValidationError

from ralphtool.agents import TRANSIENT, End, Event, describe_exit, failures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec.json import Decoder

__all__ = ["Lines"]

_PIECE = 1 << 20  # bytes that are processed together
_SHORT = 2 << 10  # bytes of a line
_KEPT = 4 << 10  # bytes of the end of standard error, which says why a program did not start

LineT = TypeVar("LineT")


class Lines(Generic[LineT]):
    """The common part of the readers of such agents. `decoder` decodes the lines that matter, and refuses others."""

    decoder: ClassVar[Decoder[object]]
    bulk: ClassVar[bytes] = b"\n"  # lines with this prefix are read only if short; no line begins with "\n"
    longest: ClassVar[int] = 16 << 20  # bytes; nothing that we need is longer, and a flood must not fill the memory

    def __init__(self, *, reads_all: bool = True) -> None:
        self._short = self.longest if reads_all else _SHORT
        self._begun: list[bytes] = []  # pieces of the incomplete line
        self._size = 0
        self._errors = b""
        self._began = False
        self.is_over = False  # its terminal event was read

    def take(self, line: LineT) -> Iterable[Event]:
        """The events of one line."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """The terminal event is kept for `end`, and its data for `rest`: nothing is over before the program ends."""
        events: list[Event] = []
        for start in range(0, len(chunk), _PIECE):
            events += self._read(chunk[start : start + _PIECE])
        return events

    def _read(self, piece: bytes) -> list[Event]:
        """Lines are decoded in place, without a copy: most of them are long results of tools."""
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
        if not self._began and (complaint := self._complaint()):  # a program that did not start says nothing else
            failure = failures.failure(complaint)
            events += [failure] if failure.trouble in TRANSIENT else []
        return events

    def without_an_end(self, exit_code: int) -> End:
        """Without a terminal event, nothing counts as success, whatever the exit code is."""
        complaint = self._complaint()
        ending = f"({describe_exit(exit_code)}){f': {complaint}' if complaint else ''}"
        return End(False, reason=f"ended without a final event {ending}")

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
        """The line that ends with this piece; empty if it is too long."""
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
            return None  # a line that we don't need
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode_repaired(bytes(line))

    def _decode_repaired(self, line: bytes) -> LineT | None:
        """Programs cut characters in half, so that a line of JSON is not valid UTF-8."""
        try:
            given = json.loads(line.decode("utf-8", "replace"))
            text = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
            return self.decoder.decode(text)  # type: ignore[return-value]
        except (ValueError, RecursionError):
            return None
