"""`ralphtool backtest`: how other limits would have changed recorded runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ralphtool import settings as settings_module
from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import layout, project, quickjson
from ralphtool.core.amounts import format_cost, format_duration, format_tokens, pluralize
from ralphtool.core.text import make_printable
from ralphtool.errors import InvalidValue
from ralphtool.record import backtest as replayed
from ralphtool.record import runs, steps
from ralphtool.record.lines import LineReader
from ralphtool.views.terminal import tables
from ralphtool.views.terminal.phrases import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from ralphtool.record.backtest import Backtest, Difference, LimitTotal, ReplayCheck
    from ralphtool.record.steps import Expense, RecordedRun

_SHOWN = 3  # entries that are listed by name


def _add_limit_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the limits of `ralphtool run`, with the same names."""
    known = {one.key: one for one in settings_module.describe() if one.table == "run"}
    for name in reversed(steps.LIMITS):
        command = click.option(str(known[name].flag), name, metavar=known[name].metavar, help=known[name].help)(command)
    return command


def _complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        found = runs.list_ids(project.find())
    except OSError:
        return []  # shell completion can't show errors
    return [CompletionItem(id) for id in found if id.startswith(incomplete)]


@click.command(cls=FittingCommand)
@_add_limit_flags
@click.option("--change", help="Only the runs of this change.", **arguments.ARGUMENT)
@click.option("--run", metavar="RUN", shell_complete=_complete_run, help="Only this run.")
@click.option("--last", metavar="N", type=arguments.WholeNumber(1), help="Only the last N runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def backtest(change: str | None, run: str | None, last: int | None, as_json: bool, **flags: str | None) -> None:
    """Replay past runs with other limits: which decisions would differ, and the cost or savings.

    The decisions of recorded runs are computed again with the limits that you give. Nothing is run and nothing is
    written. Results that depend on attempts that never happened are marked as estimates.

    \b
    Examples:
      ralphtool backtest --attempts 5
      ralphtool backtest --attempts 2 --change add-login
      ralphtool backtest --timeout 30m --max-cost 5 --last 10
      ralphtool backtest --attempts 2 --json | jq .totals
    """
    root = project.find()
    limits = _read_limits(root, flags)
    found, unreadable = _read_runs(root, _choose_runs(root, change, run, last))
    done = replayed.backtest(found, limits)
    if as_json:
        click.echo(quickjson.dumps(_result_as_dict(done, limits, unreadable)))
    else:
        _print_result(done, limits, unreadable)


def _read_limits(root: str, flags: dict[str, str | None]) -> dict[str, float]:
    told = settings_module.load(root, flags).run
    return {name: getattr(told, name) for name, value in flags.items() if value is not None}


# --- reading ----------------------------------------------------------------------------------------


def _choose_runs(root: str, change: str | None, run: str | None, last: int | None) -> list[str]:
    if run is not None:
        return [runs.find(root, run).id]
    known = runs.list_ids(root)
    if not known:
        raise InvalidValue("there are no runs yet: `ralphtool run` starts one")
    if change is not None:
        known = [id for id in known if runs.read_summary(root, id).change == change]
        if not known:
            raise InvalidValue(f"there is no run of {change[:100]} yet: `ralphtool runs` lists the runs")
    return known[:last]


def _read_runs(root: str, ids: Sequence[str]) -> tuple[list[RecordedRun], list[str]]:
    """The runs, and the names of those whose record has no start."""
    found, unreadable = [], []
    for id in ids:
        run = steps.read_run(LineReader(layout.events(root, id)).new_without_prose())
        if run is None:
            unreadable.append(id)
        else:
            found.append(run)
    if not found:
        raise InvalidValue(
            "no run can be replayed, because the records of how they started are missing: check "
            f"{', '.join(unreadable[:_SHOWN])} in .ralph/runs"
        )
    return found, unreadable


# --- output -----------------------------------------------------------------------------------------


def _result_as_dict(done: Backtest, limits: dict[str, float], unreadable: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(done)
    return {"limits": limits, **told, "totals": msgspec.to_builtins(done.sum_by_limit()), "unreadable": unreadable}


def _print_result(done: Backtest, limits: dict[str, float], unreadable: list[str]) -> None:
    rows = [
        (one.entry, _name_action(one.was), _name_action(one.would_be), _describe_difference(one))
        for one in done.differences
    ]
    if rows:
        tables.print_table(("ENTRY", "WAS", "WOULD BE", "REASON AND CONSEQUENCE"), rows, "")
        tables.print_line("")
        for name, total in done.sum_by_limit().items():
            tables.print_line(_describe_total(name, total))
    elif limits:
        tables.print_line(f"Nothing would have been different in {pluralize(done.runs, 'run', 'runs')}.")
    else:
        tables.print_line("No limit is given: add one, as in `ralphtool backtest --attempts 5`.")
    for line in _describe_reliability(done.check, unreadable):
        tables.print_line(line)


def _name_action(action: str) -> str:
    return ACTIONS.get(action, action)


def _describe_difference(one: Difference) -> str:
    """The reason, and the cost or savings, in words."""
    parts = [one.reason]
    if one.left_out:
        parts.append(f"{_join_names(one.left_out)} would not have happened")
    if _is_nonzero(one.saved):
        parts.append(f"{_format_amount(one.saved)} saved")
    if one.more_attempts:
        parts.append(f"up to {pluralize(one.more_attempts, 'more attempt', 'more attempts')}")
    if one.more is None:
        parts.append("its additional usage is unknown")
    elif _is_nonzero(one.more):
        parts.append(f"at most about {_format_amount(one.more)} more (an estimate)")
    return "; ".join([*parts, *_describe_lost_work(one)])


def _describe_lost_work(one: Difference) -> list[str]:
    """What would have happened to the work."""
    if one.lost:
        return [f"lost: {_join_names(one.lost)} completed {'its story' if len(one.lost) == 1 else 'their stories'}"]
    if one.completed_later:
        return [f"{one.completed_later} completed it later, with a human's help"]
    if one.would_be == "manual":
        return ["nothing lost: it never completed"]
    if one.left_out:
        return ["nothing lost: none of these completed a story"]
    return []


def _join_names(entries: Sequence[str]) -> str:
    more = f" and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return ", ".join(entries[:_SHOWN]) + more


def _is_nonzero(spent: Expense) -> bool:
    return max(spent.seconds, spent.tokens, spent.cost) > 0


def _format_amount(spent: Expense) -> str:
    parts = [format_duration(spent.seconds)] if spent.seconds else []
    if spent.tokens:
        parts.append(f"{format_tokens(spent.tokens)} tokens")
    if spent.cost:
        parts.append(format_cost(spent.cost))
    return ", ".join(parts)


def _describe_total(name: str, total: LimitTotal) -> str:
    parts = [pluralize(total.differences, "difference", "differences")]
    if _is_nonzero(total.saved):
        parts.append(f"{_format_amount(total.saved)} saved")
    if _is_nonzero(total.more):
        parts.append(f"at most about {_format_amount(total.more)} more (an estimate)")
    if total.lost:
        parts.append(f"{pluralize(total.lost, 'story', 'stories')} lost")
    return f"--{name.replace('_', '-')}: {'; '.join(parts)}"


def _describe_reliability(check: ReplayCheck, unreadable: Sequence[str]) -> Iterator[str]:
    yield (
        f"{check.same} of {pluralize(check.decisions, 'recorded decision', 'recorded decisions')} "
        f"come{'s' if check.same == 1 else ''} out the same with the recorded limits."
    )
    if check.otherwise:
        yield f"{check.otherwise} come out differently and are left out: another version made them."
    if check.unknown:
        yield f"{check.unknown} can't be replayed and are left out: the record is incomplete."
    if unreadable:
        names = make_printable(_join_names(unreadable))
        yield f"{pluralize(len(unreadable), 'record', 'records')} can't be read: {names}."
