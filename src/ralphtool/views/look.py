"""The symbol, the colour and the words of every state, for all views: terminal, full screen, report and web page.

A colour has one name. It is a style of rich, and a variable of the same name in report/page.css; `build_css` joins the
two. `dim` is for what needs no attention; no colour means the colour of ordinary text.
Only the cheapest imports: `ralphtool watch` has to start quickly.
"""

from __future__ import annotations

from typing import NamedTuple

from ralphtool.core.text import can_write_unicode

COLOURS = ("green", "yellow", "red", "magenta", "cyan", "dim")


class Look(NamedTuple):
    symbol: str
    plain: str  # the symbol for terminals with ASCII only
    colour: str
    words: str

    @property
    def mark(self) -> tuple[str, str]:
        """The symbol that this terminal can show, with its style."""
        return (self.symbol if can_write_unicode() else self.plain, self.colour)

    @property
    def title(self) -> str:
        return self.words[:1].upper() + self.words[1:]


STORIES = {  # in the order of summaries and bars
    "done": Look("✓", "+", "green", "done"),
    "unproven": Look("!", "!", "yellow", "done, not proven"),
    "current": Look("▸", ">", "cyan", "in progress"),
    "waiting": Look("?", "?", "yellow", "needs your answer"),
    "failed": Look("✗", "x", "red", "failed"),
    "skipped": Look("-", "-", "dim", "skipped"),
    "open": Look("·", ".", "dim", "open"),
}
ATTEMPTS = {
    "completed": Look("✓", "+", "green", "completed"),
    "partial": Look("½", "~", "yellow", "partial"),
    "failed": Look("✗", "x", "red", "failed"),
    "blocked": Look("✗", "x", "magenta", "blocked"),
    "running": Look("▸", ">", "cyan", "in progress"),
    "other": Look("·", ".", "dim", "not counted as an attempt"),
}
RUNS = {
    "running": Look("▸", ">", "cyan", "running"),
    "paused": Look("=", "=", "yellow", "paused"),
    "done": Look("✓", "+", "green", "done"),
    "unproven": Look("!", "!", "yellow", "done, not all proven"),
    "unfinished": Look("·", ".", "", "unfinished"),
    "interrupted": Look("·", ".", "", "interrupted"),
    "died": Look("✗", "x", "red", "died"),
}
GATES = {"green": Look("✓", "+", "green", "green"), "red": Look("✗", "x", "red", "red")}
PHASES = {"waiting": "waits to be merged", "merging": "being proven"}  # of a story whose agent has finished


def find_attempt_name(status: str) -> str:
    """The name in ATTEMPTS of an attempt's ending: `other` if it was cut off or met an outage."""
    return status if status in ATTEMPTS else "other"


def build_css() -> str:
    """The rules that give each state its colour, for the report and the web page."""
    selectors: dict[str, list[str]] = {}
    for prefix, looks in ((".is-", {**RUNS, **STORIES}), (".v-", ATTEMPTS), (".gate-", GATES)):
        for name, look in looks.items():
            selectors.setdefault(look.colour or "ink", []).append(f"{prefix}{name}")
    return "".join(f"{', '.join(names)} {{ --tone: var(--{colour}); }}\n" for colour, names in selectors.items())
