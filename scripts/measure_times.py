"""How long single steps take on this machine: the input of `scripts/simulate_scale.py`, shown in docs/scale.md.

.venv/bin/python scripts/measure_times.py remote    a bare git remote, with many refs and many clients
.venv/bin/python scripts/measure_times.py loop      the steps of the loop's own thread, in real runs with eight lanes

The remote is a folder: no network is involved, and the clients share its processors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench_side import SETTINGS, SideLab

FILES, FOLDERS = 3_000, 30
WORKED = 40  # stories of a timed run
IDENTITY = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **IDENTITY}
STEPS = ("_listen", "_find_ready", "_begin", "_take_work", "_merge", "_prove_upon", "_look_ahead", "_take_proof")
OTHERS = ("_take_ahead", "_settle", "_conclude_job", "_find_baseline", "_prove_first", "_take_end")
AGENTS_END = "_wait"  # the time in which the thread is idle


# --- the remote -------------------------------------------------------------------------------------


def run_git(folder: Path, *words: str, input: str = "", index: str = "") -> str:
    env = {**os.environ, **PLAIN, **({"GIT_INDEX_FILE": index} if index else {})}
    done = subprocess.run(["git", *words], cwd=folder, env=env, input=input, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Remote:
    """A bare repository of some thousand files, and a clone of it for each client."""

    def __init__(self, top: Path, clients: int) -> None:
        self.folder = top / "remote.git"
        self.folder.mkdir()
        run_git(self.folder, "init", "-q", "--bare", "-b", "main")
        lines = [
            f"blob\nmark :{n}\ndata {len(text)}\n{text}\n" for n in range(1, FILES + 1) if (text := f"{n}\n" * 200)
        ]
        names = [f"M 100644 :{n} folder-{n % FOLDERS}/file-{n}.txt\n" for n in range(1, FILES + 1)]
        head = "commit refs/heads/main\ncommitter x <x> 0 +0000\ndata 5\nfirst\n"
        run_git(self.folder, "fast-import", "--quiet", input="".join((*lines, head, *names)))
        self.main = run_git(self.folder, "rev-parse", "main")
        self.clients = [self._clone(top / f"client-{n}.git") for n in range(clients)]
        self._numbers = count(1)

    def _clone(self, folder: Path) -> Path:
        run_git(self.folder.parent, "clone", "-q", "--bare", "--no-local", str(self.folder), str(folder))
        return folder

    def fill(self, refs: int, *, is_packed: bool) -> None:
        """Leaves exactly this many refs there, each with its own commit."""
        for name in run_git(self.folder, "for-each-ref", "--format=%(refname)", "refs/ralph").split():
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "packed-refs").unlink(missing_ok=True)
        run_git(self.folder, "update-ref", "refs/heads/main", self.main)
        commits = [
            f"commit refs/ralph/filled/{n}\ncommitter x <x> {n} +0000\ndata 1\nx\nfrom {self.main}\n\n"
            for n in range(refs)
        ]
        run_git(self.folder, "fast-import", "--quiet", "--force", input="".join(commits))
        if is_packed:
            run_git(self.folder, "pack-refs", "--all")

    def make_commit(self, client: Path) -> str:
        """A commit that changes one file."""
        number = next(self._numbers)
        index = str(client / f"index-{number}")
        blob = run_git(client, "hash-object", "-w", "--stdin", input=f"changed {number} {client.name}\n")
        run_git(client, "read-tree", self.main, index=index)
        entry = f"100644,{blob},folder-1/file-{1 + FOLDERS * (number % 50)}.txt"
        run_git(client, "update-index", "--add", "--cacheinfo", entry, index=index)
        tree = run_git(client, "write-tree", index=index)
        os.unlink(index)
        return run_git(client, "commit-tree", tree, "-p", self.main, "-m", "work")

    def push(self, client: Path) -> Callable[[], object]:
        commit = self.make_commit(client)
        ref = f"refs/ralph/attempts/{commit[:12]}"
        words = ("push", "-q", f"--force-with-lease={ref}:", str(self.folder), f"{commit}:{ref}")
        return lambda: run_git(client, *words)

    def fetch(self, client: Path) -> Callable[[], object]:
        """Fetches a ref that another client has just pushed."""
        other = next(one for one in (*self.clients, client) if one is not client or len(self.clients) == 1)
        commit = self.make_commit(other)
        ref = f"refs/ralph/attempts/{commit[:12]}"
        run_git(other, "push", "-q", str(self.folder), f"{commit}:{ref}")
        return lambda: run_git(client, "fetch", "-q", "--no-tags", str(self.folder), ref)

    def list_refs(self, client: Path) -> Callable[[], object]:
        return lambda: run_git(client, "ls-remote", str(self.folder), "refs/ralph/attempts/*")


def time_clients(remote: Remote, prepare: Callable[[Path], Callable[[], object]], at_once: int) -> dict[str, float]:
    """The median time of one call, and the calls per second, with this many clients at once."""
    rounds = max(1, 8 // at_once)
    calls = [[prepare(client) for _ in range(rounds)] for client in remote.clients[:at_once]]

    def work(own: list[Callable[[], object]]) -> list[float]:
        return [_time_one(call) for call in own]

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        taken = [one for some in pool.map(work, calls) for one in some]
    whole = time.perf_counter() - began
    return {"seconds": round(statistics.median(taken), 4), "a_second": round(len(taken) / whole, 1)}


def _time_one(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure_remote(top: Path) -> list[dict[str, Any]]:
    remote, rows = Remote(top, clients=32), []
    for refs, is_packed in ((1, False), (1_000, False), (10_000, False), (10_000, True)):
        remote.fill(refs, is_packed=is_packed)
        for what, prepare in (("push", remote.push), ("fetch", remote.fetch), ("ls-remote", remote.list_refs)):
            for at_once in (1, 8, 32):
                found = time_clients(remote, prepare, at_once)
                rows.append({"what": what, "refs": refs, "packed": is_packed, "clients": at_once, **found})
    return rows


# --- the loop's own steps ---------------------------------------------------------------------------


class StepTimes:
    """The seconds of each step, without the steps that it called."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = defaultdict(list)
        self._inner: list[float] = []

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        self._inner.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - began
            self.taken[name].append(whole - self._inner.pop())
            if self._inner:
                self._inner[-1] += whole

    def wrap(self, kind: Any, name: str) -> None:
        original = getattr(kind, name)

        @wraps(original)
        def timed(*given: Any, **named: Any) -> Any:
            with self.measure(name):
                return original(*given, **named)

        setattr(kind, name, timed)


class TimedEnds:
    """The queue of lanes that have ended: waiting for one does not count as work."""

    def __init__(self, ends: Any, times: StepTimes) -> None:
        self._ends, self._times = ends, times
        self.put = ends.put

    def get(self, timeout: float) -> Any:
        with self._times.measure(AGENTS_END):
            return self._ends.get(timeout=timeout)


def run_timed(out: str, words: list[str]) -> int:
    """A run of the real command in this process, with each step of its loop timed."""
    from ralphtool.cli.main import main as run_command
    from ralphtool.loop import lane, side_by_side

    times = StepTimes()
    for name in (*STEPS, *OTHERS):
        times.wrap(side_by_side.SideBySide, name)
    begin = lane.LanePool.__init__

    def with_clock(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.ends = TimedEnds(self.ends, times)

    with patch.object(lane.LanePool, "__init__", with_clock):
        code = run_command(words)
    Path(out).write_text(json.dumps(times.taken))
    return code


class LoopLab(SideLab):
    def time_steps(self, stories: int, files: int) -> dict[str, Any]:
        """One run with eight lanes, whose agents do their stories immediately; it ends after forty of them."""
        root = self.project(stories)
        self._add_files(root, files)
        (root / ".ralph/config.toml").write_text(SETTINGS)
        out = self.top / "times.json"
        command = ["run", "--side-by-side", "8", "--max-iterations", str(WORKED), "--agent-command", str(self.agent)]
        mine = [sys.executable, str(Path(__file__).resolve()), "timed", "--out", str(out), *command]
        subprocess.run(mine, cwd=root, env=self.env, stdout=subprocess.DEVNULL, check=False)  # not all stories are done
        taken = {name: values for name, values in json.loads(out.read_text()).items() if name != AGENTS_END}
        rows = {name: describe(values) for name, values in sorted(taken.items())}
        whole = sum(sum(values) for values in taken.values()) / WORKED
        return {"stories": stories, "files": files, "ms_a_story": round(whole * 1000, 1), "steps": rows}

    def _add_files(self, root: Path, files: int) -> None:
        for number in range(files):
            place = root / f"folder-{number % FOLDERS}/file-{number}.txt"
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"{number}\n" * 200)
        run_git(root, "add", "--", ".", ":!.ralph")
        run_git(root, "commit", "-q", "--allow-empty", "-m", "files")


def describe(values: list[float]) -> dict[str, float]:
    middle, whole = statistics.median(values) * 1000, sum(values) * 1000 / WORKED
    return {"times": len(values), "median_ms": round(middle, 2), "ms_a_story": round(whole, 2)}


def measure_loop(top: Path) -> list[dict[str, Any]]:
    lab = LoopLab(top)
    lab.agent.write_text(lab.agent.read_text().replace(">>work.txt", '>"work-$RALPH_STORY.txt"'))
    return [lab.time_steps(stories, files) for stories, files in ((WORKED, 0), (WORKED, FILES), (1_000, FILES))]


# --- the command ------------------------------------------------------------------------------------


def show_remote(rows: list[dict[str, Any]]) -> None:
    print("what       refs             clients  median ms  a second")
    for one in rows:
        refs = f"{one['refs']:,}{' packed' if one['packed'] else ''}"
        print(f"{one['what']:9}  {refs:15}  {one['clients']:7}  {one['seconds'] * 1000:9.0f}  {one['a_second']:8.1f}")


def show_loop(runs: list[dict[str, Any]]) -> None:
    for one in runs:
        print(f"{one['stories']:,} stories, {one['files']:,} more files: {one['ms_a_story']:.0f} ms a story")
        for name, row in one["steps"].items():
            print(
                f"  {name:15} {row['times']:6} times  {row['median_ms']:8.2f} ms  {row['ms_a_story']:8.2f} ms a story"
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/measure_times.py", description="Measures single steps.")
    parser.add_argument("part", choices=["remote", "loop", "timed"], help="`timed` is what `loop` starts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", default="", help=argparse.SUPPRESS)
    chosen, words = parser.parse_known_args()
    if chosen.part == "timed":
        return run_timed(chosen.out, words)
    with tempfile.TemporaryDirectory(prefix="ralphtool-times-") as top:
        found = measure_remote(Path(top)) if chosen.part == "remote" else measure_loop(Path(top))
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        (show_remote if chosen.part == "remote" else show_loop)(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
