"""A story's own tests: those that fail without its work, or can't be loaded without it, and pass with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.testresults.uncompiled import is_same_file
from ralphtool.judging.testresults.unloaded import COVERAGE, find_place, find_unloaded, is_file, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.judging.proof_evidence import ProofEvidence, SuiteRun

_IN_UNITTEST = r"(\w+) \(([\w.]+)\)"


class OwnTests(Struct, frozen=True):
    """`hollow` tests are left out of the others: they check nothing, or only constants."""

    names: tuple[str, ...] = ()
    unloaded: int = 0  # of them, how many can't even be loaded without the work: the last ones
    hollow: tuple[str, ...] = ()


def find_own_tests(evidence: ProofEvidence) -> OwnTests:
    failing: dict[str, None] = {}
    unloaded: dict[str, None] = {}
    for after in evidence.after:
        before = find_run(evidence.before, after.command)
        without = find_run(evidence.own or (), after.command)
        if before and after.ok:
            failing |= dict.fromkeys(sorted(_find_fixed(evidence, before, after)))
        if without and not without.ok and after.ok and after.is_counted:  # a missing test is not a failed one
            more, loaded_now = _find_new_tests(evidence, before, without, after)
            failing |= dict.fromkeys(more)
            unloaded |= dict.fromkeys(loaded_now)
    found = [one for one in {**failing, **unloaded} if one not in evidence.flaky]
    hollow = tuple(one for one in found if is_named(one, evidence.empty_tests))
    names = tuple(one for one in found if one not in hollow)
    return OwnTests(names, sum(one not in failing for one in names), hollow)


def find_unsure(evidence: ProofEvidence) -> tuple[str, ...]:
    """The own tests, if all of them existed before: one of those may have failed by chance."""
    names = find_own_tests(evidence).names
    known = {name for run in evidence.before for name in (*(run.passed or ()), *(run.failed or ()))}
    in_changed = {one.rpartition(".")[2] for found in evidence.own_names.values() for one in found}
    has_all_names = all(run.passed is not None for run in evidence.before if run.is_counted)
    is_unsure = all(one in known or not (has_all_names or is_named(one, in_changed)) for one in names)
    return names if is_unsure else ()


def find_flaky(unsure: Sequence[str], again: Sequence[SuiteRun]) -> frozenset[str]:
    """Those that did not fail in a second run without the work."""
    return frozenset(name for name in unsure if not any(_fails_again(name, run) for run in again))


def find_failed(unsure: Sequence[str], again: Sequence[SuiteRun]) -> frozenset[str]:
    """Those that did not pass in a second run with the work. If the program names no test, a red run counts for all."""
    red = [run for run in again if not run.ok]
    return frozenset(name for name in unsure if any(not run.failed or _has_failed(name, run) for run in red))


def _fails_again(name: str, run: SuiteRun) -> bool:
    if run.ok or not run.has_ended:
        return False
    parts = [part for one in run.failed or () if (part := find_unloaded(one))]
    return not run.failed or _has_failed(name, run) or (bool(parts) and _may_be_inside(name, parts))


def is_named(name: str, bare_names: Iterable[str]) -> bool:
    """Whether it is one of these tests; ids have the file before the name, and parameters after it."""
    bare = name.partition("[")[0]
    if found := re.fullmatch(_IN_UNITTEST, bare):
        bare = f".{found[1]}"
    return any(bare == one or bare.endswith((f"::{one}", f" > {one}", f".{one}", f"/{one}")) for one in bare_names)


def find_run(runs: Iterable[SuiteRun], command: str) -> SuiteRun | None:
    return next((one for one in runs if one.command == command), None)


def _find_fixed(evidence: ProofEvidence, before: SuiteRun, after: SuiteRun) -> set[str]:
    """Existing tests that were red, and are now green without having been changed."""
    seen = find_run(evidence.replay or (), after.command) or after
    failed = (before.failed or frozenset()) - {COVERAGE}
    if seen.passed is not None and after.passed is not None:
        return set(failed & seen.passed & after.passed)
    return set(failed) if seen.ok and after.ok and not (seen.failed or after.failed) else set()


def _find_new_tests(
    evidence: ProofEvidence, before: SuiteRun | None, without: SuiteRun, after: SuiteRun
) -> tuple[list[str], list[str]]:
    """The tests that fail without the work, and those that can't be loaded without it."""
    parts = sorted({part for name in without.failed or () if (part := find_unloaded(name))})
    if after.passed is None:
        return _find_unnamed_tests(evidence, parts, without, after)
    new = sorted(_find_new_names(before, without, after))
    failing = [one for one in new if _has_failed(one, without)]
    rest = [one for one in new if one not in failing]
    if not without.has_ended:
        return failing, []
    if parts:
        return failing, [one for one in rest if _may_be_inside(one, parts)]
    if not without.is_counted or not without.count_failed:
        return failing, _find_uncompiled(evidence, without, rest)
    return failing or (new if _have_all_run(without, after) else []), []


def _find_unnamed_tests(
    evidence: ProofEvidence, parts: Sequence[str], without: SuiteRun, after: SuiteRun
) -> tuple[list[str], list[str]]:
    if not without.has_ended:
        return [], []
    failed = sorted(one for one in without.failed or () if not find_unloaded(one) and one != COVERAGE)
    if not failed and not parts:
        whole = [f"`{without.command}` without the work"]
        return (whole, []) if without.count_failed else ([], _find_uncompiled(evidence, without, whole))
    gained = (after.count_passed or 0) - (without.count_passed or 0)
    return failed, [name for part in parts for name in _name_tests(evidence, part)][: max(0, gained)]


def _find_uncompiled(evidence: ProofEvidence, without: SuiteRun, names: Sequence[str]) -> list[str]:
    """Those of the tests that did not run because their file uses what does not exist without the work.

    If no message says that, a linter or a script may have stopped the command before its tests.
    """
    own = [path for path in evidence.own_paths if any(is_same_file(path, part) for part in without.uncompiled)]
    helpers = [one for one in without.uncompiled if one.rpartition("/")[2] == "conftest.py"]
    helpers += [path for path in own if path not in evidence.own_names]
    # Of some languages no test can be read: then no empty one is known either.
    tests = [path for path in own if evidence.own_names.get(path) or not evidence.empty_tests]
    return [one for one in names if helpers or any(_may_be_in_file(one, path) for path in tests)]


def _may_be_in_file(name: str, path: str) -> bool:
    place = find_place(name)
    return place is None or is_same_file(path, place)


def _have_all_run(without: SuiteRun, after: SuiteRun) -> bool:
    """Otherwise it may have stopped at the first failure (`pytest -x`), which shows nothing about the rest."""
    return (without.count_passed or 0) + without.count_failed >= (after.count_passed or 0)


def _find_new_names(before: SuiteRun | None, without: SuiteRun, after: SuiteRun) -> set[str]:
    """Prefers new tests: without the work a whole package may not compile, which says nothing about its old tests."""
    known = (before.passed if before else None) or frozenset()
    passed = after.passed or frozenset()
    if new := passed - (without.passed or frozenset()) - known:
        return set(new)
    if without.passed is not None:
        return set(passed - without.passed) if without.passed else set()
    return set(without.failed or {f"`{without.command}` without the work"})


def _has_failed(name: str, run: SuiteRun) -> bool:
    failed = run.failed or frozenset()
    return name in failed or any(one.endswith(f" > {name}") for one in failed)


def _may_be_inside(name: str, parts: Sequence[str]) -> bool:
    """A program that could not load one file may run no other one either, so the file has to be the right one."""
    place = find_place(name)
    return place is None or any(is_inside(place, part) for part in parts)


def _name_tests(evidence: ProofEvidence, part: str) -> Sequence[str]:
    """The tests in a file that could not be loaded, named as their program names them; it did not name them itself."""
    paths = [path for path in evidence.own_names if is_file(path, part)]
    if not paths:
        return [] if any(is_file(path, part) for path in evidence.own_paths) else [part]
    return [name for one in evidence.own_names[paths[0]] if (name := _build_name(one, part, paths[0]))]


def _build_name(name: str, part: str, path: str) -> str:
    if not path.endswith(".py"):
        return f"{part} > {name}"
    if part.endswith(".py"):
        return f"{part}::{name.replace('.', '::')}"
    owner, _, bare = name.rpartition(".")
    return f"{bare} ({part}.{name})" if owner else ""  # unittest runs only methods
