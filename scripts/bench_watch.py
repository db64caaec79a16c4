"""The cost of watching: a part of `scripts/bench`. The real commands, in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from bench_loop import Rows, measured

PYTHON = sys.executable
COMMAND = str(Path(sys.executable).with_name("ralphtool"))
CHANGE = "add-login"
RUNS = 20
FEW, MANY = 1_000, 1_000_000
LINES = 1_000  # that an agent prints per second
WARM, LONG = 2.0, 6.0  # seconds before measuring, and of measuring
LONGEST = 60.0


class Project:
    """A project with a change, and runs with generated records; their process is this one, so they count as active."""

    def __init__(self, top: Path) -> None:
        self.root = top / "project"
        change = self.root / "openspec/changes" / CHANGE
        change.mkdir(parents=True)
        (change / "tasks.md").write_text("".join(f"## {n}. Story\n\n- [ ] {n}.1 Do it\n\n" for n in range(1, 21)))
        for folder in ("tmp", "home"):
            (top / folder).mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        places = {"HOME": str(top / "home"), "TMPDIR": str(top / "tmp")}
        self.env = {**kept, **places, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}

    def record(self, number: int, events: Iterator[dict[str, Any]]) -> Path:
        path = self.root / f".ralph/runs/{CHANGE}-20260301-1200{number:02}-1a2b/events.jsonl"
        path.parent.mkdir(parents=True)
        with path.open("w") as file:
            file.writelines(line(event) for event in events)
        return path


def line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":")) + "\n"


def at(milliseconds: int) -> str:
    moment = datetime.now(UTC) + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}Z"


def started() -> dict[str, Any]:
    stories = [{"id": str(n), "title": "Story", "tasks_total": 1, "tasks_done": 0, "done": False} for n in range(1, 21)]
    about = {"change": CHANGE, "agent": "claude", "branch": f"ralph/{CHANGE}", "pid": os.getpid()}
    return {"at": at(0), "type": "run_started", **about, "stories": stories}


def ended() -> dict[str, Any]:
    stories = [{"id": str(n), "title": "Story", "state": "done", "attempts": 1} for n in range(1, 21)]
    return {"at": at(0), "type": "run_ended", "result": "done", "stories": stories, "spent": {"cost": 1.5}, "next": []}


def said(number: int, moment: str) -> dict[str, Any]:
    if number % 100 == 7:
        return {"at": moment, "type": "agent", "event": {"kind": "usage", "input_tokens": 9, "output_tokens": 3}}
    text = f"line {number} of what an agent prints while it works on a story\n"
    return {"at": moment, "type": "agent", "event": {"kind": "output", "text": text}}


def long_run(length: int) -> Iterator[dict[str, Any]]:
    """A run with this many events so far, nearly all from its agent; each attempt has a fifth of them."""
    moment = at(0)
    yield started()
    share = max(2, length // 5)
    for number in range(1, length):
        about = {"at": moment, "story": str(1 + number // share), "attempt": 1}
        if number % share == 1:
            yield {**about, "type": "iteration_started", "attempts": 3}
        elif number % share == share - 1:
            yield {**about, "type": "verdict", "status": "completed", "summary": "done"}
        else:
            yield said(number, moment)


# --- a screen ---------------------------------------------------------------------------------------


class Screen:
    """`ralphtool watch` in a terminal of 80 by 24."""

    def __init__(self, project: Project) -> None:
        self.begun = time.perf_counter()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [COMMAND, "watch"], cwd=project.root, env=project.env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def read(self, until: float) -> bytes:
        """The next output; empty if there is none until then."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.perf_counter()))
        return os.read(self._ours, 65536) if ready else b""

    def shows(self, word: bytes) -> float:
        """Seconds from the start until a word is on the screen."""
        seen = b""
        while word not in seen:
            if not (block := self.read(self.begun + LONGEST)):
                raise SystemExit(f"{word!r} never was on the screen")
            seen += block
        return time.perf_counter() - self.begun

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            while self.read(time.perf_counter() + LONGEST):
                pass
        except OSError:
            pass  # the end of a terminal
        self.process.wait(LONGEST)
        os.close(self._ours)


def first_paint(top: Path, rounds: int) -> float:
    """At 1,000,000 events / at 1,000, in turns."""
    places = {}
    for length in (FEW, MANY):
        (top / str(length)).mkdir()
        places[length] = Project(top / str(length))
        places[length].record(0, long_run(length))
    taken = [{length: _painted(place) for length, place in places.items()} for _ in range(2 * rounds + 1)]
    return statistics.median(one[MANY] / one[FEW] for one in taken[1:])


def _painted(project: Project) -> float:
    screen = Screen(project)
    try:
        return screen.shows(CHANGE.encode())
    finally:
        screen.close()


# --- keeping up -------------------------------------------------------------------------------------


def cpu(top: Path, rounds: int) -> float:
    """The share of one core that watching takes while an agent prints a thousand lines a second."""
    project = Project(top)
    path = project.record(0, long_run(FEW))
    with _printing(path):
        screen = Screen(project)
        try:
            screen.shows(CHANGE.encode())
            _read_for(screen, WARM)
            before = psutil.Process(screen.process.pid).cpu_times()
            begun = time.perf_counter()
            _read_for(screen, LONG)
            after = psutil.Process(screen.process.pid).cpu_times()
            passed = time.perf_counter() - begun
        finally:
            screen.close()
    return (after.user + after.system - before.user - before.system) / passed


def _read_for(screen: Screen, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        screen.read(end)


@contextmanager
def _printing(path: Path) -> Iterator[None]:
    """A record that gets a thousand events per second, each in a separate write."""
    over = threading.Event()
    thread = threading.Thread(target=_print, args=(path, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _print(path: Path, over: threading.Event) -> None:
    begun, number = time.perf_counter(), 0
    with path.open("ab", buffering=0) as file:
        while not over.wait(0.01):
            due = int((time.perf_counter() - begun) * LINES)
            for one in range(number, due):
                file.write(line(said(one, at(0))).encode())
            number = due


ROWS: Rows = {
    "watch: first paint at 1,000,000 events / at 1,000": (first_paint, 1.5),
    "watch: CPU at 1,000 lines a second": (cpu, 0.10),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "watch", top, rounds, word)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else ""):
            print(one)
