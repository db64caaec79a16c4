"""From the output of a command to the reports of all test programs in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.testresults import go, javascript, junit, php, python, ruby, rust, tap
from ralphtool.judging.testresults.model import ProgramReport

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Za-z0-9])")
_PNPM_SCOPE = re.compile(r"Scope: (?:\d+ of \d+|all \d+) workspace projects$")
_PNPM_START = re.compile(r"([\w@./-]+ [\w:.-]+)\$ ")
_GAPS = re.compile(r"\n{3,}")
_COVERAGE = re.compile(
    r"FAIL Required test coverage|(?:ERROR: )?Coverage failure: |ERROR: Coverage for"  # pytest-cov, coverage, nyc, c8
    r"|Jest: (?:.*coverage threshold|Uncovered count for|Coverage for)"
    r"|.*coverage does not meet threshold of "  # Node
    r"|.*coverage threshold \(.*\) satisfied:\s+FAIL"  # go-test-coverage
    r"|.*Coverage is below the failure threshold|.*coverage \(.*\) is below the expected "  # tarpaulin, SimpleCov
)

# For each program: the text that its summary always contains; its reader, which returns None if the program did not
# run; and whether the summary counts every failure. If it covers only one package or binary, an output that was cut
# at its beginning may have lost failures that no summary counts.
_PROGRAMS = (
    ("Ran ", python.read_unittest, True),
    ("ssertion", php.read_phpunit, True),
    (" example", ruby.read_rspec, True),
    ("Test Suites:", javascript.read_jest, True),
    (" found, exiting with code", javascript.read_no_tests, True),
    ("Test Files", javascript.read_vitest, True),
    (" passing (", javascript.read_mocha, True),
    ("\u2139 fail ", javascript.read_node, True),
    ("1..", tap.read_tap, True),
    ("\t", go.read_text, False),
    ('"Action":"', go.read_json, False),
    ("test result: ", rust.read_cargo, False),
)


def make_paths_relative(output: bytes, root: str) -> bytes:
    """Removes the root from the paths in an output."""
    folder = root.rstrip("/").encode("utf-8", "surrogateescape")
    return re.sub(rb"(?<![\w.-])" + re.escape(folder) + b"/", b"", output) if folder else output


def split_lines(output: bytes, root: str) -> list[str]:
    """Splits an output into lines without colours, absolute paths and the spaces at their ends."""
    text = make_paths_relative(output, root).decode("utf-8", "replace")
    text = strip_colours(text).replace("\r\n", "\n").replace("\r", "\n")
    text = _GAPS.sub("\n\n", text)
    return _gather_packages([line.rstrip() for line in text.split("\n")])


def _gather_packages(lines: list[str]) -> list[str]:
    """`pnpm -r` runs the packages of a workspace side by side, and begins each line with the package and its script:
    `packages/core test: 3 passed`. Returns the lines of one package after those of another, as each program wrote them.
    """
    if not any(map(_PNPM_SCOPE.match, lines)) or python.has_pytest_begun(lines):
        return lines
    found: dict[str, list[str]] = {start[1]: [] for line in lines if (start := _PNPM_START.match(line))}
    rest: list[str] = []
    for line in lines:
        package = next((one for one in found if line.startswith(f"{one}:")), None)
        (rest if package is None else found[package]).append(line if package is None else line[len(package) + 2 :])
    return rest + [line for own in found.values() for line in own]


def strip_colours(text: str) -> str:
    return _ESCAPES.sub("", text)


def is_coverage_too_low(lines: list[str]) -> bool:
    """Returns whether a program reports that the coverage is too low."""
    return any(map(_COVERAGE.match, lines))


def read_reports(lines: list[str], *, cut: bool = False) -> list[ProgramReport]:
    """Returns the report of every program in an output; `cut` says that its beginning may be missing.

    The output of tests appears inside pytest's output or XML, and may look like that of any program: it is not read.
    """
    before, xml, after = junit.split_off_report(lines)
    in_pytest = python.has_pytest_begun(before)
    outside = lines if in_pytest else before + after
    runs, rest, ended = python.split_pytest_runs(outside)
    reports = python.read_pytest_runs(runs)
    if not ended or python.was_pytest_interrupted(outside):
        reports.append(ProgramReport(complete=False))
    if in_pytest:
        before, xml, after = junit.split_off_report(rest)
        rest = before + after
    if xml:
        reports.append(junit.read_report("\n".join(xml).encode("utf-8", "replace")) or ProgramReport(complete=False))
    return [*reports, *_read_programs(rest, cut=cut)]


def _read_programs(lines: list[str], *, cut: bool) -> Iterator[ProgramReport]:
    text = "\n".join(lines)
    for mark, read, counts_all in _PROGRAMS:
        report = read(lines) if mark in text else None
        if report and cut and not counts_all:
            report = ProgramReport(counts=report.counts, complete=False)
        if report:
            yield report
