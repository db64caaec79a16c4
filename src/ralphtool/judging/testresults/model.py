"""What a test program reports, as values: how many tests there were, and the ids of those that failed."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LONGEST_ID = 400
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-fA-F]+")
_COUNT = re.compile(r"(\d{1,9}) ([a-z]+)")


class Counts(Struct, frozen=True):
    """How many tests there were. A test that is expected to fail, or still to be written, counts as skipped."""

    passed: int
    failed: int
    skipped: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


class TestOutcomes(Struct, frozen=True):
    counts: Counts
    passed: frozenset[str] | None = None
    failed: frozenset[str] | None = None


class ProgramReport(Struct, frozen=True):
    """What one program reports. It is complete when it names every failure that the program's own summary counts."""

    failed: frozenset[str] = frozenset()
    counts: Counts | None = None
    complete: bool = True


def build_report(names: Iterable[str], failures: int, counts: Counts | None, *, complete: bool = True) -> ProgramReport:
    """Builds the report of a program that names these failed tests, and counts so many failures in its summary."""
    normal = [_normalize(name) for name in names]
    failed = frozenset(normal)
    if len(failed) < failures:
        failed = frozenset(_number_repeats(normal))
    return ProgramReport(failed, counts, complete and len(failed) >= failures)


def add_up(names: list[str], summaries: list[Counts], *, complete: bool = True) -> ProgramReport | None:
    """Builds one report of all runs of a program, which can run more than once in one command."""
    if not summaries:
        return None
    counts = sum(summaries[1:], summaries[0])
    return build_report(names, counts.failed, counts, complete=complete)


def _normalize(name: str) -> str:
    return shorten(_CONTROLS.sub("?", _ADDRESS.sub("0x…", name.strip())))


def _number_repeats(names: list[str]) -> Iterator[str]:
    seen = Counter[str]()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


def shorten(name: str) -> str:
    """Cuts a name that is too long for an id, and keeps it distinct from others that begin alike."""
    if len(name) <= _LONGEST_ID:
        return name
    return f"{name[:_LONGEST_ID]}…{sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def shorten_path(path: str) -> str:
    """Returns a file as part of an id: outside of the root, only its name and its folder's are the same everywhere."""
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
    for number, word in _COUNT.findall(text):
        counts[word.removesuffix("s")] += int(number)
    return counts


def parse_number(text: str | None) -> int:
    """Returns 0 for what is no number, or no sensible one."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
