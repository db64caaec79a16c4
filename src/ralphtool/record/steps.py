"""A recorded run as values: its iterations, their expense, and the inputs of every decision.

A record may be truncated, damaged, or written by another version: unreadable parts are skipped.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from ralphtool import settings, typed
from ralphtool.judging.recovery import RecoveryContext, RecoveryPolicy, decide
from ralphtool.judging.verdict import Verdict
from ralphtool.record.events import RunStarted, decode
from ralphtool.record.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.judging.recovery import RecoveryDecision
    from ralphtool.record import events
    from ralphtool.record.view_parts import AttemptView

LIMITS = tuple(
    name for name in settings.list_limits() if name != "silence"
)  # no record says how long an agent was silent


class Expense(Struct, frozen=True):
    seconds: float = 0.0
    tokens: float = 0.0
    cost: float = 0.0

    def plus(self, other: Expense) -> Expense:
        return Expense(self.seconds + other.seconds, self.tokens + other.tokens, self.cost + other.cost)

    def times(self, factor: float) -> Expense:
        return Expense(self.seconds * factor, self.tokens * factor, self.cost * factor)


def sum_expenses(parts: Iterable[Expense]) -> Expense:
    whole = Expense()
    for part in parts:
        whole = whole.plus(part)
    return whole


class DecisionInput(Struct, frozen=True):
    """The inputs of a decision."""

    verdict: Verdict
    past: RecoveryContext
    policy: RecoveryPolicy

    def decide_again(self, attempts: float | None = None) -> RecoveryDecision:
        """The decision with the same inputs, or with another number of attempts."""
        policy = self.policy if attempts is None else structs.replace(self.policy, attempts=int(attempts))
        return decide(self.verdict, self.past, policy)


class RecordedIteration(Struct, kw_only=True):
    """One recorded iteration."""

    change: str
    story: str
    entry: str
    attempt: int
    begun: float  # seconds after the start of the run
    task: str | None = None
    status: str = ""  # empty: it was cut off, and not judged
    summary: str = ""
    action: str = ""
    reason: str = ""
    given: DecisionInput | None = None
    open_tasks: int = 1
    has_ticked: bool = False  # its own task, if it is a chunk
    spent: Expense = Expense()
    agent_seconds: float = 0.0
    early: float = 0.0  # the share of its usage that it reported before its last report

    @property
    def used(self) -> int:
        """The number of attempts that are used after it."""
        counts = self.status in ("failed", "blocked", "partial") and not (self.status == "partial" and self.has_ticked)
        return self.given.past.attempts if self.given else self.attempt - 1 + counts


class RecordedRun(Struct, kw_only=True):
    id: str
    change: str
    began: str
    limits: dict[str, float] = {}
    depends_on: dict[str, list[str]] = {}
    optional: list[str] = []
    steps: list[RecordedIteration] = []
    ended_by: str = ""  # the limit that ended it


# --- reading a record -------------------------------------------------------------------------------


def read_run(lines: Iterable[bytes]) -> RecordedRun | None:
    """The run described by these lines; None if they don't contain its start."""
    view, is_begun = RunView(), False
    for event in map(decode, lines):
        is_begun = is_begun or (isinstance(event, RunStarted) and bool(event.run))
        if event and is_begun:
            view.feed(event)
    return _build_run(view) if is_begun else None


def _build_run(view: RunView) -> RecordedRun:
    start = view.start
    limits = {name: getattr(start.limits, name) for name in LIMITS}
    return RecordedRun(
        id=start.run,
        change=start.change,
        began=start.at,
        limits={name: float(value) for name, value in limits.items() if value is not None},
        depends_on={story.id: list(story.depends_on) for story in start.stories},
        optional=[story.id for story in start.stories if story.optional],
        steps=[_build_step(start, one) for one in view.attempts if one.start.at],
        ended_by=_find_limit(view.end.reason) if view.end else "",
    )


def _build_step(run: RunStarted, one: AttemptView) -> RecordedIteration:
    start = one.start
    step = RecordedIteration(
        change=run.change,
        story=start.story,
        entry=start.entry,
        attempt=start.attempt,
        task=start.task,
        begun=_seconds_between(run.at, start.at),
    )
    if one.verdict:
        _add_verdict(step, one, one.verdict)
    if one.decision:
        step.action, step.reason, step.given = one.decision.action, one.decision.reason, parse_input(one.decision.given)
    return step


def _add_verdict(step: RecordedIteration, one: AttemptView, verdict: events.Verdict) -> None:
    step.status, step.summary = verdict.status, verdict.summary
    step.has_ticked = step.task in verdict.ticked
    step.agent_seconds = verdict.seconds.agent
    seconds = verdict.seconds.agent + verdict.seconds.gates
    step.spent = Expense(seconds, verdict.input_tokens + verdict.output_tokens, verdict.cost or 0.0)
    step.early = 1 - one.last_used.amount / one.reported if one.reported else 0.0
    before = verdict.tasks_done - (0 if verdict.status == "partial" else len(verdict.ticked))
    step.open_tasks = verdict.tasks_total - before


def _seconds_between(one: str, other: str) -> float:
    try:
        return max((datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # not times, or one without a time zone
        return 0.0


def _find_limit(reason: str) -> str:
    """The limit that a run names as the reason for its end."""
    found = re.search(r"\(--([a-z-]+)\)$", reason)
    name = found[1].replace("-", "_") if found else ""
    return name if name in LIMITS else ""


def parse_input(value: object) -> DecisionInput | None:
    try:
        return typed.convert(value, DecisionInput)
    except msgspec.ValidationError:
        return None


# The beginning of the reason, now and in earlier versions; such records have no other sign.
_REAL_BLOCKER = ("ralphtool confirmed the blocker", "the blocker is real")


# --- records without the inputs of decisions --------------------------------------------------------


def rebuild_input(run: RecordedRun, step: RecordedIteration, before: RecordedIteration | None) -> DecisionInput | None:
    """Rebuilds the inputs from the rest of the record. The caller must check that they give the same decision."""
    attempts = int(run.limits.get("attempts", 0))
    if not step.status or not attempts:
        return None
    status: Any = step.status
    verdict = Verdict(
        status=status,
        summary=step.summary,
        too_big="too big" in step.reason or "ran out of time" in step.summary,
        is_broken="environment is broken" in step.reason,
    )
    known = before if before and step.attempt > 1 else None
    past = RecoveryContext(
        attempts=step.used,
        last_status=known.status if known else None,
        last_failure=known.summary if known else None,
        open_tasks=step.open_tasks,
        in_chunks=step.task is not None,
        is_optional=step.story in run.optional,
        blocker_is_real=True if step.reason.startswith(_REAL_BLOCKER) else None,
    )
    return DecisionInput(verdict, past, RecoveryPolicy(attempts))
