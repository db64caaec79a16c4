"""The lines of a run's log in the page: each event as a few short values, with texts that are safe to show.

They are in the order of the record, and each has the offset of its event there: a page that reconnects continues after
its last item, and older items are read when the user scrolls back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralphtool import agents
from ralphtool.record import events
from ralphtool.record.events import Agent, IterationStarted, WorkerJoined
from ralphtool.record.lines import LineReader
from ralphtool.record.view_parts import parse_time
from ralphtool.views.report import formatting
from ralphtool.views.terminal.event_lines import describe_event
from ralphtool.views.terminal.phrases import format_story

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphtool.record.events import AgentEvent, Event
    from ralphtool.record.view_parts import StoryView
    from ralphtool.views.terminal.styled import StyledLine

_LONGEST = 4000  # characters of an agent's message or a tool's result
_BLOCK = 192 << 10  # bytes of the record per message
_FARTHEST = 8 << 20  # bytes read per step back, at most
_TONES = (("red", "bad"), ("yellow", "warn"), ("green", "good"), ("cyan", "you"), ("bold", "head"))

Item = tuple[int, int, str, str, str, str]  # offset in the record, milliseconds, kind, story, text, details


class Batch(NamedTuple):
    """A part of the log, and the offset in the record after it."""

    items: list[Item]
    end: int
    is_behind: bool = False  # there is more to read now


def read_batch(path: str, offset: int, stories: Mapping[str, StoryView]) -> Batch:
    """The items from an offset on, which must be the beginning of a line."""
    reader = LineReader(path, offset - 1) if offset else LineReader(path)  # from an offset, it skips up to a line end
    lines = reader.read(_BLOCK)
    while not lines and reader.is_behind:
        lines = reader.read(_BLOCK)  # within a line that is longer than a block
    return Batch(_describe_lines(lines, reader.offset, stories), max(offset, reader.offset), reader.is_behind)


def read_before(path: str, end: int, most: int, story: str, stories: Mapping[str, StoryView]) -> tuple[list[Item], int]:
    """The last items before `end`, of one story or of all; and the `end` for the next call.

    Searches only a limited distance back at once. An `end` of 0 means that there is nothing more.
    """
    found: list[Item] = []
    until, block = end, _BLOCK
    while until > 0 and len(found) < most and end - until < _FARTHEST:
        reader = LineReader(path, max(0, until - block))
        lines = reader.read(block, until)
        if not lines and _BLOCK <= block < min(until, _FARTHEST):
            block *= 4  # a line that is longer than a block
            continue
        items = _describe_lines(lines, reader.offset, stories)
        found = [one for one in items if not story or one[3] == story] + found
        first = reader.offset - sum(len(line) + 1 for line in lines) if lines else max(0, until - block)
        until, block = first, _BLOCK
    shown = found[-most:]
    return shown, (shown[0][0] if len(found) > most else until)


def find_line(path: str, place: int) -> int:
    """The beginning of the first line after an offset."""
    reader = LineReader(path, place)
    lines = reader.read(_BLOCK)
    while not lines and reader.is_behind:
        lines = reader.read(_BLOCK)
    return reader.offset - sum(len(line) + 1 for line in lines)


def _describe_lines(lines: list[bytes], end: int, stories: Mapping[str, StoryView]) -> list[Item]:
    found: list[Item] = []
    place = end - sum(len(line) + 1 for line in lines)
    for line in lines:
        if (event := events.decode(line)) and (item := _describe(event, place, stories)):
            found.append(item)
        place += len(line) + 1
    return found


def _describe(event: Event, place: int, stories: Mapping[str, StoryView]) -> Item | None:
    story = getattr(event, "story", None) or ""
    moment = int((parse_time(event.at) or 0) * 1000)
    if isinstance(event, Agent) and not isinstance(event.event, agents.Failure):
        kind, text, more = _describe_said(event.event)
    else:
        known = stories.get(story)
        if known and isinstance(event, WorkerJoined) and known.is_known_worker(event):
            return None
        line = describe_event(event, format_story(story, known.title if known else "") if story else "")
        kind = "start" if isinstance(event, IterationStarted) else f"note {_choose_tone(line)}" if line else ""
        text, more = formatting.clean_line(line.plain if line else "", 1000), ""
    return (place, moment, kind, formatting.clean_line(story, 200), text, more) if kind else None


def _describe_said(said: AgentEvent) -> tuple[str, str, str]:
    """The kind and the texts of an agent's event; empty for events that are only counted."""
    match said:
        case agents.Message():
            return "say", formatting.clean_block(said.text, _LONGEST), ""
        case agents.Output() if said.text.strip():
            return "out", formatting.clean_block(said.text, _LONGEST), ""
        case agents.Tool():
            return "tool", formatting.clean_line(said.name, 60), formatting.clean_line(said.detail, 1000)
        case agents.Result() if said.text.strip() or not said.ok:
            return ("back" if said.ok else "back bad"), formatting.clean_block(said.text or "failed", _LONGEST), ""
    return "", "", ""


def _choose_tone(line: StyledLine) -> str:
    styles: Iterable[str] = {style for _, style in line}
    return next((tone for style, tone in _TONES if style in styles), "plain")
