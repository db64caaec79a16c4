"""Reads a run's events into facts: from the first to the last that is whole, in one pass, whatever the length.

What agents emitted is most of a record and nothing of a report, but for what they used: the rest is passed over without
being decoded. Of everything else there is a most that is kept, so that no record needs more memory than a report does.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from ralphtool import settings
from ralphtool.core import files
from ralphtool.core.text import printable
from ralphtool.errors import RalphError
from ralphtool.record import questions, runs
from ralphtool.views.report import formatting
from ralphtool.views.report.facts import (
    STATES,
    Attempt,
    Decision,
    Facts,
    Gate,
    Happening,
    Knowledge,
    Question,
    Step,
    Story,
    Used,
    Wait,
)
from ralphtool.views.terminal import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.record.runs import Run
    from ralphtool.views.report.facts import State

_BLOCK = 1 << 20
_STORIES, _ATTEMPTS, _GATES, _HAPPENINGS, _WAITS = 1000, 2000, 60, 300, 1000  # that are kept, at the most
_TEXTS = 20  # of a list
_ID, _TITLE = 60, 160  # characters
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


class Told(summary.Fields):
    """The fields of an event, whose texts are fit for every format."""

    def line(self, name: str, longest: int = formatting.LONGEST) -> str:
        return formatting.line(self.raw(name), longest)

    def block(self, name: str) -> str:
        return formatting.block(self.raw(name))

    def command(self, name: str) -> str:
        """Blanks and all: people copy it."""
        return printable(self.raw(name)[:2000])

    def lines(self, name: str) -> tuple[str, ...]:
        return tuple(formatting.line(one) for one in self._list(name)[:_TEXTS] if isinstance(one, str))

    def parts(self, name: str, most: int = _TEXTS) -> list[Told]:
        return [Told(one) for one in self._list(name)[:most] if isinstance(one, dict)]

    def part(self, name: str) -> Told:
        return Told(self._fields.get(name))


class _Tale(Struct):
    """A story, as far as the events have told it."""

    id: str
    title: str = ""
    state: State | None = None
    optional: bool = False
    was_done: bool = False
    tasks: tuple[int, int] = (0, 0)
    depends_on: tuple[str, ...] = ()
    why: str = ""
    commit: str = ""
    attempts: list[Attempt] = []
    question: Question | None = None
    is_settled: bool = False  # by what a person said since it was last worked on, whatever became of that work

    def becomes(self, state: State | None, why: str = "") -> None:
        if not self.is_settled:
            self.state, self.why = state, why

    def settle(self, state: State | None, why: str) -> None:
        self.state, self.why, self.is_settled = state, why, True
        if self.question:
            self.question = structs.replace(self.question, is_open=False)


def read(run: Run, knowledge: Knowledge | None = None) -> Facts:
    """All that a run's record tells; `knowledge` is what the history adds to it."""
    record = Record(run)
    for event in _events(run.path):
        record.take(event)
    record.end()
    return record.facts(knowledge or Knowledge())


def _events(path: str) -> Iterator[dict[str, Any]]:
    fd = files.open_here(path)
    try:
        for line in _lines(fd):
            is_wanted = runs.quick_type(line) != b"agent" or runs.tells_usage(line)
            if is_wanted and (event := runs.event_of(line)):
                yield event
    finally:
        os.close(fd)


def _lines(fd: int) -> Iterator[bytes]:
    """The lines that are whole. One that is longer than any of ours is dropped."""
    rest, is_dropped = b"", False
    while block := os.read(fd, _BLOCK):
        first, *lines = (rest + block).split(b"\n")
        if not lines:
            is_dropped = is_dropped or len(first) > runs.LONGEST
            rest = b"" if is_dropped else first
            continue
        if not is_dropped:
            yield first
        yield from lines[:-1]
        rest, is_dropped = lines[-1], False


class Record:
    """What a run's events have told so far."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.start = Told(run.start)
        self.last = Told({})  # the `run_ended` event
        self.began: float | None = None
        self.now = 0.0
        self.tales: dict[str, _Tale] = {}
        self.current: _Tale | None = None  # the story that is worked on
        self.used = Used()  # by the agent that is at work
        self.gate_began: float | None = None
        self.open_wait: Wait | None = None
        self.waits: list[Wait] = []
        self.happenings: list[Happening] = []
        self.attempts = 0
        self.left_out = 0

    # --- events ---------------------------------------------------------------------------------

    def take(self, event: dict[str, Any]) -> None:
        fields = Told(event)
        at = formatting.seconds_of(fields.raw("at"))
        self.now = max(self.now, at if at is not None else self.now)  # clocks may be put back
        if self.began is None and at is not None:
            self.began = at
        if take := _TAKES.get(fields.raw("type")):
            take(self, fields)

    def tale(self, fields: Told, name: str = "story") -> _Tale:
        id = fields.line(name, _ID)
        if id not in self.tales and len(self.tales) >= _STORIES:
            self.left_out += 1
            return _Tale(id)
        return self.tales.setdefault(id, _Tale(id))

    def _start(self, fields: Told) -> None:
        self.start = fields
        for row in fields.parts("stories", _STORIES):
            tale = self.tale(row, "id")
            tale.title = row.line("title", _TITLE)
            tale.optional = row.is_true("optional")
            tale.tasks = row.whole("tasks_done"), row.whole("tasks_total")
            tale.depends_on = tuple(formatting.line(one, _ID) for one in row.lines("depends_on"))
            state = row.raw("state")
            tale.state = next((one for one in STATES if one == state), "done" if row.is_true("done") else None)
            tale.was_done = tale.state == "done"

    def _iteration(self, fields: Told) -> None:
        self._end_attempt("cut off")
        self._end_wait()
        tale = self.current = self.tale(fields)
        tale.title = tale.title or fields.line("title", _TITLE)
        tale.state, tale.why, tale.is_settled = None, "", False  # whatever it was, it is tried again
        self._begin(tale, fields, self.now)

    def _begin(self, tale: _Tale, fields: Told, began: float) -> None:
        self.attempts += 1
        if self.attempts > _ATTEMPTS:
            self.left_out += 1
            self.current = None
            return
        attempt = Attempt(
            story=tale.id,
            entry=fields.line("entry", 250),
            number=max(1, fields.whole("attempt")),
            task=fields.line("task", _ID),
            agent=fields.line("agent", _ID),
            began=began,
            ended=began,
            status="",
            is_kept=bool(self.start.raw("branch")),
        )
        tale.attempts.append(attempt)

    def _change(self, tale: _Tale | None, **fields: Any) -> None:
        """Adds to what is known of a story's last attempt."""
        if tale and tale.attempts:
            tale.attempts[-1] = structs.replace(tale.attempts[-1], **fields)

    def _emitted(self, fields: Told) -> None:
        event = fields.part("event")
        if event.raw("kind") == "usage":
            self.used += _used(event, 0.0)

    def _gate_start(self, fields: Told) -> None:
        self.gate_began = self.now

    def _gate(self, fields: Told) -> None:
        began = self.gate_began if self.gate_began is not None else self.now - fields.number("seconds")
        self.gate_began = None
        if not self.current or not self.current.attempts:
            return
        known = self.current.attempts[-1].gates
        gate = Gate(
            when=fields.line("when", 10),
            command=fields.line("command"),
            ok=fields.is_true("ok"),
            began=min(began, self.now),
            ended=self.now,
            told=_found(fields),
            new=fields.lines("new"),
        )
        self._change(self.current, gates=(*known, gate) if len(known) < _GATES else known)

    def _verdict(self, fields: Told) -> None:
        tale, took = self.tale(fields), fields.part("seconds")
        if not tale.attempts or tale.attempts[-1].status:  # its beginning is not in the record
            self._begin(tale, fields, self.now - took.number("agent") - took.number("gates"))
        self._change(
            tale,
            ended=self.now,
            status=fields.line("status", 20) or "unknown",
            summary=fields.line("summary", 1000) if fields.raw("summary") != fields.raw("status") else "",
            reasons=fields.lines("reasons"),
            findings=tuple(_finding(one) for one in fields.parts("findings")),
            files=fields.lines("files"),
            files_changed=fields.count("files"),
            work=_used(fields, took.number("agent")),
            gate_seconds=took.number("gates"),
        )
        if tasks := fields.whole("tasks_total"):
            tale.tasks = fields.whole("tasks_done"), tasks
        if fields.raw("status") in ("failed", "blocked"):
            tale.becomes("failed")
        self.current, self.used = None, Used()

    def _decision(self, fields: Told) -> None:
        tale = self.tale(fields)
        decision = Decision(fields.line("action", 20), fields.line("reason", 1000), fields.block("guidance"))
        self._change(tale, decision=decision)
        tale.becomes("skipped" if decision.action == "skip" else tale.state, decision.reason)

    def _checkpoint(self, fields: Told) -> None:
        tale = self.tale(fields)
        tale.commit, tale.state, tale.why = fields.line("commit", 100), "done", ""
        self._change(tale, commit=tale.commit)

    def _question(self, fields: Told) -> None:
        tale = self.tale(fields)
        tale.becomes("waiting", tale.why)
        tale.question = Question(missing=fields.block("missing"), path=self._inside(fields.command("path")))
        self._happen("question", fields.line("missing"), tale.id)

    def _answer(self, fields: Told) -> None:
        tale = self.tale(fields)
        if tale.state != "done":
            tale.settle(None, "you answered; it is taken up next")
        if tale.question:
            tale.question = structs.replace(tale.question, answer=fields.block("text"))
        self._happen("answer", fields.line("text"), tale.id)

    def _steer(self, fields: Told) -> None:
        action, text = fields.line("action", 20), fields.line("text")
        self._happen("you", ": ".join(filter(None, [action, text])), fields.line("story", _ID))
        tale = self.tales.get(fields.line("story", _ID))
        if tale is None or tale.state == "done":
            return
        if action == "skip":
            tale.settle("skipped", f"you skipped it{text and f': {text}'}")
        elif action == "retry":
            tale.settle(None, "you gave it fresh attempts; it is taken up next")

    def _setup(self, fields: Told) -> None:
        if not fields.is_true("ok"):
            self._happen("setup", f"a setup command failed: {fields.line('command')}")

    def _notice(self, fields: Told) -> None:
        self._happen("notice", fields.line("text", 1000))

    def _hand_over(self, fields: Told) -> None:
        text = f"{fields.line('from', _ID)} hands over to {fields.line('to', _ID)}: {fields.line('why')}"
        self._happen("hand-over", text)

    def _blocker(self, fields: Told) -> None:
        self._happen("blocker", f"the blocker was looked into: {fields.line('found')}", fields.line("story", _ID))

    def _happen(self, kind: str, text: str, story: str = "") -> None:
        if len(self.happenings) < _HAPPENINGS:
            self.happenings.append(Happening(kind, self.now, text, story))
        else:
            self.left_out += 1

    # --- waits ----------------------------------------------------------------------------------

    def _wait(self, fields: Told) -> None:
        self._end_wait()
        until = self.now + fields.number("seconds")
        self.open_wait = Wait("wait", self.now, min(until, self.now + 1e9), fields.line("why"))

    def _pause(self, fields: Told) -> None:
        self._end_wait()
        self.open_wait = Wait("pause", self.now, self.now + 1e9, fields.line("why"))

    def _resume(self, fields: Told) -> None:
        self._end_wait()

    def _end_wait(self) -> None:
        """A wait is over when something goes on, or when its time is."""
        if self.open_wait and len(self.waits) < _WAITS:
            self.waits.append(structs.replace(self.open_wait, ended=min(self.now, self.open_wait.ended)))
        self.open_wait = None

    # --- the end --------------------------------------------------------------------------------

    def _end(self, fields: Told) -> None:
        self.last = fields
        for row in fields.parts("stories", _STORIES):
            tale = self.tale(row, "id")
            tale.title = tale.title or row.line("title", _TITLE)
            state = row.raw("state")
            tale.is_settled = tale.is_settled and state != "done"
            tale.becomes(next((one for one in STATES if one == state), tale.state), row.line("why", 1000))
            tale.commit = row.line("commit", 100) or tale.commit
            if tale.state == "waiting" and not tale.question:
                missing = row.block("failure") or row.block("why")
                tale.question = Question(missing=missing, path=self._inside(row.command("question")))

    def _end_attempt(self, status: str) -> None:
        if self.current and self.current.attempts and not self.current.attempts[-1].status:
            attempt = self.current.attempts[-1]
            gates = sum(one.ended - one.began for one in attempt.gates)
            agent = max(0.0, self.now - attempt.began - gates)
            work = Used(agent) + self.used
            self._change(self.current, ended=self.now, status=status, work=work, gate_seconds=gates)
        self.current, self.used = None, Used()

    def end(self) -> None:
        """There are no more events for now: what has no end has one here."""
        last = formatting.seconds_of(self.run.last)
        self.now = max(self.now, last or 0.0)
        self._end_attempt("running" if self.run.state in ("running", "paused") else "cut off")
        self._end_wait()

    def _inside(self, path: str) -> str:
        return path.removeprefix(os.path.join(printable(self.run.root), ""))

    # --- the facts ------------------------------------------------------------------------------

    def facts(self, knowledge: Knowledge) -> Facts:
        run, start = self.run, self.start
        stories = self._with_questions(tuple(_story(tale) for tale in self.tales.values()))
        return Facts(
            run=formatting.line(run.id, 200),
            change=formatting.line(run.change, 200) or "unknown",
            agent=start.line("agent", _ID),
            adapter=start.line("adapter", _ID),
            branch=start.line("branch", 200),
            workspace=start.line("workspace", _ID),
            state=run.state,
            reason=formatting.line(run.reason, 1000),
            verdict=_verdict(run.state, stories),
            began=self.began if self.began is not None else self.now,
            ended=self.now,
            stories=stories,
            waits=tuple(self.waits),
            happenings=tuple(self.happenings),
            limits=tuple(_limits(start.part("limits"))),
            gates=start.part("gates").lines("commands"),
            knowledge=knowledge,
            next=tuple(_next(run, self.last)),
            left_out=self.left_out,
        )

    # --- what waits -----------------------------------------------------------------------------

    def _with_questions(self, stories: tuple[Story, ...]) -> tuple[Story, ...]:
        """Whether a question still waits is not in the record of the run that asked it."""
        if not any(self._may_wait(one) for one in stories):
            return stories
        try:
            waiting = questions.waiting(self.run.root)
        except (RalphError, OSError):
            return stories  # the record tells what was asked, and that has to do
        own = {formatting.line(one.story, _ID): one for one in waiting if one.change == self.run.change}
        others = {formatting.line(one.story, _ID) for one in waiting if one.change != self.run.change}
        return tuple(
            _asked(one, own.get(one.id), is_shared=one.id in others) if self._waits(one, own.get(one.id)) else one
            for one in stories
        )

    def _may_wait(self, story: Story) -> bool:
        """Also one that is open, if the run did not tell its end: an earlier run may have asked."""
        is_unsure = story.state == "open" and self.run.end is None and not self.tales[story.id].is_settled
        return story.state == "waiting" or is_unsure

    def _waits(self, story: Story, waiting: questions.Waiting | None) -> bool:
        if story.state == "waiting" or waiting is None:
            return story.state == "waiting"
        return self._may_wait(story) and (formatting.seconds_of(waiting.asked) or 0.0) <= self.now


_TAKES: dict[str, Callable[[Record, Told], None]] = {
    "run_started": Record._start,
    "iteration_started": Record._iteration,
    "setup": Record._setup,
    "agent": Record._emitted,
    "gate_started": Record._gate_start,
    "gate": Record._gate,
    "verdict": Record._verdict,
    "decision": Record._decision,
    "checkpoint": Record._checkpoint,
    "question": Record._question,
    "answered": Record._answer,
    "steered": Record._steer,
    "notice": Record._notice,
    "handed_over": Record._hand_over,
    "blocker_checked": Record._blocker,
    "waiting": Record._wait,
    "paused": Record._pause,
    "resumed": Record._resume,
    "run_ended": Record._end,
}


def _found(fields: Told) -> str:
    parts = [fields.line("tally", 100)]
    if new := fields.count("new"):
        parts.append(f"{new} newly red")
    elif not fields.is_true("ok") and fields.raw("when") == "after" and fields.count("failed"):
        parts.append("nothing newly red")
    if not fields.is_true("ok") and not any(parts):
        parts.append(f"exit code {fields.line('exit_code', 10) or '?'}")
    return ", ".join(filter(None, parts))


def _finding(fields: Told) -> str:
    return " ".join(filter(None, (fields.line(name, 200) for name in ("kind", "path", "detail"))))


def _used(fields: Told, seconds: float) -> Used:
    return Used(seconds, fields.whole("input_tokens"), fields.whole("output_tokens"), fields.number("cost"))


def _limits(fields: Told) -> Iterator[tuple[str, str]]:
    for name in filter(_LIMITS_IN_WORDS.get, settings.list_limits()):
        if value := fields.number(name):
            dollars = formatting.cost(value) if name == "max_cost" else f"{value:,.0f}"
            yield _LIMITS_IN_WORDS[name], formatting.duration(value) if name in _TIMES else dollars


def _story(tale: _Tale) -> Story:
    return Story(
        id=tale.id,
        title=tale.title,
        state=tale.state or "open",
        optional=tale.optional,
        was_done=tale.was_done,
        tasks_done=tale.tasks[0],
        tasks_total=tale.tasks[1],
        depends_on=tale.depends_on,
        why=tale.why,
        commit=tale.commit,
        attempts=tuple(tale.attempts),
        question=tale.question,
    )


def _verdict(state: str, stories: tuple[Story, ...]) -> str:
    result = "done" if state == "done" else "unfinished"
    told = summary.verdict(summary.Fields({"result": result, "stories": [{"state": one.state} for one in stories]}))
    return _BEGINNINGS.get(state, "") + told


def _next(run: Run, end: Told) -> Iterator[Step]:
    steps = end.parts("next")
    yield from (Step(one.line("say"), one.command("run")) for one in steps)
    change = f" {run.change}" if run.change else ""
    if run.state == "running":
        yield Step("watch it", f"ralphtool watch {shlex.quote(formatting.line(run.id, 200))}")
    elif run.state == "paused":
        yield Step("let it go on", f"ralphtool resume{change}")
    elif run.state == "died" or (not steps and run.state != "done"):
        yield Step("go on where it was", f"ralphtool run{change}")


# --- what waits -------------------------------------------------------------------------------------


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
