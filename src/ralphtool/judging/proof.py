"""What "done" may claim: evidence goes in, a receipt or a reason to fail comes out. Nothing is run or read here.

Three kinds of runs answer three questions. Is the suite green, and is it the same suite (gates)? Did anything break
that worked before (replay: the tests as they were, on the new source)? Does anything show that the story was done (own
tests: the new tests, on the old source)? See docs/proof.md.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging.own_tests import OwnTests, find_own_tests, find_run, is_named
from ralphtool.judging.proof_words import (
    IF_NOTHING_NEEDS_TO_CHANGE,
    KEEP_OR_EXPLAIN,
    WEAKENING,
    describe_removed,
    describe_weakened,
)
from ralphtool.judging.receipt import MOST_NAMES, ProofRun, Receipt, Suspicion
from ralphtool.judging.testresults.unloaded import find_unloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SHOWN = 3
_NONE = OwnTests()
_SUSPICIONS = ("test-deleted", "test-skipped", "assertion-weakened", "test-config")
_CASE = r"(?s)\[.*\]\Z|(?<=\bTest)(\w*)/.*\Z"  # compiled on first use, long after most runs start
# Programs that check code and run no tests. Any other program may be a test program with an unknown output format.
_LINTER = (
    r"\b(?:ruff|mypy|pyright|flake8|pylint|black|isort|eslint|prettier|tsc|stylelint|biome|clippy|rustfmt|gofmt|vet"
    r"|golangci-lint|staticcheck|rubocop|shellcheck|hadolint|phpstan|psalm|ktlint|checkstyle|lint|lints|format|fmt"
    r"|typecheck|type-check|types)\b"
)
_LAUNCHER_NAMES = "npm npx pnpm yarn bun run exec python node sh bash uv poetry package json s silent m"
_LAUNCHERS = frozenset(_LAUNCHER_NAMES.split())


class SuiteRun(Struct, frozen=True, kw_only=True):
    """One command and its test results. A set is None if the program does not name its tests."""

    command: str
    ok: bool
    passed: frozenset[str] | None = None
    failed: frozenset[str] | None = None
    count_passed: int | None = None  # None: no test program was recognised
    count_failed: int = 0
    tally: str | None = None
    is_check: bool = False  # not one of the commands that the settings call tests

    @property
    def is_counted(self) -> bool:
        return self.count_passed is not None

    @property
    def ran_tests(self) -> bool:
        return bool(self.count_passed or self.count_failed)

    @property
    def is_linter(self) -> bool:
        return not self.is_counted and (self.is_check or re.search(_LINTER, self.command) is not None)


class ProofEvidence(Struct, frozen=True, kw_only=True):
    """Everything that was run and read for a story whose attempt claims to be complete."""

    is_changed: bool = True  # something other than the spec was changed
    has_git: bool = True
    explanation: str = ""  # the agent's observation of type "finding"
    before: tuple[SuiteRun, ...] = ()  # at the checkpoint
    after: tuple[SuiteRun, ...] = ()
    replay: tuple[SuiteRun, ...] | None = None  # None: no changed file required it
    checks: tuple[SuiteRun, ...] | None = (
        None  # checks as they were, on the new code; None: no changed file required it
    )
    check_paths: tuple[str, ...] = ()  # the changed files of those checks
    own: tuple[SuiteRun, ...] | None = None
    own_paths: tuple[str, ...] = ()  # test files that are new or changed
    is_same_by_reading: bool = False  # all old tests still exist, apart from names that the work renamed
    own_names: dict[str, tuple[str, ...]] = {}  # the tests in these files that check something
    empty_tests: frozenset[str] = frozenset()  # names of own tests that assert nothing, or only constants
    touched: frozenset[str] | None = None  # old tests that are gone or whose text changed; None: unknown
    has_new_tests: bool = False  # the test files contain new code
    has_gate_files: bool = False  # files that the gates' commands or scripts name were changed
    has_test_files: bool = True  # test files were changed, not only test configuration
    was_accused: bool = False  # the last attempt failed because of lost tests
    is_strict: bool = False
    suspicions: tuple[Suspicion, ...] = ()
    only_with_ignored: tuple[str, ...] = ()  # ignored files that the gates need to be green
    dirty_submodules: tuple[str, ...] = ()  # the gates ran with uncommitted files in them
    only_with_build: tuple[str, ...] = ()  # changed build files without which the old tests fail on the new source
    is_own_environment: bool = False  # the gates ran with an environment that the attempt installed
    blind: frozenset[str] = frozenset()  # gates that were tried with broken code, and stayed green
    told: tuple[str, ...] = ()
    test_diff: str = ""  # the diff of the tests, if old ones fail


class ProofResult(Struct, frozen=True, kw_only=True):
    """A receipt, or reasons to fail the attempt. If a person must check it, `asks` says why."""

    receipt: Receipt | None = None
    against: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    asks: str = ""


def prove(evidence: ProofEvidence, allow: Callable[[Sequence[str]], str]) -> ProofResult:
    """`allow` returns what permits the loss of these tests; empty if nothing does."""
    if not evidence.is_changed:
        return _judge_unchanged(evidence)
    lost, broken = find_lost(evidence), find_lost_checks(evidence)
    allowed = allow((*lost, *_name_checks(evidence, broken))) if lost or broken else ""
    unexplained = () if _is_same_by_reading(evidence) else lost
    if (unexplained or broken) and not allowed:
        return _judge_lost(evidence, unexplained, broken)
    removed, weakened = _find_removed(evidence), _find_weakened(evidence, lost)
    if evidence.is_strict and (against := tuple(_accuse_weaker(removed, weakened, allow))):
        return ProofResult(against=against)
    own = find_own_tests(evidence)
    why = _find_doubt(evidence)
    state = "unproven" if why else "proven" if own.names and _can_be_proven(evidence) else "held"
    receipt = _build_receipt(evidence, state, why, own, lost if allowed else (), removed, weakened, allowed)
    return ProofResult(receipt=receipt)


def _is_same_by_reading(evidence: ProofEvidence) -> bool:
    return evidence.is_same_by_reading and (_sum_passed(evidence.after) or 0) >= (_sum_passed(evidence.before) or 0)


def _judge_unchanged(evidence: ProofEvidence) -> ProofResult:
    if not evidence.explanation:
        return ProofResult(against=(f"only the spec was changed; {IF_NOTHING_NEEDS_TO_CHANGE}",))
    why = f"nothing was changed: {evidence.explanation}"
    return ProofResult(receipt=_build_receipt(evidence, "unproven", why), asks=why)


def _judge_lost(evidence: ProofEvidence, lost: Sequence[str], broken: Sequence[str]) -> ProofResult:
    """Fails the first time; if the next attempt does the same and explains it, a person must judge."""
    named = (*lost, *broken)[:MOST_NAMES]
    if evidence.was_accused and evidence.explanation:
        parts = [f"tests as they were fail on the new code ({_name(lost)})"] if lost else []
        parts += [f"checks as they were fail on the new code ({_name(broken)})"] if broken else []
        why = f"{', '.join(parts)}, and the agent says: {evidence.explanation}"
        receipt = _build_receipt(evidence, "unproven", why, lost=lost)
        return ProofResult(receipt=receipt, lost=named, asks=why)
    words = "tests as they were at the checkpoint fail on the new code" if evidence.replay else "tests are gone"
    against = [f"{words}: {_name(lost)}; {KEEP_OR_EXPLAIN}"] if lost else []
    return ProofResult(against=(*against, *_accuse_checks(evidence, broken)), lost=named)


def _accuse_checks(evidence: ProofEvidence, broken: Sequence[str]) -> Iterable[str]:
    if broken:
        yield (
            f"checks as they were at the checkpoint fail on the new code: {_name(broken)} "
            f"(changed: {_name(evidence.check_paths)}); change the code so that the original checks pass; or, if the "
            "story asks for other checks, explain it with `ralphtool agent observe finding`"
        )


# --- lost checks ------------------------------------------------------------------------------------


def find_lost_checks(evidence: ProofEvidence) -> tuple[str, ...]:
    """Checks that pass now only because what they run, or what configures them, was changed."""
    green = {one.command for one in evidence.before if one.ok} & {one.command for one in evidence.after if one.ok}
    return tuple(f"`{one.command}`" for one in evidence.checks or () if not one.ok and one.command in green)


def _name_checks(evidence: ProofEvidence, broken: Sequence[str]) -> Iterable[str]:
    """Names like those of tests, for what allows a loss: a file, and the words that say what a check is about."""
    for command in broken:
        for path in evidence.check_paths:
            words = re.findall(r"[^\W\d_]+", f"{command} {path.rpartition('/')[2]}")
            yield f"{path} > {' '.join(word for word in words if word.lower() not in _LAUNCHERS)}"


# --- lost tests -------------------------------------------------------------------------------------


def find_lost(evidence: ProofEvidence) -> tuple[str, ...]:
    """Tests that passed before and no longer do; or that failed, and pass now only because they were changed."""
    found, scripts = list[str](), list[str]()
    for before in evidence.before:
        after = find_run(evidence.after, before.command)
        seen = find_run(evidence.replay or (), before.command) or after
        if after is None or seen is None:
            continue
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


def _find_removed(evidence: ProofEvidence) -> tuple[str, ...]:
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


def _find_weakened(evidence: ProofEvidence, lost: Sequence[str]) -> tuple[Suspicion, ...]:
    """Tests that check less, although their old version still passes: nothing is lost, but they guard less."""
    found = [one for one in evidence.suspicions if one.kind in WEAKENING] if evidence.replay else []
    return tuple(one for one in found if not any(_name_weakened(one).rpartition(".")[2] in name for name in lost))


def _name_weakened(one: Suspicion) -> str:
    """The name of the test, which the detail of a suspicion begins with."""
    return re.sub(r" #\d+\Z", "", one.detail.partition(": ")[0])


def _accuse_weaker(
    removed: Sequence[str], weakened: Sequence[Suspicion], allow: Callable[[Sequence[str]], str]
) -> Iterable[str]:
    if removed and not allow(removed):
        yield f"{describe_removed(len(removed))}: {_name(removed)}"
    if weakened and not allow([f"{one.path}::{_name_weakened(one)}" for one in weakened]):
        yield f"{describe_weakened(weakened)} ({_name([one.detail for one in weakened])})"


def _list_deleted(evidence: ProofEvidence) -> set[str]:
    told = [one.detail for one in evidence.suspicions if one.kind == "test-deleted"]
    words = {word for detail in told for word in re.split(r"[\s,()]+", detail) if word}
    return words | {re.split(r"[.:]", word)[-1] for word in words} | {one.removesuffix(" is gone") for one in told}


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
        return f"the gates pass only with files that git ignores: {_name(evidence.only_with_ignored)}"
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
    if not evidence.has_test_files and (left_out := _find_removed(evidence)):
        return f"{_count(left_out, 'test')} that still pass are now left out: {_name(left_out)}"
    if evidence.only_with_build:
        return f"the tests as they were pass only with {_name(evidence.only_with_build)} as it is now"
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
    )
    for kind, runs in groups:
        yield from (ProofRun(kind=kind, command=one.command, ok=one.ok, tally=one.tally) for one in runs or ())


def _list_told(evidence: ProofEvidence, own: OwnTests, removed: Sequence[str]) -> Iterable[str]:
    if removed:
        yield f"{describe_removed(len(removed))}: {_name(removed)}"
    if broken := find_lost_checks(evidence):
        yield f"checks as they were fail on the new code: {_name(broken)} (changed: {_name(evidence.check_paths)})"
    if own.hollow and not own.names:
        yield f"its new tests fail without the work, but check nothing of it: {_name(own.hollow)}"
    elif evidence.own and not own.names and _has_unchecked(evidence):
        yield "its new tests can't be loaded without the work, but check nothing of it"
    elif evidence.own and not own.names:
        yield "its new tests also pass without the work, so they prove nothing about it"
    for one in evidence.after:
        if one.is_linter and not one.ok:
            yield f"`{one.command}` was red before and is still red"


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
