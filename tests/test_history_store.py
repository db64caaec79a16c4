"""The history's store: what was added is there, once, whatever happens to document, journal and index in between.

Every answer is compared with a plain one, made from the whole history; the journal is read here by a reader of our
own, and applied to the document by the rules of the specification, written down plainly a second time.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET, structs

from ralphtool.errors import CorruptState, InvalidValue, UnsafePath
from ralphtool.history import History, Tally, document, state, store
from ralphtool.history.journal import About, Batch
from ralphtool.history.records import Category, Entry, Learning, Observation, Pattern, Progress, Status

PRD = "add-login-1"
MOMENT = "2026-01-31T09:30:00Z"
Value = TypeVar("Value")
STATUSES: tuple[Status, ...] = ("completed", "failed", "blocked", "partial")


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here takes the power away, so nothing has to be on the disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def set_sizes(patch: pytest.MonkeyPatch, *, small: int, share: int, room: int = 64, unsettled: int = 1 << 20) -> None:
    """Lets little documents have a journal and an index too. A share of 0: the journal is never folded by itself."""
    for name, value in {"SMALL": small, "_SHARE": share, "_ROOM": room, "_UNSETTLED": unsettled}.items():
        patch.setattr(state if hasattr(state, name) else store, name, value)


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append but the first goes to the journal, and stays there until somebody folds."""
    set_sizes(monkeypatch, small=300, share=0)


@pytest.fixture(params=["folded at once", "in the journal", "in the journal, and in the index"])
def history(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A new history, in each of the ways in which it is kept."""
    if request.param != "folded at once":
        set_sizes(monkeypatch, small=300, share=0, unsettled=1 << 20 if request.param == "in the journal" else 1)
    return History(str(tmp_path))


# --- records ----------------------------------------------------------------------------------------


def observation(title: str, kind: Any = "finding", category: Category | None = None, link: str = "") -> Observation:
    return Observation(type=kind, title=title, category=category or UNSET, related_learning_id=link or UNSET)


def entry(iteration: int, prd: str = PRD, status: Status = "completed", *seen: Observation, at: str = MOMENT) -> Entry:
    return Entry(
        id=f"{prd}-{iteration}",
        timestamp=at,
        prd_id=prd,
        iteration=iteration,
        status=status,
        summary=f"{iteration} of {prd} “é\u2028”",
        observations=seen,
    )


def learning(content: str, number: int = 1, kind: Any = "tool-usage", prd: str = PRD, at: str = MOMENT) -> Learning:
    return Learning(id=f"learning-{number:04}", type=kind, content=content, source_prd_id=prd, created_at=at)


def pattern(name: str, number: int = 1, kind: Any = "api-pattern", description: str = "so") -> Pattern:
    return Pattern(
        id=f"pattern-{number:04}",
        name=name,
        type=kind,
        description=description,
        discovered_at=MOMENT,
        source_prd_id=PRD,
        confidence="medium",
    )


def written(progress: Progress) -> bytes:
    """A document as it has to look."""
    return msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n"


def ids(records: Iterable[Entry | Learning | Pattern]) -> list[str]:
    return [record.id for record in records]


# --- plain answers ----------------------------------------------------------------------------------


class Content(NamedTuple):
    """All records that there are."""

    entries: tuple[Entry, ...] = ()
    learnings: tuple[Learning, ...] = ()
    patterns: tuple[Pattern, ...] = ()


def content(progress: Progress) -> Content:
    return Content(progress.entries, progress.learnings, progress.patterns)


def on_disk(history: History) -> Content:
    """What stands in progress.json, which is valid, and laid out as it should be, at every moment."""
    if not os.path.exists(history.path):
        return Content()
    data = Path(history.path).read_bytes()
    progress = document.parse(data)
    assert data == msgspec.json.format(data, indent=2) + b"\n"
    return content(progress)


def answers(history: History) -> Content:
    """Everything, after every question has been answered as it should be."""
    whole = history.load()
    everything = content(whole)
    exported = document.parse(history.export())
    assert content(exported) == everything
    assert (exported.version, exported.project_name) == (whole.version, whole.project_name)
    on_disk(history)
    check_entries(history, everything.entries)
    check_learnings(history, everything.learnings)
    check_patterns(history, everything.patterns)
    assert history.counts() == {
        "entries": len(everything.entries),
        "learnings": len(everything.learnings),
        "patterns": len(everything.patterns),
        "valid_learnings": sum(one.still_valid for one in everything.learnings),
    }
    return everything


def last_of(found: Sequence[Entry], last: int | None) -> list[Entry]:
    return list(found if last is None else found[max(len(found) - last, 0) :])


def check_entries(history: History, entries: Sequence[Entry]) -> None:
    for prd in (None, "never-tried", *{one.prd_id: 0 for one in entries}):
        of_prd = [one for one in entries if prd in (None, one.prd_id)]
        for last in (None, 1, 3, 1000):
            chosen = last_of(of_prd, last)
            assert history.entries(last=last, prd_id=prd) == chosen
            found = history.observations(last=last, prd_id=prd)
            assert [(one.entry, one.observation) for one in found] == [(e, o) for e in chosen for o in e.observations]
            assert history.blockers(last=last, prd_id=prd) == [
                one for one in found if one.observation.type == "blocker"
            ]
        if prd is not None:
            assert history.attempts(prd) == len(of_prd)
            assert history.last_entry(prd) == (of_prd[-1] if of_prd else None)
            assert history.next_iteration(prd) == 1 + max((one.iteration for one in of_prd), default=0)
    assert history.endings(3) == [one.status for one in entries[-3:]]
    assert history.tallies() == plain_tallies(entries)
    assert list(history.failures().items()) == plain_failures(entries)


def plain_tallies(entries: Sequence[Entry]) -> list[Tally]:
    by_last_try = list({one.prd_id: 0 for one in reversed(entries)})[::-1]
    counts = Counter((one.prd_id, one.status) for one in entries)
    totals = Counter(one.prd_id for one in entries)
    return [
        Tally(prd, totals[prd], *(counts[prd, status] for status in ("completed", "failed", "blocked", "partial")))
        for prd in by_last_try
    ]


def plain_failures(entries: Sequence[Entry]) -> list[tuple[Category, int]]:
    bad = [one for one in entries if one.status in ("failed", "blocked")]
    times = Counter(seen.category for one in bad for seen in one.observations if seen.category)
    return sorted(times.items(), key=lambda item: (-item[1], item[0]))


def check_learnings(history: History, learnings: Sequence[Learning]) -> None:
    valid = [one for one in learnings if one.still_valid]
    assert history.learnings() == valid
    assert history.learnings(valid_only=False) == list(learnings)
    assert history.learnings(("tool-usage", "test-pattern")) == [
        one for one in valid if one.type in ("tool-usage", "test-pattern")
    ]
    assert history.learnings(prd_id=PRD) == [one for one in valid if one.source_prd_id == PRD]
    assert history.learnings(("tool-usage",), prd_id=PRD, valid_only=False) == [
        one for one in learnings if one.source_prd_id == PRD and one.type == "tool-usage"
    ]
    assert history.next_learning_number() == 1 + max((number(one) for one in learnings), default=0)


def check_patterns(history: History, patterns: Sequence[Pattern]) -> None:
    assert history.patterns() == list(patterns)
    assert history.patterns(("api-pattern",)) == [one for one in patterns if one.type == "api-pattern"]
    assert history.patterns(prd_id=PRD) == [one for one in patterns if one.source_prd_id == PRD]
    assert history.next_pattern_number() == 1 + max((number(one) for one in patterns), default=0)


def number(record: Learning | Pattern) -> int:
    return int(record.id.rpartition("-")[2])


# --- the journal, read and applied plainly ----------------------------------------------------------


def journal_lines(data: bytes) -> list[bytes]:
    """The whole lines of a journal behind its first one; zeros at its end are room for more."""
    whole = data.partition(b"\0")[0]
    return whole.split(b"\n")[1:-1]


def batches(history: History) -> list[Batch]:
    if not os.path.exists(history.journal_path):
        return []
    found = []
    for line in journal_lines(Path(history.journal_path).read_bytes()):
        checksum, _, data = line.partition(b" ")
        assert checksum == b"%08x" % zlib.crc32(data)
        found.append(msgspec.json.decode(data, type=Batch))
    return found


def applied(before: Content, changes: Iterable[Batch]) -> Content:
    """The records after some changes, which may have been meant for another document."""
    entries, learnings, patterns = (list(part) for part in before)
    links: dict[str, str] = {}
    for batch in changes:
        for new in batch.learnings:
            links[new.id] = apply_learning(learnings, new)  # type: ignore[arg-type]
        for one in batch.patterns:
            apply_pattern(patterns, one)  # type: ignore[arg-type]
        for tried in batch.entries:
            apply_entry(entries, tried, links)  # type: ignore[arg-type]
        for gone in batch.invalidated:
            change(learnings, meant(learnings, gone.about, links), invalid, gone.why)  # type: ignore[arg-type]
        for used in batch.referenced:
            change(learnings, meant(learnings, used.about, links), counted, used.times)  # type: ignore[arg-type]
    return Content(tuple(entries), tuple(learnings), tuple(patterns))  # type: ignore[arg-type]


def free_id(kind: str, id: str, known: Sequence[Learning | Pattern]) -> str:
    return f"{kind}-{1 + max(map(number, known)):04}" if id in ids(known) else id


def apply_learning(learnings: list[Learning], new: Learning) -> str:
    same = [one for one in learnings if one.content == new.content]
    for known in [
        *(one for one in same if one.created_at == new.created_at),
        *(one for one in same if one.still_valid),
    ]:
        return known.id
    learnings.append(structs.replace(new, id=free_id("learning", new.id, learnings)))
    return learnings[-1].id


def apply_pattern(patterns: list[Pattern], new: Pattern) -> None:
    if (new.name, new.description) not in [(known.name, known.description) for known in patterns]:
        patterns.append(structs.replace(new, id=free_id("pattern", new.id, patterns)))


def apply_entry(entries: list[Entry], new: Entry, links: dict[str, str]) -> None:
    last = max((known.iteration for known in entries if known.prd_id == new.prd_id), default=0)
    if new.iteration == last + 1:
        seen = [
            structs.replace(one, related_learning_id=links.get(one.related_learning_id, one.related_learning_id))
            if one.related_learning_id
            else one
            for one in new.observations
        ]
        entries.append(structs.replace(new, observations=tuple(seen)))


def meant(learnings: Sequence[Learning], about: About, links: dict[str, str]) -> str | None:
    same = [one for one in learnings if blake2b(one.content.encode(), digest_size=16).hexdigest() == about.words]
    known = [one for one in same if one.created_at == about.created_at] or [one for one in same if one.still_valid]
    return known[0].id if known else links.get(about.id)


def change(learnings: list[Learning], id: str | None, how: Callable[[Learning, Value], Learning], by: Value) -> None:
    learnings[:] = [how(one, by) if one.id == id else one for one in learnings]


def invalid(known: Learning, why: str) -> Learning:
    context = f"{known.context}\n{why}" if known.context else why
    return structs.replace(known, still_valid=False, context=context) if known.still_valid else known


def counted(known: Learning, times: int) -> Learning:
    return structs.replace(known, times_referenced=max(known.times_referenced, times))


# --- adding and asking ------------------------------------------------------------------------------


def fill(history: History) -> Content:
    """Some of everything; what must be there then."""
    seen = (observation("slow", "blocker", "performance"), observation("bug", "finding", "bug"))
    friction = observation("no make", "blocker", "tooling-friction", "learning-0001")
    history.append(entry(1, PRD, "failed", *seen))
    history.append(entry(2, PRD, "blocked", friction, *seen), [learning("make is missing")])
    history.append_next("other", lambda iteration: entry(iteration, "other", "partial", observation("fine")))
    history.append_next(PRD, entry)
    history.add([learning("ruff first", kind="test-pattern", prd="other")], [pattern("routes"), pattern("tests")])
    history.invalidate("learning-0001", "it is there now")
    history.count_references(["learning-0002"])
    history.append_next("other", lambda iteration: entry(iteration, "other", "blocked", observation("b", "blocker")))
    first = invalid(learning("make is missing"), "it is there now")
    return Content(
        (
            entry(1, PRD, "failed", *seen),
            entry(2, PRD, "blocked", friction, *seen),
            entry(1, "other", "partial", observation("fine")),
            entry(3),
            entry(2, "other", "blocked", observation("b", "blocker")),
        ),
        (first, counted(learning("ruff first", 2, "test-pattern", "other"), 1)),
        (pattern("routes"), pattern("tests", 2)),
    )


def test_what_was_added_is_there_and_every_question_is_answered(history: History) -> None:
    assert answers(history) == Content()
    expected = fill(history)
    assert answers(history) == expected
    assert answers(History(history.root)) == expected
    assert history.notices == history.problems() == []


@pytest.mark.parametrize("question", [History.entries, History.observations, History.blockers, History.endings])
def test_the_last_0_entries_are_none(history: History, question: Callable[..., list[object]]) -> None:
    fill(history)
    assert question(history, last=0) == []


def test_a_fold_changes_no_answer_and_writes_what_was_exported(history: History) -> None:
    expected = fill(history)
    exported = history.export()
    had_journal = os.path.exists(history.journal_path)
    assert history.fold() == had_journal
    assert Path(history.path).read_bytes() == exported
    assert not os.path.exists(history.journal_path)
    assert on_disk(history) == answers(history) == expected
    assert not history.fold()


def test_who_only_asks_makes_no_file(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    assert answers(history) == Content()
    history.fold()
    history.check()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_history_is_a_document_of_version_1_0(tmp_path: Path) -> None:
    progress = History(str(tmp_path)).load()
    assert (progress.version, progress.project_name) == ("1.0", tmp_path.name)


def test_the_document_is_indented_in_a_stable_order_and_ends_with_a_newline(history: History) -> None:
    fill(history)
    history.fold()
    data = Path(history.path).read_bytes()
    assert data == written(document.parse(data))
    assert data.startswith(b'{\n  "version": "1.0",\n  "created_at": "')
    assert data.endswith(b"}\n")
    assert re.findall(rb'^  "(\w+)":', data, re.MULTILINE) == [
        *(b"version", b"created_at", b"project_name", b"entries", b"learnings", b"patterns")
    ]


def diff(old: bytes, new: bytes) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    lines = list(difflib.unified_diff(old.decode().split("\n"), new.decode().split("\n"), n=0, lineterm=""))[2:]
    return [one[1:] for one in lines if one[0] == "-"], [one[1:] for one in lines if one[0] == "+"]


def test_appending_adds_lines_and_changes_nothing_else_than_a_comma(history: History) -> None:
    fill(history)
    history.fold()
    steps: list[Callable[[], object]] = [
        lambda: history.append_next(PRD, entry),
        lambda: history.append(entry(1, "third"), [learning("third", 9)]),
        lambda: history.add([learning("one"), learning("two")], [pattern("one")]),
    ]
    for step in steps:
        before = Path(history.path).read_bytes()
        step()
        history.fold()
        gone, came = diff(before, Path(history.path).read_bytes())
        assert len(gone) <= 3
        assert {f"{line}," for line in gone} <= set(came)


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        (lambda one: one.invalidate("learning-0002", "gone"), {"context", "still_valid", "times_referenced"}),
        (lambda one: one.count_references(["learning-0002"]), {"times_referenced"}),
    ],
    ids=["invalidate", "count_references"],
)
def test_changing_a_learning_changes_no_line_of_others(
    history: History, step: Callable[[History], object], fields: set[str]
) -> None:
    fill(history)
    history.fold()
    before = Path(history.path).read_bytes()
    step(history)
    history.fold()
    gone, came = diff(before, Path(history.path).read_bytes())
    assert {line.split('"')[1] for line in (*gone, *came)} <= fields
    assert len(gone) <= len(came) <= 3


def test_existing_records_are_never_rewritten(tmp_path: Path) -> None:
    """Neither their times, nor their order of keys, nor their layout."""
    text = (
        '{"entries": [{"iteration":1, "prd_id":"a","id":"a-1","status":"failed","observations":[],\n'
        '   "timestamp":"2026-01-31T09:30:00.123456789+02:00"}],\r\n\t"created_at": "2026-01-31T09:30:00+00:00",'
        ' "learnings": [{"created_at":"2026-01-31T09:30:00.1Z","content":"\\u00e9","id":"learning-0004",'
        '"type":"tool-usage","source_prd_id":""}], "version":"1.0"}'
    )
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/progress.json").write_text(text, newline="")
    history = History(str(tmp_path))
    history.append_next("a", lambda iteration: entry(iteration, "a"))
    history.add([learning("new")], [pattern("new")])
    after = Path(history.path).read_bytes().decode()
    kept = text.replace('"version"', "§").split("§")[0]
    at = 0
    for part in re.split(r"(?<=})(?=\])", kept):  # what was there is still there, in order, with more in between
        at = after.index(part.rstrip("]"), at)
    assert ids(history.entries()) == ["a-1", "a-2"]
    assert ids(history.learnings()) == ["learning-0004", "learning-0005"]
    assert after.endswith('"version":"1.0"}')


# --- ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("highest", "following"),
    [
        ("0000", ["0001", "0002"]),
        ("0041", ["0042", "0043"]),
        ("9998", ["9999", "10000"]),
        ("9999", ["10000", "10001"]),
        ("00012", ["0013", "0014"]),
        ("123456789", ["123456790", "123456791"]),
    ],
)
def test_ids_are_numbered_from_the_highest(history: History, highest: str, following: list[str]) -> None:
    first, other = learning("first", int(highest)), pattern("first", int(highest))
    history.append(entry(1), [structs.replace(first, id=f"learning-{highest}")])
    history.write(lambda state: Batch(patterns=(structs.replace(other, id=f"pattern-{highest}"),)))
    history.add([learning("low", 2)], [pattern("low", 2)])
    History(history.root).add([learning("lower")], [pattern("lower")])
    assert ids(history.learnings()) == [f"learning-{one}" for one in (highest, *following)]
    assert ids(history.patterns()) == [f"pattern-{one}" for one in (highest, *following)]


@pytest.mark.parametrize("digits", [18, 19, 30])
def test_an_id_that_nobody_will_ever_count_up_to_stops_nothing(history: History, digits: int) -> None:
    history.append(entry(1), [structs.replace(learning("first"), id=f"learning-{'9' * digits}")])
    for name in ("second", "third", "fourth"):
        history.add([learning(name)])
    assert [one.content for one in history.learnings()] == ["first", "second", "third", "fourth"]
    assert len(set(ids(History(history.root).learnings()))) == 4


def test_learnings_of_one_batch_get_different_ids_and_links_follow(history: History) -> None:
    history.add([learning("known")])
    links = (observation("a", link="learning-0001"), observation("b", link="learning-0002"))
    batch = history.append(entry(1, PRD, "failed", *links), [learning("mine", 1), learning("known", 2)])
    assert ids(batch.learnings) == ["learning-0002"]
    assert [one.related_learning_id for one in batch.entries[0].observations] == ["learning-0002", "learning-0001"]
    assert batch.entries == tuple(history.entries())
    assert ids(history.learnings()) == ["learning-0001", "learning-0002"]


@pytest.mark.parametrize("iteration", [1, 2, 4, 5, 1000])
def test_an_iteration_that_does_not_follow_is_refused(history: History, iteration: int) -> None:
    before = fill(history)
    files = {path.name: path.read_bytes() for path in Path(history.folder).iterdir() if path.suffix != ".index"}
    wrong = entry(iteration + (iteration == 4), at="2026-02-01T00:00:00Z")
    with pytest.raises(
        InvalidValue, match=f"entry {wrong.id}: .*(another one of that id|does not follow 3: the next is 4)"
    ):
        history.append(wrong, [learning("not either")])
    assert answers(history) == before
    assert files == {path.name: path.read_bytes() for path in Path(history.folder).iterdir() if path.suffix != ".index"}


def test_the_first_iteration_is_1(history: History) -> None:
    with pytest.raises(InvalidValue, match="iteration 2 does not follow 0: the next is 1"):
        history.append(entry(2))
    assert not os.path.exists(history.path)


@pytest.mark.parametrize("id", [f"{PRD}-2", f"{PRD}-01", "other-1", f"{PRD}--1", "1"])
def test_the_id_of_an_entry_is_its_prd_and_its_iteration(history: History, id: str) -> None:
    with pytest.raises(InvalidValue, match=r"entry .*: the id must be prd_id-iteration|does not match"):
        history.append(structs.replace(entry(1), id=id))
    assert not os.path.exists(history.path)


def test_the_same_entry_again_is_no_second_one(history: History) -> None:
    """Nor are the learnings that come with it: whoever was not told that it was written may try again."""
    expected = fill(history)
    for number in (0, 1, 3):
        assert not history.append(expected.entries[number], [learning("make is missing")])
    assert not History(history.root).append(expected.entries[4])
    assert answers(history) == expected


def test_an_id_that_only_looks_like_one_of_another_prd_is_no_duplicate(history: History) -> None:
    history.append(entry(1, "a"))
    history.append(entry(1, "a-1"))
    history.append(entry(2, "a"))
    history.append(entry(1, "a-2"))
    assert ids(answers(history).entries) == ["a-1", "a-1-1", "a-2", "a-2-1"]


def test_an_entry_id_that_stands_under_another_prd_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    odd = structs.replace(entry(1, "b"), prd_id="elsewhere")
    whole = Progress(version="1.0", created_at=MOMENT, entries=(odd,))
    (tmp_path / ".ralph/progress.json").write_bytes(written(whole))
    with pytest.raises(InvalidValue, match="there is another one of that id"):
        History(str(tmp_path)).append(entry(1, "b", at="2026-02-01T00:00:00Z"))


def test_what_stands_there_word_for_word_is_not_added_again(history: History) -> None:
    first = history.add([learning("a"), learning("a"), learning("A")], [pattern("p"), pattern("p")])
    assert (ids(first.learnings), ids(first.patterns)) == (["learning-0001", "learning-0002"], ["pattern-0001"])
    later = "2026-03-01T00:00:00Z"
    assert not history.add([learning("a", at=later)], [pattern("p", kind="test-pattern")])
    second = history.add([learning("b")], [pattern("p", description="otherwise"), pattern("q")])
    assert (ids(second.learnings), ids(second.patterns)) == (["learning-0003"], ["pattern-0002", "pattern-0003"])
    history.invalidate("learning-0001", "no longer")
    again = history.add([learning("a", at=later)])  # only what is valid counts as there
    assert ids(again.learnings) == ["learning-0004"]
    assert not history.add([learning("a", at="2026-04-01T00:00:00Z")])
    assert not history.add()
    assert ids(answers(history).learnings) == [f"learning-000{number}" for number in range(1, 5)]


def test_invalidating_keeps_the_context_and_adds_the_reason_once(history: History) -> None:
    history.append(entry(1), [structs.replace(learning("a"), context="seen in CI"), learning("b", 2)])
    assert history.invalidate("learning-0001", "mended").context == "seen in CI\nmended"
    assert history.invalidate("learning-0001", "mended again").context == "seen in CI\nmended"
    assert not history.invalidate("learning-0002", "mended").still_valid
    history.fold()
    assert [one.context for one in answers(history).learnings] == ["seen in CI\nmended", "mended"]


@pytest.mark.parametrize("id", ["learning-0009", "", "pattern-0001", "x\x1b[31m"])
def test_invalidating_what_is_not_there_is_an_error(history: History, id: str) -> None:
    before = fill(history)
    with pytest.raises(InvalidValue, match="there is no learning") as error:
        history.invalidate(id, "why")
    assert "\x1b" not in str(error.value)
    assert answers(history) == before


def test_references_are_counted_each_time(history: History) -> None:
    history.append(entry(1), [learning("a"), learning("b", 2)])
    other = History(history.root)
    for one in (history, other, history, history):
        one.count_references(["learning-0002", "learning-0077"])
    other.count_references([])
    history.count_references(["learning-0077"])
    history.fold()
    other.count_references(["learning-0001", "learning-0002"])
    assert [one.times_referenced for one in answers(history).learnings] == [1, 5]


WRONG: list[tuple[Any, str]] = [
    (structs.replace(entry(1), timestamp="2026-01-31T09:30:00"), r"entries\[0\]\.timestamp: .*zone"),
    (structs.replace(entry(1), status="done"), r"entries\[0\]\.status: 'done' is not one of blocked, completed, "),
    (structs.replace(entry(1), duration_seconds=-1), r"entries\[0\]\.duration_seconds: -1 is less than 0"),
    (structs.replace(entry(1), summary="\ud800"), "JSON|UTF-8"),
    (structs.replace(entry(1), summary=object()), "JSON"),
    (structs.replace(entry(1), summary=None), r"entries\[0\]\.summary: null is not a string"),
    (
        structs.replace(entry(1), observations=(learning("a"),)),
        r"entries\[0\]\.observations\[0\]\.id: there is no such",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_record_that_may_not_stand_in_the_document_is_refused(history: History, wrong: Entry, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        history.append(wrong)
    assert not os.path.exists(history.path)
    assert history.append(entry(1))


def test_a_maker_that_fails_leaves_everything_as_it_was(history: History) -> None:
    before = fill(history)
    with pytest.raises(ZeroDivisionError):
        history.append_next(PRD, lambda iteration: entry(iteration // 0))
    assert answers(history) == before
    assert history.append_next(PRD, entry).iteration == 4


# --- any order of things ----------------------------------------------------------------------------

PRDS = ("a", "a-1", "b")
WORDS = ("make", "ruff", "pip", "tox")
TIMES = st.integers(0, 2)
WHICH = st.sampled_from([0, 1])


class Life(RuleBasedStateMachine):
    """Two users of one project, whose caches get old, and somebody who does things to its files.

    After every step the files hold what they should, read plainly: the two are not asked then, to let them get old.
    """

    top: Path

    @initialize()
    def begin(self) -> None:
        self.root = self.top / "project"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.users = [History(str(self.root)), History(str(self.root))]
        self.expected = Content()
        self.copies: list[bytes] = []
        self.moments = 0

    def teardown(self) -> None:
        for user in getattr(self, "users", []):
            user.close()

    @property
    def one(self) -> History:
        return self.users[0]

    def now(self) -> str:
        self.moments += 1
        return f"2026-01-31T09:{self.moments // 60:02}:{self.moments % 60:02}Z"

    def last(self, prd: str) -> int:
        return max((one.iteration for one in self.expected.entries if one.prd_id == prd), default=0)

    def does(self, batch: Batch) -> None:
        self.expected = applied(self.expected, [batch])

    def changes(self, wanted: Sequence[str], how: Callable[[Learning, Value], Learning], by: Value) -> None:
        learnings = list(self.expected.learnings)
        for id in wanted:
            change(learnings, id, how, by)
        self.expected = self.expected._replace(learnings=tuple(learnings))

    # --- what users do

    @rule(which=WHICH, prd=st.sampled_from(PRDS), status=st.sampled_from(STATUSES), blocked=st.booleans())
    def append_next(self, which: int, prd: str, status: Status, blocked: bool) -> None:
        seen = (observation("stuck", "blocker", "tooling-friction"),) if blocked else ()
        at = self.now()
        made = self.users[which].append_next(prd, lambda iteration: entry(iteration, prd, status, *seen, at=at))
        assert made == entry(self.last(prd) + 1, prd, status, *seen, at=at)
        self.does(Batch(entries=(made,)))

    @rule(which=WHICH, prd=st.sampled_from(PRDS), word=st.sampled_from(WORDS), number=st.integers(1, 4))
    def append_with_a_learning(self, which: int, prd: str, word: str, number: int) -> None:
        at = self.now()
        seen = observation(word, "finding", "architecture", f"learning-{number:04}")
        batch = Batch(
            entries=(entry(self.last(prd) + 1, prd, "failed", seen, at=at),),
            learnings=(learning(word, number, prd=prd, at=at),),
        )
        self.users[which].append(batch.entries[0], batch.learnings)
        self.does(batch)

    @rule(which=WHICH, prd=st.sampled_from(PRDS), step=st.sampled_from([-2, -1, 0, 2, 3]))
    def append_what_does_not_follow(self, which: int, prd: str, step: int) -> None:
        wrong = self.last(prd) + step
        with pytest.raises(InvalidValue):
            self.users[which].append(entry(wrong if wrong > 0 else 9, prd, at=self.now()))

    @precondition(lambda self: self.expected.entries)
    @rule(which=WHICH, data=st.data())
    def append_again(self, which: int, data: st.DataObject) -> None:
        assert not self.users[which].append(data.draw(st.sampled_from(self.expected.entries)))

    @rule(
        which=WHICH,
        words=st.lists(st.sampled_from(WORDS), max_size=3),
        names=st.lists(st.sampled_from(WORDS), max_size=2),
    )
    def add(self, which: int, words: list[str], names: list[str]) -> None:
        at = self.now()
        got = self.users[which].add([learning(word, at=at) for word in words], [pattern(name) for name in names])
        before = self.expected
        highest = [max(map(number, known), default=0) for known in before[1:]]
        self.does(
            Batch(
                learnings=tuple(learning(word, highest[0] + 1, at=at) for word in words),
                patterns=tuple(pattern(name, highest[1] + 1) for name in names),
            )
        )
        assert got.learnings == self.expected.learnings[len(before.learnings) :]
        assert got.patterns == self.expected.patterns[len(before.patterns) :]

    @rule(which=WHICH, number=st.integers(1, 6))
    def invalidate(self, which: int, number: int) -> None:
        id = f"learning-{number:04}"
        if id not in ids(self.expected.learnings):
            with pytest.raises(InvalidValue):
                self.users[which].invalidate(id, "why")
            return
        got = self.users[which].invalidate(id, "why")
        self.changes([id], invalid, "why")
        assert got in self.expected.learnings

    @rule(which=WHICH, numbers=st.sets(st.integers(1, 5), max_size=3))
    def count_references(self, which: int, numbers: set[int]) -> None:
        wanted = [f"learning-{one:04}" for one in sorted(numbers)]
        self.users[which].count_references(wanted)
        self.changes(wanted, lambda known, by: counted(known, known.times_referenced + by), 1)

    @rule(which=WHICH)
    def fold(self, which: int) -> None:
        assert self.users[which].fold() or not os.path.exists(self.one.journal_path)
        assert not os.path.exists(self.one.journal_path)
        assert on_disk(self.one) == self.expected

    @rule(which=WHICH)
    def ask_everything(self, which: int) -> None:
        assert answers(self.users[which]) == self.expected

    @rule(which=WHICH, prd=st.sampled_from(PRDS))
    def ask_something(self, which: int, prd: str) -> None:
        assert self.users[which].next_iteration(prd) == self.last(prd) + 1
        assert self.users[which].learnings(valid_only=False) == list(self.expected.learnings)

    @rule(which=WHICH, close=st.booleans())
    def begin_anew(self, which: int, close: bool) -> None:
        if close:
            self.users[which].close()
        self.users[which] = History(str(self.root))

    # --- what happens to the files

    @rule()
    def delete_the_index(self) -> None:
        Path(self.one.index_path).unlink(missing_ok=True)

    @precondition(lambda self: os.path.exists(self.one.index_path))
    @rule(start=st.integers(0, 4000), data=st.binary(min_size=1, max_size=4000))
    def write_into_the_index(self, start: int, data: bytes) -> None:
        """Other bytes at its beginning, which is where SQLite looks for what it needs first."""
        with open(self.one.index_path, "r+b") as file:
            file.write(data if start % 2 else b"\0" * 200)

    @precondition(lambda self: os.path.exists(self.one.path))
    @rule()
    def keep_a_copy(self) -> None:
        self.copies.append(Path(self.one.path).read_bytes())

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), how=st.sampled_from(["anew", "in place", "over it"]))
    def put_back_a_copy(self, data: st.DataObject, how: str) -> None:
        overwrite(Path(self.one.path), data.draw(st.sampled_from(self.copies)), how)
        self.read_files()

    @rule()
    def delete_the_document(self) -> None:
        Path(self.one.path).unlink(missing_ok=True)
        self.read_files()

    @precondition(lambda self: os.path.exists(self.one.journal_path))
    @rule(share=st.floats(0, 1))
    def cut_the_journal(self, share: float) -> None:
        """As after a power cut: the index, a file of its own, may have come further."""
        path = Path(self.one.journal_path)
        data = path.read_bytes().rstrip(b"\0")
        os.truncate(path, int(share * len(data)))
        self.users = [History(str(self.root)), History(str(self.root))]
        self.read_files()

    @precondition(lambda self: os.path.exists(self.one.journal_path))
    @rule(which=WHICH)
    def kill_a_fold(self, which: int) -> None:
        """When the document was replaced, and the journal was not removed yet."""
        data = Path(self.one.journal_path).read_bytes()
        self.fold(which)
        Path(self.one.journal_path).write_bytes(data)

    def read_files(self) -> None:
        self.expected = self.plainly()

    def plainly(self) -> Content:
        return applied(on_disk(self.one), batches(self.one))

    @invariant()
    def files_hold_what_they_should(self) -> None:
        if hasattr(self, "users"):
            assert self.plainly() == self.expected


def overwrite(path: Path, data: bytes, how: str = "anew") -> None:
    """As other programs do: git makes files anew, editors write in place or put another file over it.

    A clock that has not moved since the last write would hide this from everybody.
    """
    path.parent.mkdir(exist_ok=True)
    probe = path.with_name("probe")
    while path.exists():
        probe.write_bytes(b"")
        moved = probe.stat().st_ctime_ns > path.stat().st_ctime_ns
        probe.unlink()
        if moved:
            break
    if how == "anew":
        path.unlink(missing_ok=True)
    elif how == "over it":
        path.with_name("new").write_bytes(data)
        path.with_name("new").replace(path)
        return
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


@pytest.mark.parametrize(
    ("small", "share", "unsettled", "examples"),
    [(1500, 1, 300, 20), (900, 0, 1 << 20, 20), (300, 3, 1, 6)],
    ids=["usual", "late", "early"],
)
def test_whatever_happens_in_any_order_the_history_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, share: int, unsettled: int, examples: int
) -> None:
    set_sizes(monkeypatch, small=small, share=share, unsettled=unsettled)
    monkeypatch.setattr(Life, "top", tmp_path, raising=False)
    bounds = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Life, settings=bounds)


# --- the journal ------------------------------------------------------------------------------------


class Journaled(NamedTuple):
    """A project with a document and a journal, to be made again as often as it takes."""

    document: bytes
    journal: bytes
    expected: Content

    def make(
        self, root: Path, journal: bytes | None = None, *, document: bytes | None = None, index: bool = False
    ) -> History:
        """An index takes its time: a folder that stands in its way keeps it away."""
        folder = root / ".ralph"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("index", "journal.damaged"):
            (folder / f"progress.{name}").unlink(missing_ok=True)
        (folder / "progress.json").write_bytes(self.document if document is None else document)
        (folder / "progress.journal").write_bytes(self.journal if journal is None else journal)
        if not index:
            (folder / "progress.index.aside/inside").mkdir(parents=True, exist_ok=True)
        return History(str(root))

    @property
    def text(self) -> bytes:
        """The journal without the room at its end."""
        return self.journal.rstrip(b"\0")


@pytest.fixture
def kept(tmp_path: Path, journaled: None) -> Journaled:
    """Its document has one entry and one learning; the journal has a line of each kind."""
    history = History(str(tmp_path / "kept"))
    os.mkdir(history.root)
    history.append(entry(1), [learning("old")])
    history.append(entry(2, PRD, "failed", observation("J*\n", "blocker", link="learning-0002")), [learning("made", 2)])
    history.append(entry(1, "other"))
    history.add([], [pattern("routes J *")])
    history.count_references(["learning-0001"])
    history.invalidate("learning-0001", "gone")
    history.append(entry(3))
    return Journaled(
        Path(history.path).read_bytes(), Path(history.journal_path).read_bytes(), content(History(history.root).load())
    )


def damaged(history: History) -> bytes:
    path = Path(history.damaged_path)
    return path.read_bytes() if path.exists() else b""


def goes_on(history: History, before: Content | None = None) -> Content:
    """The next write succeeds, changes nothing else, and everybody sees it. What is there then, without it."""
    before = answers(history) if before is None else before
    added = history.append_next("next", lambda iteration: entry(iteration, "next"))
    expected = before._replace(entries=(*before.entries, added))
    assert answers(History(history.root)) == answers(history) == expected
    assert history.problems() == []
    history.fold()
    assert on_disk(history) == expected
    return before


def test_a_journal_is_read_as_it_was_written(tmp_path: Path, kept: Journaled) -> None:
    history = kept.make(tmp_path)
    assert len(journal_lines(kept.journal)) == 6
    assert goes_on(history) == kept.expected
    assert (history.notices, damaged(history)) == ([], b"")


def test_a_torn_last_line_was_never_acknowledged(tmp_path: Path, kept: Journaled) -> None:
    """Wherever it is torn, and whether or not there is room behind it: it is as if it had not been written."""
    last = kept.text.rindex(b"\n", 0, -1) + 1
    without = kept.expected._replace(entries=kept.expected.entries[:-1])
    whole = kept.make(tmp_path, kept.text[:-1])
    assert content(whole.load()) == kept.expected, "but for its end it is there: the damage may have come later"
    for end in range(last, len(kept.text) - 1):
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
    shutil.rmtree(Path(history.folder, "progress.index.aside"))  # those who come later have an index
    if is_open:
        assert answers(history) == kept.expected
    Path(history.journal_path).write_bytes(kept.text + tail.replace(b"%s", journal_lines(kept.text)[0]))
    for number in range(1, 9):  # over and beyond all of it
        history.append(entry(number, "more"))
        assert ids(history.entries(prd_id="more")) == [f"more-{one}" for one in range(1, number + 1)]
        assert ids(History(history.root).entries(last=number)) == ids(history.entries(last=number))
    assert goes_on(history).entries[: len(kept.expected.entries)] == kept.expected.entries


def flips(text: bytes) -> Iterator[tuple[int, bytes]]:
    """At every byte one flipped bit, and every one that makes a zero or a newline."""
    for position, byte in enumerate(text):
        for bit in range(8):
            flipped = byte ^ 1 << bit
            if bit == position % 8 or flipped in b"\0\n":
                yield position, text[:position] + bytes([flipped]) + text[position + 1 :]


def survivors(flipped: bytes, kept: Journaled, position: int, seen: Content, aside: bytes) -> None:
    """Every record is read as it was written; else it was set aside."""
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
    """Also when it flips after the line was read, and is known from then."""
    lost = []
    for position, flipped in flips(kept.text):
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
    # A fold that was killed after it had saved the record, and before it emptied the journal.
    Path(history.path).write_bytes(kept.document)
    Path(history.journal_path).write_bytes(kept.text + b"first damage\nsecond damage\n")
    again = History(history.root)
    again.append_next("next", lambda iteration: entry(iteration, "next"))
    assert damaged(again).startswith(aside)
    assert damaged(again).count(b"first damage") == damaged(again).count(b"second damage") == 1


# --- a journal for another document -----------------------------------------------------------------


def elsewhere(root: Path, *steps: Callable[[History], object]) -> bytes:
    """The document of another clone of the project."""
    root.mkdir()
    history = History(str(root))
    for step in steps:
        step(history)
    history.fold()
    history.close()
    return Path(history.path).read_bytes()


def test_records_that_are_there_already_are_skipped(tmp_path: Path, kept: Journaled) -> None:
    history = kept.make(tmp_path / "folded")
    history.fold()
    whole = Path(history.path).read_bytes()
    again = kept.make(tmp_path / "again", document=whole)
    assert again.export() == whole
    assert answers(again) == kept.expected
    assert goes_on(again) == kept.expected
    assert (again.notices, damaged(again)) == ([], b"")


@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_fold_killed_before_the_journal_was_removed_changes_nothing(
    tmp_path: Path, kept: Journaled, has_index: bool, is_open: bool
) -> None:
    history = kept.make(tmp_path, index=has_index)
    for _ in range(3):
        history.count_references(["learning-0002"])
    expected = answers(history)
    lines = Path(history.journal_path).read_bytes()
    history.fold()
    whole = Path(history.path).read_bytes()
    Path(history.journal_path).write_bytes(lines)
    assert os.path.exists(history.index_path) == has_index
    after = history if is_open else History(history.root)
    assert answers(after) == expected
    assert after.export() == whole
    assert goes_on(after) == expected
    assert (after.notices, damaged(after)) == ([], b"")


def test_taken_ids_become_the_next_number_and_all_links_follow(tmp_path: Path, journaled: None) -> None:
    """In the same line, and in later lines of the same journal: entries, references and invalidations."""
    mine = History(str(tmp_path / "mine"))
    os.mkdir(mine.root)
    mine.append(entry(1), [learning("old")])
    base = Path(mine.path).read_bytes()
    linked = [observation(f"see {number}", link=f"learning-{number:04}") for number in (1, 2, 3)]
    mine.append(entry(2, PRD, "failed", *linked), [learning("two", 2), learning("three", 3)])
    mine.add([], [pattern("mine")])
    mine.append(entry(3, PRD, "failed", *linked))
    mine.count_references(["learning-0002", "learning-0001"])
    mine.count_references(["learning-0002"])
    mine.invalidate("learning-0003", "no longer")
    mine.add([learning("four")])

    def theirs(history: History) -> None:
        os.makedirs(history.folder)
        Path(history.path).write_bytes(base)
        history.add([learning("theirs"), learning("three")], [pattern("theirs")])

    overwrite(Path(mine.path), elsewhere(tmp_path / "theirs", theirs))
    for history in (mine, History(mine.root)):
        known = {one.content: one for one in answers(history).learnings}
        assert {name: one.id[-4:] for name, one in known.items()} == {
            **{"old": "0001", "theirs": "0002", "three": "0003", "two": "0004", "four": "0005"}
        }
        assert {name: one.times_referenced for name, one in known.items() if one.times_referenced} == {
            **{"old": 1, "two": 2}
        }
        assert [name for name, one in known.items() if not one.still_valid] == ["three"]
        for found in history.entries(last=2):
            assert [one.related_learning_id for one in found.observations] == [
                *("learning-0001", "learning-0004", "learning-0003")
            ]
        assert [(one.id, one.name) for one in history.patterns()] == [
            *(("pattern-0001", "theirs"), ("pattern-0002", "mine"))
        ]
    goes_on(mine)
    assert (mine.notices, damaged(mine)) == ([], b"")


@pytest.mark.parametrize("is_open", [False, True])
def test_an_entry_that_does_not_follow_is_set_aside_and_work_goes_on(
    tmp_path: Path, kept: Journaled, is_open: bool
) -> None:
    """The document is now one without the PRD's first entry: none of the others follows."""
    history = kept.make(tmp_path / "mine")
    if is_open:
        answers(history)
    overwrite(Path(history.path), elsewhere(tmp_path / "theirs", lambda one: one.append(entry(1, "theirs"))))
    expected = Content((entry(1, "theirs"), entry(1, "other")), (learning("made", 2),), kept.expected.patterns)
    assert answers(history) == expected
    lost = sum("does not follow 0" in problem for problem in history.problems())
    aimless = sum("learning-0001: the learning" in problem for problem in history.problems())
    assert (lost, aimless, len(history.problems())) == (2, 2, 4)
    assert goes_on(history) == expected
    for one in (kept.expected.entries[1], kept.expected.entries[3]):
        assert msgspec.json.encode(one) in damaged(history)
    assert len(history.notices) == 4
    assert all(history.damaged_path in notice for notice in history.notices)


def test_another_entry_of_the_same_id_is_not_written_over(tmp_path: Path, kept: Journaled) -> None:
    other = entry(2, PRD, "completed", at="2026-02-01T00:00:00Z")

    def theirs(history: History) -> None:
        os.makedirs(history.folder)
        Path(history.path).write_bytes(kept.document)
        history.append(other)

    history = kept.make(tmp_path / "mine", document=elsewhere(tmp_path / "theirs", theirs))
    assert [one for one in answers(history).entries if one.prd_id == PRD] == [entry(1), other, entry(3)]
    (problem,) = history.problems()
    assert f"{PRD}-2" in problem
    goes_on(history)
    assert msgspec.json.encode(kept.expected.entries[1]) in damaged(history)


@pytest.mark.parametrize("how", ["anew", "in place", "over it"])
def test_an_older_document_gets_the_journal_on_top(tmp_path: Path, journaled: None, how: str) -> None:
    """As after a git checkout; the newer one may come back."""
    history, other = History(str(tmp_path)), History(str(tmp_path))
    history.append(entry(1, "a"))
    history.append(entry(1, "b"))
    history.fold()
    older = Path(history.path).read_bytes()
    history.append(entry(2, "a"))
    history.fold()
    newer = Path(history.path).read_bytes()
    history.append(entry(2, "b"))
    history.append(entry(3, "a"))
    assert len(answers(other).entries) == 5
    overwrite(Path(history.path), older, how)
    for one in (history, other, History(history.root)):
        assert ids(answers(one).entries) == ["a-1", "b-1", "b-2"]
        assert one.problems() == ["entry a-3: iteration 3 does not follow 1: the next is 2"]
    overwrite(Path(history.path), newer, how)
    for one in (history, other, History(history.root)):
        assert ids(answers(one).entries) == ["a-1", "b-1", "a-2", "b-2", "a-3"]
        assert one.problems() == []
    goes_on(other)


def test_a_journal_that_becomes_shorter_takes_no_later_record_with_it(tmp_path: Path, kept: Journaled) -> None:
    """Its end may never have reached the disk, and be known all the same to the index, or to whoever read it."""
    lines = kept.text.split(b"\n")
    for dropped in range(1, len(lines) - 1):
        for is_open in (False, True):
            history = kept.make(tmp_path, index=not is_open)
            history.counts()
            os.truncate(history.journal_path, len(b"\n".join(lines[: -1 - dropped])) + 1)
            history = history if is_open else History(history.root)
            left = applied(on_disk(history), batches(history))
            history.append_next("next", lambda iteration: entry(iteration, "next"))
            Path(history.index_path).unlink(missing_ok=True)
            expected = left._replace(entries=(*left.entries, entry(1, "next")))
            assert content(History(history.root).load()) == expected, (dropped, is_open)


@pytest.mark.parametrize("thing", ["a link", "a dangling link", "a folder", "a pipe"])
def test_a_journal_that_is_none_is_refused(tmp_path: Path, kept: Journaled, thing: str) -> None:
    history = kept.make(tmp_path)
    path = Path(history.journal_path)
    path.replace(tmp_path / "target")
    if thing == "a folder":
        path.mkdir()
    elif thing == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / ("target" if thing == "a link" else "nothing"))
    for act in (history.load, history.export, lambda: history.append(entry(9)), history.fold):
        with pytest.raises(UnsafePath, match=r"progress\.journal.* is a link or a special file"):
            act()
    assert Path(history.path).read_bytes() == kept.document
    assert (tmp_path / "target").read_bytes() == kept.journal


# --- the index --------------------------------------------------------------------------------------

MANY = 900


@pytest.fixture(scope="module")
def big() -> bytes:
    """A document above 1 MiB: the sizes here are the real ones."""
    words = "A sentence of an agent that has seen something, and tells it at length. " * 14
    entries = tuple(
        structs.replace(
            entry(1 + n // 30, f"story-{n % 30}", STATUSES[n % 4], observation(f"{n}", "blocker", "bug")),
            summary=f"{n}: {words}",
        )
        for n in range(MANY)
    )
    whole = Progress(
        version="1.0",
        created_at=MOMENT,
        entries=entries,
        learnings=tuple(learning(f"learning {n}", n) for n in range(1, 40)),
        patterns=tuple(pattern(f"pattern {n}", n) for n in range(1, 20)),
    )
    data = written(whole)
    assert len(data) > state.SMALL == 1 << 20
    return data


def with_big(root: Path, big: bytes) -> History:
    """It has an index, and a journal of which the index knows a part."""
    (root / ".ralph").mkdir(parents=True)
    (root / ".ralph/progress.json").write_bytes(big)
    history = History(str(root))
    history.append_next(PRD, entry)
    assert history.attempts(PRD) == 1
    history.append_next(PRD, lambda iteration: entry(iteration, PRD, "failed", observation("x", "blocker", "stub")))
    history.add([learning("new")], [pattern("new")])
    history.invalidate("learning-0003", "why")
    history.append_next(PRD, entry)
    assert os.path.exists(history.index_path)
    assert os.path.exists(history.journal_path)
    return history


def some_answers(history: History) -> list[object]:
    return [
        *(history.entries(last=3), history.entries(last=2, prd_id="story-7"), history.blockers(last=2)),
        *(history.learnings(valid_only=False), history.patterns(), history.failures(), history.tallies()),
        *(history.counts(), history.next_iteration(PRD), history.next_learning_number(), history.endings(4)),
    ]


def fresh_answers(history: History, top: Path) -> list[object]:
    """What a full load gives, somewhere else, with no index and no journal."""
    shutil.rmtree(top, ignore_errors=True)
    (top / ".ralph").mkdir(parents=True)
    (top / ".ralph/progress.json").write_bytes(written(history.load()))
    return some_answers(History(str(top)))


def test_a_big_document_is_answered_for_added_to_and_folded(tmp_path: Path, big: bytes) -> None:
    history = with_big(tmp_path / "big", big)
    assert Path(history.path).read_bytes() == big
    before = answers(history)
    assert len(before.entries) == MANY + 3
    assert some_answers(History(history.root)) == fresh_answers(history, tmp_path / "fresh")
    exported = history.export()
    assert history.fold()
    assert Path(history.path).read_bytes() == exported
    assert answers(History(history.root)) == answers(history) == before
    gone, came = diff(big, exported)
    assert len(gone) <= 5
    assert len(came) < 150


def test_a_big_document_is_folded_when_the_journal_has_grown_to_a_tenth_of_it(tmp_path: Path, big: bytes) -> None:
    history, other = with_big(tmp_path, big), History(str(tmp_path))
    long = "x" * 30_000
    for number in range(1, 9):
        user = (history, other)[number % 2]
        user.append(structs.replace(entry(number, "long"), summary=long))
        assert user.attempts("long") == number
        on_disk(user)
        assert len(Path(history.path).read_bytes()) + sum(len(one) for one in journal_of(history)) > len(big)
    assert len(on_disk(history).entries) > MANY
    assert sum(len(one) for one in journal_of(history)) < len(big) / 10
    assert some_answers(history) == some_answers(other) == some_answers(History(str(tmp_path)))


def journal_of(history: History) -> list[bytes]:
    path = Path(history.journal_path)
    return journal_lines(path.read_bytes()) if path.exists() else []


def write_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def make_link(path: Path) -> None:
    path.replace(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def half(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def zero_page(page: int, path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))


INDEX_FAULTS: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"garbage" * 999),
    "garbage in place": lambda path: os.pwrite(os.open(path, os.O_WRONLY), b"garbage" * 999, 0),
    "a later part cut off": lambda path: half(path, 0.7),
    "half of it": lambda path: half(path, 0.5),
    "its first page": lambda path: os.truncate(path, 4096),
    "a part of a page": lambda path: os.truncate(path, 1000),
    **{f"page {page} zeros": partial(zero_page, page) for page in (0, 1, 2, 3, 5, 9, 14, 20)},
    "another version": lambda path: write_sql(path, "ALTER TABLE entries ADD COLUMN later TEXT"),
    "one table less": lambda path: write_sql(path, "DROP TABLE failures"),
    "a trigger": lambda path: write_sql(
        path,
        "CREATE TRIGGER hostile AFTER INSERT ON entries BEGIN DELETE FROM entries; DELETE FROM learnings; END",
    ),
    "a view": lambda path: write_sql(
        path, "ALTER TABLE patterns RENAME TO kept", "CREATE VIEW patterns AS SELECT * FROM kept WHERE 0"
    ),
    "no facts": lambda path: write_sql(path, "DELETE FROM facts"),
    "null facts": lambda path: write_sql(path, "UPDATE facts SET json = NULL"),
    "other facts": lambda path: write_sql(path, "UPDATE facts SET json = '{}'"),
    "no JSON in facts": lambda path: write_sql(path, "UPDATE facts SET json = 'facts'"),
    "other places": lambda path: write_sql(path, "UPDATE entries SET start = start + 1"),
    "places of others": lambda path: write_sql(path, "UPDATE entries SET prd_id = 'story-1' WHERE seq > 890"),
    "a link": make_link,
    "a folder": make_folder,
    "only readable": lambda path: path.chmod(0o444),
}


# Tables that are changed in use, by somebody who knows SQLite, would be no accident.
IN_USE = [name for name in INDEX_FAULTS if not re.search("facts|trigger|view|version|table|places", name)]


@pytest.mark.parametrize(
    ("fault", "is_open"), [*((name, False) for name in INDEX_FAULTS), *((name, True) for name in IN_USE)]
)
def test_an_index_is_never_trusted_over_the_document(tmp_path: Path, big: bytes, fault: str, is_open: bool) -> None:
    history = with_big(tmp_path / "big", big)
    expected = fresh_answers(history, tmp_path / "fresh")
    INDEX_FAULTS[fault](Path(history.index_path))
    user = history if is_open else History(history.root)
    assert some_answers(user) == expected
    assert user.append_next(PRD, entry) == entry(4)
    user.count_references(["learning-0001"])
    assert user.attempts(PRD) == 4
    assert user.fold()
    after = [one for one in on_disk(user).entries if one.prd_id == PRD]
    assert [one.iteration for one in after] == [1, 2, 3, 4]
    assert next(one for one in on_disk(user).learnings if one.id == "learning-0001").times_referenced == 1
    assert some_answers(user) == some_answers(History(history.root)) == fresh_answers(user, tmp_path / "fresh")


@pytest.mark.parametrize("fault", ["deleted", "garbage in place", "its first page"])
def test_an_index_that_breaks_before_a_fold_makes_no_record_a_double(
    tmp_path: Path, journaled: None, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The record is in the journal already when the fold that it causes meets the broken index."""
    first = History(str(tmp_path))
    first.append(entry(1), [learning("a")])
    first.append(entry(2))
    set_sizes(monkeypatch, small=300, share=1000)
    steps: list[Callable[[History], object]] = [
        lambda history: history.append_next(PRD, entry),
        lambda history: history.count_references(["learning-0001"]),
        lambda history: history.add([learning("b")]),
        lambda history: history.append_next(PRD, entry),
    ]
    for step in steps:
        history = History(str(tmp_path))
        assert history.attempts(PRD) < 4
        INDEX_FAULTS[fault](Path(history.index_path))
        step(history)
        assert some_answers(history) == some_answers(History(history.root))
    assert [one.iteration for one in first.entries()] == [1, 2, 3, 4]
    assert [(one.content, one.times_referenced) for one in first.learnings()] == [("a", 1), ("b", 0)]


def test_what_was_written_is_told_although_the_index_breaks(
    tmp_path: Path, journaled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(str(tmp_path))
    for number in (1, 2):
        history.append(entry(number))
    assert history.attempts(PRD) == 2
    set_sizes(monkeypatch, small=300, share=1000)
    Path(history.index_path).unlink()
    assert history.append(entry(3)).entries == (entry(3),)


def test_the_target_of_a_link_in_the_place_of_the_index_is_left_alone(tmp_path: Path, big: bytes) -> None:
    history = with_big(tmp_path / "big", big)
    target = tmp_path / "target"
    for name in ("progress.index", "progress.index.aside"):
        Path(history.folder, name).unlink(missing_ok=True)
        write_sql(target, "CREATE TABLE IF NOT EXISTS theirs (a)")
        before = target.read_bytes()
        Path(history.folder, name).symlink_to(target)
        user = History(history.root)
        assert user.append_next(PRD, entry)
        assert user.attempts(PRD)
        user.fold()
        assert target.read_bytes() == before


@pytest.mark.parametrize("is_open", [False, True], ids=["new", "open"])
def test_an_edit_in_place_of_the_same_size_and_time_is_noticed(tmp_path: Path, big: bytes, is_open: bool) -> None:
    history = with_big(tmp_path / "big", big)
    some_answers(history)
    path = Path(history.path)
    before = path.stat()
    overwrite(path, big.replace(b"learning 7", b"LEARNING 7").replace(b'"899: A sen', b'"899: B sen'), "in place")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    user = history if is_open else History(history.root)
    assert "LEARNING 7" in [one.content for one in user.learnings()]
    assert str(user.entries(last=4)[0].summary).startswith("899: B sen")
    assert some_answers(user) == fresh_answers(user, tmp_path / "fresh")


def test_two_users_settle_the_same_journal(tmp_path: Path, big: bytes) -> None:
    users = [with_big(tmp_path / "big", big), History(str(tmp_path / "big"))]
    for turn in range(12):
        writer, reader = users[turn % 2], users[turn % 3 % 2]
        made = writer.append_next(PRD, entry)
        assert made.iteration == 4 + turn
        if turn % 4 == 1:
            writer.add([learning(f"turn {turn}")])
        assert reader.last_entry(PRD) == made
        assert reader.next_iteration(PRD) == made.iteration + 1
    assert some_answers(users[0]) == some_answers(users[1]) == fresh_answers(users[0], tmp_path / "fresh")


def test_a_place_where_no_index_can_be_written_stops_nothing(tmp_path: Path, big: bytes) -> None:
    (tmp_path / "big/.ralph/progress.index.aside/inside").mkdir(parents=True)
    (tmp_path / "big/.ralph/progress.json").write_bytes(big)
    history = History(str(tmp_path / "big"))
    for number in (1, 2):
        assert history.append_next(PRD, entry).iteration == number
    assert not os.path.exists(history.index_path)
    assert some_answers(history) == some_answers(History(history.root)) == fresh_answers(history, tmp_path / "fresh")
    assert history.fold()
    assert some_answers(history) == fresh_answers(history, tmp_path / "fresh")


# --- forks, threads, closing ------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> None:
    """Runs it in a fork of this process; what goes wrong there goes wrong here."""
    pipe, into = os.pipe()
    if not (pid := os.fork()):
        try:
            work()
        except BaseException:
            os.write(into, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(pipe) as file:
        told = file.read()
    ended = os.waitpid(pid, 0)[1]
    assert not told, told
    assert ended == 0


@pytest.mark.parametrize("size", ["small", "big"])
def test_a_fork_uses_the_same_history(tmp_path: Path, big: bytes, size: str) -> None:
    """Parent and child take turns, with what each of them had open at the fork."""
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    for _ in range(3 - 3 * (size == "big")):
        history.append_next(PRD, entry)
    assert history.attempts(PRD) == 3

    def child() -> None:
        assert history.append_next(PRD, entry).iteration == 4
        assert history.attempts(PRD) == 4
        history.add([learning("of the child")])
        in_child(lambda: history.append_next(PRD, entry))
        assert history.append_next(PRD, entry).iteration == 6
        history.close()
        assert history.attempts(PRD) == 6

    in_child(child)
    assert history.append_next(PRD, entry).iteration == 7
    assert history.learnings()[-1].content == "of the child"
    in_child(lambda: (history.fold(), history.append_next(PRD, entry)))
    assert ids(history.entries(prd_id=PRD)) == [f"{PRD}-{number}" for number in range(1, 9)]
    assert some_answers(history) == some_answers(History(str(tmp_path)))


@pytest.mark.parametrize("size", ["small", "big"])
def test_forks_that_write_at_the_same_time_exclude_each_other(tmp_path: Path, big: bytes, size: str) -> None:
    """They have the same open lock, which would be no lock between them."""
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    before = history.attempts(PRD)
    children = []
    for _ in range(4):
        if not (pid := os.fork()):
            try:
                for _ in range(10):
                    history.append_next(PRD, entry)
                    history.attempts(PRD)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    for _ in range(10):
        history.append_next(PRD, entry)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert [one.iteration for one in history.entries(prd_id=PRD)] == list(range(1, before + 51))
    assert ids(History(str(tmp_path)).load().entries) == ids(history.entries())


def run_threads(*works: Callable[[], object]) -> None:
    failed: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


@pytest.mark.parametrize("size", ["small", "big"])
def test_threads_share_one_history(tmp_path: Path, big: bytes, size: str) -> None:
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    before = history.attempts(PRD)

    def work(name: str) -> None:
        for number in range(10):
            history.append_next(PRD, entry)
            history.add([learning(f"{name} {number}")])
            assert history.attempts(PRD) > number
            assert f"{name} {number}" in [one.content for one in history.learnings()]
            history.entries(last=3)

    run_threads(*(lambda name=name: work(name) for name in "abcd"), history.fold, lambda: history.load())
    assert [one.iteration for one in history.entries(prd_id=PRD)] == list(range(1, before + 41))
    assert len(set(ids(history.learnings(valid_only=False)))) == history.counts()["learnings"]
    assert sum(one.content[1:2] == " " for one in history.learnings()) == 40
    assert some_answers(history) == some_answers(History(str(tmp_path)))


@pytest.mark.parametrize("size", ["small", "big"])
def test_closing_while_another_thread_is_at_work_stops_nothing(tmp_path: Path, big: bytes, size: str) -> None:
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    before = history.attempts(PRD)
    is_over = threading.Event()

    def close() -> None:
        while not is_over.is_set():
            history.close()
            time.sleep(0.0005)

    def work() -> None:
        try:
            for _ in range(25):
                history.append_next(PRD, entry)
                history.attempts(PRD)
        finally:
            is_over.set()

    in_child(lambda: run_threads(close, work))  # a closed connection in use can take the whole process down
    assert [one.iteration for one in history.entries(prd_id=PRD)] == list(range(1, before + 26))


def test_a_closed_history_holds_nothing_open_and_can_be_used_again(history: History) -> None:
    def open_files() -> list[str]:
        folder = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"
        found = [os.path.join(folder, name) for name in os.listdir(folder)]
        return [os.readlink(one) for one in found if os.path.islink(one) and history.root in os.readlink(one)]

    expected = fill(history)
    assert answers(history) == expected
    history.close()
    assert open_files() == []
    history.close()
    assert answers(history) == expected
    assert history.append_next(PRD, entry).iteration == 4
    history.close()
    assert history.fold() or not os.path.exists(history.journal_path)
    history.close()
    assert answers(history).entries == (*expected.entries, entry(4))


def test_a_history_whose_folder_was_removed_begins_anew(history: History) -> None:
    fill(history)
    shutil.rmtree(history.folder)
    assert answers(history) == Content()
    assert history.append(entry(1))
    assert answers(history).entries == answers(History(history.root)).entries == (entry(1),)


# --- a project that may only be read ----------------------------------------------------------------

READER = """\
import sys
from ralphtool.history import History
from ralphtool.history.records import Entry
history = History(sys.argv[1])
print(len(history.entries()), len(history.load().entries), history.export().count(b'"iteration"'))
print(history.entries(last=1)[0].id, history.attempts("add-login-1"), history.counts()["learnings"])
print(len(history.learnings(valid_only=False)), len(history.patterns()), history.next_iteration("add-login-1"))
print(history.problems() + history.notices)
for act in (lambda: history.append(Entry(id="new-1", timestamp="2026-01-31T09:30:00Z", prd_id="new", iteration=1,
                                         status="failed", observations=())), history.fold):
    try:
        act()
        print("done")
    except OSError as error:
        print(type(error).__name__)
print(len(history.entries()))
"""


def read_as_nobody_special(root: str) -> list[str]:
    """Runs the reader where permissions count: root gives up what makes them not count."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    probe = [*drop, "sh", "-c", f"! touch '{root}/.ralph/probe'"]
    if (drop and not shutil.which("setpriv")) or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("root can't give up its rights here")
    done = subprocess.run([*drop, sys.executable, "-c", READER, root], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture
def sealed() -> Iterator[Callable[[History], None]]:
    """Takes the right to write from a history's files and their folder; gives it back in the end."""
    folders = []

    def seal(history: History) -> None:
        folders.append(Path(history.folder))
        for path in Path(history.folder).iterdir():
            path.chmod(0o444)
        Path(history.folder).chmod(0o555)

    yield seal
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize("left", ["everything", "only the document", "document and journal"])
@pytest.mark.parametrize("size", ["small", "big"])
def test_a_project_that_may_only_be_read_is_read(
    tmp_path: Path, big: bytes, sealed: Callable[[History], None], size: str, left: str
) -> None:
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    if size == "small":
        history.append(entry(1), [learning("a")])
        history.append(entry(2))
        history.append(entry(3))
    has_journal = size == "big" and left != "only the document"
    expected = answers(history)
    if has_journal:  # and a line in it that no index knows
        history.append(entry(4))
        expected = expected._replace(entries=(*expected.entries, entry(4)))
    if left != "everything":
        Path(history.index_path).unlink(missing_ok=True)
    if left == "only the document" and size == "big":
        Path(history.journal_path).unlink()
        expected = on_disk(history)
    sealed(history)
    files = {path: path.read_bytes() for path in Path(history.folder).iterdir()}
    total = len(expected.entries)
    attempts = sum(one.prd_id == PRD for one in expected.entries)
    told = read_as_nobody_special(history.root)
    assert told[0] == f"{total} {total} {total}"
    assert told[1] == f"{expected.entries[-1].id} {attempts} {len(expected.learnings)}"
    assert told[2] == f"{len(expected.learnings)} {len(expected.patterns)} {attempts + 1}"
    assert told[3:] == ["[]", "PermissionError", "PermissionError" if has_journal else "done", str(total)]
    assert files == {path: path.read_bytes() for path in Path(history.folder).iterdir()}


def test_a_document_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    """A folder in its place can't be read by anybody."""
    (tmp_path / ".ralph/progress.json").mkdir(parents=True)
    history = History(str(tmp_path))
    for act in (history.load, history.entries, lambda: history.append(entry(1))):
        with pytest.raises((UnsafePath, CorruptState), match=r"progress\.json"):
            act()
