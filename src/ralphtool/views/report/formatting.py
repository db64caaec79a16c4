"""Untrusted texts made fit to be shown anywhere, and times as people read them.

A page is written for browsers, whatever the terminal here can show: so nothing is asked of the terminal.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ralphtool.core.text import make_printable

LONGEST = 400  # characters of a text in one line,
LONGEST_BLOCK = 6000  # and of one that may have many
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_SELECTORS = {0xFE0E: None, 0xFE0F: None}


def clean_line(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line. Colours are left out; what else is not seen becomes visible."""
    plain = _strip_escapes(text[: 4 * longest])
    told = make_printable(" ".join(plain.split()))
    return told if len(told) <= longest and len(text) <= 4 * longest else told[:longest] + "…"


def clean_block(text: str, longest: int = LONGEST_BLOCK) -> str:
    """The beginning of a text, line by line, likewise."""
    plain = _strip_escapes(text[:longest]).replace("\r\n", "\n").strip("\n")
    told = "\n".join(make_printable(one.expandtabs(4).rstrip()) for one in plain.split("\n"))
    return told if len(text) <= longest else f"{told}\n… (cut: {len(text)} characters in all)"


def _strip_escapes(text: str) -> str:
    return _ESCAPES.sub("", text).translate(_SELECTORS)


def format_utc(seconds: float) -> str:
    """As in 2026-03-01T22:00:00Z, for programs."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_day_and_time(seconds: float) -> str:
    """As in `Sun 1 Mar 2026, 22:00 UTC`: where the reader is."""
    told = datetime.fromtimestamp(seconds, UTC).astimezone()
    return f"{told:%a} {told.day} {told:%b %Y, %H:%M %Z}"


def format_clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%H:%M}"


def format_duration(seconds: float) -> str:
    """As in `0.4 s`, `45 s`, `12 min`, `3 h 05 min`."""
    if 0 < seconds < 0.95:
        return f"{max(seconds, 0.1):.1f} s"
    whole = int(seconds + 0.5)
    if whole < 90:
        return f"{whole} s"
    minutes = (whole + 30) // 60
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def format_cost(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.005 else "<$0.01" if dollars > 0 else ""
