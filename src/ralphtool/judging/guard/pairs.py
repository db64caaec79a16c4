"""Pairs old tests with new ones: by their names first, then by their contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ralphtool.judging.guard.model import MOST_PAIRS, ParsedTestFile, Test


class ChangedTestFile(Struct):
    """A changed file of tests, before and after."""

    path: str
    old: ParsedTestFile
    new: ParsedTestFile
    gone: bool = False
    unparsable: bool = False


class LocatedTest(Struct, frozen=True):
    """A test and the file that it is in."""

    file: ChangedTestFile
    test: Test


_Pairing = tuple[list[tuple[LocatedTest, LocatedTest]], list[LocatedTest], list[LocatedTest]]
"""Pairs of before and after, then what is left over of each."""


def pair_tests(files: Sequence[ChangedTestFile]) -> _Pairing:
    lost = [LocatedTest(file, test) for file in files for test in file.old.tests.values()]
    fresh = [LocatedTest(file, test) for file in files for test in file.new.tests.values()]
    pairs: list[tuple[LocatedTest, LocatedTest]] = []
    keys: tuple[Callable[[LocatedTest], object], ...] = (
        lambda one: (one.file.path, one.test.name),
        lambda one: (one.file.path, one.test.bare),
        lambda one: one.test.name,
        lambda one: one.test.bare,
    )
    for key in keys:
        found, lost, fresh = _match_by(key, lost, fresh)
        pairs += found
    by_shape, lost, fresh = _match_by(lambda one: one.test.shape or id(one), lost, fresh)
    found, lost, fresh = _match_renamed(lost, fresh)
    return pairs + by_shape + found, lost, fresh


def _match_by(key: Callable[[LocatedTest], object], lost: list[LocatedTest], fresh: list[LocatedTest]) -> _Pairing:
    waiting: dict[object, list[LocatedTest]] = {}
    for one in reversed(fresh):
        waiting.setdefault(key(one), []).append(one)
    pairs, left = [], []
    for one in lost:
        if same := waiting.get(key(one)):
            pairs.append((one, same.pop()))
        else:
            left.append(one)
    taken = {id(new.test) for _, new in pairs}
    return pairs, left, [one for one in fresh if id(one.test) not in taken]


def _match_renamed(lost: list[LocatedTest], fresh: list[LocatedTest]) -> _Pairing:
    if len(lost) * len(fresh) > MOST_PAIRS:
        return [], lost, fresh
    pairs, left, free = [], [], list(fresh)
    for one in lost:
        best = max(free, key=lambda other: _score_similarity(one.test, other.test), default=None)
        if best and _score_similarity(one.test, best.test) >= 0.7:
            pairs.append((one, best))
            free.remove(best)
        else:
            left.append(one)
    return pairs, left, free


def _score_similarity(one: Test, other: Test) -> float:
    if not one.lines or not other.lines:
        return 0.0
    return 2 * (one.words & other.words).total() / max(1, one.words.total() + other.words.total())
