"""The output of `cargo test`."""

from __future__ import annotations

import re

from msgspec import Struct

from ralphtool.judging.testresults.model import Counts, ProgramReport, TestResult, add_up

_BEGIN = re.compile(r"running \d+ tests?$")
_END = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_TARGET = re.compile(
    r" +(?:Running (?:unittests )?(\S+) \((\S+)\)|Running `(\S+-[0-9a-f]{16})(?: .*)?`|Doc-tests (\S+))$"
)
_TEST = re.compile(r"test (.+?)(?: - (?:should panic|compile(?: fail)?))? \.\.\. (ok|FAILED|ignored)\b")
_RESULTS: dict[str, TestResult] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
_LINE_NUMBER = re.compile(r" \(line \d+\)$")


def read_cargo(lines: list[str]) -> ProgramReport | None:
    """Reads for each target its name, the names below `failures:`, and `test result: FAILED. 1 passed; 1 failed; …`."""
    output = _CargoCollector()
    for line in lines:
        output.read(line)
    return output.report()


class _Target(Struct):
    """One binary, or the examples in the documentation of a crate."""

    failed: list[str] = []
    tests: list[tuple[str, TestResult]] = []


class _CargoCollector:
    def __init__(self) -> None:
        self.names: list[str] = []  # of targets
        self.targets: list[_Target] = []
        self.summaries: list[Counts] = []
        self.current = _Target()
        self.is_running = self.is_listing = False

    def read(self, line: str) -> None:
        is_listing, self.is_listing = self.is_listing, False
        if is_listing and line.startswith("    "):
            self.current.failed.append(_LINE_NUMBER.sub("", line[4:]))
            self.is_listing = True
        elif line == "failures:":  # the last one begins the list; earlier ones begin the output of tests
            self.current.failed, self.is_listing = [], True
        elif found := _END.match(line):
            self.summaries.append(Counts(int(found[1]), int(found[2]), int(found[3])))
            self.targets.append(self.current)
            self.current, self.is_running = _Target(), False
        elif _BEGIN.match(line):
            self.current, self.is_running = _Target(), True
        elif not self.is_running and (found := _TARGET.match(line)):
            self.names.append(_name_target(found))
        elif line.startswith("test ") and (found := _TEST.match(line)):
            self.current.tests.append((_LINE_NUMBER.sub("", found[1]), _RESULTS[found[2]]))

    def report(self) -> ProgramReport | None:
        # The names of targets are on stderr, in the same order; with -q there are none.
        targets = list(zip(self.names or [""] * len(self.targets), self.targets, strict=False))
        return add_up(
            [f"{name} {test}" for name, target in targets for test in target.failed],
            self.summaries,
            complete=not self.is_running and len(self.names) in (0, len(self.targets)),
            tests=[(f"{name} {test}", how) for name, target in targets for test, how in target.tests],
        )


def _name_target(found: re.Match[str]) -> str:
    """Returns `unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)` without the parts that vary by build."""
    binary = found[2] or found[3] or ""
    crate = binary.replace("\\", "/").rpartition("/")[2].rpartition("-")[0]
    return " ".join(filter(None, (crate, found[1], found[4])))
