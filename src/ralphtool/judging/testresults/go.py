"""The output of `go test`, as text and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool.judging.testresults.model import Counts, ProgramReport, build_report

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEST = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$")
_PACKAGE = re.compile(r"(ok  |FAIL|\?   )\t([^\s]+)\s+(\S.*)$")


def read_text(lines: list[str]) -> ProgramReport | None:
    """Reads `--- FAIL: TestSame (0.00s)` for each failure, and then its package: `FAIL    example.com/shop  0.003s`."""
    names: list[str] = []
    pending: list[str] = []
    outcomes = Counter[str]()
    packages, complete, closed = 0, True, True
    for at, line in enumerate(lines):
        if found := _TEST.match(line):
            outcomes[found[1]] += 1
            pending += [found[2]] if found[1] == "FAIL" else []
        elif found := _PACKAGE.match(line):
            packages += 1
            if found[1] == "FAIL":
                failed = _name_failures(found[2], found[3], pending)
                names += failed
                complete = complete and bool(failed)
                closed = packages == 1 and (found[3].startswith("[") or lines[at - 1].startswith("exit status"))
            pending = []
        elif line == "FAIL":
            closed = True
    if not packages:
        return None
    verbose = any(line.startswith("=== RUN ") for line in lines)
    counts = Counts(outcomes["PASS"], outcomes["FAIL"], outcomes["SKIP"]) if verbose else None
    return build_report(names, len(names), counts, complete=complete and closed and not pending)


def _name_failures(package: str, state: str, tests: list[str]) -> list[str]:
    """Returns the ids of a failed package, which may not even have been built.

    A test that has failed subtests is left out: it failed because of them.
    """
    if state.startswith("["):
        return [f"{package} {state}"]
    parents = {test.rpartition("/")[0] for test in tests}
    return [f"{package}.{test}" for test in tests if test not in parents]


# --- go test -json ----------------------------------------------------------------------------------


class _Event(Struct):
    action: str = msgspec.field(name="Action")
    package: str = msgspec.field(name="Package")
    test: str = msgspec.field(name="Test", default="")
    failed_build: str = msgspec.field(name="FailedBuild", default="")


_DECODER = msgspec.json.Decoder(_Event)


def _decode_events(lines: list[str]) -> Iterator[_Event]:
    for line in lines:
        if line.startswith("{") and '"Action":"' in line:
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError:
                continue  # a line that was cut, or another program's


def read_json(lines: list[str]) -> ProgramReport | None:
    """Reads one event for the end of each test, and one without a test for the end of each package."""
    failed: dict[str, list[str]] = {}  # by package
    ended: dict[str, str] = {}  # package -> state
    outcomes = Counter[str]()
    for event in _decode_events(lines):
        failed.setdefault(event.package, [])
        if event.action not in ("pass", "fail", "skip"):
            continue
        if not event.test:
            ended[event.package] = "[build failed]" if event.failed_build else event.action
            continue
        outcomes[event.action] += 1
        failed[event.package] += [event.test] if event.action == "fail" else []
    if not failed:
        return None
    broken = [package for package, state in ended.items() if state not in ("pass", "skip")]
    ids = [_name_failures(package, ended[package], failed[package]) for package in broken]
    counts = Counts(outcomes["pass"], outcomes["fail"], outcomes["skip"])
    names = [name for some in ids for name in some]
    return build_report(names, len(names), counts, complete=all(ids) and len(ended) == len(failed))
