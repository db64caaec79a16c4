"""What was run and read for the proof of a story, as values. `judging.proof` decides what they show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging import gates
from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.receipt import Suspicion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.judging.gates import Baseline, GateResult

# Programs that check code and run no tests. Any other program may be a test program with an unknown output format.
_LINTER = (
    r"\b(?:ruff|mypy|pyright|flake8|pylint|black|isort|eslint|prettier|tsc|stylelint|biome|clippy|rustfmt|gofmt|vet"
    r"|golangci-lint|staticcheck|rubocop|shellcheck|hadolint|phpstan|psalm|ktlint|checkstyle|lint|lints|format|fmt"
    r"|typecheck|type-check|types)\b"
)


class SuiteRun(Struct, frozen=True, kw_only=True):
    """One command and its test results. A set is None if the program does not name its tests."""

    command: str
    ok: bool
    passed: frozenset[str] | None = None
    failed: frozenset[str] | None = None
    count_passed: int | None = None  # None: no test program was recognised
    count_failed: int = 0
    skipped: frozenset[str] = frozenset()  # as far as the program names them
    count_skipped: int = 0
    tally: str | None = None
    has_ended: bool = True  # otherwise it took too long, and was stopped
    uncompiled: tuple[str, ...] = ()  # files that use something that does not exist, if no test failed
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


class GuardedRun(Struct, frozen=True, kw_only=True):
    """Tests as they were before earlier stories touched them, on the new source; see `judging.guarded_tests`."""

    stories: tuple[str, ...]
    passed: int | None = None  # how many passed when the first of these stories was done
    excused: frozenset[str] = frozenset()  # tests that fail for other reasons than this story
    after: tuple[SuiteRun, ...] = ()  # the tests as they are now
    work: tuple[SuiteRun, ...] = ()
    before: tuple[SuiteRun, ...] = ()  # the same on the checkpoint's source, if something fails on the new one
    trouble: str = ""  # why they could not run

    @property
    def is_clean(self) -> bool:
        """Whether nothing fails that did not fail before, and no test is missing or skipped."""
        if self.trouble or self._count_missing() or not all(map(self._is_green, self.work)):
            return False
        now = {one.command: one for one in self.after}
        return not any(_skips_more(one, now.get(one.command, one)) for one in self.work)

    def _is_green(self, run: SuiteRun) -> bool:
        return run.ok or (bool(run.failed) and self.excused.issuperset(run.failed or ()))

    def _count_missing(self) -> int:
        seen = sum((one.count_passed or 0) + len(one.failed or ()) for one in self.work)
        return max(0, (self.passed or 0) - seen)

    @property
    def is_effective(self) -> bool:
        """Whether these tests run at all on the checkpoint's source: otherwise they show nothing."""
        return any(one.ok or one.count_passed for one in self.before)


def _skips_more(work: SuiteRun, after: SuiteRun) -> bool:
    """Whether it skips tests that are not skipped now: tests that stories added hide that in the numbers."""
    return work.count_skipped > after.count_skipped or not work.skipped <= after.skipped


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
    has_new_names: bool = False  # the old tests also ran with the new names of what the work renamed or moved
    own_names: dict[str, tuple[str, ...]] = {}  # the tests in these files that check something
    empty_tests: frozenset[str] = frozenset()  # names of own tests that assert nothing, or only constants
    flaky: frozenset[str] = frozenset()  # tests that failed once without the work, and then passed without it
    touched: frozenset[str] | None = None  # old tests that are gone or whose text changed; None: unknown
    has_new_tests: bool = False  # the test files contain new code
    has_gate_files: bool = False  # files that the gates' commands or scripts name were changed
    has_test_files: bool = True  # test files were changed, not only test configuration
    was_accused: bool = False  # the last attempt failed because of lost tests
    is_strict: bool = False
    suspicions: tuple[Suspicion, ...] = ()
    only_with_ignored: tuple[str, ...] = ()  # ignored files that the gates need to be green
    needs_setup: bool = False  # those are packages, and no setup command is set
    dirty_submodules: tuple[str, ...] = ()  # the gates ran with uncommitted files in them
    only_with_build: tuple[str, ...] = ()  # changed build files without which the old tests fail on the new source
    is_own_environment: bool = False  # the gates ran with an environment that the attempt installed
    blind: frozenset[str] = frozenset()  # gates that were tried with broken code, and stayed green
    told: tuple[str, ...] = ()
    guarded: tuple[GuardedRun, ...] = ()  # tests as they were before earlier stories touched them
    to_guard: GuardedTests | None = None  # the files around the tests that this attempt changed
    test_diff: str = ""  # the diff of the tests, if old ones fail
    old_output: str = ""  # the end of what old tests printed when they failed


def merge_runs(one: SuiteRun, other: SuiteRun) -> SuiteRun:
    """Merges two runs of the same suite: a test that passed once counts as passed."""
    better = max(one, other, key=lambda run: (run.ok, run.count_passed or 0))
    if one.passed is None or other.passed is None or one.failed is None or other.failed is None:
        return better
    passed = one.passed | other.passed
    failed = (one.failed | other.failed) - passed
    return structs.replace(better, passed=passed, failed=failed, count_passed=len(passed), count_failed=len(failed))


def merge_beside(one: SuiteRun, other: SuiteRun) -> SuiteRun:
    """The same if the second run has more files, of which some may fail it: only the tests of the first run count."""
    merged = merge_runs(one, other)
    if merged.ok or not one.failed or one.count_failed != len(one.failed):
        return merged
    gained = (other.count_passed or 0) - (one.count_passed or 0)
    saved = one.failed - (other.failed or frozenset())
    if one.passed is not None and other.passed is not None:
        saved &= other.passed
    elif other.failed is None or gained < len(saved):
        return merged
    if not saved:
        return merged
    return structs.replace(
        one,
        ok=saved == one.failed,
        passed=None if one.passed is None else one.passed | saved,
        failed=one.failed - saved,
        count_passed=(one.count_passed or 0) + len(saved),
        count_failed=one.count_failed - len(saved),
    )


def to_run(result: GateResult) -> SuiteRun:
    tests = result.tests
    return SuiteRun(
        command=result.command,
        ok=result.ok,
        has_ended=not result.why,
        passed=tests.passed if tests else None,
        failed=_list_failed(result),
        count_passed=tests.counts.passed if tests else None,
        count_failed=tests.counts.failed if tests else 0,
        skipped=tests.skipped if tests else frozenset(),
        count_skipped=tests.counts.skipped if tests else 0,
        tally=result.tally,
        uncompiled=result.uncompiled,
    )


def _list_failed(result: GateResult) -> frozenset[str] | None:
    """The names in its report and those in its output, which need not be the same."""
    named = result.tests.failed if result.tests else None
    if named is None and result.failed is None:
        return None if not result.ok else frozenset()
    return (named or frozenset()) | frozenset(result.failed or ())


def list_before(baseline: Baseline, commands: Iterable[str]) -> Iterable[SuiteRun]:
    """The gates at the checkpoint, as far as the baseline has them."""
    for command in commands:
        tests, red = baseline.tests.get(command), baseline.red.get(command, [])
        yield SuiteRun(
            command=command,
            ok=command not in baseline.red,
            passed=gates.list_names(tests) if tests else None,
            failed=None if red is None else frozenset(red),
            count_passed=tests.passed if tests else None,
            count_failed=tests.failed if tests else 0,
        )
