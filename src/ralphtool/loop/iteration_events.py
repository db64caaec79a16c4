"""The events of an iteration, built from its assignment and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.record import events
from ralphtool.record.event_parts import Durations, RecordedFinding
from ralphtool.record.steps import DecisionInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.executors import Assignment
    from ralphtool.judging.recovery import RecoveryPolicy
    from ralphtool.loop.outcome import Iteration
    from ralphtool.settings import GuardMode
    from ralphtool.specs import Story

_SHOWN_FILES = 200


def build_start(
    assignment: Assignment, story: Story, directory: str, attempts: int, cut: Sequence[str]
) -> events.IterationStarted:
    return events.IterationStarted(
        number=assignment.number,
        story=story.id,
        title=story.title,
        entry=assignment.entry,
        attempt=assignment.attempt,
        attempts=attempts,
        task=assignment.task,
        directory=directory,
        agent=assignment.agent,
        cut=tuple(cut),
        iteration=assignment.number,
    )


def build_verdict(iteration: Iteration, guard: GuardMode) -> events.Verdict:
    report, verdict, assignment = iteration.report, iteration.verdict, iteration.assignment
    return events.Verdict(
        entry=assignment.entry,
        story=iteration.story.id,
        attempt=assignment.attempt,
        task=assignment.task,
        status=verdict.status,
        summary=verdict.summary,
        reasons=verdict.reasons,
        ticked=verdict.ticked,
        tasks_done=len(report.ticked),
        tasks_total=len(iteration.story.tasks),
        files=report.paths[:_SHOWN_FILES],
        findings=tuple(RecordedFinding(kind=one.kind, path=one.path, detail=one.detail) for one in report.findings),
        guard=guard,
        ended=report.left,
        blocker_check=iteration.check.found if verdict.blocker else None,
        seconds=Durations(agent=round(report.agent_seconds, 3), gates=round(report.gate_seconds, 3)),
        input_tokens=report.usage.input_tokens,
        output_tokens=report.usage.output_tokens,
        cost=report.usage.cost or 0.0,
        iteration=assignment.number,
    )


def build_decision(iteration: Iteration, policy: RecoveryPolicy) -> events.Decision:
    decision = iteration.decision
    return events.Decision(
        entry=iteration.assignment.entry,
        story=iteration.story.id,
        action=decision.action,
        guidance=decision.guidance,
        reason=decision.reason,
        given=DecisionInput(iteration.verdict, iteration.past, policy),
        iteration=iteration.assignment.number,
    )
