"""Gates: the commands that prove a story. What a result is, and which of its failures are new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.proof import SuiteRun
from ralphtool.judging.testresults.model import TestOutcomes
from ralphtool.judging.verdict import RedGate

if TYPE_CHECKING:
    from collections.abc import Sequence


class GateResult(Struct, frozen=True, kw_only=True):
    """How one gate ended. `failed` are its failing tests; None where they can't be told."""

    command: str
    ok: bool
    exit_code: int
    why: str
    seconds: float
    failed: tuple[str, ...] | None
    tally: str | None
    log: str
    tests: TestOutcomes | None = None


class Baseline(Struct, frozen=True):
    """Which gates were red before a story began: the failing tests of each; None stands for the whole command."""

    key: str
    red: dict[str, list[str] | None] = {}
    counts: dict[str, int] = {}
    commands: list[str] = []


# --- what is new ------------------------------------------------------------------------------------


def build_key(tree: str | None, commands: Sequence[str]) -> str:
    """What a baseline belongs to: the same files, and the same commands."""
    import hashlib  # which loads OpenSSL

    return hashlib.sha256("\0".join([tree or "", *commands]).encode("utf-8", "replace")).hexdigest()


def build_baseline(key: str, results: Sequence[GateResult]) -> Baseline:
    return Baseline(
        key,
        {one.command: None if one.failed is None else list(one.failed) for one in results if not one.ok},
        {one.command: one.tests.counts.passed for one in results if one.tests},
        [one.command for one in results],
    )


def find_newly_red(results: Sequence[GateResult], before: Baseline) -> list[RedGate]:
    """The failures that were not there before. Where a whole command was red, nothing of it can be called new."""
    return [red for one in results if not one.ok and (red := _find_new_failure(one, before))]


def _find_new_failure(result: GateResult, before: Baseline) -> RedGate | None:
    tests = result.failed or ()
    if result.command not in before.red:
        return RedGate(result.command, tests, _describe_result(result))
    known = before.red[result.command]
    if known is None:
        return None
    if result.failed is None:
        return RedGate(result.command, (), f"{len(known)} of its tests failed before; now it fails as a whole")
    fresh = tuple(test for test in tests if test not in known)
    return RedGate(result.command, fresh) if fresh else None


def _describe_result(result: GateResult) -> str:
    if result.why == "wall-clock":
        return "it took too long and was ended"
    return result.why or f"exit status {result.exit_code}"


def list_before(baseline: Baseline) -> list[SuiteRun]:
    return [
        SuiteRun(
            command=command,
            ok=command not in baseline.red,
            failed=None if baseline.red.get(command, []) is None else frozenset(baseline.red.get(command) or ()),
            count_passed=baseline.counts.get(command),
        )
        for command in baseline.commands
    ]
