"""Runs a gate as a shell command, and reads its output and its reports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files, layout
from ralphtool.judging import testresults
from ralphtool.judging.gates import GateResult, describe_tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.executors.asked_reports import AskedReports
    from ralphtool.executors.process import ProcessResult, Supervisor
    from ralphtool.judging.gates import RedGate
    from ralphtool.judging.testresults.model import Counts, TestOutcomes

_MOST_WORDS = 1500  # characters
_READ = 4 << 20  # bytes at the end of an output that are searched for results
_MOST_OUTPUT = 1 << 30
_MOST_FILES = 1000


class CommandContext(Struct, frozen=True):
    """Where commands run, and how they are supervised."""

    supervisor: Supervisor
    root: str
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    stop: Callable[[], bool]
    shown_root: str = ""  # where programs see the root, if it differs

    @property
    def named_root(self) -> str:
        return self.shown_root or self.root


def run(command: str, place: CommandContext, log: str, timeout: float) -> GateResult:
    """Runs a shell command, and asks the test programs in it for their results."""
    # Not at the start of a run: tempfile loads OpenSSL.
    from ralphtool.executors.asked_reports import AskedReports, is_refusal

    own = {path: _file_version(path) for path in _find_reports(command, place.root)}
    with AskedReports(command, place.root, place.env) as asked:
        ended = _run_shell(command, place, asked.build_environment(), log, timeout, asked)
        if ended.why == "exit" and ended.exit_code != 0 and is_refusal(_read_output(log)):
            ended = _run_shell(command, place, place.env, log, timeout, asked)
        written = asked.read()
    fresh = [path for path, before in own.items() if _file_version(path) != before]
    return _build_result(command, ended, place.named_root, log, fresh, written)


def _build_result(
    command: str, ended: ProcessResult, root: str, log: str, own: Sequence[str], written: Sequence[bytes]
) -> GateResult:
    from ralphtool.executors.asked_reports import read_report

    output = _read_output(log)
    tests = testresults.read_outcomes(output, root, [*written, *map(read_report, own)])
    has_ended = ended.why == "exit"
    ok = has_ended and ended.exit_code == 0 and not (tests and tests.counts.failed)
    return GateResult(
        command=command,
        ok=ok,
        exit_code=ended.exit_code,
        why="" if has_ended else ended.why,
        seconds=ended.seconds,
        failed=None if ok or not has_ended else _find_failed(own, output, root, written),
        tally=_describe_counts(tests.counts) if tests else None,
        log=log,
        tests=tests,
        uncompiled=_find_uncompiled(output, root) if has_ended and not ok and not _count_failed(tests) else (),
    )


def _count_failed(tests: TestOutcomes | None) -> int:
    return tests.counts.failed if tests else 0


def _find_uncompiled(output: bytes, root: str) -> tuple[str, ...]:
    return tuple(sorted(testresults.find_uncompiled(output, root)))[:_MOST_FILES]


def _run_shell(
    command: str, place: CommandContext, env: Mapping[str, str], log: str, timeout: float, asked: AskedReports
) -> ProcessResult:
    shell = ("/bin/sh", "-c", command)
    run = place.supervisor.run(
        shell, cwd=place.root, env=env, stdin=None, into=log, wall=timeout, silence=0, secrets=place.secrets,
        stop=place.stop, limit=_MOST_OUTPUT, writable=asked.folders, purpose="gate",
    )  # fmt: skip
    while True:
        try:
            next(run)
            asked.collect()  # a program has written its report when it prints its summary
        except StopIteration as end:
            ended: ProcessResult = end.value
            return ended


def _read_output(log: str) -> bytes:
    return _read_tail(log) + _read_tail(f"{log}.err")


def _read_tail(path: str) -> bytes:
    try:
        with open(files.open_plain(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
            return file.read()
    except OSError:
        return b""


def _find_reports(command: str, root: str) -> list[str]:
    return [os.path.join(root, path) for path in testresults.find_junit_paths(command)]


def _file_version(path: str) -> tuple[int, ...] | None:
    """Identifies a report: one that the command did not write this time means nothing."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_ino, info.st_mtime_ns, info.st_size)


def _find_failed(reports: Sequence[str], output: bytes, root: str, written: Sequence[bytes]) -> tuple[str, ...] | None:
    for path in reports:
        if found := testresults.find_failed_in_junit(_read_tail(path), root):
            return tuple(sorted(found))
    failed = testresults.find_failed_tests(output, root, written)
    return tuple(sorted(failed)) if failed else None


def _describe_counts(found: Counts) -> str:
    return describe_tally(found.passed, found.failed, found.skipped)


def read_last_output(results: Sequence[GateResult], newly_red: Sequence[RedGate] = ()) -> str:
    """The excerpts of the red gates: they contain the error, by which known solutions are searched.

    If some gates are newly red, the others are left out: their failures are not the attempt's.
    """
    new = {one.command: one.tests for one in newly_red}
    red = [one for one in results if not one.ok]
    shown = [one for one in red if one.command in new] or red
    most = _MOST_WORDS // max(1, len(shown))
    return "\n".join(read_excerpt(one.log, new.get(one.command) or one.failed or (), most) for one in shown)


def read_excerpt(log: str, failed: Sequence[str] = (), most: int = _MOST_WORDS) -> str:
    """The part of a gate's output about its failed tests, and the end of it.

    It has no colours, no empty lines, and not the line of pytest about a report of ralphtool.
    """
    # Only red gates need them.
    from ralphtool.judging.testresults.excerpt import cut_excerpt
    from ralphtool.judging.testresults.reading import strip_colours

    lines = strip_colours(_read_output(log).decode("utf-8", "replace")).splitlines()
    return cut_excerpt([one for one in lines if one.strip() and layout.TEST_REPORTS not in one], failed, most)
