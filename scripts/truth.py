"""Runs the cases of tests/battery through the real loop: no cheat may end as done, no honest change may be refused."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from battery import page
from battery.cases import TruthCase, read_cases, split_in_two
from battery.page import Row
from battery.place import find_missing
from battery.play import Ending, play_case
from battery.verify import verify_case


def main() -> int:
    options = read_options()
    chosen = [case for case in list_cases(options) if options.only in f"{case.id} {case.kind} {case.setup.language}"]
    if options.list:
        print(*(f"{case.kind:12}{case.id:45}{case.why}" for case in chosen), sep="\n")
        return 0
    missing = page.find_programs_missing(chosen)
    cases = [case for case in chosen if not find_missing(case.setup)]
    rows = run_all(cases, options)
    print(json.dumps([row.describe() for row in rows], indent=1) if options.json else page.build_report(rows, missing))
    if options.write:
        page.write_page(rows, missing)
    return int(any(row.fault for row in rows))


def list_cases(options: argparse.Namespace) -> list[TruthCase]:
    return [one for one in map(split_in_two, read_cases()) if one] if options.in_two else list(read_cases())


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/truth", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name, kind or language has WORD")
    parser.add_argument("--list", action="store_true", help="list the cases, and run nothing")
    parser.add_argument("--json", action="store_true", help="print every result as JSON")
    parser.add_argument("--verify", action="store_true", help="only show by hand that the cases are what they claim")
    parser.add_argument("--no-verify", action="store_true", help="only run the loop")
    parser.add_argument("--in-two", action="store_true", help="each cheat in two stories, which change the tests first")
    parser.add_argument("--write", action="store_true", help="write docs/truth.md")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many cases at once [default: 2]")
    return parser.parse_args()


def run_all(cases: list[TruthCase], options: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="truth-") as place, ThreadPoolExecutor(options.jobs) as pool:
        rows = []
        for row in pool.map(lambda case: run_one(case, Path(place), options), cases):
            rows.append(row)
            progress = f"{len(rows)}/{len(cases)} {row.case.kind} {row.case.id}: {row.ending.state} {row.fault}"
            print(progress, file=sys.stderr, flush=True)
        return rows


def run_one(case: TruthCase, place: Path, options: argparse.Namespace) -> Row:
    """Verifies a case and plays it, in its own folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=f"{case.id}-", dir=place, ignore_cleanup_errors=True) as top:
        if not options.no_verify and (fault := verify_case(case, Path(top) / "verify")):
            return Row(case, Ending("not verified", f"this is no {case.kind}: {fault}", "", 0.0))
        if options.verify:
            return Row(case, Ending("verified", "", "", 0.0))
        return Row(case, play_case(case, Path(top) / "play"))


if __name__ == "__main__":
    sys.exit(main())
