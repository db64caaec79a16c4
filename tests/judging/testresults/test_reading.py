"""The output of every program: noise, missing parts, hostile text, and when the readers are imported."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging.testresults.reading_lab import count_tests, failed, failed_junit
from judging.testresults.recordings import (
    CARGO,
    GO_CRASH,
    GO_IDS,
    GO_JSON,
    GO_TEXT,
    JEST,
    JEST_IDS,
    MOCHA,
    MOCHA_IDS,
    RECORDED,
)
from patience import PATIENCE

from ralphtool.judging.testresults import LIMIT, find_junit_paths
from ralphtool.judging.testresults.model import Counts

COUNT_PATTERNS = """\
import re, re._compiler, sys, typing
compiled = []
original = re._compiler.compile
re._compiler.compile = lambda *given: compiled.append(given) or original(*given)
from ralphtool.judging import testresults
print(len(compiled), sorted(name for name in sys.modules if name.startswith("ralphtool.judging.")))
testresults.read_outcomes(b"3 passed in 0.10s")
print(len(compiled) > 0)
"""


def test_importing_compiles_no_pattern() -> None:
    """Every run imports it when it starts."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", COUNT_PATTERNS], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "0 ['ralphtool.judging.testresults']\nTrue\n", done.stderr


# --- noise and missing parts ------------------------------------------------------------------------

recorded = pytest.mark.parametrize(("output", "ids", "counts"), RECORDED.values(), ids=RECORDED)


@recorded
def test_line_ends_and_broken_bytes_change_nothing(output: str, ids: set[str], counts: Counts | None) -> None:
    noisy = (
        b"caf\xe9 \xff\xfe\x00\r\nwarning: something\n"
        + output.replace("\n", "\r\n").encode()
        + b"\r\nmake: *** Error 1"
    )
    assert failed(noisy) == ids
    assert count_tests(noisy) == counts
    assert failed(b"  0%\r100%\r" + output.encode()) == ids


@recorded
def test_an_output_without_its_end_is_not_read(output: str, ids: set[str], counts: Counts | None) -> None:
    """If each package has its own results, nothing shows that the last package is missing."""
    lines = output.splitlines(keepends=True)
    parts = {frozenset(failed("".join(lines[:end]).encode()) or ids) for end in range(len(lines))}
    several = output in (GO_JSON, CARGO)
    assert parts == {frozenset(ids)} or several
    assert failed("".join(lines[: len(lines) // 5]).encode()) is None


@pytest.mark.parametrize("output", ["", "Segmentation fault (core dumped)\n"])
def test_a_crash_names_no_test(output: str) -> None:
    assert failed(output.encode()) is None


def test_two_programs_in_one_output_are_both_read() -> None:
    assert failed((JEST + GO_TEXT + MOCHA).encode()) == JEST_IDS | GO_IDS | MOCHA_IDS
    assert count_tests((JEST + MOCHA).encode()) == Counts(4, 8, 3)
    assert failed((JEST + GO_CRASH).encode()) is None
    assert failed((JEST + JEST.partition("Test Suites:")[0]).encode()) is None


@pytest.mark.parametrize(
    "line",
    [
        "FAIL Required test coverage of 90% not reached. Total coverage: 12.00%",
        'Jest: "global" coverage threshold for statements (90%) not met: 12%',
        'Jest: Coverage for lines (12%) does not meet "global" threshold (90%)',
        'Jest: Uncovered count for statements (8) exceeds "global" threshold (2)',
        "ERROR: Coverage for lines (12%) does not meet global threshold (90%)",
        "ERROR: Coverage failure: total of 12 is less than fail-under=90",
        "Coverage failure: total of 12 is less than fail-under=90",
        "\u2139 Error: 12.00% line coverage does not meet threshold of 90%.",
        "Total coverage threshold (90%) satisfied:\tFAIL",
        "Error: Coverage is below the failure threshold 12.00% < 90.00%",
        "Line coverage (12.00%) is below the expected minimum coverage (90.00%).",
    ],
)
def test_too_little_coverage_has_an_id_of_its_own(line: str) -> None:
    assert failed(f"3 passed in 0.10s\n{line}\n".encode()) == {"coverage threshold"}
    assert failed(b"3 passed in 0.10s\n") is None
    assert failed(line.encode()) is None


def test_a_cut_output_is_read_only_where_its_end_counts_all() -> None:
    padding = b"x" * 99 + b"\n"
    long = padding * (LIMIT // len(padding) + 1)
    assert failed(long + MOCHA.encode()) == MOCHA_IDS
    assert failed(long + GO_TEXT.encode()) is None
    assert count_tests(long + CARGO.encode()) == Counts(1, 4, 1)


# --- hostile output ---------------------------------------------------------------------------------

LINES = sorted({line for output, _, _ in RECORDED.values() for line in output.splitlines()})


def check(output: bytes) -> None:
    found = failed(output, "/src/shop")
    assert found is None or (
        found and all(len(name) < 1000 and "\n" not in name and "\x1b[" not in name for name in found)
    )
    counts = count_tests(output)
    assert counts is None or min(counts.passed, counts.failed, counts.skipped) >= 0


@given(st.binary())
def test_no_bytes_crash_it(output: bytes) -> None:
    check(output)
    assert failed_junit(output) is None


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=40))
def test_no_mixture_of_lines_crashes_it(lines: list[str]) -> None:
    check("\n".join(lines).encode("utf-8", "surrogatepass"))


@given(st.text())
def test_no_command_crashes_it(command: str) -> None:
    assert all(find_junit_paths(command))


@settings(deadline=None)
@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_lines_that_get_lost_hide_no_failure_that_is_counted(name: str, data: st.DataObject) -> None:
    """If an output counts its failures, at least that many ids are found, or there is no answer."""
    output, _, counts = RECORDED[name]
    lines = output.splitlines(keepends=True)
    lost = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=5))
    left = "".join(line for at, line in enumerate(lines) if at not in lost).encode()
    found, counted = failed(left), count_tests(left)
    if found is not None and counted == counts and counts and not name.startswith("go"):
        assert len(found) >= counts.failed


# The summaries that make the readers look for names of tests.
ENDS = """
ok  \ta\t1s

  1 passing (1ms)

\u2139 tests 1
\u2139 fail 0
Test Suites: 1 total
Tests: 1 total
"""


@pytest.mark.parametrize(
    "piece",
    [
        "=",
        "\r",
        "\x1b[0",
        "FAIL a (1.0 s",
        "FAIL a\n  ● x\n",
        "--- FAIL: " + "a/" * 900 + " (0.00s)\n",
        "    not ok 1 - a\n1..9\n",
        "  1 failing\n  1) a\n",
        "<testsuite name='a'>\n",
        "1 failed in 1.0s\n",
        "FAILED a[ - ",
        "Ran 1 test in 1s\nFAILED (" + "a " * 900 + ")\n",
        "failures:\n    a\n",
        "a:: PASSED [ 5%]",
        "a::b PASSED [ 5%]\n",
        "  \u2714 a (1ms) # SKIP",
        "  \u2714 a\n",
        "=== RUN   a\n--- PASS: a (0.00s)\n",
        "test a ... ok\n",
        "a (b.c) ... ok\n",
    ],
    ids=lambda piece: repr(piece)[:20],
)
def test_hostile_output_takes_no_time_worth_mentioning(piece: str) -> None:
    output = (piece * (LIMIT // 16 // len(piece))).encode()
    began = time.monotonic()
    check(output)
    check(output + ENDS.encode())
    check(b"=== short test summary info ===\nFAILED " + output + b"\n1 failed in 1.0s\n")
    assert time.monotonic() - began < 60


def test_packages_that_pnpm_runs_side_by_side_are_read_one_by_one() -> None:
    scope = "\n> shop@1.0.0 test /shop\n> pnpm -r test\n\nScope: 2 of 3 workspace projects\n"
    starts = "packages/core test$ jest\npackages/@x/cli test$ mocha\n"
    both = [[f"{name}: {line}".rstrip() for line in text.split("\n")] for name, text in PACKAGES.items()]
    mixed = [line for pair in zip_longest(*both) for line in pair if line is not None]
    output = scope + starts + "\n".join(mixed) + "\npackages/core test: Failed\n"
    assert failed(output.encode()) == JEST_IDS | MOCHA_IDS
    in_pytest = f"===== test session starts =====\n{output}\n===== 2 passed in 0.01s =====\n"
    assert count_tests(in_pytest.encode()) == Counts(2, 0, 0)


PACKAGES = {"packages/core test": JEST, "packages/@x/cli test": MOCHA}
