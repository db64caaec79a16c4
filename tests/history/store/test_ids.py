"""The history's store: new ids are free, permanent and unique, and wrong records are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from history.store.histories import fill
from history.store.plain import answers
from history.store.samples import MOMENT, PRD, entry, ids, learning, observation, pattern, written
from msgspec import structs

from ralphtool.errors import InvalidValue
from ralphtool.history import History
from ralphtool.history.journal import Batch
from ralphtool.history.records import Entry, Progress


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
        InvalidValue,
        match=f"entry {wrong.id}: .*(has the same id|does not follow 3: the next one must be 4)",
    ):
        history.append(wrong, [learning("not either")])
    assert answers(history) == before
    assert files == {path.name: path.read_bytes() for path in Path(history.folder).iterdir() if path.suffix != ".index"}


def test_the_first_iteration_is_1(history: History) -> None:
    with pytest.raises(InvalidValue, match="iteration 2 does not follow 0: the next one must be 1"):
        history.append(entry(2))
    assert not os.path.exists(history.path)


@pytest.mark.parametrize("id", [f"{PRD}-2", f"{PRD}-01", "other-1", f"{PRD}--1", "1"])
def test_the_id_of_an_entry_is_its_prd_and_its_iteration(history: History, id: str) -> None:
    with pytest.raises(InvalidValue, match=r"entry .*: the id must be prd_id-iteration|does not match"):
        history.append(structs.replace(entry(1), id=id))
    assert not os.path.exists(history.path)


def test_the_same_entry_again_is_no_second_one(history: History) -> None:
    """Nor are its learnings: a caller that got no confirmation may try again."""
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
    with pytest.raises(InvalidValue, match="another entry has the same id"):
        History(str(tmp_path)).append(entry(1, "b", at="2026-02-01T00:00:00Z"))


def test_what_stands_there_word_for_word_is_not_added_again(history: History) -> None:
    first = history.add([learning("a"), learning("a"), learning("A")], [pattern("p"), pattern("p")])
    assert (ids(first.learnings), ids(first.patterns)) == (["learning-0001", "learning-0002"], ["pattern-0001"])
    later = "2026-03-01T00:00:00Z"
    assert not history.add([learning("a", at=later)], [pattern("p", kind="test-pattern")])
    second = history.add([learning("b")], [pattern("p", description="otherwise"), pattern("q")])
    assert (ids(second.learnings), ids(second.patterns)) == (["learning-0003"], ["pattern-0002", "pattern-0003"])
    history.invalidate("learning-0001", "no longer")
    again = history.add([learning("a", at=later)])  # only valid learnings count as existing
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
        r"entries\[0\]\.observations\[0\]\.id: unknown field; the fields are",
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
