"""The features by which texts are compared, and the similarity of two texts."""

from __future__ import annotations

import math

from ralphtool.memory import tokens, word_frequency

COSINE, BM25, GRAMS = 0.3, 0.5, 0.2  # the weight of each kind of comparison
_SATURATION, _LENGTH_MATTERS = 1.5, 0.75  # BM25's k1 and b
_LONG, _FEWEST_SHARED = 10_000, 3
_COMPARED = 600  # characters that are compared letter by letter


class Profile:
    """The words of a text with their counts, and the beginning of the text."""

    __slots__ = ("_grams", "counts", "length", "norm", "text")

    def __init__(self, text: str, counts: dict[str, int], length: int, norm: float) -> None:
        self.text = text
        self.counts = counts
        self.length = length
        self.norm = norm
        self._grams: set[str] | None = None

    @classmethod
    def of(cls, text: str) -> Profile:
        counts: dict[str, int] = {}
        # The first sentence counts twice: it says what a text is about.
        for word in (*tokens.split_tokens(text), *tokens.split_tokens(tokens.find_first_sentence(text))):
            counts[word] = counts.get(word, 0) + 1
        norm = math.sqrt(
            sum((damp_count(times) * word_frequency.find_weight(word)) ** 2 for word, times in counts.items())
        )
        return cls(text[:_COMPARED], counts, sum(counts.values()), norm)

    @property
    def grams(self) -> set[str]:
        if self._grams is None:
            self._grams = tokens.build_grams(self.text)
        return self._grams


def damp_count(times: int) -> float:
    """A word that occurs ten times says more than one that occurs once, but not ten times as much."""
    return 1 + math.log(times)


def measure_overlap(one: str, other: str) -> float:
    """The share of the shorter text's words that the other one has too; 0 if they share only one or two."""
    left, right = set(tokens.split_tokens(one[:_LONG])), set(tokens.split_tokens(other[:_LONG]))
    if len(left & right) < _FEWEST_SHARED:
        return 0.0
    said = min(sum(map(word_frequency.find_weight, left)), sum(map(word_frequency.find_weight, right)))
    return sum(map(word_frequency.find_weight, left & right)) / said


class TextQuery:
    """A text to search for, compared with candidates."""

    def __init__(self, profile: Profile, weights: dict[str, float], average_length: float) -> None:
        self._profile = profile
        self._weights = {word: damp_count(profile.counts[word]) * weight for word, weight in weights.items()}
        self._idf = weights
        self._norm = math.sqrt(sum(weight * weight for weight in self._weights.values())) or 1.0
        self._average = average_length or 1.0
        self._most = sum(self._weights.values()) * (_SATURATION + 1) or 1.0

    def score_by_words(self, other: Profile) -> float:
        """The cosine of weighted words, and BM25."""
        dot = bm25 = 0.0
        room = _SATURATION * (1 - _LENGTH_MATTERS + _LENGTH_MATTERS * other.length / self._average)
        for word, weight in self._weights.items():
            if times := other.counts.get(word):
                dot += weight * damp_count(times) * self._idf[word]
                bm25 += weight * times * (_SATURATION + 1) / (times + room)
        cosine = min(1.0, dot / (self._norm * (other.norm or 1.0)))
        return COSINE * cosine + BM25 * bm25 / self._most

    def score_by_letters(self, other: Profile) -> float:
        """The share of its runs of four characters that the other one has."""
        grams = self._profile.grams
        return GRAMS * len(grams & other.grams) / len(grams)
