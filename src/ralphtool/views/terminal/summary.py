"""A run in words: each event as a line, and a summary at the end.

Agents wrote much of what is in an event, and the file is not trusted: every text goes through `flatten` or
`make_copyable`, which make it fit for a terminal.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ralphtool import agents
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.record.events import (
    Agent,
    Answered,
    BlockerChecked,
    Checkpoint,
    Decision,
    Gate,
    HandedOver,
    IterationStarted,
    Notice,
    Paused,
    Question,
    Resumed,
    RunEnded,
    RunStarted,
    Setup,
    Steered,
    Verdict,
    Waiting,
)
from ralphtool.views.terminal.tables import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
    from ralphtool.record.events import AgentEvent, Event

LONGEST = 300  # characters of one text that are shown
_FIRST = 20  # texts of a list that are shown
_LAST = 2000  # characters of output in which its last line is looked for
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_SELECTORS = {0xFE0E: None, 0xFE0F: None}  # terminals don't agree how wide these make a character
_MARKS = {
    "done": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "waiting": ("?", "?", "yellow"),
    "skipped": ("-", "-", "dim"),
    "current": ("▸", ">", "cyan"),
    "open": ("·", ".", "dim"),
}
MARK_BY_STATUS = {"completed": "done", "failed": "failed", "blocked": "failed"}
_STYLES = {"completed": "green", "partial": "yellow", "failed": "red", "blocked": "magenta"}
_ACTIONS = {
    "retry": "again",
    "fix-state": "back to what was last kept, then again",
    "break-chunks": "its open tasks one by one",
    "skip": "skipped",
    "manual": "needs your answer",
    "wait": "waiting",
    "stop": "stopping",
}
_SECTIONS = (
    ("done", "Done"),
    ("waiting", "Waiting for you"),
    ("failed", "Failed"),
    ("skipped", "Skipped"),
    ("open", "Still open"),
)


# --- untrusted texts --------------------------------------------------------------------------------


def flatten(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line without colours and the like: what else is no plain text becomes visible."""
    kept = _ESCAPES.sub("", text[: 4 * longest]).translate(_SELECTORS)
    line = make_writable(" ".join(kept.split()))
    return line if len(line) <= longest else line[:longest] + ("…" if can_write_unicode() else "...")


def make_copyable(text: str | None) -> str:
    """A command or a path, blanks and all: people copy it."""
    return make_writable((text or "")[: 10 * LONGEST])


def flatten_first(texts: Sequence[str]) -> list[str]:
    """The first texts of a list."""
    return [flatten(one) for one in texts[:_FIRST]]


def make_writable(text: str) -> str:
    shown = make_printable(text)
    return shown if can_write_unicode() else shown.encode("ascii", "backslashreplace").decode()


# --- how it is written ------------------------------------------------------------------------------


def format_duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m{whole % 60:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def format_tokens(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + letter
    return str(int(number))


def format_cost(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.005 else "<$0.01" if cost else ""


def render_mark(state: str) -> Text:
    pretty, plain, style = _MARKS.get(state, _MARKS["open"])
    return Text(pretty if can_write_unicode() else plain, style=style)


def format_story(id: str | None, title: str = "") -> str:
    """A story as people know it: `3. Login form`."""
    id, title = flatten(id or "", 40), flatten(title, 120)
    return f"{id}. {title}" if id and title else id or title or "a story"


def truncate(text: Text, width: int) -> Text:
    text.truncate(max(width, 1), overflow="ellipsis" if can_write_unicode() else "crop")
    return text


def build_console() -> Console:
    """Without colours where they are not wanted, and nothing in a text is taken for more than text."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, color_system=colours)


# --- one event as a line ---------------------------------------------------------------------------


def render_agent_event(said: AgentEvent) -> Text:
    match said:
        case agents.Tool():
            return Text.assemble((flatten(said.name, 40), "cyan"), " ", flatten(said.detail))
        case agents.End():
            return Text("the agent has ended", style="dim")
        case agents.Failure():
            return Text(f"{flatten(said.trouble, 40)}: {flatten(said.text)}", style="red")
        case agents.Output():
            *_, last = said.text[-_LAST:].strip().splitlines() or [""]
            return Text(flatten(last), style="dim")
        case agents.Message() | agents.Result():
            return Text(flatten(said.text))
    return Text()


def format_attempt(number: int, most: int) -> str:
    return f"attempt {number} of {most}" if number and most else f"attempt {number}" if number else ""


def format_gate_result(gate: Gate) -> str:
    """What a gate found, after its command."""
    found = ", ".join(list_gate_results(gate, flatten(gate.tally or "", 80)))
    return f": {found}" if found else ""


def list_gate_results(gate: Gate, tally: str) -> Iterator[str]:
    """What a gate found, in parts."""
    if tally:
        yield tally
    if gate.new:
        yield f"{len(gate.new)} newly red"
    elif not gate.ok and gate.when == "after" and gate.failed:
        yield "nothing newly red"
    elif not gate.ok and not tally:
        yield f"exit code {'?' if gate.exit_code is None else gate.exit_code}"


def _describe_start(event: RunStarted, name: str) -> Text:
    done = sum(one.done for one in event.stories)
    parts = [f"{pluralize(len(event.stories), 'story', 'stories')}, {done} done", flatten(event.agent, 60)]
    parts += [f"branch {branch}"] if (branch := flatten(event.branch or "", 100)) else []
    return Text(f"{flatten(event.change, 100)}: {', '.join(filter(None, parts))}", style="bold")


def _describe_iteration(event: IterationStarted, name: str) -> Text:
    parts = [format_attempt(event.attempt, event.attempts), flatten(event.agent, 60)]
    parts += [f"task {task}"] if (task := flatten(event.task or "", 20)) else []
    return Text(f"{name}: {', '.join(filter(None, parts))}", style="bold")


def _describe_setup(event: Setup, name: str) -> Text:
    took = format_duration(event.seconds)
    if event.ok:
        return Text(f"setup passed: {flatten(event.command)} ({took})")
    code = "?" if event.exit_code is None else event.exit_code
    told = f"setup failed: {flatten(event.command)} (exit code {code}, {took})"
    return Text(f"{told} {make_copyable(event.log)}".rstrip(), style="red")


def _describe_gate(event: Gate, name: str) -> Text:
    new = flatten_first(event.new)
    when = f" {when} the work" if (when := flatten(event.when, 10)) else ""
    told = f"gate {'passed' if event.ok else 'failed'}{when}: {flatten(event.command)}{format_gate_result(event)}"
    told += f" ({format_duration(event.seconds)})"
    if new:
        told += f" {flatten(', '.join(new))}"
    style = "" if event.ok else "red" if new else "yellow"
    return Text(told if event.ok else f"{told} {make_copyable(event.log)}".rstrip(), style=style)


def _describe_agent(event: Agent, name: str) -> Text | None:
    return (
        Text.assemble("agent: ", render_agent_event(event.event)) if isinstance(event.event, agents.Failure) else None
    )


def _describe_verdict(event: Verdict, name: str) -> Text:
    about = [f"attempt {event.attempt}"] if event.attempt else []
    if event.tasks_total:
        about.append(f"{event.tasks_done}/{event.tasks_total} tasks")
    about.append(format_duration(event.seconds.agent + event.seconds.gates))
    reasons = [] if event.status == "completed" else flatten_first(event.reasons)
    why = flatten("; ".join(reasons) or event.summary)
    sign = render_mark(MARK_BY_STATUS.get(event.status, "open"))
    word = (flatten(event.status, 20), _STYLES.get(event.status, "yellow"))
    return Text.assemble(sign, f" {name}: ", word, f" ({', '.join(about)})", f": {why}" if why else "")


def _describe_decision(event: Decision, name: str) -> Text | None:
    if event.action == "next":
        return None  # what comes next is told when it begins
    action = _ACTIONS.get(event.action, flatten(event.action, 20))
    return Text(f"{name}: {action}{_format_reason(event.reason)}")


def _format_reason(text: str) -> str:
    """A reason, if there is one."""
    text = flatten(text)
    return f": {text}" if text else ""


def _describe_checkpoint(event: Checkpoint, name: str) -> Text:
    return Text.assemble(("checkpoint ", "dim"), flatten(event.commit or "", 100)[:10], " ", flatten(event.subject))


def _describe_question(event: Question, name: str) -> Text:
    missing = flatten(event.missing)
    told = f"{name} waits for you: {make_copyable(event.path)}{f' ({missing})' if missing else ''}"
    return Text.assemble(render_mark("waiting"), " ", (told, "yellow"))


def _describe_notice(event: Notice, name: str) -> Text:
    return Text(flatten(event.text), style="yellow")


def _describe_wait(event: Waiting, name: str) -> Text:
    return Text(f"waiting {format_duration(event.seconds)}: {flatten(event.why)}")


def _describe_hand_over(event: HandedOver, name: str) -> Text:
    names = f"{flatten(event.from_, 40)} hands over to {flatten(event.to, 40)}"
    return Text(f"{names}: {flatten(event.why)}", style="yellow")


def _describe_blocker_check(event: BlockerChecked, name: str) -> Text:
    return Text(f"{name}: the blocker was looked into: {flatten(event.found)}")


def _describe_steering(event: Steered, name: str) -> Text:
    """What a person said to the run."""
    about = name if event.story else ""
    done = {
        "pause": "you asked for a pause",
        "resume": "you let it go on",
        "stop": "you asked it to stop",
        "stop-after": "you asked it to stop after this iteration",
        "forget": f"you took back what you had said{f' to {about}' if about else ''}",
        "guide": f"you said to {about}" if about else "you said",
        "retry": f"you gave {about or 'a story'} fresh attempts",
        "skip": f"you left {about or 'a story'} out",
    }.get(event.action, f"you said {flatten(event.action, 20)}")
    return Text(f"{done}{_format_reason(event.text)}", style="cyan")


def _describe_pause(event: Paused, name: str) -> Text:
    return Text(f"paused{_format_reason(event.why)}", style="yellow")


def _describe_resume(event: Resumed, name: str) -> Text:
    return Text("it goes on", style="cyan")


def _describe_answer(event: Answered, name: str) -> Text:
    return Text(f"{name}: you answered: {flatten(event.text)}", style="cyan")


def _describe_run_ended(event: RunEnded, name: str) -> Text:
    return Text(describe_run_end(event), style="bold")


def describe_event(event: Event, name: str) -> Text | None:
    """The event as one line, `name` being the story's; None if nobody needs to be told."""
    tell = _DESCRIBE_BY_TYPE.get(type(event))
    return tell(event, name) if tell else None


_DESCRIBE_BY_TYPE: dict[type, Callable[[Any, str], Text | None]] = {
    RunStarted: _describe_start,
    IterationStarted: _describe_iteration,
    Setup: _describe_setup,
    Gate: _describe_gate,
    Agent: _describe_agent,
    Verdict: _describe_verdict,
    Decision: _describe_decision,
    Checkpoint: _describe_checkpoint,
    Question: _describe_question,
    Notice: _describe_notice,
    HandedOver: _describe_hand_over,
    BlockerChecked: _describe_blocker_check,
    Waiting: _describe_wait,
    Steered: _describe_steering,
    Paused: _describe_pause,
    Resumed: _describe_resume,
    Answered: _describe_answer,
    RunEnded: _describe_run_ended,
}


# --- the summary ------------------------------------------------------------------------------------


class _SummaryLine(NamedTuple):
    text: Text
    indent: int = 0
    fit: Literal["wrap", "cut", "whole"] = "wrap"  # what is copied stays whole: a terminal breaks it without blanks


def print_summary(event: RunEnded, change: str) -> None:
    """Writes what a `run_ended` event says to standard output."""
    if sys.stdout is None:
        return
    lines = _build_lines(event, flatten(change))
    try:
        _write_fitted(lines) if sys.stdout.isatty() else _write_plain(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nobody reads on, so there is nothing to flush at the end


def _write_plain(lines: Iterator[_SummaryLine]) -> None:
    for line in lines:
        sys.stdout.write(f"{' ' * line.indent}{line.text.plain}".rstrip() + "\n")


def _write_fitted(lines: Iterator[_SummaryLine]) -> None:
    terminal = build_console()
    for text, indent, fit in lines:
        if fit == "wrap" and text.plain:
            terminal.print(Padding(text, (0, 0, 0, min(indent, terminal.width // 4)), expand=False))
        else:
            whole = Text(" " * indent).append_text(text)
            terminal.print(truncate(whole, terminal.width) if fit == "cut" else whole, soft_wrap=True)


def _build_lines(event: RunEnded, change: str) -> Iterator[_SummaryLine]:
    done = event.result == "done"
    yield _SummaryLine(Text(describe_run_end(event), style="bold green" if done else "bold yellow"))
    if not done and (reason := flatten(event.reason)):
        yield _SummaryLine(Text(reason))
    for state, title in _SECTIONS:
        yield from _build_section(state, title, [one for one in event.stories if _find_section(one) == state])
    yield from _build_spent(event.spent, change)
    yield from _build_story_table(event.stories)
    yield from _build_next_steps(event.next)


def _find_section(story: StoryAfter) -> str:
    return story.state if story.state in dict(_SECTIONS) else "open"


def describe_run_end(event: RunEnded) -> str:
    """How the run ended, in one sentence."""
    return describe_end(event.result, [_find_section(one) for one in event.stories])


def describe_end(result: str, states: Sequence[str]) -> str:
    if result == "interrupted":
        return "Interrupted; run it again and it resumes where it stopped."
    if result == "done" and set(states) <= {"done"}:
        return _describe_all_done(len(states))
    parts = [f"{states.count('done')} of {pluralize(len(states), 'story is', 'stories are')} done"]
    for state, one, many in (
        ("waiting", "waits for you", "wait for you"),
        ("failed", "failed", "failed"),
        ("skipped", "was skipped", "were skipped"),
        ("open", "is open", "are open"),
    ):
        if number := states.count(state):
            parts.append(pluralize(number, one, many))
    return "; ".join(parts) + "."


def _describe_all_done(number: int) -> str:
    if number == 0:
        return "There was nothing to do."
    return f"All {number} stories are done and proven." if number > 1 else "The story is done and proven."


def _build_section(state: str, title: str, stories: Sequence[StoryAfter]) -> Iterator[_SummaryLine]:
    if not stories:
        return
    yield _SummaryLine(Text())
    yield _SummaryLine(Text(title, style="bold"))
    for story in stories:
        yield _SummaryLine(
            Text.assemble(
                render_mark(state), " ", format_story(story.id, story.title), (_format_remarks(story), "dim")
            ),
            2,
        )
        if state != "done" and (why := flatten(story.why)):
            yield _SummaryLine(Text(why), 6)
        if state == "waiting" and (path := make_copyable(story.question)):
            yield _SummaryLine(Text(path, style="cyan"), 6, "whole")


def _format_remarks(story: StoryAfter) -> str:
    attempts, commit = story.attempts, flatten(story.commit or "", 100)[:10]
    remarks = [f"commit {commit}"] if commit else []
    if attempts > 1 or (attempts and _find_section(story) == "failed"):
        remarks.append(pluralize(attempts, "attempt", "attempts"))
    return f"  ({', '.join(remarks)})" if remarks else ""


def _build_spent(spent: Totals, change: str) -> Iterator[_SummaryLine]:
    parts = [format_duration(spent.seconds or 0.0)]
    shares = (("agent", spent.agent_seconds), ("gates", spent.gate_seconds))
    if told := [f"{name} {format_duration(seconds)}" for name, seconds in shares if seconds]:
        parts[0] += f" ({', '.join(told)})"
    if spent.iterations:
        parts.append(pluralize(spent.iterations, "iteration", "iterations"))
    if spent.input_tokens or spent.output_tokens:
        parts.append(
            f"{format_tokens(spent.input_tokens or 0)} tokens in, {format_tokens(spent.output_tokens or 0)} out"
        )
    if cost := format_cost(spent.cost or 0.0):
        parts.append(cost)
    yield _SummaryLine(Text())
    yield _SummaryLine(Text.assemble((f"Spent on {change}: ", "bold"), ", ".join(parts)))


def _build_story_table(stories: Sequence[StoryAfter]) -> Iterator[_SummaryLine]:
    """What each story cost. Columns that nobody told anything for are left out."""
    busy = [one for one in stories if one.seconds or one.input_tokens]
    if len(busy) < 2:
        return
    table = [("TIME", "IN", "OUT", "COST")] + [
        (
            format_duration(one.seconds),
            *(format_tokens(number) if number else "" for number in (one.input_tokens, one.output_tokens)),
            format_cost(one.cost),
        )
        for one in busy
    ]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(cell_len, column)) for column in columns]
    for row, name in zip(
        zip(*columns, strict=True), ["STORY", *(format_story(one.id, one.title) for one in busy)], strict=True
    ):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield _SummaryLine(Text("  ".join([*cells, name]), style="dim" if name == "STORY" else ""), 2, "cut")


def _build_next_steps(steps: Sequence[NextStep]) -> Iterator[_SummaryLine]:
    if not steps:
        return
    yield _SummaryLine(Text())
    yield _SummaryLine(Text("What next", style="bold"))
    for step in steps:
        if say := flatten(step.say):
            yield _SummaryLine(Text(say), 2)
        if command := make_copyable(step.run):
            yield _SummaryLine(Text(command, style="bold cyan"), 4, "whole")
