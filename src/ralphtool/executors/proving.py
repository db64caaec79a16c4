"""Collects the evidence for a proof, once an attempt claims to be complete: gates, replay, own tests.

Nothing is decided here; `judging.proof` does that. Meanwhile the working tree contains other trees, so a ref keeps the
work itself first: a kill loses nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ralphtool.executors import gate_run, setting_up
from ralphtool.executors.gate_series import OLD_TESTS_ON_WORK, describe_beside, describe_flaky, is_cut_off
from ralphtool.executors.guarded_runs import (
    GuardedRuns,
    describe_as_they_were,
    is_mixed_change,
    list_names,
    restore_inline,
)
from ralphtool.executors.proof_notes import describe_ignored, join_paths, render_diff
from ralphtool.executors.rewritten_work import RewrittenWork
from ralphtool.judging import gates
from ralphtool.judging.chance import may_vary
from ralphtool.judging.guard.inline import splice_tests
from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.hints import find_hints
from ralphtool.judging.inert_files import build_inert_copies
from ralphtool.judging.lost_tests import find_lost, find_lost_checks, find_uncovered, is_lowered_coverage
from ralphtool.judging.manifests import has_manifest
from ralphtool.judging.moves import only_follows_moves
from ralphtool.judging.own_tests import find_failed, find_flaky, find_own_tests, find_unsure
from ralphtool.judging.plain_additions import are_plain_additions
from ralphtool.judging.proof_evidence import ProofEvidence, SuiteRun, list_before, merge_beside, merge_runs, to_run
from ralphtool.judging.receipt import Suspicion
from ralphtool.judging.renamed_tests import have_run
from ralphtool.judging.roles import find_role
from ralphtool.judging.test_side import ChangedPaths, TestHints
from ralphtool.workspace.ignored import find_environment, is_startup_file
from ralphtool.workspace.paths import Paths, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.executors import Assignment, Report
    from ralphtool.executors.gate_series import GateSeries
    from ralphtool.judging.gates import Baseline, GateResult, RedGate
    from ralphtool.judging.guard.model import FileChange
    from ralphtool.judging.proof_evidence import GuardedRun
    from ralphtool.settings import Settings
    from ralphtool.workspace import Workspace
    from ralphtool.workspace.swapped_files import Contents

_NO_COPIES: Mapping[str, bytes] = {}


class Prover:
    """Runs the gates, and the tests that the changed files require. `spec` is the spec's path, which proves nothing."""

    def __init__(
        self,
        workspace: Workspace,
        series: GateSeries,
        assignment: Assignment,
        settings: Settings,
        spec: str,
    ) -> None:
        self._workspace = workspace
        self._series = series
        self._assignment = assignment
        self._settings = settings
        self._spec = spec
        self._is_elsewhere = False  # something other than the work is in place
        self._old_output = ""  # the end of what the old tests printed when they last failed
        self._seconds = 0.0  # of all gates that were run
        self._builds: list[str] = []  # gates that build what the tests use
        self._repairs: list[RedGate] = []  # gates that changed the work that they tested

    def prove(self, report: Report, *, is_whole: bool) -> Report:
        """Adds the gates' results and, for a complete story, all the evidence. The work is in place afterwards."""
        paths, assignment = self._read_paths(report), self._assignment
        if report.tree and assignment.gates:
            self._workspace.protect(report.tree, assignment.story, assignment.entry)
        try:
            results, facts = self._run_gates(report, paths)
            report = self._add_results(report, results)
            if is_whole and not report.red and not is_cut_off(results, assignment.gates):
                evidence = self._gather(report, paths, results)
                facts["told"] = (*facts.get("told", ()), *evidence.told)
                report = structs.replace(report, proof=structs.replace(evidence, **facts))
        finally:
            self._put_back(report)
        return structs.replace(report, gate_seconds=report.gate_seconds + self._seconds)

    def run_gates_ahead(self, report: Report) -> Report:
        """Adds the gates' results if all are green. Does nothing if the work needs an environment of its own."""
        made = self._workspace.find_ignored_changes()
        if has_manifest(report.paths) or any(map(_is_installed, made)):
            return report
        try:
            self._workspace.set_ignored_aside(made)
            work = RewrittenWork(self._workspace, self._read_paths(report).changes)
            results = self._run("after", self._assignment.gates)
            is_same = not work.find_changed()
        finally:
            self._put_back(report)
        is_green = is_same and all(one.ok for one in results) and not is_cut_off(results, self._assignment.gates)
        return structs.replace(report, ahead=tuple(results) if is_green else (), gate_seconds=self._seconds)

    def _run(self, when: str, commands: Sequence[str]) -> list[GateResult]:
        results = self._series.run(when, commands)
        self._seconds += sum(one.seconds for one in results)
        if when in OLD_TESTS_ON_WORK:
            self._old_output = gate_run.read_last_output(results) or self._old_output
        return results

    def _put_back(self, report: Report) -> None:
        self._workspace.put_ignored_back()
        if report.tree and self._is_elsewhere:
            self._workspace.show_work(report.tree)
        self._workspace.mark_dirty()  # gates leave files behind that are not part of the work

    def _read_paths(self, report: Report) -> ChangedPaths:
        changes = self._workspace.compare(report.tree) if report.tree else ()
        work = tuple(one for one in changes if not self._is_spec(one.path))
        paths = ChangedPaths(work)
        return structs.replace(paths, hints=self._find_hints(paths, report.baseline)) if work else paths

    def _is_spec(self, path: str) -> bool:
        return f"/{self._spec}" in f"/{path}"

    def _find_hints(self, paths: ChangedPaths, before: Baseline | None) -> TestHints:
        known = [name for one in (before.tests.values() if before else ()) for name in gates.list_names(one) or ()]
        checks = [one.command for one in self._list_before(before) if one.is_linter]
        is_green = before is not None and not before.red
        return find_hints(paths, self._assignment.gates, checks, known, self._workspace, is_green=is_green)

    def _list_before(self, before: Baseline | None) -> tuple[SuiteRun, ...]:
        runs = list_before(before, self._assignment.gates) if before else ()
        return tuple(structs.replace(one, is_check=self._is_check(one.command)) for one in runs)

    def _add_results(self, report: Report, results: Sequence[GateResult]) -> Report:
        before = report.baseline or gates.build_baseline("", ())
        is_cut = is_cut_off(results, self._assignment.gates)
        return structs.replace(
            report,
            results=tuple(results),
            red=(*gates.find_newly_red(results, before), *self._repairs),
            gates_ran=bool(self._assignment.gates),
            ending="stopped" if is_cut else report.ending,
        )

    # --- the gates ------------------------------------------------------------------------------

    def _run_gates(self, report: Report, paths: ChangedPaths) -> tuple[list[GateResult], dict[str, Any]]:
        """Runs them on what will be committed, without ignored files that the attempt created.

        If the gates are red without those, they are tried with them, so that the agent is not blamed for the wrong
        reason; the evidence then says so.
        """
        commands = self._assignment.gates
        if not commands:
            return [], {}
        made = self._workspace.find_ignored_changes()
        installed = [path for path in made if _is_installed(path)] if paths.has_manifest else []
        aside = [path for path in made if path not in installed]
        inside = self._list_in_submodules(aside)
        self._workspace.set_ignored_aside(aside)
        environments = sorted({str(find_environment(path)) for path in installed})
        is_anew = setting_up.rebuild(self._workspace, self._settings.run.setup, self._series, environments)
        dirty = tuple(map(printable, self._workspace.find_dirty_submodules()))
        ahead = () if environments else report.ahead  # a new environment has not been tested yet
        results, flaky = self._run_on_work(structs.replace(report, ahead=ahead), paths)
        facts: dict[str, Any] = {
            "dirty_submodules": dirty,
            "is_own_environment": bool(environments) and not is_anew,
            "told": (*describe_ignored(aside, inside, environments, is_anew=is_anew), *describe_flaky(flaky)),
        }
        if aside and self._is_newly_red(results):
            self._workspace.put_ignored_back()
            again = self._run("after", commands)
            if not self._is_newly_red(again):
                ignored = tuple(printable(path) for path in aside if path not in inside)
                dirty = tuple(map(printable, self._workspace.find_dirty_submodules()))
                facts |= {"needs_setup": not self._settings.run.setup and all(map(find_environment, ignored))}
                return again, facts | {"only_with_ignored": ignored, "dirty_submodules": dirty}
        return results, facts

    def _run_on_work(self, report: Report, paths: ChangedPaths) -> tuple[list[GateResult], list[str]]:
        """The results, and flaky tests. Gates that changed files of the work run once more."""
        work = RewrittenWork(self._workspace, paths.changes)
        results = list(report.ahead) or self._run("after", self._assignment.gates)
        changed = work.find_changed()
        self._builds = gates.list_builds(results)
        results, flaky = self._try_red_again(report.tree, results)
        if not report.tree or not changed or self._is_newly_red(results):
            return results, flaky
        self._put_in_place(report.tree, lambda path: False, {})
        work.remember()
        results, self._repairs = work.run_again(self._assignment.gates, changed, partial(self._run, "after-again"))
        results, more = self._try_red_again(report.tree, results)
        return results, [*flaky, *more]

    def _try_red_again(self, tree: str | None, results: list[GateResult]) -> tuple[list[GateResult], list[str]]:
        """The results, and tests that failed by chance. A few tests that passed before get a second try."""
        before = self._series.before or gates.build_baseline("", ())
        red = gates.find_newly_red(results, before)
        if not tree or not gates.may_be_flaky(red, before):
            return results, []
        self._show(tree, lambda path: False, {})
        again = {one.command: one for one in self._run("after-again", [one.command for one in red])}
        if len(again) < len(red) or self._is_newly_red(list(again.values())):
            return results, []
        return [again.get(one.command, one) for one in results], [test for one in red for test in one.tests]

    def _list_in_submodules(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that can't be committed because a submodule has them, not because git ignores them."""
        submodules = Paths(self._workspace.find_dirty_submodules() if paths else ())
        return [path for path in paths if submodules.cover(path)]

    def _is_newly_red(self, results: Sequence[GateResult]) -> bool:
        before = self._series.before or gates.build_baseline("", ())
        return bool(gates.find_newly_red(results, before))

    # --- what the changed files require ---------------------------------------------------------

    def _gather(self, report: Report, paths: ChangedPaths, results: Sequence[GateResult]) -> ProofEvidence:
        after = tuple(map(self._to_run, results))
        before = self._list_before(report.baseline)
        evidence = ProofEvidence(
            is_changed=bool(paths.changes) or not report.tree,
            has_git=report.tree is not None,
            before=before,
            after=after,
            own_paths=tuple(one.path for one in paths.own),
            is_strict=self._settings.run.guard == "strict",
            has_test_files=paths.has_test_files,
            has_gate_files=paths.has_gate_files,
            suspicions=tuple(self._list_suspicions(paths)),
            own_names={one.path: _list_checking_tests(one) for one in paths.own if find_role(one.path) == "test"},
            empty_tests=frozenset(name for one in paths.own for name in _find_empty_tests(one)),
        )
        if not report.tree or not all(one.ok for one in after if not one.is_linter):
            return evidence
        evidence = structs.replace(evidence, replay=self._replay(report.tree, paths, after))
        evidence = structs.replace(evidence, **self._replay_checks(report.tree, paths, evidence))
        evidence = self._try_with_new_names(report.tree, paths, evidence)
        if find_lost(evidence):
            evidence = structs.replace(evidence, touched=paths.find_touched_tests(), has_new_tests=paths.has_new_tests)
        evidence = self._try_beside_copies(report.tree, paths, self._try_again(report.tree, paths, evidence))
        evidence = structs.replace(evidence, own=self._run_own_tests(report.tree, paths, after))
        evidence = self._leave_out_flaky(report.tree, paths, evidence)
        guarded = self._run_guarded(report.tree, paths, evidence)
        # A renamed test may look like a deleted one; the judgement counts whether all tests are still there.
        is_clean = all(one.kind in ("test-deleted", "lint-config") for one in evidence.suspicions)
        is_same = bool(evidence.replay) and is_clean and paths.is_same_but_renamed()
        shown = paths.tests if find_lost(evidence) else []
        shown += [*paths.checks, *_list_lowered(paths, evidence)] if find_lost_checks(evidence) else []
        diff = render_diff(list(dict.fromkeys(shown)))
        return structs.replace(
            evidence,
            guarded=guarded,
            to_guard=self._describe_tests(paths),
            is_same_by_reading=is_same,
            test_diff=diff,
            old_output=self._old_output,
        )

    def _list_suspicions(self, paths: ChangedPaths) -> Iterable[Suspicion]:
        from ralphtool.judging.guard.diff import inspect_changes  # late, so that nothing waits for its patterns

        if self._settings.run.guard != "off":
            for one in inspect_changes(paths.changes):
                yield Suspicion(kind=one.kind, path=printable(one.path), detail=printable(one.detail))

    def _replay(
        self,
        tree: str,
        paths: ChangedPaths,
        after: Sequence[SuiteRun],
        spared: Sequence[FileChange] = (),
        copies: Mapping[str, bytes] = _NO_COPIES,
        when: str = "replay",
    ) -> tuple[SuiteRun, ...] | None:
        """Runs the old tests, with their old configuration, on the new source. `spared` files keep their new state.

        `copies` are files that are put beside them.
        """
        side = [one for one in paths.tests if one not in spared]
        suites = [one for one in after if not one.is_linter]
        if not self._settings.proof.replay or not (side or paths.inline) or not suites:
            return None
        contents = {**restore_inline(paths), **copies}
        return self._show_as_they_were(when, tree, side, contents, suites, with_lint=False)

    def _run_guarded(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> tuple[GuardedRun, ...]:
        """Runs the tests as they were before earlier stories touched them. The same source can't fail them."""
        suites = [one for one in evidence.after if not one.is_linter]
        is_due = self._settings.proof.replay and suites and self._assignment.guarded and self._has_source(paths)
        guarded = self._assignment.guarded if is_due else ()
        runs = GuardedRuns(
            workspace=self._workspace,
            changes=paths.changes,
            own=describe_as_they_were(paths.tests, restore_inline(paths), with_lint=False),
            after=evidence.after,
            show_and_run=lambda when, is_old, contents: self._show_and_run(when, tree, is_old, contents, suites),
            known_red=frozenset(find_lost(evidence)).union(*(one.failed or () for one in evidence.before)),
        )
        return runs.run_all(guarded)

    def _has_source(self, paths: ChangedPaths) -> bool:
        """Whether a change can break a test. A file that looks like documentation may be data of the source."""
        names = {one.path.rpartition("/")[2] for one in paths.sources}
        named_in = {path for name in names for path in self._workspace.grep_checkpoint(name)}
        return paths.has_source or any(find_role(path) != "docs" for path in named_in)

    def _describe_tests(self, paths: ChangedPaths) -> GuardedTests | None:
        """Where the tests are as they were before this story, if it could have weakened them."""
        if are_plain_additions([*paths.tests, *paths.inline]):
            return None
        mixed = [one.path for one in paths.tests if is_mixed_change(one)]
        return GuardedTests(
            story=self._assignment.story,
            base=str(self._workspace.tip),
            files=tuple(name for one in paths.tests if one.path not in mixed for name in list_names(one)),
            configs=tuple(mixed),
            inline=tuple(one.path for one in paths.inline),
        )

    def _replay_checks(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> dict[str, Any]:
        """Runs the checks as they were, on everything else as it is now: a check that was weakened finds nothing."""
        green = {one.command for one in evidence.before if one.ok}
        suites = [one for one in evidence.after if one.command in green and one.ok]
        linters = [one for one in suites if one.is_linter]
        side, floors = paths.checks if linters else [], _list_lowered(paths, evidence)
        if not self._settings.proof.replay or not (side or floors):
            return {}
        runs = self._show_as_they_were("replay", tree, side, {}, linters, with_lint=True) if side else ()
        if floors:
            tests = [one for one in suites if not one.is_linter]
            runs += find_uncovered(self._show_as_they_were("replay", tree, floors, {}, tests, with_lint=False), tests)
        lowered = [f"{one.path}: {one.detail}" for one in evidence.suspicions if is_lowered_coverage(one)]
        return {"checks": runs, "check_paths": (*(printable(one.path) for one in side), *lowered)}

    def _show_as_they_were(
        self,
        kind: str,
        tree: str,
        side: Sequence[FileChange],
        contents: Mapping[str, bytes],
        suites: Sequence[SuiteRun],
        *,
        with_lint: bool,
    ) -> tuple[SuiteRun, ...]:
        old = describe_as_they_were(side, contents, with_lint=with_lint)
        return self._show_and_run(kind, tree, lambda path: path in old.names, old.contents, suites)

    def _try_with_new_names(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> ProofEvidence:
        """Old tests can't be loaded if the work renamed or moved what they use: they run with the new names."""
        lost = find_lost(evidence)
        if not lost or evidence.replay is None or not (renamed := paths.rename_in_tests()):
            return evidence
        again = self._replay(tree, paths, evidence.after, copies=renamed, when="replay-again") or evidence.replay
        merged = tuple(merge_runs(one, other) for one, other in zip(evidence.replay, again, strict=False))
        retried = structs.replace(evidence, replay=merged, has_new_names=have_run(renamed, again))
        told = () if find_lost(retried) else ("the tests as they were pass with the new names of what they use",)
        return structs.replace(retried, told=(*retried.told, *told))

    def _try_again(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> ProofEvidence:
        """Before a story is accused: a flaky test proves nothing against it.

        And a build file may have had to change with the work: then a person must look at it.
        """
        lost = find_lost(evidence)
        if not lost or evidence.replay is None:
            return evidence
        spared = paths.builds
        # If nothing else was changed, the gates have already run on exactly that.
        again = self._replay(tree, paths, evidence.after, spared, when="replay-again")
        again = again or self._pick(evidence.after, evidence.replay)
        merged = tuple(merge_runs(one, other) for one, other in zip(evidence.replay, again, strict=False))
        retried = structs.replace(evidence, replay=merged or evidence.replay)
        still = set(find_lost(retried))
        saved = [name for name in lost if name not in still]
        if not saved:
            return retried
        if spared and all(only_follows_moves(one, paths.changes) for one in spared):
            adapted = join_paths([one.path for one in spared])
            told = f"the tests as they were pass with {adapted}, which was adapted to moved files"
            return structs.replace(retried, told=(*retried.told, told))
        if spared:
            return structs.replace(retried, only_with_build=tuple(printable(one.path) for one in spared))
        return structs.replace(retried, told=(*retried.told, *describe_flaky(saved)))

    def _try_beside_copies(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> ProofEvidence:
        """A test about the test folder needs the added test files: it gets copies that do nothing."""
        lost, copies = find_lost(evidence), build_inert_copies(paths.tests)
        if not lost or not copies or evidence.replay is None:
            return evidence
        again = self._replay(tree, paths, evidence.after, copies=copies, when="replay-again") or evidence.replay
        merged = tuple(merge_beside(one, other) for one, other in zip(evidence.replay, again, strict=False))
        retried = structs.replace(evidence, replay=merged)
        still = set(find_lost(retried))
        told = describe_beside([name for name in lost if name not in still], [*copies])
        return structs.replace(retried, told=(*retried.told, *told))

    def _pick(self, runs: Sequence[SuiteRun], like: Sequence[SuiteRun]) -> tuple[SuiteRun, ...]:
        wanted = [one.command for one in like]
        return tuple(one for one in runs if one.command in wanted)

    def _run_own_tests(self, tree: str, paths: ChangedPaths, after: Sequence[SuiteRun]) -> tuple[SuiteRun, ...] | None:
        """Runs the new tests on the old source."""
        counted = [one for one in after if one.is_counted]
        if not self._settings.proof.own_tests or not paths.own or not counted:
            return None
        return self._run_without_work("own-tests", tree, paths, counted)

    def _run_without_work(
        self, when: str, tree: str, paths: ChangedPaths, suites: Sequence[SuiteRun]
    ) -> tuple[SuiteRun, ...]:
        contents = {one.path: splice_tests(one.new or b"", one.old or b"", one.path) or b"" for one in paths.inline}
        new = frozenset(name for one in paths.tests for name in list_names(one))
        # The boxes stay ticked: a test that reads them proves nothing.
        return self._show_and_run(
            when, tree, lambda path: path not in new and not self._is_spec(path), contents, suites
        )

    def _leave_out_flaky(self, tree: str, paths: ChangedPaths, evidence: ProofEvidence) -> ProofEvidence:
        """Before tests are taken for a proof that existed, or that may vary: a flaky one proves nothing for a story."""
        is_varying = may_vary([*paths.tests, *paths.inline])
        unsure = find_own_tests(evidence).names if is_varying else find_unsure(evidence)
        if not unsure:
            return evidence
        counted = [one for one in evidence.after if one.is_counted]
        flaky = find_flaky(unsure, self._run_without_work("own-tests-again", tree, paths, counted))
        if is_varying and flaky != frozenset(unsure):
            flaky |= find_failed(unsure, self._show_and_run("after-again", tree, lambda path: False, {}, counted))
        return structs.replace(evidence, flaky=flaky, told=(*evidence.told, *describe_flaky(sorted(flaky))))

    def _show_and_run(
        self,
        kind: str,
        tree: str,
        is_old: Callable[[str], bool],
        contents: Contents,
        suites: Sequence[SuiteRun],
    ) -> tuple[SuiteRun, ...]:
        self._show(tree, is_old, contents)
        return tuple(map(self._to_run, self._run(kind, [one.command for one in suites])))

    def _show(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        self._put_in_place(tree, is_old, contents)
        self._run("build", self._builds)  # ignored files, such as dist/, must be of the same source as the rest

    def _put_in_place(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        """The work, with some files as at the checkpoint. What gates left must not help the next one."""
        self._is_elsewhere = True
        self._workspace.set_ignored_aside([one for one in self._workspace.clean_up() if not _is_installed(one)])
        self._workspace.show_mix(tree, is_old, contents)

    def _to_run(self, result: GateResult) -> SuiteRun:
        return structs.replace(to_run(result), is_check=self._is_check(result.command))

    def _is_check(self, command: str) -> bool:
        verify = self._settings.verify
        return command in (verify.checks or ()) and command not in (verify.tests or ())


def _list_lowered(paths: ChangedPaths, evidence: ProofEvidence) -> list[FileChange]:
    """The files that require less coverage than before."""
    lowered = {one.path for one in evidence.suspicions if is_lowered_coverage(one)}
    return [one for one in paths.changes if printable(one.path) in lowered]


def _is_installed(path: str) -> bool:
    return find_environment(path) is not None and not is_startup_file(path)


def _find_empty_tests(change: FileChange) -> set[str]:
    from ralphtool.judging.guard.diff import find_empty_tests  # late, as above

    return find_empty_tests(change.path, change.new or b"") if find_role(change.path) == "test" else set()


def _list_checking_tests(change: FileChange) -> tuple[str, ...]:
    from ralphtool.judging.guard.diff import list_checking_tests  # late, as above

    return list_checking_tests(change.path, change.new or b"")
