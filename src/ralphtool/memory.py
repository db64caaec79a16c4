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
    _WORD.findall("a an and are as at be by for from has in is it its no not of on or that the this to was were with")
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


def alike(text: str, items: Iterable[Item], words: Callable[[Item], str]) -> list[Item]:
    """The items that are like a text, the most alike first; of equals, the last."""
    scored = [(overlap(text, words(item)), position, item) for position, item in enumerate(items)]
    return [item for score, _, item in sorted(scored, key=lambda one: one[:2], reverse=True) if score >= _ENOUGH]


def closest(text: str, items: Iterable[Item], words: Callable[[Item], str]) -> Item | None:
    """The item that is most like a text, if any is like it at all."""
    return next(iter(alike(text, items, words)), None)
