"""Shared parts of all pages of the full screen: head, keys, dialogs, and a message for screens that are too small."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from msgspec import Struct
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingsMap
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from ralphtool.errors import InvalidValue, RalphError, from_os_error
from ralphtool.record import questions, steering
from ralphtool.views.screen.record import split_lines
from ralphtool.views.terminal.phrases import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer
    from textual.visual import VisualType

    ResultT = TypeVar("ResultT")

LEAST = (40, 10)  # columns and lines; smaller screens show only a message
_WIDE_ENOUGH = 72  # columns for the keys of every page
_LONG_ENOUGH = 6.0  # seconds that a message is shown
_MOVING = (("tab", "to the next list or text"), ("arrows", "move and scroll"))


def _build_too_small() -> Static:
    return Static(f"too small: {LEAST[0]}\xd7{LEAST[1]} at least", id="small", markup=False)


class KeyLine(Footer):
    """The line of keys. If there is no room for all of them, those that lead to the others come first."""

    _is_narrow = False

    def compose(self) -> ComposeResult:
        self._is_narrow = self.app.size.width < _WIDE_ENOUGH
        keys = list(super().compose())
        if self._is_narrow:
            keys.sort(key=lambda one: getattr(one, "action", "") not in ("keys", "app.quit"))
        yield from keys

    def on_resize(self) -> None:
        if self._is_narrow != (self.app.size.width < _WIDE_ENOUGH):
            self.refresh(recompose=True)


class RowList(OptionList):
    """A list that shows Enter among the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Open", key_display="enter")]

    def update_rows(self, rows: Iterable[VisualType]) -> None:
        """Replaces the rows; the selection is kept, and the scroll position too if the number of rows is the same."""
        place, options = self.highlighted or 0, [Option(row) for row in rows]
        if options and len(options) == self.option_count:
            for number, option in enumerate(options):
                self.replace_option_prompt_at_index(number, option.prompt)
            return
        self.set_options(options)
        self.highlighted = min(place, len(options) - 1) if options else None


def build_row(left: Text, right: Text) -> Table:
    """A line of a list, with a text at each end; if there is little room, the left one is cut."""
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, justify="right")
    table.add_row(left, right)
    return table


class NamedRow(Struct, frozen=True):
    """A line of a list whose right text is cut before the last `least` cells of its name."""

    name: Text
    about: Text
    least: int = 22

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        about = self.about.copy()
        about.truncate(max(0, options.max_width - min(self.name.cell_len, self.least) - 1), overflow="ellipsis")
        yield build_row(self.name, about)


class Navigate(Message):
    """A request to open another page. Pages don't know each other: the app opens them."""

    def __init__(self, to: Literal["change", "watch", "result", "diff"], what: object) -> None:
        super().__init__()
        self.to = to
        self.what = what


class StartRun(Message):
    """A request to run a change. The app follows the run, whichever page is open."""

    def __init__(self, change: str, ref: str) -> None:
        super().__init__()
        self.change = change
        self.ref = ref


class Page(Screen[None]):
    """One page: `compose_body` yields what it shows between its head and the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *Screen.BINDINGS,
        Binding("escape", "back", "Back", tooltip="to the previous page"),
        Binding("question_mark", "keys", "Keys", key_display="?", tooltip="this list"),
        Binding("q", "app.quit", "Quit", tooltip="close the screen; runs continue"),
        Binding("ctrl+c", "app.quit", show=False),
    ]

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root
        self._status = Text()  # the status of the page
        self._message = Text()  # a message that is shown instead, for a while
        self._message_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield _build_too_small()
        yield Static(id="head", markup=False)
        with Vertical(id="body"):
            yield from self.compose_body()
        yield Static(id="notice", classes="-empty", markup=False)
        yield KeyLine(show_command_palette=False, compact=True)

    def compose_body(self) -> ComposeResult:
        yield from ()

    def show_title(self, title: str, about: str = "") -> None:
        """The first line. Untrusted texts are safe here: they are shown as plain text."""
        words = Text.assemble((flatten(title, 100), "bold"), "  ", (flatten(about), "dim"))
        self.query_one("#head", Static).update(words)

    @property
    def subject(self) -> str:
        """The subject of the page."""
        return ""

    def is_like(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Page) and self.subject == other.subject

    def action_back(self) -> None:
        self.app.pop_screen()

    # --- messages and dialogs

    def show_message(self, text: str, *, wrong: bool = False) -> None:
        """A message on a separate line: it covers nothing."""
        if self._message_timer:
            self._message_timer.stop()
        near = text.replace(f"{self.root}/", "")  # the path of the project is long, and is in the head
        self._message = Text(flatten(near), style="red" if wrong else "cyan")
        self._message_timer = self.set_timer(_LONG_ENOUGH, self._clear_message)
        self._show_notice()

    def _clear_message(self) -> None:
        self._message = Text()
        self._show_notice()

    def show_status(self, words: Text) -> None:
        """The status, shown for as long as it applies."""
        if words != self._status:
            self._status = words
            self._show_notice()

    def _show_notice(self) -> None:
        words = self._message if self._message.plain else self._status
        shown = self.query_one("#notice", Static)
        shown.set_class(not words.plain, "-empty")
        shown.update(words)

    def action_keys(self) -> None:
        """All keys of the page, including those without effect at the moment."""
        keys = [one for one in self.BINDINGS if isinstance(one, Binding) and one.tooltip]
        known = [(one.key_display or one.key.replace("escape", "esc"), one.tooltip) for one in keys]
        lines = [Text.assemble((f"{key:>6}", "bold yellow"), f"  {told}") for key, told in (*known, *_MOVING)]
        self.app.push_screen(MessageDialog("Keys", Text("\n").join(lines)))

    def open_dialog(self, dialog: ChoiceDialog | TextDialog, then: Callable[[str], None]) -> None:
        """Opens a dialog, and calls `then` with its value unless it was cancelled."""
        self.app.push_screen(dialog, lambda value: self._handle_answer(value, then))

    def _handle_answer(self, value: str | None, then: Callable[[str], None]) -> None:
        if value is not None:
            self.try_action(lambda: then(value))

    def try_action(self, act: Callable[[], object]) -> None:
        """Does something that may be refused; shows the error then."""
        try:
            act()
        except RalphError as error:
            self.show_message(str(error), wrong=True)
        except OSError as error:
            self.show_message(str(from_os_error(error)), wrong=True)

    def ask_for_answer(self, change: str, story: str | None) -> None:
        """Opens the question of a story; if it has none, the first unanswered one."""
        try:
            self._open_question(change, story)
        except RalphError as error:
            self._show_refusal(error)
        except OSError as error:
            self._show_refusal(from_os_error(error))

    def _show_refusal(self, why: RalphError) -> None:
        """As a dialog: if the user starts typing at once, the page's keys don't react."""
        self.app.push_screen(MessageDialog("There is nothing to answer", str(why)))

    def _open_question(self, change: str, story: str | None) -> None:
        asked = questions.list_open(self.root, change)
        asked.sort(key=lambda one: (one.story != story, one.is_done, one.answer is not None))
        if not asked:
            raise InvalidValue(f"No question of {change or 'this project'} needs your answer.")
        one = asked[0]
        questions.check_answerable(self.root, one)
        dialog = TextDialog(f"{one.story}. {one.title} needs your answer", _render_question(one), "your answer")
        self.open_dialog(dialog, lambda text: self._send_answer(one, text))

    def _send_answer(self, asked: questions.OpenQuestion, text: str) -> None:
        questions.reply(self.root, asked, text)
        self.show_message(
            f"story {asked.story} continues with your answer{steering.describe_when(self.root, asked.change)}"
        )

    async def run_in_thread(self, read: Callable[[], ResultT]) -> ResultT | RalphError:
        """Reads something slow outside the event loop, which paints. Errors are returned, not raised. Cancels the
        caller if the page was left meanwhile: its widgets are being removed."""
        found: ResultT | RalphError
        try:
            found = await asyncio.to_thread(read)
        except RalphError as error:
            found = error
        except OSError as error:
            found = from_os_error(error)
        # When the app ends, its pages stay on the stack while they are removed; `display` is then False.
        if self not in self.app.screen_stack or not self.display:
            raise asyncio.CancelledError
        return found


def _render_question(asked: questions.OpenQuestion) -> Text:
    """The question without what the dialog already says."""
    words = Text()
    asked_for, _, _ = asked.text.rpartition("\n## Answer")
    _, *sections = (asked_for or asked.text).split("\n## ")
    for title, _, text in (section.partition("\n") for section in sections if not section.startswith("Story\n")):
        words.append(f"{flatten(title)}\n", style="bold")
        words.append("\n".join(line for line in split_lines(text) if not line.startswith("```")) + "\n\n")
    if asked.answer:
        words.append("Your answer so far\n", style="bold").append("\n".join(split_lines(asked.answer)))
    words.rstrip()
    return words


class _Dialog(ModalScreen[Any]):
    """A dialog over a page; its result is a value, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,pageup", "scroll_about(-4)", show=False),
        Binding("down,pagedown", "scroll_about(4)", show=False),
        Binding("escape", "cancel", "Cancel"),
        Binding("ctrl+c", "cancel", show=False),
    ]

    def __init__(self, title: str, about: str | Text) -> None:
        super().__init__()
        self._heading = Text(flatten(title, 200), style="bold")
        self._about = Text("\n".join(split_lines(about))) if isinstance(about, str) else about

    def compose(self) -> ComposeResult:
        yield _build_too_small()
        with Vertical(id="dialog"):
            yield Static(self._heading, markup=False)
            if self._about.plain:
                with VerticalScroll(id="about", can_focus=False):
                    yield Static(self._about, markup=False)
            yield from self.compose_reply()
        yield KeyLine(show_command_palette=False, compact=True)

    def compose_reply(self) -> ComposeResult:
        yield from ()

    def action_scroll_about(self, lines: int) -> None:
        for about in self.query("#about"):
            about.scroll_relative(y=lines, animate=False)

    def action_cancel(self) -> None:
        self.dismiss(None)


class MessageDialog(_Dialog, inherit_bindings=False):
    """A text to read. Only Enter and Escape close it, whatever else the user types."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "cancel", "OK", key_display="enter"),
        *_Dialog.BINDINGS,
    ]


class ChoiceDialog(_Dialog):
    """A question with a few answers, each with a key. Enter chooses the first, or the last if `careful`."""

    def __init__(
        self, title: str, text: str, answers: Sequence[tuple[str, str, str | None]], *, careful: bool = False
    ) -> None:
        super().__init__(title, text)
        self._answers = answers
        self._preferred = answers[-1 if careful else 0][0]
        keys = [Binding(key, f"answer('{key}')", label) for key, label, _ in answers]
        moves = [Binding(key, f"app.focus_{way}", show=False) for key, way in (("left", "previous"), ("right", "next"))]
        self._bindings = BindingsMap([*keys, *moves, *_Dialog.BINDINGS])  # the labels of the buttons, also at the foot

    def on_mount(self) -> None:
        self.query_one(f"#answer-{self._preferred}").focus()

    def compose_reply(self) -> ComposeResult:
        with Horizontal(id="answers"):
            for key, label, _ in self._answers:
                yield Button(Text(label), id=f"answer-{key}", compact=True)

    def action_answer(self, key: str) -> None:
        self.dismiss(next(value for known, _, value in self._answers if known == key))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_answer((event.button.id or "").removeprefix("answer-"))


class _TextInput(Input):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Send", key_display="enter")]


class TextDialog(_Dialog):
    """A line to type. Enter submits it, unless it is empty."""

    def __init__(self, title: str, about: str | Text = "", hint: str = "") -> None:
        super().__init__(title, about)
        self._hint = hint

    def compose_reply(self) -> ComposeResult:
        yield _TextInput(placeholder=self._hint, id="reply", compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value)
