"""tests/slow.txt says what the quick run leaves out. What is left shows every promise once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

from conftest import SLOW
from project import REPOSITORY, TESTS

LEFT_OUT = {name for name, share in SLOW.items() if share.quick == 0}
# That demo takes half a minute, and shows what tests in tests/workers and tests/executors/temporal test one by one.
ONLY_TEST_OF_ITS_FILE = {"test_demo_workers.py"}
PAGES = ("docs/conformance.md", "docs/why-safe.md")


def test_every_line_names_a_test() -> None:
    assert [name for name in SLOW if f"def {name.rpartition('::')[2]}(" not in source(name)] == []
    assert not [name for name in SLOW if not re.fullmatch(r"[\w/]+\.py(::\w+)+", name)]


def source(name: str) -> str:
    path = TESTS / name.partition("::")[0]
    return path.read_text() if path.exists() else ""


def test_every_promise_has_a_test_in_the_quick_run() -> None:
    rows = [row for page in PAGES for row in (REPOSITORY / page).read_text().split("\n") if row.startswith("| ")]
    promises = {row: set(re.findall(r"`([\w/]+\.py::[\w:]+)`", row)) for row in rows}
    assert sum(map(bool, promises.values())) > 100
    assert [row for row, tests in promises.items() if tests and tests <= LEFT_OUT] == []


def test_the_quick_run_keeps_the_larger_part_of_every_file() -> None:
    left_out = Counter(name.partition("::")[0] for name in LEFT_OUT)
    of_all = {file: len(re.findall(r"^ *def test_", source(file), re.MULTILINE)) for file in left_out}
    less = {file for file, number in left_out.items() if number * 2 > of_all[file]}
    assert less == ONLY_TEST_OF_ITS_FILE


IN_PARTS = "memory/test_fingerprint.py::test_the_time_is_linear"


def test_over_as_many_commits_as_there_are_parts_every_case_is_tried() -> None:
    parts = SLOW[IN_PARTS].parts
    every = collect("every")
    turns = [collect("all", turn) for turn in range(parts)]
    assert len(every) > parts > 1
    assert set().union(*turns) == every
    assert all(len(cases) < len(every) / parts + 2 for cases in turns)
    assert all(collect("", quick=True) < cases for cases in turns)


def collect(tests: str, turn: int = 0, *, quick: bool = False) -> set[str]:
    """The cases that a run takes."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    options = ["-m", "not slow"] if quick else []
    env = {**os.environ, "RALPH_TESTS": tests, "RALPH_TURN": str(turn)}
    done = subprocess.run(
        [*command, *options, f"{TESTS}/{IN_PARTS}"], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True
    )
    return {line for line in done.stdout.splitlines() if "::" in line}
