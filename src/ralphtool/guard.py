"""The diff guard: what an attempt did to the tests, to what runs them, and to the spec.

Everything here is a pure function: changed files in, findings out. Nothing is run and nothing is read from disk.
Tests of before are matched with tests of after, first by name, then by what is in them, and each pair is compared:
so that moving, renaming, merging, splitting and parametrizing are no findings, and gutting is one.
Python is read as a syntax tree, other languages as text whose comments and strings are told apart. What is too
long or too deep for that is read coarsely, by names and counts. The page for users is docs/guard.md.

It is one long module because its parts share one model (`_Check`, `_Test`, `_Reading`) that is nobody else's.
"""

from __future__ import annotations

import ast
import bisect
import builtins
import configparser
import json
import re
import shlex
import tomllib
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from ralphtool.specs import Story

Kind = Literal[
    "test-deleted",
    "test-skipped",
    "assertion-weakened",
    "test-config",
    "spec-edited",
    "passes-flipped",
    "other-story-ticked",
    "unticked",
    "ralph-touched",
    "git-touched",
]

MANY = 1000  # cases or rounds whose number the text does not tell
_LONGEST = 500_000  # characters; what is longer is read coarsely
_MOST_PAIRS = 20_000  # beyond this, everything is no longer compared with everything

ALWAYS_TRUE, LOOSE, PARTIAL, EXACT = range(4)


class Change(Struct, frozen=True):
    """One file. `old` or `new` is None when it was not there or is gone; `old_path` is set for a rename."""

    path: str
    old: bytes | None
    new: bytes | None
    old_path: str | None = None


class Finding(Struct, frozen=True):
    """Something that an honest attempt has no reason to do; `detail` is one line for people."""

    kind: Kind
    path: str
    detail: str


def look(changes: Sequence[Change]) -> list[Finding]:
    """What was done to tests and to the configuration of tests."""
    found = [*_look_at_tests([change for change in changes if _holds_tests(change)]), *_look_at_configs(changes)]
    return list(dict.fromkeys(Finding(one.kind, one.path, _short(one.detail, 300)) for one in found))


def may_change_tests(story: Story) -> bool:
    """Whether a story says that its tests may go or get weaker."""
    said = (story.title, story.description or "", *(task.text for task in story.tasks))
    return any("(may change tests)" in " ".join(text.casefold().split()) for text in said)


# --- which files ------------------------------------------------------------------------------------

_TEST_FOLDERS = {"test", "tests", "__tests__", "spec", "specs", "e2e", "androidtest", "integration-tests"}
_SNAKE = r"(?:tests?|tests?_.*|.*[_.-](?:tests?|unittests?|spec))"
_CAMEL = r"(?:Test[A-Z0-9_].*|.*(?:Tests?|TestCase|[a-z]IT|Spec))"
_BY_NAME = {
    "py": re.compile(r"tests?|test_.*|.*_tests?"),
    "js": re.compile(r".*[._-](?:test|spec|e2e|cy)|tests?"),
    "go": re.compile(r".*_test"),
    "rs": re.compile(_SNAKE),
    "java": re.compile(_CAMEL),
    "rb": re.compile(r".*_(?:spec|test)|test_.*"),
    "cs": re.compile(_CAMEL),
    "php": re.compile(_CAMEL),
    "swift": re.compile(_CAMEL),
    "exs": re.compile(r".*_test"),
    "cpp": re.compile(f"{_SNAKE}|{_CAMEL}"),
}
_LANGUAGE_OF = {
    **{name: name for name in _BY_NAME},
    **dict.fromkeys(("jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"), "js"),
    **dict.fromkeys(("kt", "kts"), "java"),
    **dict.fromkeys(("c", "cc", "cxx", "c++", "h", "hh", "hpp", "hxx"), "cpp"),
    "ex": "exs",
}
# Elsewhere a folder is enough; these are run only under the right name, so losing the name is losing the tests.
_NAME_DECIDES = {"py", "go", "rb", "exs"}


def is_test(path: str) -> bool:
    """Whether a file is a test, or belongs to tests, by its name or its folder."""
    return _is_named_test(path) or (_language(path) not in ("", "go") and _in_test_folder(path))


def wants_content(path: str) -> bool:
    """Whether `look` needs the bytes of a file: other files may come with b""."""
    return is_test(path) or _language(path) == "rs" or _config_reader(path) is not None


def _language(path: str) -> str:
    _, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return _LANGUAGE_OF.get(suffix.lower(), "") if dot else ""


def _is_named_test(path: str) -> bool:
    stem = path.rpartition("/")[2].rpartition(".")[0]
    language = _language(path)
    return bool(language) and len(stem) < 256 and _BY_NAME[language].fullmatch(stem) is not None


def _in_test_folder(path: str) -> bool:
    folders = path.split("/")[:-1]
    return any(one.lower() in _TEST_FOLDERS or one.endswith(("Tests", ".Test", "_tests")) for one in folders)


def _is_run(path: str) -> bool:
    language = _language(path)
    if language == "rs":
        return True  # tests stand anywhere in Rust
    return _is_named_test(path) or (language not in _NAME_DECIDES and is_test(path))


def _holds_tests(change: Change) -> bool:
    paths = (change.path, change.old_path or change.path)
    return any(is_test(path) or _language(path) == "rs" or path.endswith("conftest.py") for path in paths)


# --- the model --------------------------------------------------------------------------------------


class _Check(Struct, frozen=True):
    """One assertion. Equal texts are the same assertion; `parts` are what it only says something partial about."""

    text: str
    subjects: tuple[str, ...]
    strength: int
    weight: int = 1
    parts: tuple[str, ...] = ()
    raises: tuple[str, ...] | None = None
    matched: bool = False


class _CallSite(Struct, frozen=True):
    """A call of a function that may hold assertions."""

    name: str
    node: ast.AST
    weight: int
    alone: bool = False
    """Whether it is a statement of its own: what `check_it(x)` gives is not used, so it is there to fail."""


class _Body(Struct):
    """What a test does. It is `unknown` where it could not be read."""

    checks: list[_Check] = []
    calls: list[_CallSite] = []
    skips: dict[str, str] = {}
    empty: bool = False
    loops: bool = False
    unknown: bool = False


class _Test:
    """A test, or a function beside tests. Its body is only read if somebody asks: most tests do not change."""

    def __init__(
        self,
        owner: str,
        bare: str,
        lines: tuple[str, ...],
        read: Callable[[], _Body],
        skips: dict[str, str],
        cases: int = 1,
    ) -> None:
        self.owner = owner
        self.bare = bare
        self.name = f"{owner}{bare}"
        self.lines = lines
        self.outer_skips = skips
        self.cases = cases
        self._read = read

    @cached_property
    def body(self) -> _Body:
        try:
            return self._read()
        except (RecursionError, MemoryError):
            return _Body(unknown=True)

    @property
    def skips(self) -> dict[str, str]:
        return {**self.outer_skips, **self.body.skips}

    @cached_property
    def words(self) -> Counter[str]:
        text = " ".join((self.bare, *self.lines[:200]))[:20_000]
        return Counter(word.lower() for word in _WORDS.findall(text))


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[=!<>]=")
_USUAL_WORDS = {
    "def",
    "test",
    "assert",
    "self",
    "it",
    "expect",
    "to",
    "be",
    "func",
    "fn",
    "void",
    "fun",
    "t",
    "==",
    "!=",
}
_USUAL_WORDS |= {"pytest", "mark", "parametrize", "public"}


class _Reading(Struct):
    """A file of tests. `coarse` is its number of assertions and its skips, where bodies could not be told apart."""

    text: str = ""
    tests: dict[str, _Test] = {}
    counts: dict[str, int] = {}
    beside: dict[str, _Test] = {}
    """Functions that are no tests, by their names."""
    outside: int = 0
    """Assertions outside of tests, where functions are not told apart."""
    focused: tuple[str, ...] = ()
    coarse: tuple[int, Counter[str]] | None = None


def _add_skip(skips: dict[str, str], key: str, shown: str) -> None:
    """The second of a kind is one more: the first may have had a condition."""
    number = 1
    while f"{key} {number}" in skips and number < 20:
        number += 1
    skips[f"{key} {number}"] = shown


def _unknown() -> _Body:
    return _Body(unknown=True)


def _short(text: str, limit: int = 100) -> str:
    line = " ".join(text[: 4 * limit].split())
    shown = "".join(char if char.isprintable() else "?" for char in line)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


# --- tests of before and of after -------------------------------------------------------------------


class _File(Struct):
    """A changed file of tests, as it was and as it is."""

    path: str
    old: _Reading
    new: _Reading
    gone: bool = False
    unparsable: bool = False


class _Placed(Struct, frozen=True):
    """A test and the file that it is in."""

    file: _File
    test: _Test


def _look_at_tests(changes: Sequence[Change]) -> list[Finding]:
    files = [_read_both(change) for change in changes]
    told = [
        Finding("test-deleted", file.path, "no longer parses: none of its tests is run")
        for file in files
        if file.unparsable
    ]
    files = [file for file in files if not file.unparsable]
    pairs, lost, fresh = _match(files)
    compared = _Comparison(files, pairs, fresh)
    there = {file.new.text for file in files}
    for file in files:
        told += (
            _focused(file) + _unreadable(file, there) + (_coarsely(file) if file.old.coarse else compared.beside(file))
        )
    for old, new in pairs:
        told += compared.of_pair(old, new)
    return told + _missing(compared.without_excuse(lost))


def _read_both(change: Change) -> _File:
    """Reads both sides the same way, so that they can be compared."""
    before, after = _text(change.old), _text(change.new)
    old_path = change.old_path or change.path
    coarse = max(len(before), len(after)) > _LONGEST
    old, new = (_read(old_path, before, coarse), _read(change.path, after, coarse))
    if old and change.old is not None and new is None and _has_syntax_error(after):
        return _File(change.path, old, _Reading(), unparsable=True)
    if old is None or new is None or bool(old.coarse) != bool(new.coarse):
        old, new = _read_coarsely(old_path, before), _read_coarsely(change.path, after)
    if not _is_run(change.path) and (change.old is None or _is_run(old_path)):
        new.tests = {}
    return _File(change.path, old, new, gone=change.new is None)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _read(path: str, text: str, coarse: bool) -> _Reading | None:
    """None for Python that can't be parsed."""
    if coarse:
        return _read_coarsely(path, text)
    language = _language(path)
    if language == "py":
        return _read_python(text)
    return _read_text(text, _LANGUAGES[language]) if language else _Reading(text=text)


def _match(files: Sequence[_File]) -> tuple[list[tuple[_Placed, _Placed]], list[_Placed], list[_Placed]]:
    """Pairs of before and after, then what is left over of each."""
    lost = [_Placed(file, test) for file in files for test in file.old.tests.values()]
    fresh = [_Placed(file, test) for file in files for test in file.new.tests.values()]
    pairs: list[tuple[_Placed, _Placed]] = []
    keys: tuple[Callable[[_Placed], object], ...] = (
        lambda one: (one.file.path, one.test.name),
        lambda one: (one.file.path, one.test.bare),
        lambda one: one.test.name,
        lambda one: one.test.bare,
    )
    for key in keys:
        found, lost, fresh = _match_by(key, lost, fresh)
        pairs += found
    found, lost, fresh = _match_renamed(lost, fresh)
    return pairs + found, lost, fresh


def _match_by(
    key: Callable[[_Placed], object], lost: list[_Placed], fresh: list[_Placed]
) -> tuple[list[tuple[_Placed, _Placed]], list[_Placed], list[_Placed]]:
    waiting: dict[object, list[_Placed]] = {}
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


def _match_renamed(
    lost: list[_Placed], fresh: list[_Placed]
) -> tuple[list[tuple[_Placed, _Placed]], list[_Placed], list[_Placed]]:
    if len(lost) * len(fresh) > _MOST_PAIRS:
        return [], lost, fresh
    pairs, left, free = [], [], list(fresh)
    for one in lost:
        best = max(free, key=lambda other: _likeness(one.test, other.test), default=None)
        if best and _likeness(one.test, best.test) >= 0.7:
            pairs.append((one, best))
            free.remove(best)
        else:
            left.append(one)
    return pairs, left, free


def _likeness(one: _Test, other: _Test) -> float:
    if not one.lines or not other.lines:
        return 0.0
    return 2 * (one.words & other.words).total() / max(1, one.words.total() + other.words.total())


class _Comparison:
    """Compares pairs of tests, knowing what else changed: assertions may have moved."""

    def __init__(
        self, files: Sequence[_File], pairs: Sequence[tuple[_Placed, _Placed]], fresh: Sequence[_Placed]
    ) -> None:
        self.old_beside = {name: test for file in files for name, test in file.old.beside.items()}
        self.new_beside = {name: test for file in files for name, test in file.new.beside.items()}
        self.weights: dict[tuple[int, str, int], int] = {}
        changed = [(old.test, new.test) for old, new in pairs if old.test.lines != new.test.lines]
        self.gains = [_Gain(new, set(new.lines) - set(old.lines)) for old, new in changed]
        self.gains += [_Gain(one.test, set(one.test.lines)) for one in fresh]
        self.by_text: dict[str, list[_Gain]] = {}
        for gain in self.gains:
            for check in gain.test.body.checks:
                self.by_text.setdefault(check.text, []).append(gain)

    def of_pair(self, old: _Placed, new: _Placed) -> list[Finding]:
        found = _new_skips(old, new)
        if old.test.lines == new.test.lines or old.test.body.unknown:
            return found
        if new.test.body.unknown and new.test.lines:
            return [
                Finding("assertion-weakened", new.file.path, f"{_short(new.test.name)}: is too deep to be read now")
            ]
        if 1 < old.test.cases < MANY and new.test.cases < old.test.cases:
            detail = f"{_short(new.test.name)}: {old.test.cases} cases, now {new.test.cases}"
            found.append(Finding("test-deleted", new.file.path, detail))
        if found:
            return found  # a test that is skipped or cut has its name on the list; its assertions add nothing
        weaker = self._weaker(old, new)
        return [Finding("assertion-weakened", new.file.path, f"{_short(new.test.name)}: {why}") for why in weaker]

    def beside(self, file: _File) -> list[Finding]:
        """Functions beside tests that assert less than they did, or that skip what asks for them."""
        found = []
        for name, new in file.new.beside.items():
            old = file.old.beside.get(name)
            if old is None and file.old.text and any("autouse=True" in line for line in new.lines[:3]):
                old = _Test("", name, (), _Body, {})
            if old is None or old.lines == new.lines or old.body.unknown or new.body.unknown:
                continue
            found += _new_skips(_Placed(file, old), _Placed(file, new))
            weaker = self._weaker(_Placed(file, old), _Placed(file, new)) if old.body.checks else []
            found += [Finding("assertion-weakened", file.path, f"{_short(new.name)}: {why}") for why in weaker]
        return found

    def _weaker(self, old: _Placed, new: _Placed) -> list[str]:
        if new.test.body.empty and not old.test.body.empty:
            return ["its body is empty"]
        before = self._expanded(old.test, self.old_beside)
        after = self._expanded(new.test, self.new_beside)
        gone, come, kept = _difference(before, after)
        friends = self._friends(old.test, new.test, gone)
        gone = [check for check in gone if not any(id(gain) in friends for gain in self._gains(check))]
        if len(gone) * len(come) < _MOST_PAIRS and (why := _widened(gone, come) + _loosened(gone, come)):
            return why
        return self._fewer(gone, come, kept, old, new)

    def _fewer(self, gone: list[_Check], come: list[_Check], kept: int, old: _Placed, new: _Placed) -> list[str]:
        wholes = [subject for check in come[:200] if check.strength == EXACT for subject in check.subjects]
        left = [check for check in gone if not _is_covered(check, wholes)]
        before, after = _total(left), sum(check.weight for check in come if check.strength)
        old_cases, new_cases = (1 if old.test.cases >= MANY else old.test.cases), new.test.cases
        if (
            not left
            or (kept + after) * new_cases >= (kept + before) * old_cases
            or _has_excuse(before - after, old, new)
        ):
            return []
        if empty := [check for check in come if not check.strength]:
            return [f"{_short(left[0].text)} became {_short(empty[0].text)}, which is always true"]
        return [f"{_short(left[0].text)} is gone ({kept + before} assertions before, {kept + after} now)"]

    def _gains(self, check: _Check) -> list[_Gain]:
        return self.by_text.get(check.text, [])[:50]

    def _friends(self, old: _Test, new: _Test, gone: Sequence[_Check]) -> set[int]:
        """The tests that took most of what is new in them from this one: what they assert has moved."""
        lines = set(old.lines)
        gains = {id(gain): gain for check in gone for gain in self._gains(check) if gain.test is not new}
        return {key for key, gain in gains.items() if 2 * len(gain.lines & lines) >= len(gain.lines)}

    def _expanded(self, test: _Test, beside: dict[str, _Test]) -> list[_Check]:
        """Its assertions, and its calls of functions that hold some."""
        found = list(test.body.checks)
        for call in test.body.calls:
            named = call.alone and _ASSERTING.match(call.name)
            weight = self._weight(call.name, beside, 4) or (1 if named else 0)
            if weight:
                text = ast.unparse(call.node)
                found.append(_Check(text, _arguments_of(call.node), EXACT, weight * call.weight))
        return found

    def _weight(self, name: str, beside: dict[str, _Test], depth: int) -> int:
        """The assertions in a function, and in those that it calls."""
        test, key = beside.get(name), (id(beside), name, depth)
        if test is None or not depth:
            return 0
        if key not in self.weights:
            own = sum(check.weight for check in test.body.checks if check.strength)
            deeper = sum(call.weight * self._weight(call.name, beside, depth - 1) for call in test.body.calls[:200])
            self.weights[key] = min(own + deeper, MANY)
        return self.weights[key]

    def without_excuse(self, lost: Sequence[_Placed]) -> list[_Placed]:
        """The tests that are nowhere: neither merged into others nor made cases of one."""
        left = [one for one in lost if not self._is_merged(one.test)]
        if len(left) * len(self.gains) > _MOST_PAIRS:
            return left
        room = {id(gain.test): gain.rounds for gain in self.gains}
        return [one for one in left if not self._is_a_case(one.test, room)]

    def _is_merged(self, test: _Test) -> bool:
        checks = [check.text for check in test.body.checks]
        if not checks or any(text not in self.by_text for text in checks):
            return False
        gains = {id(gain): gain for text in checks for gain in self.by_text[text][:50]}.values()
        lines = set(test.lines[1:])
        there = {line for gain in gains for line in gain.lines & lines}
        return len(there) >= 0.75 * len(lines)

    def _is_a_case(self, test: _Test, room: dict[int, int]) -> bool:
        words = set(test.words) - _USUAL_WORDS
        for gain in self.gains:
            if room[id(gain.test)] > 0 and 2 * len(words & set(gain.test.words)) >= len(words) > 0:
                room[id(gain.test)] -= 1
                return True
        return False


class _Gain:
    """A test that is new or has changed, and its new lines."""

    def __init__(self, test: _Test, lines: set[str]) -> None:
        self.test = test
        self.lines = lines

    @property
    def rounds(self) -> int:
        """How many tests it may have taken in as cases."""
        weights = [check.weight for check in self.test.body.checks]
        rounds = max([self.test.cases, *weights, MANY if self.test.body.loops else 1])
        return rounds if rounds > 1 else 0


_ASSERTING = re.compile(r"_?(?:assert|check(?!_output|_call)|verify|expect|should)(?:_|[A-Z]|$)")


def _difference(before: list[_Check], after: list[_Check]) -> tuple[list[_Check], list[_Check], int]:
    """What went, what came, and the weight of what stayed."""
    old, new = Counter(check.text for check in before), Counter(check.text for check in after)
    kept = old & new
    weights = {check.text: check.weight for check in after}
    return _beyond(before, kept), _beyond(after, kept), sum(weights[text] * count for text, count in kept.items())


def _beyond(checks: list[_Check], kept: Counter[str]) -> list[_Check]:
    left = kept.copy()
    found = []
    for check in checks:
        if left[check.text] > 0:
            left[check.text] -= 1
        else:
            found.append(check)
    return found


def _total(checks: Iterable[_Check]) -> int:
    """Rounds that nobody can count weigh little before and much after: the benefit of the doubt."""
    return sum(check.weight if check.weight < MANY else 1 for check in checks if check.strength)


def _has_excuse(loss: int, old: _Placed, new: _Placed) -> bool:
    looped = new.test.body.loops and not old.test.body.loops
    return looped or new.file.new.outside - old.file.old.outside >= loss > 0


def _is_covered(check: _Check, wholes: Sequence[str]) -> bool:
    """Whether something stronger says it now: `a == A(1, 2)` says what `a.x == 1` said."""
    about = (*check.subjects, *check.parts)
    if check.strength < EXACT and any(whole in about for whole in wholes):
        return True
    return any(
        subject.startswith((f"{whole}.", f"{whole}[")) or subject == f"len({whole})"
        for whole in wholes
        for subject in about
    )


def _loosened(gone: Sequence[_Check], come: Sequence[_Check]) -> list[str]:
    found = []
    for check in gone:
        if check.raises is None and (looser := _looser(check, come)):
            always = ", which is always true" if not looser.strength else ""
            found.append(f"{_short(check.text)} became {_short(looser.text)}{always}")
    return found


def _looser(check: _Check, come: Sequence[_Check]) -> _Check | None:
    """What is said of the same subject now, if all of it is weaker."""
    best: tuple[int, _Check] | None = None
    for other in come:
        strength = max((_strength_about(subject, other) for subject in check.subjects), default=-1)
        if strength >= 0 and (best is None or strength > best[0]):
            best = strength, other
    return best[1] if best and best[0] < check.strength else None


def _strength_about(subject: str, check: _Check) -> int:
    if subject in check.subjects:
        return check.strength
    if any(other.startswith((f"{subject}.", f"{subject}[")) for other in check.subjects):
        return check.strength
    return min(PARTIAL, check.strength) if subject in check.parts else -1


# Wider ones come later.
_WIDE = ("RuntimeException", "StandardError", "Error", "exception", "Exception", "BaseException", "Throwable")


def _widened(gone: Sequence[_Check], come: Sequence[_Check]) -> list[str]:
    old = [check for check in gone if check.raises is not None]
    new = [check for check in come if check.raises is not None]
    pairs = list(zip(old, new, strict=False))
    found = [f"{_short(one.text)} became {_short(other.text)}" for one, other in pairs if _is_wider(other, one)]
    exact = _exact(come) - _exact(gone)
    if not found and len(old) - len(new) > max(0, exact):
        found.append(f"{_short(old[len(new)].text)} is gone")
    return found


def _exact(checks: Sequence[_Check]) -> int:
    return sum(check.weight for check in checks if check.raises is None and check.strength == EXACT)


def _is_wider(new: _Check, old: _Check) -> bool:
    before, after = set(old.raises or ()), set(new.raises or ())
    if before == after:
        return old.matched and not new.matched
    if not after or before < after:
        return bool(before)
    return any(_is_above(wide, narrow) for wide in after - before for narrow in before)


def _is_above(wide: str, narrow: str) -> bool:
    if wide in _WIDE:
        return narrow not in _WIDE or _WIDE.index(wide) > _WIDE.index(narrow)
    classes = (getattr(builtins, narrow, None), getattr(builtins, wide, None))
    return all(isinstance(one, type) for one in classes) and issubclass(*classes)  # type: ignore[arg-type]


def _new_skips(old: _Placed, new: _Placed) -> list[Finding]:
    if old.test.lines == new.test.lines and old.test.outer_skips == new.test.outer_skips:
        return []
    before, after = old.test.skips, new.test.skips
    if any(key in _UNCONDITIONAL for key in before):
        return []  # it was never run
    return [Finding("test-skipped", new.file.path, shown) for key, shown in after.items() if key not in before]


def _focused(file: _File) -> list[Finding]:
    more = Counter(file.new.focused) - Counter(file.old.focused)
    if not file.old.tests:
        return []
    return [Finding("test-skipped", file.path, f"{_short(one)}: all other tests are left out") for one in more]


def _unreadable(file: _File, there: set[str]) -> list[Finding]:
    """A test file is one by its name, even if none of its tests is written in a way that we know."""
    if not file.gone or file.old.tests or not _is_named_test(file.path):
        return []
    if not file.old.text.strip() or file.old.text in there:
        return []
    return [Finding("test-deleted", file.path, "the file is gone")]


def _missing(lost: Sequence[_Placed]) -> list[Finding]:
    by_file: dict[str, list[_Placed]] = {}
    for one in lost:
        by_file.setdefault(one.file.path, []).append(one)
    return [finding for path, placed in by_file.items() for finding in _missing_in(path, placed)]


def _missing_in(path: str, placed: Sequence[_Placed]) -> list[Finding]:
    file = placed[0].file
    live = {test.bare for test in file.new.tests.values()}
    words = set(re.findall(r"\w+", file.new.text[:_LONGEST])) - live
    off = {id(one) for one in placed[:50] if _is_still_text(one, words)}
    if file.gone or not file.new.tests:
        what = "is gone" if file.gone else "holds no tests any more"
        names = ", ".join([_short(one.test.name, 60) for one in placed[:5]] + ["…"] * (len(placed) > 5))
        kind: Kind = "test-skipped" if len(off) == len(placed) else "test-deleted"
        return [Finding(kind, path, f"the file {what}: {len(placed)} test{'s' * (len(placed) > 1)} ({names})")]
    return [
        Finding("test-skipped", path, f"{_short(one.test.name)} is there as text, but is no test any more")
        if id(one) in off
        else Finding("test-deleted", path, f"{_short(one.test.name)} is gone")
        for one in placed[:50]
    ]


def _is_still_text(one: _Placed, words: set[str]) -> bool:
    """Commented out, inside a string, behind `if False`, or under a name that nobody runs."""
    name = one.test.bare
    last = name.rpartition(".")[2]
    return any(word.endswith(last) for word in words) if last.isidentifier() else name in one.file.new.text


# --- Python -----------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SKIP_MARK = re.compile(r"(?:.*\.)?(?:skip|skip[_A-Zi]\w*|xfail\w*|expectedFailure)\Z")
_SKIP_CALL = re.compile(r"(?:.*\.)?(?:skipTest|importorskip|SkipTest|Skipped)\Z|pytest\.(?:skip|xfail|exit)\Z|skip\Z")
_UNCONDITIONAL = frozenset(("skip", "return", "if False", "__test__"))


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():  # a test with "\d" in it is not for us to complain about
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _has_syntax_error(text: str) -> bool:
    """Whether that is what keeps it from being parsed, rather than its depth."""
    try:
        _parse(text)
    except (SyntaxError, ValueError):
        return True
    except (RecursionError, MemoryError):
        return False
    return False


def _read_python(text: str) -> _Reading | None:
    try:
        reader = _PythonReader(text)
        reader.scope(reader.tree.body, "", {}, 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return reader.reading


class _PythonReader:
    """Finds the tests of a module, and the functions beside them."""

    def __init__(self, text: str) -> None:
        self.tree = _parse(text)
        self.lines = [line.strip() for line in text.split("\n")]
        self.reading = _Reading(text=text)
        self.tables: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.tables[node.targets[0].id] = node.value

    def scope(self, body: Sequence[ast.stmt], owner: str, skips: dict[str, str], cases: int) -> None:
        skips = {**skips, **_scope_skips(body, owner or "the file", is_module=not owner)}
        for node in body:
            if isinstance(node, _Function):
                self._function(node, owner, skips, cases)
            elif isinstance(node, ast.ClassDef):
                self._class(node, owner, skips, cases)
            elif isinstance(node, ast.If):
                self._condition(node, owner, skips, cases)
            elif isinstance(node, ast.Try | ast.TryStar | ast.With):
                for block in _blocks(node):
                    self.scope(block, owner, skips, cases)
            else:
                self._undo(node, owner)

    def _function(self, node: _Function, owner: str, skips: dict[str, str], cases: int) -> None:
        name = f"{owner}{node.name}"
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        lines = self._lines(first, node.end_lineno) + self._table_lines(node)
        skips = {**skips, **_decorator_skips(node.decorator_list, name)}
        test = _Test(
            owner, node.name, lines, lambda: _python_body(node, name), skips, cases * _cases(node, self.tables)
        )
        if node.name.startswith("test") and not _is_fixture(node):
            self.reading.tests[name] = test
        else:
            self.reading.beside[node.name] = test

    def _lines(self, first: int, last: int | None) -> tuple[str, ...]:
        return tuple(line for line in self.lines[first - 1 : last] if line)

    def _table_lines(self, node: _Function) -> tuple[str, ...]:
        """The tables that its marks name are part of a test: cases may go from there."""
        names = [one.id for mark in node.decorator_list for one in ast.walk(mark) if isinstance(one, ast.Name)]
        tables = [self.tables[name] for name in names if name in self.tables]
        return tuple(line for table in tables[:3] for line in self._lines(table.lineno, table.end_lineno)[:100])

    def _class(self, node: ast.ClassDef, owner: str, skips: dict[str, str], cases: int) -> None:
        name = f"{owner}{node.name}"
        skips = {**skips, **_decorator_skips(node.decorator_list, name)}
        if not node.bases and not node.name.startswith("Test"):
            # It may be there to be inherited, so this only says something if it was otherwise before.
            skips["collected"] = f"{name}: nobody collects a class of this name"
        self.scope(node.body, f"{name}.", skips, cases * _cases(node, self.tables))

    def _condition(self, node: ast.If, owner: str, skips: dict[str, str], cases: int) -> None:
        known = _constant(node.test)
        shown = _short(ast.unparse(node.test))
        if known is None or known:
            more = {} if known else {f"if {shown}": f"{owner or 'tests '}only if {shown}"}
            self.scope(node.body, owner, {**skips, **more}, cases)
        if not known:
            self.scope(node.orelse, owner, skips, cases)

    def _undo(self, node: ast.stmt, owner: str) -> None:
        """`del test_x`, `test_x = None`, `test_x.__test__ = False`."""
        targets = node.targets if isinstance(node, ast.Delete | ast.Assign) else []
        for target in targets:
            name = owner + ast.unparse(target).removesuffix(".__test__")
            test = self.reading.tests.get(name)
            if test is None:
                continue
            marks = _marks(node.value, name) if isinstance(node, ast.Assign) else {}
            if marks:
                test.outer_skips.update(marks)
            else:
                del self.reading.tests[name]


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(node, field, [])
    for one in getattr(node, "handlers", []):
        yield one.body


def _constant(node: ast.expr) -> bool | None:
    """Whether an expression is always true or always false, if it is either."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        known = _constant(node.operand)
        return None if known is None else not known
    if isinstance(node, ast.BoolOp):
        values = [_constant(value) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    return True if isinstance(node, ast.Tuple | ast.List) and node.elts else None


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _is_fixture(node: _Function) -> bool:
    marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
    return any(_dotted(mark).rpartition(".")[2] == "fixture" for mark in marks)


def _scope_skips(body: Sequence[ast.stmt], owner: str, *, is_module: bool) -> dict[str, str]:
    """What switches off a whole module or class."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "pytestmark" in names:
                found |= _marks(node.value, owner.rstrip("."))
            if "__test__" in names and _constant(node.value) is False:
                found["__test__"] = f"{owner.rstrip('.')}: __test__ = False"
        elif is_module and isinstance(node, ast.Expr | ast.Raise | ast.Assign):
            found |= _skip_calls(node, owner)
    return found


def _decorator_skips(marks: Sequence[ast.expr], owner: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for mark in marks:
        found |= _marks(mark, owner)
    return found


def _marks(expression: ast.expr, owner: str) -> dict[str, str]:
    """The marks that skip, anywhere in an expression: they may stand on single cases."""
    found: dict[str, str] = {}
    called: set[int] = set()
    for node in ast.walk(expression):
        call = node if isinstance(node, ast.Call) else None
        name = call.func if call else node
        if not isinstance(name, ast.Name | ast.Attribute) or id(name) in called:
            continue
        called.add(id(name))
        dotted = _dotted(name)
        if _SKIP_MARK.match(dotted) and (node is expression or "mark." in dotted):
            found[_mark_key(dotted, call)] = f"{owner}: @{_short(ast.unparse(call or name))}"
    return found


def _mark_key(dotted: str, call: ast.Call | None) -> str:
    """The mark with its condition and without its reason."""
    word = dotted.rpartition(".")[2]
    if word == "skip":
        return "skip"
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "condition")] if call else []
    return f"{word}({ast.unparse(given[0])})" if given else word


def _skip_calls(statement: ast.stmt, owner: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _SKIP_CALL.match(_dotted(node.func)):
            what = ast.unparse(node.args[0]) if node.args and "import" in _dotted(node.func) else ""
            _add_skip(found, f"{_dotted(node.func)}({what})", f"{owner}: {_short(ast.unparse(node))}")
    if isinstance(statement, ast.Raise) and statement.exc and _SKIP_CALL.match(_dotted(statement.exc)):
        found[f"{_dotted(statement.exc)}()"] = f"{owner}: {_short(ast.unparse(statement))}"
    return found


def _cases(node: _Function | ast.ClassDef, tables: dict[str, ast.expr]) -> int:
    cases = 1
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and _dotted(mark.func).rpartition(".")[2] in ("parametrize", "expand", "data"):
            table = mark.args[1:2] or mark.args[:1] if "parametrize" in _dotted(mark.func) else mark.args[:1]
            table += [one.value for one in mark.keywords if one.arg == "argvalues"]
            cases *= _length(table[-1], tables) if table else MANY
    return min(cases, MANY)


def _length(node: ast.expr, tables: Mapping[str, ast.expr] | None = None) -> int:
    """How many elements a table has, if it is written out here or at the top of the module."""
    if isinstance(node, ast.Name) and tables and node.id in tables:
        return _length(tables[node.id])
    if isinstance(node, ast.Dict):
        return len(node.keys)
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and not any(isinstance(one, ast.Starred) for one in node.elts):
        return len(node.elts)
    return MANY


def _python_body(node: _Function, name: str) -> _Body:
    reader = _BodyReader(name)
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    reader.start(body)
    reader.block(body, 1)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    reader.body.checks = [check for check in reader.body.checks if check.weight]
    reader.body.calls += [_CallSite(one.arg, ast.Name(f"fixture {one.arg}"), 1) for one in arguments]
    return reader.body


class _BodyReader:
    """Collects what a function asserts, calls and skips; what is never reached has no weight."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.body = _Body()

    def start(self, body: Sequence[ast.stmt]) -> None:
        self.body.empty = all(
            isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            for one in body
        )
        first = body[0] if body else None
        if isinstance(first, ast.Return) and (len(body) > 1 or first.value is None):
            self.body.skips["return"] = f"{self.name}: returns at once"
        elif isinstance(first, ast.If) and isinstance(first.body[0], ast.Return):
            test = _short(ast.unparse(first.test))
            self.body.skips[f"return if {test}"] = f"{self.name}: returns at once if {test}"

    def block(self, statements: Sequence[ast.stmt], weight: int) -> None:
        for one in statements:
            self._statement(one, weight)
            if isinstance(one, ast.Return | ast.Raise | ast.Continue | ast.Break):
                weight = 0

    def _statement(self, node: ast.stmt, weight: int) -> None:
        if isinstance(node, ast.Assert):
            self.body.checks += _checks(node.test, weight)
        elif isinstance(node, ast.If):
            self._if(node, weight)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._expression(node.iter, weight)
            self.block(node.body, min(weight * _length(node.iter), MANY))
            self.block(node.orelse, weight)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, weight)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.block(node.body, 0 if any(_swallows(one) for one in node.handlers) else weight)
            for block in list(_blocks(node))[1:]:
                self.block(block, weight)
        else:
            self._other(node, weight)

    def _if(self, node: ast.If, weight: int) -> None:
        known = _constant(node.test)
        if known is False:
            self.body.skips["if False"] = f"{self.name}: if {_short(ast.unparse(node.test))}"
        self._expression(node.test, weight)
        self.block(node.body, 0 if known is False else weight)
        self.block(node.orelse, 0 if known else weight)

    def _with(self, node: ast.With | ast.AsyncWith, weight: int) -> None:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _dotted(call.func).rpartition(".")[2] == "suppress":
                weight = 0 if any(_catches(one) for one in call.args) else weight
            self._expression(call, weight)
        self.block(node.body, weight)

    def _other(self, node: ast.stmt, weight: int) -> None:
        if isinstance(node, ast.While):
            self.block(node.body, 0 if _constant(node.test) is False else weight)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self.block(case.body, weight)
        elif isinstance(node, _Function | ast.ClassDef):
            self.block(node.body, weight)
        else:
            for key, shown in _skip_calls(node, self.name).items() if weight else ():
                _add_skip(self.body.skips, key, shown)
            value = node.value if isinstance(node, ast.Expr) else None
            self._expression(node, weight, value.value if isinstance(value, ast.Await) else value)

    def _expression(self, node: ast.AST, weight: int, statement: ast.expr | None = None) -> None:
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                self._call(one, weight, alone=one is statement)

    def _call(self, node: ast.Call, weight: int, *, alone: bool) -> None:
        name = _dotted(node.func).rpartition(".")[2]
        if _SKIP_CALL.match(_dotted(node.func)):
            return
        known = _known_call(node, name, weight)
        if known is None:
            # Methods of other objects are what is tested, or what sets it up.
            ours = _dotted(node.func) in (name, f"self.{name}", f"cls.{name}")
            if ours or (alone and _ASSERTING.match(name)):
                self.body.calls.append(_CallSite(name, node, weight, alone))
        else:
            self.body.checks += known


def _swallows(node: ast.ExceptHandler) -> bool:
    """Whether a failed assertion would go unnoticed here."""
    loud = any(isinstance(one, ast.Raise | ast.Assert) for part in node.body for one in ast.walk(part))
    failing = any(
        isinstance(one, ast.Call) and _dotted(one.func).rpartition(".")[2] == "fail"
        for part in node.body
        for one in ast.walk(part)
    )
    return not loud and not failing and (node.type is None or _catches(node.type))


def _catches(node: ast.expr) -> bool:
    classes = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(_dotted(one).rpartition(".")[2] in ("AssertionError", "Exception", "BaseException") for one in classes)


# --- what a Python assertion says -------------------------------------------------------------------

_COMPARING: dict[str, type[ast.cmpop]] = {
    "assertNotEqual": ast.NotEq,
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}
_EQUAL = re.compile(r"assert(?:Equals?|\w+Equal)\Z")
_RAISING = re.compile(r"(?:raises|warns|assertRaises(?:Regex)?|assertWarns(?:Regex)?)\Z")
_MOCKED = re.compile(r"assert_(?:\w+_)?(?:called|awaited|calls?|awaits?)\w*\Z")
_ROUGHLY = re.compile(r"(?:approx|isclose|allclose|assertAlmostEqual|assertNotAlmostEqual|assert_allclose)\Z")


def _known_call(node: ast.Call, name: str, weight: int) -> list[_Check] | None:
    """What the call of an assertion says; None for a call of something else."""
    if _RAISING.match(name):
        return [_raising(node, name, weight)]
    if _MOCKED.match(name) and isinstance(node.func, ast.Attribute):
        strength = LOOSE if name in ("assert_called", "assert_awaited") else PARTIAL if "any" in name else EXACT
        strength = PARTIAL if name in ("assert_called_once", "assert_awaited_once") else strength
        return [_Check(ast.unparse(node), _subjects(node.func.value), strength, weight)]
    if name == "fail":
        return [_Check(ast.unparse(node), (), EXACT, weight)]
    said = _as_expression(node, name) if name.startswith("assert") and node.args else None
    return None if said is None else _checks(said, weight)


def _as_expression(node: ast.Call, name: str) -> ast.expr | None:
    """`self.assertEqual(a, b)` as `a == b`: so that going from one to the other changes nothing."""
    first, second = node.args[0], node.args[1] if len(node.args) > 1 else None
    if name in ("assertTrue", "assert_"):
        return first
    if name == "assertFalse":
        return ast.UnaryOp(ast.Not(), first)
    if name in ("assertIsNone", "assertIsNotNone"):
        return ast.Compare(first, [ast.Is() if name == "assertIsNone" else ast.IsNot()], [ast.Constant(None)])
    if second is None:
        return None
    if name == "assertIsInstance":
        return ast.Call(ast.Name("isinstance"), [first, second], [])
    if "Almost" in name:
        return ast.Compare(first, [ast.Eq()], [ast.Call(ast.Name("approx"), [second], [])])
    if name in _COMPARING:
        return ast.Compare(first, [_COMPARING[name]()], [second])
    return ast.Compare(first, [ast.Eq()], [second]) if _EQUAL.match(name) and "Not" not in name else None


def _raising(node: ast.Call, name: str, weight: int) -> _Check:
    first = node.args[0] if node.args else next((one.value for one in node.keywords if "exc" in (one.arg or "")), None)
    classes = first.elts if isinstance(first, ast.Tuple) else [first] if first is not None else []
    names = tuple(_dotted(one).rpartition(".")[2] for one in classes)
    patterns = [one.value for one in node.keywords if one.arg == "match"] + (node.args[1:2] if "Regex" in name else [])
    matched = any(not (isinstance(one, ast.Constant) and one.value in ("", ".*", ".+", None)) for one in patterns)
    return _Check(ast.unparse(node), (), EXACT, weight, raises=names, matched=matched)


def _checks(node: ast.expr, weight: int) -> list[_Check]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [check for value in node.values for check in _checks(value, weight)]
    if isinstance(node, ast.Call) and _dotted(node.func) == "all" and node.args:
        if isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            rounds = _length(node.args[0].generators[0].iter)
            return _checks(node.args[0].elt, min(weight * rounds, MANY))
        weight = min(weight * _length(node.args[0]), MANY)
    return [_check(node, weight)]


def _check(node: ast.expr, weight: int) -> _Check:
    text = ast.unparse(node)
    if _constant(node) is True or isinstance(node, ast.Lambda | ast.JoinedStr):
        return _Check(text, _subjects(node), ALWAYS_TRUE, weight)
    if isinstance(node, ast.BoolOp):
        inner = [_check(value, weight) for value in node.values]
        strength = min(PARTIAL, *(one.strength for one in inner))
        return _Check(text, tuple(subject for one in inner for subject in one.subjects), strength, weight)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _Check(text, _subjects(node.operand), LOOSE, weight)
    if isinstance(node, ast.Compare):
        return _compared(node, text, weight)
    if isinstance(node, ast.Call):
        return _called(node, text, weight)
    return _Check(text, (text,), LOOSE, weight)


def _compared(node: ast.Compare, text: str, weight: int) -> _Check:
    sides = [node.left, *node.comparators]
    subjects = tuple(subject for side in sides for subject in _subjects(side))
    parts = tuple(part for side in sides for part in _measured(side))
    strength = _strength(node.ops[0], node.left, node.comparators[0]) if len(node.ops) == 1 else PARTIAL
    subjects = subjects if strength == EXACT else (*subjects, text)
    if strength == EXACT and isinstance(node.left, ast.Tuple) and weight:
        weight = min(weight * max(1, len(node.left.elts)), MANY)
    return _Check(text, subjects, strength, weight, parts)


def _strength(op: ast.cmpop, left: ast.expr, right: ast.expr) -> int:
    if isinstance(op, ast.Eq | ast.Is):
        return _equality(left, right)
    if isinstance(op, ast.GtE) and ast.unparse(right) == "0" and _measured(left):
        return ALWAYS_TRUE
    return LOOSE if isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn) else PARTIAL


def _equality(left: ast.expr, right: ast.expr) -> int:
    if ast.unparse(left) == ast.unparse(right) and not any(isinstance(one, ast.Call) for one in ast.walk(left)):
        return ALWAYS_TRUE
    for side in (left, right):
        if isinstance(side, ast.Call) and _ROUGHLY.match(_dotted(side.func).rpartition(".")[2]):
            return PARTIAL
        if isinstance(side, ast.Constant) and isinstance(side.value, bool):
            return LOOSE  # `x == True` and `x` say the same
        if _dotted(side).rpartition(".")[2] == "ANY":
            return ALWAYS_TRUE
    return EXACT


def _called(node: ast.Call, text: str, weight: int) -> _Check:
    name = _dotted(node.func).rpartition(".")[2]
    subjects = tuple(subject for one in node.args[:2] for subject in _subjects(one))
    if name == "isinstance":
        anything = len(node.args) > 1 and _dotted(node.args[1]) == "object"
        return _Check(text, subjects[:1], ALWAYS_TRUE if anything else PARTIAL, weight)
    if name in ("array_equal", "equals", "samefile"):
        return _Check(text, (*subjects, *_owner(node)), EXACT, weight)
    if name == "any":
        inner = [part for part in node.args if isinstance(part, ast.GeneratorExp | ast.ListComp)]
        about = [subject for part in inner for subject in _subjects(part.generators[0].iter)]
        return _Check(text, tuple(about) or subjects, LOOSE, weight)
    if _ROUGHLY.match(name) or name in ("startswith", "endswith", "issubset", "issuperset", "match", "search"):
        return _Check(text, (*subjects, *_owner(node)), PARTIAL, weight)
    return _Check(text, (text,), LOOSE, weight, _measured(node))


def _owner(node: ast.Call) -> tuple[str, ...]:
    return (ast.unparse(node.func.value),) if isinstance(node.func, ast.Attribute) else ()


def _subjects(node: ast.expr) -> tuple[str, ...]:
    """What an assertion is about: not the constants."""
    if isinstance(node, ast.Tuple):
        return tuple(subject for one in node.elts[:50] for subject in _subjects(one))
    if isinstance(node, ast.Call) and _ROUGHLY.match(_dotted(node.func).rpartition(".")[2]):
        return tuple(subject for one in node.args[:1] for subject in _subjects(one))
    is_fixed = all(isinstance(one, _FIXED) for one in ast.walk(node))
    return () if is_fixed else (ast.unparse(node),)


_FIXED = ast.Constant | ast.List | ast.Dict | ast.Set | ast.Tuple | ast.UnaryOp | ast.unaryop | ast.expr_context


def _measured(node: ast.expr) -> tuple[str, ...]:
    """The x of `len(x)`, `bool(x)`, `type(x)`."""
    if isinstance(node, ast.Call) and _dotted(node.func) in ("len", "bool", "type"):
        return tuple(ast.unparse(one) for one in node.args[:1])
    return ()


def _arguments_of(node: ast.AST) -> tuple[str, ...]:
    arguments = node.args[:2] if isinstance(node, ast.Call) else []
    return tuple(subject for one in arguments for subject in _subjects(one))


# --- other languages: text with its comments and strings told apart ---------------------------------

_SLASHES = r"//[^\n]*|/\*(?:.*?\*/|.*)"
_QUOTED = r'"(?:\\.|[^"\\\n])*+"?'
_SINGLE = r"'(?:\\.|[^'\\\n])*+'?"
_TICKS = r"`(?:\\.|[^`\\])*+`?"
_TRIPLE = r'"""(?:.*?"""|.*)'
_CHARACTER = r"'(?:\\[^'\n]{1,8}|[^'\\\n])'"
_REGEX = r"(?:(?<=[(,=:])|(?<=[(,=:] ))/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*+\]|[^/\\\n\[])++/"


def _noise(comment: str, *strings: str) -> re.Pattern[str]:
    return re.compile(f"(?P<comment>{comment})|(?P<string>{'|'.join(strings)})", re.DOTALL | re.MULTILINE)


class _Source:
    """`code` is the text without comments, `bare` also without what is in strings: all of one length."""

    def __init__(self, text: str, noise: re.Pattern[str]) -> None:
        self.text = text
        self.code, self.bare = _mask(text, noise)
        self.mates = _mates(self.bare)
        self._drop_dead_blocks()
        self.opens = [found.start() for found in re.finditer(r"\{", self.bare)]

    def _drop_dead_blocks(self) -> None:
        """What stands in `if (false) { … }` is as good as a comment."""
        bare, code, at = [], [], 0
        for found in re.finditer(r"\bif\s*+\(?\s*+(?:false|0)\s*+\)?\s*+\{", self.bare):
            start, end = found.end(), self.mates[found.end() - 1]
            if end > start >= at:
                blank = " " * (end - start)
                bare += [self.bare[at:start], blank]
                code += [self.code[at:start], blank]
                at = end
        self.bare = "".join([*bare, self.bare[at:]])
        self.code = "".join([*code, self.code[at:]])

    def block_after(self, at: int) -> tuple[int, int] | None:
        """The next pair of braces, unless a statement ends before it."""
        index = bisect.bisect_left(self.opens, at)
        start = self.opens[index] if index < len(self.opens) else len(self.bare)
        signature = self.bare[at : min(start, at + 2000)]
        if ";" in signature:
            end = at + signature.index(";")
            return (at, end + 1) if "=>" in signature[: end - at] else None
        return (start, self.end_of(start)) if index < len(self.opens) else None

    def end_of(self, opening: int) -> int:
        mate = self.mates[opening]
        return mate + 1 if mate >= 0 else len(self.bare)

    def literal(self, at: int) -> str | None:
        """The string that begins here."""
        if self.bare[at : at + 1] not in ('"', "'", "`"):
            return None
        filled = _FILLED.match(self.bare, at + 1)
        return self.code[at + 1 : filled.end() if filled else at + 1]


_FILL = "\x01"
_FILLED = re.compile(f"{_FILL}*")


def _mask(text: str, noise: re.Pattern[str]) -> tuple[str, str]:
    code, bare, at = [], [], 0
    for found in noise.finditer(text):
        plain, part = text[at : found.start()], found[0]
        if found["comment"] is not None:
            blank = " " * len(part) if "\n" not in part else re.sub(r"[^\n]+", lambda line: " " * len(line[0]), part)
            code += [plain, blank]
            bare += [plain, blank]
        else:
            inner = _FILL * (len(part) - 2) if len(part) > 1 else ""
            code += [plain, part]
            bare += [plain, part[0], inner, part[-1] if len(part) > 1 else ""]
        at = found.end()
    return "".join([*code, text[at:]]), "".join([*bare, text[at:]])


_PARTNER = {")": "(", "]": "[", "}": "{"}


def _mates(bare: str) -> array[int]:
    """For each bracket where its partner is, else -1; a bracket that fits nothing is passed over."""
    mates = array("l", [-1]) * len(bare)
    waiting: list[int] = []
    count = Counter[str]()
    for found in re.finditer(r"[(){}\[\]]", bare):
        char, at = found[0], found.start()
        if char not in _PARTNER:
            waiting.append(at)
            count[char] += 1
        elif count[_PARTNER[char]]:
            while bare[opening := waiting.pop()] != _PARTNER[char]:
                count[bare[opening]] -= 1
            count[_PARTNER[char]] -= 1
            mates[opening], mates[at] = at, opening
    return mates


class _Head(Struct):
    """Where a test, or a group of tests, begins and ends; `before` is where its annotations begin."""

    name: str
    before: int
    start: int
    end: int
    is_test: bool = True
    skips: dict[str, str] = {}
    cases: int = 1
    focused: bool = False


class _Language(Struct, frozen=True):
    """How the tests of a language are written."""

    noise: re.Pattern[str]
    heads: Callable[[_Source, _Language], list[_Head]]
    checks: re.Pattern[str]
    skips: re.Pattern[str]
    head: re.Pattern[str] | None = None
    marks: re.Pattern[str] | None = None
    """What makes a test of a function, before it or in its name."""
    cases: re.Pattern[str] | None = None
    file_skips: re.Pattern[str] | None = None
    lines: bool = False
    """Whether an assertion ends with its line."""


def _read_text(text: str, language: _Language) -> _Reading:
    source = _Source(text, language.noise)
    heads = sorted(language.heads(source, language), key=lambda head: (head.before, -head.end))
    reading = _Reading(text=text, focused=tuple(head.name for head in heads if head.focused))
    everywhere = {}
    if language.file_skips and (found := language.file_skips.search(text[:4000])):
        everywhere[" ".join(found[0].split())] = f"the file: {_short(found[0])}"
    above: list[tuple[_Head, str, dict[str, str]]] = []
    covered, within, room = 0, 0, 8 * len(text)
    for head in heads:
        while above and above[-1][0].end <= head.start:
            above.pop()
        owner, skips = (above[-1][1], above[-1][2]) if above else ("", everywhere)
        name = f"{owner}{_short(head.name, 80)}"
        skips = {**skips, **{key: f"{name}: {what}" for key, what in _head_skips(source, head, language).items()}}
        if not head.is_test:
            above.append((head, f"{name} > ", skips))
            continue
        room -= head.end - head.before
        _add_test(reading, _text_test(source, language, head, owner, skips, readable=room > 0))
        if head.start >= covered:
            within += _count(language.checks, source.bare, head.start, head.end)
            covered = head.end
    reading.outside = _count(language.checks, source.bare, 0, len(source.bare)) - within
    return reading


def _count(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    return sum(1 for _ in pattern.finditer(text, start, end))


def _head_skips(source: _Source, head: _Head, language: _Language) -> dict[str, str]:
    found = dict(head.skips)
    for skip in language.skips.finditer(source.code, head.before, head.start):
        if source.bare[skip.start()] != _FILL:
            found[_skip_key(skip[0])] = _short(skip[0])
    return found


def _skip_key(text: str) -> str:
    return re.sub(r"[^\w.]+", "", text)


def _add_test(reading: _Reading, test: _Test) -> None:
    """Tests of one name get numbers: they are told apart by their order."""
    count = reading.counts[test.name] = reading.counts.get(test.name, 0) + 1
    if count > 1:
        test.name = f"{test.name} #{count}"
    reading.tests[test.name] = test


def _text_test(
    source: _Source, language: _Language, head: _Head, owner: str, skips: dict[str, str], *, readable: bool
) -> _Test:
    """Tests nested in tests without end would be read again and again: they keep their names only."""
    if not readable:
        return _Test(owner, head.name, (), _unknown, skips, head.cases)
    lines = tuple(filter(None, (line.strip() for line in source.code[head.before : head.end].split("\n"))))
    shown = _short(f"{owner}{head.name}")
    return _Test(owner, head.name, lines, lambda: _text_body(source, language, head, shown), skips, head.cases)


_LOOP = re.compile(r"\b(?:for|foreach|forEach|each)\b|\bt\.Run\(")
_EARLY = re.compile(r"\{\s*return\s*(?:;|\n|\})")


def _text_body(source: _Source, language: _Language, head: _Head, shown: str) -> _Body:
    body = _Body(checks=_text_checks(source, language, head.start, head.end))
    inside = source.bare[head.start : head.end]
    body.loops = _LOOP.search(inside) is not None
    block = inside.partition("{")[2].rpartition("}")[0] if "{" in inside and not language.lines else inside
    body.empty = not block.strip() if not language.lines else inside.strip().count("\n") < 2 and not body.checks
    for skip in language.skips.finditer(source.code, head.start, head.end):
        if source.bare[skip.start()] != _FILL:
            _add_skip(body.skips, _skip_key(skip[0]), f"{shown}: {_short(skip[0])}")
    if _EARLY.search(inside, 0, inside.find("{") + 40 if "{" in inside else 0):
        body.skips["return"] = f"{shown}: returns at once"
    if language.marks and (panics := re.search(r"should_panic[^\]]*", source.code[head.before : head.start])):
        body.checks.append(_Check(f"#[{panics[0]}]", (), EXACT, raises=("panic",), matched='"' in panics[0]))
    return body


# --- where tests begin ------------------------------------------------------------------------------

_CALLED = re.compile(
    r"(?<![\w.$>])(?P<word>[xf]?(?:it|test|describe|context)|specify|suite|(?:Deno|QUnit|t)\.test)"
    r"(?P<more>(?:\s*\.\s*\w+)*)\s*(?P<open>[(`])"
)
_MODIFIERS = {"concurrent", "sequential", "serial", "parallel", "shuffle", "each", "for", "only", "describe", "slow"}
_OFF = {"skip", "todo", "fixme", "fails", "failing", "skipIf", "runIf", "if"}


def _called_heads(source: _Source, language: _Language) -> list[_Head]:
    """`it("does", () => { … })` and its relatives."""
    found = []
    for match in _CALLED.finditer(source.bare):
        more = re.findall(r"\w+", match["more"])
        if set(more) - _MODIFIERS - _OFF:
            continue
        opening, cases = _past_the_table(source, match.start("open"), more)
        if opening is not None and (head := _called_head(source, match, more, opening)):
            head.cases = cases
            found.append(head)
    return found


def _past_the_table(source: _Source, at: int, more: list[str]) -> tuple[int | None, int]:
    """Where the arguments begin that hold the name: after the table of `it.each([...])`, or after `skipIf(…)`."""
    if source.bare[at] == "(" and not {"each", "for", "skipIf", "runIf", "if"} & set(more):
        return at, 1
    if source.bare[at] == "`":
        literal = source.literal(at) or ""
        end, cases = at + len(literal) + 2, max(1, literal.count("\n") - 1)
    else:
        end, cases = source.end_of(at), _rows(source, at) if {"each", "for"} & set(more) else 1
    following = re.compile(r"\s*\(").match(source.bare, end)
    return (following.end() - 1 if following else None), cases


def _rows(source: _Source, opening: int) -> int:
    inner = re.compile(r"\s*\[").match(source.bare, opening + 1)
    if not inner:
        return MANY
    return max(1, len(_arguments(source, inner.end() - 1, source.mates[inner.end() - 1])))


def _called_head(source: _Source, match: re.Match[str], more: list[str], opening: int) -> _Head | None:
    end = source.end_of(opening)
    if source.mates[opening] < 0:
        return None
    arguments = _arguments(source, opening, end - 1)
    blank = _BLANK.match(source.bare, opening + 1)
    name = source.literal(blank.end() if blank else opening + 1)
    word, off = match["word"], sorted(_OFF & set(more))
    if name is None and (
        len(arguments) < 2 or not re.search(r"=>|\bfunction\b|\bfn\b", source.bare[opening : min(end, opening + 2000)])
    ):
        return None  # `test.skip(condition, "reason")` inside of a test: a skip, not a head
    is_test = not re.search(r"describe|context|suite", word) and "describe" not in more
    after = re.compile(r"\s*(?:->|\.)\s*(?:skip|todo)\b").match(source.bare, end)
    skips = (
        {"skip": f"{word}{match['more']}{after[0].strip() if after else ''}"} if off or after or word[0] == "x" else {}
    )
    if is_test and len(arguments) == 1 and not skips:
        skips = {"skip": "it has no body"}
    focused = "only" in more or word in ("fit", "fdescribe", "fcontext", "ftest")
    return _Head(
        name if name is not None else arguments[0][:200], match.start(), opening, end, is_test, skips, 1, focused
    )


_BLANK = re.compile(r"\s*")
_CLASS = re.compile(r"\b(?:class|struct|interface|object|mod|namespace|trait)\s+(?P<name>[\w.]+)")


def _function_heads(source: _Source, language: _Language) -> list[_Head]:
    """Functions that an annotation or their name makes tests, and the classes around them."""
    if language.head is None or language.marks is None:
        return []
    starts = [(match.start(), match, True) for match in language.head.finditer(source.bare)]
    starts += [(match.start(), match, False) for match in _CLASS.finditer(source.bare)]
    found, floor = [], 0
    for at, match, is_function in sorted(starts, key=lambda one: one[0]):
        before = _annotations_before(source, at, floor)
        floor = match.end()
        block = source.block_after(match.end())
        if block is None:
            continue
        name = match["name"].strip("`")
        said = source.text[before:at] if is_function else ""
        if not is_function:
            found.append(_Head(name, before, block[0], block[1], is_test=False))
        elif language.marks.search(said) or language.marks.search(f"name:{name}"):
            found.append(_Head(name, before, block[0], block[1], cases=_annotated_cases(said, language)))
    return found


def _annotations_before(source: _Source, at: int, floor: int) -> int:
    """Back to where the last statement or block ended; never past `floor`, so that all of it is one walk."""
    while at > floor:
        char = source.bare[at - 1]
        if char in "{};":
            break
        mate = source.mates[at - 1] if char in ")]" else -1
        at = max(floor, mate) if mate >= 0 else at - 1
    return at


def _annotated_cases(said: str, language: _Language) -> int:
    rows = len(language.cases.findall(said)) if language.cases else 0
    provided = re.search(r"[pP]rovider|MethodSource|MemberData|ClassData|Source\b|Sources\b|arguments:|values", said)
    return MANY if provided else max(1, rows)


_MACRO = re.compile(
    r"\b(?:(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(?P<group>\w+)\s*,\s*(?P<name>\w+)\s*\)"
    r"|BOOST_(?:AUTO|FIXTURE|DATA)_TEST_CASE\s*\(\s*(?P<boost>\w+)[^)\n]*\)"
    r"|(?:TEST_CASE|SCENARIO|TEST_CASE_METHOD|TEMPLATE_TEST_CASE)\s*(?P<open>\())"
)


def _macro_heads(source: _Source, language: _Language) -> list[_Head]:
    """GoogleTest, Catch2, doctest, Boost."""
    found = []
    for match in _MACRO.finditer(source.bare):
        end = source.end_of(match.start("open")) if match["open"] else match.end()
        block = source.block_after(end)
        if block is None:
            continue
        told = re.search(r'"([^"\n]*)"', source.code[match.start() : min(end, match.start() + 500)])
        name = f"{match['group']}.{match['name']}" if match["name"] else match["boost"] or (told[1] if told else "")
        off = "DISABLED_" in name or bool(
            told and match["open"] and re.search(r'"\[[^"]*[.!]', source.code[match.start() : end])
        )
        skips = {"skip": "DISABLED_" if "DISABLED_" in name else "a hidden tag"} if off else {}
        found.append(_Head(name.replace("DISABLED_", ""), match.start(), block[0], block[1], skips=skips))
    return found


_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)(?:def\s+(?P<method>test_\w+[?!]?)"
    r"|(?P<word>[xf]?(?:it|specify|example|test|property|should|describe|context|feature|scenario)|RSpec\.describe|pending)\b"
    r"(?P<rest>[ (][^\n]*|\{[^\n]*)"
    r"|(?:class|module|defmodule)\s+(?P<class>[\w:.]+)[^\n]*)",
    re.MULTILINE,
)


def _indented_heads(source: _Source, language: _Language) -> list[_Head]:
    """Ruby and Elixir: a block ends where a line is indented as little as its first."""
    found: list[_Head] = []
    waiting: list[tuple[int, _Head]] = []
    matches = {match.start(): match for match in _BLOCK.finditer(source.bare)}
    at, before = 0, None
    for line in source.bare.split("\n"):
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        while bare and waiting and indent <= waiting[-1][0]:
            closes = bare.startswith(("end", "}"))
            waiting.pop()[1].end = at + (len(line) if closes else 0)
        before = (at if before is None else before) if bare.startswith("@") else before
        if (match := matches.get(at)) and (head := _indented_head(source, match)):
            head.before = at if before is None else before
            found.append(head)
            waiting.append((indent, head))
        before = before if bare.startswith("@") else None
        at += len(line) + 1
    return found


def _indented_head(source: _Source, match: re.Match[str]) -> _Head | None:
    end, start = len(source.bare), match.end()
    if match["class"] or match["method"]:
        return _Head(match["class"] or match["method"], 0, start, end, is_test=bool(match["method"]))
    word, rest = match["word"], match["rest"]
    if not re.search(r"\bdo\b|\{", rest) and word not in ("pending",) and not rest.rstrip().endswith(("'", '"')):
        return None
    shift = len(rest) - len(rest.lstrip(" ("))
    name = source.literal(match.start("rest") + shift) or source.code[match.start("rest") : match.end()].strip()
    is_test = not re.search(r"describe|context|feature", word)
    tags = re.search(r"\bskip\b|\bpending\b|:skip\b", source.bare[match.start("rest") : match.end()])
    off = word.startswith("x") or word == "pending" or bool(tags) or (is_test and not re.search(r"\bdo\b|\{", rest))
    start = match.start("rest") if "{" in rest else start  # the body of `it { … }` is on its line
    focused = word in ("fit", "fdescribe", "fcontext") or bool(re.search(r":focus\b|\bfocus:", rest))
    return _Head(name[:200], 0, start, end, is_test, {"skip": word} if off else {}, 1, focused)


# --- assertions in text -----------------------------------------------------------------------------

_CHAIN = re.compile(r"\s*(?:\?\.|\.|->|::)\s*(\w+)[!?]?\s*(?:<[^<>()\n]{0,100}>)?")
_OPEN = re.compile(r"\s*+(?:<[^<>()\n]{0,100}>\s*+)?[({]")


def _text_checks(source: _Source, language: _Language, start: int, end: int) -> list[_Check]:
    found, past = [], start
    for match in language.checks.finditer(source.bare, start, end):
        if match.start() >= past:
            past, check = _text_check(source, language, match, end)
            found.append(check)
    return found


def _text_check(source: _Source, language: _Language, match: re.Match[str], end: int) -> tuple[int, _Check]:
    said = _Said(source, match)
    said.follow(end)
    if language.lines:
        said.to_the_end_of_the_line(end)
    text = " ".join(source.code[match.start() : said.at].split())[:2000]
    return said.at, said.check(text)


class _Said:
    """One assertion while it is taken apart: its words, its arguments, and those of its last word."""

    def __init__(self, source: _Source, match: re.Match[str]) -> None:
        self.source = source
        self.words = re.findall(r"\w+", match[0])
        self.start, self.at = match.start(), match.end()
        self.first: list[str] = []
        self.last: list[str] = []
        self.chained = False
        if match[0].startswith("."):
            line = source.code[max(0, match.start() - 300) : match.start()]
            self.first = [re.split(r"[;{}\n]", line)[-1].strip()]
            self.chained = True

    def follow(self, end: int) -> None:
        if opening := _OPEN.match(self.source.bare, self.at, end):
            taken = self._take(opening.end() - 1)
            self.first = self.first or taken
            self.last = taken
        while following := _CHAIN.match(self.source.bare, self.at, end):
            self.words.append(following[1])
            self.chained = True
            self.at = following.end()
            if self.source.bare[self.at : self.at + 1] == "(":
                self.last = self._take(self.at)

    def _take(self, opening: int) -> list[str]:
        closing = self.source.mates[opening]
        self.at = closing + 1 if closing >= 0 else opening + 1
        return _arguments(self.source, opening, closing) if closing >= 0 else []

    def to_the_end_of_the_line(self, end: int) -> None:
        """Ruby and Elixir need no brackets: `assert_equal 3, x`, `expect(x).to eq 3`."""
        stop = self.source.bare.find("\n", self.at, end)
        stop = end if stop < 0 else stop
        rest = self.source.code[self.at : stop].strip()
        self.at = max(self.at, stop)
        if not rest:
            return
        if self.words[-1] in ("to", "to_not", "not_to", "should", "should_not"):
            matcher = re.match(r"(\w+)[?!]?\s*\(?(.*?)\)?\Z", rest)
            self.words.append(matcher[1] if matcher else rest)
            self.last = [matcher[2]] if matcher and matcher[2] else []
        elif self.words[-1].startswith(("must", "wont")):
            self.last = [rest]
        elif not self.first:
            whole = self.words[-1] in ("assert", "refute")
            self.first = self.last = [rest] if whole else [part.strip() for part in rest.split(", ")]
        else:
            self.first[0] = f"{self.first[0]} {rest}"

    def check(self, text: str) -> _Check:
        matcher = self.words[-1].lower()
        if matcher in _FAILING:
            return _failing(text, self.source.code[max(0, self.start - 300) : self.start])
        if self._throws():
            names = tuple(name for name in _CLASSES.findall(text) if name not in self.words)
            if matcher.endswith(("_throw", "_throws_as")) and len(self.first) > 1:
                names = tuple(re.findall(r"\w+", self.first[-1])[-1:])
            return _Check(text, (), EXACT, raises=names, matched=bool(re.search("[\"'/]", "".join(self.last))))
        if self.first[:1] == ["t"] and len(self.first) > 1:  # testify: assert.Equal(t, want, got)
            self.first = self.first[1:]
        if matcher.endswith("that") and len(self.first) > 1:  # NUnit: Assert.That(x, Is.EqualTo(3))
            matcher = re.sub(r"\W+", "", self.first[1].partition("(")[0]).lower()
            return _Check(text, _text_subjects(self.first[:1]), _matcher_strength(matcher))
        if self.chained:
            return self._chained(text, matcher)
        if matcher in _BOOLEAN:
            return _expression(text, self.first[0] if self.first else "", negated=matcher in _NEGATED)
        subjects = _text_subjects(self.first[:2])
        if len(self.first) > 1 and _is_literal(self.first[0]) and self.first[0] == self.first[1]:
            return _Check(text, (), ALWAYS_TRUE)
        return _Check(text, subjects, _matcher_strength(matcher))

    def _throws(self) -> bool:
        negated = {"not", "not_to", "to_not"} & set(self.words)
        named = _THROWS.search("".join(self.words[-2:])) or "".join(self.first[:1]).startswith("throws:")
        return bool(named) and not negated

    def _chained(self, text: str, matcher: str) -> _Check:
        subject = self.first[0] if self.first else ""
        truths = matcher in _BOOLEAN_MATCHERS or (self.last and self.last[0] in ("true", subject))
        if re.search(r"\|\|\s*true\b", subject) or (truths and _is_literal(subject)):
            return _Check(text, _text_subjects([subject.partition("||")[0].strip()]), ALWAYS_TRUE)
        negated = bool({"not", "not_to", "to_not", "Not", "never"} & set(self.words))
        strength = _matcher_strength(matcher)
        if negated:
            strength = EXACT if strength == LOOSE else LOOSE
        if strength == EXACT and self.last and re.search(r"\bany(?:thing)?\s*\(", self.last[0]):
            strength = LOOSE
        return _Check(text, _text_subjects([subject]), strength)


_FAILING = {"error", "errorf", "fatal", "fatalf", "fail", "failnow"}
_CONDITION = re.compile(r"\bif\s+(?:[^;{}\n]*;\s*)?([^{}\n]+?)\s*\{\s*\Z")


def _failing(text: str, before: str) -> _Check:
    """Go: `if got != want { t.Errorf(…) }` asserts that they are equal; the message does not matter."""
    found = _CONDITION.search(before)
    if found is None:
        return _Check(text, (), EXACT)
    said = " ".join(found[1].split())
    equal = re.fullmatch(r"!\s*(?:reflect\.DeepEqual|cmp\.Equal|\w+\.Equal)\((.*?), (.*)\)|(.*?) != (.*)", said)
    if equal and "&&" not in said:
        return _Check(f"if {said}", _text_subjects(one for one in equal.groups() if one), EXACT)
    sides = re.split(r"\s(?:==|!=|<=|>=|<|>)\s", said.partition("&&")[0].strip(), maxsplit=1)
    strength = ALWAYS_TRUE if said == "false" else PARTIAL if re.search(r"[<>]|&&", said) else LOOSE
    return _Check(f"if {said}", _text_subjects(one.lstrip("! ") for one in sides), strength)


_THROWS = re.compile(r"throw|raise|FailsWith|expectException", re.IGNORECASE)
_CLASSES = re.compile(r"\b\w*(?:Error|Exception|Throwable|exception)\b")
_BOOLEAN = {"assert", "true", "asserttrue", "istrue", "ok", "xctassert", "xctasserttrue", "expect_true", "assert_true"}
_BOOLEAN |= {"check", "require", "expect", "assert_", "truthy", "boost_check", "boost_require", "boost_test"}
_BOOLEAN |= {
    "debug_assert",
    "refute",
    "assertfalse",
    "assert_false",
    "expect_false",
    "xctassertfalse",
    "false",
    "isfalse",
}
_NEGATED = {"refute", "assertfalse", "assert_false", "expect_false", "xctassertfalse", "false", "isfalse"}
_BOOLEAN_MATCHERS = {"tobetruthy", "tobetrue", "istrue", "betrue", "be_truthy", "ok", "true", "tobedefined"}
_LOOSE_MATCHER = re.compile(
    r"truthy|falsy|falsey|defined|\Arefute_|not_?(?:be_?)?(?:null|nil|empty|equal|same|contain)|nonnull|isnotnull|exist|present\Z"
    r"|anything|called\Z|tohavebeencalled\Z|\Aok\Z|ne\Z|\Aisany|(?:istrue|isfalse|betrue|befalse)\Z|assertany|doesnot|unequal"
)
_PARTIAL_MATCHER = re.compile(
    r"contain|includ|match(?!.*snapshot)|greater|less|close|approx|almost|near|instance|typeof|isa\Z|within|between|start|end"
    r"|length|size|count|subset|superset|delta|_(?:gt|ge|lt|le)\Z|above|below|atleast|atmost|inrange|indelta|regex|\Ain\Z|oneof"
    r"|member|keys?\Z|property\Z"
)


def _matcher_strength(name: str) -> int:
    if _LOOSE_MATCHER.search(name):
        return LOOSE
    return PARTIAL if _PARTIAL_MATCHER.search(name) else EXACT


_LITERAL = re.compile(r"(?:!*(?:true|false|null|nil|None|undefined|:ok)|-?[0-9][\w.]*|\"[^\"]*\"|'[^']*'|`[^`]*`)\Z")


def _is_literal(text: str) -> bool:
    return _LITERAL.match(text) is not None


def _text_subjects(arguments: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in arguments if one and not _is_literal(one))


_OPERATOR = re.compile(r"\s(===?|!==?|=~|<=|>=|<|>|in)\s|\s(\|\||or)\s")


def _expression(text: str, said: str, *, negated: bool = False) -> _Check:
    """What `assert!(a == b)` says."""
    if re.fullmatch(r"true|1|!\s*false|!0|not false", said) or re.search(r"(?:\|\||\bor)\s*(?:true|1)\s*\)?\Z", said):
        strength = LOOSE if negated else ALWAYS_TRUE
        return _Check(text, _text_subjects([re.split(r"\s(?:===?|\|\||or)\s", said)[0].strip("( ")]), strength)
    found = _OPERATOR.search(said)
    if found is None:
        return _Check(
            text, _text_subjects([said]), PARTIAL if re.search(r"\bmatches!|contains|\bis\b", said) else LOOSE
        )
    sides = said[: found.start()].strip(), said[found.end() :].strip()
    equal = found[1] in ("==", "===") and not re.search(r"\s(?:\|\||or)\s", said)
    if sides[0] == sides[1] and equal and "(" not in sides[0]:
        return _Check(text, _text_subjects(sides), ALWAYS_TRUE)
    strength = EXACT if equal and not negated else LOOSE if found[1] in ("!=", "!==") or found[2] else PARTIAL
    return _Check(text, _text_subjects(sides), strength)


def _arguments(source: _Source, opening: int, closing: int) -> list[str]:
    """What stands between commas; brackets inside are jumped over."""
    found, at, start = [], opening + 1, opening + 1
    pattern = re.compile(r"[,(\[{]")
    while match := pattern.search(source.bare, at, closing):
        at = match.end()
        if match[0] == ",":
            found.append(source.code[start : min(match.start(), start + 2000)])
            start = at
        elif source.mates[match.start()] >= 0:
            at = source.mates[match.start()] + 1
    found.append(source.code[start : min(closing, start + 2000)])
    return [text for one in found if (text := " ".join(one.split()))]


# --- the languages ----------------------------------------------------------------------------------

_LONG = r'"(?:\\.|[^"\\])*+"?'  # a string that may go over lines
_LONG_SINGLE = r"'(?:\\.|[^'\\])*+'?"
_DEAD = r"^[ \t]*#[ \t]*if[ \t]+(?:0|false)\b(?:.*?^[ \t]*#[ \t]*(?:endif|else|elif)|.*)"
_ASSERTING_CALL = r"^[ \t]*+(?:await\s|try\s)?\s*(?:assert|check|verify|expect)(?:_\w+|[A-Z]\w*)(?=\s*\()"


def _php_heads(source: _Source, language: _Language) -> list[_Head]:
    return _function_heads(source, language) + _called_heads(source, language)


_LANGUAGES = {
    "js": _Language(
        _noise(_SLASHES, _REGEX, _QUOTED, _SINGLE, _TICKS),
        _called_heads,
        re.compile(
            rf"(?<![\w.$])(?:expect(?:\.soft|TypeOf)?|assert(?:\.\w+)*|t\.(?:is|not|deepEqual|truthy|true|throws\w*|like"
            rf"|equal|ok|same))(?=\s*\()|{_ASSERTING_CALL}|\.should\b|\.expect(?=\()"
        ),
        re.compile(r"\b(?:this|ctx|context|t|test)\.skip\s*\(|\bpending\s*\(|\btest\.(?:fixme|fail)\s*\("),
    ),
    "go": _Language(
        _noise(_SLASHES, _QUOTED, r"`[^`]*+`?", _CHARACTER),
        _function_heads,
        re.compile(
            r"\b(?:t|tb|f)\.(?:Errorf?|Fatalf?|Fail|FailNow)(?=\()|\b(?:assert|require|is|qt)\.\w+(?=\()"
            rf"|{_ASSERTING_CALL}"
        ),
        re.compile(r"\b(?:t|tb|f)\.Skip"),
        head=re.compile(r"^[ \t]*+func\s+(?P<name>(?:Test|Fuzz|Example)(?!Main\b)\w*)\s*\(", re.MULTILINE),
        marks=re.compile(r"\Aname:"),
        file_skips=re.compile(r"^//\s?(?:go:build|\+build)\s[^\n]+", re.MULTILINE),
    ),
    "rs": _Language(
        _noise(_SLASHES, r'\br(?P<hash>#*)"(?:.*?"(?P=hash)|.*)', _LONG, _CHARACTER),
        _function_heads,
        re.compile(rf"\b(?:\w+_)?assert\w*!|{_ASSERTING_CALL}"),
        re.compile(r"#\[\s*(?:ignore|cfg_attr\([^\]\n]*ignore|cfg\((?:any\(\)|FALSE|not\(test\)))"),
        head=re.compile(r"\bfn\s+(?P<name>\w+)"),
        marks=re.compile(r"#\[\s*(?:\w+::)*(?:test|rstest|test_case|wasm_bindgen_test|quickcheck)\b"),
        cases=re.compile(r"#\[\s*(?:case|test_case)\b"),
        file_skips=re.compile(r"#!\[cfg\([^\n]*"),
    ),
    "java": _Language(
        _noise(_SLASHES, _TRIPLE, _QUOTED, _CHARACTER),
        _function_heads,
        re.compile(
            r"(?<![\w@])(?!assert(?:All|Softly)\b)assert\w*(?=\s*[(<])|(?<![\w@.])(?:verify|expect|fail)\w*(?=\s*[(<])"
        ),
        re.compile(
            r"@(?:Disabled\w*|Ignore\b|EnabledIf\w*|EnabledOn\w*)|\benabled\s*=\s*false|\bassume(?:True|False|That)\b"
        ),
        head=re.compile(r"\b(?:void|fun)\s+(?P<name>`[^`\n]+`|\w+)\s*\("),
        marks=re.compile(
            r"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b|\Aname:test[A-Z_]"
        ),
    ),
    "rb": _Language(
        _noise(r"#[^\n]*|^=begin(?:.*?^=end|.*)", _LONG, _LONG_SINGLE),
        _indented_heads,
        re.compile(
            r"(?<![\w.:@])(?:(?:assert|refute)\w*|expect|is_expected)\b|\.(?:must|wont)_\w+|\.should(?:_not)?\b"
        ),
        re.compile(r"^\s*(?:skip|pending)\b(?!\s*=)", re.MULTILINE),
        lines=True,
    ),
    "cs": _Language(
        _noise(_SLASHES, r'@"(?:[^"]|"")*+"?', _TRIPLE, _QUOTED, _CHARACTER),
        _function_heads,
        re.compile(
            r"\b(?:Collection|String)?Assert\.(?!Multiple|Ignore|Inconclusive|Skip)\w+(?=\s*[(<])|\.Should(?=\s*\()"
            r"|(?<![\w.])(?:Assert|Verify|Check|Expect)[A-Z]\w*(?=\s*\()|\.(?:Verify|Received|DidNotReceive)(?:All|NoOtherCalls|WithAnyArgs)?(?=\()"
        ),
        re.compile(r"\[\s*(?:Ignore|Explicit)\b|\bSkip\s*=|\bAssert\.(?:Ignore|Inconclusive|Skip)\b|\bSkip\.If"),
        head=re.compile(r"\b(?:void|Task|ValueTask)\s+(?P<name>\w+)\s*\("),
        marks=re.compile(
            r"[\[,]\s*(?:\w+\.)*(?:Fact|Theory|Test|TestMethod|TestCase|DataTestMethod|TestCaseSource|SkippableFact)\b"
        ),
        cases=re.compile(r"\b(?:InlineData|TestCase|DataRow)\s*\("),
    ),
    "php": _Language(
        _noise(rf"\#(?!\[)[^\n]*|{_SLASHES}", _LONG, _LONG_SINGLE),
        _php_heads,
        re.compile(
            r"(?:\$this->|\bself::|\bstatic::|\bAssert::)(?:assert\w+|expectException\w*|fail)(?=\s*\()"
            rf"|(?<![\w>$])expect(?=\s*\()|{_ASSERTING_CALL}"
        ),
        re.compile(r"(?:->|::)markTest(?:Skipped|Incomplete)\b|@requires\b|\#\[Requires\w*"),
        head=re.compile(r"\bfunction\s+(?P<name>\w+)\s*\("),
        marks=re.compile(r"\#\[\s*\\?(?:\w+\\)*Test\b|@test\b|\Aname:test"),
        cases=re.compile(r"\#\[TestWith|@testWith"),
    ),
    "swift": _Language(
        _noise(f"{_DEAD}|{_SLASHES}", _TRIPLE, _QUOTED),
        _function_heads,
        re.compile(rf"\bXCT(?:Assert\w*|Fail|Unwrap)(?=\s*\()|#(?:expect|require)(?=\s*\()|{_ASSERTING_CALL}"),
        re.compile(r"\bXCTSkip\w*|\.disabled\b|\.enabled\s*\("),
        head=re.compile(r"\bfunc\s+(?P<name>`[^`\n]+`|\w+)\s*\("),
        marks=re.compile(r"@Test\b|\Aname:test"),
    ),
    "exs": _Language(
        _noise(r"#[^\n]*", _TRIPLE, _LONG),
        _indented_heads,
        re.compile(r"(?<![\w.:@])(?:assert|refute)\w*"),
        re.compile(r"@(?:tag|describetag)\s+:?(?:skip|pending)\b"),
        file_skips=re.compile(r"@moduletag\s+:?skip[^\n]*"),
        lines=True,
    ),
    "cpp": _Language(
        _noise(f"{_DEAD}|{_SLASHES}", r'\bR"(?P<mark>[^()\s"]{0,16})\((?:.*?\)(?P=mark)"|.*)', _QUOTED, _CHARACTER),
        _macro_heads,
        re.compile(r"\b(?:(?:EXPECT|ASSERT)_\w+|(?:CHECK|REQUIRE)(?:_\w+)?|BOOST_(?:CHECK|REQUIRE|TEST)\w*)(?=\s*\()"),
        re.compile(r"\bGTEST_SKIP\b|\bdoctest::(?:skip|may_fail|should_fail)\b|\bSKIP\s*\("),
    ),
}


# --- what is too long or too deep -------------------------------------------------------------------

# Plain strings, not patterns: looking for them takes no time even in a file of megabytes.
_COARSE_HEADS = {
    "py": ("def test",),
    "js": ("it(", "test("),
    "rb": ("it ", "test ", "def test_"),
    "exs": ("test ",),
    "": ("func Test", "fn test", "void test", "function test", "fun test", "Task Test", "TEST("),
}
_COARSE_CHECKS = ("assert", "expect", "EXPECT_", "ASSERT_", "XCTAssert", "refute", "t.Error", "t.Fatal")
_COARSE_SKIPS = (
    "mark.skip",
    "mark.xfail",
    "pytest.skip",
    "skipTest",
    "importorskip",
    "unittest.skip",
    "t.Skip",
    "#[ignore",
    "@Disabled",
    "@Ignore",
    "it.skip",
    "it.only",
    "it.todo",
    "test.skip",
    "test.only",
    "test.todo",
    "describe.skip",
    "describe.only",
    "xit(",
    "xdescribe(",
    "fit(",
    "fdescribe(",
    "markTestSkipped",
    "GTEST_SKIP",
)
_COARSE_NAME = re.compile(r"\s{0,9}[\"'`]([^\"'`\n]{1,200})|(\w{0,200})")


def _read_coarsely(path: str, text: str) -> _Reading:
    tests: dict[str, _Test] = {}
    for head in _COARSE_HEADS.get(_language(path), _COARSE_HEADS[""]):
        for at in _places_of(head, text):
            found = _COARSE_NAME.match(text, at + len(head))
            name = found[1] or f"{head.rpartition(' ')[2]}{found[2]}" if found else ""
            tests[name] = _Test("", name, (), _unknown, {})
    checks = sum(text.count(word) for word in _COARSE_CHECKS)
    skips = Counter({word: sum(1 for _ in _places_of(word, text)) for word in _COARSE_SKIPS})
    return _Reading(text=text, tests=tests, coarse=(checks, skips))


def _places_of(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_$"):
            yield at
        at = text.find(word, at + len(word))


def _coarsely(file: _File) -> list[Finding]:
    if file.gone or not file.old.coarse or not file.new.coarse:
        return []
    (before, old_skips), (after, new_skips) = file.old.coarse, file.new.coarse
    found = [Finding("test-skipped", file.path, f"more of {what} than before") for what in new_skips - old_skips]
    if after < before:
        found.append(Finding("assertion-weakened", file.path, f"{before} assertions before, {after} now"))
    return found


# --- what runs the tests ----------------------------------------------------------------------------


class _Settings(Struct):
    """What a file of configuration says about which tests are run, and what has to hold."""

    left_out: dict[str, str] = {}
    """What is left out, or let pass: by a key that is the same wherever it is written."""
    places: dict[str, list[str]] = {}
    """Where tests are looked for."""
    floors: dict[str, float] = {}
    """How much has to be covered."""
    scripts: dict[str, str] = {}
    """What is run as tests and checks."""


def _look_at_configs(changes: Sequence[Change]) -> list[Finding]:
    """All files together, because a setting may move from one to another."""
    sides = [(change.path, *both) for change in changes if (both := _settings_of(change))]
    known = {key for _, old, _ in sides for key in old.left_out}
    floors: dict[str, float] = {}
    for _, _, new in sides:
        for key, value in new.floors.items():
            floors[key] = max(value, floors.get(key, value))
    ran = {program for _, _, new in sides for script in new.scripts.values() for program in _programs(script)}
    found = []
    for path, old, new in sides:
        why = [f"adds {_short(shown)}" for key, shown in new.left_out.items() if key not in known]
        why += _lowered(old.floors, new.floors, floors) + _narrowed(old.places, new.places)
        why += _hollowed(old.scripts, new.scripts, ran)
        found += [Finding("test-config", path, one) for one in why]
    return found


def _settings_of(change: Change) -> tuple[_Settings, _Settings] | None:
    read = _config_reader(change.path)
    before, after = _text(change.old), _text(change.new)
    if read is None or max(len(before), len(after)) > _LONGEST:
        return None
    old, new = read(before), read(after)
    return (old, new) if old and new else None


def _lowered(old: Mapping[str, float], new: Mapping[str, float], everywhere: Mapping[str, float]) -> list[str]:
    now = {key: new.get(key, everywhere.get(key)) for key in old}
    return [
        f"{key} {'is gone' if now[key] is None else f'is {now[key]:g}'}, it was {value:g}"
        for key, value in old.items()
        if (now[key] or 0) < value
    ]


def _narrowed(old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]]) -> list[str]:
    found = []
    for key, before in old.items():
        after = new.get(key, [])
        gone = [one for one in before if after and one not in after]
        inside = [one for one in gone if any(other.startswith(f"{one.rstrip('/')}/") for other in after)]
        if inside or (gone and len(after) < len(before)):
            found.append(f"{key} no longer names {_short((inside or gone)[0])}")
    return found


_SCRIPT = re.compile(
    r"(?:pre|post)?(?:tests?|lint|check|type-?check|types|verify|ci|validate|unit|e2e|integration|coverage)(?:[:_.-].*)?"
)
_SWALLOWED = re.compile(r"\|\|\s*(?:true|:|exit\s+0|echo|/bin/true)(?![\w-])|;\s*(?:true|:|exit\s+0)\s*\Z")
_NO_PROGRAMS = {"true", ":", "exit", "echo", "printf", "sleep", "/bin/true", "cd", "set", "export", "no-op", "noop"}
_WRAPPERS = {
    "npx",
    "yarn",
    "pnpm",
    "npm",
    "bun",
    "bunx",
    "exec",
    "run",
    "dlx",
    "cross-env",
    "env",
    "sudo",
    "time",
    "uv",
}
_WRAPPERS |= {
    "poetry",
    "pipenv",
    "hatch",
    "pdm",
    "bundle",
    "python",
    "python3",
    "coverage",
    "dotenv",
    "command",
    "node",
}
_WITH_VERB = {
    "cargo",
    "go",
    "dotnet",
    "mix",
    "gradle",
    "./gradlew",
    "mvn",
    "./mvnw",
    "swift",
    "deno",
    "rails",
    "ng",
    "nx",
}
_KNOWN_PROGRAMS = re.compile(
    r"jest|vitest|mocha|ava|tap|karma|jasmine|playwright|cypress|eslint|biome|oxlint|tsc|vue-tsc|pytest|unittest|tox|nox"
    r"|ruff|mypy|pyright|flake8|pylint|rspec|rake|phpunit|pest|ctest|wdio|c8|nyc|tsd|xo|standard|turbo|nx|lerna|make|rubocop"
)


def _hollowed(old: Mapping[str, str], new: Mapping[str, str], ran: set[str]) -> list[str]:
    found = []
    for name, before in old.items():
        had = _programs(before)
        if name not in new:
            found += [f"{name} is gone: it ran {_short(before)}"] if had - ran else []
        elif why := _emptied(before, new[name], had):
            found.append(f"{name} {why}")
    return found


def _emptied(before: str, after: str, had: set[str]) -> str | None:
    if len(_SWALLOWED.findall(after)) > len(_SWALLOWED.findall(before)):
        return f"lets failures pass: {_short(after)}"
    has = _programs(after)
    gone = had - has
    if gone and len(gone) > sum(1 for program in has - had if _KNOWN_PROGRAMS.match(program)):
        return f"no longer runs {_short(', '.join(sorted(gone)))}: {_short(after)}"
    added = [shown for key, shown in _options(after).items() if key not in _options(before)]
    return f"adds {_short(added[0])}" if added else None


def _programs(command: str) -> set[str]:
    """The programs of a command line that do something."""
    found = set()
    for part in re.split(r"&&|\|\||[;|&\n]", command)[:500]:
        words = [word for word in part.strip().lstrip("@-+ ").split() if not re.match(r"\w+=", word)]
        while len(words) > 1 and (words[0] in _WRAPPERS or words[0].startswith("-")):
            words = words[1:]
        name = words[0].rpartition("/")[2] if words else ""
        if name and name not in _NO_PROGRAMS and not name.startswith("#"):
            verb = next((word for word in words[1:] if not word.startswith("-")), "") if words[0] in _WITH_VERB else ""
            found.add(f"{name} {verb}".strip())
    return found


_OPTION = re.compile(
    r"--(?:ignore|ignore-glob|deselect|testPathIgnorePatterns|exclude|testNamePattern|testPathPattern|passWithNoTests|bail"
    r"|suppress-no-test-exit-code|collect-only|co|no-verify|skip|grep)|-[kmt]"
)
_WITH_VALUE = re.compile(r"--(?:passWithNoTests|bail|suppress|collect-only|co\b|no-verify)")
_BENIGN = {
    "node_modules",
    "dist",
    "build",
    "out",
    "target",
    "coverage",
    "venv",
    "env",
    "git",
    "tox",
    "nox",
    "next",
    "nuxt",
}
_BENIGN |= {
    "pycache",
    "eggs",
    "egg",
    "cache",
    "vendor",
    "lib",
    "bower_components",
    "rootdir",
    "cypress",
    "idea",
    "svn",
    "hg",
}


def _options(command: str) -> dict[str, str]:
    """The options of a command line that leave tests out."""
    try:
        words = shlex.split(command[:20_000])
    except ValueError:
        words = command[:20_000].split()
    found = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if not _OPTION.fullmatch(name) or (name in ("-m", "-t") and "pytest" not in command and name == "-t"):
            continue
        value = value if equals else "" if _WITH_VALUE.match(name) else following
        if (
            name == "-m"
            and re.fullmatch(r"[\w.]+", value)
            and f"python -m {value}" in command.replace("python3", "python")
        ):
            continue
        if not _is_benign(value):
            found[f"{name} {value}"] = f"{name} {value}".strip()
    return found


def _is_benign(value: str) -> bool:
    """Whether it names only folders that hold no tests of anybody's own."""
    words = [word for word in re.findall(r"\w+", value.lower()) if word]
    return bool(words) and all(word.strip("_") in _BENIGN for word in words)


def _config_reader(path: str) -> Callable[[str], _Settings | None] | None:
    name = path.rpartition("/")[2]
    if name in _CONFIG_READERS:
        return _CONFIG_READERS[name]
    if re.fullmatch(r"(?:jest|vitest|playwright|cypress|karma|vite)\.(?:config|conf|workspace)\.[cm]?[jt]s", name):
        return lambda text: _script_settings(text, only_tests=name.startswith("vite."))
    if re.fullmatch(r"jest\.config\.json|\.mocharc\.jsonc?", name):
        return _json_config
    if re.fullmatch(r"\.mocharc\.[cm]?js", name):
        return lambda text: _script_settings(text, only_tests=False)
    return _makefile if name.endswith(".mk") else None


# --- each kind of configuration ---------------------------------------------------------------------


# None is what can't be read: its own tool will say what is wrong with it.


def _ini(text: str) -> _Settings | None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    settings = _Settings()
    for section in parser.sections():
        values = {key: value or "" for key, value in parser.items(section)}
        if section in ("pytest", "tool:pytest"):
            _pytest(values, settings)
        if section in ("coverage:report", "report"):
            _floor(settings, values.get("fail_under"))
        if section.startswith("testenv") and values.get("commands"):
            settings.scripts[f"[{section}] commands"] = values["commands"]
    return settings


def _toml(text: str) -> _Settings | None:
    try:
        document: Any = tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    settings = _Settings()
    for table in (
        _at(document, "tool", "pytest", "ini_options"),
        _at(document, "tool", "pytest"),
        _at(document, "pytest"),
    ):
        _pytest({key: _words(value) for key, value in table.items() if key != "ini_options"}, settings)
    _floor(settings, _at(document, "tool", "coverage", "report").get("fail_under"))
    return settings


def _at(document: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _words(value: Any) -> str:
    return " ".join(str(one) for one in value) if isinstance(value, list) else str(value)


def _pytest(values: Mapping[str, str], settings: _Settings) -> None:
    settings.left_out |= _options(values.get("addopts", ""))
    if floor := re.search(r"--cov-fail-under[= ](\S+)", values.get("addopts", "")):
        _floor(settings, floor[1])
    for one in values.get("norecursedirs", "").split():
        if not _is_benign(one):
            settings.left_out[f"norecursedirs {one}"] = f"norecursedirs = {one}"
    for key in ("testpaths", "python_files", "python_classes", "python_functions"):
        if values.get(key, "").split():
            settings.places[key] = values[key].split()


def _floor(settings: _Settings, value: Any) -> None:
    if value is not None and re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", str(value)):
        settings.floors["the coverage that has to be reached"] = float(value)


_LISTS = {"testPathIgnorePatterns", "exclude", "testIgnore", "ignore", "modulePathIgnorePatterns", "excludeSpecPattern"}
_LISTS |= {"testNamePattern", "grep", "grepInvert", "invert", "fgrep"}
_SWITCHES = {"passWithNoTests", "bail", "allowOnly", "dangerouslyIgnoreUnhandledErrors"}
_FLOORS = {"branches", "functions", "lines", "statements"}
_KEY = re.compile(rf"[\"']?\b({'|'.join(sorted(_LISTS | _SWITCHES | _FLOORS))})\b[\"']?\s*+:\s*+")


def _script_settings(text: str, *, only_tests: bool) -> _Settings:
    """The configuration of Jest, Vitest and others as JavaScript: read, not run."""
    source = _Source(text, _LANGUAGES["js"].noise)
    settings = _Settings()
    coverage, tests = _spans(source, "coverage"), _spans(source, "test")
    for match in _KEY.finditer(source.code):
        if only_tests and not _is_within(match.start(), tests):
            continue
        key, at = match[1], match.end()
        stop = source.end_of(at) if source.bare[at : at + 1] == "[" else _value_end(source, at)
        value = source.code[at:stop].strip().rstrip(",")
        if key in _LISTS and _is_within(match.start(), coverage):
            continue  # what is not measured is tested all the same
        _take_setting(settings, key, re.findall(r"[\"'`/]([^\"'`\n]+)[\"'`/]", value) if key in _LISTS else value)
    return settings


def _value_end(source: _Source, at: int) -> int:
    found = re.compile(r"[,}\n]").search(source.bare, at)
    return found.start() if found else len(source.bare)


def _spans(source: _Source, key: str) -> list[tuple[int, int]]:
    found = re.finditer(rf"\b{key}\s*+:\s*+\{{", source.bare)
    return [(match.start(), source.end_of(match.end() - 1)) for match in found][:100]


def _is_within(at: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _take_setting(settings: _Settings, key: str, value: Any) -> None:
    if key in _LISTS:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one and not _is_benign(one):
                settings.left_out[f"{key} {one}"] = f"{key}: {one}"
    elif key in _SWITCHES:
        if str(value).lower() not in ("false", "0", "", "undefined", "none"):
            settings.left_out[key] = f"{key}: {_short(str(value), 40)}"
    elif re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", str(value)):
        name = f"the coverage of {key} that has to be reached"
        settings.floors[name] = min(float(value), settings.floors.get(name, 100.0))


def _json_settings(document: Any) -> _Settings:
    settings = _Settings()
    waiting = [document]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else ():
            if key in _LISTS | _SWITCHES | _FLOORS and not isinstance(value, dict):
                _take_setting(settings, key, value)
            waiting.append(value)
    return settings


def _json(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None


def _json_config(text: str) -> _Settings | None:
    document = _json(text)
    return None if document is None else _json_settings(document)


def _package(text: str) -> _Settings | None:
    document = _json(text)
    if document is None:
        return None
    settings = _json_settings(_at(document, "jest"))
    scripts = {name: one for name, one in _at(document, "scripts").items() if isinstance(one, str)}
    for name, command in scripts.items():
        if _SCRIPT.fullmatch(name):
            settings.scripts[f"the script {name}"] = _with_scripts(command, scripts)
    return settings


def _with_scripts(command: str, scripts: Mapping[str, str]) -> str:
    """With the commands of the scripts that it runs: `npm run unit && npm run lint`."""
    if "no test specified" in command:
        return ""
    called = re.findall(r"\b(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:-\S+\s+)*([\w:.-]+)", command)
    called += re.findall(r"[\w:.-]+", command) if re.match(r"(?:run-[sp]|npm-run-all|concurrently)\b", command) else []
    inner = [scripts[name] for name in dict.fromkeys(called[:50]) if name in scripts]
    return "\n".join([*inner, command]) if inner else command


_TARGET = re.compile(r"(?P<names>[^\s#:=][^:=#]*):(?![=:])(?P<needs>[^=;]*)(?:;(?P<first>.*))?\Z")


def _makefile(text: str) -> _Settings:
    targets: dict[str, tuple[list[str], list[str]]] = {}
    now: list[tuple[list[str], list[str]]] = []
    for line in text.replace("\\\n", " ").split("\n"):
        if line.startswith("\t"):
            for _, recipe in now:
                recipe.append(_recipe_line(line.strip()))
        elif line.strip() and not line.startswith("#") and (match := _TARGET.match(line[:5000])):
            now = [targets.setdefault(name, ([], [])) for name in match["names"].split()]
            for needs, recipe in now:
                needs += match["needs"].split()
                recipe += [_recipe_line(match["first"].strip())] if match["first"] else []
        elif line.strip() and not line.startswith("#"):
            now = []
    wanted = [name for name in targets if _SCRIPT.fullmatch(name)]
    return _Settings(scripts={f"the target {name}": _recipe(name, targets) for name in wanted[:200]})


def _recipe_line(line: str) -> str:
    return f"{line} || true" if line.lstrip("@+ ").startswith("-") else line


def _recipe(name: str, targets: Mapping[str, tuple[list[str], list[str]]]) -> str:
    """The commands of a target and of all that it needs."""
    seen, waiting = {name}, [name]
    lines: list[str] = []
    while waiting and len(lines) < 1000:
        needs, recipe = targets.get(waiting.pop(), ([], []))
        lines += recipe
        more = [one for one in needs if one not in seen]
        seen.update(more)
        waiting += more
    return "\n".join(lines)


_HOOKS = re.compile(
    r"^\s*(?:async\s+)?(?:def\s+)?(collect_ignore(?:_glob)?|pytest_(?:collection_modifyitems|ignore_collect|deselected"
    r"|pyfunc_call|runtest_(?:protocol|setup|call|makereport)|sessionfinish|report_teststatus))\b|\b(os\._exit|sys\.exit"
    r"|\.exitstatus\s*=|pytest_deselected|add_marker\([^\n]{0,80}(?:skip|xfail))",
    re.MULTILINE,
)


def _conftest(text: str) -> _Settings:
    code, bare = _mask(text, _PYTHON_NOISE)
    settings = _Settings()
    for match in _HOOKS.finditer(bare):
        name = match[1] or match[2]
        line = code[match.start() : match.start() + 5000].lstrip().partition("\n\n")[0]
        named = re.findall(r"[\"']([^\"'\n]+)[\"']", line) if name.startswith("collect_ignore") else []
        for one in named or [""]:
            if not _is_benign(one) and one not in ("setup.py", "conftest.py"):
                settings.left_out[f"{name} {one}"] = f"{name} {one}".strip()
    return settings


_PYTHON_NOISE = _noise(r"#[^\n]*", _TRIPLE, r"'''(?:.*?'''|.*)", _QUOTED, _SINGLE)
_CONFIG_READERS: dict[str, Callable[[str], _Settings | None]] = {
    "conftest.py": _conftest,
    "pyproject.toml": _toml,
    "pytest.toml": _toml,
    ".pytest.toml": _toml,
    "package.json": _package,
    **dict.fromkeys(("pytest.ini", ".pytest.ini", "setup.cfg", "tox.ini", ".coveragerc"), _ini),
    **dict.fromkeys(("Makefile", "makefile", "GNUmakefile"), _makefile),
}


# --- the spec ---------------------------------------------------------------------------------------

_BOX = re.compile(r"(?P<head>\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\[)(?P<mark>[^\[\]]{0,8})\](?P<text>.*)\Z", re.DOTALL)


def look_at_spec(
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
    old: Sequence[Story],
    new: Sequence[Story],
    story_id: str,
) -> list[Finding]:
    """What was done to the files of a spec beyond ticking boxes of the story.

    `old` and `new` are the stories as the adapter reads them; none if it no longer can.
    """
    ticks = _Ticks(old, new, story_id)
    found: list[Finding] = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one == other:
            continue
        if one is None or other is None:
            found.append(Finding("spec-edited", path, "the file was added" if one is None else "the file is gone"))
        elif path.endswith("prd.json"):
            found += _look_at_prd(path, one, other)
        else:
            found += _look_at_boxes(path, one, other, ticks)
    return found


class _Ticks:
    """The tasks that became done, to be claimed by the lines that were ticked."""

    def __init__(self, old: Sequence[Story], new: Sequence[Story], story_id: str) -> None:
        self.story_id = story_id
        open_before = {(story.id, task.id) for story in old for task in story.tasks if not task.done}
        self.by_text: dict[str, list[tuple[str, str]]] = {}
        self.by_id: dict[str, list[tuple[str, str]]] = {}
        self.all: list[tuple[str, str]] = []
        self.claimed: set[tuple[str, str]] = set()
        for story in reversed(new):
            for task in reversed(story.tasks):
                if task.done and (key := (story.id, task.id)) in open_before:
                    self.by_text.setdefault(_flat(task.text.partition("\n")[0]), []).append(key)
                    self.by_id.setdefault(task.id, []).append(key)
                    self.all.append(key)

    def claim(self, text: str) -> tuple[str, str] | None:
        """The story and task of a ticked line. Ids and tags may stand before the text."""
        words = _flat(text).split(" ")
        tails = (" ".join(words[start:]) for start in range(min(len(words), 8)))
        return self._first(self.by_text.get(tail, []) for tail in tails)

    def claim_any(self, text: str) -> tuple[str, str] | None:
        """For texts that the adapter cleans of marks: the task whose id stands there, else the next one."""
        words = re.findall(r"[\w.#-]+", text[:500])
        return self._first([*(self.by_id.get(word, []) for word in words), self.all])

    def _first(self, lists: Iterable[list[tuple[str, str]]]) -> tuple[str, str] | None:
        for keys in lists:
            while keys:
                if (key := keys.pop()) not in self.claimed:
                    self.claimed.add(key)
                    return key
        return None


def _flat(text: str) -> str:
    return " ".join(text.split())


def _look_at_boxes(path: str, one: bytes, other: bytes, ticks: _Ticks) -> list[Finding]:
    old, new = (data.decode("utf-8", "backslashreplace").split("\n") for data in (one, other))
    found: list[Finding] = []
    ticked: list[tuple[int, str]] = []
    for number, (before, after) in enumerate(zip(old, new, strict=False), 1):
        if before == after:
            continue
        change = _box_change(before, after)
        if change is None:
            return [*found, *_claimed(path, ticked, ticks), _edited(path, number, after)]
        if change == "ticked":
            ticked.append((number, after))
        else:
            found.append(Finding("unticked", path, f"line {number}: {_short(after)}"))
    found += _claimed(path, ticked, ticks)
    if len(old) != len(new):
        number = min(len(old), len(new)) + 1
        found.append(_edited(path, number, new[number - 1] if len(new) >= number else "cut off"))
    return found


def _edited(path: str, number: int, line: str) -> Finding:
    return Finding("spec-edited", path, f"line {number}: {_short(line)}")


def _box_change(before: str, after: str) -> Literal["ticked", "unticked"] | None:
    one, other = _BOX.match(before), _BOX.match(after)
    if one is None or other is None or one["head"] != other["head"]:
        return None
    was, now = one["mark"].strip() in ("x", "X"), other["mark"].strip() in ("x", "X")
    # Ticking `[ ](a)` needs a blank after the box, else it were a link.
    same = other["text"] in (one["text"], f" {one['text']}" if one["text"][:1] in ("(", "[") else one["text"])
    if was == now or not same:
        return None
    return "unticked" if was else "ticked" if other["mark"] in ("x", "X") else None


def _claimed(path: str, ticked: Sequence[tuple[int, str]], ticks: _Ticks) -> list[Finding]:
    texts = [(number, line, line.partition("]")[2]) for number, line in ticked]
    claims = [ticks.claim(text) for _, _, text in texts]
    claims = [claim or ticks.claim_any(text) for claim, (_, _, text) in zip(claims, texts, strict=True)]
    found = []
    for claim, (number, line, _) in zip(claims, texts, strict=True):
        if claim is None:
            found.append(_edited(path, number, line))
        elif claim[0] != ticks.story_id:
            found.append(
                Finding("other-story-ticked", path, f"story {_short(claim[0], 40)}, line {number}: {_short(line)}")
            )
    return found


_PASSES = re.compile(rb'("passes"\s*+:\s*+)(?:true|false)')


def _look_at_prd(path: str, one: bytes, other: bytes) -> list[Finding]:
    old, new = _passes(one), _passes(other)
    found = []
    for key, passes in new.items():
        if passes and not old.get(key, False):
            found.append(Finding("passes-flipped", path, f"{_short(key)}: passes is true now"))
        elif not passes and old.get(key, False):
            found.append(Finding("unticked", path, f"{_short(key)}: passes was true"))
    if not found or _PASSES.sub(rb"\1", one) != _PASSES.sub(rb"\1", other):
        lines = (data.decode("utf-8", "backslashreplace").split("\n") for data in (one, other))
        pairs = enumerate(zip(*lines, strict=False), 1)
        number, line = next(((number, after) for number, (before, after) in pairs if before != after), (0, "its end"))
        found.append(_edited(path, number, line) if number else Finding("spec-edited", path, "its end"))
    return found


def _passes(data: bytes) -> dict[str, bool]:
    """Every `passes` of the document, by the id of its story, else by its place."""
    try:
        waiting: list[Any] = [json.loads(data.decode("utf-8-sig", "replace"))]
    except (ValueError, RecursionError):
        return {}
    found: dict[str, bool] = {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and "passes" in one:
            name = f"story {one['id']}" if isinstance(one.get("id"), str | int) else f"story {len(found) + 1}"
            found[name] = one["passes"] is True or found.get(name, False)
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
    return found
