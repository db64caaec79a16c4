"""What a run does, as it does it: one JSON object a line, in `.ralph/runs/<run>/events.jsonl`.

The loop writes it; whoever wants to watch a run reads it, from any process, at any time. There are no callbacks.
Every event has `at` (when) and `type`; record/events.py has the types and their fields.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ralphtool.core import files, secrets, session
from ralphtool.errors import UnsafePath
from ralphtool.record import events, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphtool.record.events import Event

__all__ = ["Reader"]

NAME = runs.NAME
_DECODER = msgspec.json.Decoder(dict[str, Any])
_BLOCK = 1 << 20
_REMEMBERED = 256  # bytes by which a copy of a record is recognised


class Log:
    """The events of one run, open for writing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._secrets = secrets.values()
        self._fd = self._open()
        files.sync_folder(path)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self._fd)

    def mend(self) -> bool:
        """Puts the file back if somebody took it away; tells whether that was so. What we hold open is still whole."""
        try:
            if os.path.samestat(os.stat(self.path), os.fstat(self._fd)):
                return False
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        lost, self._fd = self._fd, self._open()
        os.lseek(lost, 0, os.SEEK_SET)
        while block := os.read(lost, _BLOCK):
            files.write_fd(self._fd, block)
        os.close(lost)
        return True

    def add(self, event: Event) -> None:
        """Adds an event that somebody may build on: it is on the disk when this returns."""
        self.note(event)
        os.fdatasync(self._fd) if hasattr(os, "fdatasync") else os.fsync(self._fd)

    def note(self, event: Event) -> None:
        """Adds an event that is only to be looked at: the next one that matters takes it to the disk."""
        fields = events.as_dict(event, session.now())
        if self._secrets:
            fields = secrets.masked(msgspec.to_builtins(fields), self._secrets)
        files.write_fd(self._fd, msgspec.json.encode(fields) + b"\n")


class Reader:
    """Reads a run's events as they come, from the first to the last that is whole.

    The record may be cut, grow, be replaced or taken away meanwhile, and its lines may be anybody's: what is no event
    is passed over. Never more than a block of it, and one line, is in memory.
    """

    def __init__(self, path: str, start: int = 0) -> None:
        self.path = path
        self.offset = start  # all that stands before it has been read
        self.is_behind = False  # there was more to be read at the last look
        self.restarts = 0  # how often the record turned out to be another, and was begun anew
        self._rest = b""  # the beginning of a line
        self._skips = start > 0  # what comes is in the middle of a line, which is not wanted
        self._before = b""  # the last bytes that were read: if they are others now, so is the record
        self._shrunk = -1  # its size, when it was shorter than what had been read

    def new(self) -> Iterator[dict[str, Any]]:
        """The events that were added since the last call."""
        while True:
            yield from decoded(self.lines())
            if not self.is_behind:
                return

    def lines(self, most: int = _BLOCK, until: int | None = None) -> list[bytes]:
        """The lines that are whole in the next bytes, at `most` so many, and not beyond `until`."""
        self.is_behind = False
        try:
            fd = files.open_here(self.path)
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            return []
        try:
            return self._read(fd, most, until)
        finally:
            os.close(fd)

    def _read(self, fd: int, most: int, until: int | None) -> list[bytes]:
        size = os.fstat(fd).st_size
        if not self._goes_on(fd, size):
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
        *lines, rest = (self._rest + block).split(b"\n") if self._rest else block.split(b"\n")
        self.offset += sum(map(len, lines)) + len(lines)
        self._rest = rest
        if len(rest) > runs.LONGEST:
            self.offset += len(rest)
            self._rest, self._skips = b"", True
        return lines

    def _goes_on(self, fd: int, size: int) -> bool:
        """Whether what was read is still the beginning of what is there; if not, it is read from its beginning.

        A record that somebody took away is written anew by its run, and is shorter for a moment.
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


def decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if event := _event(line):
            yield event


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = _DECODER.decode(line)
    except (ValueError, RecursionError):  # also of msgspec, and of what is not UTF-8
        return None
    return event if isinstance(event.get("type"), str) else None
