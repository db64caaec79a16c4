"""The console that all drawings in a terminal use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from ralphtool.core.text import can_write_unicode

if TYPE_CHECKING:
    from rich.text import Text


def truncate(text: Text, width: int) -> Text:
    text.truncate(max(width, 1), overflow="ellipsis" if can_write_unicode() else "crop")
    return text


def build_console() -> Console:
    """Without colours if NO_COLOR is set; no markup in texts is interpreted."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, color_system=colours)
