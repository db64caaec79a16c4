"""`ralphtool convert`: a change from one format to another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ralphtool import specs
from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project as projects
from ralphtool.core import quickjson
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import InvalidValue
from ralphtool.specs import conversion, scaffold
from ralphtool.views.terminal.wrapping import echo, echo_command
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from ralphtool.specs import Spec
    from ralphtool.specs.conversion import Conversion


def _complete_format(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in conversion.formats() if name.startswith(incomplete)]


@click.command(cls=FittingCommand)
@click.argument("change", **{**arguments.ARGUMENT, "metavar": "FROM"})
@click.argument("format", metavar="TO", shell_complete=_complete_format)
@click.option("--spec", metavar="FORMAT", help="The format of the change, or its Markdown file.")
@click.option("--name", metavar="NAME", help="The name of the new change. [default: the old name]")
@click.option("--file", metavar="PATH", help="The checklist file to write. [default: named after the change]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def convert(change: str, format: str, spec: str | None, name: str | None, file: str | None, as_json: bool) -> None:
    """Write a change in another format.

    FROM is the change, TO the format. Stories, tasks, ticks, scenarios and dependencies are kept where the other format
    supports them; anything it doesn't support is listed. The original stays as it is, and nothing is overwritten.

    \b
    Examples:
      ralphtool convert add-login kiro
      ralphtool convert add-login checklist --file docs/login.md
    """
    root = projects.find()
    old = specs.open(root, change, specs.parse_ref(root, spec))
    inside = os.path.relpath(os.path.abspath(file), root) if file else None
    with branch.open_spec(root, change, old.ref) as worked_on:  # a run's ticks are on the branch
        made = conversion.plan(root, worked_on or old, format, name, inside)
    try:
        scaffold.write(made.made)
    except FileExistsError as error:
        raise InvalidValue(
            f"{error.filename or made.made.place} was created by another program in the meantime: try again"
        ) from None
    if as_json:
        click.echo(quickjson.dumps(_as_dict(made)))
    else:
        _print_conversion(old, made)


def _as_dict(done: Conversion) -> dict[str, object]:
    made = done.made
    return {
        **{"change": made.change, "format": made.format, "files": made.paths, "spec": made.spec or made.format},
        **{"stories": done.stories, "lost": list(done.losses)},
    }


def _print_conversion(old: Spec, done: Conversion) -> None:
    made = done.made
    lines = [f"{old.change} ({old.adapter}) is now also {made.change} ({made.format}):"]
    lines += [f"  {_shorten_path(path)}" for path in made.paths]
    if done.losses:
        lines += [f"{made.format} does not support:", *[f"  {loss}" for loss in done.losses]]
    spec = made.spec or made.format
    if made.change == old.change:
        lines.append(f"Both have the same name: delete the old one, or select one with `--spec {spec}`.")
    echo(make_lines_printable("\n".join([*lines, "Next steps:"])))
    echo_command(make_printable(f"ralphtool show {made.change} --spec {spec}"))


def _shorten_path(path: str) -> str:
    near = os.path.relpath(path)
    return path if near.startswith("..") else near
