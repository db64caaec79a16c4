"""The page of a change: why, how, its stories with their tasks and scenarios; and the key that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList, Static

from ralphtool.errors import RalphError
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import Navigate, Page, RowList, build_row
from ralphtool.views.screen.chosen import ChosenPage
from ralphtool.views.screen.record import render_receipt, split_lines
from ralphtool.views.terminal.phrases import flatten, render_mark

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.specs import Scenario

_OFTEN = 1.0  # seconds between two checks for updates


class ChangePage(ChosenPage, inherit_bindings=False):
    """The stories on the left; the text of the chosen one on the right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *ChosenPage.BINDINGS,
        Binding("w", "watch", "Watch", tooltip="watch the run"),
        Binding("a", "answer", "Answer", tooltip="answer the selected story's question, or the first"),
        Binding("a", "no_answer", show=False),
        Binding("o", "result", "Last result", tooltip="the result of the last run"),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str, change: data.ChangeItem) -> None:
        super().__init__(root)
        self.change = change
        self._details: data.ChangeDetails | None = None
        self._pulse: tuple[int, ...] = ()
        self._is_reading = False
        self._shown = -1  # the number of the row whose text is shown

    @property
    def subject(self) -> str:
        return self.change.name

    @property
    def chosen(self) -> data.ChangeItem:
        return self.change

    def compose_body(self) -> ComposeResult:
        with Horizontal(classes="halves"):
            yield RowList(id="stories", markup=False)
            with VerticalScroll(id="text"):
                yield Static(id="words", markup=False)

    def on_mount(self) -> None:
        self.query_one("#stories").border_title = "Stories"
        self.query_one("#stories").focus()
        self._show_head()
        self.set_interval(_OFTEN, self._poll)

    def on_screen_resume(self) -> None:
        self._start_reading()

    def _poll(self) -> None:
        if self.is_current and data.read_fingerprint(self.root, self.change.overview.path) != self._pulse:
            self._start_reading()

    def _start_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_details())

    async def _read_details(self) -> None:
        change = self.change
        self._pulse = data.read_fingerprint(self.root, change.overview.path)
        try:
            found = await self.run_in_thread(lambda: data.read_details(self.root, change.name, change.ref))
        finally:
            self._is_reading = False
        if isinstance(found, RalphError):
            why = str(found).replace(f"{self.root}/", "")
            self.query_one("#words", Static).update(Text("\n".join(split_lines(why)), style="red"))
            return
        self._details, self.change = found, found.change
        self._show_head()
        self._show_stories(found)
        self.refresh_bindings()

    def _show_head(self) -> None:
        one = self.change
        state = "starting" if one.name in self.starting else one.status
        told = [one.name if one.title != one.name else "", one.overview.adapter, state]
        self.show_title(one.title, "  ".join(filter(None, told)))

    def _show_stories(self, book: data.ChangeDetails) -> None:
        rows: list[RenderableType] = [Text.assemble("  ", ("About this change", "italic"))]
        rows += [_build_story_row(chapter, book) for chapter in book.chapters]
        stories = self.query_one("#stories", RowList)
        stories.update_rows(rows)
        self._show_words(stories.highlighted or 0)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show_words(event.option_index)

    def _show_words(self, number: int) -> None:
        if self._details is None or number > len(self._details.chapters):
            return
        text = _render_about(self._details) if number == 0 else _render_story(self._details, number - 1)
        self.query_one("#words", Static).update(text)
        if number != self._shown:  # a reload keeps the scroll position
            self._shown = number
            self.query_one("#text").scroll_home(animate=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.query_one("#text").focus()

    # --- running

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "watch":
            return self.change.is_alive
        if action in ("answer", "no_answer"):
            return (self.change.questions > 0) == (action == "answer")
        if action == "result":
            return self.change.run is not None and not self.change.is_alive
        return super().check_action(action, parameters)

    def action_watch(self) -> None:
        if self.change.run:
            self.post_message(Navigate("watch", self.change.run))

    def action_result(self) -> None:
        if self.change.run:
            self.post_message(Navigate("result", self.change.run))

    def action_answer(self) -> None:
        """The question of the chosen story; if it has none, the first."""
        number = (self.query_one("#stories", RowList).highlighted or 0) - 1
        chosen = self._details.chapters[number].story.id if self._details and number >= 0 else None
        self.ask_for_answer(self.change.name, chosen)

    action_no_answer = action_answer  # which says that there is none

    def show_starting(self) -> None:
        self._show_head()


# --- words ------------------------------------------------------------------------------------------


def _build_story_row(chapter: data.StoryDetails, book: data.ChangeDetails) -> RenderableType:
    story = chapter.story
    name = Text.assemble(render_mark(book.choose_state(story)), " ", flatten(f"{story.id}. {story.title}", 150))
    return build_row(name, Text(f"{story.tasks_done}/{len(story.tasks)}", style="dim"))


def _render_about(book: data.ChangeDetails) -> Text:
    one = book.change.overview
    parts = [Text(f"{flatten(one.path, 500)}", style="dim")]
    if one.locked_by:
        parts.append(Text(f"locked by {flatten(one.locked_by)}", style="cyan"))
    parts += [_render_section("Proposal", book.proposal), _render_section("Design", book.design)]
    if not book.proposal and not book.design:
        parts.append(Text("This change has no description, only its stories.", style="dim"))
    return Text("\n").join(part for part in parts if part.plain)


def _render_section(title: str, text: str) -> Text:
    return Text.assemble("\n", (f"{title}\n\n", "bold"), "\n".join(split_lines(text))) if text.strip() else Text()


def _render_story(book: data.ChangeDetails, number: int) -> RenderableType:
    chapter = book.chapters[number]
    story = chapter.story
    receipt = book.receipts.get(story.id)
    notes = ["optional"] if story.optional else []
    notes += [f"waits for {', '.join(flatten(id, 40) for id in story.depends_on)}"] if story.depends_on else []
    parts: list[RenderableType] = [Text(flatten(f"{story.id}. {story.title}", 500), style="bold")]
    parts += [Text("; ".join(notes), style="dim")] if notes else []
    parts += [Text("\n" + "\n".join(split_lines(story.description)))] if story.description else []
    tasks = Table.grid(padding=(0, 1))
    for task in story.tasks:
        tasks.add_row(
            Text(*render_mark("done" if task.done else "open")), Text(flatten(task.id, 40)), _render_lines(task.text)
        )
    below = [Text(), *render_receipt(receipt)] if receipt else []
    return Group(*parts, Text(), tasks, *below, *map(_render_scenario, chapter.scenarios))


def _render_lines(text: str) -> Text:
    return Text("\n".join(split_lines(text)))


def _render_scenario(one: Scenario) -> RenderableType:
    where = " / ".join(flatten(part) for part in (one.capability, one.requirement) if part)
    clauses = Table.grid(padding=(0, 1))
    for word, told in (("given", one.given), ("when", one.when), ("then", one.then)):
        for clause in told:
            clauses.add_row(Text(f"{word:>5}", style="cyan"), _render_lines(clause))
    return Group(Text.assemble("\n", (flatten(one.name), "bold"), (f"  {where}", "dim")), clauses)
