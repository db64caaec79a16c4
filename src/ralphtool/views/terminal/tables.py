"""The history as tables: in a terminal coloured and fitted to its width, elsewhere plain and never cut."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

import click
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ralphtool.core.amounts import format_duration, format_recorded_time
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.views.look import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.history import AttemptCounts, EntryObservation
    from ralphtool.history.records import Entry, Learning, Pattern

_MARKS = {"completed": "█", "partial": "▄", "failed": "▁", "blocked": "▒"}
_PLAIN_MARKS = {"completed": "#", "partial": "+", "failed": "-", "blocked": "!"}
_RECENT = 60  # endings that fit into a line
_GAP = 2
_INDENT = 4
_ROOM = 30  # columns for the text
_LONGEST = 600  # characters of one text on a screen


def _build_console() -> Console:
    # Without colours, no other escape sequences either, like the commands that print with click.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, color_system=colours)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], nothing: str) -> None:
    """A table; the last column takes the remaining room."""
    lines = [[cell if isinstance(cell, Text) else _make_line(cell) for cell in row] for row in rows]
    if not lines:
        print_line(nothing)
    elif sys.stdout.isatty():
        _print_fitted(columns, lines)
    else:
        _print_plain(columns, lines)


def _print_fitted(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    console = _build_console()
    widths = [max(len(name), *(row[index].cell_len for row in rows)) for index, name in enumerate(columns[:-1])]
    last = max(len(columns[-1]), *(row[-1].cell_len for row in rows))
    if sum(widths) + _GAP * len(widths) > console.width - min(last, _ROOM):
        _print_stacked(console, columns, rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=False):
        table.add_column(column, no_wrap=True, width=width)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*row[:-1], _shorten(row[-1]))
    console.print(table)


def _print_stacked(console: Console, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """For narrow terminals: the text goes below the other columns, and no word is cut."""
    console.print(Text("  ".join(columns), style="bold"))
    gap = Text(" " * _GAP)
    for row in rows:
        console.print(gap.join(cell for cell in row[:-1] if cell.plain))
        if row[-1].plain:
            console.print(Padding(_shorten(row[-1]), (0, 0, 0, _INDENT)))


def _shorten(text: Text) -> Text:
    """Cut to fit on a screen: a text may be as long as a file."""
    if len(text) <= _LONGEST:
        return text
    return Text.assemble(text[:_LONGEST], f"... ({len(text)} characters; --json has them all)")


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """One line for each row, for programs that read lines. The last column is not padded."""
    texts = [list(columns), *([cell.plain for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [text + " " * (width - cell_len(text)) for text, width in zip(row[:-1], widths[:-1], strict=True)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())


def _make_line(text: str) -> Text:
    """A text as one line with visible control characters: agents write these texts."""
    shown = make_printable(" ".join(text.split()))
    return Text(shown if can_write_unicode() else shown.encode("ascii", "backslashreplace").decode())


def print_line(text: str, style: str = "") -> None:
    if sys.stdout.isatty():
        _build_console().print(Text(text, style=style))
    else:
        click.echo(text)


def style_status(name: str) -> Text:
    return Text(name, style=ATTEMPTS[name].colour if name in ATTEMPTS else "")


def print_entries(found: Sequence[Entry], nothing: str = "There are no entries yet.") -> None:
    rows = [
        (
            _make_line(one.id),
            format_recorded_time(one.timestamp),
            style_status(one.status),
            format_duration(one.duration_seconds) if isinstance(one.duration_seconds, int) else "",
            one.summary or "",
        )
        for one in found
    ]
    print_table(("ENTRY", "WHEN", "STATUS", "TOOK", "SUMMARY"), rows, nothing)


def print_observations(found: Sequence[EntryObservation], nothing: str) -> None:
    rows = []
    for seen in found:
        one = seen.observation
        about = [word for word in (one.type, one.category, one.severity, one.action_taken) if word]
        rows.append((seen.entry.id, " ".join(about), _join_title(one.title, one.description or "")))
    print_table(("ENTRY", "KIND", "WHAT"), rows, nothing)


def print_learnings(found: Sequence[Learning]) -> None:
    rows = [
        (
            one.id if one.still_valid else f"{one.id} (invalid)",
            one.type,
            one.source_prd_id,
            str(one.times_referenced),
            one.content,
        )
        for one in found
    ]
    print_table(("LEARNING", "TYPE", "FROM", "USED", "WHAT"), rows, "Nothing has been learnt yet.")


def print_patterns(found: Sequence[Pattern]) -> None:
    rows = [(one.id, one.type, one.confidence or "", _join_title(one.name, one.description or "")) for one in found]
    print_table(("PATTERN", "TYPE", "CONFIDENCE", "WHAT"), rows, "No patterns have been found yet.")


def _join_title(title: str, text: str) -> str:
    return text if text.lstrip("*`").startswith(title) else f"{title}: {text}" if text else title


def print_failures(found: dict[str, int]) -> None:
    most = max(found.values(), default=0)
    rows = [(category, str(times), render_bar(times, most, "red")) for category, times in found.items()]
    print_table(("CATEGORY", "TIMES", ""), rows, "Nothing was observed in attempts that failed.")


def print_attempt_counts(found: Sequence[AttemptCounts]) -> None:
    rows: list[tuple[str | Text, ...]] = []
    for one in found:
        rate = f"{100 * one.completed // one.attempts}%"
        ends = [str(number) if number else "" for number in (one.completed, one.partial, one.failed, one.blocked)]
        rows.append((one.prd_id, str(one.attempts), *ends, render_bar(one.completed, one.attempts, "green", rate)))
    print_table(("STORY", "ATTEMPTS", "COMPLETED", "PARTIAL", "FAILED", "BLOCKED", "SUCCESS"), rows, "")


def render_bar(part: int, whole: int, style: str, label: str = "") -> Text:
    full, rest = ("█", "░") if can_write_unicode() else ("#", ".")
    length = 10 * part // whole if whole else 0
    return Text.assemble((full * length, style), (rest * (10 - length), "dim"), f" {label}" if label else "")


def print_statuses(statuses: Sequence[str]) -> None:
    """How the last iterations ended, one mark for each."""
    marks = _MARKS if can_write_unicode() else _PLAIN_MARKS
    line = Text.assemble(*((marks[one], ATTEMPTS[one].colour) for one in statuses[-_RECENT:]))
    key = Text.assemble(*(part for name in marks for part in ("  ", (marks[name], ATTEMPTS[name].colour), f" {name}")))
    if sys.stdout.isatty():
        _build_console().print(Text.assemble(line, key))
    else:
        click.echo(f"{line.plain}{key.plain}")
