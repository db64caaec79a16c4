"""Makes the facts of a report from a run's record: in one pass, whatever the length.

What agents emitted is most of a record and nothing of a report, but for what they used: the rest is passed over without
being decoded. Every text is made fit to be shown here.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool import settings
from ralphtool.core.text import printable
from ralphtool.errors import RalphError
from ralphtool.record import events, questions
from ralphtool.record.events import Answered, BlockerChecked, HandedOver, Notice, RunEnded, Setup, Steered
from ralphtool.record.events import Gate as GateEvent
from ralphtool.record.events import Question as QuestionEvent
from ralphtool.record.lines import LineReader
from ralphtool.record.run_view import RunView, seconds_of
from ralphtool.views.report import formatting
from ralphtool.views.report.facts import (
    Attempt,
    Decision,
    Facts,
    Gate,
    Happening,
    Knowledge,
    Question,
    Step,
    Story,
)
from ralphtool.views.terminal import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.record.event_parts import GuardFinding, RunLimits
    from ralphtool.record.run_view import AttemptView, GateView, Occurrence, StoryView
    from ralphtool.record.runs import Run

_ID, _TITLE = 60, 160  # characters
_TEXTS = 20  # of a list
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
    "died": "It died on the way: ",
    "interrupted": "Interrupted: ",
}


def read(run: Run, knowledge: Knowledge | None = None) -> Facts:
    """All that a run's record tells; `knowledge` is what the history adds to it."""
    view = RunView()
    for event in map(events.decode, LineReader(run.path).new_without_prose()):
        if event:
            view.feed(event)
    view.close(seconds_of(run.last) or 0.0, is_over=run.state not in ("running", "paused"))
    return _facts(run, view, knowledge or Knowledge())


def _facts(run: Run, view: RunView, knowledge: Knowledge) -> Facts:
    start = view.start
    stories = _with_questions(run, view, tuple(_story(run, view, one) for one in view.stories.values()))
    return Facts(
        run=formatting.line(run.id, 200),
        change=formatting.line(run.change, 200) or "unknown",
        agent=formatting.line(start.agent, _ID),
        adapter=formatting.line(start.adapter, _ID),
        branch=formatting.line(start.branch or "", 200),
        workspace=formatting.line(start.workspace, _ID),
        state=run.state,
        reason=formatting.line(run.reason, 1000),
        verdict=_verdict(run.state, stories),
        began=view.began if view.began is not None else view.now,
        ended=view.now,
        stories=stories,
        waits=tuple(structs.replace(one, why=formatting.line(one.why)) for one in view.waits),
        happenings=tuple(map(_happening, view.happenings)),
        limits=tuple(_limits(start.limits)),
        gates=_lines(start.gates.commands),
        knowledge=knowledge,
        next=tuple(_next(run, view.end)),
        left_out=view.left_out,
    )


def _lines(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(formatting.line, texts[:_TEXTS]))


def _command(text: str) -> str:
    """Blanks and all: people copy it."""
    return printable(text[:2000])


# --- stories and attempts ---------------------------------------------------------------------------


def _story(run: Run, view: RunView, story: StoryView) -> Story:
    return Story(
        id=formatting.line(story.id, _ID),
        title=formatting.line(story.title, _TITLE),
        state=story.state,
        optional=story.optional,
        was_done=story.was_done,
        tasks_done=story.tasks_done,
        tasks_total=story.tasks_total,
        depends_on=tuple(formatting.line(one, _ID) for one in story.depends_on[:_TEXTS]),
        why=formatting.line(story.why, 1000),
        commit=formatting.line(story.commit, 100),
        attempts=tuple(_attempt(one, is_kept=bool(view.start.branch)) for one in story.attempts),
        question=_question(run, story),
    )


def _question(run: Run, story: StoryView) -> Question | None:
    if story.question is None:
        return None
    return Question(
        missing=formatting.block(story.question.missing),
        path=_command(story.question.path).removeprefix(os.path.join(printable(run.root), "")),
        answer=formatting.block(story.answer),
        is_open=story.is_asking,
    )


def _attempt(one: AttemptView, *, is_kept: bool) -> Attempt:
    verdict, decision = one.verdict or events.Verdict(), one.decision or events.Decision()
    summary = "" if verdict.summary == verdict.status else formatting.line(verdict.summary, 1000)
    return Attempt(
        story=formatting.line(one.start.story, _ID),
        entry=formatting.line(one.start.entry, 250),
        number=max(1, one.start.attempt),
        task=formatting.line(one.start.task or "", _ID),
        agent=formatting.line(one.start.agent, _ID),
        began=one.began,
        ended=one.ended,
        status=formatting.line(one.status, 20),
        summary=summary,
        reasons=_lines(verdict.reasons),
        findings=tuple(map(_finding, verdict.findings[:_TEXTS])),
        files=_lines(verdict.files),
        files_changed=len(verdict.files),
        work=one.work,
        gate_seconds=one.gate_seconds,
        gates=tuple(_gate(gate, gate.event) for gate in one.gates if isinstance(gate.event, GateEvent)),
        decision=Decision(
            formatting.line(decision.action, 20),
            formatting.line(decision.reason, 1000),
            formatting.block(decision.guidance),
        ),
        commit=formatting.line(one.checkpoint.commit or "", 100) if one.checkpoint else "",
        is_kept=is_kept,
    )


def _finding(one: GuardFinding) -> str:
    return " ".join(filter(None, (formatting.line(text, 200) for text in (one.kind, one.path, one.detail))))


def _gate(gate: GateView, event: GateEvent) -> Gate:
    return Gate(
        when=formatting.line(event.when, 10),
        command=formatting.line(event.command),
        ok=event.ok,
        began=gate.began,
        ended=gate.ended,
        told=", ".join(summary.found_by(event, formatting.line(event.tally or "", 100))),
        new=_lines(event.new),
    )


# --- the rest ---------------------------------------------------------------------------------------


def _happening(one: Occurrence) -> Happening:
    kind, text = _describe(one.event)
    story = formatting.line(getattr(one.event, "story", "") or "", _ID) if kind != "setup" else ""
    return Happening(kind, one.at, text, story)


def _describe(
    event: Setup | Notice | HandedOver | BlockerChecked | QuestionEvent | Answered | Steered,
) -> tuple[str, str]:
    line = formatting.line
    match event:
        case Setup():
            return "setup", f"a setup command failed: {line(event.command)}"
        case Notice():
            return "notice", line(event.text, 1000)
        case HandedOver():
            return "hand-over", f"{line(event.from_, _ID)} hands over to {line(event.to, _ID)}: {line(event.why)}"
        case BlockerChecked():
            return "blocker", f"the blocker was looked into: {line(event.found)}"
        case QuestionEvent():
            return "question", line(event.missing)
        case Answered():
            return "answer", line(event.text)
        case Steered():
            return "you", ": ".join(filter(None, [line(event.action, 20), line(event.text)]))


def _limits(limits: RunLimits) -> Iterator[tuple[str, str]]:
    for name in filter(_LIMITS_IN_WORDS.get, settings.list_limits()):
        if value := getattr(limits, name):
            dollars = formatting.cost(value) if name == "max_cost" else f"{value:,.0f}"
            yield _LIMITS_IN_WORDS[name], formatting.duration(value) if name in _TIMES else dollars


def _verdict(state: str, stories: tuple[Story, ...]) -> str:
    result = "done" if state == "done" else "unfinished"
    return _BEGINNINGS.get(state, "") + summary.describe_end(result, [one.state for one in stories])


def _next(run: Run, end: RunEnded | None) -> Iterator[Step]:
    steps = end.next[:_TEXTS] if end else ()
    yield from (Step(formatting.line(one.say), _command(one.run or "")) for one in steps)
    change = f" {run.change}" if run.change else ""
    if run.state == "running":
        yield Step("watch it", f"ralphtool watch {shlex.quote(formatting.line(run.id, 200))}")
    elif run.state == "paused":
        yield Step("let it go on", f"ralphtool resume{change}")
    elif run.state == "died" or (not steps and run.state != "done"):
        yield Step("go on where it was", f"ralphtool run{change}")


# --- what waits -------------------------------------------------------------------------------------


def _with_questions(run: Run, view: RunView, stories: tuple[Story, ...]) -> tuple[Story, ...]:
    """Whether a question still waits is not in the record of the run that asked it."""
    unsure = {formatting.line(one.id, _ID) for one in view.stories.values() if _may_wait(run, one)}
    if not unsure:
        return stories
    try:
        waiting = questions.waiting(run.root)
    except (RalphError, OSError):
        return stories  # the record tells what was asked, and that has to do
    own = {formatting.line(one.story, _ID): one for one in waiting if one.change == run.change}
    others = {formatting.line(one.story, _ID) for one in waiting if one.change != run.change}
    return tuple(
        _asked(one, own.get(one.id), is_shared=one.id in others)
        if one.id in unsure and _waits(one, own.get(one.id), view.now)
        else one
        for one in stories
    )


def _may_wait(run: Run, story: StoryView) -> bool:
    """Also one that is open, if the run did not tell its end: an earlier run may have asked."""
    is_unsure = story.state == "open" and run.end is None and not story.is_settled
    return story.state == "waiting" or is_unsure


def _waits(story: Story, waiting: questions.Waiting | None, now: float) -> bool:
    if story.state == "waiting" or waiting is None:
        return story.state == "waiting"
    return (seconds_of(waiting.asked) or 0.0) <= now


def _asked(story: Story, waiting: questions.Waiting | None, *, is_shared: bool) -> Story:
    told = story.question or Question(missing=story.why)
    if waiting is None:
        return structs.replace(story, question=structs.replace(told, is_open=False))
    question = structs.replace(
        told,
        is_open=True,
        missing=formatting.block(waiting.missing) or told.missing,
        why=formatting.block(waiting.why) or story.why,
        text=formatting.block(waiting.text.partition("## Answer")[0], 20_000),
        answer=formatting.block(waiting.answer or ""),
        change=waiting.change if is_shared else "",
    )
    return structs.replace(story, state="waiting", question=question)
