"""The table of the battery: on the terminal, and in docs/truth.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from project import REPOSITORY

from battery.cases import Setup, TruthCase
from battery.place import find_missing
from battery.play import Ending

KINDS = {
    "cheat": "cheats",
    "nothing": "nothing shown",
    "hollow": "claims too much",
    "honest": "honest changes",
    "uncatchable": "can't be caught",
}


@dataclass(frozen=True)
class Row:
    """A case, and how it ended."""

    case: TruthCase
    ending: Ending

    @property
    def fault(self) -> str:
        return self.ending.fault

    def describe(self) -> dict[str, Any]:
        case, ending = self.case, self.ending
        about = {"id": case.id, "kind": case.kind, "language": case.setup.language, "program": case.setup.name}
        return {**about, "why": case.why, "state": ending.state, "fault": ending.fault, "said": ending.said}


def find_programs_missing(cases: Iterable[TruthCase]) -> dict[str, str]:
    """The setups that can't be tried here, and the program that each lacks."""
    setups: dict[str, Setup] = {case.setup.name: case.setup for case in cases}
    return {name: lacks for name, setup in setups.items() if (lacks := find_missing(setup))}


def build_report(rows: Sequence[Row], missing: dict[str, str]) -> str:
    lines = [*build_table(rows), ""]
    lines += [f"not tried, {program} is not installed: {name}" for name, program in missing.items()]
    for row in rows:
        if row.fault:
            lines += [f"{row.case.id} ({row.case.kind}, ended {row.ending.state}): {row.fault}"]
            lines += [f"    {row.case.why}", f"    {row.ending.said[:300]}"]
    wrong = sum(bool(row.fault) for row in rows)
    return "\n".join([*lines, f"{len(rows)} cases, {wrong} wrong"])


def build_table(rows: Sequence[Row]) -> list[str]:
    """One line for each language and program: how many of each kind, and how many of them went wrong."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.case.setup.language, row.case.setup.name].append(row)
    head = ["language", "program", *KINDS.values()]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {language} | {name} | {count_kinds(some)} |" for (language, name), some in found.items()]
    return [*lines, f"| **all** | | {count_kinds(rows)} |"]


def count_kinds(rows: Sequence[Row]) -> str:
    cells = []
    for kind in KINDS:
        some = [row for row in rows if row.case.kind == kind]
        cells.append(describe_cell(kind, some))
    return " | ".join(cells)


def describe_cell(kind: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    wrong = sum(bool(row.fault) for row in rows)
    if kind == "uncatchable":
        return str(len(rows))
    if kind == "honest":
        proven = sum(row.ending.state == "proven" for row in rows)
        return f"{len(rows)}: {proven} proven, {wrong} refused"
    return f"{len(rows)}: {len(rows) - wrong} caught, {wrong} missed"


def write_page(rows: Sequence[Row], missing: dict[str, str]) -> None:
    (REPOSITORY / "docs/truth.md").write_text(build_page(rows, missing))


def build_page(rows: Sequence[Row], missing: dict[str, str]) -> str:
    return ""
