"""Baselines: what was red, what passed, and which tests have disappeared."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphtool.judging import gates
from ralphtool.judging.gates import Baseline, EarlierTests, GateResult
from ralphtool.judging.testresults.model import Counts, TestOutcomes
from ralphtool.record.change_state import ChangeState

GATE = "make test"


def outcomes(passed: Iterable[str], failed: Iterable[str] = (), skipped: Iterable[str] = ()) -> TestOutcomes:
    sets = [frozenset(names) for names in (passed, failed, skipped)]
    return TestOutcomes(Counts(*map(len, sets)), *sets)


def numbers(passed: int, failed: int = 0) -> TestOutcomes:
    return TestOutcomes(Counts(passed, failed, 0), None, None if failed else frozenset())


def result(tests: TestOutcomes | None, command: str = GATE, exit_code: int = 0) -> GateResult:
    ok = exit_code == 0 and not (tests and tests.counts.failed)
    named = tuple(sorted(tests.failed)) if tests and tests.failed else None
    return GateResult(
        command=command, ok=ok, exit_code=exit_code, why="", seconds=0.1, failed=named, tally="1 passed, 2 failed",
        log="", tests=tests,
    )  # fmt: skip


def vanished(before: TestOutcomes | None, now: TestOutcomes | None) -> list[str]:
    stored = msgspec.json.encode(gates.build_baseline("key", [result(before)]))
    return list(gates.find_vanished([result(now)], msgspec.json.decode(stored, type=Baseline)))


@pytest.mark.parametrize(
    ("before", "now", "gone"),
    [
        (outcomes("ab"), outcomes("ab"), []),
        (outcomes("ab"), outcomes("abc"), []),
        (outcomes("ab"), outcomes("b"), ["a"]),
        (outcomes("ab"), outcomes("b", skipped="a"), ["a (skipped now)"]),
        (outcomes("ab"), outcomes("b", failed="a"), []),
        (outcomes("ab", failed="c"), outcomes("ab"), []),
        (outcomes("ab", skipped="c"), outcomes("ab"), []),
        (outcomes("ab"), outcomes(""), ["a", "b"]),
        (outcomes("ab"), None, ["2 fewer tests pass (2 before, 0 now)"]),
        (None, outcomes("ab"), []),
        (None, None, []),
        (outcomes(""), outcomes(""), []),
        (outcomes(["é › ü", "x y"]), outcomes(["x y"]), ["é › ü"]),
        (outcomes("abc"), numbers(2), ["1 fewer test passes (3 before, 2 now)"]),
        (numbers(12), numbers(9), ["3 fewer tests pass (12 before, 9 now)"]),
        (numbers(12), numbers(12), []),
        (numbers(12), numbers(11, 1), []),
        (numbers(12), numbers(10, 1), ["1 fewer test passes (12 before, 10 now)"]),
        (numbers(10, 2), numbers(9, 2), ["1 fewer test passes (10 before, 9 now)"]),
        (numbers(10, 2), numbers(10), []),
        (numbers(3), outcomes("ab"), ["1 fewer test passes (3 before, 2 now)"]),
    ],
)
def test_tests_that_are_gone_are_named(before: TestOutcomes | None, now: TestOutcomes | None, gone: list[str]) -> None:
    assert vanished(before, now) == gone


def test_parameters_that_differ_from_run_to_run_are_no_loss() -> None:
    before = outcomes(["test_at[2026-11-16]", "test_at[2026-11-17]", "test_it"])
    assert vanished(before, outcomes(["test_at[2026-11-18]", "test_at[2026-11-19]", "test_it"])) == []
    assert vanished(before, outcomes(["test_at[2026-11-16]", "test_it"])) == ["test_at[2026-11-17]"]
    assert vanished(before, outcomes(["test_at[2026-11-18]", "test_at[2026-11-19]"])) == ["test_it"]


def test_a_gate_that_was_not_there_before_has_lost_nothing() -> None:
    before = gates.build_baseline("key", [result(outcomes("ab"), "other")])
    assert gates.find_vanished([result(outcomes(""))], before) == ()


def test_a_baseline_tells_what_was_red_and_what_ran_no_test() -> None:
    results = [
        result(outcomes("a"), "green"),
        result(outcomes("a", "b"), "red"),
        result(None, "lint", exit_code=1),
        result(numbers(0), "empty", exit_code=5),
        result(None, "no test program"),
    ]
    before = gates.build_baseline("key", results)
    assert before.red == {"red": ["b"], "lint": None, "empty": None}
    assert before.without_tests == ("empty",)
    assert [one.ran_tests for one in results] == [True, True, False, False, False]


def test_failures_with_exit_status_0_are_explained() -> None:
    (red,) = gates.find_newly_red([result(numbers(1, 2))], Baseline("key"))
    assert red.why == "exit status 0, but 1 passed, 2 failed"


def test_an_earlier_file_is_read_and_its_baseline_made_anew() -> None:
    stored = b'{"baseline": {"key": "abc", "red": {"make": null}}}'
    state = msgspec.json.decode(stored, type=ChangeState)
    assert state.baseline == Baseline("abc", {"make": None})
    assert gates.find_vanished([result(outcomes(""))], state.baseline) == ()


@pytest.mark.parametrize("names", [b"", b"damaged"])
def test_damaged_names_leave_the_numbers(names: bytes) -> None:
    before = Baseline("key", {}, {GATE: EarlierTests(3, 0, names)})
    assert gates.find_vanished([result(outcomes("ab"))], before) == ("1 fewer test passes (3 before, 2 now)",)


def test_a_suite_of_20000_tests_is_stored_small_and_compared_fast() -> None:
    names = [f"tests/area_{i % 40}/test_module_{i % 400}.py::TestThing{i % 9}::test_case_{i}" for i in range(20000)]
    began = time.process_time()
    before = gates.build_baseline("key", [result(outcomes(names))])
    stored = msgspec.json.encode(before)
    gone = gates.find_vanished([result(outcomes(names[5:]))], msgspec.json.decode(stored, type=Baseline))
    assert sorted(gone) == sorted(names[:5])
    assert len(stored) < 200_000
    assert time.process_time() - began < 1


@given(st.sets(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)), st.data())
def test_every_name_that_is_missing_is_found(names: set[str], data: st.DataObject) -> None:
    plain = {name for name in names if not name.endswith("]")}
    kept = data.draw(st.sets(st.sampled_from(sorted(plain)))) if plain else set()
    assert set(vanished(outcomes(plain), outcomes(kept))) == plain - kept


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (outcomes("abc"), outcomes("bc", "a"), True),
        (outcomes("abc"), outcomes("", "abc"), True),
        (outcomes("abcd"), outcomes("", "abcd"), False),
        (outcomes("abc"), outcomes("abc", "d"), False),
        (outcomes("abc", "d"), outcomes("abc", "d"), False),
        (numbers(3), numbers(2, 1), False),
        (None, outcomes("bc", "a"), False),
        (outcomes("abc"), None, False),
    ],
    ids=["one", "three", "too many", "a new test", "red before", "no names", "no tests before", "no tests now"],
)
def test_a_few_tests_that_passed_before_may_be_flaky(
    before: TestOutcomes | None, now: TestOutcomes | None, expected: bool
) -> None:
    baseline = gates.build_baseline("key", [result(before)])
    red = gates.find_newly_red([result(now, exit_code=1)], baseline)
    assert gates.may_be_flaky(red, baseline) is expected


@pytest.mark.parametrize(
    ("commands", "builds"),
    [
        (["npm run build", "make test"], ["npm run build"]),
        (["npm run lint", "npx tsc -p .", "make test"], ["npx tsc -p ."]),
        (["npx tsc --noEmit", "make test"], []),
        (["make test", "npm run build"], []),
        (["npm run build"], []),
    ],
)
def test_gates_that_build_what_the_tests_after_them_use(commands: list[str], builds: list[str]) -> None:
    results = [result(numbers(2) if one == GATE else None, one) for one in commands]
    assert gates.list_builds(results) == builds
