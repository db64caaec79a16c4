"""The Test Anything Protocol, which programs in many languages write; Node adds its own summary."""

from __future__ import annotations

import re
from collections import Counter

from ralphtool.judging.testresults.javascript import count_node_tests, parse_node_count
from ralphtool.judging.testresults.model import (
    Counts,
    ProgramReport,
    build_report,
    join_file_and_name,
    shorten,
    shorten_path,
)

_RESULT = re.compile(r"((?:    )*)(not )?ok\b(?: +\d+)?(?: +-)? *(.*)$")
_DIRECTIVE = re.compile(r"(?:^| )# *(skip|todo)\b", re.IGNORECASE)
_PLAN = re.compile(r"1\.\.(\d{1,9})\b")
_LOCATION = re.compile(r" +location: '(.+?):\d+:\d+'$")


def read_tap(lines: list[str]) -> ProgramReport | None:
    """Reads `not ok 3 - adds two` for each failure, and the plan `1..6`."""
    results = _ResultCollector()
    for line in lines:
        results.read(line)
    return results.report()


class _ResultCollector:
    """The results so far. Subtests come before the test that they are part of, four columns deeper."""

    def __init__(self) -> None:
        self.failed: dict[int, list[tuple[str, str]]] = {}  # by depth: file and name
        self.last: list[tuple[str, str]] | None = None  # the list that ends with the last result, if that failed
        self.outcomes = Counter[str]()
        self.sums = Counter[str]()
        self.planned: int | None = None
        self.details = ""  # the line that ends the details of a result
        self.complete = True

    def read(self, line: str) -> None:
        if self.details:
            self._read_detail(line)
        elif found := _RESULT.match(line):
            self._add(len(found[1]) // 4, bool(found[2]), found[3])
        elif line.strip(" ") == "---":
            self.details = line.replace("---", "...")
        elif found := _PLAN.match(line):
            self.planned = (self.planned or 0) + int(found[1])
        elif count := parse_node_count(line):
            self.sums.update(count)
        elif line.startswith("Bail out!"):
            self.complete = False

    def _read_detail(self, line: str) -> None:
        if line == self.details:
            self.details = ""
        elif self.last and (found := _LOCATION.match(line)):
            self.last[-1] = (shorten_path(found[1]), self.last[-1][1])
            self.last = None

    def _add(self, depth: int, broken: bool, text: str) -> None:
        inside = [case for below in sorted(self.failed) if below > depth for case in self.failed[below]]
        self.failed = {level: cases for level, cases in self.failed.items() if level <= depth}
        directive = _DIRECTIVE.search(text)
        outcome = "skipped" if directive else "failed" if broken else "passed"
        self.outcomes[outcome] += depth == 0
        self.last = None
        if outcome == "failed":
            name = shorten(text.partition(" # ")[0].replace("\\#", "#"))
            cases = self.failed.setdefault(depth, [])
            cases += [(file, shorten(f"{name} > {inner}")) for file, inner in inside] or [("", name)]
            self.last = None if inside else cases

    def report(self) -> ProgramReport | None:
        if self.planned is None or not self.outcomes:
            return None
        counts = Counts(self.outcomes["passed"], self.outcomes["failed"], self.outcomes["skipped"])
        complete = self.complete and self.outcomes.total() >= self.planned and not self.details
        if "fail" in self.sums:
            counts = count_node_tests(self.sums)
        names = [join_file_and_name(file, name) for cases in self.failed.values() for file, name in cases]
        return build_report(names, counts.failed, counts, complete=complete)
