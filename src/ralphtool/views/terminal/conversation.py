"""What an agent said and did, for people: its words in full, each use of a tool as a line, what came back folded.

All of it was written by others. Colours are left out, and everything else that is no plain text becomes visible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ralphtool.core.text import writes_unicode
from ralphtool.views.terminal import summary
from ralphtool.views.terminal.summary import Fields
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_ENDS = 3  # lines that are shown of each end of what came back
_WIDEST = 200  # characters that are shown of a line of it
_INDENT = "    "


class Conversation:
    """Makes lines of an agent's events, in their order. `full` folds nothing."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._unicode = writes_unicode()
        self._last = ""  # the kind of the last that was shown
        self._used = {"input_tokens": 0.0, "output_tokens": 0.0, "cost": 0.0}

    def lines(self, event: dict[str, Any]) -> Iterator[str]:
        kind = event.get("kind")
        told = event.get("text")
        text = told if isinstance(told, str) else ""
        if kind == "usage":
            self._used = {name: value + Fields(event).number(name) for name, value in self._used.items()}
        if kind not in ("message", "output", "tool", "result", "failure"):
            return
        if self._last and "message" in (kind, self._last):
            yield ""
        self._last = kind
        match kind:
            case "message":
                yield from map(self.shown, _lines(text.strip("\n")))
            case "output":
                yield from map(self.shown, _lines(text))
            case "tool":
                yield self._tool(Fields(event))
            case "result":
                yield from self._result(text, is_ok=event.get("ok") is not False)
            case "failure":
                yield click.style(f"{self._mark('✗', 'x')} {self.shown(_failure(Fields(event)))}", fg="red")

    def shown(self, line: str) -> str:
        """One line, fit for a terminal."""
        if "\x1b" in line:
            line = _COLOURS.sub("", line)
        line = line.rstrip("\r").expandtabs(4)
        is_plain = line.isprintable() and (self._unicode or line.isascii())
        return line if is_plain else summary.writable(line)

    def _tool(self, use: Fields) -> str:
        name = click.style(f"{self._mark('▸', '>')} {use.text('name', 60)}", fg="cyan")
        detail = use.text("detail")
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

    def title(self, name: str, start: dict[str, Any]) -> list[str]:
        """Which iteration this is. `start` is its `iteration_started`, empty if nobody knows it any more."""
        fields = Fields(start)
        story = summary.label(Fields({"id": fields.raw("story"), "title": fields.raw("title")}))
        agent = fields.text("agent", 60)
        about = [story, summary.attempt(fields), f"by {agent}" if agent else ""] if start else []
        told = ", ".join(one for one in about if one)
        return [click.style(self.shown(name), bold=True) + (f"  {told}" if told else ""), ""]

    def ending(self, verdict: dict[str, Any], end: dict[str, Any], *, is_running: bool) -> Iterator[str]:
        """How it ended, and what it used."""
        fields = Fields(verdict)
        yield ""
        if verdict:
            why = "" if fields.raw("status") == "completed" else "; ".join(fields.texts("reasons"))
            told = why or fields.text("summary")
            yield click.style(fields.text("status", 20), bold=True) + (f": {told}" if told else "")
        elif is_running:
            yield click.style("it is still running", bold=True) + ": -f goes on with it"
        else:
            yield click.style("it was never judged", bold=True) + ": its run was cut off"
        if end.get("ok") is False and (reason := Fields(end).text("reason")):
            yield f"the agent ended with: {reason}"
        if used := _used(fields if verdict else Fields(self._used), fields.inside("seconds")):
            yield f"used: {used}"


def _failure(fields: Fields) -> str:
    return f"{fields.text('trouble', 40)}: {fields.text('text', 1000)}"


def _used(fields: Fields, took: Fields) -> str:
    read, written = fields.number("input_tokens"), fields.number("output_tokens")
    parts = [f"{summary.tokens(read)} tokens read, {summary.tokens(written)} written" if read or written else ""]
    parts.append(summary.money(fields.number("cost")))
    parts += [f"{name} {summary.duration(took.number(name))}" for name in ("agent", "gates") if took.number(name)]
    return ", ".join(one for one in parts if one)


def _lines(text: str) -> Iterator[str]:
    """One after the other: all at once would take as much memory again."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
