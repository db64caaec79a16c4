"""What is the same, and what is like what: the only place that compares texts by their words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Item = TypeVar("Item")

_WORD = re.compile(r"[^\W_]+")
_VOLATILE = re.compile(r"0x[0-9a-f]+|\d+")
_COMMON = frozenset(
    ("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "in", "is", "it", "of", "on", "or", "that")
)
_ENOUGH = 0.4  # so much of the shorter text's words has to be shared


def same(one: str, other: str) -> bool:
    """Whether two failures are one and the same, but for numbers."""
    return _masked(one) == _masked(other)


def _masked(text: str) -> str:
    return " ".join(_VOLATILE.sub("#", text.lower()).split())


def overlap(one: str, other: str) -> float:
    """How much of the shorter text's words the other one shares: 0 to 1."""
    left, right = _words(one), _words(other)
    fewer = min(len(left), len(right))
    return len(left & right) / fewer if fewer >= 2 else 0.0


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()[:10_000])) - _COMMON


def closest(text: str, items: Iterable[Item], words: Callable[[Item], str]) -> Item | None:
    """The item that is most like a text, if any is like it at all; of equals, the last."""
    best, score = None, _ENOUGH
    for item in items:
        if (found := overlap(text, words(item))) >= score:
            best, score = item, found
    return best
