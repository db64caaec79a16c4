"""Finds out whether two texts say the same: a rewording of one learning, not only a sentence with the same structure.

The number of shared words does not decide that: "run `make db` first" and "run `make lint` first" share more words than
two wordings of one thing. So there are three questions. How much of their words do the texts share? Does each of them
name something that the other one does not, or have another word between the same words? Does one of them deny what
the other one says?

How a text is split is in `clauses`, the last question in `contradiction`.
"""

from __future__ import annotations

from ralphtool.memory import tokens
from ralphtool.memory.clauses import MOST_READ, ParsedText, Unit, strip_colours
from ralphtool.memory.contradiction import are_opposite, find_opposite_words
from ralphtool.memory.fingerprint import compile_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    Level = Literal["same", "likely", "related", "new"]
    Weight = Callable[[str], float]

SAME, LIKELY, RELATED = 0.56, 0.45, 0.12
_OTHER_NAMES = 0.45  # the cost if each text names something that the other one does not
_OTHER_WORDS = 4.0  # the cost of replaced words, times their share of the text
_MOST_COST = 0.5
_MOST_RENAMED = 3  # words in which two texts may differ and still count as the same text
_MOST_UNSHARED = 12  # words in only one text: with more, the difference is not a misspelling
_UNKNOWN = 0.8  # of the greatest weight: very rare words

# Output of programs, and text that only people write: a number is arbitrary in the one, but the point of the other.
_OUTPUT = (
    r"(?i:error|exception|fail(?:ed|ure)|fatal|panic|traceback|can(?:no|')t|could not|timed out|invalid|exceeded|"
    r"refused|denied|not found|elapsed|exited|retry after|\berr\b)|\w\.\w+:\d|^\s*at |=="
)
_SMALL_WORDS = 0.25  # of all words: output has fewer of them,
_MOST_SMALL_WORDS = 0.36  # and this is the most for a line next to one that is surely output
_MOST_IN_MESSAGE = 0.5  # the most after a program's name
_NAMED = r"^\W*[\w./-]+(?:\([\w:.-]+\))?(?:\[\d+\])?: \S"  # programs print their name first
_ADVICE = (
    r"(?i)\b(?:must|should|needs?|always|never|since|so|use|set|run|keep|limit|raise|add|don't|avoid|means|instead|"
    r"unless|otherwise)\b(?=\s+[\w`'\"])"
)
_SURELY_OUTPUT = (
    r"\w(?:Error|Exception)\b|^\W*(?:[\w.()-]+:? ){0,2}(?i:error|fatal|panic|err|e)\b(?: [A-Z]*\d+)?\s?[:!\[(]|"
    r"\w\.\w+[:(]\d|^\s*at "
)
# A line with an address or an id is a program's output, unless it says what to do with it.
_MACHINE = (
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b0[xX][0-9a-fA-F]{3,}|\b[A-Za-z]{2,30}_-?\d+(?:_\w{1,20}|\d{3})|"
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|\b(?=[a-f]{0,40}\d)(?=\d{0,40}[a-f])[0-9a-f]{8,40}\b"
)
# Names with values, dumped objects, a name before two colons, and dots up to a value: sentences don't have these.
_RECORD = (
    r"\(\w{1,40}=[^\s)]{0,80}\)|\w=\S{0,80}[ ,;]{1,3}\w{1,40}=\S|\w[:=]\[|[A-Za-z]\{\w|\w ?\.{4,} ?\w|\w\(s\)|"
    r"^\s*(?:\*{3}|={3}|>{3}|-{3})|^\W*[\w.-]{2,40}(?:\[\d+\])?: [\w ]{2,60}: \S|"
    r"\b[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}\b"
)
_ORDER = (
    r"(?i)\b(?:must|should|ha(?:s|ve) to|needs|always|never|don't|avoid|instead(?! of \w+ \d)|unless|otherwise)\b|"
    r"^\W*(?:use|set|run|keep|limit|raise|add|make|give|put|point|the)\s+[\w`'\"]|\buse `"
)
# People give reasons, and write sentences.
_TOLD = r"(?i)(?<!-)\b(?:because|whenever|when|if|only|means)\b"
_ABOUT = r"(?i)\b(?:it|we|you|this|works?|enough|too|defaults?|settings?)\b|`"
_SENTENCE = r"(?i)\b(?:the|an?|is|are|every)\b|;\s|\.\s*$"
_ARTICLES = ("a", "an", "the")
_QUOTED_MARK = r"['\"`\u2018\u201c]([^\w\s'\"`]{1,3})['\"`\u2019\u201d]"
# Lines without a sentence's structure: an identifier at the start, or hardly any small words.
_IDENTIFIER = r"^\W*[a-z]{2,}[A-Z]\w*\b(?!`)"
_MOST_TERSE = 8  # words; longer texts with so few small words may be in another language
_FEW_SMALL_WORDS = 0.2
_PROGRAM = r"^\W*(?:[a-z][\w./-]*|[A-Z]\w{0,40}[a-z][A-Z]\w{0,40})(?:\([\w:.-]+\))?(?:\[\d+\])?: \S"


class Match:
    """How far two texts say the same."""

    __slots__ = ("is_opposite", "level", "score")

    def __init__(self, level: Level, score: float, is_opposite: bool = False) -> None:
        self.level: Level
        self.score: float
        self.is_opposite: bool
        for name, value in (("level", level), ("score", score), ("is_opposite", is_opposite)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Match can't be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Match) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Match(level={self.level!r}, score={self.score:.3f}, is_opposite={self.is_opposite})"

    def _all(self) -> tuple[str, float, bool]:
        return self.level, self.score, self.is_opposite


def match_texts(one: str, other: str, weight: Weight, same_fingerprint: bool = False) -> Match:
    """How far two texts say the same. `weight` returns how rare a term is.

    `same_fingerprint` means that they differ only in parts that change from run to run. That includes numbers in a
    program's output, but in advice a number may be all that matters.
    """
    left, right = ParsedText(one), ParsedText(other)
    if not left.units or not right.units:
        is_alike = bool(one.strip()) and _normalize(one) == _normalize(other)
        return Match("same", 1.0) if is_alike else Match("new", 0.0)
    flips = find_opposite_words(left, right)
    pair = _Pair(left, right, weight, flips)
    if same_fingerprint and (_is_output(one) or not _is_prose(one) or pair.has_same_numbers()):
        return Match("same", 1.0)
    score = pair.score()
    if score >= SAME and _is_another_message(one, other, pair):
        score = SAME - 0.01
    if score >= LIKELY and are_opposite(left, right, flips):
        return Match("related", LIKELY - 0.01, is_opposite=True)
    return Match(_find_level(score), score)


def _find_level(score: float) -> Level:
    if score >= SAME:
        return "same"
    if score >= LIKELY:
        return "likely"
    return "related" if score >= RELATED else "new"


def _normalize(text: str) -> str:
    return " ".join(text[:MOST_READ].split()).casefold()


def _is_output(text: str) -> bool:
    if _has_pattern(_MACHINE, text) and not _has_pattern(_ORDER, text):
        return True
    if _has_pattern(_RECORD, text) and not any(_has_pattern(trace, text) for trace in (_ADVICE, _ORDER, _TOLD, _ABOUT)):
        return True
    return _has_pattern(_OUTPUT, text) and not _has_pattern(_ADVICE, text)


def _is_record(text: str) -> bool:
    return _has_pattern(_MACHINE, text) or _has_pattern(_RECORD, text)


def _is_prose(text: str) -> bool:
    """Whether a person wrote this: small words between the others, and no program's name at the start."""
    if _has_pattern(_ADVICE, text):
        return True
    return _measure_small_words(text) >= _SMALL_WORDS and not _has_pattern(_NAMED, text)


def _measure_small_words(text: str) -> float:
    found = tokens.split_plain_words(text[:MOST_READ])
    return sum(word in tokens.COMMON for word in found) / len(found) if found else 1.0


def _are_output(one: str, other: str) -> bool:
    """Whether both are output of programs, at least one of them beyond doubt."""
    one, other = (strip_colours(text[:MOST_READ]) for text in (one, other))
    if not _may_be_output(one) or not _may_be_output(other):
        return False
    return _is_surely_output(one) or _is_surely_output(other)


def _is_another_message(one: str, other: str, pair: _Pair) -> bool:
    """Whether both are output of programs, which don't reword their messages: other words are another failure."""
    if _are_output(one, other):
        return not pair.is_equal() or _find_small_parts(one) != _find_small_parts(other)
    return _are_terse(one, other) and not pair.is_shared()


def _find_small_parts(text: str) -> tuple[list[str], list[str]]:
    """What is not compared as a word, but distinguishes messages: "to" and "from", and marks as in "expected ';'"."""
    text = text[:MOST_READ]
    small = [word for word in tokens.split_plain_words(text) if word in tokens.COMMON and word not in _ARTICLES]
    return small, compile_pattern(_QUOTED_MARK).findall(text)


def _are_terse(one: str, other: str) -> bool:
    """Whether both may be messages of programs that contain no trace of a person."""
    return all(_is_terse(strip_colours(text[:MOST_READ])) for text in (one, other))


def _is_terse(text: str) -> bool:
    if not text.isascii() or "`" in text or any(_has_pattern(trace, text) for trace in (_ADVICE, _TOLD, _ORDER)):
        return False
    if _has_pattern(_IDENTIFIER, text) or (_has_pattern(r"\d", text) and not _has_pattern(_SENTENCE, text)):
        return True
    return len(text.split()) <= _MOST_TERSE and _measure_small_words(text) <= _FEW_SMALL_WORDS


def _may_be_output(text: str) -> bool:
    if _has_pattern(_SURELY_OUTPUT, text) and text.strip().count("\n") > 1:
        return True  # output of several lines can contain advice
    if _is_record(text):
        return not _has_pattern(_ORDER, text)
    if _has_pattern(_SURELY_OUTPUT, text):
        return not _has_pattern(_ORDER, text) and not _has_pattern(_TOLD, text)
    if any(_has_pattern(one, text) for one in (_ADVICE, _TOLD)):
        return False
    if _has_pattern(_PROGRAM, text):
        return _has_pattern(_OUTPUT, text) or _measure_small_words(text) < _MOST_IN_MESSAGE
    if _measure_small_words(text) >= _MOST_SMALL_WORDS:
        return False
    if _has_pattern(_OUTPUT, text) or _has_pattern(_NAMED, text):
        return True
    return _has_pattern(r"\d", text) and not _has_pattern(_SENTENCE, text)


def _is_surely_output(text: str) -> bool:
    evidence = (_SURELY_OUTPUT, _MACHINE, _RECORD, _PROGRAM)
    return any(_has_pattern(one, text) for one in evidence) or _measure_small_words(text) < _SMALL_WORDS


def _has_pattern(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).search(text[:MOST_READ]) is not None


# --- shared words --------------------------------------------------------------------------------


class _Side:
    """One of two texts, and which of its units the other one has too."""

    def __init__(self, mine: ParsedText, yours: ParsedText, known: set[str], weight: Weight) -> None:
        self._weight = weight
        self.units = [(unit, yours.has(unit) or unit.key in known) for unit in mine.units]
        values = {unit.key: (self._value(unit), is_shared) for unit, is_shared in self.units}
        self.total = sum(value for value, _ in values.values()) or 1.0
        self.shared = sum(value for value, is_shared in values.values() if is_shared) / self.total
        self.names = {unit.key for unit, is_shared in self.units if unit.is_name and not is_shared}
        self.numbers = [unit.key for unit in mine.units if unit.is_number]

    def _value(self, unit: Unit) -> float:
        return 0.0 if unit.is_reversing else self._weight(unit.term)

    def neighbours(self) -> set[tuple[str, str]]:
        """The pairs of shared words that follow each other."""
        keys = [unit.key for unit, is_shared in self.units if is_shared]
        return set(zip(["", *keys], [*keys, ""], strict=True))

    def gaps(self) -> dict[tuple[str, str], float]:
        """The weight of the unshared words between two shared ones."""
        gaps: dict[tuple[str, str], float] = {}
        before, value = "", 0.0
        for unit, is_shared in self.units:
            if is_shared:
                gaps[before, unit.key] = value
                before, value = unit.key, 0.0
            else:
                value += self._value(unit)
        gaps[before, ""] = value
        return gaps


class _Pair:
    """Two texts side by side."""

    def __init__(self, left: ParsedText, right: ParsedText, weight: Weight, flips: dict[str, str]) -> None:
        # opposites are about the same thing; whether they deny each other is checked separately
        self._flips = flips
        known = _find_typos(left, right, weight).union(flips, flips.values())
        self._left, self._right = _Side(left, right, known, weight), _Side(right, left, known, weight)

    def score(self) -> float:
        """The shared part, reduced by costs for differences."""
        shared: float = (self._left.shared * self._right.shared) ** 0.5
        cost = _OTHER_WORDS * self._measure_replaced() * self._measure_order()
        if (self._left.names and self._right.names) or self._is_renamed():
            cost += _OTHER_NAMES
        return min(1.0, shared * (1 - min(_MOST_COST, cost)))

    def _is_renamed(self) -> bool:
        """The same text except for a name."""
        left, right = self._left, self._right
        if len(left.units) != len(right.units):
            return False
        moved = [(one.key, other.key) for (one, _), (other, _) in zip(left.units, right.units, strict=True)]
        moved = [(one, other) for one, other in moved if one != other]
        return len(moved) <= _MOST_RENAMED and any(one in left.names or other in right.names for one, other in moved)

    def is_equal(self) -> bool:
        """Whether the texts have the same words in the same order."""
        left, right = ([unit.key for unit, _ in side.units] for side in (self._left, self._right))
        return left == right

    def is_shared(self) -> bool:
        """Whether the texts share all their words, and none of these is replaced by its opposite."""
        return not self._flips and all(is_shared for side in (self._left, self._right) for _, is_shared in side.units)

    def has_same_numbers(self) -> bool:
        return self._left.numbers == self._right.numbers

    def _measure_replaced(self) -> float:
        """The part of a text that is replaced by something else, between the same words, in the other."""
        left, right = self._left.gaps(), self._right.gaps()
        replaced = sum(min(value, right.get(place, 0.0)) for place, value in left.items())
        return replaced / min(self._left.total, self._right.total)

    def _measure_order(self) -> float:
        """How far the shared words have the same order: a rewording does not only replace a word."""
        left, right = self._left.neighbours(), self._right.neighbours()
        return len(left & right) / max(len(left), len(right))


def _find_typos(left: ParsedText, right: ParsedText, weight: Weight) -> set[str]:
    """Words of one text that the other has with a letter or two different."""
    lonely = [_find_unshared(left, right), _find_unshared(right, left)]
    if max(map(len, lonely)) > _MOST_UNSHARED:
        return set()
    rare = _UNKNOWN * weight("\0")
    return {
        key
        for one in lonely[0]
        for other in lonely[1]
        # two common words are not misspellings of each other
        if max(weight(one.term), weight(other.term)) >= rare and _is_misspelled(one.spelling, other.spelling)
        for key in (one.key, other.key)
    }


def _find_unshared(mine: ParsedText, yours: ParsedText) -> list[Unit]:
    return [unit for unit in mine.units if not unit.is_name and len(unit.spelling) >= 4 and not yours.has(unit)]


def _is_misspelled(one: str, other: str) -> bool:
    """Whether a letter is missing, wrong or added, or two are swapped; two letters in a long word."""
    if max(len(one), len(other)) < 5 and len(one) != len(other):
        return False
    is_long = min(len(one), len(other)) >= 7
    one, other = _strip_common_start(*(part[::-1] for part in _strip_common_start(one, other)))
    return max(len(one), len(other)) <= 1 + is_long or (len(one) == 2 and one == other[::-1])


def _strip_common_start(one: str, other: str) -> tuple[str, str]:
    """Two words without their common prefix."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[same:], other[same:]
