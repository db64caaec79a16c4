"""The diffs of a change's attempts: kept attempts on the left, the diff of the chosen one on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual import work
from textual.containers import Horizontal
from textual.widgets import OptionList, RichLog

from ralphtool import specs
from ralphtool.errors import GitError, InvalidValue, RalphError
from ralphtool.history import History
from ralphtool.record import kept_attempts
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import Page, RowList, build_row
from ralphtool.views.screen.record import split_lines
from ralphtool.views.terminal.phrases import flatten, make_writable, render_attempt_mark
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.history.records import Entry

_BYTES, _LINES = 400_000, 5000  # of a diff, shown at most
_NONE = "no attempt at {change} is kept yet: runs keep every attempt, in a git repository"


class DiffTarget(NamedTuple):
    """The change whose attempts are shown, and the story to select first."""

    change: str
    ref: str = ""
    story: str | None = None


class KeptAttempt(NamedTuple):
    """An attempt whose work is kept as a commit."""

    entry: Entry
    story: str
    commit: str


class DiffPage(Page, inherit_bindings=False):
    """The newest attempt comes first."""

    BINDINGS: ClassVar[list[BindingType]] = [*Page.BINDINGS]

    def __init__(self, root: str, target: DiffTarget) -> None:
        super().__init__(root)
        self._target = target
        self._attempts: list[KeptAttempt] = []
        self._diffs: dict[str, list[Text]] = {}  # by entry

    @property
    def subject(self) -> str:
        return self._target.change

    def compose_body(self) -> ComposeResult:
        with Horizontal(classes="halves"):
            yield RowList(id="stories", markup=False)
            yield RichLog(id="diff", wrap=True, markup=False, min_width=1, auto_scroll=False)

    def on_mount(self) -> None:
        self.show_title(self._target.change, "what its attempts changed")
        self.query_one("#stories").border_title = "Attempts"
        self.query_one("#stories").focus()
        self.run_worker(self._load_attempts())

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_chosen)

    async def _load_attempts(self) -> None:
        found = await self.run_in_thread(lambda: list_attempts(self.root, self._target))
        if isinstance(found, RalphError):
            self._write([Text(line, style="red") for line in split_lines(str(found))])
            return
        self._attempts = found
        shown = self.query_one("#stories", RowList)
        shown.update_rows(map(_build_row, found))
        wanted = (number for number, one in enumerate(found) if one.story == self._target.story)
        shown.highlighted = next(wanted, 0)

    # --- the diff

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show_chosen()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.query_one("#diff").focus()

    def _show_chosen(self) -> None:
        place = self.query_one("#stories", RowList).highlighted
        if place is None or place >= len(self._attempts):
            return
        one = self._attempts[place]
        self.query_one("#diff").border_title = Text(flatten(one.entry.id, 100))
        if one.entry.id in self._diffs:
            self._write(self._diffs[one.entry.id])
        else:
            self._load_diff(one)

    @work(exclusive=True, group="diff")
    async def _load_diff(self, one: KeptAttempt) -> None:
        found = await self.run_in_thread(lambda: read_diff(self.root, one.commit))
        lines = [Text(str(found), style="red")] if isinstance(found, RalphError) else render_diff(found)
        self._diffs = {one.entry.id: [*_render_head(one), *lines]}  # only one, since each may be long
        self._show_chosen()

    def _write(self, lines: list[Text]) -> None:
        log = self.query_one("#diff", RichLog)
        log.clear()
        for line in lines:
            log.write(line, scroll_end=False)
        log.scroll_home(animate=False)


# --- reading ----------------------------------------------------------------------------------------


def list_attempts(root: str, target: DiffTarget) -> list[KeptAttempt]:
    """The attempts at a change whose work is kept, the newest first."""
    with data.open_spec(root, specs.ChangeLocation(target.change, target.ref)) as spec:
        stories = {specs.prd_id(spec, story.id): story.id for story in spec.stories()}
    history = History(root)
    found = [one for one in history.entries() if one.prd_id in stories]
    kept = kept_attempts.read_own(_find_repository(root), root, history, (one.id for one in found))
    entries = [one for one in found if one.id in kept]
    if not entries:
        raise InvalidValue(_NONE.format(change=target.change))
    return [KeptAttempt(one, stories[one.prd_id], kept[one.id]) for one in reversed(entries)]


def _find_repository(root: str) -> Repository:
    found = Repository.find(root)
    if found is None:
        raise GitError("this project is not in a git repository: attempts are only kept with git")
    return found


def read_diff(root: str, commit: str) -> bytes:
    """The diff of a commit, from git; runs none of the user's programs."""
    repository = _find_repository(root)
    before = repository.resolve(f"{commit}^") or repository.empty_tree
    return repository.run("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--stat=44", "-p", before, commit)


# --- words ------------------------------------------------------------------------------------------


def _build_row(one: KeptAttempt) -> RenderableType:
    status = flatten(one.entry.status, 20)
    name = Text.assemble(render_attempt_mark(status), " ", flatten(one.entry.id, 100))
    return build_row(name, Text(status, style="dim"))


def _render_head(one: KeptAttempt) -> list[Text]:
    summary = flatten(one.entry.summary) if isinstance(one.entry.summary, str) else ""
    about = Text(f"{one.entry.status}, commit {one.commit[:10]}", style="dim")
    return [about, *([Text(summary)] if summary else []), Text()]


def render_diff(found: bytes) -> list[Text]:
    """The lines of a diff in colours; of a long diff, only the beginning."""
    lines = found[:_BYTES].decode("utf-8", "replace").rstrip("\n").split("\n")
    is_cut = len(found) > _BYTES or len(lines) > _LINES
    shown = [Text(make_writable(line.expandtabs(4)), style=_choose_style(line)) for line in lines[:_LINES]]
    if not found.strip():
        return [Text("This attempt changed no file.", style="dim")]
    return [*shown, *([Text("and more: `ralphtool diff` shows all of it", style="dim italic")] if is_cut else [])]


def _choose_style(line: str) -> str:
    if line.startswith(("diff --git ", "+++ ", "--- ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
