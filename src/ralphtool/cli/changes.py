"""The changes of a project: `show`, `learnings` and `unlock`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ralphtool import specs
from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import layout, locks, project, quickjson
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import RalphError
from ralphtool.record import overview
from ralphtool.specs import titles
from ralphtool.views.terminal import changes, wrapping
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralphtool.judging.receipt import Receipt
    from ralphtool.workspace.plan_merge import PlanEdit

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
_SPEC = click.option("--spec", metavar="FORMAT", help="The format of the change, or its Markdown file.")


@click.command(cls=FittingCommand)
@click.argument("change", **arguments.OPTIONAL)
@_SPEC
@_JSON
def show(change: str | None, spec: str | None, as_json: bool) -> None:
    """Show a change: its stories, tasks and scenarios, and what locks it.

    \b
    Examples:
      ralphtool show                     # the only change
      ralphtool show add-login
      ralphtool show PLAN --spec docs/PLAN.md
    """
    root = project.find()
    change = change or specs.find_named(root, spec) or overview.find_only(root)
    ref = specs.parse_ref(root, spec)
    if ref and specs.change_of(ref) == change:
        from ralphtool.specs import tracker

        for text in tracker.copy_named(root, change, ref):
            wrapping.echo(make_printable(text), err=True)
    with branch.open_spec(root, change, ref) as on_branch:
        found = on_branch or specs.open(root, change, ref)
        _print_change(root, found, as_json=as_json)


def _print_change(root: str, found: specs.Spec, *, as_json: bool) -> None:
    change = found.change
    is_namesake = overview.is_namesake(root, found)
    lock = locks.find_holder(root, change)
    completed = () if is_namesake else locks.list_completed_tasks(root, change)
    edit = branch.find_edit(found)
    # The branch lacks a working agent's ticks. If the plan was edited since, their numbers may be other tasks'.
    stories, ticked = found.stories(completed), completed if lock and not edit else ()
    scenarios = {tuple(map(str, one.as_dict().values())): one for story in stories for one in found.scenarios(story)}
    done = {story.id for story in stories if story.done and not is_namesake}
    receipts = _read_receipts(root, change, done, edit)
    if not as_json:
        holder = lock.describe() if lock else None
        remarks = {} if is_namesake else _build_remarks(root, change, edit)
        changes.print_change(found, stories, scenarios.values(), holder, receipts, ticked, remarks)
        return
    click.echo(
        quickjson.dumps(
            {
                "name": found.change,
                **({"title": title} if (title := titles.find_title(found)) else {}),
                "adapter": found.adapter,
                "path": found.path,
                "locked_by": lock.session_id if lock else None,
                "stories": [_story_as_dict(story, receipts.get(story.id), ticked) for story in stories],
                "scenarios": [one.as_dict() for one in scenarios.values()],
            }
        )
    )


def _build_remarks(root: str, change: str, edit: PlanEdit | None) -> dict[str, str]:
    """Why no run works on a story, and what to do; nothing if the state can't be read."""
    commands = _build_retry_commands(root, change, edit)
    return {
        **dict.fromkeys(_list_waiting(root, change, edit), "needs your answer: `ralphtool questions`"),
        **{story: f"skipped; {command} undoes it" for story, command in commands.items()},
    }


def _build_retry_commands(root: str, change: str, edit: PlanEdit | None) -> dict[str, str]:
    from ralphtool.record import change_flag, plan_numbers, skips

    try:
        skipped = plan_numbers.rename(dict.fromkeys(skips.list_skipped(root, change)), edit)
    except (RalphError, OSError):
        return {}
    if not skipped:
        return {}
    import shlex  # only commands need it

    flag = change_flag.build(change, root)
    return {one: wrapping.glue(make_printable(f"`ralphtool retry {shlex.quote(one)}{flag}`")) for one in skipped}


def _list_waiting(root: str, change: str, edit: PlanEdit | None) -> list[str]:
    """The stories that need an answer; none if the state can't be read."""
    if not os.path.exists(layout.change_state(root, change)):
        return []
    from ralphtool.record import plan_numbers, questions  # not needed for changes that were never run

    try:
        asked = plan_numbers.rename_questions(questions.list_open(root, change), edit)
    except (RalphError, OSError):
        return []
    return [one.story for one in asked if one.answer is None]


def _read_receipts(root: str, change: str, done: Collection[str], edit: PlanEdit | None) -> dict[str, Receipt]:
    """The receipts of the stories that are done. An unreadable state is only a warning."""
    if not os.path.exists(layout.change_state(root, change)) and not branch.may_exist(root):
        return {}
    from ralphtool.record import plan_numbers, receipts  # not needed for changes that were never run

    try:
        found = plan_numbers.rename(receipts.read_receipts(root, change), edit)
    except RalphError as error:
        wrapping.echo(f"Warning: {make_printable(str(error))}", err=True)
        return {}
    return {story: receipt for story, receipt in found.items() if story in done}


def _story_as_dict(story: specs.Story, receipt: Receipt | None, ticked: Collection[str]) -> dict[str, Any]:
    tasks = [(task, task.done or task.id in ticked) for task in story.tasks]
    return {
        "id": story.id,
        "title": story.title,
        "description": story.description,
        "done": story.done,
        "optional": story.optional,
        "depends_on": list(story.depends_on),
        "proof": None if receipt is None else _receipt_as_dict(receipt),
        "tasks": [{"id": task.id, "description": task.text, "done": is_done} for task, is_done in tasks],
    }


def _receipt_as_dict(receipt: Receipt) -> Any:
    from msgspec import to_builtins

    return to_builtins(receipt)


@click.command("learnings", cls=FittingCommand)
@click.argument("change", **arguments.OPTIONAL)
@_JSON
def learnings(change: str | None, as_json: bool) -> None:
    """Show the learnings file of a change: its path, and what agents wrote in it.

    CHANGE may be left out if there is only one.

    \b
    Examples:
      ralphtool learnings
      $EDITOR "$(ralphtool learnings add-login | head -1)"
    """
    from ralphtool.core import learnings_file

    change = change or overview.find_only(project.find())
    path, content = learnings_file.path_of(change), learnings_file.read(change)
    if not learnings_file.exists(path):
        _check_change_exists(change)
    if as_json:
        click.echo(quickjson.dumps({"path": path, "content": content}))
        return
    click.echo(path)
    click.echo(f"\n{make_lines_printable(content)}" if content else "\nThe file has no learnings yet.")


def _check_change_exists(change: str) -> None:
    known = overview.list_names(project.find())
    if change not in known:
        raise overview.build_not_found_error(change, known)


@click.command(cls=FittingCommand)
@click.argument("change", **arguments.ARGUMENT)
@click.option("--force", is_flag=True, help="Release it even if the process that locks it is alive.")
def unlock(change: str, force: bool) -> None:
    """Release a change that a dead session still locks.

    The session's records are not lost: the next session takes them over.

    \b
    Example:
      ralphtool unlock add-login
    """
    from ralphtool.core import lifecycle

    done = lifecycle.unlock(project.find(), change, force=force)
    if done is None:
        _check_change_exists(change)
    wrapping.echo(make_printable(done) if done else f"{change} is not locked: nothing to do")
