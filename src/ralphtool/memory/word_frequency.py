"""How common words are in text about software, for a memory that does not have enough texts of its own yet.

`background.txt` has the number of paragraphs of documentation, and how many of them contain each word
(`scripts/background.py` generates it).
"""

from __future__ import annotations

import math
import os

_FEW = 300  # words: for more lookups, reading the whole table is worth its cost


class _FrequencyTable:
    """The table as text, which is fast for a few words; as a dictionary once there are many lookups."""

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


_tables: list[_FrequencyTable] = []  # empty until the first lookup


def find_share(word: str) -> float:
    """The share of all paragraphs that contain a word; an unknown word counts as very rare."""
    if not _tables:
        _tables.append(_FrequencyTable())
    return _tables[0].share(word)


def find_weight(word: str) -> float:
    """The weight of a word by itself."""
    return math.log(1 + 1 / find_share(word))
