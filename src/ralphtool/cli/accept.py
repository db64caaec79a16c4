"""Decisions of people about finished work: accept, reject."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING

import click

from ralphtool.cli import arguments, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import layout, locks, project, session
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeLocked, InvalidValue, RalphError, UsageError, shorten
from ralphtool.loop import idle
from ralphtool.record import overview, questions, run_command, steering
from ralphtool.record.lines import LineReader, parse_fields
from ralphtool.record.steering import SteeringCommand
from ralphtool.views.terminal.wrapping import echo, echo_command
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from ralphtool.loop.acceptance import DecisionPlan
    from ralphtool.record.steering import Action

_PATIENCE = 30.0  # seconds for a run to respond: it normally takes less than one
_CHANGE = click.option("--change", help="The change, if there is more than one.", **arguments.ARGUMENT)


@click.command(cls=FittingCommand)
@click.argument("name", metavar="STORY|ENTRY", shell_complete=targets.complete_story)
@click.option("--why", default="", help="The reason, for the record.")
@_CHANGE
def accept(name: str, why: str, change: str | None) -> None:
    """Accept a story as it is: one that is done but not proven, or an attempt that was judged failed.

    STORY selects the story's last attempt, ENTRY one particular attempt. Its work
    becomes the story's commit on the branch, its tasks are ticked, and its
    question is closed. A run in progress applies this immediately. Your name is
    recorded.

    \b
    Examples:
      ralphtool accept 3
      ralphtool accept 3 --why "the old test was wrong"
      ralphtool diff add-login-3-2
      ralphtool accept add-login-3-2 --why "I read the diff"
    """
    _decide("accept", name, why, change)


@click.command(cls=FittingCommand)
@click.argument("name", metavar="STORY|ENTRY", shell_complete=targets.complete_story)
@click.option("--why", default="", help="The reason. It is included in the next attempt's prompt.")
@_CHANGE
def reject(name: str, why: str, change: str | None) -> None:
    """Reopen a story that is done: its work is reverted on the branch, and it is tried again.

    ENTRY is the attempt that completed the story. Later stories that changed
    the same lines are listed and reopened too. A run in progress applies this
    immediately. Your name is recorded.

    \b
    Examples:
      ralphtool reject 2 --why "passwords must not be logged"
      ralphtool reject 2 --change add-login
    """
    _decide("reject", name, why, change)


def _decide(action: Action, name: str, why: str, change: str | None) -> None:
    root = project.find()
    targets.refuse_agents(root)
    change = _find_change(root, name, change)
    targets.settle_ids(root, change, name)
    story, entry = _find_story_or_entry(root, change, name)
    text = questions.check_text(why) if why else ""
    said = SteeringCommand("", action, story, text, at=session.now(), by=_describe_person(root), entry=entry)
    is_heard, made = _settle(root, change, said)
    if not made.kind or not is_heard:
        echo(make_printable(made.text))
    else:
        echo(f"{make_printable(made.text)} (the run of {change} applies it between iterations)")
    if made.kind == "revert" and not is_heard:
        echo_command(make_printable(run_command.build(root, change)))


# --- change and entry -------------------------------------------------------------------------------


def _find_change(root: str, name: str, change: str | None) -> str:
    """As for every command; the name of an attempt also identifies the change."""
    if change is None:
        found = [one for one in overview.list_names(root) if _is_named_in_full(root, one, name)]
        if len(found) == 1:
            return found[0]
    return targets.find_change_of_story(root, change, name)


def _is_named_in_full(root: str, change: str, name: str) -> bool:
    try:
        prd_ids = [prd_id for prd_id, _ in targets.list_stories(root, change)]
    except RalphError:
        return False  # an unreadable change can't be the one
    return name in prd_ids or _parse_entry(name) in prd_ids


def _parse_entry(name: str) -> str:
    """The part before the number of an attempt."""
    before, _, number = name.rpartition("-")
    return before if number.isascii() and number.isdigit() else ""


def _find_story_or_entry(root: str, change: str, name: str) -> tuple[str, str | None]:
    stories = targets.list_stories(root, change)
    if any(one.id == name for _, one in stories):
        return name, None
    named = [one.id for prd_id, one in stories if prd_id == name]
    tried = [one.id for prd_id, one in stories if prd_id == _parse_entry(name)]
    if named and tried:
        raise UsageError(
            f"{shorten(name)} is story {named[0]}, and an attempt at story {tried[0]}: use {named[0]} or {tried[0]}"
        )
    moved = targets.find_story_of_entry(root, change, name)
    if not named and moved in {one.id for _, one in stories}:
        return moved, name
    if not named and not tried:
        raise targets.build_unknown_error(name, {change: stories}, or_attempt=True)
    return (named or tried)[0], name if tried else None


def _describe_person(root: str) -> str:
    """The user's name and email from git, in one line; empty if neither git nor the system has a name."""
    repository = Repository.find(root)
    known = [repository.text("config", f"user.{key}", check=False) if repository else "" for key in ("name", "email")]
    name = known[0] or _find_login_name()
    return " ".join(f"{name} <{known[1]}>".split() if known[1] else name.split())[:200]


def _find_login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


# --- here, or by the run ----------------------------------------------------------------------------


def _settle(root: str, change: str, said: SteeringCommand) -> tuple[bool, DecisionPlan]:
    """Whether a run carries it out, and the plan. A run may begin or end at the same moment."""
    while True:
        if run := targets.find_run_lock(root, change):
            made = idle.plan(root, change, said)
            if not made.kind or _tell_run(root, change, run.session_id, said):
                return True, made
        else:
            try:
                return False, idle.decide(root, change, said)
            except ChangeLocked:
                if targets.find_run_lock(root, change) is None:
                    raise


def _tell_run(root: str, change: str, run: str, said: SteeringCommand) -> bool:
    """Waits for the run's reply, because a run accepts only commands that are alive. False if the run is over."""
    record = LineReader(layout.events(root, run))
    list(record.new_without_prose())
    id = idle.send(root, change, said)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if _is_heard(record, said):
            return True
        held = locks.find_holder(root, change)
        if held is None or held.session_id != run:
            break
        time.sleep(0.05)
    steering.remove_applied(root, change, [id])
    if _is_heard(record, said):
        return True
    if time.monotonic() < end:
        return False
    raise InvalidValue(
        f"the run of {change} did not respond within {_PATIENCE:.0f} seconds: try again, or stop the run"
    )


def _is_heard(record: LineReader, said: SteeringCommand) -> bool:
    found = [parse_fields(line) for line in record.new_without_prose()]
    return any(
        one is not None
        and one["type"] == "steered"
        and (one.get("action"), one.get("story")) == (said.action, said.story)
        for one in found
    )
