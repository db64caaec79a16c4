"""The lines of a run's record: the one reader of `events.jsonl`, which may grow, be truncated, replaced or removed.

A record may be as long as 2 GB, and most of its lines are agent output: at most one block and one line of it are in
memory, and the type of a line is found without decoding it. Standard library only, because `ralphtool runs` must start
quickly.
"""

from __future__ import annotations

import os

from ralphtool.core import files, quickjson
from ralphtool.errors import UnsafePath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["LineReader"]

LONGEST = 8 << 20  # bytes of a line; ralphtool writes no longer ones
_BLOCK = 1 << 20
_HEAD = 16 << 10
_TAIL = 64 << 10
_REMEMBERED = 256  # bytes by which a copy of a record is recognised
_AT = slice(len('{"at":"'), len('{"at":"2026-03-01T22:00:00.000000Z'))
_TYPE = slice(_AT.stop, _AT.stop + len('","type":"'))
_USAGE, _BEGINNING = b'"kind":"usage"', 120  # a usage event has this text within the first bytes
_EMITTED = '","type":"agent","event":{"kind":"'
_KIND = slice(_AT.stop, _AT.stop + len(_EMITTED) + 2)  # the first letters of a kind identify it
_PROSE = frozenset(f"{_EMITTED}{kind[:2]}".encode() for kind in ("output", "message", "tool", "result", "quota"))


class LineReader:
    """Reads the complete lines of a record as they are written, from the beginning or from an offset.

    Meanwhile the record may grow, be truncated, replaced or removed. A line that is too long is left out.
    """

    def __init__(self, path: str, start: int = 0) -> None:
        self.path = path
        self.offset = start  # the start of the first line that was not returned yet
        self.is_behind = False  # there was more to read the last time
        self.restarts = 0  # how often the record was replaced, and reading restarted
        self._rest = b""  # an incomplete line
        self._skips = start > 0  # reading is in the middle of a line, which is left out
        self._before = b""  # the last bytes read: if they differ now, the record was replaced
        self._shrunk = -1  # its size, if it was shorter than the part already read

    def new(self) -> Iterator[bytes]:
        """All lines that were added since the last call."""
        while True:
            yield from self.read()
            if not self.is_behind:
                return

    def new_without_prose(self) -> Iterator[bytes]:
        """The same, without what agents said and did: that is most of a record, and only live views show it."""
        while True:
            yield from [line for line in self.read() if line[_KIND] not in _PROSE]
            if not self.is_behind:
                return

    def read(self, most: int = _BLOCK, until: int | None = None) -> list[bytes]:
        """The complete lines in the next bytes, of which at most `most` are read, and none beyond `until`."""
        self.is_behind = False
        try:
            fd = files.open_in_project(self.path)
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            return []
        try:
            return self._read(fd, most, until)
        finally:
            os.close(fd)

    def _read(self, fd: int, most: int, until: int | None) -> list[bytes]:
        size = os.fstat(fd).st_size
        if not self._is_same(fd, size):
            return []
        position = self.offset + len(self._rest)
        end = size if until is None else min(until, size)
        block = files.read_at(fd, position, max(position, min(end, position + most)))
        self.is_behind = position + len(block) < end and bool(block)
        self._before = (self._before + block[-_REMEMBERED:])[-_REMEMBERED:]
        return self._split(block)

    def _split(self, block: bytes) -> list[bytes]:
        if self._skips:
            skipped = block.find(b"\n") + 1 or len(block)
            self.offset += skipped
            self._skips = block[skipped - 1 : skipped] != b"\n"
            block = block[skipped:]
        data = self._rest + block
        *lines, rest = data.split(b"\n")
        self.offset += len(data) - len(rest)
        self._rest = rest
        if len(rest) > LONGEST:
            self.offset += len(rest)
            self._rest, self._skips = b"", True
        return lines[1:] if lines and len(lines[0]) > LONGEST else lines

    def _is_same(self, fd: int, size: int) -> bool:
        """Whether the part already read is still the beginning of the record; if not, reading restarts.

        A run rewrites its record if it was removed, so for a moment it is shorter.
        """
        position = self.offset + len(self._rest)
        if size < position:
            if self._shrunk == size:
                self._restart()
            self._shrunk = size
            return self.offset == 0 and not self._rest
        self._shrunk = -1
        if files.read_at(fd, position - len(self._before), position) != self._before:
            self._restart()
        return True

    def _restart(self) -> None:
        self.offset, self._rest, self._skips, self._before = 0, b"", False, b""
        self.restarts += 1


# --- the ends of a record ---------------------------------------------------------------------------


def read_first_line(fd: int, size: int) -> bytes:
    """The first line, if it is complete."""
    length = _HEAD
    head = files.read_at(fd, 0, length)
    while b"\n" not in head and length < min(size, LONGEST):
        length *= 8
        head = files.read_at(fd, 0, length)
    line, end, _ = head.partition(b"\n")
    return line if end else b""


def read_last_lines(fd: int, size: int, length: int = _TAIL) -> tuple[list[bytes], bool]:
    """The last complete lines, at least one if there is one, and whether these are all lines.

    `length` is the number of bytes to look at, if that is enough for one line.
    """
    while True:
        start = max(0, size - length)
        lines = files.read_at(fd, start, size).split(b"\n")[:-1]
        if start == 0 or len(lines) > 1 or length >= LONGEST:
            return (lines if start == 0 else lines[1:]), start == 0
        length *= 8


# --- one line ---------------------------------------------------------------------------------------


def read_type(line: bytes) -> bytes | None:
    """The type of an event that ralphtool wrote, without decoding the rest; None for a line in another format."""
    if line[_TYPE] != b'","type":"':
        return None
    return line[_TYPE.stop : line.find(b'"', _TYPE.stop)]


def is_prose(line: bytes) -> bool:
    """Whether a line is something that an agent said or did, rather than its usage, failure or end."""
    return line[_KIND] in _PROSE


def is_usage(line: bytes) -> bool:
    """Whether a line is an agent's report of its usage, without decoding it."""
    return _USAGE in line[:_BEGINNING]


def parse_fields(line: bytes) -> dict[str, Any] | None:
    """All fields of an event, including those that this version does not know; None if the line is not an event."""
    try:
        event = quickjson.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("type"), str) else None
