"""The cost of the loop itself: the third part of `scripts/bench`. Runs of the real command, against yardsticks."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_history import Sample

CHECKOUT = Path(__file__).resolve().parent.parent
COMMAND = str(Path(sys.executable).with_name("ralphtool"))
BASH_LOOP = str(CHECKOUT / "scripts/bench_loop.sh")
FEW, MANY = 5, 30  # iterations; the difference of two runs of the bash loop counts, without the cost of a start
AGENT = """\
#!/bin/sh
token=$(sed -n 's/^token: //p')
echo "$RALPH_STORY" >>work.txt
sed -i "s/^- \\[ \\] $RALPH_STORY\\./- [x] $RALPH_STORY./" openspec/changes/add-login/tasks.md
echo "<promise>COMPLETE:$token</promise>"
"""
SETTINGS = '[verify]\nchecks = []\ntests = []\n[proof]\naccept = "unproven"\n'
STREAM = 100 << 20


class Lab:
    """Projects with a change of many stories, and an agent that does each one immediately."""

    def __init__(self, top: Path) -> None:
        self.top = top / "loop"
        self.top.mkdir()
        self.agent = self.top / "agent.sh"
        self.agent.write_text(AGENT)
        self.agent.chmod(0o755)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        names = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"}
        self.env = {**kept, **names, "HOME": str(self.top), "TMPDIR": str(self.top / "tmp")}
        (self.top / "tmp").mkdir()
        self._count = 0

    def project(self, stories: int, entries: int = 0) -> Path:
        self._count += 1
        root = self.top / f"project-{self._count}"
        if entries:
            Sample().project(root, entries)
        change = root / "openspec/changes/add-login"
        change.mkdir(parents=True)
        (root / ".ralph").mkdir(exist_ok=True)
        (root / ".ralph/config.toml").write_text(SETTINGS)
        (change / "tasks.md").write_text(
            "".join(f"## {n}. Story\n\n- [ ] {n}.1 Do it\n\n" for n in range(1, stories + 1))
        )
        for number in range(50):
            (root / f"file-{number}.txt").write_text(f"{number}\n" * 50)
        for words in (["init", "-q"], ["add", "--", ".", ":!.ralph"], ["commit", "-qm", "first"]):
            subprocess.run(["git", *words], cwd=root, env=self.env, check=True)
        os.sync()
        return root

    def timed(self, command: list[str], root: Path) -> float:
        start = time.perf_counter()
        subprocess.run(command, cwd=root, env=self.env, check=True, stdout=subprocess.DEVNULL)
        spent = time.perf_counter() - start
        shutil.rmtree(root)
        return spent

    def ours(self, entries: int = 0) -> float:
        """Seconds for an iteration of ralphtool, from the starts of the first and last one in the record."""
        root = self.project(MANY, entries)
        command = [COMMAND, "run", "--json", "--agent-command", str(self.agent)]
        done = subprocess.run(command, cwd=root, env=self.env, check=True, stdout=subprocess.PIPE)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        began = [datetime.fromisoformat(one["at"]) for one in events if one["type"] == "iteration_started"]
        shutil.rmtree(root)
        return (began[-1] - began[0]).total_seconds() / (len(began) - 1)

    def theirs(self) -> float:
        """Seconds for an iteration of the bash loop."""
        command = ["bash", BASH_LOOP, str(self.agent)]
        return self._per_iteration(lambda stories: self.timed(command, self.project(stories)))

    def _per_iteration(self, run: Callable[[int], float]) -> float:
        few, many = run(FEW), run(MANY)
        return (many - few) / (MANY - FEW)


def against_bash(top: Path, rounds: int) -> float:
    lab = Lab(top)
    return statistics.median(lab.ours() / lab.theirs() for _ in range(rounds))


def with_history(top: Path, rounds: int) -> float:
    lab = Lab(top)
    return statistics.median(lab.ours(10_000) / lab.ours() for _ in range(rounds))


# --- streaming --------------------------------------------------------------------------------------

OURS = """
import sys, resource
from ralphtool.agents.command import TailReader
from ralphtool.executors import process
from ralphtool.record.events import Agent
from ralphtool.record.log import Log
log = Log(sys.argv[2] + "/events.jsonl")
tail = TailReader()
before = resource.getrusage(resource.RUSAGE_SELF)
with process.Supervisor(None) as supervisor:
    env, into = {"PATH": "/bin:/usr/bin"}, sys.argv[2] + "/transcript"
    run = supervisor.run(["cat", sys.argv[1]], cwd="/", env=env, stdin=None, into=into, wall=600, silence=600)
    for chunk in run:
        for event in tail.feed(chunk):
            log.note(Agent(event=event))
tail.end(0)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""
THEIRS = """
import json, sys, resource, subprocess
before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
with open(sys.argv[2] + "/copy", "wb") as copy:
    subprocess.run(["cat", sys.argv[1]], stdout=copy, check=True)
with open(sys.argv[1], "rb") as file:
    for line in file:
        json.loads(line)
after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after)))
"""


def streaming(top: Path, rounds: int) -> float:
    folder = top / "stream"
    folder.mkdir()
    stream = folder / "stream.jsonl"
    event = {"type": "assistant", "message": {"content": [{"type": "text", "text": "The tests pass now. " * 20}]}}
    line = json.dumps(event).encode() + b"\n"
    stream.write_bytes(line * (STREAM // len(line)))

    def cpu(program: str) -> float:
        done = subprocess.run([sys.executable, "-c", program, stream, folder], check=True, capture_output=True)
        return float(done.stdout)

    return statistics.median(cpu(OURS) / cpu(THEIRS) for _ in range(rounds))


# --- memory -----------------------------------------------------------------------------------------


def memory(top: Path, rounds: int) -> float:
    """Memory of the loop's process after 2,000 iterations / after 20. They fail, so that each is judged again."""
    lab = Lab(top)
    root = lab.project(1)
    command = [
        COMMAND,
        "run",
        "--json",
        "--agent-command",
        "/bin/true",
        "--attempts",
        "9999",
        "--max-iterations",
        "2000",
    ]
    process = subprocess.Popen(command, cwd=root, env=lab.env, stdout=subprocess.PIPE, text=True)
    sizes: dict[int, float] = {}
    for line in process.stdout or ():
        event = json.loads(line)
        if event["type"] == "iteration_started" and event["number"] in (20, 2000):
            sizes[event["number"]] = _resident(process.pid)
    process.wait()
    return sizes[2000] / sizes[20]


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1])


Rows = dict[str, tuple[Callable[[Path, int], float], float]]
ROWS: Rows = {
    "loop: an iteration / bash, jq and git": (against_bash, 1.0),
    "loop: an iteration at 10,000 entries / at none": (with_history, 1.2),
    "loop: CPU for 100 MB of output / cat and json.loads": (streaming, 0.5),
    "loop: memory after 2,000 iterations / after 20": (memory, 1.2),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "loop", top, rounds, word)


def measured(rows: Rows, part: str, top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    """The rows of a part of the bench whose names contain a word."""
    results = []
    for number, (what, (work, at_most)) in enumerate(rows.items()):
        if word not in what:
            continue
        folder = top / f"{part}-{number}"
        folder.mkdir()
        ratio = work(folder, min(rounds, 5))
        ok = ratio <= at_most
        results.append({"what": what, "measure": "time", "measured": round(ratio, 3), "at_most": at_most, "ok": ok})
    return results


if __name__ == "__main__":
    import tempfile

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else ""):
            print(one)
