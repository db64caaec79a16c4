"""The cost of a start: a part of `scripts/bench`. CPU time of real commands / that of `python -I -c pass`, in turns."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from bench_loop import Lab, Rows, measured
from bench_watch import COMMAND, FEW, PYTHON, RUNS, Project, ended, long_run

# Runs `ralphtool`, and prints its CPU time, without its children, when the first event of a run is written.
TO_FIRST_EVENT = """
import os, sys, time
sync = os.fdatasync
def measured(fd):
    used = time.process_time()
    if os.readlink(f"/proc/self/fd/{fd}").endswith("events.jsonl"):
        os.write(1, str(used).encode())
        os._exit(0)
    sync(fd)
os.fdatasync = measured
from ralphtool.__main__ import main
sys.exit(main())
"""


def cpu(command: list[str], folder: Path, env: dict[str, str]) -> float:
    """CPU seconds of a process and of the children that it waited for."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    os.chdir(folder)
    pid = os.posix_spawn(command[0], command, env, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return used.ru_utime + used.ru_stime


def ratio(ours: Callable[[], float], floor: Callable[[], float], rounds: int) -> float:
    ours()  # so that everything is compiled and cached
    return statistics.median(ours() / floor() for _ in range(rounds))


def starting(*arguments: str) -> Callable[[Path, int], float]:
    """A read-only command, with twenty runs in the project."""

    def measure_command(top: Path, rounds: int) -> float:
        project = Project(top)
        for number in range(RUNS):
            project.record(number, iter([*long_run(FEW), ended()]))
        places = (project.root, project.env)
        command, floor = [COMMAND, *arguments], [PYTHON, "-I", "-c", "pass"]
        return ratio(lambda: cpu(command, *places), lambda: cpu(floor, *places), 7 * rounds)

    return measure_command


def to_first_event(top: Path, rounds: int) -> float:
    """A run with a command as its agent, each in a fresh copy of a small repository."""
    lab = Lab(top)
    begun, numbers = lab.project(5), count()
    words = [PYTHON, "-c", TO_FIRST_EVENT, "run", "--agent-command", "true"]

    def ours() -> float:
        place = lab.top / f"copy-{next(numbers)}"
        shutil.copytree(begun, place / "project")
        (place / "tmp").mkdir()
        env = {**lab.env, "TMPDIR": str(place / "tmp")}
        done = subprocess.run(words, cwd=place / "project", env=env, check=True, capture_output=True)
        shutil.rmtree(place)
        return float(done.stdout.split()[-1])  # after what the run has printed by then

    return ratio(ours, lambda: cpu([PYTHON, "-I", "-c", "pass"], lab.top, lab.env), 7 * rounds)


ROWS: Rows = {
    "run to its first event / python": (to_first_event, 9.0),
    "list / python": (starting("list"), 4.5),
    "watch / python": (starting("watch"), 5.0),
    "runs / python": (starting("runs"), 8.0),
    "questions / python": (starting("questions"), 8.0),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "start: CPU", top, rounds, word)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else ""):
            print(one)
