"""What one assertion checks, by its words and arguments: the vocabulary that languages other than Python share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ralphtool.judging.guard.model import ALWAYS_TRUE, EXACT, LOOSE, PARTIAL, Assertion


class Claim(Struct, frozen=True):
    """An assertion as it is written: `expect(a).not.toBe(3)` is expect, not, toBe; first is a, last is 3."""

    text: str
    words: Sequence[str]
    first: Sequence[str]
    last: Sequence[str]
    chained: bool = False
    """Whether the first argument is the subject, and the claim about it follows."""
    structured: bool = False
    """Whether its last argument has several values at once."""


def parse_claim(claim: Claim) -> Assertion:
    parsed = _parse(claim)
    return replace(parsed, fixed=True) if _is_fixed(claim) else parsed


def _is_fixed(claim: Claim) -> bool:
    """Whether it compares only constants. The test itself may be the subject, so the words must say "compare"."""
    first = [one for one in claim.first[:2] if one != "t"]
    arguments = [*first, *claim.last[:2]] if claim.chained else claim.first[1:3] if "t" in claim.first[:1] else first
    is_comparing = _COMPARING.match(claim.words[-1].rstrip("!?")) is not None
    if not is_comparing or not arguments or not (claim.chained or len(arguments) > 1):
        return len(arguments) > 0 and claim.words[-1].rstrip("!?").lower() in _BOOLEAN and _is_computed(arguments[0])
    # `expect(true).toBe(false)` says that this place must not be reached.
    return not {"true", "false"} & set(arguments) and all(map(is_constant, arguments))


def _is_computed(text: str) -> bool:
    return not _is_literal(text) and is_constant(text)


def is_constant(text: str) -> bool:
    """Whether there are only literals and operators in it."""
    rest = _STRING.sub("0", text)
    return not any(one in rest for one in "\"'`") and not set(_NAME.findall(rest)) - _CONSTANT_NAMES


def _parse(claim: Claim) -> Assertion:
    matcher = claim.words[-1].lower().rstrip("!?")
    if _is_throwing(claim):
        return _parse_throwing(claim, matcher)
    first = list(claim.first)
    if first[:1] == ["t"] and len(first) > 1:  # testify: assert.Equal(t, want, got)
        del first[0]
    if (
        matcher.endswith("that") and len(first) > 1
    ):  # NUnit: Assert.That(x, Is.EqualTo(3)), Hamcrest: assertThat(x, is(3))
        matcher = re.sub(r"\W+", "", first[1].partition("(")[0]).lower()
        return Assertion(claim.text, find_subjects(first[:1]), _measure_matcher(matcher))
    if claim.chained:
        return _parse_chained(claim, matcher)
    if matcher in _BOOLEAN:
        return parse_condition(claim.text, first[0] if first else "", negated=matcher in _NEGATED)
    if len(first) > 1 and _is_literal(first[0]) and first[0] == first[1]:
        return Assertion(claim.text, (), ALWAYS_TRUE)
    return Assertion(claim.text, find_subjects(first[:2]), _measure_matcher(matcher))


_COMPARING = re.compile(
    r"(?i)(?:debug_)?(?:assert_?|are_?|to_?|must_|be_?)*(?:not_?)?(?:strict_?|deep_?)*"
    r"(?:equals?|eq|ne|same|identical|be|is|equal_to|greater\w*|less\w*)\Z"
)
_STRING = re.compile(r"\"(?:[^\"\\#${]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`$\\]*`")
_NAME = re.compile(r"[^\W\d]\w*")
_CONSTANT_NAMES = frozenset(("true", "false", "null", "nil", "None", "undefined", "NaN", "len", "length", "size"))


def _is_throwing(claim: Claim) -> bool:
    negated = _NEGATING & set(claim.words)
    named = _THROWS.search("".join(claim.words[-2:])) or "".join(claim.first[:1]).startswith("throws:")
    return bool(named) and not negated


def _parse_throwing(claim: Claim, matcher: str) -> Assertion:
    names = tuple(name for name in _CLASSES.findall(claim.text) if name not in claim.words)
    if matcher.endswith(("_throw", "_throws_as")) and len(claim.first) > 1:
        names = tuple(re.findall(r"\w+", claim.first[-1])[-1:])
    matched = bool(re.search("[\"'/]", "".join(claim.last)))
    return Assertion(claim.text, (), EXACT, raises=names, matched=matched)


def _parse_chained(claim: Claim, matcher: str) -> Assertion:
    subject = claim.first[0] if claim.first else ""
    truths = matcher in _BOOLEAN_MATCHERS or (claim.last and claim.last[0] in ("true", subject))
    if re.search(r"\|\|\s*true\b", subject) or (truths and _is_literal(subject)):
        return Assertion(claim.text, find_subjects([subject.partition("||")[0].strip()]), ALWAYS_TRUE)
    strength = _measure_matcher(matcher)
    if _NEGATING & set(claim.words):
        strength = EXACT if strength == LOOSE else LOOSE
    if strength == EXACT and claim.last and _ANYTHING.match(claim.last[0]):
        strength = LOOSE
    return Assertion(claim.text, find_subjects([subject]), strength, structured=claim.structured)


_NEGATING = {"not", "not_to", "to_not", "Not", "never", "should_not"}
_ANYTHING = re.compile(r"(?:\w+\.)*any(?:thing)?\s*\(")
_THROWS = re.compile(r"throw|raise|FailsWith|expectException|rejects", re.IGNORECASE)
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
    r"|member|keys?\Z|property\Z|[<>]"
)


def _measure_matcher(name: str) -> int:
    if _LOOSE_MATCHER.search(name):
        return LOOSE
    return PARTIAL if _PARTIAL_MATCHER.search(name) else EXACT


_LITERAL = re.compile(r"(?:!*(?:true|false|null|nil|None|undefined|:ok)|-?[0-9][\w.]*|\"[^\"]*\"|'[^']*'|`[^`]*`)\Z")


def _is_literal(text: str) -> bool:
    return _LITERAL.match(text) is not None


def find_subjects(arguments: Iterable[str]) -> tuple[str, ...]:
    """What an assertion is about, without the constants."""
    return tuple(one for one in arguments if one and not _is_literal(one))


_OPERATOR = re.compile(r"\s(===?|!==?|=~|<=|>=|<|>|in)\s|\s(\|\||or)\s")


def parse_condition(text: str, said: str, *, negated: bool = False) -> Assertion:
    """What `assert!(a == b)` checks."""
    if re.fullmatch(r"true|1|!\s*false|!0|not false", said) or re.search(r"(?:\|\||\bor)\s*(?:true|1)\s*\)?\Z", said):
        strength = LOOSE if negated else ALWAYS_TRUE
        return Assertion(text, find_subjects([re.split(r"\s(?:===?|\|\||or)\s", said)[0].strip("( ")]), strength)
    found = _OPERATOR.search(said)
    if found is None:
        strength = PARTIAL if re.search(r"\bmatches!|contains|\bis\b", said) else LOOSE
        return Assertion(text, find_subjects([said]), strength)
    sides = said[: found.start()].strip(), said[found.end() :].strip()
    equal = found[1] in ("==", "===") and not re.search(r"\s(?:\|\||or)\s", said)
    if sides[0] == sides[1] and equal and "(" not in sides[0]:
        return Assertion(text, find_subjects(sides), ALWAYS_TRUE)
    strength = EXACT if equal and not negated else LOOSE if found[1] in ("!=", "!==") or found[2] else PARTIAL
    return Assertion(text, find_subjects(sides), strength)


_EQUAL = re.compile(r"!\s*(?:reflect\.DeepEqual|cmp\.Equal|\w+\.Equal)\((.*?), (.*)\)|(.*?) != (.*)")


def parse_failing_branch(condition: str) -> Assertion:
    """Go: `if got != want { t.Errorf(…) }` asserts that they are equal; the message does not matter."""
    parsed = _parse_failing_branch(condition)
    return replace(parsed, fixed=True) if condition != "true" and is_constant(condition) else parsed


def _parse_failing_branch(condition: str) -> Assertion:
    equal = _EQUAL.fullmatch(condition)
    if equal and "&&" not in condition:
        return Assertion(f"if {condition}", find_subjects(one for one in equal.groups() if one), EXACT)
    sides = re.split(r"\s(?:==|!=|<=|>=|<|>)\s", condition.partition("&&")[0].strip(), maxsplit=1)
    strength = ALWAYS_TRUE if condition == "false" else PARTIAL if re.search(r"[<>]|&&", condition) else LOOSE
    return Assertion(f"if {condition}", find_subjects(one.lstrip("! ") for one in sides), strength)
