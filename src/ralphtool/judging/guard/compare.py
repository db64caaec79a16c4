"""Finds tests that check less than before: their assertions were removed or weakened."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ralphtool.judging.guard.model import (
    EXACT,
    MANY,
    MOST_PAIRS,
    PARTIAL,
    UNCONDITIONAL,
    Assertion,
    Body,
    GuardFinding,
    Test,
    shorten,
)
from ralphtool.judging.guard.pairs import ChangedTestFile, LocatedTest

_USUAL_WORDS = {"def", "test", "assert", "self", "it", "expect", "to", "be", "func", "fn", "void", "fun", "t"}
_USUAL_WORDS |= {"==", "!=", "pytest", "mark", "parametrize", "public"}


class Comparison:
    """Compares pairs of tests in the context of the other changes: assertions may have moved."""

    def __init__(
        self,
        files: Sequence[ChangedTestFile],
        pairs: Sequence[tuple[LocatedTest, LocatedTest]],
        fresh: Sequence[LocatedTest],
    ) -> None:
        self.old_beside = {name: test for file in files for name, test in file.old.beside.items()}
        self.new_beside = {name: test for file in files for name, test in file.new.beside.items()}
        self.weights: dict[tuple[int, str, int], int] = {}
        changed = [(old.test, new.test) for old, new in pairs if old.test.lines != new.test.lines]
        self.gains = [_ChangedTest(new, set(new.lines) - set(old.lines)) for old, new in changed]
        self.gains += [_ChangedTest(one.test, set(one.test.lines)) for one in fresh]
        self.bodies = {new.test.rest for _, new in pairs if not new.test.outer_skips}
        self.by_text: dict[str, list[_ChangedTest]] = {}
        for gain in self.gains:
            for check in gain.test.body.checks:
                self.by_text.setdefault(check.text, []).append(gain)

    def compare_pair(self, old: LocatedTest, new: LocatedTest) -> list[GuardFinding]:
        found = _find_new_skips(old, new)
        if old.test.lines == new.test.lines or old.test.body.unknown:
            return found
        if new.test.body.unknown and new.test.lines:
            return [
                GuardFinding(
                    "assertion-weakened",
                    new.file.path,
                    (f"{shorten(new.test.name)}: is now nested too deeply to be read"),
                )
            ]
        if 1 < old.test.cases < MANY and new.test.cases < old.test.cases:
            detail = f"{shorten(new.test.name)}: {old.test.cases} cases, now {new.test.cases}"
            found.append(GuardFinding("test-deleted", new.file.path, detail))
        if found:
            return found  # a skipped or shortened test is already reported; its assertions add nothing
        weaker = self._describe_weaker(old, new)
        return [GuardFinding("assertion-weakened", new.file.path, f"{shorten(new.test.name)}: {why}") for why in weaker]

    def beside(self, file: ChangedTestFile) -> list[GuardFinding]:
        """Functions beside tests that assert less than before, or that skip the tests that use them."""
        found = []
        for name, new in file.new.beside.items():
            old = file.old.beside.get(name)
            if old is None and file.old.text and any("autouse=True" in line for line in new.lines[:3]):
                old = Test("", name, (), Body, {})
            if old is None or old.lines == new.lines or old.body.unknown or new.body.unknown:
                continue
            found += _find_new_skips(LocatedTest(file, old), LocatedTest(file, new))
            weaker = self._describe_weaker(LocatedTest(file, old), LocatedTest(file, new)) if old.body.checks else []
            found += [GuardFinding("assertion-weakened", file.path, f"{shorten(new.name)}: {why}") for why in weaker]
        return found

    def _describe_weaker(self, old: LocatedTest, new: LocatedTest) -> list[str]:
        if new.test.body.empty and not old.test.body.empty:
            return ["its body is empty"]
        before = self._expanded(old.test, self.old_beside)
        after = self._expanded(new.test, self.new_beside)
        gone, come, kept = _compare_assertions(before, after)
        friends = self._find_receivers(old.test, new.test, gone)
        gone = [check for check in gone if not any(id(gain) in friends for gain in self._find_gains(check))]
        there = {check.text for check in after}
        gone = [check for check in gone if check.text not in there]  # it occurred twice
        if len(gone) * len(come) < MOST_PAIRS and (why := _find_widened(gone, come) + _find_loosened(gone, come)):
            return why
        return self._describe_fewer(gone, come, kept, old, new)

    def _describe_fewer(
        self, gone: list[Assertion], come: list[Assertion], kept: int, old: LocatedTest, new: LocatedTest
    ) -> list[str]:
        exact = [check for check in come[:200] if check.strength == EXACT or check.structured]
        wholes = [subject for check in exact for subject in check.subjects]
        left = [check for check in gone if not _is_covered(check, wholes) and not _is_said_again(check, come[:200])]
        left = [check for check in left if check.raises != _PANIC]
        before, after = _sum_weights(left), sum(check.weight for check in come if check.strength)
        old_cases, new_cases = (1 if old.test.cases >= MANY else old.test.cases), new.test.cases
        no_fewer = (kept + after) * new_cases >= (kept + before) * old_cases
        if not left or no_fewer or _has_excuse(old, new):
            return []
        if empty := [check for check in come if not check.strength]:
            return [f"{shorten(left[0].text)} became {shorten(empty[0].text)}, which is always true"]
        return [f"{shorten(left[0].text)} is gone ({kept + before} assertions before, {kept + after} now)"]

    def _find_gains(self, check: Assertion) -> list[_ChangedTest]:
        return self.by_text.get(check.text, [])[:50]

    def _find_receivers(self, old: Test, new: Test, gone: Sequence[Assertion]) -> set[int]:
        """The tests that got at least half of their new lines from this one: these assertions were moved."""
        lines = set(old.lines)
        gains = {id(gain): gain for check in gone for gain in self._find_gains(check) if gain.test is not new}
        return {key for key, gain in gains.items() if 2 * len(gain.lines & lines) >= len(gain.lines)}

    def _expanded(self, test: Test, beside: dict[str, Test]) -> list[Assertion]:
        """Its assertions, and its calls of functions that contain some."""
        calls = [(call, self._weight(call.name, beside, 4) or int(call.asserts)) for call in test.body.calls]
        held = [call.convert(weight * call.weight) for call, weight in calls if weight]
        return [*test.body.checks, *held]

    def _weight(self, name: str, beside: dict[str, Test], depth: int) -> int:
        """The number of assertions in a function, and in those that it calls."""
        test, key = beside.get(name), (id(beside), name, depth)
        if test is None or not depth:
            return 0
        if key not in self.weights:
            own = sum(check.weight for check in test.body.checks if check.strength)
            deeper = sum(call.weight * self._weight(call.name, beside, depth - 1) for call in test.body.calls[:200])
            self.weights[key] = min(own + deeper, MANY)
        return self.weights[key]

    def find_unexplained(self, lost: Sequence[LocatedTest]) -> list[LocatedTest]:
        """The tests that are really gone: neither merged into others nor turned into cases of one."""
        left = [one for one in lost if not self._is_merged(one.test) and not self._is_a_copy(one.test)]
        if len(left) * len(self.gains) > MOST_PAIRS:
            return left
        room = {id(gain.test): gain.rounds for gain in self.gains}
        return [one for one in left if not self._is_a_case(one.test, room)]

    def _is_a_copy(self, test: Test) -> bool:
        """Whether a remaining test does the same."""
        return len(test.rest) > 1 and test.rest in self.bodies

    def _is_merged(self, test: Test) -> bool:
        checks = [check.text for check in test.body.checks]
        if not checks or any(text not in self.by_text for text in checks):
            return False
        gains = {id(gain): gain for text in checks for gain in self.by_text[text][:50]}.values()
        lines = set(test.lines[1:])
        there = {line for gain in gains if gain.lines & lines for line in lines.intersection(gain.test.lines)}
        return len(there) >= 0.75 * len(lines)

    def _is_a_case(self, test: Test, room: dict[int, int]) -> bool:
        words = set(test.words) - _USUAL_WORDS
        for gain in self.gains:
            if room[id(gain.test)] > 0 and 2 * len(words & set(gain.test.words)) >= len(words) > 0:
                room[id(gain.test)] -= 1
                return True
        return False


class _ChangedTest(Struct, eq=False):
    """A test that is new or has changed, and its new lines."""

    test: Test
    lines: set[str]

    @property
    def rounds(self) -> int:
        """The number of tests that it may have absorbed as cases."""
        weights = [check.weight for check in self.test.body.checks]
        rounds = max([self.test.cases, *weights, MANY if self.test.body.loops else 1])
        return rounds if rounds > 1 else 0


def _compare_assertions(
    before: list[Assertion], after: list[Assertion]
) -> tuple[list[Assertion], list[Assertion], int]:
    """The removed assertions, the added ones, and the weight of those that stayed."""
    old, new = Counter(check.text for check in before), Counter(check.text for check in after)
    kept = old & new
    weights = {check.text: check.weight for check in after}
    return (
        _remove_kept(before, kept),
        _remove_kept(after, kept),
        sum(weights[text] * count for text, count in kept.items()),
    )


def _remove_kept(checks: list[Assertion], kept: Counter[str]) -> list[Assertion]:
    left = kept.copy()
    found = []
    for check in checks:
        if left[check.text] > 0:
            left[check.text] -= 1
        else:
            found.append(check)
    return found


def _sum_weights(checks: Iterable[Assertion]) -> int:
    """Loops of unknown length count little before and much after: the benefit of the doubt."""
    return sum(check.weight if check.weight < MANY else 1 for check in checks if check.strength)


def _has_excuse(old: LocatedTest, new: LocatedTest) -> bool:
    return new.test.body.loops and not old.test.body.loops


def _is_covered(check: Assertion, wholes: Sequence[str]) -> bool:
    """Whether something stronger now checks it: `a == A(1, 2)` includes `a.x == 1`."""
    about = (*check.subjects, *check.parts)
    if check.strength < EXACT and any(whole in about for whole in wholes):
        return True
    return any(
        subject.startswith((f"{whole}.", f"{whole}[")) or subject == f"len({whole})"
        for whole in wholes
        for subject in about
    )


_WORD = re.compile(r"\w+")
_SAYING = re.compile(
    r"(?:assert|expect|should|must|to|be|is|eq|eql|equals?|same|that|t|this|self|it|not|true|ok|a|an|has?|have|check|require)"
    r"|(?:assert|expect|should|must|to|is|be|has|have)(?:_\w+|[A-Z]\w*)"
)


def _is_said_again(check: Assertion, come: Sequence[Assertion]) -> bool:
    """Whether one that is not weaker uses all its names: the same in another form, or several in one."""
    named = _list_named(check)
    return bool(named) and any(other.strength >= check.strength and named <= _list_named(other) for other in come)


def _list_named(check: Assertion) -> set[str]:
    return {word for word in _WORD.findall(check.text) if not _SAYING.fullmatch(word)}


def _find_loosened(gone: Sequence[Assertion], come: Sequence[Assertion]) -> list[str]:
    found = []
    for check in gone:
        if check.raises is None and (looser := _find_looser(check, come)):
            always = ", which is always true" if not looser.strength else ""
            found.append(f"{shorten(check.text)} became {shorten(looser.text)}{always}")
    return found


def _find_looser(check: Assertion, come: Sequence[Assertion]) -> Assertion | None:
    """The strongest new assertion about the same subject, if even that is weaker."""
    best: tuple[int, Assertion] | None = None
    for other in come:
        strength = max((_measure_strength(subject, other) for subject in check.subjects), default=-1)
        if strength >= 0 and (best is None or strength > best[0]):
            best = strength, other
    return best[1] if best and best[0] < check.strength else None


def _measure_strength(subject: str, check: Assertion) -> int:
    if subject in check.subjects:
        return check.strength
    if any(other.startswith((f"{subject}.", f"{subject}[")) for other in check.subjects):
        return check.strength
    return min(PARTIAL, check.strength) if subject in check.parts else -1


# From narrow to wide.
_WIDE = ("RuntimeException", "StandardError", "Error", "exception", "Exception", "BaseException", "Throwable")


_PANIC = ("panic",)


def _find_widened(gone: Sequence[Assertion], come: Sequence[Assertion]) -> list[str]:
    # A test that had to panic and no longer may is not weaker: it checks the opposite.
    inverted = not any(check.raises == _PANIC for check in come)
    old = [check for check in gone if check.raises is not None and not (inverted and check.raises == _PANIC)]
    new = [check for check in come if check.raises is not None]
    pairs = list(zip(old, new, strict=False))
    found = [f"{shorten(one.text)} became {shorten(other.text)}" for one, other in pairs if _is_wider(other, one)]
    exact = _count_exact(come) - _count_exact(gone)
    if not found and len(old) - len(new) > max(0, exact):
        found.append(f"{shorten(old[len(new)].text)} is gone")
    return found


def _count_exact(checks: Sequence[Assertion]) -> int:
    return sum(check.weight for check in checks if check.raises is None and check.strength == EXACT)


def _is_wider(new: Assertion, old: Assertion) -> bool:
    before, after = set(old.raises or ()), set(new.raises or ())
    if before == after:
        return old.matched and not new.matched
    if not after or before < after:
        return bool(before)
    return any(_is_superclass(wide, narrow) for wide in after - before for narrow in before)


def _is_superclass(wide: str, narrow: str) -> bool:
    if wide in _WIDE:
        return narrow not in _WIDE or _WIDE.index(wide) > _WIDE.index(narrow)
    classes = (getattr(builtins, narrow, None), getattr(builtins, wide, None))
    return all(isinstance(one, type) for one in classes) and issubclass(*classes)  # type: ignore[arg-type]


def _find_new_skips(old: LocatedTest, new: LocatedTest) -> list[GuardFinding]:
    if old.test.lines == new.test.lines and old.test.outer_skips == new.test.outer_skips:
        return []
    before, after = old.test.skips, new.test.skips
    if any(key in UNCONDITIONAL for key in before):
        return []  # it never ran
    return [GuardFinding("test-skipped", new.file.path, shown) for key, shown in after.items() if key not in before]
