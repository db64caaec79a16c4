"""The cost of work on other machines, a part of `scripts/bench`: a real server and two workers, all on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_loop import COMMAND, Lab, Rows, measured
from bench_side import AGENT, SETTINGS, STORIES, WAIT

from ralphtool.executors.temporal.dev_server import DevServer

MOST = 2.0  # seconds
ALONE = 4  # stories, one after another
HANG = """\
#!/bin/sh
echo $$ >{file}
exec sleep 1000
"""


class WorkersLab(Lab):
    """Runs the same change here and on workers."""

    @contextmanager
    def open(self, slots: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Starts the server and two workers."""
        with DevServer(tempfile.mkdtemp(dir=self.top)) as server:
            self.env["TEMPORAL_ADDRESS"] = server.address
            workers = [self._start_worker(name, slots) for name in ("anna", "berta")]
            try:
                yield workers
            finally:
                for one in workers:
                    one.kill()
                    one.wait()

    def _start_worker(self, name: str, slots: int) -> subprocess.Popen[bytes]:
        place = self.top / f"worker-{name}-{time.monotonic_ns()}"
        (place / "tmp").mkdir(parents=True)
        words = ["worker", "--name", name, "--slots", str(slots), "--home", str(place / "home")]
        env = self.env | {"HOME": str(place), "TMPDIR": str(place / "tmp")}
        made = subprocess.Popen([COMMAND, *words], cwd=place, env=env, stdout=subprocess.PIPE, start_new_session=True)
        assert made.stdout
        made.stdout.readline()  # it is ready
        return made

    def run(self, *flags: str, stories: int, wait: float) -> float:
        """The seconds of a run."""
        root = self._make(stories, AGENT.replace("{wait}", str(wait)))
        began = time.perf_counter()
        subprocess.run(
            [COMMAND, "run", "--json", *flags, "--agent-command", str(self.agent)],
            cwd=root,
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took = time.perf_counter() - began
        shutil.rmtree(root)
        return took

    def _make(self, stories: int, agent: str) -> Path:
        root = self.project(stories)
        (root / ".ralph/config.toml").write_text(SETTINGS)
        self.agent.write_text(agent)
        return root

    def hang(self) -> tuple[subprocess.Popen[bytes], int]:
        """A run whose agent does nothing: the run, and the number of agent processes."""
        said = self.top / "agent-is-there"
        said.unlink(missing_ok=True)
        root = self._make(1, HANG.replace("{file}", str(said)))
        with open(root / ".ralph/config.toml", "a") as file:
            file.write(f'[sandbox]\nwrite = ["{self.top}"]\n')
        run = subprocess.Popen(
            [COMMAND, "run", "--json", "--executor", "temporal", "--agent-command", str(self.agent)],
            cwd=root,
            env=self.env,
            stdout=subprocess.DEVNULL,
        )
        while not said.exists():
            time.sleep(0.01)
        return run, _count_agents()


def _count_agents() -> int:
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            count += Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\x00"
        except OSError:
            continue
    return count


def _wait_until_gone() -> float:
    began = time.perf_counter()
    while _count_agents():
        time.sleep(0.01)
    return time.perf_counter() - began


def compare_stories(top: Path, rounds: int) -> float:
    """The extra time of a story / the two seconds that are allowed."""
    lab = WorkersLab(top)

    def measure_one() -> float:
        away = lab.run("--executor", "temporal", stories=ALONE, wait=0)
        here = lab.run("--workspace", "box", stories=ALONE, wait=0)
        return (away - here) / ALONE / MOST

    with lab.open(1):
        return statistics.median([measure_one() for _ in range(rounds + 1)][1:])


def compare_lanes(top: Path, rounds: int) -> float:
    lab = WorkersLab(top)

    def measure_one() -> float:
        away = lab.run("--executor", "temporal", "--side-by-side", "4", stories=STORIES, wait=WAIT)
        return away / lab.run("--side-by-side", "4", stories=STORIES, wait=WAIT)

    with lab.open(2):
        return statistics.median([measure_one() for _ in range(rounds + 1)][1:])


def measure_cancel(top: Path, rounds: int) -> float:
    lab = WorkersLab(top)
    taken = []
    with lab.open(1):
        for _ in range(rounds):
            run, _ = lab.hang()
            time.sleep(2)  # it is in its steady state now
            run.send_signal(signal.SIGINT)
            taken.append(_wait_until_gone())
            run.wait()
    return statistics.median(taken) / MOST


def measure_death(top: Path, rounds: int) -> float:
    lab = WorkersLab(top)
    taken = []
    for _ in range(rounds):
        with lab.open(1) as workers:
            run, _ = lab.hang()
            for one in workers:
                one.kill()
            taken.append(_wait_until_gone())
            run.send_signal(signal.SIGINT)
            run.wait()
    return statistics.median(taken) / MOST


ROWS: Rows = {
    "workers: what a story takes more than here, of 2 s": (compare_stories, 1.0),
    "workers: a cancel until the agent is gone, of 2 s": (measure_cancel, 1.0),
    "workers: the agent is gone after its worker's death, of 2 s": (measure_death, 1.0),
    "workers: eight stories whose agents wait, two workers of two slots / four lanes here": (compare_lanes, 1.2),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "workers", top, rounds, word)


if __name__ == "__main__":
    for name, (measured_row, bound) in ROWS.items():
        with tempfile.TemporaryDirectory() as place:
            rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
            print(f"{measured_row(Path(place), rounds):6.2f}  (bound {bound})  {name}", flush=True)
