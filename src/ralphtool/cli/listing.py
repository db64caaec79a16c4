"""`ralphtool list`: the changes of a project. A module of its own, so that it starts quickly."""

from __future__ import annotations

import click

from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.core.text import make_printable
from ralphtool.record import overview
from ralphtool.views.terminal import changes, wrapping


@click.command("list", cls=FittingCommand)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def list_changes(as_json: bool) -> None:
    """List the changes in every format, with their progress.

    \b
    Examples:
      ralphtool list
      ralphtool list --json | jq '.changes[] | select(.tasks_done < .tasks_total) | .name'
    """
    root = project.find()
    overviews = overview.list_overviews(root)
    if as_json:
        click.echo(quickjson.dumps({"changes": [one.as_dict() for one in overviews]}))
    else:
        changes.print_changes(overviews)
        if running := overview.find_running_change(root):
            has_died = any(one.name == running and one.has_died for one in overviews)
            wrapping.echo(click.style(_describe_set_aside(running, has_died=has_died), dim=True))
    for text in [text for one in overviews for text in (one.problem, *one.warnings) if text] if as_json else []:
        wrapping.echo(f"Warning: {make_printable(text)}", err=True)


def _describe_set_aside(change: str, *, has_died: bool) -> str:
    if has_died:
        return "Your uncommitted files are set aside and not listed here: `ralphtool back` restores them."
    return f"Your uncommitted files are set aside until the run of {change} ends: they are not listed here."
