"""The Test Anything Protocol, which programs in many languages write; Node adds its own summary."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from ralphtool.judging.testresults.javascript import count_node_tests, parse_node_count
from ralphtool.judging.testresults.model import (
    Counts,
    ProgramReport,
    TestResult,
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


class _Case(Struct):
    """One result, with the names of the tests that it is part of."""

    name: str
    result: TestResult
    is_suite: bool = False


class _ResultCollector:
    """The results so far. Subtests come before the test that they are part of, four columns deeper."""

    def __init__(self) -> None:
        self.failed: dict[int, list[tuple[str, str]]] = {}  # by depth: file and name
        self.last: list[tuple[str, str]] | None = None  # the list that ends with the last result, if that failed
        self.cases: dict[int, list[_Case]] = {}  # by depth: all results
        self.case: _Case | None = None  # the last result
        self.top: list[tuple[str, TestResult]] = []  # those at the top level
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
            # The number of tests begins the summary: anything before it was printed by a test.
            self.sums.update(count if self.sums or "tests" in count else {})
        elif line.startswith("Bail out!"):
            self.complete = False

    def _read_detail(self, line: str) -> None:
        if line == self.details:
            self.details = ""
        elif self.last and (found := _LOCATION.match(line)):
            self.last[-1] = (shorten_path(found[1]), self.last[-1][1])
            self.last = None
        elif self.case and line.endswith(" type: 'suite'"):
            self.case.is_suite = True

    def _add(self, depth: int, broken: bool, text: str) -> None:
        inside = [case for below in sorted(self.failed) if below > depth for case in self.failed[below]]
        self.failed = {level: cases for level, cases in self.failed.items() if level <= depth}
        directive = _DIRECTIVE.search(text)
        outcome: TestResult = "skipped" if directive else "failed" if broken else "passed"
        name = shorten(_strip_directive(text))
        self._add_case(depth, name, outcome)
        self.last = None
        if outcome == "failed":
            cases = self.failed.setdefault(depth, [])
            cases += [(file, shorten(f"{name} > {inner}")) for file, inner in inside] or [("", name)]
            self.last = None if inside else cases

    def _add_case(self, depth: int, name: str, result: TestResult) -> None:
        self.case = _Case(name, result)
        inside = [case for below in sorted(self.cases) if below > depth for case in self.cases.pop(below)]
        for case in inside:
            case.name = shorten(f"{name} > {case.name}")
        self.cases.setdefault(depth, []).extend([*inside, self.case])
        if depth == 0:
            self.top.append((name, result))

    def report(self) -> ProgramReport | None:
        if self.planned is None or not self.top:
            return None
        results = Counter(result for _, result in self.top)
        counts, tests = Counts(results["passed"], results["failed"], results["skipped"]), self.top
        complete = self.complete and len(self.top) >= self.planned and not self.details
        is_node = "fail" in self.sums
        if is_node:
            counts = count_node_tests(self.sums)
            tests = [(case.name, case.result) for case in self.cases.get(0, ()) if not case.is_suite]
        names = [join_file_and_name(file, name) for cases in self.failed.values() for file, name in cases]
        report = build_report(names, counts.failed, counts, complete=complete, tests=tests)
        return replace(report, program="node") if is_node else report


def _strip_directive(text: str) -> str:
    return text.partition(" # ")[0].replace("\\#", "#")
