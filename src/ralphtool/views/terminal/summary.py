"""A run in words: each event as a line, and the end for somebody who slept meanwhile.

Agents wrote much of what stands in an event, and anybody may have written the file: `Fields` takes each field for
what it should be, or for nothing, and its texts are fit for a terminal.
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

from ralphtool.core.text import printable, writes_unicode
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LONGEST = 300  # characters of one text that are shown
_FIRST = 20  # texts of a list that are shown
_MOST = 1e15  # a number beyond it was not counted by anybody
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


# --- what an event says -----------------------------------------------------------------------------


class Fields:
    """The fields of an event, or of something in one."""

    def __init__(self, value: object) -> None:
        self._fields: dict[str, Any] = value if isinstance(value, dict) else {}

    def raw(self, name: str) -> str:
        """A text as it is: to be compared or measured, never to be shown."""
        value = self._fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST:
            return str(value)
        return value if isinstance(value, str) else ""

    def text(self, name: str, longest: int = LONGEST) -> str:
        return one_line(self.raw(name), longest)

    def exact(self, name: str) -> str:
        """A command or a path, blanks and all: people copy it."""
        return writable(self.raw(name)[: 10 * LONGEST])

    def texts(self, name: str) -> list[str]:
        """The first texts of a list; `count` tells how many things are in it."""
        return [one_line(one) for one in self._list(name)[:_FIRST] if isinstance(one, str)]

    def count(self, name: str) -> int:
        return len(self._list(name))

    def number(self, name: str) -> float:
        value = self._fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        return float(value) if 0 <= value <= _MOST else 0.0

    def whole(self, name: str) -> int:
        return int(self.number(name))

    def is_true(self, name: str) -> bool:
        return self._fields.get(name) is True

    def inside(self, name: str) -> Fields:
        return Fields(self._fields.get(name))

    def rows(self, name: str) -> list[Fields]:
        return [Fields(one) for one in self._list(name) if isinstance(one, dict)]

    def _list(self, name: str) -> list[Any]:
        value = self._fields.get(name)
        return value if isinstance(value, list) else []


def one_line(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line without colours and the like: what else is no plain text becomes visible."""
    kept = _ESCAPES.sub("", text[: 4 * longest]).translate(_SELECTORS)
    line = writable(" ".join(kept.split()))
    return line if len(line) <= longest else line[:longest] + ("…" if writes_unicode() else "...")


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


def label(story: Fields) -> str:
    """A story as people know it: `3. Login form`."""
    id, title = story.text("id", 40), story.text("title", 120)
    return f"{id}. {title}" if id and title else id or title or "a story"


def cut(text: Text, width: int) -> Text:
    text.truncate(max(width, 1), overflow="ellipsis" if writes_unicode() else "crop")
    return text


def console() -> Console:
    """Without colours where they are not wanted, and nothing in a text is taken for more than text."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, color_system=colours)


# --- one event as a line ---------------------------------------------------------------------------


def last_word(said: Fields) -> Text:
    kind = said.raw("kind")
    if kind == "tool":
        return Text.assemble((said.text("name", 40), "cyan"), " ", said.text("detail"))
    if kind == "end":
        return Text("the agent has ended", style="dim")
    if kind == "failure":
        return Text(f"{said.text('trouble', 40)}: {said.text('text')}", style="red")
    if kind != "output":
        return Text(said.text("text"))
    *_, last = said.raw("text")[-_LAST:].strip().splitlines() or [""]
    return Text(one_line(last), style="dim")


def attempt(fields: Fields) -> str:
    number, most = fields.whole("attempt"), fields.whole("attempts")
    return f"attempt {number} of {most}" if number and most else f"attempt {number}" if number else ""


def outcome(fields: Fields) -> str:
    """What a gate found, after its command."""
    parts = [fields.text("tally", 80)]
    if new := fields.count("new"):
        parts.append(f"{new} newly red")
    elif not fields.is_true("ok") and fields.raw("when") == "after" and fields.count("failed"):
        parts.append("nothing newly red")
    if not fields.is_true("ok") and not any(parts):
        parts.append(f"exit code {fields.text('exit_code', 10) or '?'}")
    told = ", ".join(filter(None, parts))
    return f": {told}" if told else ""


def _tell_start(fields: Fields, name: str) -> Text:
    stories = fields.rows("stories")
    done = sum(one.is_true("done") for one in stories)
    parts = [f"{plural(len(stories), 'story', 'stories')}, {done} done", fields.text("agent", 60)]
    parts += [f"branch {branch}"] if (branch := fields.text("branch", 100)) else []
    return Text(f"{fields.text('change', 100)}: {', '.join(filter(None, parts))}", style="bold")


def _tell_iteration(fields: Fields, name: str) -> Text:
    parts = [attempt(fields), fields.text("agent", 60)]
    parts += [f"task {task}"] if (task := fields.text("task", 20)) else []
    return Text(f"{name}: {', '.join(filter(None, parts))}", style="bold")


def _tell_setup(fields: Fields, name: str) -> Text:
    took = duration(fields.number("seconds"))
    if fields.is_true("ok"):
        return Text(f"setup passed: {fields.text('command')} ({took})")
    told = f"setup failed: {fields.text('command')} (exit code {fields.text('exit_code', 10) or '?'}, {took})"
    return Text(f"{told} {fields.exact('log')}".rstrip(), style="red")


def _tell_gate(fields: Fields, name: str) -> Text:
    ok, new = fields.is_true("ok"), fields.texts("new")
    when = f" {when} the work" if (when := fields.text("when", 10)) else ""
    told = f"gate {'passed' if ok else 'failed'}{when}: {fields.text('command')}{outcome(fields)}"
    told += f" ({duration(fields.number('seconds'))})"
    if new:
        told += f" {one_line(', '.join(new))}"
    style = "" if ok else "red" if new else "yellow"
    return Text(told if ok else f"{told} {fields.exact('log')}".rstrip(), style=style)


def _tell_agent(fields: Fields, name: str) -> Text | None:
    said = fields.inside("event")
    return Text.assemble("agent: ", last_word(said)) if said.raw("kind") == "failure" else None


def _tell_verdict(fields: Fields, name: str) -> Text:
    status = fields.raw("status")
    took = fields.inside("seconds")
    about = [f"attempt {number}"] if (number := fields.whole("attempt")) else []
    if total := fields.whole("tasks_total"):
        about.append(f"{fields.whole('tasks_done')}/{total} tasks")
    about.append(duration(took.number("agent") + took.number("gates")))
    reasons = [] if status == "completed" else fields.texts("reasons")
    why = one_line("; ".join(reasons) or fields.raw("summary"))
    sign = mark(STATES.get(status, "open"))
    word = (one_line(status, 20), _STYLES.get(status, "yellow"))
    return Text.assemble(sign, f" {name}: ", word, f" ({', '.join(about)})", f": {why}" if why else "")


def _tell_decision(fields: Fields, name: str) -> Text | None:
    action, reason = fields.raw("action"), fields.text("reason")
    if action == "next":
        return None  # what comes next is told when it begins
    return Text(f"{name}: {_ACTIONS.get(action, fields.text('action', 20))}{f': {reason}' if reason else ''}")


def _tell_checkpoint(fields: Fields, name: str) -> Text:
    return Text.assemble(("checkpoint ", "dim"), fields.text("commit", 100)[:10], " ", fields.text("subject"))


def _tell_question(fields: Fields, name: str) -> Text:
    missing = fields.text("missing")
    told = f"{name} waits for you: {fields.exact('path')}{f' ({missing})' if missing else ''}"
    return Text.assemble(mark("waiting"), " ", (told, "yellow"))


def _tell_notice(fields: Fields, name: str) -> Text:
    return Text(fields.text("text"), style="yellow")


def _tell_wait(fields: Fields, name: str) -> Text:
    return Text(f"waiting {duration(fields.number('seconds'))}: {fields.text('why')}")


def _tell_hand_over(fields: Fields, name: str) -> Text:
    names = f"{fields.text('from', 40)} hands over to {fields.text('to', 40)}"
    return Text(f"{names}: {fields.text('why')}", style="yellow")


def _tell_blocker_check(fields: Fields, name: str) -> Text:
    return Text(f"{name}: the blocker was looked into: {fields.text('found')}")


def _tell_steering(fields: Fields, name: str) -> Text:
    """What a person said to the run."""
    action, text = fields.raw("action"), fields.text("text")
    about = name if fields.raw("story") else ""
    done = {
        "pause": "you asked for a pause",
        "resume": "you let it go on",
        "stop": "you asked it to stop",
        "stop-after": "you asked it to stop after this iteration",
        "forget": f"you took back what you had said{f' to {about}' if about else ''}",
        "guide": f"you said to {about}" if about else "you said",
        "retry": f"you gave {about or 'a story'} fresh attempts",
        "skip": f"you left {about or 'a story'} out",
    }.get(action, f"you said {fields.text('action', 20)}")
    return Text(f"{done}{f': {text}' if text else ''}", style="cyan")


def _tell_pause(fields: Fields, name: str) -> Text:
    why = fields.text("why")
    return Text(f"paused{f': {why}' if why else ''}", style="yellow")


def _tell_resume(fields: Fields, name: str) -> Text:
    return Text("it goes on", style="cyan")


def _tell_answer(fields: Fields, name: str) -> Text:
    return Text(f"{name}: you answered: {fields.text('text')}", style="cyan")


def _tell_end(fields: Fields, name: str) -> Text:
    return Text(verdict(fields), style="bold")


def told(event: Fields, name: str) -> Text | None:
    """The event as one line, `name` being the story's; None if nobody needs to be told."""
    tell = _TELLS.get(event.raw("type"))
    return tell(event, name) if tell else None


_TELLS: dict[str, Callable[[Fields, str], Text | None]] = {
    "run_started": _tell_start,
    "iteration_started": _tell_iteration,
    "setup": _tell_setup,
    "gate": _tell_gate,
    "agent": _tell_agent,
    "verdict": _tell_verdict,
    "decision": _tell_decision,
    "checkpoint": _tell_checkpoint,
    "question": _tell_question,
    "notice": _tell_notice,
    "handed_over": _tell_hand_over,
    "blocker_checked": _tell_blocker_check,
    "waiting": _tell_wait,
    "steered": _tell_steering,
    "paused": _tell_pause,
    "resumed": _tell_resume,
    "answered": _tell_answer,
    "run_ended": _tell_end,
}


# --- the summary ------------------------------------------------------------------------------------


class _Line(NamedTuple):
    text: Text
    indent: int = 0
    fit: Literal["wrap", "cut", "whole"] = "wrap"  # what is copied stays whole: a terminal breaks it without blanks


def show(event: dict[str, Any], change: str) -> None:
    """Writes what a `run_ended` event says to standard output."""
    if sys.stdout is None:
        return
    lines = _lines(Fields(event), one_line(change))
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


def _lines(event: Fields, change: str) -> Iterator[_Line]:
    stories = event.rows("stories")
    done = event.raw("result") == "done"
    yield _Line(Text(verdict(event), style="bold green" if done else "bold yellow"))
    if not done and (reason := event.text("reason")):
        yield _Line(Text(reason))
    for state, title in _SECTIONS:
        yield from _section(state, title, [one for one in stories if _state(one) == state])
    yield from _spent(event.inside("spent"), change)
    yield from _by_story(stories)
    yield from _next(event.rows("next"))


def _state(story: Fields) -> str:
    state = story.raw("state")
    return state if state in dict(_SECTIONS) else "open"


def verdict(event: Fields) -> str:
    """How the run ended, in one sentence."""
    states = [_state(one) for one in event.rows("stories")]
    if event.raw("result") == "interrupted":
        return "Interrupted; run it again and it goes on where it was."
    if event.raw("result") == "done" and set(states) <= {"done"}:
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


def _section(state: str, title: str, stories: Sequence[Fields]) -> Iterator[_Line]:
    if not stories:
        return
    yield _Line(Text())
    yield _Line(Text(title, style="bold"))
    for story in stories:
        yield _Line(Text.assemble(mark(state), " ", label(story), (_remarks(story), "dim")), 2)
        if state != "done" and (why := story.text("why")):
            yield _Line(Text(why), 6)
        if state == "waiting" and (path := story.exact("question")):
            yield _Line(Text(path, style="cyan"), 6, "whole")


def _remarks(story: Fields) -> str:
    attempts, commit = story.whole("attempts"), story.text("commit", 100)[:10]
    remarks = [f"commit {commit}"] if commit else []
    if attempts > 1 or (attempts and _state(story) == "failed"):
        remarks.append(plural(attempts, "attempt", "attempts"))
    return f"  ({', '.join(remarks)})" if remarks else ""


def _spent(spent: Fields, change: str) -> Iterator[_Line]:
    parts = [duration(spent.number("seconds"))]
    shares = (("agent", spent.number("agent_seconds")), ("gates", spent.number("gate_seconds")))
    if told := [f"{name} {duration(seconds)}" for name, seconds in shares if seconds]:
        parts[0] += f" ({', '.join(told)})"
    if iterations := spent.whole("iterations"):
        parts.append(plural(iterations, "iteration", "iterations"))
    if spent.number("input_tokens") or spent.number("output_tokens"):
        parts.append(f"{tokens(spent.number('input_tokens'))} tokens in, {tokens(spent.number('output_tokens'))} out")
    if cost := money(spent.number("cost")):
        parts.append(cost)
    yield _Line(Text())
    yield _Line(Text.assemble((f"Spent on {change}: ", "bold"), ", ".join(parts)))


def _by_story(stories: Sequence[Fields]) -> Iterator[_Line]:
    """What each story cost. Columns that nobody told anything for are left out."""
    busy = [one for one in stories if one.number("seconds") or one.number("input_tokens")]
    if len(busy) < 2:
        return
    table = [("TIME", "IN", "OUT", "COST")] + [
        (
            duration(one.number("seconds")),
            *(tokens(one.number(name)) if one.number(name) else "" for name in ("input_tokens", "output_tokens")),
            money(one.number("cost")),
        )
        for one in busy
    ]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(cell_len, column)) for column in columns]
    for row, name in zip(zip(*columns, strict=True), ["STORY", *map(label, busy)], strict=True):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield _Line(Text("  ".join([*cells, name]), style="dim" if name == "STORY" else ""), 2, "cut")


def _next(steps: Sequence[Fields]) -> Iterator[_Line]:
    if not steps:
        return
    yield _Line(Text())
    yield _Line(Text("What next", style="bold"))
    for step in steps:
        if say := step.text("say"):
            yield _Line(Text(say), 2)
        if command := step.exact("run"):
            yield _Line(Text(command, style="bold cyan"), 4, "whole")
