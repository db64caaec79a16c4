"""Splits text into the word pieces of the sentence model: lower case, no accents, punctuation and Chinese separate.

Text such as `[SEP]` has no special meaning: input never becomes a control token.
"""

from __future__ import annotations

import string
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LETTERS_OF_A_WORD = 100  # longer words were not in the model's training: they count as unknown
_AT_ONCE = 5_000  # characters; few texts are longer, and the rest of those is mostly not read
_CHINESE = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._numbers["[UNK]"]
        self._begin, self._end = self._numbers["[CLS]"], self._numbers["[SEP]"]
        self._longest = max(map(len, self._numbers))

    def of(self, text: str, most: int) -> list[int]:
        """The numbers of the text's pieces between two marks: at most `most`, and no more of the text is read."""
        found: list[int] = []
        for word in _split_words(text):
            found += self._pieces(word)
            if len(found) >= most - 2:
                break
        return [self._begin, *found[: most - 2], self._end]

    def _pieces(self, word: str) -> list[int]:
        """The longest piece at the start of the word, then the same for the rest."""
        if len(word) > _LETTERS_OF_A_WORD:
            return [self._unknown]
        found: list[int] = []
        start, mark = 0, ""
        while start < len(word):
            stop = min(len(word), start + self._longest)
            while (piece := mark + word[start:stop]) not in self._numbers:
                stop -= 1
                if stop == start:
                    return [self._unknown]
            found.append(self._numbers[piece])
            start, mark = stop, "##"
        return found


def _split_words(text: str) -> Iterator[str]:
    """Lazily; the cost is proportional to what is read, whatever the text contains."""
    unfinished = ""
    for start in range(0, len(text), _AT_ONCE):
        part = unfinished + text[start : start + _AT_ONCE].translate(_CHARACTERS)
        *whole, unfinished = part.split(" ")
        yield from filter(None, whole)
        unfinished = unfinished[: _LETTERS_OF_A_WORD + 1]  # otherwise an endless word would be copied again and again
    if unfinished:
        yield unfinished


class _Characters(dict[int, str]):
    """The replacement for each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        became = self[code] = _normalize(chr(code))
        return became


_CHARACTERS = _Characters()


def _normalize(character: str) -> str:
    """Character by character: sorting a text's accents before they are dropped can take very long."""
    kind = unicodedata.category(character)
    if character in "\t\n\r" or kind in ("Zs", "Zl", "Zp"):
        return " "
    if character == "\ufffd" or kind in ("Cc", "Cf", "Co", "Cs"):
        return ""
    bare = [part for part in unicodedata.normalize("NFD", character) if unicodedata.category(part) != "Mn"]
    plain = "".join(f" {part} " if _is_punctuation(part) else part for part in "".join(bare).lower())
    return f" {plain} " if any(first <= ord(character) <= last for first, last in _CHINESE) else plain


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
