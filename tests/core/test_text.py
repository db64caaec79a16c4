"""What is made visible in texts, and what is part of them."""

from __future__ import annotations

import pytest

from ralphtool.core import text


@pytest.mark.parametrize(
    "shown", ["👨\u200d💼 HR", "❤\ufe0f\u200d🔥", "🙂\u200d↔\ufe0f", "می\u200cخواهم", "क\u094d\u200dष"]
)
def test_joiners_are_part_of_words_and_emoji(shown: str) -> None:
    assert text.make_printable(shown) == text.make_visible(shown) == shown


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("a\u200db", r"a\u200db"),
        ("да\u200dть é\u200cé “\u200d”", r"да\u200dть é\u200cé “\u200d”"),
        ("\u200dن", r"\u200dن"),
        ("ن\u200c", r"ن\u200c"),
        ("ن\u200c\u200dن", r"ن\u200c\u200dن"),
        ("ن\u202e\u200cن م\u200cن", "ن\\u202e\\u200cن م\u200cن"),
    ],
)
def test_joiners_elsewhere_are_made_visible(hidden: str, shown: str) -> None:
    assert text.make_printable(hidden) == text.make_visible(hidden) == shown
