"""The output of Jest, Vitest, Mocha, and of Node's own test runner."""

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
    join_file_and_name,
    parse_counts,
    shorten,
    shorten_path,
)
from ralphtool.judging.testresults.titles import TitleTree

# --- Jest -------------------------------------------------------------------------------------------

_JEST_FILE = re.compile(r" ?(PASS|FAIL) +(\S.*?)(?: \([\d.]+ m?s\))?$")
_JEST_NOT_LOADED = " > Test suite failed to run"  # counts as a suite, not as a test
_JEST_END = re.compile(r"(Test Suites|Tests): +(\d.*) total$")


_NO_TESTS = re.compile(r"No test(?:s| files) found(?:, exiting with code \d)?")


def read_no_tests(lines: list[str]) -> ProgramReport | None:
    """Reads the message that Jest and Vitest print instead of a summary."""
    return ProgramReport(counts=Counts(0, 0, 0)) if any(map(_NO_TESTS.match, lines)) else None


def read_jest(lines: list[str]) -> ProgramReport | None:
    """Reads `FAIL a.test.js`, below it `  ● adds two` for each failure, and at the end `Tests: 4 failed, …`."""
    output = _JestCollector()
    for line in lines:
        output.read(line)
    return output.report()


class _JestCollector:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.tests: list[tuple[str, TestResult]] = []
        self.suites, self.sums = Counter[str](), Counter[str]()
        self.last_suites, self.last_sums = Counter[str](), Counter[str]()
        self.file = ""  # the current file, if it has failures
        self.blocks = 0  # files with failures
        self.tree: TitleTree | None = None  # of the tests below the name of a file, with --verbose
        self.shown = ""  # the file of the tree
        self.is_unfinished = False

    def read(self, line: str) -> None:
        if found := _JEST_FILE.match(line):
            self._begin_file(found)
        elif self.file and line.startswith("  ● ") and line != "  ● Console":
            self.names.append(f"{self.file} > {line[4:]}")
        elif found := _JEST_END.match(line):
            self._end(found)
        elif self.tree and line.startswith("  "):
            self.tree.read(line)
        else:
            self._end_tree()

    def _begin_file(self, found: re.Match[str]) -> None:
        self._end_tree()
        self.shown, self.tree = shorten(shorten_path(found[2])), TitleTree(" \u203a ")
        self.file = self.shown if found[1] == "FAIL" else ""
        self.is_unfinished = self.is_unfinished or bool(self.file)
        self.blocks += bool(self.file)

    def _end_tree(self) -> None:
        if self.tree:
            self.tests += [(f"{self.shown} > {title}", result) for title, result in self.tree.tests]
        self.tree = None

    def _end(self, found: re.Match[str]) -> None:
        self._end_tree()
        self.file, self.is_unfinished = "", False
        words = parse_counts(found[2])
        if found[1] == "Tests":
            self.last_sums = words
            self.sums.update(words)
        else:
            self.last_suites = words
            self.suites.update(words)

    def report(self) -> ProgramReport | None:
        if not self.sums and not self.suites:
            return None
        failures = self.sums["failed"] + sum(name.endswith(_JEST_NOT_LOADED) for name in set(self.names))
        complete = not self.is_unfinished and self.suites["failed"] <= self.blocks
        counts, final = _count_tests(self.sums, self.suites), _count_tests(self.last_sums, self.last_suites)
        return build_report(self.names, failures, counts, complete=complete, tests=self.tests, final=final)


def _count_tests(words: Counter[str], files: Counter[str]) -> Counts:
    """Returns the counts of a summary: if a file could not be loaded, it may count no failed test."""
    return Counts(words["passed"], words["failed"] or files["failed"], words["skipped"] + words["todo"])


# --- Vitest -----------------------------------------------------------------------------------------

_VITEST_LIST = re.compile(r"⎯+ Failed (?:Suites|Tests) (\d{1,9}) ⎯+$")
_VITEST_END = re.compile(r" +(Test Files|Tests|Errors)  (\d+ .*|no tests)$")
_VITEST_TEST = re.compile(" ([✓\u00d7↓□]) (\\S.*? > .*?)(?: \\(retry x\\d+\\))?(?: \\d+ ?ms)?$")
_VITEST_MARKS: dict[str, TestResult] = {"✓": "passed", "\u00d7": "failed", "↓": "skipped", "□": "skipped"}


def read_vitest(lines: list[str]) -> ProgramReport | None:
    """Reads ` FAIL  a.test.js > cart > adds two` in the lists of failures, and at the end `Tests  4 failed | …`."""
    names: list[str] = []
    tests: list[tuple[str, TestResult]] = []
    summaries: list[dict[str, Counter[str]]] = []  # by the word that begins a line
    listed, listing = 0, False
    for line in lines:
        if found := _VITEST_LIST.match(line):
            listed, listing = listed + int(found[1]), True
        elif listing and line.startswith(" FAIL  "):
            names.append(shorten_path(line[7:].partition(" [ ")[0]))
        elif found := _VITEST_END.match(line):
            if not summaries or found[1] in summaries[-1]:
                summaries.append({})
            summaries[-1][found[1]] = parse_counts(found[2])
            listing = False
        elif found := _VITEST_TEST.match(line):  # with --reporter=verbose
            tests.append((shorten_path(found[2]), _VITEST_MARKS[found[1]]))
    if not summaries:
        return None
    found_counts = [_count_vitest(summary) for summary in summaries]
    counts = sum(found_counts[1:], found_counts[0])
    has_errors = any("Errors" in summary for summary in summaries)
    files = sum(summary.get("Test Files", Counter())["failed"] for summary in summaries)
    return build_report(
        names,
        max(listed, counts.failed),
        counts,
        complete=not has_errors and files <= listed,
        tests=tests,
        final=found_counts[-1],
    )


def _count_vitest(summary: dict[str, Counter[str]]) -> Counts:
    nothing = Counter[str]()
    counts = _count_tests(summary.get("Tests", nothing), summary.get("Test Files", nothing))
    errors = summary.get("Errors", nothing)["error"]
    return counts if counts.failed else Counts(counts.passed, errors, counts.skipped)


# --- Mocha ------------------------------------------------------------------------------------------

_MOCHA_COUNT = re.compile(r"  (\d{1,9}) (passing \(.*\)|pending|failing)$")


def read_mocha(lines: list[str]) -> ProgramReport | None:
    """Reads `  4 failing`, and below it the numbered failures, each with the titles of its suites."""
    names: list[str] = []
    tests: list[tuple[str, TestResult]] = []
    summaries: list[Counter[str]] = []
    tree, wanted = TitleTree(" > "), 0
    for at, line in enumerate(lines):
        if found := _MOCHA_COUNT.match(line):
            word = found[2].partition(" ")[0]
            if word == "passing":
                summaries.append(Counter())
                tests, tree = tests + tree.tests, TitleTree(" > ")
            if summaries:
                summaries[-1][word] += int(found[1])
            wanted = int(word == "failing")
        elif wanted and line.startswith(f"  {wanted}) "):
            names += _join_titles(lines, at)
            wanted += 1
        elif not wanted and line.startswith("  "):
            tree.read(line)
    counts = [Counts(sums["passing"], sums["failing"], sums["pending"]) for sums in summaries]
    return add_up(names, counts, tests=tests)


def _join_titles(lines: list[str], at: int) -> list[str]:
    """Joins the titles from the outermost on into one id: each is indented two columns deeper than the one above it.

    The last one ends with a colon; if it doesn't, the output was cut off, and there is no id.
    """
    titles, indent = [lines[at].partition(") ")[2]], 7
    for line in lines[at + 1 : at + 100]:
        if len(line) - len(line.lstrip(" ")) != indent or not line:
            break
        titles.append(line.strip())
        indent += 2
    return [" > ".join(titles)[:-1]] if titles[-1].endswith(":") else []


# --- Node -------------------------------------------------------------------------------------------

_NODE_COUNT = re.compile(r"(?:\u2139|#) (tests|pass|fail|cancelled|skipped|todo) (\d{1,9})$")
_NODE_PLACE = re.compile(r"test at (.+?):\d+:\d+$")
_NODE_NAME = re.compile(r"✖ (.*) \([\d.]+ms\)(.*)$")


def parse_node_count(line: str) -> dict[str, int]:
    """Returns the number in one line of the summary, by its word; Node's TAP output ends with the same summary."""
    found = _NODE_COUNT.match(line)
    return {found[1]: int(found[2])} if found else {}


def count_node_tests(sums: Counter[str]) -> Counts:
    """Returns the counts of the whole summary."""
    return Counts(sums["pass"], sums["fail"] + sums["cancelled"], sums["skipped"] + sums["todo"])


def read_node(lines: list[str]) -> ProgramReport | None:
    """Reads the `spec` reporter: the summary, and below it for each failure its place and its name."""
    names: list[str] = []
    sums, final = Counter[str](), Counter[str]()
    tree = TitleTree(" > ", has_marked_suites=True)
    begun, listing, place = False, False, ""
    for line in lines:
        if line.startswith("\u2139") and (count := parse_node_count(line)):
            begun = begun or "tests" in count  # begins a summary: anything before it was printed by a test
            final = Counter() if "tests" in count else final
            final.update(count if begun else {})
            sums.update(count if begun else {})
        elif line == "✖ failing tests:":
            listing = True
        elif listing and (found := _NODE_PLACE.match(line)):
            place = shorten_path(found[1])
        elif place and (found := _NODE_NAME.match(line)):
            if not found[2].startswith(" # TODO"):
                names.append(join_file_and_name(place, found[1]))
            place = ""
        elif not listing:
            tree.read(line)
    if "fail" not in sums:
        return None
    counts = count_node_tests(sums)
    tests = tree.pick(counts.passed)
    report = build_report(names, counts.failed, counts, tests=tests, final=count_node_tests(final))
    return replace(report, program="node")
