"""`ralphtool runs` and `ralphtool watch`: list the runs, and watch one live or afterwards."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.core.amounts import format_cost, format_duration, format_recorded_time
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.errors import InvalidValue, RalphError, RunDied, from_os_error
from ralphtool.record import run_command
from ralphtool.record import runs as records
from ralphtool.record.run_end import RunEnd
from ralphtool.views import look
from ralphtool.views.terminal.wrapping import echo, glue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from ralphtool.record.runs import RunSummary

_NEWEST = 20
_HEARTBEAT = 1.0  # seconds between two checks that a run is alive
_GAP = 2
_SHORT_NAME = 26  # a run's name is cut to this before columns are dropped
_SPEED = 60.0
_FASTEST = 1e6


def _complete_from(complete: Callable[[str], Sequence[str]]) -> Callable[..., list[CompletionItem]]:
    def items(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            found = complete(project.find())
        except (RalphError, OSError):
            return []  # shell completion can't show errors
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return items


def _list_changes(root: str) -> list[str]:
    return sorted({records.parse_change(id) for id in records.list_ids(root)})


# --- runs -------------------------------------------------------------------------------------------


@click.command("runs", cls=FittingCommand)
@click.option(
    "--last",
    type=arguments.WholeNumber(min=1),
    default=_NEWEST,
    metavar="N",
    help="The maximum number of runs. [default: 20]",
)
@click.option(
    "--change", metavar="CHANGE", shell_complete=_complete_from(_list_changes), help="Only the runs of this change."
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
        run = _read_or_warn(root, id)
        if run is not None and change in (None, run.change):
            found.append(run)
    return found


def _read_or_warn(root: str, id: str) -> RunSummary | None:
    try:
        return records.read_summary(root, id)
    except (OSError, RalphError) as error:
        told = from_os_error(error) if isinstance(error, OSError) else error
        echo(f"Warning: {make_printable(str(told))}", err=True)
        return None


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
        command = glue(_make_writable(f"`{run_command.build_resuming(run)}`"))
        echo(f"{_make_writable(run.id)} died: {command} resumes where it stopped")


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
    stories = f"{run.stories_done}/{run.stories_total}" if run.stories_total else ""
    stories = "plan" if run.purpose == "plan" else stories
    seconds = records.measure_duration(run)
    took = "" if seconds is None else format_duration(seconds)
    cells = (run.id, run.change, format_recorded_time(run.began or run.last), took, run.state, stories)
    return (*map(_make_writable, cells), format_cost(cost))


def _make_writable(text: str) -> str:
    shown = make_printable(text)
    return shown if can_write_unicode() else shown.encode("ascii", "backslashreplace").decode()


# --- watch ------------------------------------------------------------------------------------------


def _checked_speed(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= _FASTEST:  # also rejects NaN
        raise click.BadParameter(f"{value:g} is not between 0 and {_FASTEST:,.0f}")
    return value


@click.command(cls=FittingCommand)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=_complete_from(records.list_ids))
@click.option("--replay", is_flag=True, help="Replay the run from its start.")
@click.option(
    "--speed",
    type=float,
    callback=_checked_speed,
    metavar="N",
    help="Replay N times faster; 0 is as fast as possible. Pauses are cut to 2 seconds. [default: 60]",
)
@click.option("--json", "as_json", is_flag=True, help="Print every event as one JSON object a line, for programs.")
def watch(run: str | None, replay: bool, speed: float | None, as_json: bool) -> int:
    """Watch a run live, or replay it afterwards.

    RUN is an id from `ralphtool runs`, its beginning or end, or the name of a change. The default is the run in
    progress, else the newest. Ctrl-C stops watching, not the run.

    \b
    Examples:
      ralphtool watch
      ralphtool watch add-login
      ralphtool watch 4f2a --replay --speed 300
      ralphtool watch --json | jq -r 'select(.type == "verdict") | .summary'
    """
    found = _choose_run(project.find(), run)
    replay = replay or speed is not None
    try:
        _watch_run(found, (_SPEED if speed is None else speed) if replay else None, as_json=as_json)
    except KeyboardInterrupt:
        if found.end is None and records.is_alive(found):
            echo("The run continues: `ralphtool watch` shows it again, `ralphtool stop` stops it.", err=True)
        return 130
    return 0


def _choose_run(root: str, name: str | None) -> RunSummary:
    """The named run; otherwise the one in progress, or the newest."""
    if name is not None:
        return records.find(root, name)
    going = [run for run in _list_runs(root, None, _NEWEST) if run.state in ("running", "paused")]
    if not going:
        return records.find(root, None)
    if len(going) > 1:
        others = ", ".join(make_printable(run.id) for run in going[1:])
        echo(f"Watching {make_printable(going[0].id)}; also in progress: {others}", err=True)
    return going[0]


class RunEndSignal:
    """Set when the run is over, whether its record has an end or not."""

    def __init__(self, run: RunSummary) -> None:
        self._run = run
        self._looked = 0.0
        self.is_dead = run.end is not None

    def is_set(self) -> bool:
        if not self.is_dead and time.monotonic() - self._looked > _HEARTBEAT:
            self._looked = time.monotonic()
            self.is_dead = not records.is_alive(self._run)
        return self.is_dead

    def wait(self, timeout: float) -> None:
        time.sleep(timeout)


def _watch_run(run: RunSummary, speed: float | None, *, as_json: bool) -> None:
    stop = RunEndSignal(run)
    if speed is None and as_json:
        from ralphtool.views.terminal import raw

        raw.follow(run.path, stop)
    elif speed is None and run.end is not None:
        click.echo(
            click.style(
                f"{_make_writable(run.id)}, started {format_recorded_time(run.began) or 'at an unknown time'}", dim=True
            )
        )
    else:
        _draw_run(run, stop, speed, as_json=as_json)
    _print_end(run, as_json=as_json)


def _draw_run(run: RunSummary, stop: RunEndSignal, speed: float | None, *, as_json: bool) -> None:
    """A separate function, because the drawing code takes as long to load as everything else."""
    from ralphtool.views.terminal import live

    if as_json:
        live.print_json(run.path, stop, speed)
    elif speed is not None:
        live.show_live(run.path, stop, live.WatchOptions(speed=speed))
    elif run.state == "died":
        live.show_last(run.path, run.last, stop)
    else:
        live.show_live(run.path, stop, live.JOINING)


def _print_end(before: RunSummary, *, as_json: bool) -> None:
    """Prints how the run ended, if it did: it may have continued since it was first read."""
    if sys.stdout is None:
        return
    try:
        run = records.read_summary(before.root, before.id) if before.end is None else before
    except InvalidValue:
        raise InvalidValue(f"the record of {before.id} was deleted: the run can't be shown any more") from None
    if run.end is None and not records.is_alive(run):
        when = f" (last event at {format_recorded_time(run.last)})" if run.last else ""
        raise RunDied(
            f"{run.id} died{when}: its process is gone without a final event; "
            f"`{run_command.build_resuming(run)}` resumes where it stopped"
        )
    if run.end is not None and not as_json:
        from ralphtool.record.outdated import update_end
        from ralphtool.views.terminal import summary

        summary.print_summary(update_end(run, RunEnd(run.end)), run.change)
