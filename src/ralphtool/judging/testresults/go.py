"""The output of `go test`, as text and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.judging.testresults.model import Counts, ProgramReport, TestResult, build_report

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN = re.compile(r"=== RUN +(\S+)$")
_TEST = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$")
_PACKAGE = re.compile(r"(ok  |FAIL|\?   )\t([^\s]+)\s+(\S.*)$")
_RESULTS: dict[str, TestResult] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def read_text(lines: list[str]) -> ProgramReport | None:
    """Reads `--- FAIL: TestSame (0.00s)` for each failure, and then its package: `FAIL    example.com/shop  0.003s`."""
    output = _TextCollector()
    for at, line in enumerate(lines):
        if found := _PACKAGE.match(line):
            output.end_package(found, lines[at - 1])
        elif line == "FAIL":
            output.closed = True
        elif line.endswith("s)") and (found := _TEST.search(line)):
            output.end_test(found, line)
        elif "=== RUN " in line and (found := _RUN.search(line)):
            output.started[found[1]] = None
    return output.report()


class _TextCollector:
    """The results so far. Output of a test without a line break precedes the result on its line."""

    def __init__(self) -> None:
        self.names: list[str] = []  # of failures
        self.tests: list[tuple[str, TestResult]] = []
        self.green: list[tuple[str, TestResult]] = []  # packages that are ok and name no test
        self.started: dict[str, None] = {}  # the tests of this package, with -v
        self.ended: dict[str, TestResult] = {}  # the same
        self.packages = 0
        self.broken = 0  # packages that failed without a failed test: they could not be built, or crashed
        self.is_verbose = False
        self.complete = self.closed = True

    def end_test(self, found: re.Match[str], line: str) -> None:
        if found[2] in self.started or (found[1] == "FAIL" and line[: found.start()].isspace() | (found.start() == 0)):
            self.ended[found[2]] = _RESULTS[found[1]]

    def end_package(self, found: re.Match[str], before: str) -> None:
        state, package, rest = found[1], found[2], found[3]
        self.packages += 1
        self.is_verbose = self.is_verbose or bool(self.started)
        if state == "FAIL":
            failed = _name_failures(package, rest, [name for name, how in self.ended.items() if how == "failed"])
            self.names += failed
            self.broken += "failed" not in self.ended.values()
            self.complete = self.complete and bool(failed)
            self.closed = self.packages == 1 and (rest.startswith("[") or before.startswith("exit status"))
            self.tests += [(f"{package}.{name}", how) for name, how in self.ended.items()]
        elif self.started:  # if a package is ok, every test that was not skipped passed
            is_skipped = {name for name, how in self.ended.items() if how == "skipped"}
            self.tests += [
                (f"{package}.{name}", "skipped" if name in is_skipped else "passed") for name in self.started
            ]
        elif state == "ok  " and "[no test" not in rest:
            self.green.append((package, "passed"))
        self.started, self.ended = {}, {}

    def report(self) -> ProgramReport | None:
        if not self.packages:
            return None
        tests = self.tests if self.is_verbose else self.tests + self.green
        results = Counter(how for _, how in tests)
        counts = Counts(results["passed"], results["failed"] + self.broken, results["skipped"])
        complete = self.complete and self.closed and "failed" not in self.ended.values()
        return build_report(self.names, len(self.names), counts, complete=complete, tests=tests)


def _name_failures(package: str, state: str, tests: list[str]) -> list[str]:
    """Returns the ids of a failed package, which may not even have been built.

    A test that has failed subtests is left out: it failed because of them.
    """
    if state.startswith("["):
        return [f"{package} {state}"]
    parents = {test.rpartition("/")[0] for test in tests}
    return [f"{package}.{test}" for test in tests if test not in parents]


# --- go test -json ----------------------------------------------------------------------------------


class _Event(Struct):
    action: str = msgspec.field(name="Action")
    package: str = msgspec.field(name="Package")
    test: str = msgspec.field(name="Test", default="")
    failed_build: str = msgspec.field(name="FailedBuild", default="")


_DECODER = typed.build_decoder(_Event)


def _decode_events(lines: list[str]) -> Iterator[_Event]:
    for line in lines:
        if line.startswith("{") and '"Action":"' in line:
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError:
                continue  # a truncated line, or another program's


def read_json(lines: list[str]) -> ProgramReport | None:
    """Reads one event for the end of each test, and one without a test for the end of each package."""
    failed: dict[str, list[str]] = {}  # by package
    ended: dict[str, str] = {}  # package -> state
    tests: list[tuple[str, TestResult]] = []
    for event in _decode_events(lines):
        failed.setdefault(event.package, [])
        if event.action not in ("pass", "fail", "skip"):
            continue
        if not event.test:
            ended[event.package] = "[build failed]" if event.failed_build else event.action
            continue
        tests.append((f"{event.package}.{event.test}", _RESULTS[event.action.upper()]))
        failed[event.package] += [event.test] if event.action == "fail" else []
    if not failed:
        return None
    broken = [package for package, state in ended.items() if state not in ("pass", "skip")]
    ids = [_name_failures(package, ended[package], failed[package]) for package in broken]
    results = Counter(how for _, how in tests)
    counts = Counts(
        results["passed"], results["failed"] + sum(not failed[package] for package in broken), results["skipped"]
    )
    names = [name for some in ids for name in some]
    complete = all(ids) and len(ended) == len(failed)
    return build_report(names, len(names), counts, complete=complete, tests=tests)
