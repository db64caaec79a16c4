"""Quick checks of a report: whether its work must be proven, and whether the network failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.judging import verdict

if TYPE_CHECKING:
    from ralphtool.executors import Assignment, Report
    from ralphtool.settings import Settings


def must_prove(report: Report, assignment: Assignment, settings: Settings) -> bool:
    """Without a claim, there is nothing to prove."""
    if report.ending == "stopped" or report.trouble or verdict.is_transient(report):
        return False
    if report.findings and settings.run.guard in ("fail", "strict"):
        return False
    claimed = verdict.parse_claim(report.end.message, assignment.token).complete
    return claimed or bool(report.ticked - report.ticked_before)


def is_network_trouble(report: Report) -> bool:
    return report.failure is not None and report.failure.trouble == "network"
