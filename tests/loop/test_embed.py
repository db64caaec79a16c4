"""A run started by a program: examples/embed.py, and what `start` promises to such a program."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralphtool import errors
from ralphtool.loop import run
from ralphtool.record import events
from ralphtool.record.lines import LineReader, read_type

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples/embed.py"


def test_a_program_of_less_than_fifty_lines_starts_a_run_and_watches_it(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 50
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, EXAMPLE], env=env, capture_output=True, text=True)
    assert done.stderr == ""
    *verdicts, last = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in verdicts] == [
        *("story 1, attempt 1", "story 2, attempt 1", "story 2, attempt 2"),
        *("story 3, attempt 1", "story 3, attempt 2", "story 4, attempt 1", "story 5, attempt 1"),
    ]
    assert last == "unfinished: no story can be worked on now"


@pytest.fixture
def project(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    return lab.repository().play(
        default=[{"append": "work.txt", "text": "more\n"}, {"tick": "all"}, {"complete": True}]
    )


def test_a_run_prints_nothing_and_tells_where_its_record_is(project: Any, capfd: pytest.CaptureFixture[str]) -> None:
    result = run.start(str(project.root), "add-login")
    assert result.ended.result == "done"
    assert result.record is not None
    found = list(map(events.decode, LineReader(result.record).new()))
    assert (type(found[0]), type(found[-1])) == (events.RunStarted, events.RunEnded)
    assert capfd.readouterr() == ("", "")


def test_a_viewer_can_ask_the_run_to_stop(project: Any) -> None:
    stop = run.StopRequest()
    seen: list[str] = []

    @contextmanager
    def viewer(record: str) -> Iterator[None]:
        stop.ask()
        with watch(seen, record):
            yield

    result = run.start(str(project.root), "add-login", viewer=viewer, stop=stop)
    assert result.ended.result == "interrupted"
    assert seen[-1] == "run_ended"
    assert stop.is_closing


@contextmanager
def watch(seen: list[str], record: str) -> Iterator[None]:
    """The simplest viewer: the types of a run's events, once it has ended."""
    try:
        yield
    finally:
        seen.extend((read_type(line) or b"").decode() for line in LineReader(record).new())


def test_an_error_ends_the_record_and_goes_to_the_caller(project: Any) -> None:
    seen: list[str] = []
    project.write(".git/index", "damaged")
    with pytest.raises(errors.RalphError, match="index"):
        run.start(str(project.root), "add-login", viewer=partial(watch, seen))
    assert seen == ["run_started", "notice", "run_ended"]


def test_a_finished_change_has_nothing_left_to_run(project: Any) -> None:
    assert run.start(str(project.root), "add-login").ended.result == "done"
    assert project.run("finish", "add-login", "--squash").exit_code == 0
    result = run.start(str(project.root), "add-login")
    assert (result.record, result.ended.result) == (None, "done")


@pytest.mark.parametrize("kind", [str, Path])
def test_the_project_may_be_a_relative_path(project: Any, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root.parent)
    result = run.start(kind(project.root.name), "add-login")
    assert result.ended.result == "done"
    assert result.record == str(project.root / ".ralph/runs" / Path(str(result.record)).parent.name / "events.jsonl")


@contextmanager
def broken(record: str) -> Iterator[None]:
    raise RuntimeError("this viewer is broken")
    yield


def test_after_an_error_the_same_program_may_start_the_next_run(project: Any) -> None:
    with pytest.raises(RuntimeError, match="this viewer is broken"):
        run.start(project.root, "add-login", viewer=broken)
    assert run.start(project.root, "add-login").ended.result == "done"
