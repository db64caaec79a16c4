"""Reports that a test program wrote because its environment asked for them, merged with its output.

A test can print whatever a program prints, but it does not write the program's report. So a report takes precedence
over the output, unless the output names more failures.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ralphtool.judging.testresults import javascript, junit
from ralphtool.judging.testresults.model import (
    Counts,
    NamedTests,
    ProgramReport,
    TestResult,
    build_report,
    parse_number,
    shorten_path,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLASS = re.compile(r"\.(?=[A-Z])")
_ANY = "any"  # the program of a report that does not name one
_STRENGTH = {"skipped": 0, "passed": 1, "failed": 2}


class _Case(Struct):
    suites: tuple[str, ...]
    name: str
    group: str  # the classname
    file: str
    result: TestResult = "passed"
    is_todo: bool = False


class WrittenReport(Struct, frozen=True):
    """One report, and when its run began and ended; 0 if it doesn't say."""

    report: ProgramReport
    began: float = 0.0
    ended: float = 0.0


def read_written(data: bytes) -> WrittenReport | None:
    """Reads a report of pytest, of Node, or of an unknown program; None if it is broken."""
    document = _CaseCollector()
    if not junit.parse(data, document, document.read_comment):
        return None
    if document.suite.get("name") == "pytest" or "pytest" in document.root.get("name", ""):
        return _read_pytest(document)
    if "fail" in document.sums:
        return _read_node(document)
    report = junit.read_report(data) if document.cases else None
    return WrittenReport(replace(report, program=_ANY)) if report else None


class _CaseCollector:
    """The tests in a report, collected while a parser reads it."""

    def __init__(self) -> None:
        self.root: dict[str, str] = {}
        self.suite: dict[str, str] = {}  # the first one
        self.suites: list[str] = []
        self.cases: list[_Case] = []
        self.case: _Case | None = None
        self.sums = Counter[str]()  # from the comments at the end of a Node report

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            name, group, file = (attributes.get(word, "") for word in ("name", "classname", "file"))
            self.case = _Case(tuple(self.suites), name, group, file)
            self.cases.append(self.case)
        elif tag == "testsuite":
            self.suite = self.suite or attributes
            self.suites.append(attributes.get("name", ""))
        elif tag == "testsuites":
            self.root = attributes
        elif self.case and tag == "skipped":
            self.case.result, self.case.is_todo = "skipped", attributes.get("type") == "todo"
        elif self.case and tag in ("failure", "error") and not self.case.is_todo:
            self.case.result = "failed"

    def end(self, tag: str) -> None:
        if tag == "testcase":
            self.case = None
        elif tag == "testsuite" and self.suites:
            self.suites.pop()

    def read_comment(self, text: str) -> None:
        """Reads `<!-- pass 12 -->`. The output of tests comes earlier, so the last comment with a word counts."""
        for word, number in javascript.parse_node_count(f"#{text.rstrip()}").items():
            self.sums[word] = number


def _read_node(document: _CaseCollector) -> WrittenReport:
    tests = [(" > ".join([*case.suites, case.name]), case.result) for case in document.cases]
    failed = [name for name, result in tests if result == "failed"]
    counts = javascript.count_node_tests(document.sums)
    results = Counter(result for _, result in tests)
    # A test with subtests is counted, but written as a suite: then names and counts differ.
    named = Counts(results["passed"], results["failed"], results["skipped"])
    report = build_report(failed, len(failed), named, tests=tests)
    return WrittenReport(replace(report, counts=counts, program="node"))


# --- pytest -----------------------------------------------------------------------------------------


def _read_pytest(document: _CaseCollector) -> WrittenReport:
    """Counts a test once, although a test that was repeated, or whose teardown failed, is listed twice."""
    modules = {case.file for case in document.cases if case.file}
    results: dict[str, TestResult] = {}
    for case in document.cases:
        name = _find_node_id(case, modules)
        if name not in results or _STRENGTH[case.result] > _STRENGTH[results[name]]:
            results[name] = case.result
    sums = Counter(results.values())
    failed = [name for name, result in results.items() if result == "failed"]
    counts = Counts(sums["passed"], sums["failed"], sums["skipped"])
    announced = parse_number(document.suite.get("failures")) + parse_number(document.suite.get("errors"))
    complete = bool(failed) or not announced
    report = build_report(failed, len(failed), counts, complete=complete, tests=list(results.items()))
    began = _parse_time(document.suite.get("timestamp", ""))
    return WrittenReport(
        replace(report, program="pytest"), began, began + _parse_seconds(document.suite.get("time", ""))
    )


def _find_node_id(case: _Case, modules: set[str]) -> str:
    """Returns `tests/test_a.py::TestCart::test_two`, as pytest prints it.

    The classname is `tests.test_a.TestCart`; the file is the one that defines the function, which may belong to a base
    class of another module.
    """
    if not case.group:  # a file that can't be imported
        return shorten_path(case.file) or case.name
    if case.group == case.file.replace("/", "."):  # a text file with doctest examples
        return f"{case.file}::{case.name}"
    parts = case.group.split(".")
    for end in range(len(parts), 0, -1):
        if (file := f"{'/'.join(parts[:end])}.py") in modules:
            return "::".join([file, *parts[end:], case.name])
    module, *classes = _CLASS.split(case.group)
    return "::".join([f"{module.replace('.', '/')}.py", *classes, case.name])


def _parse_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _parse_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# --- merging with the output ------------------------------------------------------------------------


def merge(printed: Sequence[ProgramReport], written: Sequence[WrittenReport]) -> list[ProgramReport]:
    """Returns the reports of a command: each program's written ones, if there are any, instead of its printed ones."""
    merged = list(printed)
    for program in dict.fromkeys(one.report.program for one in written):
        ours = [one for one in written if one.report.program == program]
        theirs = [one for one in printed if one.program == program]
        if program == _ANY:
            merged = _name_printed(merged, [one.report for one in ours])
            continue
        merged = [one for one in merged if one.program != program]
        merged += _merge_program(theirs, [one.report for one in _leave_out_nested(ours)])
    return merged


def _name_printed(printed: list[ProgramReport], written: list[ProgramReport]) -> list[ProgramReport]:
    """Takes the names from reports of unknown programs if the output has none and the counts are the same."""
    if not any(one.counts for one in printed):
        return [*printed, *written]
    names = {one.counts: one.named for one in written}
    return [one if one.named else replace(one, named=names.get(one.counts)) for one in printed]


def _leave_out_nested(written: Sequence[WrittenReport]) -> list[WrittenReport]:
    """Leaves out the runs that a test started: each one took place during another run."""
    return [
        one
        for one in written
        if not any(
            other is not one and other.began and other.began < one.began and one.ended < other.ended
            for other in written
        )
    ]


def _merge_program(printed: list[ProgramReport], written: list[ProgramReport]) -> list[ProgramReport]:
    if not any(one.counts for one in printed):
        return written
    left, merged = list(printed), list[ProgramReport]()
    for one in written:
        same = next((other for other in left if other.counts == one.counts), None)
        if same is None:
            return [_take_worse(printed, written)]
        left.remove(same)
        merged.append(replace(one, failed=same.failed) if same.complete else one)
    return merged


def _take_worse(printed: list[ProgramReport], written: list[ProgramReport]) -> ProgramReport:
    """Returns one report with the most failures and the fewest passes, if reports and output disagree.

    A failure in the output counts only if it is named: a test may have printed the number.
    """
    ours = sum((one.counts for one in written if one.counts), Counts(0, 0, 0))
    theirs = sum((one.counts for one in printed if one.counts), Counts(0, 0, 0))
    named = [one for one in printed if one.complete and one.counts]
    failures = max(ours.failed, sum(one.counts.failed for one in named if one.counts))
    failed = frozenset[str]().union(*(one.failed for one in named))
    if len(failed) < failures:
        failed = failed.union(*(one.failed for one in written))
    counts = Counts(min(ours.passed, theirs.passed), failures, ours.skipped)
    tests = _join_names([one.named for one in written], failed)
    return ProgramReport(failed, counts, len(failed) >= failures, tests, program=written[0].program)


def _join_names(named: Sequence[NamedTests | None], failed: frozenset[str]) -> NamedTests | None:
    known = [one for one in named if one]
    if len(known) < len(named):
        return None
    passed = frozenset[str]().union(*(one.passed for one in known)) - failed
    broken = frozenset[str]().union(*(one.failed for one in known))
    return NamedTests(passed, broken, frozenset[str]().union(*(one.skipped for one in known)))
