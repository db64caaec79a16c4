"""The first page: which changes there are, how far each is, what goes on with it; and the last runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.widgets import OptionList, Static

from ralphtool.errors import RalphError
from ralphtool.record import runs
from ralphtool.views.screen import data
from ralphtool.views.screen.base import Go, Page, Rows, row
from ralphtool.views.screen.record import lines_of
from ralphtool.views.terminal.changes import where_changes_lie
from ralphtool.views.terminal.summary import duration, mark, money, one_line
from ralphtool.views.terminal.tables import bar, day, plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.record.runs import Run

_OFTEN = 1.0  # seconds between two looks at whether anything has happened
_STATES = {"running": "current", "paused": "waiting", "done": "done", "died": "failed", "unfinished": "open"}
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
        self._changes: list[data.Change] = []
        self._runs: list[Run] = []
        self._pulse: tuple[int, ...] = ()
        self._is_looking = False

    def body(self) -> ComposeResult:
        yield Static(id="nothing", markup=False)
        yield Rows(id="changes", markup=False)
        yield Rows(id="runs", markup=False)

    def on_mount(self) -> None:
        self.head("ralphtool", self.root)
        self.query_one("#changes").border_title = "Changes"
        self.query_one("#runs").border_title = "Runs"
        self.query_one("#changes").focus()
        self.set_interval(_OFTEN, self._feel)

    def on_screen_resume(self) -> None:
        self.action_look()

    def _feel(self) -> None:
        if self.is_current and data.pulse(self.root) != self._pulse:
            self.action_look()

    def action_look(self) -> None:
        """One look at a time: those who come meanwhile see what it finds."""
        if not self._is_looking:
            self._is_looking = True
            self.run_worker(self._look())

    async def _look(self) -> None:
        self._pulse = data.pulse(self.root)
        try:
            changes = await self.off_loop(lambda: data.changes(self.root))
            recent = await self.off_loop(lambda: data.recent(self.root))
        finally:
            self._is_looking = False
        self._changes = [] if isinstance(changes, RalphError) else changes
        self._runs = [] if isinstance(recent, RalphError) else recent
        self._show("changes", [_change_row(one) for one in self._changes])
        self._show("runs", [_run_row(one) for one in self._runs])
        self._say_instead(next((one for one in (changes, recent) if isinstance(one, RalphError)), None))
        self.refresh_bindings()

    def _say_instead(self, error: RalphError | None) -> None:
        """Why nothing is listed: it can't be read, or there is nothing."""
        nothing = self.query_one("#nothing", Static)
        nothing.display = error is not None or not self._changes
        why = "\n".join(lines_of(str(error).replace(f"{self.root}/", "")))
        nothing.update(Text(why, style="red") if error else Text(f"{_NOTHING}\n\n{where_changes_lie()}"))

    def _show(self, id: str, rows: list[RenderableType]) -> None:
        shown = self.query_one(f"#{id}", Rows)
        shown.display = bool(rows)
        shown.show(rows)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "watch":
            return bool(self._alive)
        return action != "back"  # there is nothing behind the first page

    @property
    def _alive(self) -> list[Run]:
        return [one for one in self._runs if one.state in ("running", "paused")]

    # --- opening

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_list.id == "changes":
            self.post_message(Go("change", self._changes[event.option_index]))
        else:
            self._open_run(self._runs[event.option_index])

    def _open_run(self, run: Run) -> None:
        self.post_message(Go("watch" if run.state in ("running", "paused") else "result", run))

    def action_watch(self) -> None:
        """Goes straight to what runs now."""
        self.post_message(Go("watch", self._alive[0]))


def _change_row(one: data.Change) -> RenderableType:
    style = {"current": "cyan", "waiting": "yellow"}.get(one.state, "dim")
    name = Text.assemble(mark(one.state), " ", (one_line(one.name, 100), "bold"))
    table = row(name, Text(one.told, style=style))
    adapter = one_line(one.overview.adapter, 40) if one.overview.problem is None else ""
    table.add_row(Text.assemble("  ", _progress(one)), Text(adapter, style="dim"))
    return table


def _progress(one: data.Change) -> Text:
    view = one.overview
    if view.problem is not None or view.tasks_total is None or view.tasks_done is None:
        return Text(one_line(view.problem or "can't be read"), style="red")
    told = f"{view.tasks_done} of {plural(view.tasks_total, 'task', 'tasks')}"
    told += f", {view.stories_done} of {plural(view.stories_total or 0, 'story', 'stories')}"
    return bar(view.tasks_done, view.tasks_total, "green", told)


def _run_row(run: Run) -> RenderableType:
    name = Text.assemble(mark(_STATES.get(run.state, "open")), " ", one_line(run.change, 100))
    spent = [f"{run.stories_done}/{run.stories_total}", money(float(run.spent.get("cost") or 0)), run.state]
    seconds = runs.seconds(run)
    told = [day(one_line(run.began, 40)), duration(seconds) if seconds else "", *spent]
    return row(name, Text("  ".join(filter(None, told)), style="dim"))
