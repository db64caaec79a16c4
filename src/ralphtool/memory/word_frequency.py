"""How common words are in text about software: what a memory that holds little yet could not know by itself.

`background.txt` tells how many paragraphs of documentation there were, and how many of them have a word
(`scripts/background.py` makes it).
"""

from __future__ import annotations

import math
import os

_FEW = 300  # words: who asks for more has a long day's work, and the whole table is worth its price


class _FrequencyTable:
    """The table as text, in which a few words are quickly found; as a dictionary, once many are asked for."""

    def __init__(self) -> None:
        with open(os.path.join(os.path.dirname(__file__), "background.txt"), encoding="utf-8") as file:
            self._paragraphs = int(file.readline())
            self._text = file.read().replace("\n", " \n")
        self._shares: dict[str, float] = {}
        self._is_whole = False

    def share(self, word: str) -> float:
        known = self._shares.get(word)
        if known is None:
            known = 1 / self._paragraphs if self._is_whole else self._look_up(word)
        return known

    def _look_up(self, word: str) -> float:
        if len(self._shares) >= _FEW:
            self._read_all()
            return self._shares.get(word, 1 / self._paragraphs)
        place = self._text.find(f" {word} ")
        line = self._text[self._text.rfind("\n", 0, place) + 1 : place] if place >= 0 else "1"
        self._shares[word] = int(line.split(" ", 1)[0]) / self._paragraphs
        return self._shares[word]

    def _read_all(self) -> None:
        for line in self._text.splitlines():
            count, *words = line.split()
            self._shares.update(dict.fromkeys(words, int(count) / self._paragraphs))
        self._is_whole = True


_tables: list[_FrequencyTable] = []  # none before the first word is asked for


def find_share(word: str) -> float:
    """In which part of all paragraphs a word stands; one that is not known is rarer than all that are."""
    if not _tables:
        _tables.append(_FrequencyTable())
    return _tables[0].share(word)


def find_weight(word: str) -> float:
    """How much a word tells, by itself."""
    return math.log(1 + 1 / find_share(word))
