"""Ticks are noticed while an agent works, and nothing is read before something has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphtool.errors import SpecError
from ralphtool.executors.tick_watch import TickWatch


class Stage:
    """A file of ticks, one word each, and the reported changes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tasks.md"
        self.file.write_text("")
        self.reads = 0
        self.told: list[list[str]] = []
        paths = [str(self.file), str(folder / "session")]
        self.watch = TickWatch(paths, self.read, frozenset(), lambda ticked: self.told.append(sorted(ticked)))

    def read(self) -> frozenset[str]:
        self.reads += 1
        text = self.file.read_text()
        if "broken" in text:
            raise SpecError("it is broken")
        return frozenset(text.split())

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.watch.look(at_once=True)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_every_change_of_the_ticks_is_told_once(stage: Stage) -> None:
    for text in ("1.1", "1.1 1.2", "1.2 1.1 ", "1.2"):
        stage.write(text)
    assert stage.told == [["1.1"], ["1.1", "1.2"], ["1.2"]]


def test_nothing_is_read_before_something_has_changed(stage: Stage) -> None:
    for _ in range(3):
        stage.watch.look(at_once=True)
    assert stage.reads == 0
    stage.write("1.1")
    stage.watch.look(at_once=True)
    assert stage.reads == 1


def test_it_is_not_looked_all_the_time(stage: Stage) -> None:
    stage.watch.look()
    stage.file.write_text("1.1")
    assert not stage.watch.look_and_ask(lambda: False)
    assert stage.told == []
    assert stage.watch.look_and_ask(lambda: True), "who has to stop is told so"


def test_a_session_that_appears_is_a_change(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "session").write_text("{}")
    stage.watch.look(at_once=True)
    assert stage.reads == 1


def test_what_is_broken_for_a_moment_is_passed_over(stage: Stage) -> None:
    stage.write("broken")
    stage.write("1.1")
    assert stage.told == [["1.1"]]


@pytest.mark.parametrize("kind", ["a pipe", "a flood", "nothing"])
def test_what_is_no_spec_any_more_keeps_nobody_waiting(stage: Stage, kind: str) -> None:
    stage.file.unlink()
    if kind == "a pipe":
        os.mkfifo(stage.file)
    elif kind == "a flood":
        with stage.file.open("wb") as file:
            file.truncate(1 << 30)
    stage.watch.look(at_once=True)
    assert stage.told == []
