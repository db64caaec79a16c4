"""An agent's conversation for people: its messages in full, each use of a tool as a line, results folded.

None of it is trusted: colours are removed, and all other control characters become visible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ralphtool.agents import Failure, Message, Output, Result, Tool, Usage
from ralphtool.core.amounts import format_cost, format_duration, format_tokens, pluralize
from ralphtool.core.text import can_write_unicode
from ralphtool.record.event_parts import Durations
from ralphtool.record.view_parts import ResourceUse
from ralphtool.views import look
from ralphtool.views.receipts import describe_receipt
from ralphtool.views.terminal import phrases
from ralphtool.views.terminal.phrases import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.agents import End, Event
    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.events import IterationStarted, Verdict

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_ENDS = 3  # lines shown of each end of a result
_WIDEST = 200  # characters shown of each of these lines
_INDENT = "    "


class Conversation:
    """Turns an agent's events into lines, in order. With `full`, nothing is folded."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._unicode = can_write_unicode()
        self._last: type | None = None  # the type of the last event that was shown
        self._used = ResourceUse()

    def render_event(self, event: Event) -> Iterator[str]:
        if isinstance(event, Usage):
            self._used += ResourceUse(0.0, event.input_tokens, event.output_tokens, event.cost or 0.0)
        if not isinstance(event, Message | Output | Tool | Result | Failure):
            return
        if self._last and Message in (type(event), self._last):
            yield ""
        self._last = type(event)
        match event:
            case Message():
                yield from map(self.clean_line, _split_lines(event.text.strip("\n")))
            case Output():
                yield from map(self.clean_line, _split_lines(event.text))
            case Tool():
                yield self._render_tool(event)
            case Result():
                yield from self._render_result(event.text, is_ok=event.ok)
            case Failure():
                told = f"{flatten(event.trouble, 40)}: {flatten(event.text, 1000)}"
                mark, colour = look.STORIES["failed"].mark
                yield click.style(f"{mark} {self.clean_line(told)}", fg=colour)

    def clean_line(self, line: str) -> str:
        """One line, safe for a terminal."""
        if "\x1b" in line:
            line = _COLOURS.sub("", line)
        line = line.rstrip("\r").expandtabs(4)
        is_plain = line.isprintable() and (self._unicode or line.isascii())
        return line if is_plain else phrases.make_writable(line)

    def _render_tool(self, use: Tool) -> str:
        mark, colour = look.STORIES["current"].mark
        name = click.style(f"{mark} {flatten(use.name, 60)}", fg=colour)
        detail = flatten(use.detail)
        return f"{name}  {detail}" if detail else name

    def _render_result(self, text: str, *, is_ok: bool) -> Iterator[str]:
        text = text.strip("\n")
        if not is_ok:
            yield _INDENT + click.style("failed" + (":" if text else ""), fg="red")
        if not text:
            return
        for line in _split_lines(text) if self._full else self._fold(text):
            yield click.style(_INDENT + self.clean_line(line), dim=True)

    def _fold(self, text: str) -> Iterator[str]:
        """The first and the last lines. The text may be huge: the lines in between are only counted."""
        hidden = text.count("\n") + 1 - 2 * _ENDS
        if hidden <= 1:
            yield from map(self._shorten_line, _split_lines(text))
            return
        start = end = 0
        for _ in range(_ENDS):
            end = text.index("\n", start)
            yield self._shorten_line(text[start:end])
            start = end + 1
        yield f"{self._choose_mark('…', '...')} {pluralize(hidden, 'line', 'lines')} more: --full"
        at = len(text)
        for _ in range(_ENDS):
            at = text.rindex("\n", 0, at)
        yield from map(self._shorten_line, _split_lines(text[at + 1 :]))

    def _shorten_line(self, line: str) -> str:
        if len(line) <= _WIDEST:
            return line
        return f"{line[:_WIDEST]}{self._choose_mark('…', '...')} ({len(line) - _WIDEST} characters more: --full)"

    def _choose_mark(self, pretty: str, plain: str) -> str:
        return pretty if self._unicode else plain

    # --- title and ending -------------------------------------------------------------------------

    def render_title(self, name: str, start: IterationStarted | None, workers: Sequence[str] = ()) -> list[str]:
        """Which iteration this is. `start` is None if its start is no longer known."""
        told = ""
        if start:
            agent = flatten(start.agent, 60)
            about = [
                phrases.format_story(start.story, start.title),
                phrases.format_attempt(start.attempt, start.attempts),
            ]
            told = ", ".join(filter(None, [*about, f"by {agent}" if agent else "", phrases.describe_workers(workers)]))
        return [click.style(self.clean_line(name), bold=True) + (f"  {told}" if told else ""), ""]

    def render_ending(
        self, verdict: Verdict | None, end: End | None, receipt: Receipt | None = None, *, is_running: bool
    ) -> Iterator[str]:
        """How it ended, its claim, and its use of resources."""
        yield ""
        if verdict:
            why = "" if verdict.status == "completed" else "; ".join(phrases.flatten_first(verdict.reasons))
            told = why or ("" if verdict.summary == verdict.status else flatten(verdict.summary))
            yield click.style(flatten(verdict.status, 20), bold=True) + (f": {told}" if told else "")
        elif is_running:
            yield click.style("it is still running", bold=True) + ": -f follows it"
        else:
            yield click.style("it was never judged", bold=True) + ": its run was cut off"
        if receipt and verdict and verdict.status == "completed":
            yield describe_receipt(receipt)
        if end and not end.ok and (reason := flatten(end.reason)):
            yield f"the agent ended with: {reason}"
        if used := _describe_use(verdict or self._used, verdict.seconds if verdict else Durations()):
            yield f"used: {used}"


def _describe_use(used: Verdict | ResourceUse, took: Durations) -> str:
    read, written = used.input_tokens, used.output_tokens
    parts = [f"{format_tokens(read)} tokens in, {format_tokens(written)} out" if read or written else ""]
    parts.append(format_cost(used.cost or 0.0))
    parts += [f"{name} {format_duration(one)}" for name, one in (("agent", took.agent), ("gates", took.gates)) if one]
    return ", ".join(one for one in parts if one)


def _split_lines(text: str) -> Iterator[str]:
    """Yields line by line: all at once would take the same memory again."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
