"""What "done" may claim: evidence goes in, a receipt or a reason to fail comes out. Nothing is run or read here.

Three kinds of runs answer three questions. Is the suite green, and is it the same suite (gates)? Did anything break
that worked before (replay: the tests as they were, on the new source)? Does anything show that the story was done (own
tests: the new tests, on the old source)? See docs/proof.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.lost_tests import (
    count_removed,
    find_guarded_not_run,
    find_lost,
    find_lost_checks,
    find_lost_guarded,
    find_not_run,
    find_removed,
    find_weakened,
    is_only_uncovered,
    list_unloaded,
    name_checks,
    name_weakened,
)
from ralphtool.judging.own_tests import OwnTests, find_own_tests
from ralphtool.judging.proof_words import (
    IF_NOTHING_NEEDS_TO_CHANGE,
    KEEP_OR_EXPLAIN,
    describe_removed,
    describe_weakened,
)
from ralphtool.judging.receipt import MOST_NAMES, ProofRun, Receipt, Suspicion
from ralphtool.judging.testresults.unloaded import find_unloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.proof_evidence import ProofEvidence, SuiteRun

    Allow = Callable[[Sequence[str]], str]

_SHOWN = 3
_NONE = OwnTests()
_SUSPICIONS = ("test-deleted", "test-skipped", "assertion-weakened", "test-config")


class ProofResult(Struct, frozen=True, kw_only=True):
    """A receipt, or reasons to fail the attempt. If a person must check it, `asks` says why."""

    receipt: Receipt | None = None
    against: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    asks: str = ""
    to_guard: GuardedTests | None = None  # the tests as they were before this story, which guard the later ones


class _Losses(Struct, frozen=True, kw_only=True):
    """What no longer finds what it found before."""

    tests: tuple[str, ...]  # unless they are still there, with the new names
    checks: tuple[str, ...]
    guarded: Mapping[tuple[str, ...], tuple[str, ...]]  # tests that earlier stories changed, by those stories
    names: tuple[str, ...]  # of all tests and checks, for what allows the loss

    @property
    def guarded_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for names in self.guarded.values() for name in names))

    @property
    def is_any(self) -> bool:
        return bool(self.tests or self.checks or self.guarded)


def prove(evidence: ProofEvidence, allow: Allow) -> ProofResult:
    """`allow` returns what permits the loss of these tests; empty if nothing does."""
    if not evidence.is_changed:
        return _judge_unchanged(evidence)
    losses = _find_losses(evidence)
    allowed = allow(losses.names) if losses.names else ""
    if losses.is_any and not allowed:
        return _judge_lost(evidence, losses, allow)
    lost = (*find_lost(evidence), *losses.guarded_names) if allowed else ()
    removed, weakened = find_removed(evidence), find_weakened(evidence, find_lost(evidence))
    if evidence.is_strict and (against := tuple(_accuse_weaker(evidence, removed, weakened, allow))):
        return ProofResult(against=against)
    own = find_own_tests(evidence)
    why = _find_doubt(evidence)
    state = "unproven" if why else "proven" if own.names and _can_be_proven(evidence) else "held"
    told = (*losses.tests, *losses.guarded_names) if allowed else ()  # not those that only follow new names
    receipt = _build_receipt(evidence, state, why, own, told, removed, weakened, allowed)
    return ProofResult(receipt=receipt, to_guard=_find_to_guard(evidence, allow, lost))


def _is_same_by_reading(evidence: ProofEvidence) -> bool:
    """Whether reading must decide, because the old tests could not run with the new names."""
    if evidence.has_new_names:
        return False
    return evidence.is_same_by_reading and (_sum_passed(evidence.after) or 0) >= (_sum_passed(evidence.before) or 0)


def _judge_unchanged(evidence: ProofEvidence) -> ProofResult:
    if not evidence.explanation:
        return ProofResult(against=(f"only the spec was changed; {IF_NOTHING_NEEDS_TO_CHANGE}",))
    why = f"nothing was changed: {evidence.explanation}"
    return ProofResult(receipt=_build_receipt(evidence, "unproven", why), asks=why)


def _find_losses(evidence: ProofEvidence) -> _Losses:
    lost, broken, guarded = find_lost(evidence), find_lost_checks(evidence), find_lost_guarded(evidence)
    names = (*lost, *(name for found in guarded.values() for name in found), *name_checks(evidence, broken))
    if _is_same_by_reading(evidence):
        return _Losses(tests=(), checks=broken, guarded={}, names=names)
    return _Losses(tests=lost, checks=broken, guarded=guarded, names=names)


def _leave_out_allowed(losses: _Losses, allow: Allow) -> tuple[str, ...]:
    """The lost tests without those that the story was asked to break, if anything else is lost."""
    tests = tuple(name for name in losses.tests if not allow([name]))
    return tests if tests or losses.checks or losses.guarded else losses.tests


def _judge_lost(evidence: ProofEvidence, losses: _Losses, allow: Allow) -> ProofResult:
    """Fails the first time; if the next attempt does the same and explains it, a person must judge."""
    named = (*losses.tests, *losses.guarded_names, *losses.checks)[:MOST_NAMES]
    if evidence.was_accused and evidence.explanation:
        why = f"{', '.join(_list_failing(losses))}, and the agent says: {evidence.explanation}"
        receipt = _build_receipt(evidence, "unproven", why, lost=(*losses.tests, *losses.guarded_names))
        to_guard = _find_to_guard(evidence, lambda names: "", named)
        return ProofResult(receipt=receipt, lost=named, asks=why, to_guard=to_guard)
    lost = _leave_out_allowed(losses, allow)
    told = _describe_lost("tests as they were at the checkpoint", lost, evidence.before, evidence.replay)
    against = [f"{told}; {KEEP_OR_EXPLAIN}"] if lost else []
    against += _accuse_guarded(losses)
    return ProofResult(against=(*against, *_accuse_checks(evidence, losses.checks)), lost=named)


def _describe_lost(which: str, lost: Sequence[str], before: Sequence[SuiteRun], runs: Sequence[SuiteRun] | None) -> str:
    """Says which of these tests fail and which did not run: a missing test is not a failed one."""
    if not runs:
        return f"tests are gone: {_name(lost)}"
    missing = find_not_run(lost, before, runs)
    failing = [name for name in lost if name not in missing]
    parts = list_unloaded(runs)
    why = f" ({_name(parts)} can't be loaded)" if parts else ""
    if not missing or not failing:
        return f"{which} {'did not run' if missing else 'fail'} on the new code{why * bool(missing)}: {_name(lost)}"
    return f"{which} fail on the new code: {_name(failing)}; and did not run{why}: {_name(missing)}"


def _list_failing(losses: _Losses) -> Iterable[str]:
    if losses.tests or losses.guarded:
        yield f"tests as they were fail on the new code ({_name((*losses.tests, *losses.guarded_names))})"
    if losses.checks:
        yield f"checks as they were fail on the new code ({_name(losses.checks)})"


def _accuse_guarded(losses: _Losses) -> Iterable[str]:
    for stories, names in losses.guarded.items():
        told = f"tests as they were before {_join_stories(stories)} changed them fail on the new code"
        yield f"{told}: {_name(names)}; {KEEP_OR_EXPLAIN}"


def _join_stories(stories: Sequence[str]) -> str:
    return f"{'story' if len(stories) == 1 else 'stories'} {', '.join(stories[:_SHOWN])}"


def _accuse_checks(evidence: ProofEvidence, broken: Sequence[str]) -> Iterable[str]:
    if broken:
        yield (
            f"checks as they were at the checkpoint fail on the new code: {_name(broken)} "
            f"(changed: {_name(evidence.check_paths)}); change the code so that the original checks pass; or, if the "
            "story asks for other checks, explain it with `ralphtool agent observe finding`"
        )


def _accuse_weaker(
    evidence: ProofEvidence, removed: Sequence[str], weakened: Sequence[Suspicion], allow: Allow
) -> Iterable[str]:
    if (told := _tell_removed(evidence, removed)) and not allow(removed or _list_deleted_paths(evidence)):
        yield told
    if weakened and not allow([f"{one.path}::{name_weakened(one)}" for one in weakened]):
        yield f"{describe_weakened(weakened)} ({_name([one.detail for one in weakened])})"


def _tell_removed(evidence: ProofEvidence, removed: Sequence[str]) -> str:
    """The tests that are gone, or the files that had them; empty if there are none."""
    told = describe_removed(count_removed(evidence))
    names = _name(removed or _list_deleted_paths(evidence))
    return f"{told}: {names}" if told and names else told


def _list_deleted_paths(evidence: ProofEvidence) -> list[str]:
    return list(dict.fromkeys(one.path for one in evidence.suspicions if one.kind == "test-deleted"))


def _find_to_guard(evidence: ProofEvidence, allow: Allow, lost: Sequence[str] = ()) -> GuardedTests | None:
    """The tests as they were, which the later stories must pass, unless this one was asked to change them."""
    side = evidence.to_guard
    if side is None or evidence.replay is None:
        return None
    removed, weakened = find_removed(evidence), find_weakened(evidence, find_lost(evidence))
    names = [*removed, *(f"{one.path}::{name_weakened(one)}" for one in weakened)]
    names += [one.path for one in evidence.suspicions if one.kind == "test-config"]
    if allow(names or side.files):
        return None
    passed, is_weaker = _sum_passed(evidence.replay), bool(names) or count_removed(evidence) > 0
    return structs.replace(side, passed=passed, lost=tuple(lost[:MOST_NAMES]), is_weaker=is_weaker)


# --- the state --------------------------------------------------------------------------------------


def _can_be_proven(evidence: ProofEvidence) -> bool:
    return not evidence.is_own_environment


def _find_doubt(evidence: ProofEvidence) -> str:
    """Why nothing can be claimed; empty if the gates can be relied on."""
    if doubt := _doubt_gates(evidence) or _doubt_replay(evidence):
        return doubt
    if evidence.dirty_submodules:
        return f"the gates ran with uncommitted files in the submodule {_name(evidence.dirty_submodules)}"
    if evidence.only_with_ignored:
        advice = "; let `[run] setup` install what they need" if evidence.needs_setup else ""
        return f"the gates pass only with files that git ignores: {_name(evidence.only_with_ignored)}{advice}"
    return "" if evidence.has_git else "without git, changes to the tests can't be detected: run `git init`"


def _doubt_gates(evidence: ProofEvidence) -> str:
    runs = [one for one in evidence.after if not one.is_linter]
    if not evidence.after:
        return "there is no gate"
    if red := [one for one in runs if not one.ok]:
        return f"`{red[0].command}` was red before and is still red"
    if not runs:
        return "the gates run no tests"
    if not any(one.ran_tests or not one.is_counted for one in runs):
        return "the gates ran no tests"
    return (
        ""
        if any(one.command not in evidence.blind for one in runs)
        else f"no gate noticed broken code ({_quote(runs)})"
    )


def list_noticing(evidence: ProofEvidence) -> set[str]:
    """The gates that were red with some version of the code, and so depend on it."""
    runs = (evidence.before, evidence.after, evidence.replay, evidence.checks, evidence.own)
    return _list_red(one for group in runs for one in group or ())


def _quote(runs: Sequence[SuiteRun]) -> str:
    return ", ".join(f"`{one.command}`" for one in runs[:_SHOWN])


def _doubt_replay(evidence: ProofEvidence) -> str:
    if evidence.replay is None and (open_ones := [one for one in evidence.suspicions if one.kind in _SUSPICIONS]):
        return f"{open_ones[0].path} was changed ({open_ones[0].kind}), and nothing was run to rule out cheating"
    if evidence.has_new_tests and not _is_same_by_reading(evidence) and _is_only_untouched(evidence):
        return "the tests as they were can no longer be loaded, and others were added"
    if not evidence.has_test_files and (left_out := find_removed(evidence)):
        return f"{_count(left_out, 'test')} that still pass are now left out: {_name(left_out)}"
    if evidence.only_with_build:
        return f"the tests as they were pass only with {_name(evidence.only_with_build)} as it is now"
    return _doubt_guarded(evidence)


def _doubt_guarded(evidence: ProofEvidence) -> str:
    if (evidence.is_same_by_reading or evidence.has_new_names) and (guarded := find_lost_guarded(evidence)):
        stories, names = next(iter(guarded.items()))
        told = f"tests as they were before {_join_stories(stories)} changed them fail on the new code"
        return f"{told}, which may only be because this story renames what they use: {_name(names)}"
    for one in evidence.guarded:
        if one.trouble:
            return f"the tests that {_join_stories(one.stories)} changed could not run as they were: {one.trouble}"
    return _doubt_not_run(evidence)


def _doubt_not_run(evidence: ProofEvidence) -> str:
    """Tests that did not run prove nothing: they might fail."""
    known = set(find_lost(evidence))
    for one in evidence.guarded:
        if missing := [name for name in find_guarded_not_run(one) if name not in known]:
            told = f"tests as they were before {_join_stories(one.stories)} changed them did not run on the new code"
            return f"{told} ({_name(list_unloaded(one.work))} can't be loaded): {_name(missing)}"
    return ""


def _is_only_untouched(evidence: ProofEvidence) -> bool:
    """Whether nothing counts as lost only because the tests that could not be loaded are unchanged."""
    return bool(find_lost(structs.replace(evidence, touched=None))) and not find_lost(evidence)


def _list_red(runs: Iterable[SuiteRun]) -> set[str]:
    return {one.command for one in runs if not one.ok}


# --- the receipt ------------------------------------------------------------------------------------


def _build_receipt(
    evidence: ProofEvidence,
    state: str,
    why: str,
    own: OwnTests = _NONE,
    lost: Sequence[str] = (),
    removed: Sequence[str] = (),
    weakened: Sequence[Suspicion] = (),
    allowed: str = "",
) -> Receipt:
    return Receipt(
        state=state,
        why=why,
        own_tests=own.names[:MOST_NAMES],
        own_count=len(own.names),
        own_unloaded=own.unloaded,
        passed_before=_sum_passed(evidence.before),
        passed_after=_sum_passed(evidence.after),
        lost=tuple(lost[:MOST_NAMES]),
        removed=tuple(removed[:MOST_NAMES]),
        removed_count=count_removed(evidence),
        weakened=tuple(weakened[:MOST_NAMES]),
        allowed=allowed,
        suspicions=evidence.suspicions,
        cleared=_describe_cleared(evidence, lost, allowed) if evidence.suspicions else "",
        runs=tuple(_list_runs(evidence)),
        told=(*evidence.told, *_list_told(evidence, own, removed)),
    )


def _describe_cleared(evidence: ProofEvidence, lost: Sequence[str], allowed: str) -> str:
    if allowed:
        return allowed
    if evidence.replay is None and not evidence.checks:
        return "nothing was run to rule it out"
    if _is_same_by_reading(evidence) and find_lost(evidence):
        return "the old tests are still there, with the new names"
    if lost or find_lost_checks(evidence):
        return ""
    what = "tests and the checks" if evidence.replay and evidence.checks else "checks" if evidence.checks else "tests"
    return f"the {what} as they were pass on the new code"


def _list_runs(evidence: ProofEvidence) -> Iterable[ProofRun]:
    groups = (
        ("gates", evidence.after),
        ("replay", evidence.replay),
        ("checks", evidence.checks),
        ("own-tests", evidence.own),
        *(("guarded", one.work) for one in evidence.guarded),
    )
    for kind, runs in groups:
        yield from (ProofRun(kind=kind, command=one.command, ok=one.ok, tally=one.tally) for one in runs or ())


def _list_told(evidence: ProofEvidence, own: OwnTests, removed: Sequence[str]) -> Iterable[str]:
    if gone := _tell_removed(evidence, removed):
        yield gone
    if any(map(is_only_uncovered, evidence.replay or ())):
        yield "the tests as they were pass, but don't reach the required coverage of the new code"
    if broken := find_lost_checks(evidence):
        yield f"checks as they were fail on the new code: {_name(broken)} (changed: {_name(evidence.check_paths)})"
    if (evidence.own or own.hollow) and not own.names:
        yield from _explain_no_own(evidence, own)
    for run in evidence.guarded:
        if not (run.is_clean or run.trouble or run.is_effective):
            yield f"the tests that {_join_stories(run.stories)} changed can no longer run as they were"
    for one in evidence.after:
        if one.is_linter and not one.ok:
            yield f"`{one.command}` was red before and is still red"


def _explain_no_own(evidence: ProofEvidence, own: OwnTests) -> Iterable[str]:
    """Why the story's new tests prove nothing."""
    if own.hollow:
        yield f"its new tests fail without the work, but check nothing of it: {_name(own.hollow)}"
    elif _has_unchecked(evidence):
        yield "its new tests can't be loaded without the work, but check nothing of it"
    elif not all(one.has_ended for one in evidence.own or ()):
        yield "its new tests took too long without the work and were stopped, which proves nothing about it"
    elif _has_stopped_before_tests(evidence):
        yield "without the work, the command stopped before its new tests ran, which proves nothing"
    elif not evidence.flaky:
        yield "its new tests also pass without the work, so they prove nothing about it"


def _has_stopped_before_tests(evidence: ProofEvidence) -> bool:
    return any(not one.ok and not one.is_counted for one in evidence.own or ())


def _has_unchecked(evidence: ProofEvidence) -> bool:
    return any(find_unloaded(name) for one in evidence.own or () for name in one.failed or ())


def _sum_passed(runs: Sequence[SuiteRun]) -> int | None:
    counted = [one.count_passed for one in runs if one.count_passed is not None]
    return sum(counted) if counted else None


def _count(names: Sequence[str], word: str) -> str:
    return f"{len(names)} {word}{'' if len(names) == 1 else 's'}"


def _name(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(" ".join(name.split())[:200] for name in names[:_SHOWN]) + more
