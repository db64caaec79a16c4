"""Steering a run from any terminal: questions, answer, guide, pause, resume, stop, retry, skip."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralphtool.cli import arguments, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.core.amounts import format_recorded_time
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import InvalidValue, UsageError, shorten
from ralphtool.record import change_flag, doubts, plan_numbers, questions, run_command, steering
from ralphtool.views.terminal.wrapping import echo, echo_command, glue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.cli.targets import StorySummary
    from ralphtool.record.questions import OpenQuestion
    from ralphtool.record.steering import Action
    from ralphtool.workspace.plan_merge import PlanEdit

_WIDEST = 100
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
_CHANGE = click.option("--change", help="The change, if there is more than one.", **arguments.ARGUMENT)
_NAMED = click.argument("change", **arguments.OPTIONAL)


def _read_text(words: Sequence[str]) -> str:
    text = " ".join(words)
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


# --- questions --------------------------------------------------------------------------------------


@click.command("questions", cls=FittingCommand)
@_CHANGE
@_JSON
def questions_command(change: str | None, as_json: bool) -> None:
    """List the questions that need your answer: the story, what is missing or what happened, and how to answer.

    Stories that are done, but not proven, are listed, too: accept or reject each.

    \b
    Examples:
      ralphtool questions
      ralphtool questions --json | jq -r '.questions[].missing'
    """
    root = project.find()
    name = change and targets.find_change(root, change)
    found = _list_asked(root, name)
    if as_json:
        click.echo(quickjson.dumps({"questions": [one.as_dict() for one in found]}))
        return
    if not found:
        echo("Nothing needs your answer.")
    for number, one in enumerate(found):
        if number:
            click.echo()
        _print_question(one, questions.build_answer_command(root, one))


def _list_asked(root: str, change: str | None) -> list[OpenQuestion]:
    """With the ids that the stories have in the user's plan, which may have been edited since."""
    found = [*questions.list_open(root, change), *doubts.list_doubts(root, change)]
    edits = {one.change: targets.find_edit(root, one.change) for one in found}
    return [one for name in edits for one in _rename(found, name, edits[name])]


def _rename(found: Sequence[OpenQuestion], change: str, edit: PlanEdit | None) -> list[OpenQuestion]:
    return plan_numbers.rename_questions([one for one in found if one.change == change], edit)


def _print_question(one: OpenQuestion, command: str) -> None:
    about = f"{one.story}. {one.title}" if one.title else one.story
    moment = format_recorded_time(one.asked) or make_printable(one.asked[:16])
    where = ", ".join(filter(None, (make_printable(one.change), moment)))
    echo(f"{click.style(make_printable(about), bold=True)}  ({where})")
    for line in filter(None, ("" if one.missing in one.why else one.missing, one.why)):
        echo(f"  {_shorten_line(line)}")
    if one.answer:
        echo(click.style(f"  answered, but not read by a run yet: {_shorten_line(one.answer)}", fg="green"))
    elif one.is_done:
        for each in command.split(", or "):
            echo(f"  {glue(make_printable(each))}")
    else:
        echo(f"  {glue(make_printable(command))}      or edit {glue(make_printable(one.path))}")


def _shorten_line(text: str) -> str:
    line = make_printable(" ".join(text.split()))
    return line if len(line) <= 10 * _WIDEST else f"{line[: 10 * _WIDEST]}..."


_STORY = click.argument("story", shell_complete=targets.complete_story)


@click.command(cls=FittingCommand)
@_STORY
@click.argument("text", nargs=-1)
@_CHANGE
def answer(story: str, text: Sequence[str], change: str | None) -> None:
    """Answer a story's question. The current or next run tries the story again with fresh attempts.

    A story that is done, but not proven, needs `ralphtool accept` or `ralphtool reject` instead.
    Without TEXT your editor opens; `-` reads standard input.

    \b
    Examples:
      ralphtool questions
      ralphtool answer 4 "The key is in the vault; use tests/fake_pay.py"
      ralphtool answer 4 - < answer.txt
    """
    root = project.find()
    targets.refuse_agents(root)
    asked = _find_question(root, story, change)
    questions.check_answerable(root, asked)
    told = _read_text(text) if text else _edit_answer(root, asked)
    questions.reply(root, asked, told)
    echo(f"story {make_printable(asked.story)} continues with your answer{steering.describe_when(root, asked.change)}")
    _suggest_run(root, asked.change)


def _suggest_run(root: str, change: str) -> None:
    """Prints the command that runs a change, unless it is running."""
    if not targets.find_run_lock(root, change):
        echo_command(make_printable(run_command.build(root, change)))


def _find_question(root: str, story: str, change: str | None) -> OpenQuestion:
    named = change and targets.find_change(root, change)
    for name in {one.change for one in questions.list_open(root, named)}:
        targets.settle_ids(root, name, story)
    waiting = questions.list_open(root, named)
    found = [one for one in waiting if story in (one.story, one.prd_id)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.change for one in found)
        raise UsageError(f"several changes have a question about story {story}: add --change NAME ({names})")
    there = ", ".join(one.story for one in waiting)
    rest = f"these stories have: {there}" if there else "nothing needs your answer"
    raise InvalidValue(f'story {shorten(story)} has no question; {rest}. To send guidance: `ralphtool guide STORY "…"`')


def _edit_answer(root: str, asked: OpenQuestion) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"the answer is missing: `{questions.build_answer_command(root, asked)}`")
    mark = "\n\n--- Write your answer above this line. The question was: ---\n\n"
    edited = click.edit(mark + make_lines_printable(asked.text))
    return (edited or "").partition(mark.strip())[0]


# --- guide ------------------------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@click.argument("words", nargs=-1, metavar="[STORY] [TEXT]")
@click.option("--clear", is_flag=True, help="Remove the guidance for STORY, or all guidance.")
@_CHANGE
@_JSON
def guide(words: Sequence[str], clear: bool, change: str | None, as_json: bool) -> None:
    """Add guidance to the agent's prompts, from the next one on, until the story (or the change) is done.

    Without STORY it applies to all stories; without arguments, the current guidance is shown.

    \b
    Examples:
      ralphtool guide "Prices are in cents everywhere, never in floats"
      ralphtool guide 3 "Use the v2 API: v1 is switched off next month"
      ralphtool guide 3 --clear
      ralphtool guide
    """
    root = project.find()
    about = words[0] if len(words) == 2 or (words and clear) else None
    change = targets.find_change_of_story(root, change, about)
    if not words and not clear:
        _print_guidance(root, change, as_json=as_json)
        return
    story, text = _split_words(words, clear=clear)
    if story is not None:
        targets.settle_ids(root, change, story)
    found = targets.find_story(root, change, story)[0] if story is not None else None
    id = found.id if found else None
    if not clear:
        _check_guidance(root, change, id, text)
    steering.send(root, change, "forget" if clear else "guide", id, text)
    about = f"{f'story {make_printable(id)}' if id else 'all stories'} of {change}"
    if clear:
        done = f"your guidance for {about} is no longer in the prompts"
    else:
        done = f"your guidance applies to {about}, from the next prompt on"
    echo(f"{done}{steering.describe_when(root, change)}")
    if found and not clear and (hint := _describe_no_prompt(root, change, found)):
        echo(make_printable(hint))


def _describe_no_prompt(root: str, change: str, story: StorySummary) -> str:
    """Why there will be no next prompt for a story unless the user acts."""
    id, flag = story.id, change_flag.build(change, root)
    if any(one.story == id and not one.answer and not one.is_done for one in questions.list_open(root, change)):
        ways = f'`ralphtool answer {id} "…"{flag}` (or `ralphtool retry {id}{flag}`)'
        return f"story {id} needs your answer first: {ways}"
    return f'story {id} is done; to reopen it: `ralphtool reject {id} --why "…"{flag}`' if story.done else ""


def _split_words(words: Sequence[str], *, clear: bool) -> tuple[str | None, str]:
    if clear:
        if len(words) > 1:
            raise UsageError("--clear accepts only a STORY, whose guidance it removes")
        return (words[0] if words else None), ""
    if len(words) > 2:
        raise UsageError('put the text in quotes: `ralphtool guide STORY "what the agent should know"`')
    text = _read_text(words[-1:])
    return (words[0] if len(words) == 2 else None), questions.check_text(text)


def _check_guidance(root: str, change: str, story: str | None, text: str) -> None:
    if story is None and text in {one.id for _, one in targets.list_stories(root, change)}:
        flag = change_flag.build(change, root)
        raise UsageError(f'the guidance for story {text} is missing: `ralphtool guide {text} "…"{flag}`')
    if sum(one == story for one, _ in steering.list_guidance(root, change)) >= steering.MAX_GUIDANCE:
        about = f"story {story}" if story else "all stories"
        command = f"ralphtool guide {f'{story} ' if story else ''}--clear{change_flag.build(change, root)}"
        raise InvalidValue(
            f"{steering.MAX_GUIDANCE} pieces of guidance for {about} already exist, the maximum: remove them first "
            f"(`{command}`)"
        )


def _print_guidance(root: str, change: str, *, as_json: bool) -> None:
    told = steering.list_guidance(root, change)
    if as_json:
        click.echo(quickjson.dumps({"guidance": [{"story": story, "text": text} for story, text in told]}))
        return
    if not told:
        command = glue(f'`ralphtool guide "…"{change_flag.build(change, root)}`')
        echo(f"There is no guidance for {change} yet: {command} adds some.")
    for story, text in told:
        echo(f"{make_printable(f'story {story}' if story else 'all stories')}: {_shorten_line(text)}")


# --- pause, resume, stop ----------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@_NAMED
def pause(change: str | None) -> None:
    """Pause a run after its current iteration: no new one is started until `ralphtool resume`.

    \b
    Examples:
      ralphtool pause
      ralphtool pause add-login
    """
    root = project.find()
    change = targets.find_change(root, change)
    steering.send(root, change, "pause")
    echo(f"{change} starts no new iteration until `ralphtool resume {change}`{steering.describe_when(root, change)}")


@click.command(cls=FittingCommand)
@_NAMED
def resume(change: str | None) -> None:
    """Resume a paused run.

    \b
    Example:
      ralphtool resume
    """
    root = project.find()
    change = targets.find_change(root, change)
    if not steering.is_paused(root, change):
        echo(f"{change} is not paused: nothing to do")
        return
    steering.send(root, change, "resume")
    is_running = targets.find_run_lock(root, change)
    echo(f"{change} resumes{'' if is_running else ' when you run it:'}")
    _suggest_run(root, change)


@click.command(cls=FittingCommand)
@_NAMED
@click.option("--after", is_flag=True, help="Stop after the current iteration, not immediately.")
def stop(change: str | None, after: bool) -> None:
    """Stop a run, as Ctrl-C in its terminal would: running it again resumes where it stopped.

    \b
    Examples:
      ralphtool stop
      ralphtool stop add-login --after
    """
    root = project.find()
    change = targets.find_change(root, change)
    running = targets.find_run_lock(root, change)
    if running is None:
        raise InvalidValue(f"{change} is not running: there is nothing to stop (`ralphtool runs` shows the runs)")
    steering.send(root, change, "stop-after" if after else "stop", run=running.session_id)
    when = "after the current iteration" if after else "now: its agent is stopped within 10 seconds"
    echo(f"{change} stops {when}")


# --- retry, skip ------------------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@_STORY
@click.argument("text", nargs=-1)
@_CHANGE
def retry(story: str, text: Sequence[str], change: str | None) -> None:
    """Retry a story that failed, was skipped, or needs your answer. TEXT is guidance for the agent.

    \b
    Examples:
      ralphtool retry 3
      ralphtool retry 3 "The test server is up again"
    """
    _send_decision("retry", story, _read_text(text), change, lambda one, rest: f"story {one.id} gets fresh attempts")


@click.command(cls=FittingCommand)
@_STORY
@click.option("--why", default="", help="The reason, for the record.")
@_CHANGE
def skip(story: str, why: str, change: str | None) -> None:
    """Skip a story. An agent that is working on it is stopped; `ralphtool retry` undoes the skip.

    \b
    Examples:
      ralphtool skip 5
      ralphtool skip 5 --why "not before the new design"
    """
    _send_decision("skip", story, why, change, _describe_skip)


def _describe_skip(story: StorySummary, stories: Sequence[StorySummary]) -> str:
    waiting = [one.id for one in stories if story.id in one.depends_on]
    so = f"; these stories wait for it: {', '.join(waiting)}" if waiting else ""
    return f"story {story.id} is skipped{so}"


def _send_decision(
    action: Action,
    story: str,
    text: str,
    change: str | None,
    told: Callable[[StorySummary, Sequence[StorySummary]], str],
) -> None:
    root = project.find()
    change = targets.find_change_of_story(root, change, story)
    targets.settle_ids(root, change, story)
    found, stories = targets.find_story(root, change, story)
    if found.done:
        raise InvalidValue(f"story {found.id} of {change} is done: there is nothing to {action}")
    steering.send(root, change, action, found.id, text)
    echo(f"{make_printable(told(found, stories))}{steering.describe_when(root, change)}")
    if action == "retry":
        _suggest_run(root, change)
