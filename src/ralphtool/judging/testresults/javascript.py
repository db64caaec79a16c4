"""The output of Jest, Vitest, Mocha, and of Node's own test runner."""

from __future__ import annotations

import re
from collections import Counter

from ralphtool.judging.testresults.model import (
    Counts,
    ProgramReport,
    build_report,
    join_file_and_name,
    parse_counts,
    shorten,
    shorten_path,
)

# --- Jest -------------------------------------------------------------------------------------------

_JEST_FILE = re.compile(r" ?(PASS|FAIL) +(\S.*?)(?: \([\d.]+ m?s\))?$")
_JEST_NOT_LOADED = " > Test suite failed to run"  # counts as a suite, not as a test
_JEST_END = re.compile(r"(Test Suites|Tests): +(\d.*) total$")


def read_jest(lines: list[str]) -> ProgramReport | None:
    """Reads `FAIL a.test.js`, below it `  ● adds two` for each failure, and at the end `Tests: 4 failed, …`."""
    names: list[str] = []
    suites, tests = Counter[str](), Counter[str]()
    file, blocks, unfinished = "", 0, False
    for line in lines:
        if found := _JEST_FILE.match(line):
            file = shorten(shorten_path(found[2])) if found[1] == "FAIL" else ""
            unfinished = unfinished or bool(file)
            blocks += bool(file)
        elif file and line.startswith("  ● ") and line != "  ● Console":
            names.append(f"{file} > {line[4:]}")
        elif found := _JEST_END.match(line):
            file, unfinished = "", False
            (tests if found[1] == "Tests" else suites).update(parse_counts(found[2]))
    if not tests and not suites:
        return None
    failures = tests["failed"] + sum(name.endswith(_JEST_NOT_LOADED) for name in set(names))
    complete = not unfinished and suites["failed"] <= blocks
    return build_report(names, failures, _count_tests(tests), complete=complete)


def _count_tests(words: Counter[str]) -> Counts:
    return Counts(words["passed"], words["failed"], words["skipped"] + words["todo"])


# --- Vitest -----------------------------------------------------------------------------------------

_VITEST_LIST = re.compile(r"⎯+ Failed (?:Suites|Tests) (\d{1,9}) ⎯+$")
_VITEST_END = re.compile(r" +(Test Files|Tests|Errors)  (\d+ .*|no tests)$")


def read_vitest(lines: list[str]) -> ProgramReport | None:
    """Reads ` FAIL  a.test.js > cart > adds two` in the lists of failures, and at the end `Tests  4 failed | …`."""
    names: list[str] = []
    sums = {"Test Files": Counter[str](), "Tests": Counter[str](), "Errors": Counter[str]()}
    listed, listing, ended = 0, False, False
    for line in lines:
        if found := _VITEST_LIST.match(line):
            listed, listing = listed + int(found[1]), True
        elif listing and line.startswith(" FAIL  "):
            names.append(shorten_path(line[7:].partition(" [ ")[0]))
        elif found := _VITEST_END.match(line):
            sums[found[1]].update(parse_counts(found[2]))
            listing, ended = False, True
    if not ended:
        return None
    counts = _count_tests(sums["Tests"])
    complete = not sums["Errors"] and sums["Test Files"]["failed"] <= listed
    return build_report(names, max(listed, counts.failed), counts, complete=complete)


# --- Mocha ------------------------------------------------------------------------------------------

_MOCHA_COUNT = re.compile(r"  (\d{1,9}) (passing \(.*\)|pending|failing)$")


def read_mocha(lines: list[str]) -> ProgramReport | None:
    """Reads `  4 failing`, and below it the numbered failures, each with the titles of its suites."""
    names: list[str] = []
    sums = Counter[str]()
    wanted = 0
    for at, line in enumerate(lines):
        if found := _MOCHA_COUNT.match(line):
            word = found[2].partition(" ")[0]
            sums[word] += int(found[1])
            wanted = int(word == "failing")
        elif wanted and line.startswith(f"  {wanted}) "):
            names += _join_titles(lines, at)
            wanted += 1
    counts = Counts(sums["passing"], sums["failing"], sums["pending"])
    return build_report(names, sums["failing"], counts) if "passing" in sums else None


def _join_titles(lines: list[str], at: int) -> list[str]:
    """Joins the titles from the outermost on into one id: each is indented two columns deeper than the one above it.

    The last one ends with a colon; where it doesn't, the output ends too early, and there is no id.
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
    """Returns the number in one line of the summary, by its word; that summary ends Node's TAP, too."""
    found = _NODE_COUNT.match(line)
    return {found[1]: int(found[2])} if found else {}


def count_node_tests(sums: Counter[str]) -> Counts:
    """Returns what all lines of the summary count."""
    return Counts(sums["pass"], sums["fail"] + sums["cancelled"], sums["skipped"] + sums["todo"])


def read_node(lines: list[str]) -> ProgramReport | None:
    """Reads the `spec` reporter: the summary, and below it for each failure its place and its name."""
    names: list[str] = []
    sums = Counter[str]()
    listing, place = False, ""
    for line in lines:
        if line.startswith("\u2139") and (count := parse_node_count(line)):
            sums.update(count)
        elif line == "✖ failing tests:":
            listing = True
        elif listing and (found := _NODE_PLACE.match(line)):
            place = shorten_path(found[1])
        elif place and (found := _NODE_NAME.match(line)):
            if not found[2].startswith(" # TODO"):
                names.append(join_file_and_name(place, found[1]))
            place = ""
    counts = count_node_tests(sums)
    return build_report(names, counts.failed, counts) if "fail" in sums else None
