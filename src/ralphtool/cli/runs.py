"""`ralphtool runs`: list the runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.cli.watch import NEWEST, complete_from, make_writable, warn
from ralphtool.core import project, quickjson
from ralphtool.core.amounts import format_cost, format_duration, format_recorded_time
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.errors import RalphError
from ralphtool.record import run_command
from ralphtool.record import runs as records
from ralphtool.views import look
from ralphtool.views.terminal.wrapping import echo, glue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.record.runs import RunSummary

_GAP = 2
_SHORT_NAME = 26  # a run's name is cut to this before columns are dropped


def _list_changes(root: str) -> list[str]:
    return sorted({records.parse_change(id) for id in records.list_ids(root)})


@click.command("runs", cls=FittingCommand)
@click.option(
    "--last",
    type=arguments.WholeNumber(min=1),
    default=NEWEST,
    metavar="N",
    help="The maximum number of runs. [default: 20]",
)
@click.option(
    "--change", metavar="CHANGE", shell_complete=complete_from(_list_changes), help="Only the runs of this change."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def runs(last: int, change: str | None, as_json: bool) -> None:
    """List the runs and their results, newest first.

    \b
    Examples:
      ralphtool runs
      ralphtool runs --change add-login --last 3
      ralphtool runs --json | jq -r '.runs[] | select(.state == "died") | .id'
    """
    root = project.find()
    found = _list_runs(root, change, last)
    if change and not found:
        _check_change(root, change)
    if as_json:
        click.echo(quickjson.dumps({"runs": [_run_as_dict(run) for run in found]}))
    elif found:
        _print_runs(found)
    else:
        about = f"of {make_printable(change)} " if change else ""
        command = f"ralphtool run {make_printable(change or '')}".strip()
        echo(f"There are no runs {about}here yet: `{command}` starts one.")


def _check_change(root: str, change: str) -> None:
    from ralphtool.record import overview  # a list of runs doesn't need it

    if change not in (known := overview.list_names(root)):
        raise overview.build_not_found_error(change, known)


def _list_runs(root: str, change: str | None, last: int) -> list[RunSummary]:
    found: list[RunSummary] = []
    for id in records.list_ids(root):
        if len(found) == last:
            break
        if change is not None and records.parse_change(id) != change[: len(records.parse_change(id))]:
            continue
        try:
            run = records.read_summary(root, id)
        except (OSError, RalphError) as error:
            warn(error)
            continue
        if change in (None, run.change):
            found.append(run)
    return found


def _run_as_dict(run: RunSummary) -> dict[str, Any]:
    names = ("id", "change", "purpose", "agent", "branch", "state", "reason", "began", "ended")
    told = {name: getattr(run, name) for name in names}
    counts = {"stories_done": run.stories_done, "stories_total": run.stories_total, "proofs": run.proofs}
    return {**told, "seconds": records.measure_duration(run), **counts, "spent": run.spent, "path": run.path}


def _print_runs(found: Sequence[RunSummary]) -> None:
    table = [("RUN", "CHANGE", "WHEN", "TIME", "STATE", "STORIES", "COST"), *map(_build_row, found)]
    columns, widths = _fit_columns([column for column in zip(*table, strict=True) if any(column[1:])], _find_width())
    for number, row in enumerate(zip(*columns, strict=True)):
        cells = [_shorten_name(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True)]
        click.echo(_style_line("  ".join(cells).rstrip(), found[number - 1].state if number else None))
    for run in _select_resumable(found):
        command = glue(make_writable(f"`{run_command.build_resuming(run)}`"))
        echo(f"{make_writable(run.id)} died: {command} resumes where it stopped")


def _select_resumable(found: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs that died and that no later run of their change has resumed."""
    newest = {run.change: run for run in reversed(found)}
    return [run for run in newest.values() if run.change and run.state == "died"]


def _fit_columns(columns: list[tuple[str, ...]], width: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """The columns that fit, and their widths. The change is dropped first, because the run's name contains it."""

    def sizes() -> list[int]:
        return [max(map(len, column)) + _GAP for column in columns]

    for least in ("CHANGE", "COST", "WHEN", "TIME", "STORIES"):
        name, *others = sizes()
        if (name if least == "CHANGE" else min(name, _SHORT_NAME)) + sum(others) - _GAP > width:
            columns = [column for column in columns if column[0] != least]
    name, *others = (size - _GAP for size in sizes())
    room = width - sum(others) - _GAP * len(others)
    return columns, [max(4, min(name, room)), *others]


def _find_width() -> int:
    """The maximum width of a line; practically unlimited without a terminal."""
    if not sys.stdout.isatty():
        return 10_000
    return os.get_terminal_size(sys.stdout.fileno()).columns or 80


def _shorten_name(name: str, width: int) -> str:
    """Removes the middle: the end of a name tells runs apart."""
    if len(name) <= width:
        return name
    gap = "…" if can_write_unicode() else "."
    kept = width - len(gap)
    return name[: kept - kept // 2] + gap + name[len(name) - kept // 2 :]


def _style_line(line: str, state: str | None) -> str:
    if state is None:
        return click.style(line, dim=True)
    colour = look.RUNS[state].colour
    return line.replace(f"  {state}", f"  {click.style(state, fg=colour)}", 1) if colour else line


def _build_row(run: RunSummary) -> tuple[str, ...]:
    cost = run.spent.get("cost")
    cost = cost if isinstance(cost, int | float) and cost < 1e9 else 0.0
    seconds = records.measure_duration(run)
    took = "" if seconds is None else format_duration(seconds)
    stories = records.describe_progress(run)
    cells = (run.id, run.change, format_recorded_time(run.began or run.last), took, run.state, stories)
    return (*map(make_writable, cells), format_cost(cost))
