"""Shared by the tests of remote jobs: a separate queue, workers in threads and in processes, and their actions.

The payload of a job names the action of its worker; files in a folder say when. Run as a program, this is a worker:

    jobs.py ADDRESS QUEUE IDENTITY FOLDER
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lab import wait_until
from patience import PATIENCE
from project import TESTS

from ralphtool.executors.temporal.link import JobLimits, JobState, Link, RemoteJob
from ralphtool.executors.temporal.serving import JobContext, JobEnded, JobRefused, JobRetry, serve
from ralphtool.settings.executor import ExecutorSettings

CALM = JobLimits(heartbeat=PATIENCE)  # no worker is replaced because the machine is busy
NERVOUS = JobLimits(heartbeat=2.0, attempts=100)


class Worker:
    """A worker in a thread of the test."""

    def __init__(self, settings: ExecutorSettings, folder: Path, identity: str = "anna", slots: int = 2) -> None:
        self.settings = settings
        self.folder = folder
        self.identity = identity
        self.slots = slots
        self.stop = threading.Event()
        self.begun: list[tuple[str, int]] = []
        self.ended: dict[str, str] = {}
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self) -> Worker:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(PATIENCE)

    def serve(self) -> None:
        serve(
            self.settings,
            slots=self.slots,
            identity=self.identity,
            carry_out=self.carry_out,
            stop=self.stop,
            ready=(self.folder / f"{self.identity} is ready").touch,
        )

    def carry_out(self, job: JobContext, payload: bytes) -> bytes:
        self.begun.append((job.id, job.attempt))
        note(self.folder, f"{self.identity} begins {job.attempt}")
        try:
            return bytes(getattr(self, payload.decode())(job))
        finally:
            self.ended[job.id] = job.why_end
            note(self.folder, f"{self.identity} ends {job.attempt} {job.why_end}".strip())

    def hello(self, job: JobContext) -> bytes:
        return b"hello of " + self.identity.encode()

    def wait(self, job: JobContext) -> bytes:
        """Waits until it must end, or the test creates the file `go`."""
        number = 0
        while not job.must_end() and not (self.folder / "go").exists():
            number += 1
            job.beat(b"%d" % number)
            time.sleep(0.02)
        return f"{self.identity} {job.why_end}".strip().encode()

    def wait_and_leave(self, job: JobContext) -> bytes:
        self.wait(job)
        raise JobEnded

    def refuse(self, job: JobContext) -> bytes:
        raise JobRefused("login", "nobody is logged in")

    def fail_once(self, job: JobContext) -> bytes:
        if job.attempt == 1:
            raise JobRetry("network", "no route")
        return b"the second time"

    def fail_always(self, job: JobContext) -> bytes:
        raise JobRetry("network", "no route")

    def crash(self, job: JobContext) -> bytes:
        raise ZeroDivisionError("a bug\nin two lines")

    def say_too_much(self, job: JobContext) -> bytes:
        return bytes(300_000)


def note(folder: Path, text: str) -> None:
    with open(folder / "notes", "a") as notes:
        notes.write(f"{text}\n")


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


class Workers:
    """Workers in separate processes."""

    def __init__(self, settings: ExecutorSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, identity: str) -> subprocess.Popen[bytes]:
        arguments = [self.settings.address, self.settings.queue, identity, str(self.folder)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        process = subprocess.Popen([sys.executable, __file__, *arguments], env=environment)
        self.processes.append(process)
        assert wait_until((self.folder / f"{identity} is ready").exists)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(PATIENCE)


def reach(job: RemoteJob, *states: str, also: Callable[[JobState], object] = bool) -> JobState:
    """Waits until the job is in one of these states."""
    seen: list[JobState] = []

    def holds() -> bool:
        seen.append(job.look())
        return seen[-1].state in states and bool(also(seen[-1]))

    assert wait_until(holds), seen[-1]
    return seen[-1]


def has_told(state: JobState) -> bool:
    return state.heartbeat != b""


def open_link(settings: ExecutorSettings, patience: float = PATIENCE) -> Link:
    return Link.open(settings, patience=patience)


def main() -> None:
    address, queue, identity, folder = sys.argv[1:]
    worker = Worker(ExecutorSettings(address=address, queue=queue), Path(folder), identity)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop.set())
    worker.serve()
    os._exit(0)  # as `ralphtool worker` does: threads of the library may still wait for a server


if __name__ == "__main__":
    main()
