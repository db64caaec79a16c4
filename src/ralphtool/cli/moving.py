"""Plans in `.ralph`, where other loops keep theirs: in a terminal, `run` offers to move them."""

from __future__ import annotations

import os
import sys

import click

from ralphtool import specs
from ralphtool.core.text import make_printable
from ralphtool.errors import RalphError
from ralphtool.specs import remaining
from ralphtool.views.terminal.wrapping import echo


def offer_move(root: str, change: str) -> None:
    """If the user agrees, moves the plan to where a run can commit its ticks. Otherwise the run says what to do."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    try:
        old = specs.open(root, change).path
    except RalphError:
        return  # the run will report what is wrong with it
    new = os.path.join(root, os.path.basename(old))
    if not remaining.is_in_our_folder(root, old) or not os.path.isfile(old) or os.path.lexists(new):
        return
    inside = make_printable(os.path.relpath(old, root))
    echo(f"{inside} can't be run there: a run commits ticks, but no files in .ralph.")
    agreed = click.confirm(f"Move it to {make_printable(os.path.basename(new))}", default=True)
    if agreed and not os.path.lexists(new):  # it may have been created in the meantime
        os.rename(old, new)
