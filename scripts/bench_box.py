"""The cost of a box: a part of `scripts/bench`. Runs one story in a box, a worktree and the user's folder, in turns."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_loop import COMMAND, SETTINGS, Lab, Rows, measured

KINDS = ("box", "worktree", "here")
TURNS = 5  # of every kind, for each round of the bench
IGNORED = ("node_modules", ".venv")  # installed environments, which a box mounts as layers
AGENT = """\
#!/bin/sh
echo begun
token=$(sed -n 's/^token: //p')
echo work >work.txt
sed -i 's/^- \\[ \\]/- [x]/' openspec/changes/add-login/tasks.md
echo "<promise>COMPLETE:$token</promise>"
"""


class Times(dict[str, float]):
    """Milliseconds of one run: to its first event, from an iteration's start to the agent's first event, and in all."""


class BoxLab(Lab):
    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.agent.write_text(AGENT)

    def run(self, kind: str) -> Times:
        """A run in a fresh project."""
        root = self.project(1)
        self._add_environments(root, kind)
        command = [COMMAND, "run", "--json", "--agent-command", str(self.agent)]
        began = time.time()
        done = subprocess.run(command, cwd=root, env=self.env, check=True, stdout=subprocess.PIPE)
        took = time.time() - began
        shutil.rmtree(root)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        if [one["kind"] for one in events if one["type"] == "workspace"] != [kind]:
            raise SystemExit(f"the run was not in a {kind}: {done.stdout.decode()}")
        first, start, word = (_find_time(events, name) for name in ("run_started", "iteration_started", "agent"))
        return Times(first=1000 * (first - began), start=1000 * (word - start), all=1000 * took)

    def _add_environments(self, root: Path, kind: str) -> None:
        (root / ".ralph/config.toml").write_text(f'{SETTINGS}[run]\nworkspace = "{kind}"\n')
        (root / ".git/info/exclude").write_text("".join(f"{name}/\n" for name in IGNORED))
        for name in IGNORED:
            (root / name).mkdir()
            (root / name / "installed.txt").write_text("installed\n")


def _find_time(events: list[dict[str, Any]], type: str) -> float:
    return datetime.fromisoformat(next(one["at"] for one in events if one["type"] == type)).timestamp()


def run_in_turns(top: Path, rounds: int, kinds: tuple[str, ...] = KINDS) -> list[dict[str, Times]]:
    lab = BoxLab(top)
    taken = [{kind: lab.run(kind) for kind in kinds} for _ in range(TURNS * rounds + 1)]
    return taken[1:]  # the first one compiles code and fills caches


def added(what: str, against: str) -> Callable[[Path, int], float]:
    """The extra milliseconds of a box, by the fastest runs: slower ones also measure other load on the machine."""

    def measure_added(top: Path, rounds: int) -> float:
        taken = run_in_turns(top, rounds, ("box", against))
        return min(one["box"][what] for one in taken) - min(one[against][what] for one in taken)

    return measure_added


def ratio(what: str, against: str) -> Callable[[Path, int], float]:
    def measure_ratio(top: Path, rounds: int) -> float:
        taken = run_in_turns(top, rounds, ("box", against))
        return statistics.median(one["box"][what] / one[against][what] for one in taken)

    return measure_ratio


ROWS: Rows = {
    "box: milliseconds that an agent starts later than in a worktree": (added("start", "worktree"), 100.0),
    "box: milliseconds that an agent starts later than in one's own folder": (added("start", "here"), 100.0),
    "box: milliseconds to the first event, beyond those with a worktree": (added("first", "worktree"), 100.0),
    "box: a run of one story / in a worktree": (ratio("all", "worktree"), 1.5),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "box", top, rounds, word)


def print_table(top: Path, rounds: int) -> None:
    """Prints all times of all kinds, which say more than the rows."""
    taken = run_in_turns(top, rounds)
    for kind in KINDS:
        times = {what: sorted(one[kind][what] for one in taken) for what in taken[0][kind]}
        words = [
            f"{what}: {some[0]:.0f} at least, {statistics.median(some):.0f} usually" for what, some in times.items()
        ]
        print(f"{kind:9} {'; '.join(words)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print_table(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 3)
