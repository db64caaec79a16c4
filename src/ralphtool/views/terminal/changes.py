"""Changes and stories as text: coloured tables in a terminal, plain lines elsewhere.

Specs and agents write what is shown here, so control characters never reach the terminal as such.
"""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

import click

from ralphtool import specs
from ralphtool.core.text import printable, writes_unicode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.record.overview import Overview
    from ralphtool.specs import Scenario, Spec, Story

_BAR_WIDTH = 12


def where_changes_lie() -> str:
    """What is looked for, in one sentence."""
    *some, last = [specs.adapter(name).found_in for name in specs.names()]
    return f"ralphtool reads {', '.join(some)}, and {last}."


def show_changes(overviews: Sequence[Overview]) -> None:
    if not overviews:
        click.echo(textwrap.fill(f"There are no changes here. {where_changes_lie()}", 88, break_long_words=False))
        return
    widths = [max(len(printable(getattr(one, key))) for one in overviews) for key in ("name", "adapter")]
    for one in overviews:
        name = click.style(printable(one.name).ljust(widths[0]), bold=True)
        click.echo(f"{name}  {printable(one.adapter).ljust(widths[1])}  {_progress(one)}{_held(one.locked_by)}")


def _progress(one: Overview) -> str:
    if one.problem is not None or one.tasks_total is None or one.tasks_done is None:
        return click.style(printable(one.problem or "can't be read"), fg="yellow")
    bar = _bar(one.tasks_done, one.tasks_total)
    return f"{bar}  tasks {one.tasks_done}/{one.tasks_total}  stories {one.stories_done}/{one.stories_total}"


def _bar(done: int, total: int) -> str:
    full = _BAR_WIDTH * done // total if total else _BAR_WIDTH
    whole, empty = ("█", "░") if writes_unicode() else ("#", ".")
    return click.style(whole * full, fg="green") + click.style(empty * (_BAR_WIDTH - full), dim=True)


def _held(locked_by: str | None) -> str:
    return click.style(f"  held by {printable(locked_by)}", fg="cyan") if locked_by else ""


def show_change(spec: Spec, stories: Sequence[Story], scenarios: Iterable[Scenario], holder: str | None) -> None:
    click.echo(f"{click.style(printable(spec.change), bold=True)}  ({spec.adapter}, {_relative(spec.path)})")
    click.echo(f"held by {printable(holder)}" if holder else "held by nobody")
    for story in stories:
        _show_story(story)
    _show_scenarios(list(scenarios))


def _show_story(story: Story) -> None:
    notes = ["optional"] if story.optional and "optional" not in story.title.lower() else []
    if story.depends_on:
        notes.append(f"waits for {', '.join(printable(id) for id in story.depends_on)}")
    note = f"  ({'; '.join(notes)})" if notes else ""
    count = click.style(f"{story.tasks_done}/{len(story.tasks)}", dim=True)
    title = click.style(f"{printable(story.id)}. {printable(story.title)}", bold=True)
    click.echo(f"\n{_mark(story.done)} {title} {count}{note}")
    for task in story.tasks:
        first, *_ = task.text.split("\n")
        click.echo(f"    {_mark(task.done)} {printable(task.id)}  {printable(first)}")


def _mark(done: bool) -> str:
    return click.style("[x]", fg="green") if done else "[ ]"


def _show_scenarios(scenarios: Sequence[Scenario]) -> None:
    if not scenarios:
        return
    click.echo(f"\n{click.style('Scenarios', bold=True)}")
    above: tuple[str | None, str | None] | None = None
    for scenario in scenarios:
        if (scenario.capability, scenario.requirement) != above:
            above = (scenario.capability, scenario.requirement)
            click.echo(f"  {printable(' / '.join(part for part in above if part))}")
        click.echo(f"    {printable(scenario.name)}")
        for word, clauses in (("given", scenario.given), ("when", scenario.when), ("then", scenario.then)):
            for clause in clauses:
                first, *_ = clause.split("\n")
                click.echo(f"      {click.style(word.rjust(5), dim=True)} {printable(first)}")


def _relative(path: str) -> str:
    near = os.path.relpath(path)
    return printable(path if near.startswith("..") else near)
