"""The full screen: choose a change, read it, run and watch it, see its result.

It starts nothing by itself, reads only what is recorded, and steers runs through files: closing it, killing it or
losing its terminal never harms a run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.color import parse_rgb_hex
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.filter import LineFilter
from textual.theme import Theme

from ralphtool.errors import RalphError, from_os_error
from ralphtool.record import runs
from ralphtool.views.launch import Launch
from ralphtool.views.screen.base import LEAST, MessageDialog, Navigate, Page
from ralphtool.views.screen.change import ChangePage
from ralphtool.views.screen.chosen import ChosenPage
from ralphtool.views.screen.diff import DiffPage
from ralphtool.views.screen.home import ChangesPage
from ralphtool.views.screen.result import ResultPage
from ralphtool.views.screen.watch import WatchPage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.color import Color

    from ralphtool.views.screen.base import StartRun


def _build_ansi_theme(colours: str) -> TerminalTheme:
    """Black, red, green, yellow, blue, magenta, cyan, white."""
    normal: list[tuple[int, int, int]] = [parse_rgb_hex(one.removeprefix("#")) for one in colours.split()]
    return TerminalTheme(normal[0], normal[-1], normal, normal)


_DARK = Theme(
    name="ralph",
    primary="#7aa2c8",
    secondary="#5c6f82",
    accent="#7fbfc4",
    success="#8fbf7f",
    warning="#d9b36c",
    error="#d07a73",
    foreground="#d5d9dd",
    background="#15181c",
    surface="#15181c",
    panel="#22272d",
    variables={"block-cursor-text-style": "none", "footer-background": "#22272d", "footer-key-foreground": "#d9b36c"},
)
_LIGHT = Theme(
    name="ralph-light",
    primary="#2f5d8a",
    secondary="#7a8794",
    accent="#2a7a80",
    success="#3d7a2e",
    warning="#8a6414",
    error="#a33a33",
    foreground="#23282d",
    background="#f7f6f3",
    surface="#f7f6f3",
    panel="#e8e6e0",
    dark=False,
    variables={"block-cursor-text-style": "none", "footer-background": "#e8e6e0", "footer-key-foreground": "#8a6414"},
)
# The sixteen ANSI colours, which style all other text here.
_DARK_LETTERS = _build_ansi_theme("#15181c #d07a73 #8fbf7f #d9b36c #7aa2c8 #b493c2 #7fbfc4 #d5d9dd")
_LIGHT_LETTERS = _build_ansi_theme("#23282d #a33a33 #3d7a2e #8a6414 #2f5d8a #7d4a8f #2a7a80 #f7f6f3")
_PRETTY = "│┃║─━═╭╮╰╯┌┐└┘▔▁…•\xd7"
_PLAIN = dict.fromkeys(range(0x2580, 0x25A0), "#")  # block elements
_PLAIN |= zip(map(ord, _PRETTY), "|||---++++++++-_.*x", strict=True)
_SOON = 0.1  # seconds between two checks for the start of a run
_ENDS = (signal.SIGTERM, signal.SIGHUP)
_PAGES: dict[str, Callable[[str, Any], Page]] = {"change": ChangePage, "watch": WatchPage, "result": ResultPage}
_PAGES["diff"] = DiffPage


class AsciiFilter(LineFilter):
    """Draws frames and bars in ASCII, for terminals without Unicode. Widths don't change."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(_replace_unicode(text), style, control) for text, style, control in segments]


def _replace_unicode(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text.translate(_PLAIN))


class RalphApp(App[None]):
    CSS_PATH = "style.tcss"
    TITLE = "ralphtool"
    # CSS classes by screen size, for style.tcss.
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (LEAST[0], "-narrow"), (72, "-normal"), (100, "-wide")]  # noqa: RUF012 - so it is declared
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (LEAST[1], "-low"), (16, "-high")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(self, root: str, encoding: str = "utf-8") -> None:
        # Without colours means none at all: Textual would use shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"  # animations only cost time
        self.root = root
        self._launches: list[Launch] = []
        self._encoding = encoding
        self._filter = AsciiFilter(enabled=not encoding.lower().replace("-", "").startswith("utf"))
        self.ansi_theme_dark, self.ansi_theme_light = _DARK_LETTERS, _LIGHT_LETTERS
        self.register_theme(_DARK)
        self.register_theme(_LIGHT)
        self.theme = "ralph-light" if _is_light(os.environ.get("COLORFGBG", "")) else "ralph"

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._filter] if self._filter.enabled else [])]

    def on_mount(self) -> None:
        # Textual replaces standard output by its own stream: checks of what can be written there must see the
        # terminal's encoding.
        sys.stdout.encoding = self._encoding  # type: ignore[misc]
        for number in _ENDS:  # so that the terminal is restored
            asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)
        self.push_screen(ChangesPage(self.root))
        self.set_interval(_SOON, self._follow_launches)

    def on_unmount(self) -> None:
        for one in self._launches:
            if one.id:
                one.remove_output()  # it has its record

    def on_navigate(self, message: Navigate) -> None:
        page = _PAGES[message.to](self.root, message.what)
        if isinstance(page, ChosenPage):
            page.starting = {one.change for one in self._launches if not one.is_reported}
        if any(page.is_like(below) for below in self.screen_stack[-2:-1]):
            self.pop_screen()  # the user alternates between two pages
        else:
            self.push_screen(page)

    # --- runs that were started here

    def on_start_run(self, message: StartRun) -> None:
        try:
            self._launches.append(Launch(self.root, message.change, message.ref))
        except RalphError as error:
            self._report_failure(message.change, str(error))
        except OSError as error:
            self._report_failure(message.change, str(from_os_error(error)))

    def _follow_launches(self) -> None:
        for one in list(self._launches):
            has_ended = one.has_ended  # checked first, so that everything it wrote before its end is found below
            if one.id is None:
                one.find_run()
            page = self.screen
            # It can wait: dialogs are not interrupted.
            if not one.is_reported and (one.id or has_ended) and isinstance(page, Page) and page.is_mounted:
                one.is_reported = True
                self._report_start(page, one) if one.id else self._report_failure(one.change, one.read_error())
            if has_ended and one.is_reported:
                self._launches.remove(one)
                one.remove_output()

    def _report_start(self, page: Page, begun: Launch) -> None:
        self._clear_starting(begun.change)
        if isinstance(page, ChosenPage) and page.chosen and page.chosen.name == begun.change:
            page.try_action(lambda: page.post_message(Navigate("watch", runs.read_summary(self.root, begun.id or ""))))
        else:
            page.show_message(f"the run of {begun.change} has begun")

    def _report_failure(self, change: str, why: str) -> None:
        self._clear_starting(change)
        self.push_screen(MessageDialog(f"{change} did not start", why))

    def _clear_starting(self, change: str) -> None:
        for page in self.screen_stack:
            if isinstance(page, ChosenPage):
                page.set_starting(change, False)


def _is_light(colours: str) -> bool:
    """`colours` is what some terminals report: `foreground;background`."""
    return colours.rpartition(";")[2] in ("7", "15")


def main(root: str) -> int:
    """Shows the screen until it is closed."""
    app = RalphApp(root, getattr(sys.__stderr__, "encoding", None) or "ascii")
    app.run()
    return app.return_code or 0
