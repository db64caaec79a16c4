"""The output of pytest and unittest."""

from __future__ import annotations

import re
from collections import Counter

from msgspec.structs import replace

from ralphtool.judging.testresults.model import (
    Counts,
    ProgramReport,
    TestResult,
    add_up,
    build_report,
    parse_counts,
    parse_number,
)

# --- pytest -----------------------------------------------------------------------------------------

_PYTEST_START = re.compile(r"=+ test session starts =+$")
_PYTEST_BEGIN = re.compile(
    r"=+ (?:test session starts|ERRORS|FAILURES|PASSES|warnings summary|short test summary info) (?:\(.*\) )?=+$"
)
_PYTEST_SUMMARY = re.compile(r"=+ short test summary info =+$")
_PYTEST_END = re.compile(
    r"(?:=+ )?(?:\d+ (?:x?failed|x?passed|skipped|deselected|warnings?|errors?|rerun|subtests)\b[\w, ]*|no tests ran)"
    r" in [\d.]+s(?: \([\w :,]+\))?(?: =+)?$"
)
_PYTEST_INTERRUPTED = re.compile(r"INTERNALERROR>|!+ (?:KeyboardInterrupt|_pytest\.outcomes\.Exit)\b")
_PYTEST_WORD = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
_PYTEST_WORKER = re.compile(r"\[gw\d+\] \[ *\d+%\] ([A-Z]+) (\S.*)$")
_PYTEST_RESULTS: dict[str, TestResult] = {
    "PASSED": "passed",
    "XPASS": "passed",
    "FAILED": "failed",
    "ERROR": "failed",
    "SKIPPED": "skipped",
    "XFAIL": "skipped",
}


def has_pytest_begun(lines: list[str]) -> bool:
    """Returns whether any of these lines begins a run of pytest, or a section of one."""
    return any(map(_PYTEST_BEGIN.match, lines))


def was_pytest_interrupted(lines: list[str]) -> bool:
    """Returns whether pytest reports that it could not run all tests."""
    return any(map(_PYTEST_INTERRUPTED.match, lines))


def split_pytest_runs(lines: list[str]) -> tuple[list[list[str]], list[str], bool]:
    """Returns the runs in an output, the lines around them, and whether the last run finished.

    A failing test may have run pytest itself, and its captured output is shown: that run is left out if its start is
    shown. With -q it isn't: a run then begins with its first section, and its last line has no frame.
    """
    runs: list[list[str]] = []
    rest: list[str] = []
    run: list[str] | None = None
    depth = outermost = 0
    for line in lines:
        started = bool(_PYTEST_START.match(line))
        ends = bool(_PYTEST_END.match(line)) and (depth == 0 or line.startswith("="))
        if run is None and (ends or _PYTEST_BEGIN.match(line)):
            run, depth, outermost = [], 0, int(started)
        depth += started
        if run is None:
            rest.append(line)
        elif depth == outermost:
            run.append(line)
        if run is not None and ends:
            depth -= 1
            if depth < outermost:
                runs.append(run)
                run, depth = None, 0
    return runs, rest, run is None


def read_pytest_runs(runs: list[list[str]]) -> list[ProgramReport]:
    """Reads all runs. A run before the last that names none of its failures may have been printed by a test."""
    reports = [_read_pytest(run) for run in runs]
    return [replace(one, final=Counts(0, 0, 0)) for one in reports[:-1]] + reports[-1:]


def _read_pytest(run: list[str]) -> ProgramReport:
    """Reads one run: the names are in its short summary, the counts in its last line."""
    words = parse_counts(run[-1].rpartition(" in ")[0])
    failures = words["failed"] + words["error"]
    counts = Counts(words["passed"] + words["xpassed"], failures, words["skipped"] + words["xfailed"])
    summaries = [at for at, line in enumerate(run) if _PYTEST_SUMMARY.match(line)]
    listed = run[summaries[-1] :] if summaries else []
    report = build_report(filter(None, map(_find_id, listed)), failures, counts, tests=_find_results(run))
    return replace(report, program="pytest")


def _find_results(run: list[str]) -> list[tuple[str, TestResult]]:
    """Returns the tests that a run with -v names, in one process or with xdist."""
    results: dict[str, TestResult] = {}
    for line in run:
        if found := _PYTEST_WORKER.match(line):
            word, name = found[1], found[2]
        elif line.endswith("%]") and "::" in line:
            words = list(_PYTEST_WORD.finditer(line))
            word, name = (words[-1][1], line[: words[-1].start()]) if words else ("", "")
        else:
            continue
        if word in _PYTEST_RESULTS:
            results[name] = _PYTEST_RESULTS[word]
    return list(results.items())


def _find_id(line: str) -> str | None:
    word, _, rest = line.partition(" ")
    if word in ("FAILED", "ERROR"):
        return _strip_message(rest)
    if not line.startswith("SUBFAILED"):
        return None
    subtest, _, node = line[: line.find("::")].rpartition(" ")
    return f"{_strip_message(node + line[line.find('::') :])} {subtest.removeprefix('SUBFAILED')}"


def _strip_message(text: str) -> str:
    """Returns the node id without the message after it; parameters may look like the start of a message."""
    name = max(0, text.find(".py::"))
    bracket, dash = text.find("[", name), text.find(" - ", name)
    if dash < 0 or bracket < 0 or dash < bracket:
        return text if dash < 0 else text[:dash]
    closing = text.find("] - ", bracket)
    return text if closing < 0 else text[: closing + 1]


# --- unittest ---------------------------------------------------------------------------------------

_UNITTEST_NAME = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S.*)$")
_UNITTEST_RAN = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s$")
_UNITTEST_RESULT = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_UNITTEST_TEST = re.compile(r"(\w\S* \([\w.]+\))(?: \.\.\. .*)?$")
_UNITTEST_WORD = re.compile(r"(?:.* \.\.\. ?)?(?:(ok|unexpected success|FAIL|ERROR)|(skipped .*|expected failure))$")


def read_unittest(lines: list[str]) -> ProgramReport | None:
    """Reads `FAIL: test_two (tests.TestCart.test_two)` below a ruler, and `FAILED (failures=1)` at the end."""
    output = _UnittestCollector()
    for line in lines:
        output.read(line)
    return output.report()


class _UnittestCollector:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.tests: list[tuple[str, TestResult]] = []
        self.test = ""  # named by -v; its result comes next
        self.summaries: list[Counts] = []
        self.before = ""
        self.is_unfinished = False

    def read(self, line: str) -> None:
        if found := _UNITTEST_NAME.match(line):
            if self.before == "=" * 70 or line.startswith("UNEXPECTED"):
                self.names.append(found[1])
                self.is_unfinished = True
        elif found := _UNITTEST_RAN.match(line):
            self.is_unfinished = True
            self.summaries.append(Counts(int(found[1]), 0, 0))
        elif self.is_unfinished and self.summaries and (found := _UNITTEST_RESULT.match(line)):
            self.summaries[-1] = _count_unittest(self.summaries[-1].passed, found[1] or "")
            self.is_unfinished = False
        else:
            self._read_test(line)
        self.before = line

    def _read_test(self, line: str) -> None:
        """Reads `test_two (tests.TestCart.test_two) ... ok`; the test's docstring or output may come in between."""
        if found := _UNITTEST_TEST.match(line):
            self.test = found[1]
        if self.test and (found := _UNITTEST_WORD.match(line)):
            is_good = found[1] == "ok"
            self.tests.append((self.test, "passed" if is_good else "failed" if found[1] else "skipped"))
            self.test = ""

    def report(self) -> ProgramReport | None:
        return add_up(self.names, self.summaries, complete=not self.is_unfinished, tests=self.tests)


def _count_unittest(ran: int, text: str) -> Counts:
    pairs = (part.partition("=") for part in text.split(", "))
    sums = Counter({word: parse_number(number) for word, _, number in pairs})
    failures = sums["failures"] + sums["errors"] + sums["unexpected successes"]
    skipped = sums["skipped"] + sums["expected failures"]
    return Counts(max(0, ran - failures - skipped), failures, skipped)
