"""From the report of an iteration to its verdict: all evidence is collected in one value and judged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.judging import allowance, proof
from ralphtool.judging.verdict import Evidence, judge, parse_claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.executors import Assignment, Report
    from ralphtool.history.records import Observation
    from ralphtool.judging.proof import ProofResult
    from ralphtool.judging.verdict import Verdict
    from ralphtool.settings import Settings
    from ralphtool.specs import Story

_DISK_WAIT = 5.0  # seconds to clear the boxes that fill a disk; then the waits get longer


def judge_iteration(
    story: Story,
    assignment: Assignment,
    report: Report,
    observations: Sequence[Observation],
    settings: Settings,
    was_accused: bool,
    blind: set[str],
) -> Verdict:
    """`was_accused`: the last attempt failed because old tests fail on its code. `blind` are the gates that were green
    with broken code; those that this attempt has seen red are removed from it."""
    return judge(
        Evidence(
            ending=report.ending,
            end=report.end,
            claim=parse_claim(report.end.message, assignment.token),
            failure=report.failure,
            task=assignment.task,
            tasks=tuple(task.id for task in story.required),
            ticked_before=report.ticked_before,
            ticked=report.ticked,
            red=report.red,
            gates_ran=report.gates_ran,
            still_red=tuple(one.command for one in report.results if not one.ok),
            findings=report.findings,
            is_guarded=settings.run.guard in ("fail", "strict"),
            proof=_prove(story, report, observations, settings, was_accused, blind),
            blockers=tuple(_describe_observation(one) for one in observations if one.type == "blocker"),
            trouble=report.trouble,
            full_disk=report.full_disk,
            retry_at=time.time() + _DISK_WAIT if report.full_disk else None,
            exit_detail=report.detail,
        )
    )


def _prove(
    story: Story,
    report: Report,
    observations: Sequence[Observation],
    settings: Settings,
    was_accused: bool,
    blind: set[str],
) -> ProofResult | None:
    if report.proof is None:
        return None
    blind -= proof.list_noticing(report.proof)
    found = [_describe_observation(one) for one in observations if one.type == "finding"]
    evidence = structs.replace(
        report.proof, explanation="; ".join(found), was_accused=was_accused, blind=frozenset(blind)
    )
    patterns = settings.proof.may_change
    return proof.prove(evidence, lambda lost: allowance.find_allowance(story, lost, evidence.own_paths, patterns))


def _describe_observation(observation: Observation) -> str:
    return f"{observation.title}: {observation.description}" if observation.description else observation.title
