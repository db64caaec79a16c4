"""Tests and checks that no longer find what they found before: read from the runs of a proof. Nothing is run here."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.judging.own_tests import find_run, is_named
from ralphtool.judging.proof_evidence import ProofEvidence
from ralphtool.judging.proof_words import WEAKENING
from ralphtool.judging.testresults.unloaded import COVERAGE, find_unloaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.judging.proof_evidence import GuardedRun, SuiteRun
    from ralphtool.judging.receipt import Suspicion

_CASE = r"(?s)\[.*\]\Z|(?<=\bTest)(\w*)/.*\Z"  # compiled on first use, long after most runs start
_COVERS = r"\bcov|\b(?:nyc|c8)\b"
_LAUNCHER_NAMES = "npm npx pnpm yarn bun run exec python node sh bash uv poetry package json s silent m"
_LAUNCHERS = frozenset(_LAUNCHER_NAMES.split())

# --- lost checks ------------------------------------------------------------------------------------


def find_lost_checks(evidence: ProofEvidence) -> tuple[str, ...]:
    """Checks that pass now only because what they run, or what configures them, was changed."""
    green = {one.command for one in evidence.before if one.ok} & {one.command for one in evidence.after if one.ok}
    return tuple(f"`{one.command}`" for one in evidence.checks or () if not one.ok and one.command in green)


def name_checks(evidence: ProofEvidence, broken: Sequence[str]) -> Iterable[str]:
    """Names like those of tests, for what allows a loss: a file, and the words that say what a check is about."""
    for command in broken:
        for path in evidence.check_paths:
            words = re.findall(r"[^\W\d_]+", f"{command} {path.rpartition('/')[2]}")
            yield f"{path.partition(': ')[0]} > {' '.join(word for word in words if word.lower() not in _LAUNCHERS)}"


def is_lowered_coverage(one: Suspicion) -> bool:
    return one.kind == "test-config" and one.detail.startswith("the required coverage")


def find_uncovered(runs: Sequence[SuiteRun], after: Sequence[SuiteRun]) -> tuple[SuiteRun, ...]:
    """Those that are red with the coverage that was required before, although every test passes."""
    passed = {one.command: one.count_passed or 0 for one in after}
    red = [one for one in runs if not one.ok and not one.count_failed]
    return tuple(
        one
        for one in red
        if (one.count_passed or 0) >= passed[one.command] and (one.is_counted or re.search(_COVERS, one.command))
    )


# --- tests that earlier stories changed -------------------------------------------------------------


def find_lost_guarded(evidence: ProofEvidence) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The stories that changed tests, and which of these tests, as they were, only fail on the new code."""
    known = set(find_lost(evidence))
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for one in evidence.guarded:
        if names := tuple(name for name in compare_guarded(one) if name not in known):
            found[one.stories] = names
            known |= set(names)
    return found


def compare_guarded(run: GuardedRun) -> tuple[str, ...]:
    """The tests that fail on the new code, but not on the old code.

    A file that can't be loaded shows nothing: an earlier story may have used what this one was asked to remove.
    """
    not_run = find_guarded_not_run(run)
    return tuple(name for name in _find_worse(run) if name not in not_run)


def find_guarded_not_run(run: GuardedRun) -> tuple[str, ...]:
    """The tests that pass on the old code, and did not run on the new code because a file can't be loaded there."""
    return find_not_run(_find_worse(run), run.before, run.work) if list_unloaded(run.work) else ()


def _find_worse(run: GuardedRun) -> tuple[str, ...]:
    if run.is_clean or not run.is_effective:
        return ()
    return find_lost(ProofEvidence(before=run.before, after=run.before, replay=run.work))


def find_not_run(names: Sequence[str], before: Sequence[SuiteRun], runs: Sequence[SuiteRun]) -> tuple[str, ...]:
    """Those of the lost tests that did not fail: they are missing from the runs."""
    known = {name for one in before for name in one.passed or ()}
    failed = {name for one in runs for name in one.failed or ()}
    return tuple(name for name in names if name in known - failed)


def list_unloaded(runs: Sequence[SuiteRun]) -> list[str]:
    """The files that a test program could not load."""
    return sorted({part for one in runs for name in one.failed or () if (part := find_unloaded(name))})


# --- lost tests -------------------------------------------------------------------------------------


def find_lost(evidence: ProofEvidence) -> tuple[str, ...]:
    """Tests that passed before and no longer do; or that failed, and pass now only because they were changed."""
    found, scripts = list[str](), list[str]()
    for before in evidence.before:
        after = find_run(evidence.after, before.command)
        seen = find_run(evidence.replay or (), before.command) or after
        if after is None or seen is None:
            continue
        seen = seen if seen is after else _leave_out_coverage(seen)
        if not before.is_counted and not seen.is_counted:
            scripts += _find_red_script(before, seen, after)
        if not before.is_counted or not (before.ran_tests or seen.ran_tests):
            continue
        names = _find_lost_names(before, seen)
        found += sorted(_leave_out_untouched(names, seen, after, evidence.touched)) if names else []
        found += _find_fewer(before, seen) if not names else []
        found += sorted(_find_made_green(before, seen, after))
    # Beside a test program, a build may be red for the reason that tests are, or because old tests do not fit.
    is_alone = not any(one.is_counted for one in evidence.before)
    return tuple(dict.fromkeys(found or (scripts if is_alone or evidence.has_gate_files else ())))


def _leave_out_coverage(run: SuiteRun) -> SuiteRun:
    """Old tests need not cover the new code: only tests can be lost."""
    if is_only_uncovered(run):
        return structs.replace(run, ok=True, failed=frozenset())
    return structs.replace(run, failed=None if run.failed is None else run.failed - {COVERAGE})


def is_only_uncovered(run: SuiteRun) -> bool:
    """Whether it is red only because the tests cover too little."""
    return not run.ok and run.failed == frozenset((COVERAGE,)) and not run.count_failed


def _find_red_script(before: SuiteRun, seen: SuiteRun, after: SuiteRun) -> list[str]:
    """A command that only has an exit status, and that is green only because its files were changed."""
    return [f"`{seen.command}` as a whole"] if before.ok and after.ok and not seen.ok else []


def _find_lost_names(before: SuiteRun, seen: SuiteRun) -> set[str]:
    failed_before = before.failed or frozenset()
    if before.passed is not None and not seen.is_counted and not seen.ok:
        return set(before.passed)  # they can no longer be compiled or loaded
    if before.passed is None or seen.passed is None:
        return set((seen.failed or frozenset()) - failed_before)
    gone = before.passed - seen.passed
    if not gone:
        return set()
    had, has = (Counter(map(_strip_case, names)) for names in (before.passed, seen.passed))
    return {name for name in gone if name in (seen.failed or ()) or not _has_other_cases(name, had, has)}


def _leave_out_untouched(
    names: set[str], seen: SuiteRun, after: SuiteRun, touched: frozenset[str] | None
) -> Iterable[str]:
    """Leaves out unchanged, passing tests that replay could not load because tests beside them use removed code."""
    for name in names:
        ran = name in (seen.failed or ())
        is_touched = touched is None or any(one in name for one in touched)
        if ran or is_touched or name not in (after.passed or ()):
            yield name


def _has_other_cases(name: str, had: Counter[str], has: Counter[str]) -> bool:
    """Cases are named after their values: replacing them by as many others is not a loss."""
    test = _strip_case(name)
    return test != name and has[test] >= had[test]


def _strip_case(name: str) -> str:
    return re.sub(_CASE, r"\1", name)


def _find_fewer(before: SuiteRun, seen: SuiteRun) -> list[str]:
    """Compares the numbers of tests if the tests have no names."""
    had, has = before.count_passed or 0, seen.count_passed or 0
    if before.passed is not None and seen.passed is not None:
        return []
    if not seen.ok and before.ok and has >= had:
        return [f"`{seen.command}` as a whole"]
    return [f"{had - has} fewer tests pass ({had} before, {has} now)"] if has < had else []


def _find_made_green(before: SuiteRun, seen: SuiteRun, after: SuiteRun) -> set[str]:
    """Tests that failed before, still fail in their old version, and pass in their new one."""
    if seen is after or after.failed is None:
        return set()
    if not before.ok and after.ok:
        return set(seen.failed or ())  # they may have had no names before, because nothing could be loaded
    still = (before.failed or frozenset()) & (seen.failed or frozenset())
    return {name for name in still if name not in after.failed}


def find_removed(evidence: ProofEvidence) -> tuple[str, ...]:
    """Tests that are gone although their old version still passes."""
    found: list[str] = []
    for before in evidence.before:
        after, seen = find_run(evidence.after, before.command), find_run(evidence.replay or (), before.command)
        if after and seen and before.passed and after.passed is not None and seen.passed is not None:
            gone = (before.passed & seen.passed) - after.passed
            is_fewer = len(after.passed) < len(before.passed)
            # If there are as many or more, they were renamed, split or moved, unless the diff shows them as deleted.
            found += [name for name in sorted(gone) if is_fewer or is_named(name, _list_deleted(evidence))]
    return tuple(found)


def count_removed(evidence: ProofEvidence) -> int:
    """The number of tests that are gone although their old version still passes: many programs don't name them all."""
    missing = 0
    for before in evidence.before:
        after, seen = find_run(evidence.after, before.command), find_run(evidence.replay or (), before.command)
        if after and seen and None in (before.passed, after.passed, seen.passed) and after.count_passed is not None:
            missing += max(0, min(before.count_passed or 0, seen.count_passed or 0) - after.count_passed)
    skipped = sum(one.kind == "test-skipped" for one in evidence.suspicions)
    return len(find_removed(evidence)) + max(0, missing - skipped)


def find_weakened(evidence: ProofEvidence, lost: Sequence[str]) -> tuple[Suspicion, ...]:
    """Tests that check less, although their old version still passes: nothing is lost, but they guard less."""
    found = [one for one in evidence.suspicions if one.kind in WEAKENING] if evidence.replay else []
    return tuple(one for one in found if not any(name_weakened(one).rpartition(".")[2] in name for name in lost))


def name_weakened(one: Suspicion) -> str:
    """The name of the test, which the detail of a suspicion begins with."""
    return re.sub(r" #\d+\Z", "", one.detail.partition(": ")[0])


def _list_deleted(evidence: ProofEvidence) -> set[str]:
    told = [one.detail for one in evidence.suspicions if one.kind == "test-deleted"]
    words = {word for detail in told for word in re.split(r"[\s,()]+", detail) if word}
    return words | {re.split(r"[.:]", word)[-1] for word in words} | {one.removesuffix(" is gone") for one in told}
