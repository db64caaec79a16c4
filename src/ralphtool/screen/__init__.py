"""The full screen: choose a change, read it, run and watch it, see what it came to.

It starts nothing by itself, reads only what is recorded, and what a person says becomes a file: closing it, killing it
or losing its terminal never harms a run.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.color import parse_rgb_hex
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.filter import LineFilter
from textual.theme import Theme

from ralphtool.screen.change import ChangePage
from ralphtool.screen.changes import ChangesPage
from ralphtool.screen.page import LEAST
from ralphtool.screen.result import ResultPage
from ralphtool.screen.watch import WatchPage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.color import Color

    from ralphtool.screen.page import Go, Page


def _letters(colours: str) -> TerminalTheme:
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
# The sixteen colours of a terminal, in which everything else here is written as well.
_DARK_LETTERS = _letters("#15181c #d07a73 #8fbf7f #d9b36c #7aa2c8 #b493c2 #7fbfc4 #d5d9dd")
_LIGHT_LETTERS = _letters("#23282d #a33a33 #3d7a2e #8a6414 #2f5d8a #7d4a8f #2a7a80 #f7f6f3")
_PRETTY = "│┃║─━═╭╮╰╯┌┐└┘▔▁…•"
_PLAIN = dict.fromkeys(range(0x2580, 0x25A0), "#")  # all kinds of blocks
_PLAIN |= zip(map(ord, _PRETTY), "|||---++++++++-_.*", strict=True)
_PAGES: dict[str, Callable[[str, Any], Page]] = {"change": ChangePage, "watch": WatchPage, "result": ResultPage}


class Ascii(LineFilter):
    """Frames and bars for a terminal that knows no other letters. Each stays as wide as it was."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(_plain(text), style, control) for text, style, control in segments]


def _plain(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text.translate(_PLAIN))


class RalphApp(App[None]):
    CSS_PATH = "style.tcss"
    TITLE = "ralphtool"
    # The names of classes that a screen has by its size; style.tcss says what comes of that.
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (LEAST[0], "-narrow"), (72, "-normal")]  # noqa: RUF012 - so it is declared
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (LEAST[1], "-low"), (16, "-high")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(self, root: str, encoding: str = "utf-8") -> None:
        # Without colours means without any: Textual would give shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"  # what moves for its own sake only costs time
        self.root = root
        self._encoding = encoding
        self._filter = Ascii(enabled=not encoding.lower().replace("-", "").startswith("utf"))
        self.ansi_theme_dark, self.ansi_theme_light = _DARK_LETTERS, _LIGHT_LETTERS
        self.register_theme(_DARK)
        self.register_theme(_LIGHT)
        self.theme = "ralph-light" if _is_light(os.environ.get("COLORFGBG", "")) else "ralph"

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._filter] if self._filter.enabled else [])]

    def on_mount(self) -> None:
        # While this runs, Textual's own stream stands for standard output: whoever asks what can be written there
        # shall hear of the terminal.
        sys.stdout.encoding = self._encoding  # type: ignore[misc]
        self.push_screen(ChangesPage(self.root))

    def on_go(self, message: Go) -> None:
        page = _PAGES[message.to](self.root, message.what)
        if any(page.is_like(below) for below in self.screen_stack[-2:-1]):
            self.pop_screen()  # somebody goes to and fro between two pages
        else:
            self.push_screen(page)


def _is_light(colours: str) -> bool:
    """What some terminals tell about theirs: `foreground;background`."""
    return colours.rpartition(";")[2] in ("7", "15")


def main(root: str) -> int:
    """Shows the screen until it is closed."""
    app = RalphApp(root, getattr(sys.__stderr__, "encoding", None) or "ascii")
    app.run()
    return app.return_code or 0
