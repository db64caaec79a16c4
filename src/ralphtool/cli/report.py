"""`ralphtool report`: the results of a run."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import click
import msgspec
from click.shell_completion import CompletionItem

from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import files, project, quickjson
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.errors import InvalidValue, RalphError, UsageError
from ralphtool.record import runs
from ralphtool.views.report import diffs, from_record, junit, learnt, markdown, page
from ralphtool.views.terminal import wrapping

if TYPE_CHECKING:
    from ralphtool.record.runs import RunSummary
    from ralphtool.views.report.facts import Facts

_FORMATS = ("markdown", "junit", "html", "json")
_ENDINGS = {".md": "markdown", ".xml": "junit", ".html": "html", ".htm": "html", ".json": "json"}
_CODE = re.compile(r"((?<!\\)`+.+?`+)")
_ESCAPED = re.compile(r"\\([^a-zA-Z0-9\s])")
_PLAIN = str.maketrans({"…": "...", "·": "-", "→": "->", "✓": "+", "✗": "x"})  # for terminals without these characters


def _complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = runs.list_ids(project.find())
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [CompletionItem(id) for id in found if id.startswith(incomplete)]


@click.command(cls=FittingCommand)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=_complete_run)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="The format. [default: by the extension of FILE, else markdown]",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="The file to write; - is standard output. An HTML page is written next to the run's record by default.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def report(run: str | None, form: str | None, output: str | None, as_json: bool) -> None:
    """Report the results of a run.

    What was done, what needs your answer, what failed and why; a timeline of attempts, gates and waits; time and cost
    per story; what was learnt. RUN is a part of a run's id, or a change; the default is the newest run.

    \b
    Examples:
      ralphtool report
      ralphtool report --format html
      ralphtool report add-login --output report.xml
      ralphtool report --json | jq -r '.stories[] | select(.state == "waiting") | .question.missing'
    """
    root = project.find()
    form = choose_format(form, output, as_json=as_json)
    found = runs.find(root, run)
    if form == "html" and output is None:
        output = os.path.join(found.folder, "report.html")
    if output not in (None, "-") and os.path.isdir(output or ""):
        raise InvalidValue(f"{output} is a folder: name the file to write")
    text = render_report(root, found, form, _find_width() if output is None else None)
    if output is None or output == "-":
        _print_report(text, form)
    else:
        write_file(output, text)
        wrapping.echo(make_printable(f"The report of {found.id} is in {_shorten_path(output)}"))


def choose_format(form: str | None, output: str | None, *, as_json: bool) -> str:
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} can't be combined: use one of them")
    if output == "":
        raise UsageError("--output needs the name of a file; - is standard output")
    if as_json or form:
        return form or "json"
    ending = os.path.splitext(output or "")[1].lower()
    if ending and ending not in _ENDINGS:
        raise UsageError(f"{ending} is not a report format: use .md, .html, .xml or .json")
    return _ENDINGS.get(ending, "markdown")


def _find_width() -> int | None:
    """The width of the terminal, if there is one."""
    try:
        return (os.get_terminal_size(sys.stdout.fileno()).columns or None) if sys.stdout.isatty() else None
    except (OSError, ValueError):  # it is gone, or is not a file
        return None


def render_report(root: str, run: RunSummary, form: str, width: int | None) -> str:
    facts = from_record.read_facts(run)
    facts = msgspec.structs.replace(facts, knowledge=learnt.look_up(root, facts))
    if form == "json":
        return quickjson.dumps(_facts_as_dict(facts)) + "\n"
    if form == "html":
        return page.render(facts, diffs.read_diffs(root, facts.attempts))
    return junit.render(facts) if form == "junit" else _fit(markdown.render(facts, width), width)


def _fit(text: str, width: int | None) -> str:
    """Wraps sentences and lists to the terminal's width. Code, commands and tables are not wrapped. People read this,
    no program, so nothing is escaped."""
    if width is None:
        return text
    lines, is_code = [], False
    for line in text.split("\n"):
        is_code = is_code != line.lstrip().startswith("```")
        shown = line if is_code else _unescape(line)
        is_kept = is_code or line.startswith("|")
        lines.append(shown if is_kept else wrapping.wrap(shown, width))
    return "\n".join(lines)


def _unescape(line: str) -> str:
    """A line without the backslashes of Markdown; code has none."""
    pieces = _CODE.split(line)
    return "".join(one if number % 2 else _ESCAPED.sub(r"\1", one) for number, one in enumerate(pieces))


def _facts_as_dict(facts: Facts) -> dict[str, object]:
    """The facts, with their totals."""
    told: dict[str, object] = msgspec.to_builtins(facts)
    return {**told, "seconds": facts.seconds, "used": msgspec.to_builtins(facts.used)}


def _print_report(text: str, form: str) -> None:
    if not can_write_unicode() and form in ("junit", "html"):
        text = text.encode("ascii", "xmlcharrefreplace").decode()
    elif not can_write_unicode():
        text = text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()
    sys.stdout.write(text)
    sys.stdout.flush()


def write_file(path: str, text: str) -> None:
    """Writes the file atomically: it may be read while it is rewritten."""
    data = text.encode("utf-8", "backslashreplace")
    folder = files.folder_of(path)
    if not os.path.isdir(folder):
        raise InvalidValue(f"there is no folder {folder}: create it, or name another file")
    try:
        files.create(path, data, 0o666)
    except FileExistsError:
        files.rewrite(path, lambda old: data)


def _shorten_path(path: str) -> str:
    near = os.path.relpath(path)
    return path if near.startswith("..") else near
