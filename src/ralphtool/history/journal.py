"""The journal: records that are newer than progress.json, one checked line for each that was written.

    ralphtool-journal 1 <a random number>
    <checksum> {"entries":[…],"learnings":[…]}

The first line tells one journal from the next one in the same file. Behind the last line there may be zeros: room for
further ones. A line without its end is a torn tail: whoever wrote it was never told that it had been written. Any
other line that does not fit its checksum is damage.
"""

from __future__ import annotations

import os
import zlib
from typing import NamedTuple

import msgspec

from ralphtool.history import records
from ralphtool.history.records import Entry, HistoryRecord, Learning, Pattern

_HEAD = b"ralphtool-journal 1 "
_HEAD_LENGTH = len(_HEAD) + 16 + 1


class LearningRef(HistoryRecord, frozen=True):
    """Which learning is meant: its number here, and what tells it from one that has that number elsewhere."""

    id: str
    created_at: str
    words: str  # a digest of its content, in hexadecimal digits


class Invalidation(HistoryRecord, frozen=True):
    """A learning that holds no longer."""

    about: LearningRef
    why: str


class ReferenceCount(HistoryRecord, frozen=True):
    """How often a learning has been put into a prompt, in all."""

    about: LearningRef
    times: int


class Batch(HistoryRecord, frozen=True, kw_only=True, omit_defaults=True):
    """What is written at once: all of it is there, or nothing. Applied twice, it changes nothing the second time."""

    entries: tuple[Entry, ...] = ()
    learnings: tuple[Learning, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    invalidated: tuple[Invalidation, ...] = ()
    referenced: tuple[ReferenceCount, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries) or self.is_more_than_entries

    @property
    def is_more_than_entries(self) -> bool:
        return bool(self.learnings or self.patterns or self.invalidated or self.referenced)


_encode = msgspec.json.Encoder().encode


class JournalLine(NamedTuple):
    """One line of the journal: where it stands, and what it says or what is wrong with it."""

    start: int
    text: bytes
    batch: Batch | None
    problem: str | None
    is_whole: bool = True
    room: int = 0  # how many zeros stand before it


def build_head() -> bytes:
    return _HEAD + os.urandom(8).hex().encode() + b"\n"


def read_head(fd: int) -> str:
    """What tells this journal from others; empty if there is none yet."""
    return os.pread(fd, _HEAD_LENGTH, 0).decode("latin-1")


def encode(batch: Batch) -> bytes:
    return _encode(batch)


def encode_line(data: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(data), data)


def decode(data: bytes) -> Batch:
    """Raises msgspec.ValidationError."""
    return records.decode(data, Batch)


class JournalChunk(NamedTuple):
    """What stands in a piece of the journal."""

    lines: list[JournalLine]
    length: int  # of these lines
    doubtful: list[JournalLine]  # what stands behind room that was never used: maybe nobody was ever told of it
    is_torn: bool  # whether anything stands behind the lines


def read_lines(data: bytes, offset: int) -> JournalChunk:
    """The lines from `offset` on."""
    data = data.rstrip(b"\0")
    *whole, tail = data.split(b"\n")
    lines: list[JournalLine] = []
    position = offset
    for text in whole:
        if position or len(text) + 1 != _HEAD_LENGTH or not text.startswith(_HEAD):
            lines.append(check_line(position, text))
        position += len(text) + 1
    for end in (tail, tail[:-1]):
        line = check_line(position, end)
        if line.batch:  # nothing but the end of its line is wrong: somebody may have been told that it was written
            return JournalChunk([*lines, line._replace(is_whole=False)], len(data), [], False)
    doubtful: list[JournalLine] = []
    while lines and lines[-1].batch is None and lines[-1].room:
        doubtful.insert(0, lines.pop())
        position = doubtful[0].start - doubtful[0].room
    return JournalChunk(lines, position - offset, doubtful, position - offset < len(data))


def check_line(start: int, text: bytes) -> JournalLine:
    """A line, if its checksum fits. Zeros before it are room that was never used."""
    room = len(text) - len(text := text.lstrip(b"\0"))
    line = JournalLine(start + room, text, None, "its checksum does not match", room=room)
    checksum, _, data = text.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(data):
        return line
    try:
        return line._replace(batch=records.decode(data, Batch), problem=None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return line._replace(problem=f"this version can't read it ({error})")
