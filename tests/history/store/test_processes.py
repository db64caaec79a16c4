"""The history's store across forks and threads, and when it is closed."""

from __future__ import annotations

import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from history.store.histories import fill, some_answers, with_big
from history.store.plain import Content, answers
from history.store.samples import PRD, entry, ids, learning

from ralphtool.history import History


def in_child(work: Callable[[], object]) -> None:
    """Runs it in a fork of this process; an error there is an error here."""
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
    """Parent and child take turns, with the files that were open at the fork."""
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
    """They inherit the same open lock, which would not exclude them from each other."""
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

    in_child(lambda: run_threads(close, work))  # a connection that is closed while in use can crash the process
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
