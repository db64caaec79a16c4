"""Finds known workarounds for a failure: a solved blocker, or a learning about the error."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ralphtool.executors import gate_run
from ralphtool.judging import recovery

if TYPE_CHECKING:
    from ralphtool.executors import Report
    from ralphtool.history import History
    from ralphtool.history.records import Entry
    from ralphtool.judging.verdict import Verdict
    from ralphtool.memory.knowledge import KnowledgeBase

_RECENT = 500  # entries that are searched for a solved blocker
_LEARNT = 30  # learnings that are searched


def find_workaround(
    history: History, knowledge: KnowledgeBase, verdict: Verdict, report: Report
) -> recovery.Workaround | None:
    told = [verdict.summary, verdict.blocker or "", gate_run.read_last_output(report.results, report.red)]
    failure = "\n".join(filter(None, told))
    found = [one for one in knowledge.search(failure, _LEARNT) if one.type == "error-workaround"]
    return recovery.find_workaround(
        failure,
        history.blockers(last=_RECENT),
        partial(_find_solution, history),
        [(one.text, one.id or "learnt in this run") for one in found],
    )


def _find_solution(history: History, blocked: Entry) -> Entry | None:
    """The entry that completed the story at which another one was blocked."""
    later = history.entries(prd_id=blocked.prd_id)
    return next((one for one in later if one.iteration > blocked.iteration and one.status == "completed"), None)
