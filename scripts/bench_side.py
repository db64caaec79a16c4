"""The gain and cost of working side by side, a part of `scripts/bench`: one change with one lane and with more."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_loop import COMMAND, Lab, Rows, measured

REPOSITORY = Path(__file__).parent.parent
STORIES = 8
RUNS = 50
WAIT = 5  # seconds that an agent thinks
AGENT = """\
#!/bin/sh
token=$(sed -n 's/^token: //p')
sleep {wait}
echo "$RALPH_STORY" >"work-$RALPH_STORY.txt"
sed -i "s/^- \\[ \\] $RALPH_STORY\\./- [x] $RALPH_STORY./" openspec/changes/add-login/tasks.md
echo "<promise>COMPLETE:$token</promise>"
"""
SETTINGS = '[verify]\nchecks = []\ntests = ["grep -q . file-1.txt"]\n[run]\nworkspace = "box"\n'


class Cost(dict[str, float]):
    """The cost of one run: seconds, CPU seconds, and gate runs."""


class SideLab(Lab):
    def run(self, lanes: int, wait: float, stories: int = STORIES) -> Cost:
        root = self.project(stories)
        (root / ".ralph/config.toml").write_text(SETTINGS)
        self.agent.write_text(AGENT.replace("{wait}", str(wait)))
        command = [COMMAND, "run", "--json", "--side-by-side", str(lanes), "--agent-command", str(self.agent)]
        began, used = time.perf_counter(), _processor_seconds()
        done = subprocess.run(command, cwd=root, env=self.env, check=True, stdout=subprocess.PIPE)
        took = time.perf_counter() - began
        shutil.rmtree(root)
        gates = sum(json.loads(line)["type"] == "gate" for line in done.stdout.splitlines())
        return Cost(seconds=took, processor=_processor_seconds() - used, gates=gates)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(what: str, lanes: int, wait: float) -> Callable[[Path, int], float]:
    """With lanes / one by one, in turns."""

    def measure_ratio(top: Path, rounds: int) -> float:
        lab = SideLab(top)
        taken = [(lab.run(lanes, wait), lab.run(1, wait)) for _ in range(rounds + 1)][1:]
        return statistics.median(side[what] / alone[what] for side, alone in taken)

    return measure_ratio


def compare_iterations(top: Path, rounds: int) -> float:
    """The CPU time of each further story, once the boxes are open."""
    lab = SideLab(top)

    def measure_one(lanes: int) -> float:
        many, few = (lab.run(lanes, 0, stories)["processor"] for stories in (3 * STORIES, STORIES))
        return (many - few) / (2 * STORIES)

    return statistics.median(measure_one(8) / measure_one(1) for _ in range(rounds))


def more_gates(top: Path, rounds: int) -> float:
    lab = SideLab(top)
    return lab.run(4, 0)["gates"] - lab.run(1, 0)["gates"]


def count_bad_runs(top: Path, rounds: int) -> float:
    """Random runs with a conflict, a pair that is red together, kills and interrupts: counts those after which a
    commit is red, a story is lost or done twice, or something is left over."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "4", f"--basetemp={top}/runs", "-p", "no:cacheprovider"]
    chosen = "tests/loop/test_side_by_side.py::test_killed_at_random_moments_until_it_is_done"
    done = subprocess.run(
        [*command, chosen],
        cwd=REPOSITORY,
        env=os.environ | {"RALPH_STORM": "1", "RALPH_TESTS": "every"},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    return RUNS - int(passed[1] if passed else 0)


ROWS: Rows = {
    "side by side: eight stories whose agents wait, four lanes / one by one": (compare("seconds", 4, WAIT), 0.4),
    "side by side: gates that four lanes run more often": (more_gates, 1.0),
    "side by side: what an iteration costs at eight lanes / one by one": (compare("processor", 8, 0), 1.5),
    "side by side: the same without opening the boxes": (compare_iterations, 1.5),
    f"side by side: of {RUNS} random runs, those with a red commit, or a story lost or doubled": (count_bad_runs, 0.0),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "side", top, rounds, word)


if __name__ == "__main__":
    for name, (measured_row, bound) in ROWS.items():
        with tempfile.TemporaryDirectory() as place:
            rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
            print(f"{measured_row(Path(place), rounds):6.2f}  (bound {bound})  {name}", flush=True)
