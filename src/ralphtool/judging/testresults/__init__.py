"""Which tests passed and failed, read from the output and reports of a test program.

Nothing is guessed: if the output is ambiguous (no summary, a crash, fewer names than failures), there is no result,
and the whole command counts as failed. A missing name would hide a new failure.

An id contains the file or package and the name of a test, and nothing that varies from run to run. Tests that the
output doesn't distinguish are numbered, so one more of them is a new id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# A run imports this at its start and may never read an output: the readers, with all their patterns, are imported by
# the functions that need them.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.judging.testresults.model import ProgramReport, TestOutcomes

LIMIT = 4 * 1024 * 1024  # an output that reaches this length may have lost its beginning


def find_failed_tests(output: bytes, root: str = "", written: Sequence[bytes] = ()) -> frozenset[str] | None:
    """Returns the ids of the failed tests in the output of a command that exited with a status other than 0.

    None if the ids are unknown, or if no test is to blame. Paths below `root`, the folder that the command ran in,
    become relative to it. `written` has the reports that the programs were asked to write.
    """
    from ralphtool.judging.testresults import reading, unloaded

    lines = reading.split_lines(output, root)
    reports = _read_reports(lines, root, written, cut=len(output) >= LIMIT)
    if not reports or not all(report.complete for report in reports):
        return None
    failed = frozenset[str]().union(*(report.failed for report in reports))
    if reading.is_coverage_too_low(lines):
        failed |= {unloaded.COVERAGE}
    return failed or None


def read_outcomes(output: bytes, root: str = "", written: Sequence[bytes] = ()) -> TestOutcomes | None:
    """Returns how the tests of a command ended; None if no test program is recognised in its output."""
    from ralphtool.judging.testresults import model, reading

    reports = _read_reports(reading.split_lines(output, root), root, written, cut=len(output) >= LIMIT)
    return model.combine(reports)


def _read_reports(lines: list[str], root: str, written: Sequence[bytes], *, cut: bool) -> list[ProgramReport]:
    from ralphtool.judging.testresults import reading

    printed = reading.read_reports(lines, cut=cut)
    if not written:
        return printed
    from ralphtool.judging.testresults import written as written_reports

    found = [written_reports.read_written(reading.make_paths_relative(data, root)) for data in written]
    return written_reports.merge(printed, [one for one in found if one])


def find_uncompiled(output: bytes, root: str = "") -> frozenset[str]:
    """Returns the files that a compiler or an interpreter refused because something that they use does not exist."""
    from ralphtool.judging.testresults import reading, uncompiled

    return uncompiled.find_uncompiled(reading.split_lines(output, root))


def find_failed_in_junit(data: bytes, root: str = "") -> frozenset[str] | None:
    """Returns the ids of the failed tests in a JUnit report; None if it names none, or can't be read."""
    from ralphtool.judging.testresults import junit, reading

    report = junit.read_report(reading.make_paths_relative(data, root))
    return report.failed or None if report and report.complete else None


def find_junit_paths(command: str) -> list[str]:
    """Returns the files that a shell command names as its JUnit reports, as they are written there."""
    from ralphtool.judging.testresults import junit

    return junit.find_paths(command)
