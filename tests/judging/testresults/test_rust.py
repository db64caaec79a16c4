"""Recorded output of `cargo test`."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import count_tests, failed
from judging.testresults.recordings import CARGO, CARGO_IDS, RUST, load

from ralphtool.judging.testresults import read_outcomes
from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), RUST.values(), ids=RUST)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


@pytest.mark.parametrize("end", ["\nrunning 2 tests", "test tests::other ... FAILED", "\nrunning 1 test\n"])
def test_a_target_that_began_has_to_end(end: str) -> None:
    assert failed(CARGO[: CARGO.index(end)].encode()) is None


def test_an_abort_names_no_test() -> None:
    assert failed(load("cargo-abort").encode()) is None


def test_fewer_names_than_failures_are_no_answer() -> None:
    output = CARGO.replace("    tests::other\n", "")
    assert failed(output.encode()) is None


def test_cargo_may_name_its_targets_after_their_results() -> None:
    """They go to stderr; in a log, that may come after all of stdout."""
    words = ("Compiling", "Finished", "Running", "Doc-tests", "error:")
    lines = CARGO.splitlines(keepends=True)
    aside = [line for line in lines if line.lstrip().startswith(words)]
    stdout, stderr = "".join(line for line in lines if line not in aside), "".join(aside)
    assert failed((stdout + stderr).encode()) == CARGO_IDS
    assert failed((stdout + stderr[: stderr.index("   Doc-tests")]).encode()) is None


def test_cargo_that_says_more_is_read_too() -> None:
    binary = "/src/shop/target/debug/deps/api-9bcfde99a7c554b8"
    verbose = CARGO.replace("tests/api.rs (target/debug/deps/api-9bcfde99a7c554b8)", f"`{binary} --test-threads 1`")
    assert "--test-threads" in verbose
    ids = {name.replace("api tests/api.rs", "api") for name in CARGO_IDS}
    assert failed(verbose.encode()) == ids


def test_tests_that_look_the_same_are_numbered() -> None:
    twice = "".join(
        line for line in CARGO.splitlines(keepends=True) if "Running" not in line and "Doc-tests" not in line
    )
    assert failed(twice.encode()) == {"tests::same", "tests::same #2", "tests::other", "src/lib.rs - two"}


def test_cargo_names_what_passed() -> None:
    found = read_outcomes(CARGO.encode())
    assert found
    assert found.passed == frozenset({"shop src/lib.rs tests::fine"})
    assert found.failed == frozenset(CARGO_IDS)
