"""`ralphtool web`: a page to watch and steer from."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from ralphtool.cli import arguments, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.errors import InvalidValue
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.views.web.serve import Place


@click.command(cls=FittingCommand)
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path())
@click.option(
    "--port",
    type=arguments.WholeNumber(0, 65535),
    default=0,
    help="The port. [default: always the same, if it is free]",
)
@click.option(
    "--socket",
    "socket_path",
    metavar="PATH",
    default="",
    help="Use a Unix socket that only you can open, and no port.",
)
@click.option("--read-only", is_flag=True, help="Watch only: runs can't be started, answered or steered.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Listen on an address other than 127.0.0.1; needs --allow-host, --cert and --key.",
)
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="A host name that the page may be opened with."
)
@click.option("--cert", default="", metavar="FILE", help="The TLS certificate.")
@click.option("--key", default="", metavar="FILE", help="The key of the TLS certificate.")
@click.option("--new-key", is_flag=True, help="Create a new key: earlier addresses and logins stop working.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON object, for programs.")
def web(
    folders: Sequence[str],
    port: int,
    socket_path: str,
    read_only: bool,
    opens: bool,
    host: str,
    names: Sequence[str],
    cert: str,
    key: str,
    new_key: bool,
    as_json: bool,
) -> None:
    """Serve a web page to watch and steer runs from a browser or a phone.

    It shows every run of the project live: stories, agents, gates, proofs, diffs, questions, cost. Only you can open
    it: the printed address contains a key, and only this machine can reach it. You can close it at any time; runs do
    not depend on it. Without DIR it shows the project of this folder; several can be shown together.

    \b
    Examples:
      ralphtool web
      ralphtool web --open
      ralphtool web ~/shop ~/blog --port 8123
      ralphtool web --read-only --socket /run/user/1000/ralph.sock
      ssh -L 8123:127.0.0.1:8123 buildbox          # the page of another machine
    """
    from ralphtool.views.web.serve import Place, check_place

    place = Place(host, port, os.path.abspath(socket_path) if socket_path else "", tuple(names), cert, key)
    check_place(place)
    roots = _find_projects(folders)
    for root in roots:
        targets.refuse_agents(root)
    _serve(roots, place, read_only=read_only, opens=opens, new_key=new_key, as_json=as_json)


def _find_projects(folders: Sequence[str]) -> list[str]:
    for folder in folders:
        if not os.path.isdir(folder):
            raise InvalidValue(f"there is no folder {folder}: name the folder of a project")
    return list(dict.fromkeys(project.find(folder) for folder in folders or [os.getcwd()]))


def _serve(roots: list[str], place: Place, *, read_only: bool, opens: bool, new_key: bool, as_json: bool) -> None:
    from ralphtool.views.web import access, serve
    from ralphtool.views.web.app import App
    from ralphtool.views.web.served import Served

    serve.check_installed()
    known = access.open_access(roots, renew=new_key, read_only=read_only)
    opened = serve.open_socket(place, serve.choose_port(known))
    app = App(Served(roots, serve.build_site(place, opened, known, read_only=read_only)))
    address = serve.build_address(place, opened, known.secret)
    opened.listen(serve.BACKLOG)  # before the address is printed, so that it works at once
    _print_address(address, roots, read_only=read_only, as_json=as_json)
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # the page does not use the terminal's encoding
    if opens and not place.socket_path:
        import webbrowser

        webbrowser.open(serve.build_address(place, opened, known.issue_token(time.time())))
    serve.serve(app, place, opened)


def _print_address(address: str, roots: list[str], *, read_only: bool, as_json: bool) -> None:
    if as_json:
        click.echo(quickjson.dumps({"address": address, "projects": roots, "read_only": read_only}))
    else:
        looking = " (read-only)" if read_only else ""
        click.echo(f"Open this address in your browser{looking}:\n\n  {address}\n")
        echo("Keep it to yourself: it contains the key. Press Ctrl-C to stop.")
    sys.stdout.flush()
