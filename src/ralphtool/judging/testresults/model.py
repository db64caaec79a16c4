"""The report of a test program, as values: the number of tests, and the ids of those that failed."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TestResult = Literal["passed", "failed", "skipped"]

_LONGEST_ID = 400
# Compiled when first used: every run imports this before its first event.
_CONTROLS = r"[\x00-\x1f\x7f-\x9f]"
_ADDRESS = r"(?<=\bat )0x[0-9a-fA-F]+"
_COUNT = r"(\d{1,9}) ([a-z]+)"


class Counts(Struct, frozen=True):
    """The numbers of tests. A test that is expected to fail, or not yet written, counts as skipped."""

    passed: int
    failed: int
    skipped: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


class TestOutcomes(Struct, frozen=True):
    """How the tests of one command ended, by name if its programs name them."""

    __test__: ClassVar[bool] = False  # otherwise pytest collects it as a test

    counts: Counts
    passed: frozenset[str] | None = None  # None: not all tests that passed are named
    failed: frozenset[str] | None = None  # None: not all failures are named
    skipped: frozenset[str] = frozenset()


class NamedTests(Struct, frozen=True):
    """The tests that an output names, with ids that do not depend on how a test ends."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]


class ProgramReport(Struct, frozen=True):
    """The report of one program. It is complete if it names every failure that the program's own summary counts."""

    failed: frozenset[str] = frozenset()
    counts: Counts | None = None
    complete: bool = True
    named: NamedTests | None = None
    final: Counts | None = None  # the counts of the last summary, if there can be several
    program: str = ""

    @property
    def believed(self) -> Counts | None:
        """Its counts, without failures that a test only printed.

        A program names the failures that it counts. An earlier summary that counts failures without naming them was
        printed by a test, or by the code under test.
        """
        if self.complete or self.counts is None or self.final is None:
            return self.counts
        return replace(self.counts, failed=self.final.failed)


def build_report(
    names: Iterable[str],
    failures: int,
    counts: Counts | None,
    *,
    complete: bool = True,
    tests: Sequence[tuple[str, TestResult]] = (),
    final: Counts | None = None,
) -> ProgramReport:
    """Builds the report of a program that names these failed tests, and counts `failures` in its summary.

    `tests` has all tests that it names, with their results.
    """
    normal = [_normalize(name) for name in names]
    failed = frozenset(normal)
    if len(failed) < failures:
        failed = frozenset(_number_repeats(normal))
    named = name_tests(tests, counts) if counts else None
    return ProgramReport(failed, counts, complete and len(failed) >= failures, named, final)


def add_up(
    names: list[str],
    summaries: list[Counts],
    *,
    complete: bool = True,
    tests: Sequence[tuple[str, TestResult]] = (),
) -> ProgramReport | None:
    """Builds one report from all runs of a program, which can run more than once in one command."""
    if not summaries:
        return None
    counts = sum(summaries[1:], summaries[0])
    return build_report(names, counts.failed, counts, complete=complete, tests=tests, final=summaries[-1])


def name_tests(tests: Sequence[tuple[str, TestResult]], counts: Counts) -> NamedTests | None:
    """Returns the tests by result; None if the number of passed ones differs from the program's own count."""
    names = list(_number_repeats([_normalize(name) for name, _ in tests]))
    by_result: dict[TestResult, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for name, (_, result) in zip(names, tests, strict=True):
        by_result[result].add(name)
    if len(by_result["passed"]) != counts.passed:
        return None
    return NamedTests(*(frozenset(by_result[result]) for result in ("passed", "failed", "skipped")))


def combine(reports: Sequence[ProgramReport]) -> TestOutcomes | None:
    """Adds up the reports of all programs in a command; None if none of them counts tests."""
    counted = [(report, counts) for report in reports if (counts := report.believed)]
    if not counted:
        return None
    counts = sum((one for _, one in counted), Counts(0, 0, 0))
    named = [report.named for report, _ in counted if report.named]
    failed = _combine_failed(reports, counts)
    skipped = frozenset[str]().union(*(one.skipped for one in named))
    passed = None
    if len(named) == len(reports):
        passed = frozenset[str]().union(*(one.passed for one in named)) - (failed or frozenset())
    return TestOutcomes(counts, passed, failed, skipped - (passed or frozenset()))


def _combine_failed(reports: Sequence[ProgramReport], counts: Counts) -> frozenset[str] | None:
    failed = frozenset[str]()
    for report in reports:
        named = report.named.failed if report.named else frozenset[str]()
        is_all = report.counts is not None and len(named) == report.counts.failed
        # Node's failures have their file in `failed`; tests that pass have none.
        failed |= named if is_all or (named and report.program == "node") else report.failed
    is_known = all(report.complete for report in reports) or not counts.failed
    return failed if is_known else None


def _normalize(name: str) -> str:
    return shorten(re.sub(_CONTROLS, "?", re.sub(_ADDRESS, "0x…", name.strip())))


def _number_repeats(names: Sequence[str]) -> Iterator[str]:
    seen = Counter[str]()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


def shorten(name: str) -> str:
    """Cuts a name that is too long for an id, and keeps it distinct from others with the same beginning."""
    if len(name) <= _LONGEST_ID:
        return name
    from hashlib import sha256  # loads OpenSSL

    return f"{name[:_LONGEST_ID]}…{sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def shorten_path(path: str) -> str:
    """Returns a file as part of an id: outside the root, only the names of the file and its folder are stable."""
    path = path.removeprefix("file://").removeprefix("./")
    return "/".join(path.split("/")[-2:]) if path.startswith("/") else path


def join_file_and_name(file: str, name: str) -> str:
    """Returns the id of a test in a file. A file that can't be loaded is a failed test with the file's name."""
    if not file or shorten_path(name) == file:
        return file or name
    return f"{file} > {name}"


def parse_counts(text: str) -> Counter[str]:
    """Returns the numbers in `3 failed, 12 passed`, by their words in the singular."""
    counts = Counter[str]()
    for number, word in re.findall(_COUNT, text):
        counts[word.removesuffix("s")] += int(number)
    return counts


def parse_number(text: str | None) -> int:
    """Returns 0 if it is not a number, or too large to be a count."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
