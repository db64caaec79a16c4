"""What a run came to: what waits for a human, what was done, how each attempt was judged, what was learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from ralphtool.errors import RalphError
from ralphtool.record import runs
from ralphtool.views.screen import data
from ralphtool.views.screen.base import Go, Page
from ralphtool.views.screen.record import Following
from ralphtool.views.terminal.summary import (
    STATES,
    duration,
    exact,
    label,
    mark,
    money,
    one_line,
    some,
    tokens,
    verdict,
)
from ralphtool.views.terminal.tables import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.history.records import Learning
    from ralphtool.record.events import Verdict
    from ralphtool.record.run_view import StoryView
    from ralphtool.record.runs import Run
    from ralphtool.views.screen.record import Watched

_SOON = 0.05  # seconds between two slices of a long record
_FILES = 8  # of an attempt that are named


class ResultPage(Page, inherit_bindings=False):
    """One text to scroll through, made from the record."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer", tooltip="answer the first question that waits for you"),
        Binding("a", "no_answer", show=False),
        Binding("l", "look_back", "Look back", tooltip="the run as it was to be seen while it went on"),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str, run: Run) -> None:
        super().__init__(root)
        self.following = Following(run)
        self._learnt: list[Learning] = []
        self._asks = False

    @property
    def subject(self) -> str:
        return self.following.run.id

    def body(self) -> ComposeResult:
        with VerticalScroll(id="text"):
            yield Static(id="words", markup=False)

    def on_mount(self) -> None:
        self.query_one("#text").focus()
        self._show()
        self._reading = self.set_interval(_SOON, self._read)

    def on_screen_resume(self) -> None:
        self.run_worker(self._recall(), exclusive=True)

    def _read(self) -> None:
        self.following.read()
        if not self.following.is_behind:
            self._reading.stop()
            self._show()

    async def _recall(self) -> None:
        run = self.following.run
        learnt = await self.off_loop(lambda: data.learnt(self.root, run))
        asked = await self.off_loop(lambda: data.waiting(self.root, run.change))
        self._learnt = [] if isinstance(learnt, RalphError) else learnt
        self._asks = not isinstance(asked, RalphError) and bool(asked)
        self._show()
        self.refresh_bindings()

    def _show(self) -> None:
        run, view = self.following.run, self.following.view
        self.head(run.change, f"the result of {run.id}")
        parts = [*_ending(run, view), *_stories(view), *_learnings(self._learnt)]
        self.query_one("#words", Static).update(Text("\n").join(parts))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ("answer", "no_answer") or self._asks == (action == "answer")

    def action_answer(self) -> None:
        self.ask_for_answer(self.following.run.change, None)

    action_no_answer = action_answer  # which says so

    def action_look_back(self) -> None:
        """The record of the run, as it was to be seen while it went on."""
        self.post_message(Go("watch", self.following.run))


# --- words ------------------------------------------------------------------------------------------


def _ending(run: Run, view: Watched) -> Iterator[Text]:
    yield from _end(run, view)
    yield Text.assemble(("all of it: ", "dim"), (one_line(f"ralphtool report {run.id}"), "cyan"))
    for step in view.run.end.next if view.run.end else ():
        yield Text.assemble("\n", one_line(step.say), "\n  ", (exact(step.run), "bold cyan"))


def _end(run: Run, view: Watched) -> Iterator[Text]:
    end = view.run.end
    if end is None:
        died = f"This run died: `ralphtool run {run.change}` goes on where it was."
        yield Text(one_line("This run goes on." if run.state in ("running", "paused") else died), style="bold")
        return
    yield Text(verdict(end), style="bold")
    if reason := one_line(end.reason):
        yield Text(reason, style="dim")
    spent = end.spent
    parts = [duration(runs.seconds(run) or 0), plural(spent.iterations or 0, "iteration", "iterations")]
    if spent.input_tokens or spent.output_tokens:
        parts.append(f"{tokens(spent.input_tokens or 0)} tokens in, {tokens(spent.output_tokens or 0)} out")
    yield Text(", ".join(filter(None, [*parts, money(spent.cost or 0.0)])), style="dim")


def _stories(view: Watched) -> Iterator[Text]:
    rows = view.run.end.stories if view.run.end else ()
    order = {"waiting": 0, "failed": 1, "done": 2, "skipped": 3}
    for row in sorted(rows, key=lambda one: order.get(one.state, 4)):
        state = (f"  {one_line(row.state, 20)}", "dim")
        yield Text.assemble("\n", mark(row.state), " ", (label(row.id, row.title), "bold"), state)
        if row.state != "done" and (why := one_line(row.why)):
            yield Text(f"  {why}")
        yield from _attempts(view.run.stories.get(row.id))
    for story in () if rows else view.run.stories.values():
        if any(one.verdict for one in story.attempts):
            yield Text.assemble("\n", (view.name_of(story.id), "bold"))
            yield from _attempts(story)


def _attempts(story: StoryView | None) -> Iterator[Text]:
    attempts = story.attempts if story else []
    for one in attempts:
        if one.verdict:
            yield from _attempt(one.verdict)
    for one in attempts:
        if commit := one.checkpoint:
            id = one_line(commit.commit or "", 100)[:10]
            yield Text.assemble("  ", ("commit ", "dim"), id, " ", one_line(commit.subject))


def _attempt(one: Verdict) -> Iterator[Text]:
    number = f"attempt {one.attempt}" if one.attempt else "no attempt"
    told = f" {number}: {one_line(one.status, 20)}  "
    yield Text.assemble("  ", mark(STATES.get(one.status, "open")), told, (one_line(one.entry, 100), "dim"))
    for reason in some(one.reasons) or list(filter(None, [one_line(one.summary)])):
        yield Text(f"      {reason}")
    if files := some(one.files):
        more = len(one.files) - min(len(files), _FILES)
        yield Text(f"      {', '.join(files[:_FILES])}{f' and {more} more' if more else ''}", style="dim")


def _learnings(found: list[Learning]) -> Iterator[Text]:
    if found:
        yield Text("\nLearnt", style="bold")
    for one in found:
        yield Text.assemble("  ", (f"{one_line(one.type, 40)}  ", "dim"), one_line(one.content))
