"""`ralphtool backtest`: what other limits would have changed in the runs that are on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ralphtool import settings as settings_module
from ralphtool.cli import arguments
from ralphtool.core import layout, project, quickjson
from ralphtool.core.text import printable
from ralphtool.errors import InvalidValue
from ralphtool.record import backtest as replayed
from ralphtool.record import runs, steps
from ralphtool.record.lines import LineReader
from ralphtool.views.terminal import summary, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from ralphtool.record.backtest import Backtest, Check, Difference, Total
    from ralphtool.record.steps import Run, Spent

_SHOWN = 3  # entries that are named one by one


def _limit_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The limits of `ralphtool run`, by the same names."""
    known = {one.key: one for one in settings_module.describe() if one.table == "run"}
    for name in reversed(steps.LIMITS):
        command = click.option(str(known[name].flag), name, metavar="VALUE", help=known[name].help)(command)
    return command


def _complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        found = runs.ids(project.find())
    except OSError:
        return []  # a shell waits for words, and has no place for an error
    return [CompletionItem(id) for id in found if id.startswith(incomplete)]


@click.command()
@_limit_flags
@click.option("--change", help="Only the runs of this change.", **arguments.ARGUMENT)
@click.option("--run", metavar="RUN", shell_complete=_complete_run, help="Only this run.")
@click.option("--last", metavar="N", type=click.IntRange(1), help="Only the last N runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def backtest(change: str | None, run: str | None, last: int | None, as_json: bool, **flags: str | None) -> None:
    """Tell what other limits would have changed: which decisions, and what that would have cost or saved.

    The runs on record are put once more through the same decisions, with the limits that you name. Nothing is run, and
    nothing is written. What would have come instead of what happened is an estimate, and is called one.

    \b
    Examples:
      ralphtool backtest --attempts 5
      ralphtool backtest --attempts 2 --change add-login
      ralphtool backtest --timeout 30m --max-cost 5 --last 10
      ralphtool backtest --attempts 2 --json | jq .totals
    """
    root = project.find()
    limits = _limits(root, flags)
    found, unreadable = _recorded(root, _chosen(root, change, run, last))
    done = replayed.backtest(found, limits)
    if as_json:
        click.echo(quickjson.dumps(_as_dict(done, limits, unreadable)))
    else:
        _show(done, limits, unreadable)


def _limits(root: str, flags: dict[str, str | None]) -> dict[str, float]:
    told = settings_module.load(root, flags).run
    return {name: getattr(told, name) for name, value in flags.items() if value is not None}


# --- reading ----------------------------------------------------------------------------------------


def _chosen(root: str, change: str | None, run: str | None, last: int | None) -> list[str]:
    if run is not None:
        return [runs.find(root, run).id]
    known = runs.ids(root)
    if not known:
        raise InvalidValue("there is no run here yet: `ralphtool run` begins one")
    if change is not None:
        known = [id for id in known if runs.read(root, id).change == change]
        if not known:
            raise InvalidValue(f"there is no run of {change[:100]} yet: `ralphtool runs` lists the runs")
    return known[:last]


def _recorded(root: str, ids: Sequence[str]) -> tuple[list[Run], list[str]]:
    """The runs, and the names of those whose record does not even tell how they began."""
    found, unreadable = [], []
    for id in ids:
        run = steps.read(LineReader(layout.events(root, id)).new_without_prose())
        if run is None:
            unreadable.append(id)
        else:
            found.append(run)
    if not found:
        raise InvalidValue(
            f"no record tells how its run began, so nothing can be replayed: look at {', '.join(unreadable[:_SHOWN])} "
            "in .ralph/runs"
        )
    return found, unreadable


# --- telling ----------------------------------------------------------------------------------------


def _as_dict(done: Backtest, limits: dict[str, float], unreadable: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(done)
    return {"limits": limits, **told, "totals": msgspec.to_builtins(done.totals()), "unreadable": unreadable}


def _show(done: Backtest, limits: dict[str, float], unreadable: list[str]) -> None:
    rows = [(one.entry, one.was, one.would_be, _what(one)) for one in done.differences]
    if rows:
        tables.show(("ENTRY", "WAS", "WOULD BE", "WHY, AND WHAT THAT MEANS"), rows, "")
        tables.say("")
        for name, total in done.totals().items():
            tables.say(_total(name, total))
    elif limits:
        tables.say(f"Nothing would have been different in {tables.plural(done.runs, 'run', 'runs')}.")
    else:
        tables.say("No other limit is given: name one, as in `ralphtool backtest --attempts 5`.")
    for line in _reliability(done.check, unreadable):
        tables.say(line)


def _what(one: Difference) -> str:
    """Why, and what it would have cost or saved, in words."""
    parts = [one.reason]
    if one.left_out:
        parts.append(f"{_names(one.left_out)} would not have happened")
    if _is_some(one.saved):
        parts.append(f"{_amount(one.saved)} saved")
    if one.more_attempts:
        parts.append(f"up to {tables.plural(one.more_attempts, 'more attempt', 'more attempts')}")
    if one.more is None:
        parts.append("nobody knows how much more it would have used")
    elif _is_some(one.more):
        parts.append(f"at the most about {_amount(one.more)} more (an estimate)")
    return "; ".join([*parts, *_fate(one)])


def _fate(one: Difference) -> list[str]:
    """What would have become of the work."""
    if one.lost:
        return [f"lost: {_names(one.lost)} completed {'its story' if len(one.lost) == 1 else 'their stories'}"]
    if one.completed_later:
        return [f"{one.completed_later} completed it later, with a human's help"]
    if one.would_be == "manual":
        return ["nothing lost: it never completed"]
    if one.left_out:
        return ["nothing lost: none of that completed a story"]
    return []


def _names(entries: Sequence[str]) -> str:
    more = f" and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return ", ".join(entries[:_SHOWN]) + more


def _is_some(spent: Spent) -> bool:
    return max(spent.seconds, spent.tokens, spent.cost) > 0


def _amount(spent: Spent) -> str:
    parts = [summary.duration(spent.seconds)] if spent.seconds else []
    if spent.tokens:
        parts.append(f"{summary.tokens(spent.tokens)} tokens")
    if spent.cost:
        parts.append(summary.money(spent.cost))
    return ", ".join(parts)


def _total(name: str, total: Total) -> str:
    parts = [tables.plural(total.differences, "difference", "differences")]
    if _is_some(total.saved):
        parts.append(f"{_amount(total.saved)} saved")
    if _is_some(total.more):
        parts.append(f"at the most about {_amount(total.more)} more (an estimate)")
    if total.lost:
        parts.append(f"{tables.plural(total.lost, 'story', 'stories')} lost")
    return f"--{name.replace('_', '-')}: {'; '.join(parts)}"


def _reliability(check: Check, unreadable: Sequence[str]) -> Iterator[str]:
    yield (
        f"{check.same} of {tables.plural(check.decisions, 'recorded decision', 'recorded decisions')} "
        f"come{'s' if check.same == 1 else ''} out the same with the recorded limits."
    )
    if check.otherwise:
        yield f"{check.otherwise} come out otherwise, and are left out: another version has decided them."
    if check.unknown:
        yield f"{check.unknown} can't be replayed, and are left out: the record does not tell enough."
    if unreadable:
        yield f"{tables.plural(len(unreadable), 'record', 'records')} can't be read: {printable(_names(unreadable))}."
