"""`ralphtool memory …`: shows what is known and how much it helped, and keeps it in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralphtool.cli import arguments
from ralphtool.cli.groups import SuggestingGroup
from ralphtool.core import project, quickjson
from ralphtool.core.amounts import pluralize
from ralphtool.core.text import make_printable
from ralphtool.errors import UsageError
from ralphtool.history import History
from ralphtool.memory.knowledge import KnowledgeBase
from ralphtool.memory.review import review_learnings
from ralphtool.views.terminal import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.memory.knowledge import KnownItem
    from ralphtool.memory.review import Review

_LOOKED_THROUGH = 200  # of the newest learnings, by default
_SHOWN = 20
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")


def _open_knowledge() -> KnowledgeBase:
    knowledge = KnowledgeBase(History(project.find()))
    knowledge.sync()
    return knowledge


def _check_text(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise click.BadParameter("it must be UTF-8")
    return value


def _check_ids(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> list[str]:
    return [_check_text(context, parameter, id) for id in value]


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help=f"Check all learnings, not only the newest {_LOOKED_THROUGH}.")
@_JSON
@click.pass_context
def memory(context: click.Context, everything: bool, as_json: bool) -> None:
    """Show the learnings: how often each was shown and helped, which are stale, which are duplicates.

    A learning has helped if an attempt whose prompt included it completed the story.

    \b
    Examples:
      ralphtool memory
      ralphtool memory search "database missing in tests"
      ralphtool memory merge learning-0003 learning-0017
      ralphtool memory forget learning-0007 --why "the script is gone"
    """
    if context.invoked_subcommand is not None:
        if everything or as_json:
            raise UsageError(f"put options of `{context.invoked_subcommand}` after it")
        return
    knowledge = _open_knowledge()
    learnings = knowledge.history.learnings(last=None if everything else _LOOKED_THROUGH)
    found = review_learnings(knowledge, learnings)
    if as_json:
        _print_json(_build_json(found, knowledge.known))
    else:
        _print_review(found, knowledge.history.counts()["valid_learnings"])


def _build_json(found: Review, known: int) -> dict[str, Any]:
    return {
        "known": known,
        "learnings": [
            {
                "id": row.learning.id,
                "type": row.learning.type,
                "text": row.learning.content,
                "source": row.learning.source_prd_id,
                "shown": row.shown,
                "helped": row.helped,
            }
            for row in found.rows
        ],
        "stale": [{"id": one.id, "why": one.why} for one in found.stale],
        "repeats": [{"keep": one.keep, "merge": one.merge} for one in found.repeats],
    }


def _print_json(value: object) -> None:
    click.echo(quickjson.dumps(value))


def _print_review(found: Review, total: int) -> None:
    rows = found.rows[-_SHOWN:]
    tables.print_table(
        ("LEARNING", "SHOWN", "HELPED", "FROM", "WHAT"),
        [
            (row.learning.id, str(row.shown), str(row.helped), row.learning.source_prd_id, row.learning.content)
            for row in rows
        ],
        "There are no learnings yet: agents record them with `ralphtool agent learn`, and runs add them to prompts.",
    )
    if total > len(rows):
        rest = pluralize(total - len(rows), "earlier learning", "earlier learnings")
        tables.print_line(f"\n{rest} not shown: --json prints all that were checked, --all checks all")
    if found.stale:
        tables.print_line("\nStale:", style="bold")
        for one in found.stale:
            tables.print_line(f"  {one.id}: {one.why}; `ralphtool memory forget {one.id}`")
    if found.repeats:
        tables.print_line("\nRepeats:", style="bold")
        for pair in found.repeats:
            tables.print_line(
                f"  {pair.merge} duplicates {pair.keep}: `ralphtool memory merge {pair.keep} {pair.merge}`"
            )


@memory.command()
@click.argument("text", callback=_check_text)
@click.option(
    "--limit",
    type=arguments.WholeNumber(min=1, max=1000),
    default=10,
    show_default=True,
    help="The maximum number of results.",
)
@_JSON
def search(text: str, limit: int, as_json: bool) -> None:
    """Search learnings and patterns by topic.

    \b
    Examples:
      ralphtool memory search "database missing in tests"
      ralphtool memory search "ECONNREFUSED 127.0.0.1:5432" --json | jq -r '.found[].text'
    """
    found = _open_knowledge().search(text, limit)
    if as_json:
        _print_json({"found": [_learning_as_dict(one) for one in found]})
    else:
        rows = [(one.id or "(not written out)", f"{one.score:.2f}", ", ".join(one.sources), one.text) for one in found]
        tables.print_table(("ID", "SCORE", "FROM", "WHAT"), rows, "No learning or pattern matches.")


def _learning_as_dict(one: KnownItem) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "type": one.type,
        "text": one.text,
        "sources": list(one.sources),
        "created_at": one.created_at,
        "score": round(one.score, 4),
    }


@memory.command()
@click.argument("keep", callback=_check_text)
@click.argument("others", nargs=-1, required=True, callback=_check_ids)
@_JSON
def merge(keep: str, others: Sequence[str], as_json: bool) -> None:
    """Keep one learning, and mark its duplicates as no longer valid.

    \b
    Example:
      ralphtool memory merge learning-0003 learning-0017
    """
    if keep in others or len(set(others)) < len(others):
        raise UsageError("a learning is given twice: give the one to keep first, then each of the others once")
    history = History(project.find())
    history.forget(others, f"merged into {keep}", besides=keep)
    _print_line(
        as_json,
        f"{make_printable(', '.join(others))} merged into {make_printable(keep)}",
        kept=keep,
        forgotten=list(others),
    )


@memory.command()
@click.argument("ids", nargs=-1, required=True, callback=_check_ids)
@click.option(
    "--why", default="forgotten by hand", show_default=True, callback=_check_text, metavar="TEXT", help="The reason."
)
@_JSON
def forget(ids: Sequence[str], why: str, as_json: bool) -> None:
    """Mark learnings as no longer valid: prompts leave them out. The history keeps them.

    \b
    Example:
      ralphtool memory forget learning-0007 --why "the script is gone"
    """
    if not why.strip():
        raise UsageError("--why can't be empty: give a reason, or leave --why out")
    ids = list(dict.fromkeys(ids))
    History(project.find()).forget(ids, why)
    _print_line(as_json, f"{make_printable(', '.join(ids))}: left out of prompts from now on", forgotten=ids)


@memory.command("install")
@_JSON
def install_command(as_json: bool) -> None:
    """Install a small model that compares sentences by meaning (about 80 MB).

    This needs numpy; if it is missing, the command that installs it is printed. Once installed, the memory uses the
    model automatically.

    \b
    Example:
      ralphtool memory install
    """
    from ralphtool.memory import vectors

    vectors.install()
    _print_line(as_json, "Installed: sentences are now also compared by meaning.", installed=True)


def _print_line(as_json: bool, text: str, **facts: object) -> None:
    if as_json:
        _print_json({"success": True, **facts})
    else:
        tables.print_line(text)
