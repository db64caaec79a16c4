"""A run in words: each event as a line, and the end for somebody who slept meanwhile.

Agents wrote much of what stands in an event, and anybody may have written the file: every text goes through `one_line`
or `exact`, which make it fit for a terminal.
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
from ralphtool.core.text import printable, writes_unicode
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
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
    from ralphtool.record.events import Event, Said

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
STATES = {"completed": "done", "failed": "failed", "blocked": "failed"}
_STYLES = {"completed": "green", "partial": "yellow", "failed": "red", "blocked": "magenta"}
_ACTIONS = {
    "retry": "again",
    "fix-state": "back to what was last kept, then again",
    "break-chunks": "its open tasks one by one",
    "skip": "skipped",
    "manual": "handed to you",
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


# --- texts that anybody may have written --------------------------------------------------------------


def one_line(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line without colours and the like: what else is no plain text becomes visible."""
    kept = _ESCAPES.sub("", text[: 4 * longest]).translate(_SELECTORS)
    line = writable(" ".join(kept.split()))
    return line if len(line) <= longest else line[:longest] + ("…" if writes_unicode() else "...")


def exact(text: str | None) -> str:
    """A command or a path, blanks and all: people copy it."""
    return writable((text or "")[: 10 * LONGEST])


def some(texts: Sequence[str]) -> list[str]:
    """The first texts of a list."""
    return [one_line(one) for one in texts[:_FIRST]]


def writable(text: str) -> str:
    shown = printable(text)
    return shown if writes_unicode() else shown.encode("ascii", "backslashreplace").decode()


# --- how it is written ------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m{whole % 60:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def tokens(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + letter
    return str(int(number))


def money(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.005 else "<$0.01" if cost else ""


def mark(state: str) -> Text:
    pretty, plain, style = _MARKS.get(state, _MARKS["open"])
    return Text(pretty if writes_unicode() else plain, style=style)


def label(id: str | None, title: str = "") -> str:
    """A story as people know it: `3. Login form`."""
    id, title = one_line(id or "", 40), one_line(title, 120)
    return f"{id}. {title}" if id and title else id or title or "a story"


def cut(text: Text, width: int) -> Text:
    text.truncate(max(width, 1), overflow="ellipsis" if writes_unicode() else "crop")
    return text


def console() -> Console:
    """Without colours where they are not wanted, and nothing in a text is taken for more than text."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, color_system=colours)


# --- one event as a line ---------------------------------------------------------------------------


def last_word(said: Said) -> Text:
    match said:
        case agents.Tool():
            return Text.assemble((one_line(said.name, 40), "cyan"), " ", one_line(said.detail))
        case agents.End():
            return Text("the agent has ended", style="dim")
        case agents.Failure():
            return Text(f"{one_line(said.trouble, 40)}: {one_line(said.text)}", style="red")
        case agents.Output():
            *_, last = said.text[-_LAST:].strip().splitlines() or [""]
            return Text(one_line(last), style="dim")
        case agents.Message() | agents.Result():
            return Text(one_line(said.text))
    return Text()


def attempt(number: int, most: int) -> str:
    return f"attempt {number} of {most}" if number and most else f"attempt {number}" if number else ""


def outcome(gate: Gate) -> str:
    """What a gate found, after its command."""
    found = ", ".join(found_by(gate, one_line(gate.tally or "", 80)))
    return f": {found}" if found else ""


def found_by(gate: Gate, tally: str) -> Iterator[str]:
    """What a gate found, in parts."""
    if tally:
        yield tally
    if gate.new:
        yield f"{len(gate.new)} newly red"
    elif not gate.ok and gate.when == "after" and gate.failed:
        yield "nothing newly red"
    elif not gate.ok and not tally:
        yield f"exit code {'?' if gate.exit_code is None else gate.exit_code}"


def _tell_start(event: RunStarted, name: str) -> Text:
    done = sum(one.done for one in event.stories)
    parts = [f"{plural(len(event.stories), 'story', 'stories')}, {done} done", one_line(event.agent, 60)]
    parts += [f"branch {branch}"] if (branch := one_line(event.branch or "", 100)) else []
    return Text(f"{one_line(event.change, 100)}: {', '.join(filter(None, parts))}", style="bold")


def _tell_iteration(event: IterationStarted, name: str) -> Text:
    parts = [attempt(event.attempt, event.attempts), one_line(event.agent, 60)]
    parts += [f"task {task}"] if (task := one_line(event.task or "", 20)) else []
    return Text(f"{name}: {', '.join(filter(None, parts))}", style="bold")


def _tell_setup(event: Setup, name: str) -> Text:
    took = duration(event.seconds)
    if event.ok:
        return Text(f"setup passed: {one_line(event.command)} ({took})")
    code = "?" if event.exit_code is None else event.exit_code
    told = f"setup failed: {one_line(event.command)} (exit code {code}, {took})"
    return Text(f"{told} {exact(event.log)}".rstrip(), style="red")


def _tell_gate(event: Gate, name: str) -> Text:
    new = some(event.new)
    when = f" {when} the work" if (when := one_line(event.when, 10)) else ""
    told = f"gate {'passed' if event.ok else 'failed'}{when}: {one_line(event.command)}{outcome(event)}"
    told += f" ({duration(event.seconds)})"
    if new:
        told += f" {one_line(', '.join(new))}"
    style = "" if event.ok else "red" if new else "yellow"
    return Text(told if event.ok else f"{told} {exact(event.log)}".rstrip(), style=style)


def _tell_agent(event: Agent, name: str) -> Text | None:
    return Text.assemble("agent: ", last_word(event.event)) if isinstance(event.event, agents.Failure) else None


def _tell_verdict(event: Verdict, name: str) -> Text:
    about = [f"attempt {event.attempt}"] if event.attempt else []
    if event.tasks_total:
        about.append(f"{event.tasks_done}/{event.tasks_total} tasks")
    about.append(duration(event.seconds.agent + event.seconds.gates))
    reasons = [] if event.status == "completed" else some(event.reasons)
    why = one_line("; ".join(reasons) or event.summary)
    sign = mark(STATES.get(event.status, "open"))
    word = (one_line(event.status, 20), _STYLES.get(event.status, "yellow"))
    return Text.assemble(sign, f" {name}: ", word, f" ({', '.join(about)})", f": {why}" if why else "")


def _tell_decision(event: Decision, name: str) -> Text | None:
    if event.action == "next":
        return None  # what comes next is told when it begins
    action = _ACTIONS.get(event.action, one_line(event.action, 20))
    return Text(f"{name}: {action}{_after(event.reason)}")


def _after(text: str) -> str:
    """A reason, if there is one."""
    text = one_line(text)
    return f": {text}" if text else ""


def _tell_checkpoint(event: Checkpoint, name: str) -> Text:
    return Text.assemble(("checkpoint ", "dim"), one_line(event.commit or "", 100)[:10], " ", one_line(event.subject))


def _tell_question(event: Question, name: str) -> Text:
    missing = one_line(event.missing)
    told = f"{name} waits for you: {exact(event.path)}{f' ({missing})' if missing else ''}"
    return Text.assemble(mark("waiting"), " ", (told, "yellow"))


def _tell_notice(event: Notice, name: str) -> Text:
    return Text(one_line(event.text), style="yellow")


def _tell_wait(event: Waiting, name: str) -> Text:
    return Text(f"waiting {duration(event.seconds)}: {one_line(event.why)}")


def _tell_hand_over(event: HandedOver, name: str) -> Text:
    names = f"{one_line(event.from_, 40)} hands over to {one_line(event.to, 40)}"
    return Text(f"{names}: {one_line(event.why)}", style="yellow")


def _tell_blocker_check(event: BlockerChecked, name: str) -> Text:
    return Text(f"{name}: the blocker was looked into: {one_line(event.found)}")


def _tell_steering(event: Steered, name: str) -> Text:
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
    }.get(event.action, f"you said {one_line(event.action, 20)}")
    return Text(f"{done}{_after(event.text)}", style="cyan")


def _tell_pause(event: Paused, name: str) -> Text:
    return Text(f"paused{_after(event.why)}", style="yellow")


def _tell_resume(event: Resumed, name: str) -> Text:
    return Text("it goes on", style="cyan")


def _tell_answer(event: Answered, name: str) -> Text:
    return Text(f"{name}: you answered: {one_line(event.text)}", style="cyan")


def _tell_end(event: RunEnded, name: str) -> Text:
    return Text(verdict(event), style="bold")


def told(event: Event, name: str) -> Text | None:
    """The event as one line, `name` being the story's; None if nobody needs to be told."""
    tell = _TELLS.get(type(event))
    return tell(event, name) if tell else None


_TELLS: dict[type, Callable[[Any, str], Text | None]] = {
    RunStarted: _tell_start,
    IterationStarted: _tell_iteration,
    Setup: _tell_setup,
    Gate: _tell_gate,
    Agent: _tell_agent,
    Verdict: _tell_verdict,
    Decision: _tell_decision,
    Checkpoint: _tell_checkpoint,
    Question: _tell_question,
    Notice: _tell_notice,
    HandedOver: _tell_hand_over,
    BlockerChecked: _tell_blocker_check,
    Waiting: _tell_wait,
    Steered: _tell_steering,
    Paused: _tell_pause,
    Resumed: _tell_resume,
    Answered: _tell_answer,
    RunEnded: _tell_end,
}


# --- the summary ------------------------------------------------------------------------------------


class _Line(NamedTuple):
    text: Text
    indent: int = 0
    fit: Literal["wrap", "cut", "whole"] = "wrap"  # what is copied stays whole: a terminal breaks it without blanks


def show(event: RunEnded, change: str) -> None:
    """Writes what a `run_ended` event says to standard output."""
    if sys.stdout is None:
        return
    lines = _lines(event, one_line(change))
    try:
        _write_fitted(lines) if sys.stdout.isatty() else _write_plain(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nobody reads on, so there is nothing to flush at the end


def _write_plain(lines: Iterator[_Line]) -> None:
    for line in lines:
        sys.stdout.write(f"{' ' * line.indent}{line.text.plain}".rstrip() + "\n")


def _write_fitted(lines: Iterator[_Line]) -> None:
    terminal = console()
    for text, indent, fit in lines:
        if fit == "wrap" and text.plain:
            terminal.print(Padding(text, (0, 0, 0, min(indent, terminal.width // 4)), expand=False))
        else:
            whole = Text(" " * indent).append_text(text)
            terminal.print(cut(whole, terminal.width) if fit == "cut" else whole, soft_wrap=True)


def _lines(event: RunEnded, change: str) -> Iterator[_Line]:
    done = event.result == "done"
    yield _Line(Text(verdict(event), style="bold green" if done else "bold yellow"))
    if not done and (reason := one_line(event.reason)):
        yield _Line(Text(reason))
    for state, title in _SECTIONS:
        yield from _section(state, title, [one for one in event.stories if _state(one) == state])
    yield from _spent(event.spent, change)
    yield from _by_story(event.stories)
    yield from _next(event.next)


def _state(story: StoryAfter) -> str:
    return story.state if story.state in dict(_SECTIONS) else "open"


def verdict(event: RunEnded) -> str:
    """How the run ended, in one sentence."""
    return describe_end(event.result, [_state(one) for one in event.stories])


def describe_end(result: str, states: Sequence[str]) -> str:
    if result == "interrupted":
        return "Interrupted; run it again and it goes on where it was."
    if result == "done" and set(states) <= {"done"}:
        return _all_done(len(states))
    parts = [f"{states.count('done')} of {plural(len(states), 'story is', 'stories are')} done"]
    for state, one, many in (
        ("waiting", "waits for you", "wait for you"),
        ("failed", "failed", "failed"),
        ("skipped", "was skipped", "were skipped"),
        ("open", "is open", "are open"),
    ):
        if number := states.count(state):
            parts.append(plural(number, one, many))
    return "; ".join(parts) + "."


def _all_done(number: int) -> str:
    if number == 0:
        return "There was nothing to do."
    return f"All {number} stories are done and proven." if number > 1 else "The story is done and proven."


def _section(state: str, title: str, stories: Sequence[StoryAfter]) -> Iterator[_Line]:
    if not stories:
        return
    yield _Line(Text())
    yield _Line(Text(title, style="bold"))
    for story in stories:
        yield _Line(Text.assemble(mark(state), " ", label(story.id, story.title), (_remarks(story), "dim")), 2)
        if state != "done" and (why := one_line(story.why)):
            yield _Line(Text(why), 6)
        if state == "waiting" and (path := exact(story.question)):
            yield _Line(Text(path, style="cyan"), 6, "whole")


def _remarks(story: StoryAfter) -> str:
    attempts, commit = story.attempts, one_line(story.commit or "", 100)[:10]
    remarks = [f"commit {commit}"] if commit else []
    if attempts > 1 or (attempts and _state(story) == "failed"):
        remarks.append(plural(attempts, "attempt", "attempts"))
    return f"  ({', '.join(remarks)})" if remarks else ""


def _spent(spent: Totals, change: str) -> Iterator[_Line]:
    parts = [duration(spent.seconds or 0.0)]
    shares = (("agent", spent.agent_seconds), ("gates", spent.gate_seconds))
    if told := [f"{name} {duration(seconds)}" for name, seconds in shares if seconds]:
        parts[0] += f" ({', '.join(told)})"
    if spent.iterations:
        parts.append(plural(spent.iterations, "iteration", "iterations"))
    if spent.input_tokens or spent.output_tokens:
        parts.append(f"{tokens(spent.input_tokens or 0)} tokens in, {tokens(spent.output_tokens or 0)} out")
    if cost := money(spent.cost or 0.0):
        parts.append(cost)
    yield _Line(Text())
    yield _Line(Text.assemble((f"Spent on {change}: ", "bold"), ", ".join(parts)))


def _by_story(stories: Sequence[StoryAfter]) -> Iterator[_Line]:
    """What each story cost. Columns that nobody told anything for are left out."""
    busy = [one for one in stories if one.seconds or one.input_tokens]
    if len(busy) < 2:
        return
    table = [("TIME", "IN", "OUT", "COST")] + [
        (
            duration(one.seconds),
            *(tokens(number) if number else "" for number in (one.input_tokens, one.output_tokens)),
            money(one.cost),
        )
        for one in busy
    ]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(cell_len, column)) for column in columns]
    for row, name in zip(
        zip(*columns, strict=True), ["STORY", *(label(one.id, one.title) for one in busy)], strict=True
    ):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield _Line(Text("  ".join([*cells, name]), style="dim" if name == "STORY" else ""), 2, "cut")


def _next(steps: Sequence[NextStep]) -> Iterator[_Line]:
    if not steps:
        return
    yield _Line(Text())
    yield _Line(Text("What next", style="bold"))
    for step in steps:
        if say := one_line(step.say):
            yield _Line(Text(say), 2)
        if command := exact(step.run):
            yield _Line(Text(command, style="bold cyan"), 4, "whole")
