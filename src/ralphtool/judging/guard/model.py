"""The findings of the guard, and its model of a test: names, lines, assertions, skips.

Every language is read into the same model, so that comparing does not depend on the language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Literal

from msgspec import Struct

FindingKind = Literal[
    "test-deleted",
    "test-skipped",
    "assertion-weakened",
    "test-config",
    "spec-edited",
    "agent-config",
    "passes-flipped",
    "other-story-ticked",
    "unticked",
    "ralph-touched",
    "git-touched",
    "conflict-marker",
    "merge-clobber",
    "lint-config",
]
DECISIVE: frozenset[FindingKind] = frozenset(
    (
        "spec-edited",
        "agent-config",
        "passes-flipped",
        "other-story-ticked",
        "unticked",
        "ralph-touched",
        "git-touched",
        "conflict-marker",
        "merge-clobber",
    )
)
"""Only the diff can show these: an attempt with one of them fails."""
SUSPICIONS: frozenset[FindingKind] = frozenset(("test-deleted", "test-skipped", "assertion-weakened", "test-config"))
"""These say where to look: a run of the original tests decides."""
HAS_MARKERS = "it has conflict markers"
"""The detail of a conflict-marker, unless git set the file aside."""
WARNINGS: frozenset[FindingKind] = frozenset(("lint-config",))
"""These are reported: a run of the checks with their old configuration decides."""
MANY = 1000  # stands for a number of cases or rounds that the text does not show
LONGEST = 500_000  # characters; longer files are read coarsely
MOST_PAIRS = 20_000  # beyond this, not all pairs are compared
ALWAYS_TRUE, LOOSE, PARTIAL, EXACT = range(4)
UNCONDITIONAL = frozenset(("skip", "return", "if False", "__test__"))


class FileChange(Struct, frozen=True):
    """One file. `old` is None if it is new, `new` if it is gone; `old_path` is set for a rename."""

    path: str
    old: bytes | None
    new: bytes | None
    old_path: str | None = None


class GuardFinding(Struct, frozen=True):
    """Something that an honest attempt has no reason to do; `detail` is one line for people."""

    kind: FindingKind
    path: str
    detail: str

    @property
    def is_decisive(self) -> bool:
        return self.kind in DECISIVE

    @property
    def is_suspicion(self) -> bool:
        return self.kind in SUSPICIONS

    @property
    def is_warning(self) -> bool:
        return self.kind in WARNINGS


class Assertion(Struct, frozen=True):
    """One assertion. Equal texts are the same assertion; `parts` has the subjects that it checks only in part."""

    text: str
    subjects: tuple[str, ...]
    strength: int
    weight: int = 1
    parts: tuple[str, ...] = ()
    raises: tuple[str, ...] | None = None
    matched: bool = False
    structured: bool = False
    """Whether it checks several values of its subject at once."""
    fixed: bool = False
    """Whether it is only about constants, as in `1 + 1 == 2`."""


class CallSite(Struct, frozen=True):
    """A call of a function that may contain assertions."""

    name: str
    convert: Callable[[int], Assertion]
    """Converts it to one assertion of a given weight: only used for calls that turn out to assert."""
    weight: int
    asserts: bool = False
    """Whether its name says so and its result is not used, as in `check_it(x)`: its purpose is to fail."""
    fixed: bool = False
    """Whether it checks only constants."""


class Body(Struct):
    """What a test does. It is `unknown` if it could not be read."""

    checks: list[Assertion] = []
    calls: list[CallSite] = []
    doubts: list[str] = []
    """What may fail the test in a way that is not known: the names of calls, or a word such as `throw`."""
    skips: dict[str, str] = {}
    empty: bool = False
    loops: bool = False
    unknown: bool = False


# Compiled when first used: every run imports this before its first event.
_SYMBOL = r"[^\W\d]\w*|\d+|[^\w\s]"
_NAME = r"(?!(?i:assert|expect|should|must|refute|xct)|to[A-Z_])[^\W\d]"
_WORDS = r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[=!<>]="


class Test(Struct, dict=True, eq=False):
    """A test, or a function beside tests. Its body is read only on demand: most tests do not change."""

    owner: str
    bare: str
    lines: tuple[str, ...]
    read: Callable[[], Body]
    outer_skips: dict[str, str]
    cases: int = 1
    number: int = 1
    """Distinguishes tests of the same name, by their order."""

    @property
    def name(self) -> str:
        return f"{self.owner}{self.bare}" if self.number == 1 else f"{self.owner}{self.bare} #{self.number}"

    @cached_property
    def body(self) -> Body:
        try:
            return self.read()
        except (RecursionError, MemoryError):
            return build_unknown_body()

    @property
    def skips(self) -> dict[str, str]:
        return {**self.outer_skips, **self.body.skips}

    @cached_property
    def words(self) -> Counter[str]:
        text = " ".join((self.bare, *self.lines[:200]))[:20_000]
        return Counter(word.lower() for word in re.findall(_WORDS, text))

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Its tokens with each name replaced by a number, so that renaming does not change it."""
        names: dict[str, int] = {}
        tokens = re.findall(_SYMBOL, "\n".join(self.lines)[:20_000])
        is_name = re.compile(_NAME).match
        shape = tuple(names.setdefault(one, len(names)) if is_name(one) else one for one in tokens)
        return shape if len(shape) > 8 else ()

    @property
    def rest(self) -> tuple[str, ...]:
        """All lines without those that contain its name."""
        return tuple(line for line in self.lines if self.bare not in line)


class ParsedTestFile(Struct):
    """A file of tests. `coarse` has its number of assertions and its skips, if bodies could not be separated."""

    text: str = ""
    tests: dict[str, Test] = {}
    beside: dict[str, Test] = {}
    """Functions that are not tests, by name."""
    focused: tuple[str, ...] = ()
    coarse: tuple[int, Counter[str]] | None = None


def add_skip(skips: dict[str, str], key: str, shown: str) -> None:
    """A second skip of a kind is counted separately: the first may have had a condition."""
    number = 1
    while f"{key} {number}" in skips and number < 20:
        number += 1
    skips[f"{key} {number}"] = shown


_QUIET = (
    r"(?:.*\.)?(?:[Pp]rint\w*|e?println!?|dbg!|[Ll]og\w*|debug|info|warn\w*|error|puts|pp?|echo|diagnostic|append|push|sleep"
    r"|Run|Parallel|Helper|Cleanup|[Ff]or_?[Ee]ach|each|map|describe|context|suite|it|test|subTest|set\w*)"
    r"|(?:console|jest|vi|mock|sinon|logging|logger|warnings|monkeypatch|mocker)\..*"
)
_CHECKING = (
    r"(?i)(?:.*[._])?(?:assert|check|expect|verify|ensure|must|should|validate|raise|throw|require|fail|to_|not_to|have|toHave"
    r"|toBe|panic|die|abort)\w*"
)


def may_check(name: str, *, has_subject: bool) -> bool:
    """Whether a call whose result is not used may be there to fail: it gets something to check, or its name says so."""
    if re.fullmatch(_QUIET, name):
        return False
    return has_subject or re.fullmatch(_CHECKING, name) is not None


def build_unknown_body() -> Body:
    """The body of a test that is too deep, too long or nested too often."""
    return Body(unknown=True)


def shorten(text: str, limit: int = 100) -> str:
    if len(text) <= limit and text.isprintable() and "  " not in text:
        return text.strip()
    line = " ".join(text[: 4 * limit].split())
    shown = "".join(char if char.isprintable() else "?" for char in line)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def decode(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
