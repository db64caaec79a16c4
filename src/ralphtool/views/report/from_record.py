"""Builds the facts of a report from a run's record, in one pass.

Most of a record is agent output, of which a report needs only the usage: the rest is skipped without being decoded.
Every text is sanitized here.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool import settings
from ralphtool.core.amounts import format_cost, format_duration
from ralphtool.core.text import make_printable
from ralphtool.errors import RalphError
from ralphtool.judging.proof_words import WORDS
from ralphtool.judging.receipt import MOST_NAMES
from ralphtool.record import decisions, events, present, questions, runs
from ralphtool.record.events import (
    Answered,
    BlockerChecked,
    Denied,
    HandedOver,
    Notice,
    PlanEdited,
    RunEnded,
    SentBack,
    Setup,
    Steered,
)
from ralphtool.record.events import Gate as GateEvent
from ralphtool.record.events import Question as QuestionEvent
from ralphtool.record.lines import LineReader
from ralphtool.record.run_end import find_result
from ralphtool.record.run_view import RunView
from ralphtool.record.view_parts import parse_time
from ralphtool.views import receipts
from ralphtool.views.report import formatting, next_steps, wording
from ralphtool.views.report.facts import (
    Facts,
    ReportAttempt,
    ReportCheck,
    ReportDecision,
    ReportGate,
    ReportOccurrence,
    ReportQuestion,
    ReportReceipt,
    ReportStory,
    RunKnowledge,
)
from ralphtool.views.terminal.event_lines import list_gate_results
from ralphtool.views.terminal.phrases import (
    LONGEST_WHY,
    LONGEST_WORKER,
    describe_denial,
    describe_end,
    describe_red_gates,
    describe_return,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.decisions import Decisions
    from ralphtool.record.event_parts import RecordedFinding, RunLimits
    from ralphtool.record.runs import RunSummary
    from ralphtool.record.view_parts import AttemptView, GateView, Occurrence, StoryView

_ID, _TITLE = 60, 160  # characters
_TEXTS = 20  # in a list
_LIMITS_IN_WORDS = {
    "attempts": "attempts at a story",
    "max_iterations": "iterations",
    "max_time": "time in all",
    "timeout": "time of an iteration",
    "silence": "silence of an agent",
    "max_tokens": "tokens",
    "max_cost": "cost",
}
_TIMES = ("max_time", "timeout", "silence")
_BEGINNINGS = {
    "running": "Still running: ",
    "paused": "Paused: ",
    "died": "The run died; ",
    "interrupted": "The run was interrupted; ",
}


def read_facts(run: RunSummary, knowledge: RunKnowledge | None = None) -> Facts:
    """All facts in a run's record; `knowledge` is added from the history."""
    view = RunView()
    for event in map(events.decode, LineReader(run.path).new_without_prose()):
        if event:
            view.feed(event)
    is_over = run.state not in ("running", "paused")
    last = runs.find_end(run) or 0.0
    view.close(last if is_over else max(last, time.time()), is_over=is_over)
    return build_facts(run, view, knowledge or RunKnowledge())


def build_facts(run: RunSummary, view: RunView, knowledge: RunKnowledge) -> Facts:
    """The same from a view that the caller has fed and closed, and no longer needs."""
    start, tip = view.start, _build_check(view.end)
    made = decisions.read_decisions(run)
    is_changed = _update_stories(run, view, made)
    stories = _add_open_questions(run, view, tuple(_build_story(run, view, one) for one in view.stories.values()))
    state = _find_state(run, view, stories) if is_changed else run.state
    place = next_steps.find_place(run)
    return Facts(
        run=formatting.clean_line(run.id, 200),
        change=formatting.clean_line(run.change, 200) or "unknown",
        title=formatting.clean_line(start.title or run.change, 200) or "unknown",
        agent=formatting.clean_line(start.agent, _ID),
        adapter=formatting.clean_line(start.adapter, _ID),
        branch=formatting.clean_line(start.branch or "", 200),
        workspace=formatting.clean_line(start.workspace, _ID),
        is_plan=start.purpose == "plan",
        state=state,
        reason="" if is_changed and run.state in ("done", "unproven") else formatting.clean_line(run.reason, 1000),
        verdict=_describe_draft(state) if start.purpose == "plan" else _describe_state(state, stories, tip),
        began=view.began if view.began is not None else view.now,
        ended=view.now,
        stories=stories,
        waits=tuple(structs.replace(one, why=formatting.clean_line(one.why)) for one in view.waits),
        happenings=tuple(map(_build_occurrence, view.happenings)),
        limits=tuple(_list_limits(start.limits)),
        gates=_clean_lines(start.gates.commands),
        knowledge=knowledge,
        next=tuple(next_steps.list_next_steps(run, view.end, stories, made, place, is_changed=is_changed)),
        since=tuple(map(_build_decision, made.told)),
        is_finished=place == "finished",
        is_branch_gone=place != "branch",
        newer=formatting.clean_line(made.newer, 200),
        tip=tip,
        left_out=view.left_out,
        is_cut_short=_is_cut_short(run, view),
    )


def _update_stories(run: RunSummary, view: RunView, made: Decisions) -> bool:
    """To what they are since the run ended; returns whether that changed any. A later run has a record of its own."""
    is_decided = decisions.apply_decisions(view, made)
    is_last = run.state not in ("running", "paused") and bool(run.change) and not made.newer
    return (is_last and present.update_view(run, view)) or is_decided


def _is_cut_short(run: RunSummary, view: RunView) -> bool:
    """A run that an error ends has no results for its stories."""
    has_no_results = view.end is not None and not view.end.stories and bool(view.stories)
    return run.state == "died" or (run.state == "unfinished" and has_no_results)


def _clean_lines(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(formatting.clean_line, texts[:_TEXTS]))


# --- stories and attempts ---------------------------------------------------------------------------


def _build_story(run: RunSummary, view: RunView, story: StoryView) -> ReportStory:
    return ReportStory(
        id=formatting.clean_line(story.id, _ID),
        title=formatting.clean_line(story.title, _TITLE),
        state=story.state,
        optional=story.optional,
        was_done=story.was_done,
        tasks_done=story.tasks_done,
        tasks_total=story.tasks_total,
        depends_on=tuple(formatting.clean_line(one, _ID) for one in story.depends_on[:_TEXTS]),
        waits_for=tuple(formatting.clean_line(one, _ID) for one in _list_open(view, story)[:_TEXTS]),
        why=formatting.clean_line(story.why, 1000),
        commit=formatting.clean_line(story.commit, 100),
        proof=story.proof if story.state == "done" and story.proof in WORDS else "",
        proof_why=formatting.clean_line(story.proof_why, 1000) if story.state == "done" else "",
        receipt=_build_receipt(story.receipt) if story.receipt and story.state == "done" else None,
        attempts=tuple(_build_attempt(one, is_kept=bool(view.start.branch)) for one in story.attempts),
        question=_build_question(run, story),
    )


def _list_open(view: RunView, story: StoryView) -> list[str]:
    """Its dependencies that are not done."""
    needed = {id: view.stories.get(id) for id in story.depends_on}
    return [id for id, one in needed.items() if one is None or one.state != "done"]


def _build_receipt(receipt: Receipt) -> ReportReceipt:
    return ReportReceipt(
        summary=receipts.describe_receipt(receipt, formatting.clean_line),
        rows=tuple((row.label, row.text) for row in receipts.list_rows(receipt, formatting.clean_line)),
        own_tests=_clean_names(receipt.own_tests),
        own_count=receipt.own_count,
        own_unloaded=receipt.own_unloaded,
        passed_before=receipt.passed_before,
        passed_after=receipt.passed_after,
        lost=_clean_names(receipt.lost),
        removed=_clean_names(receipt.removed),
        weaker=receipts.describe_weaker(receipt, formatting.clean_line),
        commit=formatting.clean_line(receipt.commit or "", 100),
    )


def _clean_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(formatting.clean_line, names[:MOST_NAMES]))


def _build_check(end: RunEnded | None) -> ReportCheck | None:
    if end is None or end.tip is None:
        return None
    commit = formatting.clean_line(end.tip.commit or "", 100)
    return ReportCheck(end.tip.ok, commit, describe_red_gates(end.tip, formatting.clean_line))


def _build_question(run: RunSummary, story: StoryView) -> ReportQuestion | None:
    if story.question is None:
        return None
    return ReportQuestion(
        missing=formatting.clean_block(story.question.missing),
        path=next_steps.clean_command(story.question.path).removeprefix(os.path.join(make_printable(run.root), "")),
        answer=formatting.clean_block(story.answer),
        is_open=story.is_asking,
    )


def _build_attempt(one: AttemptView, *, is_kept: bool) -> ReportAttempt:
    verdict, decision = one.verdict or events.Verdict(), one.decision or events.Decision()
    summary = "" if verdict.summary == verdict.status else formatting.clean_line(verdict.summary, 1000)
    return ReportAttempt(
        story=formatting.clean_line(one.start.story, _ID),
        entry=formatting.clean_line(one.start.entry, 250),
        number=_find_number(one.start.entry) or max(1, one.start.attempt),
        task=formatting.clean_line(one.start.task or "", _ID),
        agent=formatting.clean_line(one.start.agent, _ID),
        workers=tuple(filter(None, (formatting.clean_line(name, LONGEST_WORKER) for name in one.worker_names))),
        began=one.began,
        ended=one.ended,
        status=formatting.clean_line(one.status, 20),
        summary=summary,
        reasons=_clean_lines(verdict.reasons),
        findings=tuple(map(_format_finding, verdict.findings[:_TEXTS])),
        files=_clean_lines(verdict.files),
        files_changed=len(verdict.files),
        work=one.work,
        gate_seconds=one.gate_seconds,
        gates=tuple(_build_gate(gate, gate.event) for gate in one.gates if isinstance(gate.event, GateEvent)),
        decision=ReportDecision(
            formatting.clean_line(decision.action, 20),
            formatting.clean_line(decision.reason, 1000),
            formatting.clean_block(decision.guidance),
        ),
        commit=formatting.clean_line(one.checkpoint.commit or "", 100) if one.checkpoint else "",
        is_kept=is_kept,
    )


def _find_number(entry: str) -> int:
    """The number of an attempt, from the id of its entry: it is counted across runs. 0 if the id has none."""
    last = entry.rpartition("-")[2]
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 6 else 0


def _format_finding(one: RecordedFinding) -> str:
    return " ".join(filter(None, (formatting.clean_line(text, 200) for text in (one.kind, one.path, one.detail))))


def _build_gate(gate: GateView, event: GateEvent) -> ReportGate:
    return ReportGate(
        when=formatting.clean_line(event.when, 20),
        command=formatting.clean_line(event.command),
        ok=event.ok,
        began=gate.began,
        ended=gate.ended,
        told=", ".join(list_gate_results(event, formatting.clean_line(event.tally or "", 100))),
        new=_clean_lines(event.new),
    )


# --- the rest ---------------------------------------------------------------------------------------


def _build_occurrence(one: Occurrence) -> ReportOccurrence:
    kind, text = _describe(one.event)
    story = formatting.clean_line(getattr(one.event, "story", "") or "", _ID) if kind != "setup" else ""
    return ReportOccurrence(kind, one.at, text, story)


def _describe(
    event: (
        Setup
        | Notice
        | Denied
        | PlanEdited
        | HandedOver
        | BlockerChecked
        | QuestionEvent
        | Answered
        | Steered
        | SentBack
    ),
) -> tuple[str, str]:
    line = formatting.clean_line
    match event:
        case Setup():
            return "setup", f"a setup command failed: {line(event.command)}"
        case Notice() | PlanEdited():
            return "notice", line(event.text, 1000)
        case Denied():
            return "notice", describe_denial(line(event.host, _ID), event.port, line(event.allow))
        case SentBack():
            return "sent-back", f"sent back to its agent: {describe_return(event, line)}"
        case HandedOver():
            return "hand-over", f"{line(event.from_, _ID)} hands over to {line(event.to, _ID)}: {line(event.why)}"
        case BlockerChecked():
            return "blocker", f"the blocker was checked: {line(event.found)}"
        case QuestionEvent():
            return "question", line(event.missing)
        case Answered():
            return "answer", line(event.text)
        case Steered():
            return "you", ": ".join(filter(None, [line(event.action, 20), line(event.text)]))


def _build_decision(event: Steered) -> ReportOccurrence:
    story = formatting.clean_line(event.story or "", _ID)
    text = wording.describe_decision_since(event.action, story, formatting.clean_line(event.text, 1000))
    return ReportOccurrence("you", parse_time(event.at) or 0.0, text, story)


def _list_limits(limits: RunLimits) -> Iterator[tuple[str, str]]:
    for name in filter(_LIMITS_IN_WORDS.get, settings.list_limits()):
        if value := getattr(limits, name):
            dollars = format_cost(value) if name == "max_cost" else f"{value:,.0f}"
            yield _LIMITS_IN_WORDS[name], format_duration(value) if name in _TIMES else dollars


def _find_state(run: RunSummary, view: RunView, stories: tuple[ReportStory, ...]) -> str:
    ended, tip = view.end.stories if view.end else (), view.end.tip if view.end else None
    then, now = ([(one.state, one.proof, one.optional) for one in rows] for rows in (ended, stories))
    return find_result(run.state, then, now, is_red=tip is not None and not tip.ok)


def _describe_draft(state: str) -> str:
    if state in ("running", "paused"):
        return "The change is being drafted."
    return "The change is drafted." if state == "done" else "No draft was kept."


def _describe_state(state: str, stories: tuple[ReportStory, ...], tip: ReportCheck | None) -> str:
    if not stories and state in _BEGINNINGS:
        return f"{_BEGINNINGS[state]}its record names no stories."
    result = state if state in ("done", "unproven") else "unfinished"
    claims = [(one.proof, formatting.clean_line(one.proof_why, LONGEST_WHY)) for one in stories if one.state == "done"]
    ending = describe_end(result, [one.state for one in stories], claims, tip.told if tip else "")
    return _BEGINNINGS.get(state, "") + ending


# --- open questions ---------------------------------------------------------------------------------


def _add_open_questions(run: RunSummary, view: RunView, stories: tuple[ReportStory, ...]) -> tuple[ReportStory, ...]:
    """The record of a run does not say whether its questions have been answered since."""
    unsure = {formatting.clean_line(one.id, _ID) for one in view.stories.values() if _may_wait(run, one)}
    if not unsure:
        return stories
    try:
        waiting = questions.list_open(run.root)
    except (RalphError, OSError):
        return stories  # then only what the record says
    own = {formatting.clean_line(one.story, _ID): one for one in waiting if one.change == run.change}
    others = {formatting.clean_line(one.story, _ID) for one in waiting if one.change != run.change}
    return tuple(
        _add_question(one, own.get(one.id), is_shared=one.id in others)
        if one.id in unsure and _is_waiting(one, own.get(one.id), view.now)
        else one
        for one in stories
    )


def _may_wait(run: RunSummary, story: StoryView) -> bool:
    """Includes open stories if the record has no end: an earlier run may have asked."""
    is_unsure = story.state == "open" and run.end is None and not story.is_settled
    return story.state == "waiting" or is_unsure


def _is_waiting(story: ReportStory, waiting: questions.OpenQuestion | None, now: float) -> bool:
    if story.state == "waiting" or waiting is None:
        return story.state == "waiting"
    return (parse_time(waiting.asked) or 0.0) <= now


def _add_question(story: ReportStory, waiting: questions.OpenQuestion | None, *, is_shared: bool) -> ReportStory:
    told = story.question or ReportQuestion(missing=story.why)
    if waiting is None:
        return structs.replace(story, question=structs.replace(told, is_open=False))
    question = structs.replace(
        told,
        is_open=True,
        missing=formatting.clean_block(waiting.missing) or told.missing,
        why=formatting.clean_block(waiting.why) or story.why,
        text=formatting.clean_block(waiting.text.partition("## Answer")[0], 20_000),
        answer=formatting.clean_block(waiting.answer or ""),
        change=waiting.change if is_shared else "",
    )
    return structs.replace(story, state="waiting", question=question)
