"""Generates pages from the code: `docs/commands/`, the tables of `docs/settings.md` and `docs/ci.md`,
`docs/events.md`, `docs/files.md` and `docs/exit-codes.md`. `scripts/docs` calls this, and builds the site.

.venv/bin/python scripts/docs.py            writes them
.venv/bin/python scripts/docs.py --check    only checks whether they are up to date
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from ci_page import ci_page
from events_page import events_page
from reference_pages import exit_codes_page, files_page

from ralphtool import settings
from ralphtool.cli.main import cli

DOCS = Path(__file__).parent.parent / "docs"
HEAD = "| setting | default | may be | what it does |\n|---|---|---|---|\n"
ELSEWHERE = {"agent": "[agent-commands.md](../agent-commands.md) has every answer and every error code."}


def main() -> int:
    pages = made()
    folder = DOCS / "commands"
    stale = [name for name, text in pages.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    stray = [path for path in sorted(folder.glob("*")) if f"commands/{path.name}" not in pages]
    if "--check" in sys.argv:
        for name in [*stale, *map(str, stray)]:
            print(f"out of date: {name} (run scripts/docs.py)", file=sys.stderr)
        return 1 if stale or stray else 0
    folder.mkdir(exist_ok=True)
    for path in stray:
        path.unlink()
    for name in stale:
        (DOCS / name).write_text(pages[name])
    return 0


def made() -> dict[str, str]:
    """Every page, by its name in `docs/`."""
    context = click.Context(cli, info_name="ralphtool")
    pages = {"commands/README.md": contents(context), "settings.md": settings_page(), "events.md": events_page(DOCS)}
    pages |= {"files.md": files_page(), "exit-codes.md": exit_codes_page(), "ci.md": ci_page(DOCS)}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        pages[f"commands/{name}.md"] = page(command, click.Context(command, context, info_name=name))
    return pages


def contents(context: click.Context) -> str:
    lines = ["# Commands", "", "Each page has the text of `ralphtool COMMAND --help`."]
    for room, names in type(cli).sections.items():
        lines += ["", f"## {room}", "", "| command | what it does |", "|---|---|"]
        lines += [f"| [{name}]({name}.md) | {cli.elsewhere[name][1]} |" for name in names]
    return "\n".join(lines) + "\n"


def page(command: click.Command, context: click.Context) -> str:
    """The page of a command and its subcommands."""
    lines = [f"# {context.command_path}", *body(command, context)]
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)  # type: ignore[attr-defined]
        inner = click.Context(below, context, info_name=name)
        lines += ["", f"## {inner.command_path}", *body(below, inner)]
    return "\n".join(lines) + "\n"


def body(command: click.Command, context: click.Context) -> Iterator[str]:
    yield ""
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    for block in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        yield ""
        yield example(block) if block.startswith("\b") else " ".join(block.split())
    if told := ELSEWHERE.get(context.command_path.partition(" ")[2]):
        yield f"\n{told}"
    rows = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    if shown := [row for row in rows if row]:
        yield "\n| option | what it does |\n|---|---|"
        yield from (f"| `{name}` | {unbracket(' '.join(about.split()))} |" for name, about in shown)


def unbracket(about: str) -> str:
    """Puts the default in round brackets; it may contain the name of a table in square ones."""
    return re.sub(r"\[(default: (?:[^][]|\[[^]]*\])*)\]", r"(\1)", about)


def example(block: str) -> str:
    """A block that click does not rewrap: a title, and lines for a code block."""
    _, title, *lines = [*block.split("\n"), ""]
    block = inspect.cleandoc(chr(10).join(lines))
    return f"{title}\n\n```{'json' if block.startswith('{') else 'sh'}\n{block}\n```"


def settings_page() -> str:
    before, _, _ = (DOCS / "settings.md").read_text().partition(HEAD)
    rows = [
        f"| `{one.table}.{one.key}` | {f'`{one.default}`' if one.default else ''} | {one.words} | {one.help} |\n"
        for one in settings.describe()
    ]
    return before + HEAD + "".join(rows)


if __name__ == "__main__":
    sys.exit(main())
