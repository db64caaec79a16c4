"""How common words are in text about software: what a memory that holds little yet could not know by itself.

`background.txt` tells how many paragraphs of documentation there were, and how many of them have a word
(`scripts/background.py` makes it).
"""

from __future__ import annotations

import math
import os

_shares: dict[str, float] = {}
_rarest = 1.0


def share(word: str) -> float:
    """In which part of all paragraphs a word stands; one that is not known is rarer than all that are."""
    return (_shares or _loaded()).get(word, _rarest)


def weight(word: str) -> float:
    """How much a word tells, by itself."""
    return math.log(1 + 1 / share(word))


def _loaded() -> dict[str, float]:
    global _rarest
    with open(os.path.join(os.path.dirname(__file__), "background.txt"), encoding="utf-8") as file:
        paragraphs = int(file.readline())
        for line in file:
            count, *words = line.split()
            _shares.update(dict.fromkeys(words, int(count) / paragraphs))
    _rarest = 1 / paragraphs
    return _shares
