"""Changes and stories as text: coloured tables in a terminal, plain lines elsewhere.

Specs and agents write what is shown here, so control characters never reach the terminal as such.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from ralphtool import specs
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.judging import proof_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.overview import Overview
    from ralphtool.specs import Scenario, Spec, Story

_BAR_WIDTH = 12


def describe_locations() -> str:
    """What is looked for, in one sentence."""
    *some, last = [specs.adapter(name).found_in for name in specs.names()]
    return f"ralphtool reads {', '.join(some)}, and {last}."


def print_changes(overviews: Sequence[Overview]) -> None:
    if not overviews:
        import textwrap

        click.echo(textwrap.fill(f"There are no changes here. {describe_locations()}", 88, break_long_words=False))
        return
    widths = [max(len(make_printable(getattr(one, key))) for one in overviews) for key in ("name", "adapter")]
    for one in overviews:
        name = click.style(make_printable(one.name).ljust(widths[0]), bold=True)
        adapter = make_printable(one.adapter).ljust(widths[1])
        line = f"{name}  {adapter}  {_format_progress(one)}"
        click.echo(f"{line}{_format_claims(one, line, widths[0] + 2)}{_format_holder(one.locked_by)}")


def _format_progress(one: Overview) -> str:
    if one.problem is not None or one.tasks_total is None or one.tasks_done is None:
        return click.style(make_printable(one.problem or "can't be read"), fg="yellow")
    bar = _render_bar(one.tasks_done, one.tasks_total)
    return f"{bar}  tasks {one.tasks_done}/{one.tasks_total}  stories {one.stories_done}/{one.stories_total}"


def _format_claims(one: Overview, line: str, indent: int) -> str:
    """What the stories that are done claim: behind the line, or below it where a terminal has no room for that."""
    claims = proof_words.describe_short_counts(one.proofs) if one.problem is None else ""
    if not claims:
        return ""
    is_narrow = sys.stdout.isatty() and len(click.unstyle(line)) + len(claims) + 2 > _find_width()
    return f"\n{' ' * indent}{claims}" if is_narrow else f": {claims}"


def _find_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):  # it is gone, or is no file
        return 80


def _render_bar(done: int, total: int) -> str:
    full = _BAR_WIDTH * done // total if total else _BAR_WIDTH
    whole, empty = ("█", "░") if can_write_unicode() else ("#", ".")
    return click.style(whole * full, fg="green") + click.style(empty * (_BAR_WIDTH - full), dim=True)


def _format_holder(locked_by: str | None) -> str:
    return click.style(f"  locked by {make_printable(locked_by)}", fg="cyan") if locked_by else ""


def print_change(
    spec: Spec,
    stories: Sequence[Story],
    scenarios: Iterable[Scenario],
    holder: str | None,
    receipts: Mapping[str, Receipt],
) -> None:
    click.echo(f"{click.style(make_printable(spec.change), bold=True)}  ({spec.adapter}, {_shorten_path(spec.path)})")
    click.echo(f"locked by {make_printable(holder)}" if holder else "not locked")
    for story in stories:
        _print_story(story)
        if story.id in receipts:
            for line in render_receipt(receipts[story.id]):
                click.echo(f"    {line}")
    _print_scenarios(list(scenarios))


def _print_story(story: Story) -> None:
    notes = ["optional"] if story.optional and "optional" not in story.title.lower() else []
    if story.depends_on:
        notes.append(f"waits for {', '.join(make_printable(id) for id in story.depends_on)}")
    note = f"  ({'; '.join(notes)})" if notes else ""
    count = click.style(f"{story.tasks_done}/{len(story.tasks)}", dim=True)
    title = click.style(f"{make_printable(story.id)}. {make_printable(story.title)}", bold=True)
    click.echo(f"\n{_render_mark(story.done)} {title} {count}{note}")
    for task in story.tasks:
        first, *_ = task.text.split("\n")
        click.echo(f"    {_render_mark(task.done)} {make_printable(task.id)}  {make_printable(first)}")


def render_receipt(receipt: Receipt) -> list[str]:
    """What the "done" of a story rests on: a line, and below it the rest."""
    from ralphtool.views import receipts  # most changes have none yet

    colour = "yellow" if receipt.state == "unproven" else "green"
    rows = [f"  {click.style(row.label.ljust(9), dim=True)} {row.text}" for row in receipts.list_rows(receipt)]
    return [click.style(receipts.describe_receipt(receipt), fg=colour), *rows]


def _render_mark(done: bool) -> str:
    return click.style("[x]", fg="green") if done else "[ ]"


def _print_scenarios(scenarios: Sequence[Scenario]) -> None:
    if not scenarios:
        return
    click.echo(f"\n{click.style('Scenarios', bold=True)}")
    above: tuple[str | None, str | None] | None = None
    for scenario in scenarios:
        if (scenario.capability, scenario.requirement) != above:
            above = (scenario.capability, scenario.requirement)
            click.echo(f"  {make_printable(' / '.join(part for part in above if part))}")
        click.echo(f"    {make_printable(scenario.name)}")
        for word, clauses in (("given", scenario.given), ("when", scenario.when), ("then", scenario.then)):
            for clause in clauses:
                first, *_ = clause.split("\n")
                click.echo(f"      {click.style(word.rjust(5), dim=True)} {make_printable(first)}")


def _shorten_path(path: str) -> str:
    near = os.path.relpath(path)
    return make_printable(path if near.startswith("..") else near)
