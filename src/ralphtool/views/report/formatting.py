"""Sanitizes untrusted texts for any output.

Pages are for browsers, so the abilities of this terminal don't matter here.
"""

from __future__ import annotations

import re

from ralphtool.core.text import make_printable

LONGEST = 400  # characters of a text of one line
LONGEST_BLOCK = 6000  # characters of a text of several lines
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_SELECTORS = {0xFE0E: None, 0xFE0F: None}


def clean_line(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line. Colours are removed; other invisible characters become visible."""
    plain = _strip_escapes(text[: 4 * longest])
    told = make_printable(" ".join(plain.split()))
    return told if len(told) <= longest and len(text) <= 4 * longest else told[:longest] + "…"


def clean_block(text: str, longest: int = LONGEST_BLOCK) -> str:
    """The same for a text of several lines."""
    plain = _strip_escapes(text[:longest]).replace("\r\n", "\n").strip("\n")
    told = "\n".join(make_printable(one.expandtabs(4).rstrip()) for one in plain.split("\n"))
    return told if len(text) <= longest else f"{told}\n… (cut: {len(text)} characters in all)"


def _strip_escapes(text: str) -> str:
    return _ESCAPES.sub("", text).translate(_SELECTORS)
