"""Simulates what limits a change of many stories on many workers: the tables of docs/scale.md.

.venv/bin/python scripts/simulate_scale.py                            one run: 1,000 stories on 200 workers
.venv/bin/python scripts/simulate_scale.py --gates 5 --speculate 8    any field of `Case` is an option
.venv/bin/python scripts/simulate_scale.py --table present            a table of the page; --table all for all of them
.venv/bin/python scripts/simulate_scale.py --json                     for programs
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from typing import Any

from msgspec import structs
from simulation import summarize
from simulation_whatif import simulate
from simulation_world import Case

Summary = dict[str, Any]
KINDS = {"5 s": 5.0, "2 min": 120.0, "20 min": 1200.0}
FIRST = {"is_gated_first": True}
AHEAD = {**FIRST, "is_proven_ahead": True, "speculate": 64}
ASIDE = {**AHEAD, "is_red_aside": True}
# A row with a plus adds to the previous one.
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "look ahead 64, nothing else": {"speculate": 64},
    "gates on the worker first": FIRST,
    "+ whole proof ahead, 64": AHEAD,
    "+ red stories leave": ASIDE,
    "+ none red together": {**ASIDE, "red_together": 0.0},
    "train of 16, nothing else": {"train": 16},
    "train of 64, worker first": {**FIRST, "train": 64},
    "train of 16, worker first": {**FIRST, "train": 16},
    "the same, waiting unbound": {**FIRST, "train": 16, "is_unbound": True},
}
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "present": {
        f"{name}: {workers} workers, look ahead {ahead}": {"gates": gates, "workers": workers, "speculate": ahead}
        for name, gates in KINDS.items()
        for workers, ahead in ((8, 2), (200, 2), (200, 8))
    },
    "changes": {f"{name}: {what}": {"gates": KINDS[name], **row} for name in KINDS for what, row in CHANGES.items()},
    "affected": {
        f"a tenth of {name}: {what}": {"gates": KINDS[name] / 10, **row}
        for name in ("2 min", "20 min")
        for what, row in (("as it is", {}), ("all changes", ASIDE))
    },
    "depth": {f"look ahead {depth}": {**ASIDE, "speculate": depth} for depth in (2, 8, 32, 64, 128, 200)},
    "loop": {
        f"{workers:,} workers, {5 * workers:,} stories": {
            **ASIDE,
            "gates": 5.0,
            "workers": workers,
            "stories": 5 * workers,
            "is_tidied": True,
            "conflict": 0.0,
            "red_together": 0.0,
        }
        for workers in (100, 200, 400, 800)
    },
    "remote": {
        "refs removed": {**ASIDE, "gates": 5.0, "is_tidied": True},
        "refs stay": {**ASIDE, "gates": 5.0},
        "refs stay, 10,000 before": {**ASIDE, "gates": 5.0, "refs": 10_000},
        "refs stay, 50,000 before": {**ASIDE, "gates": 5.0, "refs": 50_000},
        "Temporal: 1 s an activity": {**ASIDE, "gates": 5.0, "is_tidied": True, "temporal": 1.0},
        "4 ms for a heartbeat": {**ASIDE, "gates": 5.0, "is_tidied": True, "beat": 0.004},
    },
    "limits": {
        f"{share:.1%} reach a limit, grow by {back}": {**ASIDE, "gates": 5.0, "limited": share, "limit_growth": growth}
        for share, back, growth in (
            (0.0, "one", 0.0),
            (0.001, "one", 0.0),
            (0.01, "one", 0.0),
            (0.001, "a quarter", 0.25),
            (0.01, "a quarter", 0.25),
            (0.01, "half", 0.5),
        )
    },
    "guesses": {
        f"{name}: {what}": {**row, **more}
        for name, more in (("as it is", {}), ("all changes", ASIDE))
        for what, row in {
            "as assumed": {},
            "nothing red or in conflict": {"conflict": 0.0, "red_together": 0.0, "own_red": 0.0, "flaky": 0.0},
            "half of red and conflict": {"conflict": 0.0005, "red_together": 0.0001, "own_red": 0.05},
            "twice red and conflict": {"conflict": 0.002, "red_together": 0.0004, "own_red": 0.2},
            "flaky 5%": {"flaky": 0.05},
            "no story touches tests": {"tests_touched": 0.0},
            "half wait for another story": {"depends": 0.5},
        }.items()
    },
}
COLUMNS = {
    "hours": ("hours", ""),
    "stories/h": ("stories_an_hour", ""),
    "agents": ("agents_busy", "{:.0%}"),
    "workers": ("machines_busy", "{:.0%}"),
    "loop": ("loop_busy", "{:.0%}"),
    "remote": ("remote_busy", "{:.0%}"),
    "queue": ("queue_mean", "{:.0f}"),
    "gate runs": ("gate_runs", "{:.0f}"),
    "wasted": ("gate_runs_wasted", "{:.0f}"),
}


def run_case(case: Case, seeds: int) -> Summary:
    """The median of each figure over several seeds."""
    found = [summarize(simulate(structs.replace(case, seed=case.seed + more))) for more in range(seeds)]
    return _take_median(found)


def _take_median(found: list[Summary]) -> Summary:
    names = dict.fromkeys(name for one in found for name in one)
    return {name: _find_middle([one.get(name, 0) for one in found]) for name in names}


def _find_middle(values: list[Any]) -> Any:
    inner = [one for one in values if isinstance(one, dict)]
    return _take_median(inner) if inner else statistics.median(values)


def show_table(rows: Iterable[tuple[str, Summary]]) -> None:
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, found in rows:
        cells = [form.format(found[key]) if form else _round(found[key]) for key, form in COLUMNS.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _round(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):g}"


def show_one(found: Summary) -> None:
    show_table([("", found)])
    waits = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in found["waits"].items())
    spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in found["loop_seconds"].items())
    print(f"\nminutes of a story: {waits}\nseconds of the loop's thread: {spent}")
    print(f"done {found['done']:.0f}, needing an answer {found['asked']:.0f}, refs on the remote {found['refs']:.0f}")
    print("numbers of: " + ", ".join(f"{name} {number:.0f}" for name, number in found["counts"].items()))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate_scale.py", description="Simulates a run on many machines.")
    parser.add_argument("--table", choices=[*TABLES, "all"], help="a table of docs/scale.md")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs with N seeds, and shows the medians")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for name, value in structs.asdict(Case()).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(value), default=value)
    return parser.parse_args()


def main() -> int:
    chosen = parse_arguments()
    case = Case(**{name: getattr(chosen, name) for name in structs.asdict(Case())})
    wanted = [] if not chosen.table else [*TABLES] if chosen.table == "all" else [chosen.table]
    tables = {
        table: ((name, run_case(structs.replace(case, **row), chosen.seeds)) for name, row in TABLES[table].items())
        for table in wanted
    }
    if chosen.json:
        everything = {table: dict(rows) for table, rows in tables.items()}
        print(json.dumps(everything or run_case(case, chosen.seeds), indent=2))
    elif not tables:
        show_one(run_case(case, chosen.seeds))
    for table, rows in tables.items() if not chosen.json else ():
        print(f"\n{table}\n")
        show_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
