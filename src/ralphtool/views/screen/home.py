"""The first page: which changes there are, how far each is, what goes on with it; and the last runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.widgets import OptionList, Static

from ralphtool.errors import RalphError
from ralphtool.record import runs
from ralphtool.views.screen import data
from ralphtool.views.screen.base import Navigate, Page, RowList, build_row
from ralphtool.views.screen.record import split_lines
from ralphtool.views.terminal.changes import describe_locations
from ralphtool.views.terminal.phrases import flatten, format_cost, format_duration, pluralize, render_mark
from ralphtool.views.terminal.tables import format_day, render_bar

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.record.runs import RunSummary

_OFTEN = 1.0  # seconds between two looks at whether anything has happened
_STATES = {
    "running": "current",
    "paused": "waiting",
    "done": "done",
    "unproven": "unproven",
    "died": "failed",
    "unfinished": "open",
}
_NOTHING = 'There are no changes here: `ralphtool new "…"` begins one.'


class ChangesPage(Page, inherit_bindings=False):
    """Enter opens a change, or one of the last runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "watch", "Watch", tooltip="watch what runs now"),
        Binding("u", "look", "Refresh", tooltip="look again at what there is"),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._changes: list[data.ChangeItem] = []
        self._runs: list[RunSummary] = []
        self._pulse: tuple[int, ...] = ()
        self._is_looking = False

    def compose_body(self) -> ComposeResult:
        yield Static(id="nothing", markup=False)
        yield RowList(id="changes", markup=False)
        yield RowList(id="runs", markup=False)

    def on_mount(self) -> None:
        self.show_title("ralphtool", self.root)
        self.query_one("#changes").border_title = "Changes"
        self.query_one("#runs").border_title = "Runs"
        self.query_one("#changes").focus()
        self.set_interval(_OFTEN, self._poll)

    def on_screen_resume(self) -> None:
        self.action_look()

    def _poll(self) -> None:
        if self.is_current and data.read_fingerprint(self.root) != self._pulse:
            self.action_look()

    def action_look(self) -> None:
        """One look at a time: those who come meanwhile see what it finds."""
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
        self._show_rows("changes", [_build_change_row(one) for one in self._changes])
        self._show_rows("runs", [_build_run_row(one) for one in self._runs])
        self._show_empty(next((one for one in (changes, recent) if isinstance(one, RalphError)), None))
        self.refresh_bindings()

    def _show_empty(self, error: RalphError | None) -> None:
        """Why nothing is listed: it can't be read, or there is nothing."""
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
        return action != "back"  # there is nothing behind the first page

    @property
    def _alive(self) -> list[RunSummary]:
        return [one for one in self._runs if one.state in ("running", "paused")]

    # --- opening

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_list.id == "changes":
            self.post_message(Navigate("change", self._changes[event.option_index]))
        else:
            self._open_run(self._runs[event.option_index])

    def _open_run(self, run: RunSummary) -> None:
        self.post_message(Navigate("watch" if run.state in ("running", "paused") else "result", run))

    def action_watch(self) -> None:
        """Goes straight to what runs now."""
        self.post_message(Navigate("watch", self._alive[0]))


def _build_change_row(one: data.ChangeItem) -> RenderableType:
    style = {"current": "cyan", "waiting": "yellow"}.get(one.state, "dim")
    name = Text.assemble(render_mark(one.state), " ", (flatten(one.name, 100), "bold"))
    table = build_row(name, Text(one.status, style=style))
    adapter = flatten(one.overview.adapter, 40) if one.overview.problem is None else ""
    table.add_row(Text.assemble("  ", _render_progress(one)), Text(adapter, style="dim"))
    return table


def _render_progress(one: data.ChangeItem) -> Text:
    view = one.overview
    if view.problem is not None or view.tasks_total is None or view.tasks_done is None:
        return Text(flatten(view.problem or "can't be read"), style="red")
    told = f"{view.tasks_done} of {pluralize(view.tasks_total, 'task', 'tasks')}"
    told += f", {view.stories_done} of {pluralize(view.stories_total or 0, 'story', 'stories')}"
    if doubtful := view.proofs.get("unproven"):
        told += f", {doubtful} not proven"
    return render_bar(view.tasks_done, view.tasks_total, "green", told)


def _build_run_row(run: RunSummary) -> RenderableType:
    name = Text.assemble(render_mark(_STATES.get(run.state, "open")), " ", flatten(run.change, 100))
    spent = [f"{run.stories_done}/{run.stories_total}", format_cost(float(run.spent.get("cost") or 0)), run.state]
    seconds = runs.measure_duration(run)
    told = [format_day(flatten(run.began, 40)), format_duration(seconds) if seconds else "", *spent]
    return build_row(name, Text("  ".join(filter(None, told)), style="dim"))
