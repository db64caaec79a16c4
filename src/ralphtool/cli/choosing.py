"""Which change is meant where none is named: the only open one, or the one that the user chooses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from ralphtool import specs
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeNotFound, InvalidValue, RalphError, UsageError
from ralphtool.record import overview
from ralphtool.specs import scaffold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.record.overview import Overview


def find_open(root: str) -> list[Overview]:
    """The changes that have something left to do, as `ralphtool list` orders them."""
    return [one for one in overview.list_overviews(root) if _has_tasks_left(one)]


def _has_tasks_left(one: Overview) -> bool:
    return not one.problem and bool(one.tasks_total) and one.tasks_done != one.tasks_total


def _has_stories_left(one: Overview) -> bool:
    """Also where all boxes are ticked, and a story has none: its run says so, and is not done."""
    return not one.problem and bool(one.tasks_total) and one.stories_done != one.stories_total


def choose(root: str, *, may_ask: bool = True) -> str:
    """The change to run. Where standard output is for a program, nothing is asked there."""
    names = overview.list_names(root)
    if len(names) == 1:
        return names[0]
    found = _drop_scaffolds(root, find_open(root))
    if len(found) == 1:
        return found[0].name
    if not names:
        return overview.find_only(root)  # which says that there is none
    if not found:
        listed = ", ".join(names)
        raise UsageError(f"every readable change is complete; to run one anyway, name it: {listed}")
    if not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        listed = ", ".join(one.name for one in found)
        raise UsageError(f"several changes are open: name one, or use --all: {listed}")
    return _ask(found)


def _drop_scaffolds(root: str, found: list[Overview]) -> list[Overview]:
    """Without those that nobody has filled in yet, where others can be run."""
    filled = [one for one in found if _is_filled_in(root, one.name)] if len(found) > 1 else found
    return filled or found


def _is_filled_in(root: str, change: str) -> bool:
    try:
        scaffold.check_filled_in(specs.open(root, change))
    except InvalidValue:
        return False
    except RalphError:
        return True  # a run says what is wrong with it
    return True


def _ask(found: Sequence[Overview]) -> str:
    for number, one in enumerate(found, 1):
        left = (one.stories_total or 0) - (one.stories_done or 0)
        click.echo(f"  {number}  {make_printable(one.describe())}: {left} of {one.stories_total} stories open")
    answer = click.prompt("Which one", type=click.IntRange(1, len(found)), default=1)
    return found[answer - 1].name


class Chosen(NamedTuple):
    """What `--all` runs, and what it can't."""

    names: list[str]
    unreadable: list[Overview]


def list_all(root: str) -> Chosen:
    """For `--all`: each one that is open, once."""
    known = overview.list_overviews(root)
    names = dict.fromkeys(one.name for one in known if _has_tasks_left(one) or _has_stories_left(one))
    chosen = Chosen(list(names), [one for one in known if one.problem])
    if not chosen.names and not chosen.unreadable:
        raise ChangeNotFound("every change is complete: `ralphtool list` shows them")
    return chosen
