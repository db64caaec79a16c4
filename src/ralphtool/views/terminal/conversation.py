"""What an agent said and did, for people: its words in full, each use of a tool as a line, what came back folded.

All of it was written by others. Colours are left out, and everything else that is no plain text becomes visible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ralphtool.agents import Failure, Message, Output, Result, Tool, Usage
from ralphtool.core.text import writes_unicode
from ralphtool.record.event_parts import Durations
from ralphtool.record.run_view import Used
from ralphtool.views.terminal import summary
from ralphtool.views.terminal.summary import one_line
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.agents import End, Event
    from ralphtool.record.events import IterationStarted, Verdict

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_ENDS = 3  # lines that are shown of each end of what came back
_WIDEST = 200  # characters that are shown of a line of it
_INDENT = "    "


class Conversation:
    """Makes lines of an agent's events, in their order. `full` folds nothing."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._unicode = writes_unicode()
        self._last: type | None = None  # the kind of the last that was shown
        self._used = Used()

    def lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, Usage):
            self._used += Used(0.0, event.input_tokens, event.output_tokens, event.cost or 0.0)
        if not isinstance(event, Message | Output | Tool | Result | Failure):
            return
        if self._last and Message in (type(event), self._last):
            yield ""
        self._last = type(event)
        match event:
            case Message():
                yield from map(self.shown, _lines(event.text.strip("\n")))
            case Output():
                yield from map(self.shown, _lines(event.text))
            case Tool():
                yield self._tool(event)
            case Result():
                yield from self._result(event.text, is_ok=event.ok)
            case Failure():
                told = f"{one_line(event.trouble, 40)}: {one_line(event.text, 1000)}"
                yield click.style(f"{self._mark('✗', 'x')} {self.shown(told)}", fg="red")

    def shown(self, line: str) -> str:
        """One line, fit for a terminal."""
        if "\x1b" in line:
            line = _COLOURS.sub("", line)
        line = line.rstrip("\r").expandtabs(4)
        is_plain = line.isprintable() and (self._unicode or line.isascii())
        return line if is_plain else summary.writable(line)

    def _tool(self, use: Tool) -> str:
        name = click.style(f"{self._mark('▸', '>')} {one_line(use.name, 60)}", fg="cyan")
        detail = one_line(use.detail)
        return f"{name}  {detail}" if detail else name

    def _result(self, text: str, *, is_ok: bool) -> Iterator[str]:
        text = text.strip("\n")
        if not is_ok:
            yield _INDENT + click.style("failed" + (":" if text else ""), fg="red")
        if not text:
            return
        for line in _lines(text) if self._full else self._folded(text):
            yield click.style(_INDENT + self.shown(line), dim=True)

    def _folded(self, text: str) -> Iterator[str]:
        """Its first and its last lines. It may be huge: what lies between is only counted."""
        hidden = text.count("\n") + 1 - 2 * _ENDS
        if hidden <= 1:
            yield from map(self._cut, _lines(text))
            return
        start = end = 0
        for _ in range(_ENDS):
            end = text.index("\n", start)
            yield self._cut(text[start:end])
            start = end + 1
        yield f"{self._mark('…', '...')} {plural(hidden, 'line', 'lines')} more: --full"
        at = len(text)
        for _ in range(_ENDS):
            at = text.rindex("\n", 0, at)
        yield from map(self._cut, _lines(text[at + 1 :]))

    def _cut(self, line: str) -> str:
        if len(line) <= _WIDEST:
            return line
        return f"{line[:_WIDEST]}{self._mark('…', '...')} ({len(line) - _WIDEST} characters more: --full)"

    def _mark(self, pretty: str, plain: str) -> str:
        return pretty if self._unicode else plain

    # --- what stands above and below it -----------------------------------------------------------

    def title(self, name: str, start: IterationStarted | None) -> list[str]:
        """Which iteration this is. `start` is None if nobody knows any more how it began."""
        told = ""
        if start:
            agent = one_line(start.agent, 60)
            about = [summary.label(start.story, start.title), summary.attempt(start.attempt, start.attempts)]
            told = ", ".join(filter(None, [*about, f"by {agent}" if agent else ""]))
        return [click.style(self.shown(name), bold=True) + (f"  {told}" if told else ""), ""]

    def ending(self, verdict: Verdict | None, end: End | None, *, is_running: bool) -> Iterator[str]:
        """How it ended, and what it used."""
        yield ""
        if verdict:
            why = "" if verdict.status == "completed" else "; ".join(summary.some(verdict.reasons))
            told = why or ("" if verdict.summary == verdict.status else one_line(verdict.summary))
            yield click.style(one_line(verdict.status, 20), bold=True) + (f": {told}" if told else "")
        elif is_running:
            yield click.style("it is still running", bold=True) + ": -f goes on with it"
        else:
            yield click.style("it was never judged", bold=True) + ": its run was cut off"
        if end and not end.ok and (reason := one_line(end.reason)):
            yield f"the agent ended with: {reason}"
        if used := _describe_use(verdict or self._used, verdict.seconds if verdict else Durations()):
            yield f"used: {used}"


def _describe_use(used: Verdict | Used, took: Durations) -> str:
    read, written = used.input_tokens, used.output_tokens
    parts = [f"{summary.tokens(read)} tokens read, {summary.tokens(written)} written" if read or written else ""]
    parts.append(summary.money(used.cost or 0.0))
    parts += [f"{name} {summary.duration(one)}" for name, one in (("agent", took.agent), ("gates", took.gates)) if one]
    return ", ".join(one for one in parts if one)


def _lines(text: str) -> Iterator[str]:
    """One after the other: all at once would take as much memory again."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
