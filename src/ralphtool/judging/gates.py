"""Gates: the commands that we run ourselves to prove a story, and which of their failures are new."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging import testresults
from ralphtool.judging.verdict import Red
from ralphtool.record.change_state import Baseline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.executors.process import Ended, Keeper

_MOST_WORDS = 1500  # characters
_READ = 4 << 20  # so much of the end of an output is read for results
_MOST_OUTPUT = 1 << 30


class Result(Struct, frozen=True, kw_only=True):
    """How one gate ended. `failed` are its failing tests; None where they can't be told."""

    command: str
    ok: bool
    exit_code: int
    why: str
    seconds: float
    failed: tuple[str, ...] | None
    tally: str | None
    log: str


class Place(Struct, frozen=True):
    """Where commands run, and how they are watched over."""

    keeper: Keeper
    root: str
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    stop: Callable[[], bool]


def run(command: str, place: Place, log: str, timeout: float) -> Result:
    """Runs a command as it would be written in a shell."""
    reports = {path: _written(path) for path in _reports(command, place.root)}
    ended = _ended(command, place, log, timeout)
    fresh = [path for path, before in reports.items() if _written(path) != before]
    output = _end_of(log) + _end_of(f"{log}.err")
    ok = ended.why == "exit" and ended.exit_code == 0
    tally = testresults.tally(output)
    return Result(
        command=command,
        ok=ok,
        exit_code=ended.exit_code,
        why="" if ended.why == "exit" else ended.why,
        seconds=ended.seconds,
        failed=None if ok or ended.why != "exit" else _failed(fresh, output, place.root),
        tally=_in_words(tally) if tally else None,
        log=log,
    )


def _ended(command: str, place: Place, log: str, timeout: float) -> Ended:
    shell = ("/bin/sh", "-c", command)
    run = place.keeper.run(
        shell, cwd=place.root, env=place.env, stdin=None, into=log, wall=timeout, silence=0, secrets=place.secrets,
        stop=place.stop, limit=_MOST_OUTPUT,
    )  # fmt: skip
    while True:
        try:
            next(run)
        except StopIteration as end:
            ended: Ended = end.value
            return ended


def _end_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
            return file.read()
    except FileNotFoundError:
        return b""


def _reports(command: str, root: str) -> list[str]:
    return [os.path.join(root, path) for path in testresults.junit_paths(command)]


def _written(path: str) -> tuple[int, ...] | None:
    """Which report that is: one that the command did not write this time tells nothing."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_ino, info.st_mtime_ns, info.st_size)


def _failed(reports: Sequence[str], output: bytes, root: str) -> tuple[str, ...] | None:
    for path in reports:
        if found := testresults.failed_in_junit(_end_of(path), root):
            return tuple(sorted(found))
    failed = testresults.failed_tests(output, root)
    return tuple(sorted(failed)) if failed else None


def _in_words(tally: testresults.Tally) -> str:
    parts = [(tally.passed, "passed"), (tally.failed, "failed"), (tally.skipped, "skipped")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) or "no tests"


# --- what is new ------------------------------------------------------------------------------------


def key(tree: str | None, commands: Sequence[str]) -> str:
    """What a baseline belongs to: the same files, and the same commands."""
    return hashlib.sha256("\0".join([tree or "", *commands]).encode("utf-8", "replace")).hexdigest()


def baseline(key: str, results: Sequence[Result]) -> Baseline:
    return Baseline(
        key, {one.command: None if one.failed is None else list(one.failed) for one in results if not one.ok}
    )


def newly_red(results: Sequence[Result], before: Baseline) -> list[Red]:
    """The failures that were not there before. Where a whole command was red, nothing of it can be called new."""
    return [red for one in results if not one.ok and (red := _new(one, before))]


def _new(result: Result, before: Baseline) -> Red | None:
    tests = result.failed or ()
    if result.command not in before.red:
        return Red(result.command, tests, _why(result))
    known = before.red[result.command]
    if known is None:
        return None
    if result.failed is None:
        return Red(result.command, (), f"{len(known)} of its tests failed before; now it fails as a whole")
    fresh = tuple(test for test in tests if test not in known)
    return Red(result.command, fresh) if fresh else None


def last_words(results: Sequence[Result]) -> str:
    """What the red ones of these printed last: there the error stands, and what is known about it is found by that."""
    return "\n".join(_last_words(one.log) for one in results if not one.ok)[-_MOST_WORDS:]


def _last_words(log: str) -> str:
    output = (_end_of(log) + _end_of(f"{log}.err"))[-_MOST_WORDS:].decode("utf-8", "replace")
    return "\n".join(line for line in output.splitlines() if line.strip())


def _why(result: Result) -> str:
    if result.why == "wall-clock":
        return "it took too long and was ended"
    return result.why or f"exit status {result.exit_code}"
