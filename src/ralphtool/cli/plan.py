"""The plan of a run as text, followed by the prompt as it would be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.views.terminal.wrapping import echo, glue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.loop.dryrun import Plan, PlannedStory

_MOST_SUGGESTED = 4  # stories at once
_MARKS = {"done": "x", "ready": " ", "later": " ", "waiting": "?", "skipped": "-"}


def print_plan(plan: Plan, agents: Sequence[str], troubles: Sequence[str], flag: str) -> None:
    """`flag` names the change in commands, if that is needed."""
    echo(f"{_bold(plan.change)}: what a run would do. This is a dry run: nothing is changed.")
    if plan.held_by:
        echo(click.style(f"It is locked by {make_printable(plan.held_by)}, so a run can't start now.", fg="yellow"))
    if plan.paused:
        told = f"It is paused: no story is started until `ralphtool resume {plan.change}`."
        echo(click.style(make_printable(told), fg="yellow"))
    _print_part(
        "Stories, in the order in which they would be started",
        [_format_story(one, plan.first, flag) for one in plan.steps],
    )
    if plan.rounds and (plan.side_by_side > 1 or any(len(ids) > 1 for ids in plan.rounds)):
        _print_part("Side by side", list(_describe_rounds(plan)))
    _print_part("Where", plan.workspace)
    if plan.gates:
        _print_part("Gates", plan.gates, is_whole=True)
    else:
        _print_part("Gates", ["no gates configured: no story can be proven"])
    if plan.gate_troubles:
        _print_part("Problems of the gates", plan.gate_troubles)
    _print_part("Agents", agents or ["none"])
    if troubles:
        _print_part("Problems that prevent a run", [line for text in troubles for line in text.splitlines()])
    if plan.prompt is None:
        echo("\nNo story can be worked on now.")
        return
    cut = f" (shortened: {', '.join(plan.cut)})" if plan.cut else ""
    echo(f"\n{_bold(f'The first prompt, for story {plan.first}{cut}')}\n")
    click.echo(make_lines_printable(plan.prompt))


def _bold(text: str) -> str:
    return click.style(make_printable(text), bold=True)


def _print_part(title: str, lines: Sequence[str], *, is_whole: bool = False) -> None:
    echo(f"\n{_bold(title)}")
    for line in lines:
        echo(f"  {glue(make_printable(line)) if is_whole else make_printable(line)}", 4)


def _describe_rounds(plan: Plan) -> Iterator[str]:
    """Which stories run at once; or could, with an option that is not set."""
    chain = len(plan.rounds)
    longest = f"the longest chain has {chain} {'story' if chain == 1 else 'stories'}"
    if plan.side_by_side > 1:
        yield f"at most {plan.side_by_side} at a time; {longest}"
    else:
        most = min(max(map(len, plan.rounds)), _MOST_SUGGESTED)
        yield f"one story at a time, as configured; {longest}. With --side-by-side {most}:"
    for number, ids in enumerate(plan.rounds):
        first, noun = "then " if number else "", "story" if len(ids) == 1 else "stories"
        yield f"{first}{noun} {', '.join(ids)}{' at once' if len(ids) > 1 else ''}"


def _format_story(step: PlannedStory, first: str | None, flag: str) -> str:
    remarks = ["first"] if step.id == first else []
    if step.waits_for and step.state not in ("done", "skipped"):
        remarks.append(f"waits for {', '.join(step.waits_for)}")
    if step.state == "waiting":
        remarks.append(f'needs your answer: `ralphtool answer {step.id} "…"{flag}`')
    remarks += [step.put_aside or "skipped"] if step.state == "skipped" else []
    remarks += ["optional"] if step.optional else []
    remarks += [f"attempt {step.attempts + 1}"] if step.attempts and step.state == "ready" else []
    tasks = f"{step.tasks_done}/{step.tasks_total}"
    return f"[{_MARKS[step.state]}] {step.id}. {step.title}  {tasks}" + (f"  ({'; '.join(remarks)})" if remarks else "")
