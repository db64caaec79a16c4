"""Recorded output of `go test`."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import count_tests, failed
from judging.testresults.recordings import GO, GO_CRASH, GO_IDS, GO_JSON, GO_TEXT, load

from ralphtool.judging.testresults import read_outcomes
from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), GO.values(), ids=GO)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


def test_a_package_that_began_has_to_end() -> None:
    end = '{"Action":"fail","Package":"example.com/shop/b","Elapsed"'
    assert failed(GO_JSON[: GO_JSON.index(end)].encode()) is None


@pytest.mark.parametrize("output", [GO_CRASH, load("go-json-crash")], ids=["text", "json"])
def test_a_crash_names_no_test(output: str) -> None:
    assert failed(output.encode()) is None


def test_fewer_names_than_failures_are_no_answer() -> None:
    output = GO_TEXT.replace("--- FAIL: TestPanic (0.00s)\n", "").replace("--- FAIL: TestSame (0.00s)\n", "")
    assert failed(output.encode()) is None


def test_go_in_one_folder_ends_without_a_last_word() -> None:
    local = "--- FAIL: TestSame (0.00s)\n    a_test.go:3: boom\nFAIL\nexit status 1\nFAIL\texample.com/shop/a\t0.002s\n"
    assert failed(local.encode()) == {"example.com/shop/a.TestSame"}


def test_what_a_passing_go_package_printed_is_no_result() -> None:
    fake = "--- FAIL: TestFake (0.00s)\nok  \texample.com/shop/c\t0.002s\n"
    assert failed((fake + GO_TEXT).encode()) == GO_IDS


def test_go_names_what_passed() -> None:
    names = ("a.TestFine", "a.TestTable/one_two", "c.TestFine")
    for output in (load("go-verbose"), GO_JSON):
        found = read_outcomes(output.encode())
        assert found
        assert found.passed == frozenset(f"example.com/shop/{name}" for name in names)
    plain = read_outcomes(GO_TEXT.encode())
    assert plain
    assert plain.passed == frozenset({"example.com/shop/c"})


def test_a_result_counts_only_for_a_test_that_began() -> None:
    """If a test prints text without a line break, the result follows on the same line."""
    output = (
        "=== RUN   TestA\n--- PASS: TestForged (0.00s)\n--- FAIL: TestFake (0.00s)\nprinted--- PASS: TestA (0.00s)\n"
        "=== RUN   TestB\n--- SKIP: TestB (0.00s)\nPASS\nok  \texample.com/shop\t0.003s\n"
    )
    found = read_outcomes(output.encode())
    assert found
    assert (found.counts, found.passed) == (Counts(1, 0, 1), frozenset({"example.com/shop.TestA"}))


@pytest.mark.parametrize(
    "line", ["?   \texample.com/shop\t[no test files]", "ok  \texample.com/shop\t0.003s [no tests to run]"]
)
def test_a_package_without_tests_ran_none(line: str) -> None:
    assert count_tests(f"{line}\n".encode()) == Counts(0, 0, 0)
