"""`ralphtool progress …` and `ralphtool migrate`: the history for people, and as JSON for programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from ralphtool.cli import arguments
from ralphtool.cli.groups import SuggestingGroup
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import files, project, quickjson
from ralphtool.core.amounts import pluralize
from ralphtool.core.text import make_printable
from ralphtool.errors import CorruptState, UsageError
from ralphtool.history import History, document, schema
from ralphtool.history.records import LearningType, PatternType
from ralphtool.views.terminal import tables
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history import EntryObservation
    from ralphtool.history.migrate import Migration


def _decode_value(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise click.BadParameter("it must be UTF-8")
    return value


_SHOWN = 20  # entries, by default
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
_LAST = click.option("--last", type=arguments.WholeNumber(min=1), metavar="N", help="Only the last N entries.")
_LAST_RECORDS = click.option("--last", type=arguments.WholeNumber(min=1), metavar="N", help="Only the last N of them.")
_PRD = click.option(
    "--prd", "prd_id", metavar="ID", callback=_decode_value, help="Only this story: <change>-<story> in lower case."
)


def _open_history() -> History:
    return History(project.find())


def _print_json(value: object) -> None:
    click.echo(quickjson.dumps(msgspec.to_builtins(value)))


def _print_warnings(history: History) -> None:
    """Prints problems, after the answer."""
    waiting = [f"{problem}: the next write sets it aside" for problem in history.problems()]
    for notice in [*history.notices, *waiting]:
        echo(f"Warning: {make_printable(notice)}", err=True)


def _list_types(types: Any) -> str:
    """For the help: as a part of the option's name, the types would make it too wide."""
    return f"Only this type: {', '.join(get_args(types))}."


@click.group(cls=SuggestingGroup)
def progress() -> None:
    """Show the history of this project: iterations, observations, learnings and patterns.

    \b
    Examples:
      ralphtool progress show
      ralphtool progress entries --last 5
      ralphtool progress blockers --prd add-login-2
      ralphtool progress learnings --type error-workaround --json
      ralphtool progress validate .ralph/progress.json
    """


# --- summary ----------------------------------------------------------------------------------------


@progress.command()
@_JSON
def show(as_json: bool) -> None:
    """Show a summary: number of records, results of each story's attempts, last entries.

    \b
    Example:
      ralphtool progress show
    """
    history = _open_history()
    counts, tallies, last = history.counts(), history.tallies(), history.entries(last=5)
    if as_json:
        stories = [msgspec.to_builtins(one) | {"success_rate": one.completed / one.attempts} for one in tallies]
        failures = history.failures()
        _print_json({**counts, **_success_rates(tallies), "prds": stories, "failures": failures, "last": last})
    elif not any(counts.values()):
        tables.print_line("There is no history yet: `ralphtool run` and `ralphtool agent session flush` write it.")
    else:
        _print_summary(history, counts, tallies)
        tables.print_entries(last)
    _print_warnings(history)


def _success_rates(tallies: Sequence[Any]) -> dict[str, float | None]:
    attempts = sum(one.attempts for one in tallies)
    return {"success_rate": sum(one.completed for one in tallies) / attempts if attempts else None}


def _print_summary(history: History, counts: dict[str, int], tallies: Sequence[Any]) -> None:
    rate = _success_rates(tallies)["success_rate"]
    completed = f", {100 * rate:.0f}% completed" if rate is not None else ""
    entries = pluralize(counts["entries"], "entry", "entries")
    stories = pluralize(len(tallies), "story", "stories")
    tables.print_line(f"{entries} of {stories}{completed}", style="bold")
    learnings = pluralize(counts["valid_learnings"], "valid learning", "valid learnings")
    patterns = pluralize(counts["patterns"], "pattern", "patterns")
    tables.print_line(f"{learnings} of {counts['learnings']}, {patterns}\n")
    if tallies:
        tables.print_statuses(history.endings(60))
        tables.print_line("")
        if len(tallies) > _SHOWN:
            tables.print_line(f"the last {_SHOWN} of {len(tallies)} stories:")
        tables.print_attempt_counts(tallies[-_SHOWN:])
        tables.print_line("")


# --- records ----------------------------------------------------------------------------------------


@progress.command()
@_LAST
@_PRD
@_JSON
def entries(last: int | None, prd_id: str | None, as_json: bool) -> None:
    """List the entries: one for each iteration, oldest first.

    \b
    Examples:
      ralphtool progress entries --last 5
      ralphtool progress entries --prd add-login-2 --json | jq '.entries[].status'
    """
    history = _open_history()
    if as_json:
        _print_json({"entries": history.entries(last=last, prd_id=prd_id)})
    else:
        tables.print_entries(history.entries(last=last or _SHOWN, prd_id=prd_id))
        _print_left_out(history, last, prd_id)
    _print_warnings(history)


def _print_left_out(history: History, last: int | None, prd_id: str | None) -> None:
    total = history.attempts(prd_id) if prd_id else history.counts()["entries"]
    if last is None and total > _SHOWN:
        tables.print_line(f"\n{pluralize(total - _SHOWN, 'earlier entry', 'earlier entries')} not shown: use --last N")


@progress.command()
@_LAST
@_PRD
@_JSON
def observations(last: int | None, prd_id: str | None, as_json: bool) -> None:
    """List what agents observed in the last entries.

    \b
    Example:
      ralphtool progress observations --last 3
    """
    history = _open_history()
    found = history.observations(last=last if as_json else last or _SHOWN, prd_id=prd_id)
    _print_observations(history, "observations", found, as_json, "There are no observations.")
    if not as_json:
        _print_left_out(history, last, prd_id)


@progress.command()
@_LAST
@_PRD
@_JSON
def blockers(last: int | None, prd_id: str | None, as_json: bool) -> None:
    """List what blocked agents.

    \b
    Example:
      ralphtool progress blockers --prd add-login-2
    """
    history = _open_history()
    found = history.blockers(last=last, prd_id=prd_id)
    _print_observations(history, "blockers", found, as_json, "There are no blockers.")


def _print_observations(
    history: History, name: str, found: Sequence[EntryObservation], as_json: bool, nothing: str
) -> None:
    if as_json:
        shown = [{"entry_id": one.entry.id, **msgspec.to_builtins(one.observation)} for one in found]
        _print_json({name: shown})
    else:
        tables.print_observations(found, nothing)
    _print_warnings(history)


@progress.group(invoke_without_command=True)
@click.option(
    "--type", "kind", type=click.Choice(get_args(LearningType)), metavar="TYPE", help=_list_types(LearningType)
)
@click.option("--all", "everything", is_flag=True, help="Include those that are no longer valid.")
@_LAST_RECORDS
@_PRD
@_JSON
@click.pass_context
def learnings(
    context: click.Context,
    kind: LearningType | None,
    everything: bool,
    last: int | None,
    prd_id: str | None,
    as_json: bool,
) -> None:
    """List the learnings that are still valid.

    \b
    Examples:
      ralphtool progress learnings --type error-workaround
      ralphtool progress learnings invalidate learning-0007 --why "the script is gone"
    """
    if context.invoked_subcommand is not None:
        if kind or everything or last or prd_id or as_json:
            raise UsageError(f"put options of `{context.invoked_subcommand}` after it")
        return
    history = _open_history()
    found = history.learnings((kind,) if kind else (), prd_id=prd_id, valid_only=not everything)[-(last or 0) :]
    if as_json:
        _print_json({"learnings": found})
    else:
        tables.print_learnings(found)
    _print_warnings(history)


@learnings.command()
@click.argument("id", callback=_decode_value)
@click.option(
    "--why",
    required=True,
    callback=_decode_value,
    metavar="TEXT",
    help="What has changed. It is added to the learning's context.",
)
@_JSON
def invalidate(id: str, why: str, as_json: bool) -> None:
    """Mark a learning as no longer valid: prompts leave it out.

    \b
    Example:
      ralphtool progress learnings invalidate learning-0007 --why "the script is gone"
    """
    if not why.strip():
        raise UsageError("--why can't be empty: say what has changed")
    history = _open_history()
    found = history.invalidate(id, why)
    if as_json:
        _print_json(found)
    else:
        tables.print_line(f"{make_printable(found.id)} is no longer valid")
    _print_warnings(history)


@progress.command()
@click.option("--type", "kind", type=click.Choice(get_args(PatternType)), metavar="TYPE", help=_list_types(PatternType))
@_LAST_RECORDS
@_PRD
@_JSON
def patterns(kind: PatternType | None, last: int | None, prd_id: str | None, as_json: bool) -> None:
    """List the patterns that were found in the code base.

    \b
    Example:
      ralphtool progress patterns --type error-handling
    """
    history = _open_history()
    found = history.patterns((kind,) if kind else (), prd_id=prd_id)[-(last or 0) :]
    if as_json:
        _print_json({"patterns": found})
    else:
        tables.print_patterns(found)
    _print_warnings(history)


@progress.command()
@_LAST
@_PRD
@_JSON
def failures(last: int | None, prd_id: str | None, as_json: bool) -> None:
    """Count the observations in failed and blocked attempts, by category.

    \b
    Examples:
      ralphtool progress failures
      ralphtool progress failures --last 50
    """
    history = _open_history()
    found: dict[Any, int] = dict(history.failures(last=last, prd_id=prd_id))
    if as_json:
        _print_json({"failures": found})
    else:
        tables.print_failures(found)
    _print_warnings(history)


@progress.command()
@click.argument("prd", callback=_decode_value)
@_JSON
def attempts(prd: str, as_json: bool) -> None:
    """List the attempts at a story and their results. PRD is its id in the history.

    \b
    Example:
      ralphtool progress attempts add-login-2
    """
    history = _open_history()
    found = history.entries(prd_id=prd)
    if as_json:
        last = found[-1] if found else None
        _print_json(
            {"prd_id": prd, "attempts": len(found), "last": last, "next_iteration": history.next_iteration(prd)}
        )
    else:
        tables.print_entries(found, f"{make_printable(prd)} was never attempted.")
    _print_warnings(history)


# --- the document -----------------------------------------------------------------------------------


@progress.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of progress.json.

    \b
    Example:
      ralphtool progress schema > progress.schema.json
    """
    click.echo(msgspec.json.format(msgspec.json.encode(schema.build_schema()), indent=2).decode())


@progress.command()
@click.argument("file", type=click.Path())
@_JSON
def validate(file: str, as_json: bool) -> None:
    """Check any progress.json; errors name the field, the problem, and the allowed values.

    \b
    Example:
      ralphtool progress validate .ralph/progress.json
    """
    try:
        found = document.parse(files.read(file))
    except document.InvalidDocument as error:
        raise CorruptState(f"{file}: {error}") from None
    counts = {name: len(getattr(found, name)) for name in document.KINDS}
    if as_json:
        _print_json({"valid": True, "version": found.version, **counts})
    else:
        parts = ", ".join(f"{number} {name}" for name, number in counts.items())
        tables.print_line(f"{make_printable(file)} is valid: version {found.version}, {parts}")


@progress.command()
def export() -> None:
    """Print the whole history as one document, including the journal.

    \b
    Example:
      ralphtool progress export > backup.json
    """
    history = _open_history()
    sys.stdout.buffer.write(history.export())
    _print_warnings(history)


@progress.command()
def fold() -> None:
    """Merge the journal into progress.json, for example before a commit.

    \b
    Example:
      ralphtool progress fold && git add .ralph/progress.json
    """
    history = _open_history()
    done = history.fold()
    if not os.path.lexists(history.path):
        tables.print_line("There is no history yet.")
    else:
        tables.print_line(f"{make_printable(history.path)} {'is' if done else 'was already'} up to date")
    _print_warnings(history)


# --- migration --------------------------------------------------------------------------------------


@click.command("migrate", cls=FittingCommand)
@click.option("--dry-run", is_flag=True, help="Show what would be imported; change nothing.")
@_JSON
def migrate_command(dry_run: bool, as_json: bool) -> None:
    """Import progress.txt, which other loops write, into the history.

    This also happens automatically when the history is first used.

    \b
    Example:
      ralphtool migrate --dry-run
    """
    history = _open_history()
    found = history.migrate(dry_run=dry_run)
    if as_json:
        shown = msgspec.to_builtins(found) if found else None
        if shown:
            del shown["text"]  # it is the first of the learnings
        _print_json({"migrated": found is not None and not dry_run, "found": shown})
    elif found is None:
        tables.print_line("Nothing to migrate: there is no progress.txt, or the history already exists.")
    else:
        _print_migration(found, "would become" if dry_run else "became")


def _print_migration(found: Migration, became: str) -> None:
    learnings = pluralize(len(found.learnings), "learning", "learnings")
    patterns = pluralize(len(found.patterns), "pattern", "patterns")
    tables.print_line(f"{make_printable(found.path)} {became} {make_printable(found.backup)}")
    tables.print_line(f"{learnings} and {patterns} {became} part of the history")
