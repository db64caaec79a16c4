"""The history as tables: coloured and fitted to a terminal, plain and never cut elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ralphtool.ui.terminal import printable, writes_unicode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.history import Seen, Tally
    from ralphtool.history.records import Entry, Learning, Pattern

_STYLES = {"completed": "green", "partial": "yellow", "failed": "red", "blocked": "magenta"}
_MARKS = {"completed": "█", "partial": "▄", "failed": "▁", "blocked": "▒"}
_PLAIN_MARKS = {"completed": "#", "partial": "+", "failed": "-", "blocked": "!"}
_RECENT = 60  # as many endings fit into a line


def _print(what: Table | Text) -> None:
    Console(highlight=False, markup=False, emoji=False).print(what)


def show(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], nothing: str) -> None:
    """A table; the last column takes what room is left."""
    lines = [[cell if isinstance(cell, Text) else _line(cell) for cell in row] for row in rows]
    if not lines:
        say(nothing)
    elif sys.stdout.isatty():
        _show_fitted(columns, lines)
    else:
        _show_plain(columns, lines)


def _show_fitted(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def _show_plain(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """One line for each row, for programs that read lines. The last column is as long as it is."""
    texts = [list(columns), *([cell.plain for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [text + " " * (width - cell_len(text)) for text, width in zip(row[:-1], widths[:-1], strict=True)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())


def _line(text: str) -> Text:
    """One line of it: agents write what stands here."""
    return Text(printable(" ".join(text.split())))


def say(text: str, style: str = "") -> None:
    if sys.stdout.isatty():
        _print(Text(text, style=style))
    else:
        click.echo(text)


def status(name: str) -> Text:
    return Text(name, style=_STYLES.get(name, ""))


def day(moment: str) -> str:
    return moment[:16].replace("T", " ")


def entries(found: Sequence[Entry], nothing: str = "There are no entries yet.") -> None:
    rows = [(_line(one.id), day(one.timestamp), status(one.status), _length(one), one.summary or "") for one in found]
    show(("ENTRY", "WHEN", "STATUS", "TOOK", "SUMMARY"), rows, nothing)


def _length(entry: Entry) -> str:
    if not isinstance(entry.duration_seconds, int):
        return ""
    minutes, seconds = divmod(entry.duration_seconds, 60)
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes >= 60 else f"{minutes}m{seconds:02}s"


def observations(found: Sequence[Seen], nothing: str) -> None:
    rows = []
    for seen in found:
        one = seen.observation
        text = one.title if not one.description else f"{one.title}: {one.description}"
        rows.append((seen.entry.id, one.type, one.category or "", one.severity or "", one.action_taken or "", text))
    show(("ENTRY", "TYPE", "CATEGORY", "SEVERITY", "ACTION", "WHAT"), rows, nothing)


def learnings(found: Sequence[Learning]) -> None:
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
    show(("LEARNING", "TYPE", "FROM", "USED", "WHAT"), rows, "Nothing has been learnt yet.")


def patterns(found: Sequence[Pattern]) -> None:
    rows = [(one.id, one.type, one.confidence or "", f"{one.name}: {one.description or ''}") for one in found]
    show(("PATTERN", "TYPE", "CONFIDENCE", "WHAT"), rows, "No patterns have been found yet.")


def failures(found: dict[str, int]) -> None:
    most = max(found.values(), default=0)
    rows = [(category, str(times), bar(times, most, "red")) for category, times in found.items()]
    show(("CATEGORY", "TIMES", ""), rows, "Nothing was observed in attempts that failed.")


def tallies(found: Sequence[Tally]) -> None:
    rows: list[tuple[str | Text, ...]] = []
    for one in found:
        rate = f"{100 * one.completed // one.attempts}%"
        ends = [str(number) if number else "" for number in (one.completed, one.partial, one.failed, one.blocked)]
        rows.append((one.prd_id, str(one.attempts), *ends, bar(one.completed, one.attempts, "green", rate)))
    show(("STORY", "ATTEMPTS", "COMPLETED", "PARTIAL", "FAILED", "BLOCKED", "SUCCESS"), rows, "")


def bar(part: int, whole: int, style: str, label: str = "") -> Text:
    full, rest = ("█", "░") if writes_unicode() else ("#", ".")
    length = 10 * part // whole if whole else 0
    return Text.assemble((full * length, style), (rest * (10 - length), "dim"), f" {label}" if label else "")


def endings(statuses: Sequence[str]) -> None:
    """How the last iterations ended, one mark for each."""
    marks = _MARKS if writes_unicode() else _PLAIN_MARKS
    line = Text.assemble(*((marks[one], _STYLES[one]) for one in statuses[-_RECENT:]))
    key = Text.assemble(*(part for name in marks for part in ("  ", (marks[name], _STYLES[name]), f" {name}")))
    if sys.stdout.isatty():
        _print(Text.assemble(line, key))
    else:
        click.echo(f"{line.plain}{key.plain}")
