"""The journal: records that are newer than progress.json, one checksummed line for each batch.

    ralphtool-journal 1 <a random number>
    <checksum> {"entries":[…],"learnings":[…]}

The first line identifies the journal, since the same file later contains another one. After the last line there may be
zeros: spare room for further lines. A line without its end is a torn tail: its write was never confirmed. Any other
line that does not match its checksum is damaged.
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
    """Identifies a learning: its number, and values that distinguish it from one with that number elsewhere."""

    id: str
    created_at: str
    words: str  # a digest of its content, in hexadecimal digits


class Invalidation(HistoryRecord, frozen=True):
    """A learning that is no longer valid."""

    about: LearningRef
    why: str


class ReferenceCount(HistoryRecord, frozen=True):
    """How often a learning was in a prompt, in total."""

    about: LearningRef
    times: int


class Batch(HistoryRecord, frozen=True, kw_only=True, omit_defaults=True):
    """Records that are written atomically: all or nothing. Applying a batch twice has no further effect."""

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
    """One line of the journal: its position, and its batch or its problem."""

    start: int
    text: bytes
    batch: Batch | None
    problem: str | None
    is_whole: bool = True
    room: int = 0  # the number of zeros before it


def build_head() -> bytes:
    return _HEAD + os.urandom(8).hex().encode() + b"\n"


def read_head(fd: int) -> str:
    """The line that identifies this journal; empty if there is none yet."""
    return os.pread(fd, _HEAD_LENGTH, 0).decode("latin-1")


def encode(batch: Batch) -> bytes:
    return _encode(batch)


def encode_line(data: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(data), data)


def decode(data: bytes) -> Batch:
    """Raises msgspec.ValidationError."""
    return records.decode(data, Batch)


class JournalChunk(NamedTuple):
    """The contents of a piece of the journal."""

    lines: list[JournalLine]
    length: int  # of these lines
    doubtful: list[JournalLine]  # lines after unused room: their writes may never have been confirmed
    is_torn: bool  # whether there is anything after the lines


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
        if line.batch:  # only the line end is wrong: its write may have been confirmed
            return JournalChunk([*lines, line._replace(is_whole=False)], len(data), [], False)
    doubtful: list[JournalLine] = []
    while lines and lines[-1].batch is None and lines[-1].room:
        doubtful.insert(0, lines.pop())
        position = doubtful[0].start - doubtful[0].room
    return JournalChunk(lines, position - offset, doubtful, position - offset < len(data))


def check_line(start: int, text: bytes) -> JournalLine:
    """Checks a line against its checksum. Zeros before it are unused room."""
    room = len(text) - len(text := text.lstrip(b"\0"))
    line = JournalLine(start + room, text, None, "its checksum does not match", room=room)
    checksum, _, data = text.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(data):
        return line
    try:
        return line._replace(batch=records.decode(data, Batch), problem=None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return line._replace(problem=f"this version can't read it ({error})")
