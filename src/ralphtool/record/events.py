"""The events of a run, one type for each. Runs write them, views read them, and docs/events.md is generated from them.

The docstring under a class and under a field is its documentation. Nearly every field has a default, because an earlier
version may have written the record, and numbers are bounded, because a record is not trusted.

One file of over 500 lines: it is one list, and mostly documentation.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import UNSET, Struct, structs

from ralphtool import agents, typed
from ralphtool.judging.receipt import Receipt
from ralphtool.record.event_parts import (
    Count,
    Durations,
    LastCheck,
    NextStep,
    Number,
    RecordedFinding,
    RunGates,
    RunLimits,
    StoryAfter,
    StoryBefore,
    Totals,
    Whole,
)
from ralphtool.record.fitting import fit
from ralphtool.record.lines import parse_fields

__all__ = [
    "Agent",
    "Answered",
    "BlockerChecked",
    "Checkpoint",
    "Decision",
    "Denied",
    "Event",
    "Gate",
    "GateStarted",
    "HandedOver",
    "IterationStarted",
    "Merged",
    "Merging",
    "Notice",
    "Paused",
    "PlanEdited",
    "Proof",
    "Question",
    "Queued",
    "Reopened",
    "Resumed",
    "RunEnded",
    "RunStarted",
    "SentBack",
    "Setup",
    "Steered",
    "Ticked",
    "Verdict",
    "Waiting",
    "WorkerJoined",
    "WorkspaceChosen",
    "decode",
]

AgentEvent = (
    agents.Output
    | agents.Message
    | agents.Tool
    | agents.Result
    | agents.Usage
    | agents.Quota
    | agents.Failure
    | agents.End
)


def is_activity(said: AgentEvent) -> bool:
    """Whether to show it as the agent's current activity."""
    if isinstance(said, agents.Output):
        return bool(said.text.strip())
    return not isinstance(said, agents.Usage | agents.Quota | agents.Result)


class _BaseEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    at: str = ""


class RunStarted(_BaseEvent, frozen=True, kw_only=True, tag="run_started"):
    """The first event."""

    run: str = ""
    """the run's id, which is also the name of its folder"""
    change: str = ""
    """the change"""
    title: str = ""
    """its title; empty if the name says the same"""
    purpose: str = ""
    """`plan` if an agent drafts the change (`ralphtool plan`); empty for a run"""
    agent: str = ""
    """the first agent"""
    agent_options: str = ""
    """the options of `ralphtool run` that use the same agent again; empty if the settings name it"""
    adapter: str = ""
    """the format of the spec"""
    workspace: str = ""
    """`box`, `worktree`, `here` or `workers`: the first choice; the event `workspace` has the final one"""
    branch: str | None = None
    """the branch of the checkpoints; null without git"""
    pid: Whole | None = None
    """the process id of the run"""
    stories: tuple[StoryBefore, ...] = ()
    """the stories"""
    limits: RunLimits = RunLimits()
    """the limits of the run; times in seconds; 0 is no limit"""
    gates: RunGates = RunGates()
    """the gates of the run"""


class WorkspaceChosen(_BaseEvent, frozen=True, kw_only=True, tag="workspace"):
    """The place where the run works was chosen. Before this event, gates may have been tried elsewhere."""

    kind: str = ""
    """`box`, `worktree`, `here` or `workers`"""
    why: tuple[str, ...] = ()
    """why no better one was used"""
    help: tuple[str, ...] = ()
    """what would help"""


class IterationStarted(_BaseEvent, frozen=True, kw_only=True, tag="iteration_started"):
    """An agent starts on a story."""

    number: Count = 0
    """the same as `iteration`"""
    story: str = ""
    """the story's id"""
    title: str = ""
    """its title"""
    entry: str = ""
    """the id that the entry in progress.json will have"""
    attempt: Count = 0
    """the number of the attempt at this story"""
    attempts: Count = 0
    """the maximum number of attempts"""
    task: str | None = None
    """the id of the only task to do; null for the whole story"""
    directory: str = ""
    """the folder of the prompt and the transcript"""
    agent: str = ""
    """the agent"""
    cut: tuple[str, ...] = ()
    """the parts of the prompt that were shortened to fit"""
    iteration: Count = 0
    """1, 2, 3 in this run; the name of its folder begins with it"""


class Setup(_BaseEvent, frozen=True, kw_only=True, tag="setup"):
    """A command of `setup` has ended."""

    command: str = ""
    """the command"""
    ok: bool = False
    """whether it succeeded"""
    exit_code: Whole | None = None
    """its exit code; negative for a signal"""
    seconds: Number = 0.0
    """how long it took"""
    log: str = ""
    """the file with its output"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    story: str = ""
    """the story's id"""


class GateStarted(_BaseEvent, frozen=True, kw_only=True, tag="gate_started"):
    """A gate has started."""

    when: str = ""
    """`before` the agent's work, `before-again` (the same, because it was red in a box or a worktree and not in the
    user's own folder), `after` it, `after-again` (the same, to leave out flaky tests, or because a gate changed files
    of the work), `replay` (the tests as they were, on the new code), `replay-again` (the same, because a test failed),
    `own-tests` (the new tests, without the work), `own-tests-again` (the same, to leave out flaky tests), `guarded`
    (tests that earlier stories changed, as they were before), `guarded-before` and `guarded-again` (the same without
    the work, and once more, because a test failed), `build` (again, for the tests that follow), `tip` (at the end of
    the run), `outside` (in the user's own folder), `same-files` (with the user's uncommitted files), `blind` (on source
    that was broken on purpose, to see whether the gate notices)"""
    command: str = ""
    """the command"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    story: str = ""
    """the story's id"""


class Gate(_BaseEvent, frozen=True, kw_only=True, tag="gate"):
    """A gate has ended."""

    when: str = ""
    """the purpose, as in `gate_started`"""
    new: tuple[str, ...] = ()
    """the failed tests that did not fail before"""
    command: str = ""
    """the command"""
    ok: bool = False
    """whether it is green"""
    exit_code: Whole | None = None
    """its exit code; negative for a signal"""
    why: str = ""
    """why ralphtool ended it, as in `wall-clock` or `stopped`; empty if it ended by itself"""
    seconds: Number = 0.0
    """how long it took"""
    failed: tuple[str, ...] = ()
    """the failed tests, if their names are known; at most 100"""
    tally: str | None = None
    """the test runner's own count; null if none was found"""
    log: str = ""
    """the file with its output"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    story: str = ""
    """the story's id"""


class Agent(_BaseEvent, frozen=True, kw_only=True, tag="agent"):
    """The agent emitted something."""

    event: AgentEvent  # first: a reader that looks for usage reads only the beginning of a line
    """the agent's event: `kind`, and the fields of that kind. Null fields are left out, and long text is cut: the
    transcript has all of it"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    story: str = ""
    """the story's id"""


class Ticked(_BaseEvent, frozen=True, kw_only=True, tag="ticked"):
    """A running agent has ticked or unticked tasks of its story. Only the verdict says whether the ticks count."""

    story: str = ""
    """the story's id"""
    ticked: tuple[str, ...] = ()
    """the ids of all ticked tasks of the story"""
    tasks_done: Count = 0
    """the number of ticked tasks"""
    tasks_total: Count = 0
    """how many tasks the story has"""
    iteration: Count = 0
    """the iteration that it belongs to"""


class BlockerChecked(_BaseEvent, frozen=True, kw_only=True, tag="blocker_checked"):
    """With the setting `check_blockers`, an agent in its read-only mode has checked a reported blocker. This event
    comes before the verdict."""

    entry: str = ""
    """the id that the entry in progress.json will have"""
    story: str = ""
    """the story's id"""
    real: bool | None = None
    """whether the blocker is real; null if the agent could not decide"""
    found: str = ""
    """what was found, as text"""
    iteration: Count = 0
    """the iteration that it belongs to"""


class Verdict(_BaseEvent, frozen=True, kw_only=True, tag="verdict"):
    """How an iteration ended."""

    entry: str = ""
    """the id of its entry in progress.json"""
    story: str = ""
    """the story's id"""
    attempt: Count = 0
    """the number of the attempt"""
    task: str | None = None
    """the id of the only task to do; null for the whole story"""
    status: str = ""
    """`completed`, `failed`, `blocked`, `partial`; or `interrupted`, `transient`, which are not counted as attempts and
    have no entry"""
    summary: str = ""
    """what was done, in one sentence"""
    reasons: tuple[str, ...] = ()
    """why it is not completed"""
    ticked: tuple[str, ...] = ()
    """the ids of the tasks that were newly ticked"""
    tasks_done: Count = 0
    """how many tasks of the story are ticked now"""
    tasks_total: Count = 0
    """how many it has"""
    files: tuple[str, ...] = ()
    """the changed files; at most 200"""
    findings: tuple[RecordedFinding, ...] = ()
    """suspicions of cheating in the diff"""
    guard: str = ""
    """the setting `guard`: `off`, `warn`, `fail`, `strict`"""
    ended: tuple[str, ...] = ()
    """processes that the agent left behind, and that were stopped"""
    blocker_check: str | None = None
    """the result of checking a reported blocker; null if none was reported"""
    seconds: Durations = Durations()
    """how long it took"""
    input_tokens: Count = 0
    """input tokens, if the agent reported them"""
    output_tokens: Count = 0
    """output tokens"""
    cost: Number | None = None
    """dollars: as the agent reported them, else by `[prices]`; null in old records if no agent ran"""
    iteration: Count = 0
    """the iteration that it belongs to"""


class Decision(_BaseEvent, frozen=True, kw_only=True, tag="decision"):
    """What happens next, and why."""

    entry: str = ""
    """the id of the entry that led to it"""
    story: str = ""
    """the story's id"""
    action: str = ""
    """`next`, `retry`, `fix-state`, `break-chunks`, `skip`, `manual`, `wait`, `stop`"""
    guidance: str = ""
    """guidance for the next attempt"""
    reason: str = ""
    """why"""
    given: Any = None
    """its inputs: `verdict`, `past`, `policy`. The same inputs always give the same decision:
    [backtest.md](backtest.md)"""
    iteration: Count = 0
    """the iteration that it belongs to"""


class Checkpoint(_BaseEvent, frozen=True, kw_only=True, tag="checkpoint"):
    """A story is done and committed."""

    story: str = ""
    """the story's id"""
    commit: str | None = None
    """the commit"""
    subject: str = ""
    """the first line of its message"""
    proof: str = ""
    """`proven`, `held`, `unproven` or `accepted`; empty in old records"""
    iteration: Count = 0
    """the iteration that it belongs to; 0 if it belongs to an earlier, interrupted run"""


class WorkerJoined(_BaseEvent, frozen=True, kw_only=True, tag="worker"):
    """A worker on another machine has started an order: an iteration, or the gates of one."""

    worker: str = ""
    """its name"""
    story: str = ""
    """the story's id; empty for the last check of a run"""
    iteration: Count = 0
    """the iteration that it belongs to; 0 for the last check of a run"""


class Queued(_BaseEvent, frozen=True, kw_only=True, tag="queued"):
    """With stories side by side: the work of a story waits to be merged and proven."""

    story: str = ""
    """the story's id"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    waiting: Count = 0
    """the number of stories before it in the queue"""


class Merging(_BaseEvent, frozen=True, kw_only=True, tag="merging"):
    """The work of a story is merged with the stories that were done since it started, and its proof runs."""

    story: str = ""
    """the story's id"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    upon: str = ""
    """the commit that it is merged with"""
    others: tuple[str, ...] = ()
    """the stories that were done since it started"""


class Merged(_BaseEvent, frozen=True, kw_only=True, tag="merged"):
    """The merged work of a story is proven and committed: the commit has exactly the tree that was proven."""

    story: str = ""
    """the story's id"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    commit: str | None = None
    """the commit"""


class SentBack(_BaseEvent, frozen=True, kw_only=True, tag="sent_back"):
    """The work of a story conflicts with that of other stories: it goes back to its own agent."""

    story: str = ""
    """the story's id"""
    iteration: Count = 0
    """the iteration that it belongs to"""
    why: str = ""
    """`conflict` or `red-together`"""
    others: tuple[str, ...] = ()
    """the stories that it conflicts with"""
    files: tuple[str, ...] = ()
    """the files in conflict"""
    tests: tuple[str, ...] = ()
    """the gates and tests that are red"""
    seconds: Durations = Durations()
    """how long its parts took"""


class Proof(_BaseEvent, frozen=True, kw_only=True, tag="proof"):
    """The proof of a story that is done."""

    story: str = ""
    """the story's id"""
    entry: str = ""
    """the id of its entry in progress.json"""
    receipt: Receipt = Receipt()
    """the receipt"""
    iteration: Count = 0
    """the iteration that it belongs to; 0 for one that a person accepted"""


class Reopened(_BaseEvent, frozen=True, kw_only=True, tag="reopened"):
    """A done story is open again, because a person rejected it or a story that it builds on. Its work is reverted."""

    story: str = ""
    """the story's id"""
    why: str = ""
    """the person's reason, or the story that it builds on"""
    by: str = ""
    """who rejected it"""
    commit: str | None = None
    """the commit that reverts the work"""


class PlanEdited(_BaseEvent, frozen=True, kw_only=True, tag="plan_edited"):
    """The user edited the plan: the edits were merged into the plan on the branch."""

    text: str = ""
    """what was edited, in one sentence"""
    stories: tuple[StoryBefore, ...] = ()
    """the stories after the edit"""
    renumbered: tuple[tuple[str, str], ...] = ()
    """the old and new ids of stories whose id changed"""
    commit: str | None = None
    """the commit with the edited plan"""


class Question(_BaseEvent, frozen=True, kw_only=True, tag="question"):
    """A story needs a person's answer."""

    story: str = ""
    """the story's id"""
    prd_id: str = ""
    """its id in progress.json"""
    path: str = ""
    """the file with the question; the answer goes there too"""
    missing: str = ""
    """what is missing, or what happened"""
    iteration: Count = 0
    """the iteration that it belongs to; 0 if it belongs to an earlier, interrupted run"""


class Notice(_BaseEvent, frozen=True, kw_only=True, tag="notice"):
    """A message for the user."""

    text: str = ""
    """the message"""


class Denied(_BaseEvent, frozen=True, kw_only=True, tag="denied"):
    """A program in a box tried to reach a host or port that `[sandbox]` does not allow. Written once for each host
    and port of a run."""

    host: str = ""
    """the host name or address that was requested"""
    port: Count = 0
    """the port"""
    allow: str = ""
    """the setting that would allow it"""
    iteration: Count = 0
    """the last iteration that had started; 0 if there was none"""
    story: str = ""
    """the story's id"""


class HandedOver(_BaseEvent, frozen=True, kw_only=True, tag="handed_over", rename={"from_": "from"}):
    """Another agent continues: the previous one must pause, or one that comes earlier in `agents` can work again."""

    from_: str = ""
    """the previous agent"""
    to: str = ""
    """the next agent"""
    why: str = ""
    """why the previous agent can't continue; or `it can continue`"""


class Waiting(_BaseEvent, frozen=True, kw_only=True, tag="waiting"):
    """The run waits: every agent must pause, or all remaining work needs your answer (`wait_for_answers`). An
    interrupt, a limit of the run, a steering command or an answer ends the wait early."""

    seconds: Number = 0.0
    """how long"""
    until: str | float = ""
    """until when: RFC 3339, UTC; in old records seconds since the epoch"""
    why: str = ""
    """the reason"""


class Steered(_BaseEvent, frozen=True, kw_only=True, tag="steered"):
    """A person sent a steering command to the run, from any terminal: `ralphtool pause`, `resume`, `stop`, `guide`,
    `retry`, `skip`, `accept`, `reject`. The run applies it as soon as the current iteration allows."""

    action: str = ""
    """`pause`, `resume`, `stop`, `stop-after` (the iteration), `guide`, `forget` (earlier guidance), `retry`, `skip`,
    `accept`, `reject`"""
    story: str | None = None
    """the story that it is about; null for all"""
    text: str = ""
    """the guidance or the reason; may be empty"""
    by: str = ""
    """the person's name, for `accept` and `reject`"""
    via: str = ""
    """`web` if it came from the web page; empty for a command"""


class Answered(_BaseEvent, frozen=True, kw_only=True, tag="answered"):
    """An answer to a question was found. The story resumes with it."""

    story: str = ""
    """the story's id"""
    prd_id: str = ""
    """its id in progress.json"""
    text: str = ""
    """the answer"""
    via: str = ""
    """`web` if it came from the web page; empty for a command or an edited file"""


class Paused(_BaseEvent, frozen=True, kw_only=True, tag="paused"):
    """No new iteration starts until a person resumes the run."""

    why: str = ""
    """the reason, and how to resume"""


class Resumed(_BaseEvent, frozen=True, kw_only=True, tag="resumed"):
    """The run continues. This event has no fields."""


class RunEnded(_BaseEvent, frozen=True, kw_only=True, tag="run_ended"):
    """The last event. A run that was killed has none."""

    result: str = ""
    """`done`; `unproven` if every story is done, but one of them is not proven or the last check is red; `unfinished`;
    `interrupted`"""
    reason: str = ""
    """why it ended"""
    stories: tuple[StoryAfter, ...] = ()
    """the state of each story"""
    tip: LastCheck | None = None
    """the gates on the branch's tip; null if they were not run, and in old records"""
    spent: Totals = Totals()
    """what the run spent"""
    next: tuple[NextStep, ...] = ()
    """next steps for you"""


Event = (
    RunStarted
    | WorkspaceChosen
    | IterationStarted
    | Setup
    | GateStarted
    | Gate
    | Agent
    | Ticked
    | BlockerChecked
    | Verdict
    | Decision
    | Checkpoint
    | WorkerJoined
    | Queued
    | Merging
    | Merged
    | SentBack
    | Proof
    | Reopened
    | PlanEdited
    | Question
    | Notice
    | Denied
    | HandedOver
    | Waiting
    | Steered
    | Answered
    | Paused
    | Resumed
    | RunEnded
)


# --- writing ----------------------------------------------------------------------------------------


def encode_fields(event: Event, at: str) -> dict[str, Any]:
    """An event as it is written: `at` and `type` come first, so that readers find the type without parsing a line."""
    names = zip(event.__struct_fields__, event.__struct_encode_fields__, strict=True)
    fields = {name: getattr(event, field) for field, name in names if field != "at"}
    if isinstance(event, Agent):
        fields["event"] = _drop_nulls(event.event)
    return {"at": at, "type": event.__struct_config__.tag, **fields}


def _drop_nulls(said: AgentEvent) -> dict[str, Any]:
    fields = {name: value for name, value in structs.asdict(said).items() if value is not None}
    return {"kind": said.__struct_config__.tag, **fields}


# --- reading ----------------------------------------------------------------------------------------


def decode(line: bytes) -> Event | None:
    """The event in a line; None if it is not an event, or of a type that this version does not know.

    A field that does not fit is treated as absent: an agent may report absurd values, and the rest is still valid.
    """
    try:
        return _build_decoder().decode(line)
    except (ValueError, RecursionError):  # msgspec's errors and those of invalid UTF-8 are ValueErrors
        fields = parse_fields(line)
        return None if fields is None else decode_fields(fields)


@functools.cache
def _build_decoder() -> msgspec.json.Decoder[Event]:
    return typed.build_decoder(Event)


def decode_fields(fields: dict[str, Any]) -> Event | None:
    """The event with these fields, as far as they fit."""
    try:
        fitted = fit(Event, fields)
    except RecursionError:
        return None
    return None if fitted is UNSET else fitted
