"""`ralphtool watch`: watch a run live or afterwards."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project
from ralphtool.core.amounts import format_recorded_time
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.errors import InvalidValue, RalphError, RunDied, from_os_error
from ralphtool.record import run_command
from ralphtool.record import runs as records
from ralphtool.record.run_end import RunEnd
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from ralphtool.record.runs import RunSummary

NEWEST = 20
_HEARTBEAT = 1.0  # seconds between two checks that a run is alive
_SPEED = 60.0
_FASTEST = 1e6


def complete_from(complete: Callable[[str], Sequence[str]]) -> Callable[..., list[CompletionItem]]:
    def items(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            found = complete(project.find())
        except (RalphError, OSError):
            return []  # shell completion can't show errors
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return items


def warn(error: OSError | RalphError) -> None:
    told = from_os_error(error) if isinstance(error, OSError) else error
    echo(f"Warning: {make_printable(str(told))}", err=True)


def make_writable(text: str) -> str:
    shown = make_printable(text)
    return shown if can_write_unicode() else shown.encode("ascii", "backslashreplace").decode()


def _checked_speed(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= _FASTEST:  # also rejects NaN
        raise click.BadParameter(f"{value:g} is not between 0 and {_FASTEST:,.0f}")
    return value


@click.command(cls=FittingCommand)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_from(records.list_ids))
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
    going = [run for run in _list_unfinished(root) if run.state in ("running", "paused")]
    if not going:
        return records.find(root, None)
    if len(going) > 1:
        others = ", ".join(make_printable(run.id) for run in going[1:])
        echo(f"Watching {make_printable(going[0].id)}; also in progress: {others}", err=True)
    return going[0]


def _list_unfinished(root: str) -> Iterator[RunSummary]:
    """Those of the newest runs whose record has no end. Most have one, and are not read any further."""
    for id in records.list_ids(root)[:NEWEST]:
        try:
            if not records.has_ended(root, id):
                yield records.read_summary(root, id)
        except (OSError, RalphError) as error:
            warn(error)


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
                f"{make_writable(run.id)}, started {format_recorded_time(run.began) or 'at an unknown time'}", dim=True
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
