"""Chooses the change if none is named: the only open one, or the user's choice."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from ralphtool import specs
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeNotFound, InvalidValue, RalphError, UsageError, shorten
from ralphtool.record import overview
from ralphtool.specs import scaffold
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.record.overview import Overview


def find_open(root: str) -> list[Overview]:
    """The changes with open tasks, in the order of `ralphtool list`."""
    return [one for one in overview.list_overviews(root) if _has_tasks_left(one)]


def _has_tasks_left(one: Overview) -> bool:
    return not one.problem and bool(one.tasks_total) and one.tasks_done != one.tasks_total


def _has_stories_left(one: Overview) -> bool:
    """True also if all boxes are ticked but a story has no boxes: its run reports that, and is not done."""
    return not one.problem and bool(one.tasks_total) and one.stories_done != one.stories_total


def choose(root: str, *, may_ask: bool = True) -> str:
    """The change to run. Asks nothing if standard output is for a program."""
    names = overview.list_names(root)
    if len(names) == 1:
        return names[0]
    found = _drop_scaffolds(root, find_open(root))
    if len(found) == 1:
        return found[0].name
    if not names:
        return overview.find_only(root)  # raises the error that there is none
    if not found:
        listed = ", ".join(names)
        raise UsageError(f"every readable change is complete; to run one anyway, name it: {listed}")
    if not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        listed = ", ".join(one.name for one in found)
        raise UsageError(f"several changes are open: name one, or use --all: {listed}")
    return _ask(found)


def find_next(root: str) -> str | None:
    """The change to suggest for a run: an open one, else one that has no tasks yet or can't be read; None if all are
    complete."""
    known = overview.list_overviews(root)
    runnable = _drop_scaffolds(root, [one for one in known if _has_tasks_left(one)])
    return next((one.name for one in [*runnable, *known] if one in runnable or not one.tasks_total), None)


def _drop_scaffolds(root: str, found: list[Overview]) -> list[Overview]:
    """Without changes that are not filled in yet, unless there are no others."""
    filled = [one for one in found if _is_filled_in(root, one.name)] if len(found) > 1 else found
    return filled or found


def _is_filled_in(root: str, change: str) -> bool:
    try:
        scaffold.check_filled_in(specs.open(root, change))
    except InvalidValue:
        return False
    except RalphError:
        return True  # the run will report what is wrong with it
    return True


def _ask(found: Sequence[Overview]) -> str:
    for number, one in enumerate(found, 1):
        left = (one.stories_total or 0) - (one.stories_done or 0)
        echo(f"  {number}  {make_printable(one.describe())}: {left} of {one.stories_total} stories open")
    names = [one.name for one in found]
    chosen: str = click.prompt("Which one", default="1", value_proc=lambda answer: _parse_choice(answer.strip(), names))
    return chosen


def _parse_choice(answer: str, names: Sequence[str]) -> str:
    """The name of a change, given by its number in the list or as it is. The prompt repeats after an error."""
    if answer.isdecimal() and len(answer) < 10 and 1 <= int(answer) <= len(names):
        return names[int(answer) - 1]
    if answer in names:
        return answer
    from ralphtool.core import spelling  # needed only for the error

    near = spelling.suggest(answer, names, f"enter a number from 1 to {len(names)}, or a name")
    raise click.UsageError(f"{shorten(answer)} is not in the list: {near}")


class Chosen(NamedTuple):
    """The changes that `--all` runs, and those that it can't read."""

    names: list[str]
    unreadable: list[Overview]


def list_all(root: str) -> Chosen:
    """For `--all`: each open change, once."""
    known = overview.list_overviews(root)
    names = dict.fromkeys(one.name for one in known if _has_tasks_left(one) or _has_stories_left(one))
    chosen = Chosen(list(names), [one for one in known if one.problem])
    if not chosen.names and not chosen.unreadable:
        raise ChangeNotFound("every change is complete: `ralphtool list` shows them")
    return chosen
