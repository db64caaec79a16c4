"""A journal that belongs to another document: its records are not mixed up, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from history.store.histories import overwrite
from history.store.journals import Journaled, damaged, goes_on
from history.store.plain import Content, answers, applied, batches, content, on_disk
from history.store.samples import PRD, entry, ids, learning, observation, pattern

from ralphtool.errors import UnsafePath
from ralphtool.history import History


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
    """The document now lacks the PRD's first entry, so none of the others follows."""
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
    """As after a git checkout; the newer document may return."""
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
        assert one.problems() == ["entry a-3: iteration 3 does not follow 1: the next one must be 2"]
    overwrite(Path(history.path), newer, how)
    for one in (history, other, History(history.root)):
        assert ids(answers(one).entries) == ["a-1", "b-1", "a-2", "b-2", "a-3"]
        assert one.problems() == []
    goes_on(other)


def test_a_journal_that_becomes_shorter_takes_no_later_record_with_it(tmp_path: Path, kept: Journaled) -> None:
    """Its end may never have reached the disk, although the index or an open history already has it."""
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
