"""The history's store: each added record is there once, and every answer equals the plain one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from history.store.histories import diff, fill
from history.store.plain import Content, answers, on_disk
from history.store.samples import PRD, entry, ids, learning, pattern, written

from ralphtool.errors import CorruptState
from ralphtool.history import History, document


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


@pytest.mark.parametrize("text", ['{"version": "1.0"}', '{"entries": 1}', '{"version": "9.0"}'])
def test_a_history_that_can_not_be_added_to_is_refused_by_a_check(tmp_path: Path, text: str) -> None:
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/progress.json").write_text(text)
    with pytest.raises(CorruptState):
        History(str(tmp_path)).check()


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
    """Neither their times, nor the order of their keys, nor their layout."""
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
    for part in re.split(r"(?<=})(?=\])", kept):  # the old text is still there, in order, with additions in between
        at = after.index(part.rstrip("]"), at)
    assert ids(history.entries()) == ["a-1", "a-2"]
    assert ids(history.learnings()) == ["learning-0004", "learning-0005"]
    assert after.endswith('"version":"1.0"}')
