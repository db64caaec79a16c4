"""Checks a claimed blocker with an agent that changes nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging import blockers
from ralphtool.loop import briefing, prompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.executors import Assignment, Report
    from ralphtool.judging.blockers import BlockerCheck
    from ralphtool.loop.budget import RemainingBudget
    from ralphtool.specs import Story


class Claim(Struct, frozen=True, kw_only=True):
    """What an agent says it lacks, and what ralphtool already knows about that."""

    story: Story
    claim: str
    root: str
    known: str


def ask_agent(
    asked: Claim, assignment: Assignment, left: RemainingBudget, examine: Callable[[Assignment], Report]
) -> BlockerCheck:
    """The agent's answer, or why it has none."""
    token = os.urandom(16).hex()
    text = prompt.build_blocker(asked.story, asked.claim, token, briefing.templates_path(asked.root))
    looking = structs.replace(
        assignment, prompt=text, token=token, seconds=left.seconds, tokens=left.tokens, cost=left.cost
    )
    report = examine(looking)
    found = blockers.parse_answer(report.end.message, token) if report.end.ok else None
    why = f"{asked.known}, and an agent could not tell: {_explain_no_answer(report)}"
    return found or blockers.BlockerCheck(None, why)


def _explain_no_answer(report: Report) -> str:
    if report.end.ok:
        return "it ended without an answer"
    return report.failure.text if report.failure else report.end.reason or report.ending
