"""Gates: the commands that prove a story. Their results, and which of their failures are new."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.testresults.model import TestOutcomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_READING = "tests by name"  # change it when a baseline contains more than before, so that earlier ones are rebuilt
_BUILD = re.compile(r"\b(?:build|compile|bundle|generate|codegen)\b|\btsc\b(?!.*--noEmit)")
_MOST_FLAKY = 3  # more tests that fail at once don't fail by chance


class GateResult(Struct, frozen=True, kw_only=True):
    """How one gate ended. `failed` has its failing tests; None if they are unknown.

    It is `ok` if its exit status is 0 and no failure is counted.
    """

    command: str
    ok: bool
    exit_code: int
    why: str
    seconds: float
    failed: tuple[str, ...] | None
    tally: str | None
    log: str
    tests: TestOutcomes | None = None  # None: no test program was recognised
    uncompiled: tuple[str, ...] = ()  # files that use something that does not exist, if it is red without a failed test

    @property
    def ran_tests(self) -> bool:
        return self.tests is not None and self.tests.counts.passed + self.tests.counts.failed > 0


def list_builds(results: Sequence[GateResult]) -> list[str]:
    """The gates that run no tests, and seem to build what the tests after them use, such as `npm run build`."""
    tests = [at for at, one in enumerate(results) if one.tests]
    before = results[: max(tests, default=0)]
    return [one.command for one in before if one.ok and not one.tests and _BUILD.search(one.command)]


class RedGate(Struct, frozen=True):
    """A gate that is newly red: its command, and the tests that failed, if known."""

    command: str
    tests: tuple[str, ...] = ()
    why: str = ""
    is_repair: bool = False  # whatever its result, it changed the work that it tested


class EarlierTests(Struct, frozen=True):
    """How many tests of a gate passed and failed before, and the names of those that passed.

    The names are compressed: the file of a change's state is written at every step, and a suite of 20,000 tests has a
    megabyte of very similar names. A separate file would have to be kept consistent with it.
    """

    passed: int
    failed: int
    names: bytes | None = None  # None: the program does not name them


class Baseline(Struct, frozen=True):
    """The gates before a story began.

    `red` has the failing tests of each red gate; None stands for the whole command. `tests` has the earlier results of
    each gate that runs a test program.
    """

    key: str
    red: dict[str, list[str] | None] = {}
    tests: dict[str, EarlierTests] = {}

    @property
    def without_tests(self) -> tuple[str, ...]:
        """The gates whose test program ran no test at all."""
        return tuple(command for command, one in self.tests.items() if one.passed + one.failed == 0)


# --- new failures -----------------------------------------------------------------------------------


def build_key(tree: str | None, commands: Sequence[str]) -> str:
    """Identifies a baseline: the same files and commands, and the same format of results."""
    import hashlib  # loads OpenSSL

    return hashlib.sha256("\0".join([_READING, tree or "", *commands]).encode("utf-8", "replace")).hexdigest()


def describe_tally(passed: int, failed: int, skipped: int = 0) -> str:
    parts = [(passed, "passed"), (failed, "failed"), (skipped, "skipped")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) or "no tests"


def build_baseline(key: str, results: Sequence[GateResult]) -> Baseline:
    return Baseline(
        key,
        {one.command: None if one.failed is None else list(one.failed) for one in results if not one.ok},
        {one.command: _keep_tests(one.tests) for one in results if one.tests},
    )


def _keep_tests(tests: TestOutcomes) -> EarlierTests:
    names = None if tests.passed is None else _pack_names(tests.passed)
    return EarlierTests(tests.counts.passed, tests.counts.failed, names)


def _pack_names(names: Iterable[str]) -> bytes:
    return zlib.compress("\n".join(sorted(names)).encode("utf-8", "replace"))


def _unpack_names(packed: bytes) -> list[str]:
    """Empty if the file is damaged: then only the numbers are compared."""
    try:
        return list(filter(None, zlib.decompress(packed).decode("utf-8", "replace").split("\n")))
    except zlib.error:
        return []


def list_names(tests: EarlierTests) -> frozenset[str] | None:
    """The tests that passed; None if they have no names."""
    return frozenset(_unpack_names(tests.names)) if tests.names is not None else None


def find_newly_red(results: Sequence[GateResult], before: Baseline) -> list[RedGate]:
    """The failures that did not occur before. If a whole command was red, none of its failures counts as new."""
    return [red for one in results if not one.ok and (red := _find_new_failure(one, before))]


def may_be_flaky(red: Sequence[RedGate], before: Baseline) -> bool:
    """Whether only a few tests are newly red, all of which passed before: they may have failed by chance."""
    passed = {one.command: list_names(before.tests[one.command]) for one in red if one.command in before.tests}
    are_known = all(one.tests and set(one.tests) <= (passed.get(one.command) or frozenset()) for one in red)
    return are_known and 0 < sum(len(one.tests) for one in red) <= _MOST_FLAKY


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
        return "it took too long and was stopped"
    if result.exit_code == 0 and result.tests and result.tests.counts.failed:
        return f"exit status 0, but {result.tally}"
    return result.why or f"exit status {result.exit_code}"


# --- missing tests ----------------------------------------------------------------------------------


def find_vanished(results: Sequence[GateResult], before: Baseline) -> tuple[str, ...]:
    """The tests that passed before and are now gone or skipped; if they have no names, how many fewer pass."""
    return tuple(
        name
        for one in results
        if one.command in before.tests
        for name in _find_vanished_tests(one.tests, before.tests[one.command])
    )


def _find_vanished_tests(now: TestOutcomes | None, before: EarlierTests) -> list[str]:
    names = _unpack_names(before.names) if before.names else []
    if now is None or now.passed is None or not names:
        return _count_vanished(now, before)
    there = now.passed | (now.failed or frozenset())
    gone = _leave_out_parameters([name for name in names if name not in there], names, there)
    return [f"{name} (skipped now)" if name in now.skipped else name for name in gone]


def _leave_out_parameters(gone: list[str], before: Iterable[str], now: Iterable[str]) -> list[str]:
    """Leaves out tests whose parameters vary from run to run, such as the time, if there are still as many."""
    if not gone:
        return []
    earlier, present = Counter(map(_strip_parameters, before)), Counter(map(_strip_parameters, now))
    return [
        name
        for name in gone
        if not name.endswith("]") or present[_strip_parameters(name)] < earlier[_strip_parameters(name)]
    ]


def _strip_parameters(name: str) -> str:
    return name.partition("[")[0]


def _count_vanished(now: TestOutcomes | None, before: EarlierTests) -> list[str]:
    passed, failed = (now.counts.passed, now.counts.failed) if now else (0, 0)
    fewer = min(before.passed - passed, before.passed + before.failed - passed - failed)
    if fewer <= 0:
        return []
    noun, verb = ("test", "passes") if fewer == 1 else ("tests", "pass")
    return [f"{fewer} fewer {noun} {verb} ({before.passed} before, {passed} now)"]
