"""The speed of the agent's commands and the history: ratios against yardsticks on the same machine, in turns.

A ratio says more than a time: machines differ, and so does one machine from minute to minute. So each round
runs every contender once, in another order each time; a row shows the median of the rounds' ratios.
If even that is too noisy, callgrind counts instructions. docs/performance.md explains the rows.

To add a row, add a line to ROWS; to add a contender, a line to `contenders`. The rows of the history, which need no
separate processes, are in bench_history.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench_agents
import bench_box
import bench_history
import bench_list
import bench_loop
import bench_memory
import bench_proof
import bench_side
import bench_start
import bench_watch
import bench_web
import bench_workers

CHECKOUT = Path(__file__).resolve().parent.parent
OPENSPEC = CHECKOUT / ".tools/openspec/node_modules/.bin/openspec"
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
COUNTS = 3
CHANGE = "add-login"
MEMORY = "/dev/shm"  # where Linux has a file system without a disk
TEXT = (
    "The test database is made by `make db`, which must run before pytest and again after every migration: "
    "without it, half of the tests are skipped."
)


@dataclass(frozen=True)
class Row:
    """One contender against another. `at_most` is the bound; None if the row is only for information."""

    what: str
    measure: str
    contender: str
    against: str
    at_most: float | None = None


TIME, INSTRUCTIONS = "time", "instructions"
ROWS = (
    Row("agent learn / python -I -c pass", TIME, "learn", "python", 1.3),
    Row("agent task done / python -I -c pass", TIME, "task done", "python", 1.7),
    Row("agent status / python -I -c pass", TIME, "status", "python", 1.5),
    # What the program itself takes: on a disk, most of the rest is the file system, which frees the replaced files.
    Row("agent learn, files in memory / python -I -c pass", TIME, "learn in memory", "python", 1.3),
    Row("agent task done, files in memory / python -I -c pass", TIME, "task done in memory", "python", 1.5),
    Row("agent learn / python -I -c pass", INSTRUCTIONS, "learn", "python", 1.3),
    Row("agent task done / python -I -c pass", INSTRUCTIONS, "task done", "python", 1.5),
    Row("agent status / python -I -c pass", INSTRUCTIONS, "status", "python", 1.5),
    Row("agent context, 500 tasks, configured / python -I -c pass", TIME, "context", "python", 2.8),
    Row("agent context, 500 tasks, inferred / python -I -c pass", TIME, "context inferred", "python", 2.8),
    Row("agent recall, 1,000 learnings in the memory / python -I -c pass", TIME, "recall", "python", 4.0),
    Row("agent learn / bash with flock, jq and sync", TIME, "learn", "bash", 1.0),
    Row("agent learn / openspec status --json", TIME, "learn", "openspec", 0.1),
    Row("agent learn, 1000 buffered / 10 buffered", TIME, "learn 1000", "learn", 1.3),
)
# Only shown on request (--only import): what the usual modules would cost on the hot path.
MODULES = ("re", "json", "typing", "dataclasses", "pathlib", "tempfile", "subprocess", "datetime", "tomllib", "click")
IMPORT_ROWS = tuple(Row(f"import {name} / python -I -c pass", TIME, f"import {name}", "python") for name in MODULES)


# --- contenders -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A command, its folder, and the files that are restored before each run, so that none of them grows."""

    command: list[str]
    folder: Path
    env: dict[str, str]
    restored: dict[Path, bytes] = field(default_factory=dict)

    def restore(self) -> None:
        for path, data in self.restored.items():
            path.write_bytes(data)
            # Otherwise the contender's own fsync would pay for our write.
            for synced in (path, path.parent):
                _sync(synced)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def contenders(top: Path, memory: Path) -> dict[str, Contender]:
    """All contenders, each with its own project and temporary directory."""
    python = install(top / "venv")
    small, big = Sample(python, stories=5, tasks=4), Sample(python, stories=50, tasks=10)
    ralph = {
        "learn": small.session(top / "learn", learnings=10).agent("learn", TEXT),
        "learn 1000": small.session(top / "learn-1000", learnings=1000).agent("learn", TEXT),
        "task done": small.session(top / "task-done", learnings=10).agent("task", "done", "1.1"),
        "learn in memory": small.session(memory / "learn", learnings=10).agent("learn", TEXT),
        "task done in memory": small.session(memory / "task-done", learnings=10).agent("task", "done", "1.1"),
        "status": small.session(top / "status", learnings=10).agent("status"),
        "context": big.session(top / "context", learnings=10, configured=True).agent("context"),
        "context inferred": big.session(top / "inferred", learnings=10).agent("context"),
    }
    knowing = small.session(top / "recall", learnings=10)
    bench_memory.Bench(top).teach(knowing.root, 1_000)
    ralph["recall"] = knowing.agent("recall", TEXT)  # its first answer, which is not timed, creates the index
    bash = small.session(top / "bash", learnings=10)
    openspec = small.session(top / "openspec", learnings=10)
    return {
        **ralph,
        "bash": bash.contender("bash", str(CHECKOUT / "scripts/bench_learn.sh"), str(bash.session_file), TEXT),
        "openspec": openspec.contender(str(OPENSPEC), "status", "--json", "--change", CHANGE),
        **{f"import {name}": bash.contender(python, "-I", "-c", f"import {name}") for name in MODULES},
        "python": bash.contender(python, "-I", "-c", "pass"),
    }


def install(folder: Path) -> str:
    """Installs a wheel, compiled by pip, as for users; without setuptools, which slows down every start."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = str(folder / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-qq", "--compile", CHECKOUT], check=True)
    return python


@dataclass(frozen=True)
class Sample:
    """An OpenSpec change of a given size."""

    python: str
    stories: int
    tasks: int

    def session(self, top: Path, *, learnings: int, configured: bool = False) -> Session:
        root = top / "project"
        change = root / "openspec/changes" / CHANGE
        for folder in (change / "specs/auth", root / ".ralph", top / "tmp", top / "home"):
            folder.mkdir(parents=True)
        (change / "tasks.md").write_text(self._tasks())
        (change / "proposal.md").write_text("## Why\n\n" + "Users want to stay logged in. " * 30 + "\n")
        (change / "design.md").write_text("## Context\n\n" + "Sessions live in the database for now. " * 50 + "\n")
        (change / "specs/auth/spec.md").write_text(_spec(scenarios=12))
        (root / "pyproject.toml").write_text("[tool.ruff]\n[tool.mypy]\n[tool.pytest.ini_options]\n")
        if configured:
            lines = ("[verify]", 'checks = ["make lint", "make types"]', 'tests = ["make test"]')
            (root / ".ralph/config.toml").write_text("\n".join(lines) + "\n")
        return Session(self.python, top, learnings)

    def _tasks(self) -> str:
        lines = ["# Tasks", ""]
        for story in range(1, self.stories + 1):
            lines += [f"## {story}. Part {story} of the login", ""]
            lines += [f"- [ ] {story}.{task} Write step {task} and its test" for task in range(1, self.tasks + 1)]
            lines.append("")
        return "\n".join(lines)


def _spec(scenarios: int) -> str:
    lines = ["## ADDED Requirements", "", "### Requirement: Login", "Users SHALL be able to log in.", ""]
    for number in range(1, scenarios + 1):
        lines += [f"#### Scenario: Case {number}", "- **GIVEN** a known user"]
        lines += [f"- **WHEN** the password is right {number} times", "- **THEN** the user is in", ""]
    return "\n".join(lines)


class Session:
    """A session in its first story, with some learnings in its buffer."""

    def __init__(self, python: str, top: Path, learnings: int) -> None:
        self.root = top / "project"
        self.command = str(Path(python).with_name("ralphtool"))
        self.session_file = top / "tmp/ralph/sessions/s1.json"
        self.env = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(top / "home"),
            "TMPDIR": str(top / "tmp"),
            "RALPH_SESSION": "s1",
            "OPENSPEC_TELEMETRY": "0",
            "DO_NOT_TRACK": "1",
        }
        for arguments in (("init", "--change", CHANGE), ("next-story",)):
            answer(self.contender(self.command, "agent", "session", *arguments))
        self._buffer(learnings)

    def _buffer(self, learnings: int) -> None:
        state = json.loads(self.session_file.read_text())
        about = {"task_id": "1.1", "story_id": "1", "iteration": 1, "timestamp": "2026-01-31T09:30:00.000123Z"}
        state["learnings"] = [{"description": f"{TEXT} Seen {n} times.", **about} for n in range(1, learnings + 1)]
        self.session_file.write_text(json.dumps(state) + "\n")

    def agent(self, *arguments: str) -> Contender:
        return self.contender(self.command, "agent", *arguments)

    def contender(self, program: str, *arguments: str) -> Contender:
        tasks = self.root / "openspec/changes" / CHANGE / "tasks.md"
        restored = {path: path.read_bytes() for path in (tasks, self.session_file) if path.exists()}
        return Contender([shutil.which(program) or program, *arguments], self.root, self.env, restored)


# --- measuring --------------------------------------------------------------------------------------


def answer(contender: Contender, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a contender once, without measuring; a failing one must not count as fast."""
    contender.restore()
    command = [*prefix, *contender.command]
    done = subprocess.run(command, cwd=contender.folder, env=contender.env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def seconds(contender: Contender) -> float:
    contender.restore()
    os.chdir(contender.folder)
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = time.perf_counter()
    # Not subprocess: its overhead would be added to both sides, and improve the ratio.
    pid = os.posix_spawn(contender.command[0], contender.command, contender.env, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(contender.command)} failed in the middle of the run")
    return took


def instructions(contender: Contender) -> float:
    _, _, after = answer(contender, CALLGRIND).stderr.partition("Collected :")
    return float(after.split()[0])


def timed_rounds(runners: dict[str, Contender], rounds: int) -> list[dict[str, float]]:
    """The seconds of every contender, round by round."""
    names = list(runners)
    measured = []
    for number in range(rounds if names else 0):
        start = number % len(names)
        order = names[start:] + names[:start]
        measured.append({name: seconds(runners[name]) for name in order})
    return measured


def measure(rows: list[Row], everybody: dict[str, Contender], rounds: int) -> list[dict[str, Any]]:
    for name in names_in(rows):
        answer(everybody[name])
    found = {
        TIME: timed_rounds({name: everybody[name] for name in names_in(rows, TIME)}, rounds),
        INSTRUCTIONS: [
            {name: instructions(everybody[name]) for name in names_in(rows, INSTRUCTIONS)} for _ in range(COUNTS)
        ],
    }
    return [result(row, found[row.measure]) for row in rows]


def measure_commands(rows: list[Row], top: Path, rounds: int) -> list[dict[str, Any]]:
    if not os.path.isdir(MEMORY):
        rows = [row for row in rows if "in memory" not in row.contender]
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else top) as memory:
        results = measure(rows, contenders(top, Path(memory)), rounds)
        os.chdir(CHECKOUT)
    return results


def names_in(rows: list[Row], kind: str | None = None) -> list[str]:
    wanted = [row for row in rows if kind in (None, row.measure)]
    return list(dict.fromkeys(name for row in wanted for name in (row.contender, row.against)))


def result(row: Row, rounds: list[dict[str, float]]) -> dict[str, Any]:
    ratio = statistics.median(one[row.contender] / one[row.against] for one in rounds)
    ok = row.at_most is None or ratio <= row.at_most
    return {"what": row.what, "measure": row.measure, "measured": round(ratio, 3), "at_most": row.at_most, "ok": ok}


# --- the command ------------------------------------------------------------------------------------


def show(results: list[dict[str, Any]]) -> None:
    width = max(len(one["what"]) for one in results)
    print(f"{'what'.ljust(width)}  {'measure':12}  {'measured':>8}  {'at most':>7}")
    for one in results:
        bound = "" if one["at_most"] is None else f"{one['at_most']:.1f}  {'ok' if one['ok'] else 'OVER'}"
        print(f"{one['what'].ljust(width)}  {one['measure']:12}  {one['measured']:8.2f}  {'':4}{bound}".rstrip())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures the agent's commands.")
    parser.add_argument(
        "part", nargs="?", choices=["memory"], help="`memory`: does it help? (without it: all that is timed)"
    )
    parser.add_argument("--meaning", action="store_true", help="with `memory`: by meaning too, which takes much longer")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds of timing (default: 60)")
    parser.add_argument("--only", default="", metavar="WORD", help="rows that contain WORD; `import` shows imports")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return chosen


def picked(word: str) -> list[Row]:
    return [row for row in (*ROWS, *IMPORT_ROWS) if word in f"{row.what} {row.measure}"] if word else list(ROWS)


def main() -> int:
    chosen = arguments()
    if chosen.part == "memory":
        return bench_memory.helps(as_json=chosen.json, by_meaning=chosen.meaning)
    rows = picked(chosen.only)
    with tempfile.TemporaryDirectory(prefix="ralphtool-bench-") as top:
        print("installing ralphtool as a wheel, then measuring: about ten minutes …", file=sys.stderr)
        results = measure_commands(rows, Path(top), chosen.rounds) if rows else []
        results += bench_history.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_loop.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_agents.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_memory.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_box.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_side.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_start.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_list.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_watch.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_web.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_workers.measure(Path(top), chosen.rounds, chosen.only)
        results += bench_proof.measure(Path(top), chosen.rounds, chosen.only)
    if not results:
        raise SystemExit(f"no row contains {chosen.only!r}")
    if chosen.json:
        print(json.dumps({"python": platform.python_version(), "rounds": chosen.rounds, "rows": results}, indent=2))
    else:
        show(results)
    return 0 if all(one["ok"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
