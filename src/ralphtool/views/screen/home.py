"""The first page: the changes and the last runs, and a preview of the change that is chosen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group
from rich.text import Text
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, OptionList, Static

from ralphtool.core.amounts import pluralize
from ralphtool.errors import RalphError
from ralphtool.views import look
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import NamedRow, Navigate, Page, RowList, TextDialog, build_row
from ralphtool.views.screen.chosen import ChosenPage
from ralphtool.views.screen.preview import describe_run_in_list, render_preview
from ralphtool.views.screen.record import FollowedRun, split_lines
from ralphtool.views.terminal.changes import describe_locations
from ralphtool.views.terminal.phrases import flatten, render_mark
from ralphtool.views.terminal.tables import render_bar

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.record.runs import RunSummary

_OFTEN = 1.0  # seconds between two checks for updates
_NOTHING = 'There are no changes here: `n`, or `ralphtool new "…"`, creates one.'


class _FilterInput(Input):
    """Enter returns to the list, Escape shows all again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "screen.leave_filter", "To the list", key_display="enter"),
        Binding("escape", "screen.clear_filter", "Show all"),
    ]


class ChangesPage(ChosenPage, inherit_bindings=False):
    """Enter opens a change, or one of the last runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "New", tooltip="create a change: a spec to fill in"),
        *ChosenPage.BINDINGS,
        Binding("slash", "filter", "Filter", key_display="/", tooltip="show only items with these words"),
        Binding("w", "watch", "Watch", tooltip="watch the current run"),
        Binding("u", "look", "Refresh", tooltip="refresh the lists"),
        Binding("escape", "clear_filter", "Show all"),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._changes: list[data.ChangeItem] = []
        self._runs: list[RunSummary] = []
        self._words = ""  # of the filter
        self._pulse: tuple[int, ...] = ()
        self._is_looking = False
        self._previewed: tuple[data.ChangeItem, data.ChangeDetails | RalphError] | None = None
        self._is_previewing = False
        self._following: FollowedRun | None = None  # the run of the chosen change, while it is in progress
        self._ticks: object = None  # as they are shown

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="home"):
            with Vertical(id="lists"):
                yield Static(id="nothing", markup=False)
                yield RowList(id="changes", markup=False)
                yield RowList(id="runs", markup=False)
            with VerticalScroll(id="text"):
                yield Static(id="words", markup=False)
        yield _FilterInput(id="filter", classes="-empty", placeholder="show only items with these words", compact=True)

    def on_mount(self) -> None:
        self.show_title("ralphtool", self.root)
        self.query_one("#changes").border_title = "Changes"
        self.query_one("#runs").border_title = "Runs"
        self.query_one("#changes").focus()
        self.set_interval(_OFTEN, self._poll)

    def on_screen_resume(self) -> None:
        self.action_look()

    def _poll(self) -> None:
        if not self.is_current:
            return
        if data.read_fingerprint(self.root) != self._pulse:
            self.action_look()
        elif self._following:
            self._show_preview()

    def action_look(self) -> None:
        """One refresh at a time: calls during a refresh share its result."""
        if not self._is_looking:
            self._is_looking = True
            self.run_worker(self._refresh_lists())

    async def _refresh_lists(self) -> None:
        self._pulse = data.read_fingerprint(self.root)
        try:
            changes = await self.run_in_thread(lambda: data.list_changes(self.root))
            recent = await self.run_in_thread(lambda: data.list_recent_runs(self.root))
        finally:
            self._is_looking = False
        self._changes = [] if isinstance(changes, RalphError) else changes
        self._runs = [] if isinstance(recent, RalphError) else recent
        self._show_lists()
        self._show_empty(next((one for one in (changes, recent) if isinstance(one, RalphError)), None))

    def _show_lists(self) -> None:
        self._show_rows("changes", [_build_change_row(one) for one in self._listed_changes])
        self._show_rows("runs", [_build_run_row(one) for one in self._listed_runs])
        self._show_preview()
        self.refresh_bindings()

    def _show_empty(self, error: RalphError | None) -> None:
        """Why the list is empty: it can't be read, or there are no changes."""
        nothing = self.query_one("#nothing", Static)
        nothing.display = error is not None or not self._changes
        why = "\n".join(split_lines(str(error).replace(f"{self.root}/", "")))
        nothing.update(Text(why, style="red") if error else Text(f"{_NOTHING}\n\n{describe_locations()}"))

    def _show_rows(self, id: str, rows: list[RenderableType]) -> None:
        shown = self.query_one(f"#{id}", RowList)
        shown.display = bool(rows)
        shown.update_rows(rows)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "watch":
            return bool(self._alive)
        if action == "clear_filter":
            return self._is_filtering
        if action == "filter":
            return bool(self._changes or self._runs) and not self.query_one("#filter").has_focus
        if action == "back":
            return False  # there is no page before the first one
        return super().check_action(action, parameters)

    @property
    def _alive(self) -> list[RunSummary]:
        return [one for one in self._runs if one.state in ("running", "paused")]

    # --- the chosen change

    @property
    def chosen(self) -> data.ChangeItem | None:
        """The selected change, or the change of the selected run, depending on the list that has the focus."""
        changes, recent = self.query_one("#changes", RowList), self.query_one("#runs", RowList)
        if recent.has_focus and recent.highlighted is not None:
            name = self._listed_runs[recent.highlighted].change
            return next((one for one in self._changes if one.name == name), None)
        listed, place = self._listed_changes, changes.highlighted
        return listed[place] if place is not None and place < len(listed) else None

    def on_option_list_option_highlighted(self) -> None:
        self._show_preview()
        self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        self._show_preview()
        self.refresh_bindings()

    def _show_preview(self) -> None:
        one = self.chosen
        self.query_one("#text").display = one is not None
        if one is None:
            return
        if self._previewed is None or self._previewed[0] is not one:
            self._start_preview()
            return
        self._follow(one)
        found, ticks = self._previewed[1], self._list_ticks()
        if self._ticks == (one, ticks):
            return
        self._ticks = (one, ticks)
        self.query_one("#text").border_title = Text(flatten(one.title, 100))
        self.query_one("#words", Static).update(self._render_found(found))

    def _render_found(self, found: data.ChangeDetails | RalphError) -> RenderableType:
        if isinstance(found, RalphError):
            return Text("\n".join(split_lines(str(found).replace(f"{self.root}/", ""))), style="red")
        return render_preview(found, self._following.view if self._following else None)

    def _start_preview(self) -> None:
        if not self._is_previewing:
            self._is_previewing = True
            self.run_worker(self._load_preview())

    async def _load_preview(self) -> None:
        """Reads the latest selection: if the user moves quickly, the changes in between are skipped."""
        try:
            while (one := self.chosen) and (self._previewed is None or self._previewed[0] is not one):
                read = partial(data.read_details, self.root, one.name, one.ref)
                found = await self.run_in_thread(read)
                self._previewed = (one, found)
        finally:
            self._is_previewing = False
        self._show_preview()

    def _follow(self, one: data.ChangeItem) -> None:
        """The ticks of a working agent are only in the record of its run."""
        wanted = one.run if one.is_alive else None
        if wanted is None:
            self._following = None
        elif self._following is None or self._following.run.id != wanted.id:
            self._following = FollowedRun(wanted)
        else:
            self._following.read()

    def _list_ticks(self) -> list[tuple[str, bool, tuple[str, ...], int]]:
        if self._following is None:
            return []
        view = self._following.view
        known = [(view.run.stories[one.id], one.is_current) for one in view.stories]
        return [(story.id, is_current, story.ticked, story.tasks_done) for story, is_current in known]

    # --- the filter

    @property
    def _listed_changes(self) -> list[data.ChangeItem]:
        return [
            one
            for one in self._changes
            if self._is_wanted(f"{one.name} {one.title} {one.status} {one.overview.adapter}")
        ]

    @property
    def _listed_runs(self) -> list[RunSummary]:
        return [one for one in self._runs if self._is_wanted(f"{one.id} {one.change} {one.state}")]

    @property
    def _is_filtering(self) -> bool:
        return not self.query_one("#filter").has_class("-empty")

    def _is_wanted(self, text: str) -> bool:
        return all(word in text.lower() for word in self._words.lower().split())

    def action_filter(self) -> None:
        shown = self.query_one("#filter", Input)
        shown.set_class(False, "-empty")
        shown.focus()
        self.refresh_bindings()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self._show_lists()
        told = f"nothing matches {flatten(self._words, 40)}: esc shows all"
        nothing = self._words.strip() and not self._listed_changes and not self._listed_runs
        self.show_status(Text(told if nothing else "", style="yellow"))

    def action_leave_filter(self) -> None:
        """The filter stays active, unless it is empty."""
        if not self._words.strip():
            self.action_clear_filter()
        elif self._listed_changes or self._listed_runs:
            self.query_one("#changes" if self._listed_changes else "#runs").focus()

    def action_clear_filter(self) -> None:
        shown = self.query_one("#filter", Input)
        shown.value = self._words = ""
        shown.set_class(True, "-empty")
        self._show_lists()
        self.query_one("#changes" if self._changes else "#runs").focus()

    # --- opening

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_list.id == "changes":
            self.post_message(Navigate("change", self._listed_changes[event.option_index]))
        else:
            self._open_run(self._listed_runs[event.option_index])

    def _open_run(self, run: RunSummary) -> None:
        self.post_message(Navigate("watch" if run.state in ("running", "paused") else "result", run))

    def action_watch(self) -> None:
        """Opens the run in progress."""
        one = self.chosen
        self.post_message(Navigate("watch", one.run if one and one.is_alive else self._alive[0]))

    def action_new(self) -> None:
        dialog = TextDialog(
            "What is the new change about?", "This creates a spec with examples: replace them.", "Add login"
        )
        self.open_dialog(dialog, self._begin_change)

    def _begin_change(self, text: str) -> None:
        name = data.begin_change(self.root, text)
        self.post_message(Navigate("change", data.find_change(self.root, name)))


def _build_change_row(one: data.ChangeItem) -> RenderableType:
    style = look.STORIES[one.state].colour if one.state in ("current", "waiting") else "dim"
    name = Text.assemble(render_mark(one.state), " ", (flatten(one.title, 100), "bold"))
    first = build_row(name, Text(one.status, style=style))
    about = [one.name if one.title != one.name else "", one.overview.adapter if one.overview.problem is None else ""]
    shown = "  ".join(flatten(part, 40) for part in about if part)
    second = build_row(Text.assemble("  ", _render_progress(one)), Text(shown, style="dim"))
    return Group(first, second)  # not one table, in which a long status would narrow the progress


def _render_progress(one: data.ChangeItem) -> Text:
    view = one.overview
    if view.problem is not None or view.tasks_total is None or view.tasks_done is None:
        return Text(flatten(view.problem or "can't be read"), style="red")
    if not view.tasks_total:
        return Text("no tasks yet", style="dim")
    told = f"{view.tasks_done} of {pluralize(view.tasks_total, 'task', 'tasks')}"
    told += f", {view.stories_done} of {pluralize(view.stories_total or 0, 'story', 'stories')}"
    if doubtful := view.proofs.get("unproven"):
        told += f", {doubtful} not proven"
    return render_bar(view.tasks_done, view.tasks_total, "green", told)


def _build_run_row(run: RunSummary) -> RenderableType:
    name = Text.assemble(look.RUNS[run.state].mark, " ", flatten(run.change, 100))
    return NamedRow(name, Text(describe_run_in_list(run), style="dim"))
