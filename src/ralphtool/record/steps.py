"""A recorded run as values: its iterations, what each of them used up, and what every decision was made of.

A record may have been cut, damaged, or written by another version: what can't be read is passed over.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from ralphtool import settings
from ralphtool.judging.recovery import Past, Policy, decide
from ralphtool.judging.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.judging.recovery import Decision

LIMITS = tuple(
    name for name in settings.list_limits() if name != "silence"
)  # no record has how long an agent was silent
_MOST = 10**15  # a number beyond it was not counted by anybody


class Spent(Struct, frozen=True):
    seconds: float = 0.0
    tokens: float = 0.0
    cost: float = 0.0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.tokens + other.tokens, self.cost + other.cost)

    def times(self, factor: float) -> Spent:
        return Spent(self.seconds * factor, self.tokens * factor, self.cost * factor)


def total(parts: Iterable[Spent]) -> Spent:
    whole = Spent()
    for part in parts:
        whole = whole.plus(part)
    return whole


class Given(Struct, frozen=True):
    """What a decision was made of."""

    verdict: Verdict
    past: Past
    policy: Policy

    def decided(self, attempts: float | None = None) -> Decision:
        """The decision, as it was or with another number of attempts."""
        policy = self.policy if attempts is None else structs.replace(self.policy, attempts=int(attempts))
        return decide(self.verdict, self.past, policy)


class Step(Struct, kw_only=True):
    """One iteration, as it was recorded."""

    change: str
    story: str
    entry: str
    attempt: int
    begun: float  # seconds after the run's beginning
    task: str | None = None
    status: str = ""  # empty: it was cut off, and nobody judged it
    summary: str = ""
    action: str = ""
    reason: str = ""
    given: Given | None = None
    open_tasks: int = 1
    has_ticked: bool = False  # the task that it was asked for
    spent: Spent = Spent()
    agent_seconds: float = 0.0
    early: float = 0.0  # the share of what it used that it told before its last word on that

    @property
    def used(self) -> int:
        """The attempts that are used up with it."""
        counts = self.status in ("failed", "blocked", "partial") and not (self.status == "partial" and self.has_ticked)
        return self.given.past.attempts if self.given else self.attempt - 1 + counts


class Run(Struct, kw_only=True):
    id: str
    change: str
    began: str
    limits: dict[str, float] = {}
    depends_on: dict[str, list[str]] = {}
    optional: list[str] = []
    steps: list[Step] = []
    ended_by: str = ""  # the limit that ended it


# --- reading what was recorded ----------------------------------------------------------------------

_Number = Annotated[float, Meta(ge=0, le=_MOST)]
_Count = Annotated[int, Meta(ge=0, le=_MOST)]


class _Story(Struct):
    id: str
    optional: bool = False
    depends_on: list[str] = []


class _RunStarted(Struct, tag_field="type", tag="run_started"):
    at: str
    run: str
    change: str
    limits: dict[str, Any] = {}
    stories: list[_Story] = []


class _Begun(Struct, tag_field="type", tag="iteration_started"):
    at: str
    story: str
    entry: str
    attempt: _Count
    task: str | None = None


class _Usage(Struct):
    kind: str
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost: _Number | None = None


class _Agent(Struct, tag_field="type", tag="agent"):
    event: _Usage


class _Judged(Struct, tag_field="type", tag="verdict"):
    entry: str
    status: Literal["completed", "failed", "blocked", "partial", "interrupted", "transient"]
    summary: str = ""
    ticked: list[str] = []
    tasks_done: _Count = 0
    tasks_total: _Count = 0
    seconds: dict[str, _Number] = {}
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost: _Number | None = None


class _Decided(Struct, tag_field="type", tag="decision"):
    entry: str
    action: str
    reason: str = ""
    given: Any = None


class _RunEnded(Struct, tag_field="type", tag="run_ended"):
    reason: str = ""


_Event = _RunStarted | _Begun | _Agent | _Judged | _Decided | _RunEnded
_DECODER: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)


def read(lines: Iterable[bytes]) -> Run | None:
    """The run that the lines of its events tell of; None if they don't tell how it began."""
    reading = _Reading()
    for line in lines:
        # Nearly all lines are of this kind, and of them only a few matter: the others are not even parsed.
        if b'"type":"agent"' in line[:100] and b'"kind":"usage"' not in line[:200]:
            continue
        try:
            reading.take(_DECODER.decode(line))
        except (ValueError, RecursionError):  # also of msgspec, and of what is not UTF-8
            continue  # of another kind, of another version, or damaged
    return reading.run


class _Reading:
    def __init__(self) -> None:
        self.run: Run | None = None
        self._told = self._last = 0.0  # of its usage, by the agent that is at work

    def take(self, event: _Event) -> None:
        if isinstance(event, _RunStarted):
            self.run = self.run or _begin(event)
        elif self.run is None:
            return
        elif isinstance(event, _Begun):
            self._told = self._last = 0.0
            self.run.steps.append(_step(self.run, event))
        elif isinstance(event, _Agent):
            used = event.event
            self._last = used.input_tokens + used.output_tokens or used.cost or 0.0
            self._told += self._last
        elif isinstance(event, _RunEnded):
            self.run.ended_by = _named(event.reason)
        elif self.run.steps and self.run.steps[-1].entry == event.entry:
            self._conclude(self.run.steps[-1], event)

    def _conclude(self, step: Step, event: _Judged | _Decided) -> None:
        if isinstance(event, _Decided):
            step.action, step.reason, step.given = event.action, event.reason, given(event.given)
            return
        step.status, step.summary = event.status, event.summary
        step.has_ticked = step.task in event.ticked
        step.agent_seconds = event.seconds.get("agent", 0.0)
        seconds = sum(event.seconds.values())
        step.spent = Spent(seconds, event.input_tokens + event.output_tokens, event.cost or 0.0)
        step.early = 1 - self._last / self._told if self._told else 0.0
        before = event.tasks_done - (0 if event.status == "partial" else len(event.ticked))
        step.open_tasks = event.tasks_total - before


def _begin(event: _RunStarted) -> Run:
    limits = {
        name: float(value)
        for name, value in event.limits.items()
        if name in LIMITS and isinstance(value, int | float) and 0 <= value <= _MOST
    }
    return Run(
        id=event.run,
        change=event.change,
        began=event.at,
        limits=limits,
        depends_on={story.id: story.depends_on for story in event.stories},
        optional=[story.id for story in event.stories if story.optional],
    )


def _step(run: Run, event: _Begun) -> Step:
    return Step(
        change=run.change,
        story=event.story,
        entry=event.entry,
        attempt=event.attempt,
        task=event.task,
        begun=_between(run.began, event.at),
    )


def _between(one: str, other: str) -> float:
    try:
        return max((datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # no moments, or one of them without its zone
        return 0.0


def _named(reason: str) -> str:
    """The limit that a run names as the reason of its end."""
    found = re.search(r"\(--([a-z-]+)\)$", reason)
    name = found[1].replace("-", "_") if found else ""
    return name if name in LIMITS else ""


def given(value: object) -> Given | None:
    try:
        return msgspec.convert(value, Given)
    except msgspec.ValidationError:
        return None


# --- records that don't say what a decision was made of ---------------------------------------------


def rebuilt(run: Run, step: Step, before: Step | None) -> Given | None:
    """As well as the rest of the record tells. Whoever uses it checks first whether it decides the same."""
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
    past = Past(
        attempts=step.used,
        last_status=known.status if known else None,
        last_failure=known.summary if known else None,
        open_tasks=step.open_tasks,
        in_chunks=step.task is not None,
        is_optional=step.story in run.optional,
        blocker_is_real=True if step.reason.startswith("the blocker is real") else None,
    )
    return Given(verdict, past, Policy(attempts))
