"""The history's journal: acknowledged records survive damage to any bit of it."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from history.store.journals import Journaled, damaged, goes_on
from history.store.plain import Content, answers, content, journal_lines
from history.store.samples import entry, ids
from properties import sample

from ralphtool.history import History, document
from ralphtool.history.journal import Batch


def test_a_journal_is_read_as_it_was_written(tmp_path: Path, kept: Journaled) -> None:
    history = kept.make(tmp_path)
    assert len(journal_lines(kept.journal)) == 6
    assert goes_on(history) == kept.expected
    assert (history.notices, damaged(history)) == ([], b"")


def test_a_torn_last_line_was_never_acknowledged(tmp_path: Path, kept: Journaled) -> None:
    """Wherever it is torn, with or without spare room after it: it counts as not written."""
    last = kept.text.rindex(b"\n", 0, -1) + 1
    without = kept.expected._replace(entries=kept.expected.entries[:-1])
    whole = kept.make(tmp_path, kept.text[:-1])
    assert content(whole.load()) == kept.expected, "but for its end it is there: the damage may have come later"
    for end in sample(range(last, len(kept.text) - 1), 7):
        history = kept.make(tmp_path, kept.text[:end] + b"\0" * (end % 3))
        assert content(history.load()) == without
        assert history.append(kept.expected.entries[-1]).entries == kept.expected.entries[-1:]
        assert content(History(history.root).load()) == kept.expected
        assert (history.notices, history.problems(), damaged(history)) == ([], [], b"")


def test_a_torn_first_line_is_written_anew(tmp_path: Path, kept: Journaled) -> None:
    before = content(document.parse(kept.document))
    for end in range(kept.text.index(b"\n") + 1):
        assert goes_on(kept.make(tmp_path, kept.text[:end])) == before


TAILS = {
    "zeros": b"\0" * 5000,
    "torn": b"torn\0\0",
    "torn, without room": b"0000",
    "damaged": b"damaged\n\0",
    "damaged, then torn": b"damaged\ntorn\0",
    "damaged, then a line that is there already, then torn": b"damaged\n%s\ntorn",
    "behind zeros": b"\0\0garbage",
    "a line behind zeros": b"\0garbage\n\0",
    "far behind zeros": b"\0" * 600 + b"\xff\x00long garbage\n",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
@pytest.mark.parametrize("is_open", [False, True], ids=["new", "open"])
def test_what_stands_behind_the_last_line_stops_nothing(
    tmp_path: Path, kept: Journaled, tail: bytes, is_open: bool
) -> None:
    history = kept.make(tmp_path)
    shutil.rmtree(Path(history.folder, "progress.index.aside"))  # histories opened later can build an index
    if is_open:
        assert answers(history) == kept.expected
    Path(history.journal_path).write_bytes(kept.text + tail.replace(b"%s", journal_lines(kept.text)[0]))
    for number in range(1, 9):  # overwrites the tail, and more
        history.append(entry(number, "more"))
        assert ids(history.entries(prd_id="more")) == [f"more-{one}" for one in range(1, number + 1)]
        assert ids(History(history.root).entries(last=number)) == ids(history.entries(last=number))
    assert goes_on(history).entries[: len(kept.expected.entries)] == kept.expected.entries


def flips(text: bytes) -> Iterator[tuple[int, bytes]]:
    """One flipped bit in every byte, and every flip that creates a zero or a newline."""
    for position, byte in enumerate(text):
        for bit in range(8):
            flipped = byte ^ 1 << bit
            if bit == position % 8 or flipped in b"\0\n":
                yield position, text[:position] + bytes([flipped]) + text[position + 1 :]


def survivors(flipped: bytes, kept: Journaled, position: int, seen: Content, aside: bytes) -> None:
    """Every record is read as it was written, or was set aside."""
    for known in (*seen.entries, *seen.patterns):
        assert known in (*kept.expected.entries, *kept.expected.patterns)
    start = 0
    for line in kept.text.split(b"\n")[:-1]:
        end = start + len(line) + 1
        if start and not is_read(line, seen):
            pieces = re.split(rb"[\n\0]", flipped[start : end - 1])
            assert all(piece in aside for piece in pieces) or entry_of(line) in aside, (position, line)
        start = end


def entry_of(line: bytes) -> bytes:
    batch = msgspec.json.decode(line.partition(b" ")[2], type=Batch)
    return msgspec.json.encode(batch.entries[0] if batch.entries else batch)


def is_read(line: bytes, seen: Content) -> bool:
    batch = msgspec.json.decode(line.partition(b" ")[2], type=Batch)
    old = seen.learnings[0]
    return (
        {*batch.entries, *batch.patterns} <= {*seen.entries, *seen.patterns}
        and {one.content for one in batch.learnings} <= {one.content for one in seen.learnings}
        and (old.times_referenced == 1 or not batch.referenced)
        and (not old.still_valid or not batch.invalidated)
    )


@pytest.mark.parametrize("known", ["unknown", "in the index", "open"])
def test_a_flipped_bit_loses_nothing_silently(tmp_path: Path, kept: Journaled, known: str) -> None:
    """Also if it flips after the line was read."""
    lost = []
    for position, flipped in sample(flips(kept.text), 10):
        if known != "unknown" and position % 19:
            continue
        history = kept.make(tmp_path, kept.journal, index=known == "in the index")
        if known != "unknown":
            assert len(history.entries()) == 4
        Path(history.journal_path).write_bytes(flipped + b"\0" * 64)
        history = history if known == "open" else History(history.root)
        try:
            seen = content(history.load())
            told = history.problems()
            history.append_next("next", lambda iteration: entry(iteration, "next"))
            assert content(history.load()) == seen._replace(entries=(*seen.entries, entry(1, "next")))
            survivors(flipped, kept, position, seen, damaged(history))
            assert seen == kept.expected or (told and history.notices and damaged(history))
        except (AssertionError, ValueError) as error:
            lost.append(f"byte {position}, {flipped[position - 5 : position + 5]!r}: {type(error).__name__}")
    assert not lost, "\n".join([f"{len(lost)} flips:", *lost])


HEADS = {
    "a flipped bit": lambda head: b"R" + head[1:],
    "a flipped bit in its number": lambda head: head[:-2] + b"z\n",
    "a newer version": lambda head: head.replace(b" 1 ", b" 2 "),
    "a much newer version": lambda head: head.replace(b" 1 ", b" 10 "),
    "cut": lambda head: head[:12] + b"\n",
    "gone": lambda head: b"",
    "an empty line": lambda head: b"\n",
    "there twice": lambda head: head + head,
}


@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("is_open", [False, True], ids=["new", "open"])
def test_a_journal_with_another_first_line_keeps_its_records(
    tmp_path: Path, kept: Journaled, damage: Callable[[bytes], bytes], is_open: bool
) -> None:
    history = kept.make(tmp_path)
    if is_open:
        assert len(history.entries()) == 4
    head, lines = kept.text[: kept.text.index(b"\n") + 1], kept.text[kept.text.index(b"\n") + 1 :]
    Path(history.journal_path).write_bytes(damage(head) + lines)
    assert goes_on(history) == kept.expected


def checked_line(data: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(data), data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"observations":[]}',
        b'{"entries":[{"id":"a-1"}]}',
        b"[]",
        b"",
        b"\xff",
        b"[" * 5000,
        b'{"entries":[],"new":1}',
    ],
    ids=["unknown field", "no entry", "a list", "nothing", "not UTF-8", "deep", "a later version's"],
)
def test_a_line_that_this_version_cannot_read_is_set_aside_and_said(
    tmp_path: Path, kept: Journaled, data: bytes
) -> None:
    line = checked_line(data)
    history = kept.make(tmp_path, kept.text + line + checked_line(msgspec.json.encode(Batch(entries=(entry(4),)))))
    (problem,) = history.problems()
    assert "can't read it" in problem
    expected = kept.expected._replace(entries=(*kept.expected.entries, entry(4)))
    assert goes_on(history) == expected
    assert line in damaged(history)
    (notice,) = history.notices
    assert history.damaged_path in notice
    assert "can't read it" in notice


def test_what_is_set_aside_is_set_aside_once_and_later_damage_joins_it(tmp_path: Path, kept: Journaled) -> None:
    history = kept.make(tmp_path, kept.text + b"first damage\n")
    history.append_next("next", lambda iteration: entry(iteration, "next"))
    aside = damaged(history)
    # A fold that was killed after it saved the record, before it emptied the journal.
    Path(history.path).write_bytes(kept.document)
    Path(history.journal_path).write_bytes(kept.text + b"first damage\nsecond damage\n")
    again = History(history.root)
    again.append_next("next", lambda iteration: entry(iteration, "next"))
    assert damaged(again).startswith(aside)
    assert damaged(again).count(b"first damage") == damaged(again).count(b"second damage") == 1
