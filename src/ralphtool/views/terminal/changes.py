"""Changes and stories as text: coloured tables in a terminal, plain lines elsewhere.

Specs and agents write what is shown here, so control characters never reach the terminal as such.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from ralphtool import specs
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.specs import titles
from ralphtool.views.terminal.wrapping import echo, find_width, glue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.overview import Overview
    from ralphtool.specs import Scenario, Spec, Story

_BAR_WIDTH = 12


def describe_locations() -> str:
    """The files that are searched for, in one sentence."""
    *some, last = [specs.adapter(name).found_in for name in specs.names()]
    return f"ralphtool reads {', '.join(some)}, and {last}."


def print_changes(overviews: Sequence[Overview]) -> None:
    if not overviews:
        import textwrap

        width = min(find_width() or 88, 88)
        text = f"There are no changes here. {describe_locations()}"
        click.echo(textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False))
        echo('`ralphtool new "Add login"` creates a change, and `ralphtool plan "Add login"` lets an agent draft one.')
        return
    widths = [max(len(make_printable(getattr(one, key))) for one in overviews) for key in ("name", "adapter")]
    twins = _find_twins(overviews)
    for one in overviews:
        name = click.style(make_printable(one.name).ljust(widths[0]), bold=True)
        adapter = make_printable(one.adapter).ljust(widths[1])
        line = f"{name}  {adapter}  {_format_progress(one)}"
        place = _format_place(one.path) if one.is_nested or (one.name, one.adapter) in twins else ""
        more = f"{_format_holder(one.locked_by)}{_format_warnings(one)}{place}"
        echo(f"{line}{_format_claims(one, line, widths[0] + 2)}{more}", widths[0] + 2)
        for text, style in _list_remarks(one):
            echo(f"{' ' * (widths[0] + 2)}{click.style(text, **style)}", 2)


def _list_remarks(one: Overview) -> Iterator[tuple[str, dict[str, Any]]]:
    """The remarks below the line of a change."""
    if one.title:
        yield make_printable(one.title), {"dim": True}
    if one.has_died:
        command = glue(make_printable(f"`{one.run_command}`"))
        yield f"its last run died: {command} resumes where it stopped", {"fg": "yellow"}
    if one.is_paused and one.stories_done != one.stories_total:
        command = glue(make_printable(f"`ralphtool resume {one.name}`"))
        yield f"paused: no story is started until {command}", {"fg": "yellow"}
    if one.waiting or one.doubted:
        yield f"{_describe_questions(one)}: {glue('`ralphtool questions`')}", {"fg": "yellow"}
    if one.skipped:
        yield f"{_describe_skipped(one)}: {glue(make_printable(f'`ralphtool show {one.name}`'))}", {"dim": True}


def _describe_skipped(one: Overview) -> str:
    from ralphtool.core.amounts import pluralize  # not needed for a change that was never run

    return pluralize(one.skipped, "story is skipped", "stories are skipped")


def _describe_questions(one: Overview) -> str:
    from ralphtool.core.amounts import pluralize  # likewise

    words = [pluralize(one.waiting, "story needs your answer", "stories need your answer")] if one.waiting else []
    words += (
        [pluralize(one.doubted, "story is done, not proven", "stories are done, not proven")] if one.doubted else []
    )
    return ", ".join(words)


def _format_progress(one: Overview) -> str:
    if one.problem is not None or one.tasks_total is None or one.tasks_done is None:
        return click.style(make_printable(one.problem or "can't be read"), fg="yellow")
    if not one.tasks_total:
        return click.style("no tasks yet", dim=True)
    bar = _render_bar(one.tasks_done, one.tasks_total)
    tasks, stories = f"tasks {one.tasks_done}/{one.tasks_total}", f"stories {one.stories_done}/{one.stories_total}"
    return f"{bar}  {glue(tasks)}  {glue(stories)}"


def _format_claims(one: Overview, line: str, indent: int) -> str:
    """The claims of the stories that are done: after the line, or below it if the terminal is too narrow."""
    if one.problem is not None or not one.proofs:
        return ""
    from ralphtool.judging import proof_words  # most changes have no proofs yet

    claims = proof_words.describe_short_counts(one.proofs)
    width = find_width()
    is_narrow = width is not None and len(click.unstyle(line)) + len(claims) + 2 > width
    return f"\n{' ' * indent}{claims}" if is_narrow else f": {claims}"


def _format_warnings(one: Overview) -> str:
    if not one.warnings:
        return ""
    count = "a warning" if len(one.warnings) == 1 else f"{len(one.warnings)} warnings"
    return "  " + click.style(glue(f"{count} in `ralphtool show {make_printable(one.name)}`"), fg="yellow")


def _find_twins(overviews: Sequence[Overview]) -> set[tuple[str, str]]:
    """The names that several changes of one format share: only their paths tell them apart."""
    known = Counter((one.name, one.adapter) for one in overviews)
    return {key for key, count in known.items() if count > 1}


def _format_place(path: str) -> str:
    return click.style(f"  {_shorten_path(path)}", dim=True)


def _render_bar(done: int, total: int) -> str:
    full = _BAR_WIDTH * done // total if total else _BAR_WIDTH
    whole, empty = ("█", "░") if can_write_unicode() else ("#", ".")
    return click.style(whole * full, fg="green") + click.style(empty * (_BAR_WIDTH - full), dim=True)


def _format_holder(locked_by: str | None) -> str:
    return "  " + click.style(glue(f"locked by {make_printable(locked_by)}"), fg="cyan") if locked_by else ""


def print_change(
    spec: Spec,
    stories: Sequence[Story],
    scenarios: Iterable[Scenario],
    holder: str | None,
    receipts: Mapping[str, Receipt],
    ticked: Collection[str] = (),
    remarks: Mapping[str, str] | None = None,
) -> None:
    """`ticked` are the tasks that a working agent has ticked, `remarks` are about stories that are not done."""
    from ralphtool.specs import remaining  # a list doesn't need it

    title = titles.find_title(spec)
    name = f"{title} ({spec.change})" if title else spec.change
    echo(f"{click.style(make_printable(name), bold=True)}  ({spec.adapter}, {_shorten_path(spec.path)})")
    click.echo(f"locked by {make_printable(holder)}" if holder else "not locked")
    if not any(story.tasks for story in stories):
        echo(f"\nNo tasks yet: write them as {remaining.describe_task(spec)}.")
    done = {story.id for story in stories if story.done}
    for story in stories:
        _print_story(story, ticked, done, "" if story.done else (remarks or {}).get(story.id, ""))
        if story.id in receipts:
            summary, *rows = render_receipt(receipts[story.id])
            echo(f"    {summary}")
            for row in rows:
                echo(f"    {row}", 10)
    _print_scenarios(list(scenarios))
    for text in remaining.read_warnings(spec):
        click.echo()
        echo(click.style(f"Warning: {make_printable(text)}", fg="yellow"))


def _print_story(story: Story, ticked: Collection[str], done_stories: Collection[str], remark: str) -> None:
    tasks = [(task, task.done or task.id in ticked) for task in story.tasks]
    notes = ["optional"] if story.optional and "optional" not in story.title.lower() else []
    if story.put_aside:
        notes.append(story.put_aside)
    if not story.tasks:
        notes.append("no tasks")
    if awaited := [make_printable(id) for id in story.depends_on if id not in done_stories and not story.done]:
        notes.append(f"waits for {', '.join(awaited)}")
    if remark:
        notes.append(remark)
    note = f"  ({'; '.join(notes)})" if notes else ""
    count = click.style(f"{sum(done for _, done in tasks)}/{len(tasks)}", dim=True)
    title = click.style(f"{make_printable(story.id)}. {make_printable(story.title)}", bold=True)
    echo(f"\n{_render_mark(story.done)} {title} {count}{note}", 4)
    for task, is_done in tasks:
        first, *_ = task.text.split("\n")
        note = "  (optional)" if task.optional and "optional" not in first.lower() else ""
        id = make_printable(task.id)
        echo(f"    {_render_mark(is_done)} {id}  {make_printable(first)}{note}", len(id) + 6)


def render_receipt(receipt: Receipt) -> list[str]:
    """The proof of a story's "done": a summary, and the details below."""
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
            echo(f"  {make_printable(' / '.join(part for part in above if part))}")
        echo(f"    {make_printable(scenario.name)}")
        for word, clauses in (("given", scenario.given), ("when", scenario.when), ("then", scenario.then)):
            for clause in clauses:
                first, *_ = clause.split("\n")
                echo(f"      {click.style(word.rjust(5), dim=True)} {make_printable(first)}", 6)


def _shorten_path(path: str) -> str:
    near = os.path.relpath(path)
    return make_printable(path if near.startswith("..") else near)
