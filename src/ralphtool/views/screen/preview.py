"""The preview of a change on the first page: its questions, its last run, its stories with their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from ralphtool.core.amounts import format_cost, format_duration, format_recorded_time
from ralphtool.record import runs
from ralphtool.views import look
from ralphtool.views.screen.base import build_row
from ralphtool.views.screen.record import render_task, split_lines
from ralphtool.views.terminal.phrases import flatten, format_story, render_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from ralphtool.record.runs import RunSummary
    from ralphtool.specs import Story
    from ralphtool.views.project_data import ChangeDetails
    from ralphtool.views.screen.record import WatchedRun

_LINES = 400  # of stories and tasks; the page of the change shows all
_REASON = 300  # characters of a question's reason


def render_preview(book: ChangeDetails, view: WatchedRun | None) -> RenderableType:
    """What the user wants to know before opening a change. `view` is its run, while it is in progress."""
    parts = [*_render_questions(book), *_render_last_run(book), *_render_stories(book, view)]
    parts += _render_why(book)
    return Group(*parts[:_LINES], *([Text("and more: enter opens it", style="dim")] if len(parts) > _LINES else []))


def _render_questions(book: ChangeDetails) -> Iterator[RenderableType]:
    for one in book.asked:
        name = (f" {format_story(one.story, one.title)}: ", "bold")
        yield Text.assemble(render_mark("waiting"), name, flatten(one.missing or one.why, _REASON))
    if book.asked:
        yield Text()


def _render_last_run(book: ChangeDetails) -> Iterator[RenderableType]:
    run = book.change.run
    none = "none yet: r runs it" if book.chapters else "none yet"  # a change without stories can't be run
    yield Text.assemble(("Last run  ", "bold"), describe_run(run) if run else (none, "dim"))
    reason = flatten(run.reason, _REASON) if run and run.state not in ("done", "unproven") else ""
    if reason:
        yield Text(reason, style="dim")
    yield Text()


def describe_run(run: RunSummary) -> str:
    """A run's start, duration, progress, cost and state."""
    began, took, cost = _format_spent(run)
    return _join(began, took, runs.describe_progress(run), cost, look.RUNS[run.state].words)


def describe_run_in_list(run: RunSummary) -> str:
    """The same, with what matters most first: the end may be cut."""
    return _join(look.RUNS[run.state].words, runs.describe_progress(run), *_format_spent(run))


def _format_spent(run: RunSummary) -> tuple[str, str, str]:
    seconds = runs.measure_duration(run)
    took = format_duration(seconds) if seconds else ""
    return format_recorded_time(run.began), took, format_cost(float(run.spent.get("cost") or 0))


def _join(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _render_stories(book: ChangeDetails, view: WatchedRun | None) -> Iterator[RenderableType]:
    if not book.chapters:
        yield Text("no stories yet", style="dim")
    for chapter in book.chapters:
        story = chapter.story
        is_current = view is not None and view.find_attempt(story.id) is not None
        marked = [(task, view.is_ticked(story.id, task) if view else task.done) for task in story.tasks]
        mark = render_mark("current" if is_current else book.choose_state(story))
        name = Text.assemble(mark, " ", (format_story(story.id, story.title), "bold" if is_current else ""))
        count = f"{sum(is_done for _, is_done in marked)}/{len(marked)}"
        yield build_row(name, Text("  ".join(filter(None, [_describe_notes(story), count])), style="dim"))
        if not story.done or is_current:
            yield from (render_task(task, is_done) for task, is_done in marked)


def _render_why(book: ChangeDetails) -> list[RenderableType]:
    """Comes last, if there is room: the purpose of the change."""
    lines = split_lines(book.proposal or book.design)
    return [Text(), *(Text(line, style="dim") for line in lines)] if any(lines) else []


def _describe_notes(story: Story) -> str:
    return "optional" if story.optional else flatten(story.put_aside, 20)
