"""The command `logs`: what an agent said and did."""

from __future__ import annotations

import codecs
import os
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from ralphtool.cli import arguments, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import files, project, quickjson
from ralphtool.errors import RalphError, UnsafePath, UsageError
from ralphtool.record import iterations as records
from ralphtool.record import runs
from ralphtool.record.iterations import ERRORS, TRANSCRIPT, IterationFiles
from ralphtool.views.terminal.conversation import Conversation
from ralphtool.views.terminal.phrases import describe_denial, flatten
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.agents import Event

_TAIL = 4 << 10  # bytes of standard error
_LAST = 5  # lines of it shown
_DENIED = 20  # hosts and ports shown
_COMPLETED = 50  # names offered to the shell


def _complete_entry(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        names = dict.fromkeys(one.entry for one in records.list_all(project.find()) if one.entry.startswith(incomplete))
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [CompletionItem(name) for name in list(names)[:_COMPLETED]]


@click.command(cls=FittingCommand)
@click.argument("name", required=False, metavar="[STORY|ENTRY]", shell_complete=_complete_entry)
@click.option("--change", help="The change, if there is more than one.", **arguments.ARGUMENT)
@click.option("--full", is_flag=True, help="Show tool results in full.")
@click.option("--raw", is_flag=True, help="Print the transcript as it is, byte for byte.")
@click.option("--errors", is_flag=True, help="Show only the agent's standard error.")
@click.option("-f", "--follow", is_flag=True, help="Keep following until the agent exits.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one JSON object a line, for programs.")
def logs(
    name: str | None, change: str | None, full: bool, raw: bool, errors: bool, follow: bool, as_json: bool
) -> None:
    """Show the agent's log of an attempt: its messages and tool calls.

    STORY selects the story's last attempt, ENTRY one particular attempt; RUN:3 is the third iteration of a run,
    whatever its result. The default is the last iteration. Tool results are shortened. --raw prints the transcript
    itself; in a terminal its control characters are made visible.

    \b
    Examples:
      ralphtool logs                  # the last iteration
      ralphtool logs 2                # the last attempt at story 2
      ralphtool logs add-login-2-1 --full | less
      ralphtool logs add-login:3 -f   # iteration 3 of its newest run, live
      ralphtool logs add-login-2-1 --json | jq -r 'select(.kind == "tool") | .detail'
      ralphtool logs add-login-2-1 --raw > transcript.jsonl
    """
    if raw and as_json:
        raise UsageError("--raw and --json can't be combined: use one of them")
    if follow and (raw or errors):
        raise UsageError("--follow can't be combined with --raw or --errors: use one of them")
    found = _find_iteration(project.find(), name, change)
    if raw:
        _write_raw(records.read_blocks(found, ERRORS if errors else TRANSCRIPT))
        return
    if not follow and not errors:
        records.check_transcript(found)
    told = (
        records.decode_plain(records.read_blocks(found, ERRORS))
        if errors
        else records.read_events(found, follow=follow)
    )
    if as_json:
        _print_json(told)
    elif errors:
        if not _print_events(Conversation(full=True), told):
            echo("The agent wrote nothing to standard error.")
    else:
        _print_iteration(found, told, Conversation(full=full))


def _find_iteration(root: str, name: str | None, change: str | None) -> IterationFiles:
    if name is None or ":" in name or _is_exact(root, name):
        return records.find(root, name or change)
    known = targets.find_history(root, name, change)
    newest = next((one for one in records.list_all(root) if known and known.has(one.entry)), None)
    if newest:
        return newest
    if known and known.earlier:
        return records.find(root, known.earlier)
    if not known and any(id.startswith(name) or id.endswith(name) for id in runs.list_ids(root)):
        return records.find(root, name)
    raise targets.build_no_attempt_error(root, name, change, known.prd_id if known else None)


def _is_exact(root: str, name: str) -> bool:
    """Whether it is the whole name of an entry, a run, or a change that ran."""
    ids = runs.list_ids(root)
    return name in ids or name in map(runs.parse_change, ids) or bool(records.find_by_entry(root, name))


def _write_raw(blocks: Iterator[bytes]) -> None:
    """Unchanged, unless a terminal would interpret it."""
    if not sys.stdout.isatty():
        for block in blocks:
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    shown = Conversation().clean_line
    for block in blocks:
        click.echo("\n".join(map(shown, decoder.decode(block).split("\n"))), nl=False)
    click.echo()


def _print_json(told: Iterator[Event]) -> None:
    for event in told:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        fields.pop("reset_at", None)  # often relative to now, which is wrong for the past
        click.echo(quickjson.dumps(fields))


def _print_events(conversation: Conversation, told: Iterator[Event]) -> bool:
    """Returns whether there was anything to show."""
    is_empty = True
    for event in told:
        if lines := list(conversation.render_event(event)):
            click.echo("\n".join(lines))
            is_empty = False
    return not is_empty


def _print_iteration(found: IterationFiles, told: Iterator[Event], conversation: Conversation) -> None:
    attempt = found.read_attempt()
    name, workers = f"{found.entry} ({found.run}:{found.number})", attempt.worker_names if attempt else ()
    for line in conversation.render_title(name, attempt.start if attempt else None, workers):
        echo(line)
    if not _print_events(conversation, told):
        click.echo("the agent printed nothing")
    attempt = found.read_attempt()
    verdict, end, receipt = (attempt.verdict, attempt.end, attempt.receipt) if attempt else (None, None, None)
    is_running = verdict is None and _is_running(found)
    for line in conversation.render_ending(verdict, end, receipt, is_running=is_running):
        echo(line)
    for denied in found.list_denied()[:_DENIED]:
        echo(describe_denial(flatten(denied.host, 100), denied.port, flatten(denied.allow)))
    _print_stderr(found, conversation, is_well=verdict is not None and verdict.status == "completed")
    click.echo(f"records: {conversation.clean_line(found.folder)}")
    if os.path.isdir(found.path("check")):
        click.echo(f"an agent checked the blocker: {conversation.clean_line(found.path('check'))}")


def _is_running(found: IterationFiles) -> bool:
    """Whether it is the last iteration of a run in progress."""
    try:
        run = runs.read_summary(found.root, found.run)
    except RalphError:
        return False
    return runs.is_alive(run) and records.find(found.root, f"{found.run}:").number == found.number


def _print_stderr(found: IterationFiles, conversation: Conversation, *, is_well: bool) -> None:
    """Successful programs write there too: then a hint is enough."""
    lines = _read_stderr_tail(found)
    if not lines:
        return
    echo("standard error: --errors shows it" if is_well else "end of standard error (--errors shows all of it):")
    for line in () if is_well else lines:
        click.echo(f"    {conversation.clean_line(line)}")


def _read_stderr_tail(found: IterationFiles) -> list[str]:
    """The last lines of standard error."""
    try:
        fd = files.open_in_project(found.path(ERRORS))
    except (OSError, UnsafePath):
        return []  # there is none, or something else is in its place
    try:
        size = os.fstat(fd).st_size
        lines = files.read_at(fd, max(size - _TAIL, 0), size).decode("utf-8", "replace").split("\n")
    finally:
        os.close(fd)
    return [line for line in lines if line.strip()][-_LAST:]
