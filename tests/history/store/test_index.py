"""The history's index: whatever happens to it, the answers remain those of the document."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from history.store.histories import MANY, diff, overwrite, some_answers, with_big
from history.store.plain import answers, journal_lines, on_disk
from history.store.samples import PRD, entry, learning, set_sizes, written
from msgspec import structs

from ralphtool.history import History


def fresh_answers(history: History, top: Path) -> list[object]:
    """The answers after a full load elsewhere, without index and journal."""
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


# Without tables that are changed with SQL while in use: that would not be an accident.
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
    """The record is already in the journal when the fold that it triggers finds the broken index."""
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
