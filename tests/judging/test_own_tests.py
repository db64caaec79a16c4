"""A story's own tests are named as they are, also if their program could not load their file without the work."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ralphtool.judging.own_tests import OwnTests, find_own_tests
from ralphtool.judging.proof import prove
from ralphtool.judging.proof_evidence import ProofEvidence, SuiteRun
from ralphtool.judging.testresults.unloaded import find_unloaded

PATH = "tests/test_vouchers.py"
FAILED = "tests.test_vouchers (unittest.loader._FailedTest.tests.test_vouchers)"


def unnamed(passed: int, *failed: str) -> SuiteRun:
    """A run of a program that names only its failures, as unittest does."""
    return SuiteRun(command="t", ok=not failed, failed=frozenset(failed), count_passed=passed, count_failed=len(failed))


def named(passed: str, *failed: str) -> SuiteRun:
    names = frozenset(passed.split())
    return SuiteRun(
        command="t", ok=not failed, passed=names, failed=frozenset(failed), count_passed=len(names), count_failed=1
    )


def find(after: SuiteRun, own: SuiteRun, names: dict[str, tuple[str, ...]], empty: str = "") -> OwnTests:
    given = ProofEvidence(
        before=(unnamed(1) if after.passed is None else named("tests/test_a.py::test_a"),),
        after=(after,),
        own=(own,),
        own_paths=(PATH,),
        own_names=names,
        empty_tests=frozenset(empty.split()),
    )
    return find_own_tests(given)


def test_unittest_names_the_tests_of_a_file_that_it_could_not_load() -> None:
    found = find(unnamed(3), unnamed(1, FAILED), {PATH: ("T.test_a", "T.test_b")})
    tests = tuple(f"{name} (tests.test_vouchers.T.{name})" for name in ("test_a", "test_b"))
    assert found == OwnTests(tests, 2)


def test_discovery_in_a_folder_names_the_module_from_there() -> None:
    failed = "test_vouchers (unittest.loader._FailedTest.test_vouchers)"
    found = find(unnamed(3), unnamed(1, failed), {PATH: ("T.test_a",)})
    assert found == OwnTests(("test_a (test_vouchers.T.test_a)",), 1)


@pytest.mark.parametrize(
    ("passed", "names"),
    [
        (2, ()),  # its only test compares constants
        (2, ("test_a",)),  # a function, which unittest does not run
        (1, ("T.test_a",)),  # nothing more passes with the work
    ],
)
def test_a_file_whose_tests_check_nothing_is_no_proof(passed: int, names: tuple[str, ...]) -> None:
    assert find(unnamed(passed), unnamed(1, FAILED), {PATH: names}).names == ()


def test_tests_that_fail_come_before_those_that_cant_be_loaded() -> None:
    failing = "test_c (tests.test_a.T.test_c)"
    found = find(unnamed(3), unnamed(1, FAILED, failing), {PATH: ("T.test_a",)})
    assert found == OwnTests((failing, "test_a (tests.test_vouchers.T.test_a)"), 1)


def test_a_test_that_asserts_nothing_is_known_by_the_name_that_unittest_gives_it() -> None:
    failing = "test_c (tests.test_a.T.test_c)"
    assert find(unnamed(2), unnamed(1, failing), {}, "test_c") == OwnTests((), 0, (failing,))


def test_pytest_runs_nothing_if_it_cant_load_one_file() -> None:
    after = named(f"tests/test_a.py::test_a {PATH}::test_v tests/test_more.py::test_old")
    found = find(after, named("", PATH), {PATH: ("test_v",)})
    assert found == OwnTests((f"{PATH}::test_v",), 1)
    assert find(after, named("", PATH), {}, "test_v").names == ()


def test_a_run_that_took_too_long_shows_only_the_tests_that_failed() -> None:
    after = named(f"tests/test_a.py::test_a {PATH}::test_v {PATH}::test_w")
    cut = structs.replace(named("", f"{PATH}::test_v"), has_ended=False)
    assert find(after, cut, {PATH: ("test_v", "test_w")}).names == (f"{PATH}::test_v",)
    nothing = SuiteRun(command="t", ok=False, has_ended=False)
    assert find(after, nothing, {PATH: ("test_v", "test_w")}).names == ()
    assert find(unnamed(3), nothing, {PATH: ("T.test_v",)}).names == ()


def test_the_receipt_says_why_a_story_is_only_held() -> None:
    given = ProofEvidence(
        before=(unnamed(1),),
        after=(unnamed(2),),
        own=(unnamed(1, FAILED),),
        own_paths=(PATH,),
        own_names={PATH: ()},
    )
    receipt = prove(given, lambda lost: "").receipt
    assert receipt is not None
    assert receipt.state == "held"
    assert receipt.told == ("its new tests can't be loaded without the work, but check nothing of it",)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (FAILED, "tests.test_vouchers"),
        ("tests.test_c (unittest.loader._FailedTest)", "tests.test_c"),
        ("tests/test_c.py", "tests/test_c.py"),
        ("broken.test.js > Test suite failed to run", "broken.test.js"),
        ("src/broken.test.ts", "src/broken.test.ts"),
        ("while loading ./spec/cart_spec.rb", "spec/cart_spec.rb"),
        ("example.com/shop/build [build failed]", "example.com/shop/build"),
        ("test_c (tests.test_a.T.test_c)", None),
        ("tests/test_a.py::test_a", None),
        ("a.test.js > cart > adds", None),
        ("setUpClass (tests.test_a.T)", None),
    ],
)
def test_a_file_that_could_not_be_loaded_is_known_by_the_name_of_its_failure(name: str, part: str | None) -> None:
    assert find_unloaded(name) == part


def stopped(*uncompiled: str, **more: Any) -> SuiteRun:
    """A command that stopped before its tests."""
    return SuiteRun(command="t", ok=False, uncompiled=uncompiled, **more)


def test_a_linter_that_stops_the_command_says_nothing_about_the_tests_behind_it() -> None:
    after = named(f"tests/test_a.py::test_a {PATH}::test_v")
    assert find(after, stopped(), {PATH: ("test_v",)}) == OwnTests()
    assert find(after, stopped("cart.py"), {PATH: ("test_v",)}) == OwnTests()
    assert find(unnamed(3), stopped(), {PATH: ("T.test_v",)}) == OwnTests()


def test_a_linter_that_comes_after_the_tests_fails_none_of_them() -> None:
    red = structs.replace(unnamed(3), ok=False, failed=None)
    assert find(unnamed(3), red, {PATH: ("T.test_v",)}) == OwnTests()
    low = structs.replace(red, failed=frozenset(("coverage threshold",)))
    assert find(unnamed(3), low, {PATH: ("T.test_v",)}) == OwnTests()


def test_a_compiler_that_misses_something_in_a_test_file_keeps_its_tests_from_running() -> None:
    after = named(f"tests/test_a.py::test_a {PATH}::test_v tests/test_more.py::test_old")
    assert find(after, stopped(PATH), {PATH: ("test_v",)}) == OwnTests((f"{PATH}::test_v",), 1)
    assert find(after, stopped(PATH), {PATH: ()}, "test_v") == OwnTests()
    everywhere = (f"{PATH}::test_v", "tests/test_more.py::test_old")
    assert set(find(after, stopped("tests/conftest.py"), {PATH: ("test_v",)}).names) == set(everywhere)
    assert find(unnamed(3), stopped(PATH), {PATH: ("T.test_v",)}) == OwnTests(("`t` without the work",), 1)


def test_a_compiled_test_keeps_the_stem_of_its_file() -> None:
    path = "test/vouchers.test.ts"
    passed = frozenset(("dist/a.test.js > a", "dist/vouchers.test.js > v"))
    given = ProofEvidence(
        after=(SuiteRun(command="t", ok=True, passed=passed, count_passed=2),),
        own=(stopped(path),),
        own_paths=(path,),
        own_names={path: ("v",)},
    )
    assert find_own_tests(given).names == ("dist/vouchers.test.js > v",)


def test_the_receipt_says_that_the_command_stopped_before_the_tests() -> None:
    given = ProofEvidence(before=(unnamed(1),), after=(unnamed(2),), own=(stopped(),), own_paths=(PATH,))
    receipt = prove(given, lambda lost: "").receipt
    assert receipt is not None
    assert receipt.state == "held"
    assert receipt.told == ("without the work, the command stopped before its new tests ran, which proves nothing",)
