"""A project whose iterations run on workers: a real server, a bare remote, and workers with their own homes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from lab import Lab, Process, processes_with, wait_until
from loop.lanes import CODE, FOUR, GATE, check_commits, list_stories, of_kind
from patience import PATIENCE
from project import COMMAND

from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.executors.temporal.link import Link
from ralphtool.settings.executor import ExecutorSettings


class Farm:
    """The project is `lab`. All files of a worker are in `top/<its name>`."""

    def __init__(self, lab: Lab, server: DevServer, queue: str) -> None:
        self.lab = lab
        self.server = server
        self.queue = queue
        self.top = lab.root.parent / "farm"
        self.remote = self.top / "remote.git"
        self.meet = self.top / "meet"  # a folder that agents in different boxes share
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.meet.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", "--bare", self.remote], check=True)

    def make(self, tasks: str = FOUR, heartbeat: str = "15m", **config: Any) -> Farm:
        """With a long heartbeat no worker is replaced because the machine is busy; some tests need a short one."""
        self.lab.write("gate.sh", CODE)
        self.lab.repository(tasks, tests=[GATE], **{"executor": "temporal", "side_by_side": 2, **config})
        told = {"address": self.server.address, "queue": self.queue, "remote": str(self.remote), "heartbeat": heartbeat}
        lines = ["[executor]", *(f"{name} = {json.dumps(value)}" for name, value in told.items())]
        lines += ["[sandbox]", f"write = [{json.dumps(str(self.meet))}]"]
        was = self.lab.read(".ralph/config.toml").replace('workspace = "here"', 'workspace = "auto"')
        self.lab.write(".ralph/config.toml", was + "\n".join(lines) + "\n")
        return self

    def start_worker(self, name: str = "anna", *options: str, **env: str) -> subprocess.Popen[bytes]:
        """Returns when the worker takes work."""
        place = self.top / name
        for folder in ("home", "tmp"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        words = ["--address", self.server.address, "--queue", self.queue, "--name", name, "--slots", "2"]
        own = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), **env}
        with open(place / "log", "wb") as log:
            worker = subprocess.Popen(
                [COMMAND, "worker", *words, "--home", str(place / "work"), *options],
                cwd=place,
                env={**self.lab.env, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers[name] = worker
        assert wait_until(lambda: "takes work" in (place / "log").read_text() or worker.poll() is not None)
        assert worker.poll() is None, (place / "log").read_text()
        return worker

    def stop_worker(self, name: str, how: int = signal.SIGTERM) -> int:
        worker = self.workers.pop(name)
        if worker.poll() is None:
            worker.send_signal(how)
        return worker.wait(PATIENCE)

    def wait_for(self, name: str) -> None:
        """Waits for a file that an agent creates in the shared folder."""
        assert wait_until(lambda: (self.meet / name).exists() or not self.all_work()), self.describe()
        assert (self.meet / name).exists(), self.describe()

    def all_work(self) -> bool:
        return all(worker.poll() is None for worker in self.workers.values())

    def describe(self) -> str:
        """Everything known about a test that waits in vain."""
        logs = [f"{name}: {(self.top / name / 'log').read_text()}" for name in self.workers]
        with closing(Link.open(ExecutorSettings(address=self.server.address, queue=self.queue))) as link:
            told = [*link.list_workers(), *link.list_jobs()]
        events = [json.dumps(one) for one in self.lab.events()]
        return "\n".join([*map(str, sorted(self.meet.iterdir())), *logs, *map(str, told), *events[-20:]])

    def let_go(self, name: str) -> None:
        (self.meet / name).touch()

    def count_agents(self) -> int:
        """How many agents with `count` as their first step have started."""
        counted = self.meet / "agents"
        return len(counted.read_text().splitlines()) if counted.exists() else 0

    def hold_pushes(self, hook: str, refs: str = "refs/ralph/results/*-work-*") -> None:
        """A push of such a ref creates the file `pushing`, and waits for `push`: before or after the ref is created."""
        wait = f"touch {self.meet}/pushing; while [ ! -e {self.meet}/push ]; do sleep 0.05; done"
        self.write_hook(hook, f'while read old new ref; do case "$ref" in {refs}) {wait};; esac; done')

    def write_hook(self, name: str, script: str) -> Path:
        path = self.remote / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def check_done(self, *stories: str) -> None:
        """One green commit for each; nothing is left, and no attempt was charged."""
        assert sorted(list_stories(self.lab)) == sorted(stories)
        check_commits(self.lab)
        assert read_remote(self.remote, "for-each-ref") == ""
        assert self.lab.git("for-each-ref", "refs/ralph/orders", "refs/ralph/results", "refs/ralph/sent") == ""
        events = self.lab.events()
        assert {one["attempt"] for one in of_kind(events, "iteration_started")} == {1}, events
        assert {entry["status"] for entry in self.lab.entries()} == {"completed"}

    def end(self) -> None:
        for worker in self.workers.values():
            os.kill(worker.pid, signal.SIGCONT) if worker.poll() is None else None
            worker.kill()
            worker.wait(PATIENCE)
        assert wait_until(lambda: not self.list_left()), self.list_left()

    def list_left(self, name: str = "") -> list[str]:
        """The processes of agents, gates and workers, or of one worker."""
        return processes_with(f"{self.top}/{name}")


def find_worker_events(events: list[dict[str, Any]], story: str) -> list[str]:
    return [one["worker"] for one in events if one["type"] == "worker" and one["story"] == story]


def finish(run: Process) -> None:
    """Waits for the end of a run, with everything done."""
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, (out.decode()[-4000:], err.decode())


def find_notices(events: list[dict[str, Any]], part: str) -> list[str]:
    return [one["text"] for one in of_kind(events, "notice") if part in one["text"]]


def count(farm: Farm) -> dict[str, Any]:
    """A step of a script, for `count_agents`."""
    return {"run": f"echo {{story}} >> {farm.meet}/agents"}


def pause_until(farm: Farm, begun: str, go: str) -> dict[str, Any]:
    """A step of a script that creates a file and waits for another."""
    return {"run": f"touch {farm.meet}/{begun}; while [ ! -e {farm.meet}/{go} ]; do sleep 0.05; done"}


def read_remote(path: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=path, capture_output=True, check=True)
    return done.stdout.decode().strip()
