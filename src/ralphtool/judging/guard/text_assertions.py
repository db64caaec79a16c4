"""What one assertion says in languages that are read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ralphtool.judging.guard.masked_text import Source
from ralphtool.judging.guard.model import ALWAYS_TRUE, EXACT, LOOSE, PARTIAL, Assertion

_CHAIN = re.compile(r"\s*(?:\?\.|\.|->|::)\s*(\w+)[!?]?\s*(?:<[^<>()\n]{0,100}>)?")
_OPEN = re.compile(r"\s*+(?:<[^<>()\n]{0,100}>\s*+)?[({]")


def parse_text_assertions(
    source: Source, pattern: re.Pattern[str], start: int, end: int, *, lines: bool
) -> list[Assertion]:
    """With `lines`, an assertion ends with its line."""
    found, past = [], start
    for match in pattern.finditer(source.bare, start, end):
        if match.start() >= past:
            said = _ParsedAssertion(source, match)
            said.follow(end)
            if lines:
                said.parse_rest_of_line(end)
            past = said.at
            found.append(said.check(" ".join(source.code[match.start() : past].split())[:2000]))
    return found


class _ParsedAssertion:
    """One assertion while it is taken apart: its words, its arguments, and those of its last word."""

    def __init__(self, source: Source, match: re.Match[str]) -> None:
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
        return self.source.arguments(opening)

    def parse_rest_of_line(self, end: int) -> None:
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

    def check(self, text: str) -> Assertion:
        matcher = self.words[-1].lower()
        if matcher in _FAILING:
            return _parse_failing_call(text, self.source.code[max(0, self.start - 300) : self.start])
        if self._is_throwing():
            names = tuple(name for name in _CLASSES.findall(text) if name not in self.words)
            if matcher.endswith(("_throw", "_throws_as")) and len(self.first) > 1:
                names = tuple(re.findall(r"\w+", self.first[-1])[-1:])
            return Assertion(text, (), EXACT, raises=names, matched=bool(re.search("[\"'/]", "".join(self.last))))
        if self.first[:1] == ["t"] and len(self.first) > 1:  # testify: assert.Equal(t, want, got)
            self.first = self.first[1:]
        if matcher.endswith("that") and len(self.first) > 1:  # NUnit: Assert.That(x, Is.EqualTo(3))
            matcher = re.sub(r"\W+", "", self.first[1].partition("(")[0]).lower()
            return Assertion(text, _find_subjects(self.first[:1]), _measure_matcher(matcher))
        if self.chained:
            return self._build_chained(text, matcher)
        if matcher in _BOOLEAN:
            return _parse_expression(text, self.first[0] if self.first else "", negated=matcher in _NEGATED)
        subjects = _find_subjects(self.first[:2])
        if len(self.first) > 1 and _is_literal(self.first[0]) and self.first[0] == self.first[1]:
            return Assertion(text, (), ALWAYS_TRUE)
        return Assertion(text, subjects, _measure_matcher(matcher))

    def _is_throwing(self) -> bool:
        negated = {"not", "not_to", "to_not"} & set(self.words)
        named = _THROWS.search("".join(self.words[-2:])) or "".join(self.first[:1]).startswith("throws:")
        return bool(named) and not negated

    def _build_chained(self, text: str, matcher: str) -> Assertion:
        subject = self.first[0] if self.first else ""
        truths = matcher in _BOOLEAN_MATCHERS or (self.last and self.last[0] in ("true", subject))
        if re.search(r"\|\|\s*true\b", subject) or (truths and _is_literal(subject)):
            return Assertion(text, _find_subjects([subject.partition("||")[0].strip()]), ALWAYS_TRUE)
        negated = bool({"not", "not_to", "to_not", "Not", "never"} & set(self.words))
        strength = _measure_matcher(matcher)
        if negated:
            strength = EXACT if strength == LOOSE else LOOSE
        if strength == EXACT and self.last and re.search(r"\bany(?:thing)?\s*\(", self.last[0]):
            strength = LOOSE
        return Assertion(text, _find_subjects([subject]), strength)


_FAILING = {"error", "errorf", "fatal", "fatalf", "fail", "failnow"}
_CONDITION = re.compile(r"\bif\s+(?:[^;{}\n]*;\s*)?([^{}\n]+?)\s*\{\s*\Z")


def _parse_failing_call(text: str, before: str) -> Assertion:
    """Go: `if got != want { t.Errorf(…) }` asserts that they are equal; the message does not matter."""
    found = _CONDITION.search(before)
    if found is None:
        return Assertion(text, (), EXACT)
    said = " ".join(found[1].split())
    equal = re.fullmatch(r"!\s*(?:reflect\.DeepEqual|cmp\.Equal|\w+\.Equal)\((.*?), (.*)\)|(.*?) != (.*)", said)
    if equal and "&&" not in said:
        return Assertion(f"if {said}", _find_subjects(one for one in equal.groups() if one), EXACT)
    sides = re.split(r"\s(?:==|!=|<=|>=|<|>)\s", said.partition("&&")[0].strip(), maxsplit=1)
    strength = ALWAYS_TRUE if said == "false" else PARTIAL if re.search(r"[<>]|&&", said) else LOOSE
    return Assertion(f"if {said}", _find_subjects(one.lstrip("! ") for one in sides), strength)


_THROWS = re.compile(r"throw|raise|FailsWith|expectException", re.IGNORECASE)
_CLASSES = re.compile(r"\b\w*(?:Error|Exception|Throwable|exception)\b")
_NEGATED = {"refute", "assertfalse", "assert_false", "expect_false", "xctassertfalse", "false", "isfalse"}
_BOOLEAN = {"assert", "true", "asserttrue", "istrue", "ok", "xctassert", "xctasserttrue", "expect_true"}
_BOOLEAN |= {"assert_true", "check", "require", "expect", "assert_", "truthy", "boost_check", "boost_require"}
_BOOLEAN |= {"boost_test", "debug_assert"}
_BOOLEAN |= _NEGATED
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


def _measure_matcher(name: str) -> int:
    if _LOOSE_MATCHER.search(name):
        return LOOSE
    return PARTIAL if _PARTIAL_MATCHER.search(name) else EXACT


_LITERAL = re.compile(r"(?:!*(?:true|false|null|nil|None|undefined|:ok)|-?[0-9][\w.]*|\"[^\"]*\"|'[^']*'|`[^`]*`)\Z")


def _is_literal(text: str) -> bool:
    return _LITERAL.match(text) is not None


def _find_subjects(arguments: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in arguments if one and not _is_literal(one))


_OPERATOR = re.compile(r"\s(===?|!==?|=~|<=|>=|<|>|in)\s|\s(\|\||or)\s")


def _parse_expression(text: str, said: str, *, negated: bool = False) -> Assertion:
    """What `assert!(a == b)` says."""
    if re.fullmatch(r"true|1|!\s*false|!0|not false", said) or re.search(r"(?:\|\||\bor)\s*(?:true|1)\s*\)?\Z", said):
        strength = LOOSE if negated else ALWAYS_TRUE
        return Assertion(text, _find_subjects([re.split(r"\s(?:===?|\|\||or)\s", said)[0].strip("( ")]), strength)
    found = _OPERATOR.search(said)
    if found is None:
        return Assertion(
            text, _find_subjects([said]), PARTIAL if re.search(r"\bmatches!|contains|\bis\b", said) else LOOSE
        )
    sides = said[: found.start()].strip(), said[found.end() :].strip()
    equal = found[1] in ("==", "===") and not re.search(r"\s(?:\|\||or)\s", said)
    if sides[0] == sides[1] and equal and "(" not in sides[0]:
        return Assertion(text, _find_subjects(sides), ALWAYS_TRUE)
    strength = EXACT if equal and not negated else LOOSE if found[1] in ("!=", "!==") or found[2] else PARTIAL
    return Assertion(text, _find_subjects(sides), strength)
