"""Tests that an earlier story weakened: which of them run together, and what their runs show."""

from __future__ import annotations

import pytest
from msgspec import structs

from ralphtool.judging.guarded_tests import GuardedTests, split_into_groups
from ralphtool.judging.lost_tests import find_lost_guarded
from ralphtool.judging.proof import prove
from ralphtool.judging.proof_evidence import GuardedRun, ProofEvidence, SuiteRun
from ralphtool.judging.receipt import Suspicion

GATE = "pytest -q"
NAMES = frozenset(["t.py::test_total"])


def run(passed: str = "", failed: str = "", ok: bool | None = None) -> SuiteRun:
    names, red = frozenset(passed.split()), frozenset(failed.split())
    return SuiteRun(
        command=GATE,
        ok=not red if ok is None else ok,
        passed=names,
        failed=red,
        count_passed=len(names),
        count_failed=len(red),
    )


GREEN = run("t.py::test_total t.py::test_count")
RED = run("t.py::test_count", "t.py::test_total")
GONE = run("t.py::test_count")
BARE, BARE_RED = SuiteRun(command=GATE, ok=True), SuiteRun(command=GATE, ok=False)


def guard(work: SuiteRun, before: SuiteRun | None = None, names: frozenset[str] = NAMES) -> GuardedRun:
    return GuardedRun(stories=("1",), names=names, work=(work,), before=(before,) if before else ())


def judge(guarded: GuardedRun, **more: object) -> ProofEvidence:
    made = ProofEvidence(before=(GREEN,), after=(GREEN,), guarded=(guarded,))
    return structs.replace(made, **more)


@pytest.mark.parametrize(
    ("guarded", "lost"),
    [
        (guard(GREEN), ()),
        (guard(RED, GREEN), ("t.py::test_total",)),
        (guard(GONE, GREEN), ("t.py::test_total",)),
        (guard(RED, RED), ()),  # it failed without the work, too
        (guard(GONE, GONE), ()),  # it can't run any more
        (guard(RED, GREEN, frozenset()), ("t.py::test_total",)),
        (guard(BARE_RED, BARE, frozenset()), (f"`{GATE}` as a whole",)),
        (guard(BARE_RED, BARE_RED, frozenset()), ()),
    ],
)
def test_only_what_the_work_breaks_is_lost(guarded: GuardedRun, lost: tuple[str, ...]) -> None:
    assert find_lost_guarded(judge(guarded)) == ({("1",): lost} if lost else {})


def test_a_loss_fails_then_asks_and_is_allowed_by_the_story() -> None:
    evidence = judge(guard(RED, GREEN))
    failed = prove(evidence, lambda names: "")
    assert failed.receipt is None
    assert failed.lost == ("t.py::test_total",)
    assert "before story 1 weakened them fail on the new code: t.py::test_total; keep" in failed.against[0]
    asked = prove(structs.replace(evidence, was_accused=True, explanation="as asked"), lambda names: "")
    assert asked.receipt is not None
    assert (asked.receipt.state, asked.receipt.lost) == ("unproven", ("t.py::test_total",))
    allowed = prove(evidence, lambda names: f"asked for: {', '.join(names)}")
    assert allowed.receipt is not None
    assert (allowed.receipt.state, allowed.receipt.allowed) == ("held", "asked for: t.py::test_total")


def test_tests_that_could_not_run_leave_a_doubt_or_a_note() -> None:
    gone = GuardedRun(stories=("1", "2"), trouble="no such commit")
    doubted = prove(judge(gone), lambda names: "").receipt
    assert doubted is not None
    assert doubted.why == "the tests that stories 1, 2 weakened could not run as they were: no such commit"
    noted = prove(judge(guard(GONE, GONE)), lambda names: "").receipt
    assert noted is not None
    assert (noted.state, noted.told) == ("held", ("the tests that story 1 weakened can no longer run as they were",))


# --- what is kept for the later stories -------------------------------------------------------------

SIDE = GuardedTests(story="1", base="abc", files=("t.py",), new=("new.py", "conftest.py"))


def weaken(*suspicions: tuple[str, str, str], **more: object) -> ProofEvidence:
    found = tuple(Suspicion(kind=kind, path=path, detail=detail) for kind, path, detail in suspicions)
    made = ProofEvidence(
        before=(GREEN,),
        after=(GREEN,),
        replay=(GREEN,),
        touched=frozenset(["test_total"]),
        suspicions=found,
        to_guard=SIDE,
    )
    return structs.replace(made, **more)


WEAK = ("assertion-weakened", "t.py", "test_total: fewer assertions")


@pytest.mark.parametrize(
    ("evidence", "names"),
    [
        (weaken(), None),
        (weaken(WEAK), ("t.py::test_total",)),
        (weaken(after=(GONE,)), ("t.py::test_total",)),
        (weaken(touched=None, rewritten=("cart.py",)), ()),
    ],
)
def test_what_was_weakened_is_kept_as_it_was(evidence: ProofEvidence, names: tuple[str, ...] | None) -> None:
    kept = prove(evidence, lambda names: "").to_guard
    assert (kept and kept.names) == names
    assert kept is None or (kept.base, kept.files, kept.new) == ("abc", ("t.py",), SIDE.new)
    assert prove(evidence, lambda names: "the story asks for it").to_guard is None


def test_a_new_file_that_switches_tests_off_is_left_out() -> None:
    kept = prove(weaken(("test-config", "conftest.py", "tests are left out")), lambda names: "").to_guard
    assert kept is not None
    assert (kept.files, kept.new) == (("t.py", "conftest.py"), ("new.py",))


def test_two_versions_of_a_file_need_two_runs() -> None:
    one, other = GuardedTests(story="1", files=("t.py",)), GuardedTests(story="2", configs=("pytest.ini",))
    third = GuardedTests(story="3", inline=("cart.py",), files=("t.py",))
    assert split_into_groups([one, other, third]) == [[one, other], [third]]
