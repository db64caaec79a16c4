"""Wording that all formats share: commands to copy, and short sentences about stories and attempts."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from ralphtool.core.amounts import (
    format_cost,
    format_day_and_time,
    format_duration,
    format_time_of_day,
    format_tokens,
    pluralize,
)
from ralphtool.views import look
from ralphtool.views.terminal import phrases
from ralphtool.views.terminal.phrases import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.record.view_parts import AttemptView, ResourceUse
    from ralphtool.views.report.facts import Facts, ReportAttempt, ReportStory, RunKnowledge

_NAMES = 20  # of workers
_ACTIONS = {**ACTIONS, "wait": "wait", "stop": "stop"}


def build_answer_command(story: ReportStory) -> str:
    change = story.question.change if story.question else ""
    option = f"--change {shlex.quote(change)} " if change else ""
    return f'ralphtool answer {option}{shlex.quote(story.id)} "…"'


def build_accept_commands(facts: Facts, story: ReportStory) -> tuple[str, ...]:
    """The commands that accept and reject a story that is not proven; none if a later run may have changed it, or
    its branch is gone. Without git, nothing can be rejected."""
    if facts.newer or facts.is_branch_gone:
        return ()
    about = f"{shlex.quote(story.id)} --change {shlex.quote(facts.change)}"
    accept, reject = f"ralphtool accept {about}", f'ralphtool reject {about} --why "…"'
    return (accept, reject) if facts.branch else (accept,)


SINCE_TITLE = "Your decisions since it ended"
_SINCE = {
    "accept": "accepted {}",
    "reject": "rejected {}",
    "skip": "skipped {}",
    "retry": "asked to try {} again",
    "guide": "sent guidance for {}",
}


def describe_decision_since(action: str, story: str, text: str) -> str:
    """As in `you rejected story 1: it logs passwords`."""
    told = _SINCE.get(action, f"{action} {{}}").format(f"story {story}" if story else "all stories")
    return f"you {told}{text and f': {text}'}"


def describe_ending(facts: Facts) -> str:
    """Why it ended, as a sentence; empty if the record does not say, or if the stories show it."""
    if facts.state in ("done", "unproven") or facts.reason == "interrupted":
        return ""
    return f"It ended because: {facts.reason.rstrip('.')}." if facts.reason else ""


def count_attempts(attempts: Sequence[ReportAttempt | AttemptView]) -> list[str]:
    """As in `2 attempts`, `1 not counted`, `1 in progress`."""
    number = sum(one.counts for one in attempts)
    others = Counter(_name_uncounted(one) for one in attempts if not one.counts)
    told = [pluralize(number, "attempt", "attempts")] if number else []
    return told + [f"{times} {name}" for name, times in others.items()]


def _name_uncounted(attempt: ReportAttempt | AttemptView) -> str:
    return look.ATTEMPTS["running"].words if attempt.status == "running" else "not counted"


def build_explain_command(attempt: ReportAttempt) -> str:
    return f"ralphtool explain {shlex.quote(attempt.entry)}"


def build_diff_command(attempt: ReportAttempt) -> str:
    """Empty if the work was not kept."""
    is_there = attempt.is_kept and attempt.counts and attempt.entry
    return f"ralphtool diff {shlex.quote(attempt.entry)}" if is_there else ""


def build_title(facts: Facts) -> str:
    """As in `add-login: the run died; 5 of 6 stories are done`."""
    return f"{facts.title}: {facts.verdict[:1].lower()}{facts.verdict[1:]}"


def describe_time(facts: Facts) -> str:
    """As in `7 h 42 min, from Sun 1 Mar 2026, 22:00 UTC to 05:42`."""
    end = format_time_of_day(facts.ended) if facts.seconds < 86_400 else format_day_and_time(facts.ended)
    took, began = format_duration(facts.seconds), format_day_and_time(facts.began)
    return f"{took}, from {began} to {end}" if facts.is_over else f"{took}, since {began}"


def list_remarks(story: ReportStory) -> list[str]:
    """Short remarks about a story."""
    told = [f"commit {story.commit[:10]}"] if story.commit else []
    told += ["done before this run"] if story.was_done and not story.attempts else []
    told += [story.receipt.weaker] if story.receipt and story.receipt.weaker else []
    told += ["optional"] if story.optional else []
    if story.tasks_total and story.state != "done":
        told.append(f"{story.tasks_done} of {pluralize(story.tasks_total, 'task', 'tasks')}")
    if story.attempts:
        told += [*count_attempts(story.attempts), *describe_use(story.used)]
    if story.waits_for and story.state == "open":
        told.append(f"waits for {', '.join(story.waits_for)}")
    return told


def describe_use(used: ResourceUse) -> list[str]:
    told = [format_duration(used.seconds)] if used.seconds else []
    return told + ([format_cost(used.cost)] if used.cost else [])


def describe_tokens(used: ResourceUse) -> str:
    if not used.input_tokens and not used.output_tokens:
        return ""
    return f"{format_tokens(used.input_tokens)} in, {format_tokens(used.output_tokens)} out"


def name_attempt(attempt: ReportAttempt) -> str:
    task = f", task {attempt.task}" if attempt.task else ""
    is_counted = attempt.counts or attempt.status == "running"
    return f"attempt {attempt.number}{task}" if is_counted else f"{look.ATTEMPTS['other'].words}{task}"


def describe_workers(attempt: ReportAttempt) -> str:
    """As in `on build-7, build-9`; empty for work on this machine."""
    return f"on {', '.join(attempt.workers)}" if attempt.workers else ""


def describe_decision(attempt: ReportAttempt) -> str:
    """What was decided, and why."""
    action = _ACTIONS.get(attempt.decision.action, attempt.decision.action)
    return ": ".join(filter(None, (action, attempt.decision.reason)))


def name_guidance(attempt: ReportAttempt) -> str:
    return phrases.name_guidance(attempt.decision.action, attempt.status)


def list_failure_reasons(story: ReportStory) -> list[str]:
    """The reasons of the last counted verdict; without one, the story's own reason."""
    counted = [one for one in story.attempts if one.counts]
    last = counted[-1] if counted else None
    told = list(last.reasons or (last.summary,)) if last else []
    return [one for one in [*told, *(last.findings if last else ())] if one] or [
        story.why or "the record does not say why"
    ]


def describe_saved(facts: Facts) -> str:
    """The time saved by working side by side; empty if no two attempts overlapped."""
    attempts = facts.attempts
    is_side_by_side = any(one.began < before.ended for before, one in pairwise(attempts))
    work = sum(one.work.seconds + one.gate_seconds for one in attempts)
    if not is_side_by_side or work <= facts.seconds:
        return ""
    done, saved = map(format_duration, (work, work - facts.seconds))
    return f"Agents and gates worked for {done}: side by side that took about {saved} less than one by one."


def describe_all_runs(facts: Facts) -> str:
    """The totals of all runs of the change; empty if this is the only one."""
    known, own = facts.knowledge, sum(one.counts for one in facts.attempts)
    if known.entries <= own and known.runs + known.drafts < 2:
        return ""
    counted = [pluralize(known.runs, "run", "runs"), pluralize(max(known.entries, own), "attempt", "attempts")]
    counted += [pluralize(known.drafts, "draft", "drafts")] if known.drafts else []
    spent = filter(None, [format_duration(known.seconds) if known.seconds else "", format_cost(known.cost)])
    return f"Since the change began, all runs together: {', '.join([*counted, *spent])}."


def summarize_learnings(knowledge: RunKnowledge) -> str:
    helped = sum(one.helped > 0 for one in knowledge.shown)
    number = len(knowledge.learnt)
    gained = f"{pluralize(number, 'thing was', 'things were') if number else 'Nothing was'} learnt in this run"
    if not knowledge.shown:
        return f"{gained}."
    shown = pluralize(len(knowledge.shown), "learning", "learnings")
    return f"{gained}. Prompts included {shown}, {helped} of them in an attempt that completed."


def list_settings(facts: Facts) -> list[tuple[str, str]]:
    """The run's settings, as far as they are recorded."""
    rows = [("run", facts.run), ("change", facts.change), ("format", facts.adapter), ("agent", facts.agent)]
    without = "" if facts.is_plan else "none: there is no git"
    rows += [("branch", facts.branch or without), ("workspace", facts.workspace)]
    workers = dict.fromkeys(name for one in facts.attempts for name in one.workers)
    rows.append(("workers", ", ".join([*workers][:_NAMES]) + (", …" if len(workers) > _NAMES else "")))
    rows += [(f"limit: {name}", value) for name, value in facts.limits]
    return [(name, value) for name, value in rows if value]
