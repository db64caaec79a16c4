"""The events of a run for the tests of the views, and how they are drawn."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from ralphtool.record import events
from ralphtool.views.terminal.picture import RunDisplay

Event = dict[str, Any]
NOON = "2026-03-01T12:00:00.000000Z"


def at(seconds: int) -> str:
    return f"2026-03-01T{12 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.000000Z"


def clock(seconds: int) -> Callable[[], float]:
    noon = 1772366400.0
    return lambda: noon + seconds


def story(id: str, title: str, done: bool = False) -> Event:
    return {"id": id, "title": title, "tasks_total": 4, "tasks_done": 4 * done, "done": done}


def started(*stories: Event) -> Event:
    fields = {"change": "add-login", "agent": "claude", "branch": "ralph/add-login", "stories": list(stories)}
    return {"at": NOON, "type": "run_started", **fields}


def iteration(id: str, attempt: int = 1, begun: int = 0, **more: Any) -> Event:
    fields = {"story": id, "attempt": attempt, "attempts": 3, "agent": "claude", **more}
    return {"at": at(begun), "type": "iteration_started", **fields}


def said(kind: str, seconds: int = 0, **fields: Any) -> Event:
    return {"at": at(seconds), "type": "agent", "event": {"kind": kind, **fields}}


def gate(command: str, ok: bool, when: str = "after", **fields: Any) -> Event:
    return {"at": at(9), "type": "gate", "when": when, "command": command, "ok": ok, "seconds": 12.0, **fields}


def ended(*stories: Event, result: str = "unfinished", **fields: Any) -> Event:
    return {"at": at(3600), "type": "run_ended", "result": result, "stories": list(stories), **fields}


THREE = started(story("1", "Set up", done=True), story("2", "Login form"), story("3", "Sign out"))


def encoded(event: Event) -> bytes:
    """The line of an event from any writer; JSON has no infinity, but numbers that are as large."""
    return json.dumps(event).replace("NaN", "1e999").replace("Infinity", "1e999").encode()


def typed(event: Event) -> events.Event | None:
    """The event as a reader decodes it."""
    return events.decode(encoded(event))


def all_typed(happened: Iterable[Event]) -> list[events.Event]:
    return [one for event in happened if (one := typed(event))]


def drawn(view: RunDisplay, width: int, height: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(view.render(width, height))
    return console.export_text().rstrip("\n").split("\n")


def told(*happened: Event) -> list[str]:
    """The lines that describe these events."""
    view = RunDisplay(clock(0))
    lines = []
    for event in all_typed(happened):
        view.feed(event)
        if line := view.describe(event):
            lines.append(line.plain)
    return lines


NASTY = "\x1b[2J\x1b]0;title\x07[red]mine[/red] :smile: \x9b31m \u202edlrow\r\n\x00 \x1b"


FIVE = ended(
    {"id": "1", "title": "Set up", "state": "done", "commit": "41b0c2d9a8f7e6", "seconds": 60, "attempts": 1},
    {"id": "2", "title": "Form", "state": "waiting", "question": ".ralph/questions/2.md", "why": "no mail server"},
    {"id": "3", "title": "Out", "state": "failed", "why": "pytest is red", "attempts": 3, "seconds": 700, "cost": 1.5},
    {"id": "4", "title": "Hints", "state": "skipped", "why": "optional"},
    {"id": "5", "title": "Later", "state": "open"},
    reason="Nothing more can be done.",
    spent={"seconds": 3600, "agent_seconds": 700, "iterations": 4, "input_tokens": 1_200_000, "cost": 1.5},
    next=[{"say": "Answer, then:", "run": "ralphtool  run 'add login'"}, {"say": "Or sleep on.", "run": None}],
)
