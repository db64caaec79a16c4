"""Running a gate: the command as a shell runs it, and what its output and its reports say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging import testresults
from ralphtool.judging.gates import GateResult
from ralphtool.judging.testresults.model import TestOutcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.executors.process import ProcessResult, Supervisor
    from ralphtool.judging.testresults.model import Counts

_MOST_WORDS = 1500  # characters
_READ = 4 << 20  # so much of the end of an output is read for results
_MOST_OUTPUT = 1 << 30


class CommandContext(Struct, frozen=True):
    """Where commands run, and how they are watched over."""

    supervisor: Supervisor
    root: str
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    stop: Callable[[], bool]


def run(command: str, place: CommandContext, log: str, timeout: float) -> GateResult:
    """Runs a command as it would be written in a shell."""
    reports = {path: _file_version(path) for path in _find_reports(command, place.root)}
    ended = _run_shell(command, place, log, timeout)
    fresh = [path for path, before in reports.items() if _file_version(path) != before]
    output = _read_tail(log) + _read_tail(f"{log}.err")
    tally = testresults.count_tests(output)
    ok = ended.why == "exit" and ended.exit_code == 0 and not (tally and tally.failed)
    return GateResult(
        command=command,
        ok=ok,
        exit_code=ended.exit_code,
        why="" if ended.why == "exit" else ended.why,
        seconds=ended.seconds,
        failed=None if ok or ended.why != "exit" else _find_failed(fresh, output, place.root),
        tally=_describe_tally(tally) if tally else None,
        log=log,
        tests=TestOutcomes(tally, None, frozenset(_find_failed(fresh, output, place.root) or ())) if tally else None,
    )


def _run_shell(command: str, place: CommandContext, log: str, timeout: float) -> ProcessResult:
    shell = ("/bin/sh", "-c", command)
    run = place.supervisor.run(
        shell, cwd=place.root, env=place.env, stdin=None, into=log, wall=timeout, silence=0, secrets=place.secrets,
        stop=place.stop, limit=_MOST_OUTPUT,
    )  # fmt: skip
    while True:
        try:
            next(run)
        except StopIteration as end:
            ended: ProcessResult = end.value
            return ended


def _read_tail(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
            return file.read()
    except FileNotFoundError:
        return b""


def _find_reports(command: str, root: str) -> list[str]:
    return [os.path.join(root, path) for path in testresults.find_junit_paths(command)]


def _file_version(path: str) -> tuple[int, ...] | None:
    """Which report that is: one that the command did not write this time tells nothing."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_ino, info.st_mtime_ns, info.st_size)


def _find_failed(reports: Sequence[str], output: bytes, root: str) -> tuple[str, ...] | None:
    for path in reports:
        if found := testresults.find_failed_in_junit(_read_tail(path), root):
            return tuple(sorted(found))
    failed = testresults.find_failed_tests(output, root)
    return tuple(sorted(failed)) if failed else None


def _describe_tally(tally: Counts) -> str:
    parts = [(tally.passed, "passed"), (tally.failed, "failed"), (tally.skipped, "skipped")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) or "no tests"


def read_last_output(results: Sequence[GateResult]) -> str:
    """What the red ones of these printed last: there the error stands, and what is known about it is found by that."""
    return "\n".join(_read_last_lines(one.log) for one in results if not one.ok)[-_MOST_WORDS:]


def _read_last_lines(log: str) -> str:
    output = (_read_tail(log) + _read_tail(f"{log}.err"))[-_MOST_WORDS:].decode("utf-8", "replace")
    return "\n".join(line for line in output.splitlines() if line.strip())
