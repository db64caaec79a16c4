"""Watching: records of any length and in any state, a run in progress, one that dies, one that is replayed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until
from patience import PATIENCE
from project import COMMAND, Ralph
from record.run_records import ID, NOON, Event, Terminal, ended, line, moment, put, records, started, verdict
from views.run_events import all_typed, drawn, told, typed
from views.tmux import Terminal as Tmux

from ralphtool.record.follow import Follower, Replay, skim
from ralphtool.record.lines import LineReader, parse_fields
from ralphtool.views.terminal.picture import RunDisplay


class Over:
    """Says that there is nothing more to wait for."""

    def is_set(self) -> bool:
        return True

    def wait(self, timeout: float) -> None:
        raise AssertionError("there is nothing to wait for")


def clock() -> float:
    return 1772366400.0 + 70


def said(kind: str, at: str = NOON, **fields: Any) -> Event:
    return {"at": at, "type": "agent", "event": {"kind": kind, **fields}}


def state(picture: RunDisplay) -> dict[str, Any]:
    """Everything a view knows, for comparison."""
    return vars(picture.run)


def fed(events: list[Event]) -> RunDisplay:
    view = RunDisplay(clock)
    for event in all_typed(events):
        view.feed(event)
    return view


def happening(length: int, seed: int) -> list[Event]:
    """Random events, in any order."""
    dice = random.Random(seed)
    makers: list[tuple[float, Callable[[], Event]]] = [
        (40, lambda: said("output", text=f"{dice.random()} " + "x" * dice.randrange(200))),
        (9, lambda: said("output", text=" \n" * dice.randrange(3))),
        (9, lambda: said("usage", input_tokens=dice.randrange(100), output_tokens=3, cost=0.125)),
        (9, lambda: said("result", text='{"kind":"usage"}')),
        (9, lambda: said("tool", name="Edit", detail=f"{dice.random()}")),
        (1, lambda: said("failure", trouble="overload", text="busy")),
        (1, lambda: {"at": NOON, "type": "iteration_started", "story": str(dice.randrange(9)), "attempt": 2}),
        (1, lambda: {"at": NOON, "type": "gate_started", "when": "after", "command": f"{dice.random()}"}),
        (1, lambda: {"at": NOON, "type": "gate", "when": "after", "command": "a", "ok": dice.random() < 0.5}),
        (1, lambda: verdict(str(dice.randrange(9)), dice.choice(["completed", "failed", "partial"]))),
        (1, lambda: {"at": NOON, "type": "waiting", "seconds": 9, "why": "limit"}),
        (1, lambda: {"at": NOON, "type": "paused", "why": f"{dice.random()}"}),
        (1, lambda: {"at": NOON, "type": "resumed"}),
        (1, lambda: {"at": NOON, "type": "steered", "action": "skip", "story": "3", "text": "no"}),
        (1, lambda: {"at": NOON, "type": "question", "story": "2"}),
        (1, lambda: {"at": NOON, "type": "answered", "story": "2", "text": "yes"}),
        (1, lambda: {"type": "of_later", "at": 7}),
    ]
    weights, kinds = zip(*makers, strict=True)
    return [started(stories=9), *(make() for make in dice.choices(kinds, weights, k=length))]


# --- any length -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_is_passed_over_makes_no_difference(seed: int) -> None:
    events = happening(300, seed)
    for cut in (0, 7, 150, 301):
        lines = [line(event).rstrip() for event in events]
        view = RunDisplay(clock)
        skipped = 0
        for part in (lines[:cut], lines[cut:]):
            passed = list(skim(part))
            skipped += len(part) - len(passed)
            for event in passed:
                view.feed(event)
        assert state(view) == state(fed(events))
        assert skipped > 50


def test_after_catching_up_the_picture_is_as_if_everything_had_been_fed(tmp_path: Path) -> None:
    events = happening(12_000, 1)
    path = put(tmp_path, ID, *events)
    assert path.stat().st_size > 1 << 20
    follower = Follower(str(path), lambda: RunDisplay(clock), joins=True)
    shown = list(follower.read_new())
    assert shown[0] == typed(events[0])  # it says what the others are about
    assert shown[-1] == list(skim(map(line, events)))[-1]
    assert len(shown) < 5000
    assert drawn(follower.view, 80, 24)[0].startswith("add-login  claude  ralph/add-login")
    assert follower.is_behind

    later = happening(200, 2)[1:]
    with path.open("ab") as file:
        file.writelines(map(line, later[:100]))
        file.flush()
        assert list(follower.read_new())
        while follower.is_behind:
            follower.catch_up(0.001)
        assert state(follower.view) == state(fed(events + later[:100]))
        file.writelines(map(line, later[100:]))
    assert list(follower.read_new())
    assert state(follower.view) == state(fed(events + later))


def test_two_gigabytes_are_never_in_memory(tmp_path: Path) -> None:
    """A head, a hole that reads as zeros, and a tail."""
    head, tail = happening(1000, 3), happening(5000, 4)[1:]
    path = put(tmp_path, ID, *head)
    with path.open("r+b") as file:
        file.seek(2 << 30)
        file.write(b"\n" + b"".join(map(line, tail)))
    tracemalloc.start()
    try:
        follower = Follower(str(path), lambda: RunDisplay(clock), joins=True)
        assert list(follower.read_new())
        while follower.is_behind:
            assert follower.catch_up()
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()
    assert state(follower.view) == state(fed(head + tail))


# --- any state --------------------------------------------------------------------------------------


def texts(reader: LineReader) -> list[str]:
    return [event["text"] for event in map(parse_fields, reader.new()) if event]


def note(text: str) -> bytes:
    return line({"at": NOON, "type": "notice", "text": text})


def test_a_record_that_grows_by_pieces_of_lines(tmp_path: Path) -> None:
    path = put(tmp_path, ID, note("a"), note("b")[:20])
    reader = LineReader(str(path))
    assert texts(reader) == ["a"]
    assert texts(reader) == []
    with path.open("ab") as file:
        file.write(note("b")[20:] + note("c")[:-1])
    assert texts(reader) == ["b"]
    with path.open("ab") as file:
        file.write(b"\n")
    assert texts(reader) == ["c"]


def test_a_line_of_a_hundred_megabytes_is_passed_over(tmp_path: Path) -> None:
    """All of it, however much it looks like events, and wherever blocks end."""
    path = put(tmp_path, ID, note("before"))
    with path.open("ab") as file:
        for _ in range(100):
            file.write((note("inside")[:-1] + b" " * (1 << 20))[: (1 << 20) - file.tell() % (1 << 20)])
    tracemalloc.start()
    try:
        reader = LineReader(str(path))
        assert texts(reader) == ["before"]
        with path.open("ab") as file:
            file.write(b" \n" + note("after"))
        assert texts(reader) == ["after"]
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_record_that_is_taken_away_and_put_back_goes_on(tmp_path: Path) -> None:
    path = put(tmp_path, ID, note("a"), note("b"))
    reader = LineReader(str(path))
    assert texts(reader) == ["a", "b"]
    path.unlink()
    assert texts(reader) == []
    put(tmp_path, ID, note("a"))
    assert texts(reader) == []  # it is being rewritten
    put(tmp_path, ID, note("a"), note("b"), note("c"))
    assert texts(reader) == ["c"]
    assert reader.restarts == 0


@pytest.mark.parametrize("other", [[note("x")], [note("x"), note("y"), note("z")]], ids=["shorter", "longer"])
def test_another_record_in_its_place_is_read_from_its_beginning(tmp_path: Path, other: list[bytes]) -> None:
    path = put(tmp_path, ID, note("a"), note("b"), note("c")[:30])
    reader = LineReader(str(path))
    assert texts(reader) == ["a", "b"]
    put(tmp_path, ID, *other)
    assert [*texts(reader), *texts(reader)] == ["x", "y", "z"][: len(other)]
    assert reader.restarts == 1


def test_a_follower_begins_anew_with_another_record(tmp_path: Path) -> None:
    events = happening(50, 5)
    path = put(tmp_path, ID, *happening(12_000, 1))
    follower = Follower(str(path), lambda: RunDisplay(clock), joins=True)
    assert list(follower.read_new())
    put(tmp_path, ID, *events)
    for _ in range(3):
        list(follower.read_new())
    assert state(follower.view) == state(fed(events))
    assert not follower.is_behind


def test_a_line_that_is_not_utf_8_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"type":"notice","text":"f\xfcr dich"}\n{"type":"notice","text":"yes"}\n')
    assert texts(LineReader(str(path))) == ["yes"]


@pytest.mark.parametrize("what", ["nothing", "empty", "directory", "fifo", "link", "zeros"])
def test_what_is_no_record_has_no_events(tmp_path: Path, what: str) -> None:
    path = tmp_path / "events.jsonl"
    made: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "empty": path.touch,
        "directory": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("/dev/zero"),
        "zeros": lambda: path.write_bytes(b"\0" * 3_000_000),
    }
    made[what]()
    for joins in (False, True):
        assert list(Follower(str(path), RunDisplay, joins=joins).follow_events(Over())) == [None]


# --- steering ---------------------------------------------------------------------------------------

GUIDED = {"at": NOON, "type": "steered", "action": "guide", "story": "1", "text": "use bcrypt"}
PAUSED = {"at": NOON, "type": "paused", "why": "you asked for it"}


def picture(*events: Event, height: int = 24) -> str:
    return "\n".join(drawn(fed([started(), *events]), 80, height))


def test_what_people_say_is_told() -> None:
    assert told(
        started(),
        GUIDED,
        {"type": "steered", "action": "guide", "story": None, "text": "be quick"},
        *({"type": "steered", "action": action, "story": "1", "text": ""} for action in ("pause", "retry", "skip")),
        {"type": "steered", "action": "of-later", "text": "x"},
        PAUSED,
        {"type": "steered", "action": "resume", "text": ""},
        {"type": "resumed"},
        {"type": "answered", "story": "1", "prd_id": "add-login-1", "text": "mail.example.org"},
    )[1:] == [
        "your guidance for 1. Story 1: use bcrypt",
        "your guidance: be quick",
        "you asked for a pause",
        "you gave 1. Story 1 fresh attempts",
        "you skipped 1. Story 1",
        "your command: of-later: x",
        "paused: you asked for it",
        "you resumed it",
        "1. Story 1: you answered: mail.example.org",
    ]


def test_the_picture_shows_what_people_said() -> None:
    begun = {"at": NOON, "type": "iteration_started", "story": "1"}
    assert "your guidance for 1. Story 1: use bcrypt" in picture(begun, GUIDED)
    assert "use bcrypt" not in picture(GUIDED, begun)
    assert "paused: you asked for it" in picture(PAUSED)
    assert "paused: you asked for it; current iterations finish first" in picture(begun, PAUSED)
    assert "paused: you asked for it" in picture(PAUSED, height=4)
    assert "paused" not in picture(PAUSED, {"at": NOON, "type": "resumed"})
    waits = {"at": NOON, "type": "waiting", "seconds": 100, "why": "rate limit"}
    assert "waiting 00:30 more: rate limit" in picture(waits, GUIDED)
    asked = {"at": NOON, "type": "question", "story": "1"}
    assert "1 question needs your answer: ralphtool questions" in picture(asked)
    assert "for you" not in picture(asked, {"at": NOON, "type": "answered", "story": "1", "text": "yes"})


def test_what_a_tool_gave_back_does_not_hide_the_tool() -> None:
    begun = {"at": NOON, "type": "iteration_started", "story": "1"}
    assert "Bash make test" in picture(begun, said("tool", name="Bash", detail="make test"), said("result", text="ok"))


# --- replay -----------------------------------------------------------------------------------------


def test_a_record_is_played_by_its_own_clock(tmp_path: Path) -> None:
    """An hour, 36,000 times as fast; then a night, for which the replay waits only a moment."""
    times = ["12:00:00", "12:30:00", "13:00:00", "23:00:00"]
    path = put(tmp_path, ID, *({**started(), "at": f"2026-03-01T{one}.000000Z"} for one in times))
    made: list[Any] = []
    replay = Replay(str(path), lambda clock: made.append(clock) or RunDisplay(clock), 36_000.0)  # type: ignore[func-returns-value]
    seen = [(event, made[0]()) for event in replay.follow_events(Over())]
    at = [then for event, then in seen if event]
    assert [then - at[0] for then in at] == [0, 1800, 3600, 11 * 3600]
    between = [then - at[0] for event, then in seen if not event]
    assert between == sorted(between)
    assert any(3600 < then < 11 * 3600 for then in between)


def test_a_million_times_as_quick_is_not_slow(tmp_path: Path) -> None:
    path = put(tmp_path, ID, *happening(3000, 6), ended())
    events = [event for event in Replay(str(path), RunDisplay, 0).follow_events(Over()) if event]
    known = [event for event in happening(3000, 6) if typed(event)]
    assert len(events) == len(known) + 1


# --- the command ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A real run that has ended."""
    lab = Lab(tmp_path_factory.mktemp("finished"))
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    return lab


def test_a_run_that_is_over_is_told_at_once(finished: Lab) -> None:
    done = finished.run("watch")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "\n2 of 2 stories are done" in done.stdout
    assert done.stdout.startswith("add-login-2")
    assert finished.run("watch", "add-login").stdout == done.stdout


def test_a_run_that_is_over_is_played_again(finished: Lab) -> None:
    done = finished.run("watch", "--replay", "--speed", "0")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("[00:00] add-login: 2 stories, 0 done, scripted")
    assert next(number for number, one in enumerate(lines) if one.startswith("2 of 2 stories are done")) > 5
    [path] = records(finished)
    events = finished.run("watch", "--json").stdout
    assert [json.loads(one) for one in events.splitlines()] == [
        json.loads(one) for one in path.read_text().splitlines()
    ]
    assert finished.run("watch", "--json", "--speed", "0").stdout == events


def test_it_is_played_in_a_terminal(finished: Lab) -> None:
    with Terminal(finished, "watch", "--speed", "600") as screen:
        seen, code = screen.rest()
    assert code == 0
    assert "2 of 2 stories" in seen
    assert seen.index("2 of 2 stories") < seen.index("2 of 2 stories are done")


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--replay", "--speed", "0")], ids=" ".join)
def test_a_reader_that_goes_away_does_not_hurt(finished: Lab, arguments: tuple[str, ...]) -> None:
    words = " ".join([COMMAND, "watch", *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=finished.root,
        env=finished.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    assert done.returncode in (0, 1)  # it may or may not have written all of it by then


def test_a_run_that_is_not_there(project: Ralph) -> None:
    assert "there are no runs yet" in project.run("watch", "--json").error["error"]
    put(project.root, ID, started())
    failed = project.run("watch", "--json", "nope")
    assert (failed.exit_code, failed.code) == (1, "INVALID_VALUE")
    for speed in ("-1", "nan", "1e7"):
        assert "is not between 0 and 1,000,000" in project.run("watch", "--speed", speed).stderr
    told = project.run("watch", "--help").stdout
    assert "watch [OPTIONS] [RUN]" in told
    assert "x<=" not in told


def test_a_run_that_died_says_what_to_do(project: Ralph) -> None:
    put(project.root, ID, started(), verdict("0"), {"at": NOON, "type": "checkpoint", "story": "0"})
    done = project.run("watch")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == "[00:00] add-login: 2 stories, 0 done, claude, branch ralph/add-login"
    assert done.stderr.startswith(f"Error: {ID} died (last event at ")
    assert "`ralphtool run add-login` resumes where it stopped" in done.stderr
    with Terminal(project, "watch", columns=80) as screen:
        seen, code = screen.rest()
    assert code == 1
    assert "1 of 2 stories" in seen.replace("\x1b[0m", "").replace("\x1b[2m", "")
    failed = project.run("watch", "--json")
    assert json.loads(failed.stderr)["code"] == "RUN_DIED"


def test_a_real_run_is_watched_until_it_is_killed(lab: Lab) -> None:
    lab.repository().play(default=[{"say": "I begin"}, {"hang": True}])
    run = lab.start()
    try:
        assert wait_until(lambda: any(b"I begin" in path.read_bytes() for path in records(lab)))
        with Terminal(lab, "watch") as screen:
            screen.shows("add-login", "of 2 stories", "I begin")
            screen.process.send_signal(signal.SIGINT)
            seen, code = screen.rest()
        assert code == 130
        assert "The run continues: `ralphtool watch` shows it again" in seen
        assert run.poll() is None
        with Terminal(lab, "watch") as screen:
            screen.shows("I begin")
            run.kill()
            run.wait(120)
            seen, code = screen.rest()
        assert code == 1
        assert " died (last event at" in seen
    finally:
        kill(run)


class Made:
    """A made-up run, written by this process."""

    def __init__(self, ralph: Ralph, *events: Event) -> None:
        self.path = put(ralph.root, ID, started(pid=os.getpid(), at=moment(), stories=30), *events)

    def add(self, *events: Event) -> None:
        with self.path.open("ab") as file:
            file.writelines(map(line, events))


BEGUN = {"type": "iteration_started", "story": "7", "attempt": 1, "attempts": 3}


def test_what_is_said_and_done_is_on_the_screen_until_the_end(project: Ralph) -> None:
    run = Made(project, {"at": moment(), **BEGUN})
    with Terminal(project, "watch", NO_COLOR="1") as screen:
        screen.shows("7. Story 7", "attempt 1 of 3", "the agent starts")
        run.add(said("tool", moment(), name="Bash", detail="make test"), said("result", moment(), text="hidden"))
        screen.shows("Bash make test")
        run.add({**GUIDED, "at": moment()}, {**PAUSED, "at": moment()})
        screen.shows("your guidance for 1. Story 1: use bcrypt", "  paused: you asked for it; current iterations")
        run.add({"at": moment(), "type": "resumed"}, ended())
        seen, code = screen.rest()
    assert code == 0
    assert "2 of 2 stories are done." in seen
    assert "hidden" not in seen
    assert "\x1b[1" not in seen.replace("\x1b[1A", "")  # no colour: only the cursor moves


@pytest.mark.parametrize(
    ("columns", "rows", "env"),
    [(20, 5, {}), (80, 24, {"TERM": "dumb"}), (80, 24, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})],
    ids=["20x5", "dumb", "ascii"],
)
def test_every_terminal_has_a_sensible_view(project: Ralph, columns: int, rows: int, env: dict[str, str]) -> None:
    run = Made(project, {"at": moment(), **BEGUN})
    with Terminal(project, "watch", columns=columns, rows=rows, **env) as screen:
        screen.shows("add-login", "7. Story 7")
        run.add({"at": moment(), "type": "notice", "text": "café"}, ended())
        seen, code = screen.rest()
    assert code == 0
    assert "stories are" in seen
    assert env.get("TERM") != "dumb" or "\x1b[" not in seen
    assert "LC_ALL" not in env or (seen.isascii() and r"caf\xe9" in seen)


def test_lines_begin_with_what_led_here_and_go_on(project: Ralph) -> None:
    notes = [{"at": moment(), "type": "notice", "text": f"note {number}"} for number in range(50)]
    noise = [said("output", moment(), text="x" * 300) for _ in range(3000)]
    run = Made(project, *noise, *notes)
    command = [COMMAND, "watch"]
    with subprocess.Popen(command, cwd=project.root, env=project.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline().partition("] ")[2] or "..." for _ in range(12)]
        assert lines == [
            "add-login: 30 stories, 0 done, claude, branch ralph/add-login\n",
            "...",
            *(f"note {number}\n" for number in range(40, 50)),
        ]
        run.add({"at": moment(), "type": "notice", "text": "and now"}, ended())
        assert process.stdout.readline().endswith("] and now\n")
        assert process.stdout.readline() == "2 of 2 stories are done.\n"
        process.stdout.read()
        assert process.wait(120) == 0


def test_of_several_runs_the_newest_that_goes_on_is_watched(project: Ralph) -> None:
    for second, at in ((0, moment()), (1, moment()), (2, "2020-01-01T00:00:00.000000Z")):
        put(project.root, f"c{second}-20260301-12000{second}-1a2b", started(f"c{second}", pid=os.getpid(), at=at))
    with Terminal(project, "watch", NO_COLOR="1") as screen:
        seen = screen.shows("c1  claude")
    assert "Watching c1-20260301-120001-1a2b; also in progress: c0-20260301-120000-1a2b" in seen


def test_a_record_that_is_taken_away_while_it_is_watched(project: Ralph) -> None:
    with subprocess.Popen([sys.executable, "-c", "open(0).read()"], stdin=subprocess.PIPE) as other:
        path = put(project.root, ID, started(pid=other.pid, at=moment(5)))
        with Terminal(project, "watch", NO_COLOR="1") as screen:
            screen.shows("add-login  claude")
            path.unlink()
            assert other.stdin
            other.stdin.close()
            seen, code = screen.rest()
    assert code == 1
    assert f"the record of {ID} was deleted" in seen
    assert "Traceback" not in seen


def adding(run: Made, over: threading.Event) -> None:
    while not over.wait(0.01):
        run.add(*(said("output", moment(), text=f"line {number}") for number in range(10)))


@pytest.fixture
def noisy(project: Ralph) -> Iterator[Ralph]:
    """A run whose agent prints endlessly, and has already printed a lot."""
    run = Made(project, {"at": moment(), **BEGUN}, *(said("output", NOON, text="x" * 300) for _ in range(50_000)))
    over = threading.Event()
    thread = threading.Thread(target=adding, args=(run, over))
    thread.start()
    yield project
    over.set()
    thread.join()


@pytest.mark.parametrize("terminal", [(60, 12)], indirect=True, ids=["60x12"])
def test_a_noisy_run_in_a_real_terminal(terminal: Tmux, noisy: Ralph) -> None:
    places = f"HOME={noisy.home} TMPDIR={noisy.tmp}"
    terminal.type(f"PS1='ready> '; cd {noisy.root}; clear; {places} {COMMAND} watch")
    seen = terminal.screen("add-login  claude", "0 of 30 stories", "attempt 1 of 3", "line 9")
    assert seen.count("add-login  claude") == seen.count("of 30 stories") == 1
    for _ in range(5):
        assert terminal.screen("line 9").count("of 30 stories") == 1
    terminal("send-keys", "C-c")
    seen = terminal.screen("The run continues", "ready>")
    assert "of 30 stories" not in seen
    assert "Traceback" not in seen
