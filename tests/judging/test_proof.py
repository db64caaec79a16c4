"""What "done" may claim: a table of runs, and what each of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.lost_tests import count_removed, find_lost, find_uncovered, name_checks
from ralphtool.judging.proof import prove
from ralphtool.judging.proof_evidence import ProofEvidence, SuiteRun
from ralphtool.judging.proof_words import describe_weaker_tests
from ralphtool.judging.receipt import Suspicion

TESTS = "pytest"


def suite(passed: str = "", failed: str = "", *, named: bool = True, command: str = TESTS) -> SuiteRun:
    """A run of a program that counts tests; each letter is a test."""
    return SuiteRun(
        command=command,
        ok=not failed,
        passed=frozenset(passed) if named else None,
        failed=frozenset(failed),
        count_passed=len(passed),
        count_failed=len(failed),
    )


def script(*, ok: bool = True, command: str = "sh check.sh") -> SuiteRun:
    """A command that reports only its exit status."""
    return SuiteRun(command=command, ok=ok)


def forbid(lost: Sequence[str]) -> str:
    return ""


def permit(lost: Sequence[str]) -> str:
    return "the story says so"


def evidence(**fields: Any) -> ProofEvidence:
    """By default, a suite of two tests that is green before and after."""
    for name in ("before", "after", "replay", "own"):
        if isinstance(fields.get(name), SuiteRun):
            fields[name] = (fields[name],)
    return ProofEvidence(**{"before": (suite("ab"),), "after": (suite("ab"),), **fields})


def uncovered(passed: str, failed: str = "", *, named: bool = False) -> SuiteRun:
    """A run whose tests cover too little."""
    names = frozenset((*failed, "coverage threshold"))
    return structs.replace(suite(passed, failed, named=named), ok=False, failed=names)


STATES: dict[str, tuple[ProofEvidence, str, str]] = {
    "a new test that fails without the work": (evidence(after=suite("abc"), own=suite("ab", "c")), "proven", ""),
    "a new module: nothing can be collected without it": (
        evidence(after=suite("abc"), own=suite("", "abc")),
        "proven",
        "",
    ),
    "no test of its own": (evidence(), "held", ""),
    "new tests that pass without the work": (evidence(after=suite("abc"), own=suite("abc")), "held", ""),
    "a red test that is green now": (evidence(before=suite("a", "b"), after=suite("ab")), "proven", ""),
    "a changed test that fails without the work": (evidence(replay=suite("ab"), own=suite("a", "b")), "proven", ""),
    "old tests that don't cover the new code": (
        evidence(
            before=suite("ab", named=False),
            after=suite("abc", named=False),
            replay=uncovered("ab"),
            own=suite("ab", "c", named=False),
        ),
        "proven",
        "",
    ),
    "the same with names": (
        evidence(after=suite("abc"), replay=uncovered("ab", named=True), own=suite("ab", "c")),
        "proven",
        "",
    ),
    "new tests that reach the required coverage of old code": (
        evidence(
            before=uncovered("ab"),
            after=suite("abc", named=False),
            replay=uncovered("ab"),
            own=suite("abc", named=False),
        ),
        "held",
        "",
    ),
    "a command without a tally": (evidence(before=script(), after=script()), "held", ""),
    "a command without a tally, with tests of its own": (
        evidence(before=script(), after=script(), own=script(ok=False)),
        "held",
        "",
    ),
    "no gate": (evidence(before=(), after=()), "unproven", "there is no gate"),
    "only a linter": (
        evidence(before=script(command="ruff check"), after=script(command="ruff check")),
        "unproven",
        "the gates run no tests",
    ),
    "a linter and tests": (
        evidence(after=(script(command="make lint"), suite("abc")), own=suite("ab", "c")),
        "proven",
        "",
    ),
    "no test was run": (evidence(before=suite(), after=suite()), "unproven", "the gates ran no test"),
    "a gate that is known to be blind": (
        evidence(before=script(), after=script(), blind=frozenset(["sh check.sh"])),
        "unproven",
        "no gate noticed broken code (`sh check.sh`)",
    ),
    "a blind gate beside one that is not": (
        evidence(before=(script(), suite("ab")), after=(script(), suite("ab")), blind=frozenset(["sh check.sh"])),
        "held",
        "",
    ),
    "only a linter and a blind gate": (
        evidence(after=(script(command="ruff check"), script()), blind=frozenset(["sh check.sh"])),
        "unproven",
        "no gate noticed broken code (`sh check.sh`)",
    ),
    "red before and after": (
        evidence(before=suite("a", "b"), after=suite("a", "b")),
        "unproven",
        "`pytest` was red before and is still red",
    ),
    "the command is not there, before and after": (
        evidence(before=script(ok=False), after=script(ok=False)),
        "unproven",
        "`sh check.sh` was red before and is still red",
    ),
    "no git": (evidence(has_git=False), "unproven", "without git, changes to the tests can't be detected"),
    "only with ignored files": (
        evidence(only_with_ignored=("pytest/__init__.py",)),
        "unproven",
        "the gates pass only with files that git ignores: pytest/__init__.py",
    ),
    "an environment that the attempt installed": (
        evidence(after=suite("abc"), own=suite("ab", "c"), is_own_environment=True),
        "held",
        "",
    ),
    "its only own test asserts nothing": (
        evidence(after=suite("abc"), own=suite("ab", "c"), empty_tests=frozenset("c")),
        "held",
        "",
    ),
    "tests without names": (
        evidence(before=suite("ab", named=False), after=suite("abc", named=False), own=suite("ab", "c", named=False)),
        "proven",
        "",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_claims_no_more_than_was_shown(name: str) -> None:
    given, state, why = STATES[name]
    result = prove(given, forbid)
    assert result.against == ()
    assert result.receipt is not None
    assert (result.receipt.state, result.receipt.why[: len(why)]) == (state, why)
    assert bool(why) == bool(result.receipt.why)


LOSSES: dict[str, tuple[ProofEvidence, list[str]]] = {
    "an old test fails on the new code": (evidence(replay=suite("a", "b")), ["b"]),
    "an old test is not collected on the new code": (evidence(replay=suite("a")), ["b"]),
    "a test is gone, and no test file was touched": (evidence(after=suite("a")), ["b"]),
    "a red test was changed until it is green": (
        evidence(before=suite("a", "b"), after=suite("ab"), replay=suite("a", "b")),
        ["b"],
    ),
    "without names, an old test fails": (
        evidence(before=suite("ab", named=False), after=suite("ab", named=False), replay=suite("a", "b", named=False)),
        ["b"],
    ),
    "without names, fewer pass": (
        evidence(before=suite("ab", named=False), after=suite("a", named=False)),
        ["1 fewer tests pass (2 before, 1 now)"],
    ),
    "nothing is lost where the old tests pass": (evidence(after=suite("a"), replay=suite("ab")), []),
    "a new test that fails as it was is no loss": (evidence(after=suite("abc"), replay=suite("ab")), []),
    "a command without a tally": (evidence(before=script(), after=script(), replay=script()), []),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_was_lost_is_named(name: str) -> None:
    given, lost = LOSSES[name]
    assert list(find_lost(given)) == lost
    assert bool(prove(given, forbid).against) == bool(lost)
    assert list(prove(given, forbid).lost) == lost


def test_cases_with_other_values_are_no_loss_if_there_are_as_many() -> None:
    before, after = frozenset({"t[1]", "t[2]"}), frozenset({"t[1]", "t[3]"})
    runs = [SuiteRun(command=TESTS, ok=True, passed=one, failed=frozenset(), count_passed=2) for one in (before, after)]
    assert find_lost(evidence(before=runs[0], after=runs[1])) == ()
    fewer = SuiteRun(command=TESTS, ok=True, passed=frozenset({"t[1]"}), failed=frozenset(), count_passed=1)
    assert find_lost(evidence(before=runs[0], after=fewer)) == ("t[2]",)


def test_a_loss_that_the_story_asks_for_is_told_and_can_be_proven() -> None:
    given = evidence(after=suite("abc"), replay=suite("a", "b"), own=suite("a", "bc"))
    result = prove(given, permit)
    assert result.receipt is not None
    assert (result.receipt.state, result.receipt.lost) == ("proven", ("b",))
    assert result.receipt.allowed == "the story says so"


def test_old_tests_that_differ_only_in_renamed_names_are_no_loss() -> None:
    given = evidence(after=suite("cd"), replay=suite("", "ab"), is_same_by_reading=True)
    result = prove(given, forbid)
    assert result.receipt is not None
    assert (result.receipt.state, result.lost) == ("held", ())
    asked = prove(given, permit).receipt
    assert asked is not None
    assert (asked.state, asked.lost) == ("held", ())


def test_reading_excuses_nothing_that_fails_with_the_new_names() -> None:
    given = evidence(after=suite("cd"), replay=suite("a", "b"), is_same_by_reading=True, has_new_names=True)
    assert prove(given, forbid).lost == ("b",)


def test_an_accusation_leaves_out_what_the_story_asks_to_break() -> None:
    result = prove(
        evidence(replay=suite("c", failed="ab")), lambda names: "the story says so" if names == ["a"] else ""
    )
    assert "fail on the new code: b; keep" in result.against[0]
    assert set(result.lost) == {"a", "b"}


def test_an_attempt_that_insists_and_explains_is_for_a_person() -> None:
    accused = evidence(replay=suite("a", "b"), was_accused=True)
    assert prove(accused, forbid).against
    explained = evidence(replay=suite("a", "b"), was_accused=True, explanation="the old price was wrong")
    result = prove(explained, forbid)
    assert result.receipt is not None
    assert result.receipt.state == "unproven"
    assert "the old price was wrong" in result.asks
    assert prove(evidence(replay=suite("a", "b"), explanation="so there"), forbid).against  # it was not accused before


def test_nothing_changed_is_a_failure_unless_it_is_explained() -> None:
    assert "only the spec was changed" in prove(evidence(is_changed=False), forbid).against[0]
    result = prove(evidence(is_changed=False, explanation="it is there already"), forbid)
    assert result.receipt is not None
    assert (result.receipt.state, result.asks) == ("unproven", "nothing was changed: it is there already")


@pytest.mark.parametrize(
    ("replay", "told"),
    [
        (suite("a", failed="b"), "checkpoint fail on the new code: b; keep"),
        (
            structs.replace(suite("a", "x"), failed=frozenset({"t.py"})),
            "checkpoint did not run on the new code (t.py can't be loaded): b; keep",
        ),
        (suite("", failed="a"), "checkpoint fail on the new code: a; and did not run: b; keep"),
    ],
)
def test_a_test_that_did_not_run_is_not_called_failed(replay: SuiteRun, told: str) -> None:
    assert told in prove(evidence(replay=replay), forbid).against[0]


def test_removed_tests_that_still_pass_are_told_and_fail_only_where_that_is_strict() -> None:
    given = evidence(after=suite("a"), replay=suite("ab"))
    result = prove(given, forbid)
    assert result.receipt is not None
    assert result.receipt.removed == ("b",)
    assert "1 test that still pass" in result.receipt.told[0]
    strict = evidence(after=suite("a"), replay=suite("ab"), is_strict=True)
    assert prove(strict, forbid).against
    assert not prove(strict, permit).against


GONE = (Suspicion(kind="test-deleted", path="cart.test.ts", detail="the file is gone: 2 tests"),)


def test_removed_tests_are_counted_if_the_program_does_not_name_them() -> None:
    before, after = suite("abcd", named=False), suite("ab", named=False)
    given = evidence(before=before, after=after, replay=before, suspicions=GONE, to_guard=GuardedTests(story="1"))
    result = prove(given, forbid)
    assert result.receipt is not None
    assert (result.receipt.removed, result.receipt.number_removed) == ((), 2)
    assert "2 tests that still pass were removed: cart.test.ts" in result.receipt.told
    assert result.to_guard is not None
    assert result.to_guard.is_weaker
    strict = prove(structs.replace(given, is_strict=True), forbid)
    assert strict.against == ("2 tests that still pass were removed: cart.test.ts",)
    skipped = structs.replace(given, suspicions=(*WEAKENED[1:], *GONE))
    assert count_removed(skipped) == 1


WEAKENED = (
    Suspicion(kind="assertion-weakened", path="tests/test_units.py", detail="test_km: km(10) == 16 became km(10)"),
    Suspicion(kind="test-skipped", path="tests/test_units.py", detail="Units.test_miles: @unittest.skip"),
)


def test_weakened_tests_that_still_pass_are_told() -> None:
    receipt = prove(evidence(replay=suite("ab"), suspicions=WEAKENED), forbid).receipt
    assert receipt is not None
    assert receipt.weakened == WEAKENED
    assert describe_weaker_tests(receipt.number_removed, receipt.weakened) == (
        "1 test that still passes was skipped: tests/test_units.py; "
        "1 assertion that still passes was weakened: tests/test_units.py"
    )


def test_a_weakened_test_that_fails_as_it_was_is_lost_and_not_told_as_one_that_passes() -> None:
    both = SuiteRun(command=TESTS, ok=True, passed=frozenset({"a", "t.test_km"}), count_passed=2)
    as_it_was = structs.replace(both, ok=False, passed=frozenset("a"), failed=frozenset({"t.test_km"}), count_failed=1)
    receipt = prove(evidence(before=both, after=both, replay=as_it_was, suspicions=WEAKENED), permit).receipt
    assert receipt is not None
    assert (receipt.lost, receipt.weakened) == (("t.test_km",), WEAKENED[1:])


def test_a_suspicion_that_nothing_was_run_for_is_not_told_as_a_test_that_passes() -> None:
    receipt = prove(evidence(suspicions=WEAKENED), forbid).receipt
    assert receipt is not None
    assert (receipt.state, receipt.weakened) == ("unproven", ())


def test_strict_fails_weakened_tests_unless_something_allows_them() -> None:
    strict = evidence(replay=suite("ab"), suspicions=WEAKENED, is_strict=True)
    [told] = prove(strict, forbid).against
    assert "1 assertion that still passes was weakened: tests/test_units.py" in told
    assert "test_km: km(10) == 16 became km(10)" in told
    names = ["tests/test_units.py::test_km", "tests/test_units.py::Units.test_miles"]
    assert not prove(strict, lambda lost: "the story says so" if [*lost] == names else "").against


LINT = "make lint"


def lint(*, ok: bool = True) -> SuiteRun:
    return SuiteRun(command=LINT, ok=ok, is_check=True)


def checked(*, as_it_was: bool, **fields: Any) -> ProofEvidence:
    """A check whose Makefile was changed."""
    runs = (suite("ab"), lint())
    checks = (lint(ok=as_it_was),)
    return evidence(**{"before": runs, "after": runs, "checks": checks, "check_paths": ("Makefile",), **fields})


def test_a_check_that_is_green_only_because_its_files_were_changed_fails_the_attempt() -> None:
    result = prove(checked(as_it_was=False), forbid)
    assert result.lost == ("`make lint`",)
    assert (
        "checks as they were at the checkpoint fail on the new code: `make lint` (changed: Makefile)"
        in (result.against[0])
    )
    assert prove(checked(as_it_was=True), forbid).receipt is not None
    red = (suite("ab"), lint(ok=False))
    assert prove(checked(as_it_was=False, before=red, after=red), forbid).receipt is not None


def test_a_required_coverage_that_was_lowered_is_a_check_that_was_changed() -> None:
    """Only if that is why the command is red: with the old settings, new tests may fail for other reasons."""
    after = (suite("abc"),)
    assert find_uncovered((uncovered("abc"),), after) == (uncovered("abc"),)
    assert not find_uncovered((suite("abc"),), after)
    assert not find_uncovered((uncovered("ab"),), after)
    assert not find_uncovered((suite("ab", "c"),), after)
    paths = ("jest.config.js: the required coverage of lines is 50, it was 100",)
    given = evidence(after=after, checks=(uncovered("abc"),), check_paths=paths)
    assert f"(changed: {paths[0]})" in prove(given, forbid).against[0]
    assert [*name_checks(given, ("`pytest`",))] == [
        "jest.config.js > pytest jest config js the required coverage of lines is it was"
    ]


def test_a_check_that_fails_as_it_was_is_for_a_person_if_the_agent_insists() -> None:
    result = prove(checked(as_it_was=False, was_accused=True, explanation="80 is too short"), forbid)
    assert result.receipt is not None
    assert (result.receipt.state, result.asks) == (
        "unproven",
        "checks as they were fail on the new code (`make lint`), and the agent says: 80 is too short",
    )


def test_a_story_can_ask_for_another_check() -> None:
    def allow(lost: Sequence[str]) -> str:
        return "the story says so" if [*lost] == ["Makefile > make lint Makefile"] else ""

    result = prove(checked(as_it_was=False), allow)
    assert result.receipt is not None
    assert (result.receipt.state, result.receipt.allowed, result.receipt.lost) == ("held", "the story says so", ())
    assert "`make lint` (changed: Makefile)" in result.receipt.told[0]
    assert [run.command for run in result.receipt.runs if run.kind == "checks"] == [LINT]


def test_what_was_run_is_what_clears_a_suspicion() -> None:
    found = (Suspicion(kind="test-config", path="package.json", detail="the script lint lets failures pass"),)

    def cleared(**fields: Any) -> str:
        receipt = prove(checked(as_it_was=True, suspicions=found, **fields), forbid).receipt
        assert receipt is not None
        return receipt.cleared

    assert cleared(replay=(suite("ab"),)) == "the tests and the checks as they were pass on the new code"
    assert cleared(replay=(suite("ab"),), checks=None) == "the tests as they were pass on the new code"
    assert cleared(replay=()) == "the checks as they were pass on the new code"


def test_a_command_that_has_only_an_exit_status_can_be_lost() -> None:
    given = evidence(before=script(), after=script(), replay=script(ok=False))
    assert find_lost(given) == ("`sh check.sh` as a whole",)
    assert find_lost(evidence(before=script(ok=False), after=script(), replay=script(ok=False))) == ()


def test_beside_a_test_program_a_red_command_is_a_loss_only_if_its_own_files_were_changed() -> None:
    both, red = (suite("ab"), script()), (suite("ab"), script(ok=False))
    assert find_lost(evidence(before=both, after=both, replay=red)) == ()
    changed = evidence(before=both, after=both, replay=red, has_gate_files=True)
    assert find_lost(changed) == ("`sh check.sh` as a whole",)
    worse = (suite("a", "b"), script(ok=False))
    assert find_lost(evidence(before=both, after=both, replay=worse, has_gate_files=True)) == ("b",)


def test_too_little_coverage_hides_no_test_that_is_lost() -> None:
    before, after = suite("ab", named=False), suite("abc", named=False)
    assert find_lost(evidence(before=before, after=after, replay=uncovered("a", "b"))) == ("b",)
    assert find_lost(evidence(before=before, after=after, replay=uncovered("a"))) == (
        "1 fewer tests pass (2 before, 1 now)",
    )
    assert find_lost(evidence(before=before, after=after, replay=uncovered("ab"))) == ()


def test_the_receipt_says_that_old_tests_cover_too_little() -> None:
    before, after = suite("ab", named=False), suite("abc", named=False)
    receipt = prove(evidence(before=before, after=after, replay=uncovered("ab"), own=after), forbid).receipt
    assert receipt is not None
    assert "the tests as they were pass, but don't reach the required coverage of the new code" in receipt.told
