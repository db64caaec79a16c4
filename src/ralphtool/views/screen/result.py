"""The result of a run: open questions, completed stories, the verdict of each attempt, learnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from ralphtool.core.amounts import format_cost, format_duration, format_tokens, pluralize
from ralphtool.errors import RalphError
from ralphtool.judging.proof_words import describe_proof
from ralphtool.record import run_command, runs
from ralphtool.views import look
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import Navigate, Page
from ralphtool.views.screen.diff import DiffTarget
from ralphtool.views.screen.record import FollowedRun, render_receipt
from ralphtool.views.terminal.phrases import (
    choose_mark,
    describe_workers,
    flatten,
    flatten_first,
    format_story,
    make_copyable,
    render_attempt_mark,
    render_mark,
)
from ralphtool.views.terminal.summary import describe_run_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.history.records import Learning
    from ralphtool.record.event_parts import StoryAfter
    from ralphtool.record.events import Verdict
    from ralphtool.record.runs import RunSummary
    from ralphtool.record.view_parts import StoryView
    from ralphtool.views.screen.record import WatchedRun

_SOON = 0.05  # seconds between two slices of a long record
_OFTEN = 0.25  # seconds between two checks whether the stories have changed
_FILES = 8  # listed per attempt


class ResultPage(Page, inherit_bindings=False):
    """One text to scroll through, built from the record."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer", tooltip="answer the first question"),
        Binding("a", "no_answer", show=False),
        Binding("d", "diff", "Diff", tooltip="what each attempt did"),
        Binding("l", "look_back", "Log", tooltip="the log of the run"),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str, run: RunSummary) -> None:
        super().__init__(root)
        self.following = FollowedRun(run)
        self._learnt: list[Learning] = []
        self._has_questions = False

    @property
    def subject(self) -> str:
        return self.following.run.id

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="text"):
            yield Static(id="words", markup=False)

    def on_mount(self) -> None:
        self.query_one("#text").focus()
        self._show_result()
        self._reading = self.set_interval(_SOON, self._read_slice)

    def on_screen_resume(self) -> None:
        self.run_worker(self._load_history(), exclusive=True)

    def _read_slice(self) -> None:
        self.following.read()
        if not self.following.is_behind:
            self._reading.stop()
            self._show_result()
            self.set_interval(_OFTEN, self._look_around)

    def _look_around(self) -> None:
        if self.is_current and self.following.may_have_changed():
            self.run_worker(self._show_current(), group="current", exclusive=True)

    async def _show_current(self) -> None:
        """The stories as they are now. On an error, the record stays."""
        show = await self.run_in_thread(self.following.find_current)
        if not isinstance(show, RalphError):
            show()
            self._show_result()

    async def _load_history(self) -> None:
        run = self.following.run
        learnt = await self.run_in_thread(lambda: data.list_learnings(self.root, run))
        asked = await self.run_in_thread(lambda: data.list_unanswered(self.root, run.change))
        self._learnt = [] if isinstance(learnt, RalphError) else learnt
        self._has_questions = not isinstance(asked, RalphError) and bool(asked)
        self._show_result()
        self.refresh_bindings()

    def _show_result(self) -> None:
        if not self.query("#words"):
            return  # the page is not drawn yet, or is already closed
        run, view = self.following.run, self.following.view
        self.show_title(run.change, f"the result of {run.id}")
        parts = [*_render_ending(run, view), *_render_stories(view), *_render_learnings(self._learnt)]
        self.query_one("#words", Static).update(Text("\n").join(parts))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ("answer", "no_answer") or self._has_questions == (action == "answer")

    def action_answer(self) -> None:
        self.ask_for_answer(self.following.run.change, None)

    action_no_answer = action_answer  # which says that there is none

    def action_diff(self) -> None:
        self.post_message(Navigate("diff", DiffTarget(self.following.run.change)))

    def action_look_back(self) -> None:
        """Shows the run as it looked while it was in progress."""
        self.post_message(Navigate("watch", self.following.run))


# --- words ------------------------------------------------------------------------------------------


def _render_ending(run: RunSummary, view: WatchedRun) -> Iterator[Text]:
    yield from _render_end(run, view)
    yield Text.assemble(("full report: ", "dim"), (flatten(f"ralphtool report {run.id}"), "cyan"))
    for step in view.run.end.next if view.run.end else ():
        yield Text.assemble("\n", flatten(step.say), "\n  ", (make_copyable(step.run), "bold cyan"))


def _render_end(run: RunSummary, view: WatchedRun) -> Iterator[Text]:
    end = view.run.end
    if end is None:
        died = f"This run died: `{run_command.build_resuming(run)}` resumes where it stopped."
        yield Text(flatten("This run is still running." if run.state in ("running", "paused") else died), style="bold")
        return
    yield Text(describe_run_end(end), style="bold")
    if end.result not in ("done", "unproven") and (reason := flatten(end.reason)):
        yield Text(reason, style="dim")
    spent = end.spent
    parts = [
        format_duration(runs.measure_duration(run) or 0),
        pluralize(spent.iterations, "iteration", "iterations") if spent.iterations else "",
    ]
    if spent.input_tokens or spent.output_tokens:
        parts.append(
            f"{format_tokens(spent.input_tokens or 0)} tokens in, {format_tokens(spent.output_tokens or 0)} out"
        )
    yield Text(", ".join(filter(None, [*parts, format_cost(spent.cost or 0.0)])), style="dim")


def _render_stories(view: WatchedRun) -> Iterator[Text]:
    rows = view.run.end.stories if view.run.end else ()
    order = {"unproven": 0, "waiting": 1, "failed": 2, "done": 3, "skipped": 4}
    for row in sorted(rows, key=lambda one: order.get(choose_mark(one.state, one.proof), 5)):
        mark = render_mark(choose_mark(row.state, row.proof))
        state = (f"  {_describe_row(row)}", "dim")
        yield Text.assemble("\n", mark, " ", (format_story(row.id, row.title), "bold"), state)
        if row.state != "done" and (why := flatten(row.why)):
            yield Text(f"  {why}")
        story = view.run.stories.get(row.id)
        if story and story.receipt and row.state == "done":
            yield from (Text.assemble("  ", line) for line in render_receipt(story.receipt)[1:])
        yield from _render_attempts(story)
    for story in () if rows else view.run.stories.values():
        if any(one.verdict for one in story.attempts):
            yield Text.assemble("\n", (view.format_name(story.id), "bold"))
            yield from _render_attempts(story)


def _describe_row(row: StoryAfter) -> str:
    if row.state != "done":
        return look.STORIES[row.state].words if row.state in look.STORIES else flatten(row.state, 20)
    return describe_proof(row.proof, flatten(row.proof_why))


def _render_attempts(story: StoryView | None) -> Iterator[Text]:
    attempts = story.attempts if story else []
    for one in attempts:
        if one.verdict:
            yield from _render_attempt(one.verdict, describe_workers(one.worker_names))
    for one in attempts:
        if commit := one.checkpoint:
            id = flatten(commit.commit or "", 100)[:10]
            yield Text.assemble("  ", ("commit ", "dim"), id, " ", flatten(commit.subject))


def _render_attempt(one: Verdict, workers: str) -> Iterator[Text]:
    number = f"attempt {one.attempt}" if one.attempt else "no attempt"
    told = f" {number}: {flatten(one.status, 20)}  "
    about = "  ".join(filter(None, [flatten(one.entry, 100), workers]))
    yield Text.assemble("  ", render_attempt_mark(one.status), told, (about, "dim"))
    for reason in flatten_first(one.reasons) or list(filter(None, [flatten(one.summary)])):
        yield Text(f"      {reason}")
    if files := flatten_first(one.files):
        more = len(one.files) - min(len(files), _FILES)
        yield Text(f"      {', '.join(files[:_FILES])}{f' and {more} more' if more else ''}", style="dim")


def _render_learnings(found: list[Learning]) -> Iterator[Text]:
    if found:
        yield Text("\nLearnt", style="bold")
    for one in found:
        yield Text.assemble("  ", (f"{flatten(one.type, 40)}  ", "dim"), flatten(one.content))
