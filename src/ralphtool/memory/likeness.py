"""When two texts say the same: another wording of one learning, and not only a sentence of the same make.

How many words they share can't tell: "run `make db` first" and "run `make lint` first" share more than two wordings of
one thing do. So three questions are asked. How much of their words do the texts share? Does each of them name
something that the other one does not, or have another word between the same words? Does one of them deny what the
other one says?

For the last question a text is read in clauses. A clause with a "not" in it denies its words, and one with an opposite
of the other text's word ("disabled" there, "enabled" here) denies that word; two of these in a clause are none.
"""

from __future__ import annotations

import re

from ralphtool.memory import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    Level = Literal["same", "likely", "related", "new"]
    Weight = Callable[[str], float]

SAME, LIKELY, RELATED = 0.56, 0.45, 0.12
_OTHER_NAMES = 0.45  # what it costs when each text names something that the other one does not
_OTHER_WORDS = 4.0  # what it costs when words stand in one another's place, by their part of the text
_MOST_COST = 0.5
_SAME_OUTPUT = 0.95
_DENIED = 0.3  # what tells of a denial when the word that is denied at once is not shared is too little
_MOST_READ = 4_000  # characters: a learning is a few sentences, and what is the same so far is the same
_MOST_UNITS = 400
_MOST_LONELY = 12  # words that one text has alone: with more, misspelling is not what sets the texts apart
_UNKNOWN = 0.8  # of the greatest weight: words that hardly anybody writes
_QUOTED = 40  # characters in quotes that still are a name and no sentence

_LABEL = re.compile(
    r"[\s\W]*(?:(?:note(?: to self)?|n\.?b|til|today i learned|(?:i |we )?(?:just )?(?:learn(?:ed|t)|discovered|"
    r"found out|noticed|reali[sz]ed)|lessons?(?: learn(?:ed|t))?|gotchas?|important|reminder|remember|fyi|heads[ -]?up|"
    r"be aware|beware|warning|caution|caveat|tip|hint|pro tip|pitfall|learning|observation|finding|workaround|"
    r"quirk|psa)\b(?:[\s*_]*(?:[:!.\u2014\u2013]|-\s)[\s*_]*|\s+that\b|(?<=til|fyi)\s)[\s*_`]*)+",
    re.IGNORECASE,
)
_VOLATILE = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b0x[0-9a-f]{4,}\b|"
    r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|"
    r"\b(?=[a-f]{0,40}\d)(?=\d{0,40}[a-f])[0-9a-f]{7,40}\b|(?<=[a-z]):\d{1,6}(?::\d{1,6})?\b|"
    r"\b(?:lines?|pid|id|build|run)[ #]{1,2}\d{1,12}\b",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_SWITCHED_ON = re.compile(r"\bon(?=[.,;:!?)]|\s*$)")
_PIECE = re.compile(
    r"(?P<word>-{0,2}\w+(?:[.\-'/\\]+\w+)*)|(?P<mark>[`\"“”«»„]|'(?!\w)|(?<!\w)')|"
    r"(?P<end>[.,;:!?](?!\w)|[()\n\u2014\u2013\u2026]| - )"
)
_BRITISH = re.compile(
    r"(?<=\w{3})our(?=s?$|ed$|ing$|al$)|(?<=\w{2})(?:is|ys)(?=(?:e[sdr]?|ing|ations?|ers)$)|"
    r"(?<=\w\wel)l(?=ed$|ing$|er$)|ue(?=s?$)"
)
# What programs print, and what only people write: in the one a number is any number, in the other it is the point.
_OUTPUT = re.compile(
    r"(?i:error|exception|fail(?:ed|ure)|fatal|panic|traceback|cannot|could not|timed out|invalid|exceeded|refused|"
    r"denied|not found|elapsed|exited|retry after|\berr\b)|\w\.\w+:\d|^\s*at |=="
)
_ADVICE = re.compile(
    r"\b(?:must|should|needs?|always|never|since|so|use|set|run|keep|limit|raise|add|don't|avoid|means|instead|unless|"
    r"otherwise)\b(?=\s+[\w`'\"])",
    re.IGNORECASE,
)
_SURELY_OUTPUT = re.compile(r"\w(?:Error|Exception)\b|^\W*(?i:error|fatal|panic|err!|e)\b[:!\[]|\w\.\w+:\d|^\s*at ")


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_WITHOUT = _words("without ohne sans sin без")
_DENIALS = _WITHOUT | _words(
    """not never no cannot none neither nor nothing non avoid unable impossible hardly lack lacks lacking nicht kein
    keine keinen keiner nie pas jamais nunca не нет ни никогда нельзя"""
)
_ELSE = _words("otherwise else or sonst oder иначе")
_BREAKS = _ELSE | _words(
    """because since so but and or although though when whenever if unless while which that where then until once weil
    sondern aber denn wenn потому если но"""
)
_RATHER = {"instead": "of", "rather": "than", "prefer": "over", "prefers": "over", "preferred": "over"}
_IDLE = _words(
    """actually basically really simply just apparently fact also always please still already thus therefore hence due
    must need needs needed require requires should shall ought let lets sure ensure remember own itself whatever usually
    mostly here there only solely any every each all within via through using upon longer instead rather gets got
    able want wants per much anymore prior following one ones other another being between"""
)
_NUMBERS = {
    **{word: str(at) for at, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine"), 2)},
    **{word: str(at) for at, word in enumerate(("ten", "eleven", "twelve"), 10)},
    **{word: str(10 * at) for at, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty"), 2)},
    "fifteen": "15",
    "ninety": "90",
    "hundred": "100",
}
_WRITTEN_OUT = {"mins": "minutes", "secs": "seconds", "reqs": "requirements"}  # as stems these are other words
# What people write for one another, beyond what `words` knows.
_ONE_WORD = """\
run execute invoke call
use utilize employ
begin start
fail break crash
make create produce generate
change modify edit alter
fix solve resolve repair
large big huge
slow sluggish
wrong incorrect
keep retain preserve
give return answer respond
show display print
forbid forbidden prohibit disallow ban
allow permit
reject refuse
fast quick
check verify
increase raise
reduce lower decrease
beside next near
live lie reside
choose pick select
development dev
production prod
second sec
artifact artefact
write written
add added
see seen
"""
_OPPOSITES = """\
enable disable
true false
allow forbid
increase reduce
required optional
add remove
pass fail
work fail
up down
on off
first last
include exclude
sync async
accept reject
more less
more fewer
most least
above below
over under
fast slow
start stop
keep remove
keep lose
keep drop
inside outside
open close
absolute relative
lazy eager
stateful stateless
run skip
old new
"""
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "dis", "de", "mis")
# too common to count, but they can turn a text around
_TURNING = frozenset(("on", "more", "most", "required", "before", "after"))
_STATES = _words("is are was were be been turn turned switch switched")


class Match:
    """How much two texts say the same."""

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


def match(one: str, other: str, weight: Weight, same_fingerprint: bool = False) -> Match:
    """How much two texts say the same. `weight` tells how rare a term is.

    `same_fingerprint` means that they differ in nothing but what changes from run to run. A number is such a thing in
    a program's output; in advice it may be all that matters.
    """
    left, right = _Reading(one), _Reading(other)
    if not left.units or not right.units:
        is_alike = bool(one.strip()) and _bare(one) == _bare(other)
        return Match("same", 1.0) if is_alike else Match("new", 0.0)
    flips = _flips(left, right)
    pair = _Pair(left, right, weight, flips)
    if same_fingerprint and (_is_output(one) or pair.has_same_numbers()):
        return Match("same", 1.0)
    score = pair.score()
    if score < _SAME_OUTPUT and _is_surely_output(one) and _is_surely_output(other):
        score = min(score, SAME - 0.01)  # programs don't word a thing anew: theirs is another failure
    if score >= LIKELY and _Sense(left, right, flips).is_opposite():
        return Match("related", LIKELY - 0.01, True)
    return Match(_level(score), score)


def _level(score: float) -> Level:
    if score >= SAME:
        return "same"
    if score >= LIKELY:
        return "likely"
    return "related" if score >= RELATED else "new"


def _bare(text: str) -> str:
    return " ".join(text[:_MOST_READ].split()).casefold()


def _is_output(text: str) -> bool:
    text = text[:_MOST_READ]
    return _OUTPUT.search(text) is not None and _ADVICE.search(text) is None


def _is_surely_output(text: str) -> bool:
    text = _COLOUR.sub("", text[:_MOST_READ])
    return _SURELY_OUTPUT.search(text) is not None and _ADVICE.search(text) is None


# --- reading -------------------------------------------------------------------------------------


class _Unit:
    """A word of a text as it is compared. A name has its parts, a plain word is its own only part."""

    __slots__ = ("clause", "is_name", "is_number", "key", "parts", "spelling", "term")

    def __init__(self, spelling: str, found: list[str], is_name: bool, clause: int) -> None:
        self.spelling = spelling
        self.term = found[0]
        self.key = _one_word(found[0])
        self.parts = tuple(_one_word(term) for term in found[1:]) or (self.key,)
        self.is_number = all(map(str.isdigit, self.parts))  # versions too: 3.4 and 4.3 share nothing
        self.is_name = is_name
        self.clause = clause


class _Reading:
    """A text as units in their order, with the places where something is denied."""

    def __init__(self, text: str) -> None:
        self.units: list[_Unit] = []
        self.denials: list[tuple[int, int]] = []  # the clause, and the unit before which it stands
        self.suppositions: list[tuple[int, int]] = []  # denials of what only would be: "fails without", "or else not"
        self.has_else = False
        self._clause, self._else_clause = 0, -1
        self._quoted_until = 0
        self._rather = self._previous = ""
        self._scan(_prepared(text))
        self.keys = {unit.key for unit in self.units}
        self.terms = self.keys.union(*(unit.parts for unit in self.units if not unit.is_number))
        self.has_else = self.has_else or "fail" in self.keys

    def _scan(self, text: str) -> None:
        for piece in _PIECE.finditer(text):
            if piece["end"]:
                self._clause += 1
                self._rather = ""
            elif piece["mark"]:
                self._quote(text, piece)
            else:
                self._word(piece["word"], piece.start() < self._quoted_until)
            if len(self.units) >= _MOST_UNITS:
                return

    def _quote(self, text: str, piece: re.Match[str]) -> None:
        if piece.start() >= self._quoted_until:
            closing = {"“": "”", "«": "»", "„": "“"}.get(piece[0], piece[0])
            end = text.find(closing, piece.end(), piece.end() + _QUOTED)
            is_sentence = piece[0] != "`" and text.count(" ", piece.end(), max(end, 0)) >= 2
            self._quoted_until = 0 if is_sentence else end + 1

    def _word(self, word: str, is_name: bool) -> None:
        if not is_name and self._is_structure(word.lower()):
            return
        head, quote, tail = word.rpartition("'")
        for part in _end_of_path(head if quote and len(tail) <= 2 else word):
            self._part(part, is_name)
        self._previous = word.lower()

    def _is_structure(self, word: str) -> bool:
        """Whether it is a word that only says how the others belong together."""
        if word == self._rather:  # "use this instead of that" denies that
            self._clause += 1
            self._rather, word = "", "not"
        self._rather = _RATHER.get(word, self._rather)
        if word in _DENIALS or word.endswith("n't"):
            if self._previous != "to":  # "to avoid leaks, do this" denies nothing
                self._deny(word)
        elif word in _BREAKS:
            self._break(word)
        elif word not in _IDLE:
            return word == "on" and self._previous not in _STATES
        return True

    def _break(self, word: str) -> None:
        self._clause += 1
        self.has_else = self.has_else or word in _ELSE or word == "unless"
        if word in _ELSE:
            self._else_clause = self._clause

    def _deny(self, word: str) -> None:
        is_supposed = word in _WITHOUT or self._clause == self._else_clause
        (self.suppositions if is_supposed else self.denials).append((self._clause, len(self.units)))

    def _part(self, word: str, is_name: bool) -> None:
        plain = word.lstrip("-")
        is_name = is_name or plain != word
        lowered = plain.lower()
        if lowered.startswith("non-"):
            self._deny("non")
            plain = plain[4:]
        number = _number(lowered)
        if number:
            self._add(lowered, [number], True)
        elif lowered in _TURNING and not is_name:
            self._add(lowered, [_term(lowered)], False)
        elif plain.isalpha():
            self._letters(plain, is_name)
        else:
            self._compound(plain, is_name)

    def _letters(self, word: str, is_name: bool) -> None:
        """A word in whatever case; `flushQueue` is a name, and two words too."""
        spelled, whole = words.tokens(word), words.tokens(_american(_WRITTEN_OUT.get(word.lower(), word.lower())))
        if whole:
            is_camel = len(spelled) > 1 and word.isascii() and not word.isupper()
            self._add(word.lower(), [whole[0], *spelled[1:]], is_name or is_camel)

    def _compound(self, word: str, is_name: bool) -> None:
        if not is_name and word.replace("-", "").isalpha():
            for part in word.split("-"):
                self._letters(part, is_name)
            return
        found = words.tokens(word)
        if found:
            self._add(word.lower(), found, is_name or word.isascii())

    def _add(self, spelling: str, found: list[str], is_name: bool) -> None:
        self.units.append(_Unit(spelling, found, is_name, self._clause))


def _prepared(text: str) -> str:
    text = _COLOUR.sub("", text.lstrip()[:_MOST_READ]).replace("\u2019", "'").replace("\u2018", "'")
    label = _LABEL.match(text)
    if label and label.end() < len(text):
        text = text[label.end() :]
    return _SWITCHED_ON.sub("is on", _VOLATILE.sub(" ", text))


def _end_of_path(word: str) -> list[str]:
    """Of a path only the end: where it begins depends on where somebody stands."""
    return [part for part in re.split(r"[/\\]+", word) if part][-2:]


def _number(word: str) -> str:
    """The digits of a number in letters, also of "forty-five", or nothing."""
    tens, _, ones = word.partition("-")
    if tens in _NUMBERS and ones in _NUMBERS:
        return str(int(_NUMBERS[tens]) + int(_NUMBERS[ones]))
    return "" if ones else _NUMBERS.get(word, "")


def _american(word: str) -> str:
    """It need not be right, only the same for both spellings."""
    if len(word) < 6 or not word.isascii():
        return word
    return _BRITISH.sub(lambda found: {"our": "or", "is": "iz", "ys": "yz"}.get(found[0], ""), word)


def _term(word: str) -> str:
    return _without_e((words.tokens(word) or [word])[0])


def _without_e(term: str) -> str:
    """`named` has the stem `nam`, so `name` needs the same."""
    return term[:-1] if len(term) == 4 and term.endswith("e") else term


def _one_word(term: str) -> str:
    term = _without_e(term)
    return _SAME.get(term, term)


_SAME = {_term(word): _term(line.split()[0]) for line in _ONE_WORD.splitlines() for word in line.split()}


# --- how much is shared --------------------------------------------------------------------------


class _Side:
    """One of two texts: which of its units the other one has too."""

    def __init__(self, mine: _Reading, yours: _Reading, known: set[str], weight: Weight) -> None:
        self._weight = weight
        self.units = [(unit, _has(yours, unit) or unit.key in known) for unit in mine.units]
        values = {unit.key: (self._value(unit), is_shared) for unit, is_shared in self.units}
        self.total = sum(value for value, _ in values.values()) or 1.0
        self.shared = sum(value for value, is_shared in values.values() if is_shared) / self.total
        self.names = {unit.key for unit, is_shared in self.units if unit.is_name and not is_shared}
        self.numbers = [unit.key for unit in mine.units if unit.is_number]

    def _value(self, unit: _Unit) -> float:
        return 0.0 if unit.spelling in _TURNING else self._weight(unit.term)

    def neighbours(self) -> set[tuple[str, str]]:
        """Which shared words follow each other."""
        keys = [unit.key for unit, is_shared in self.units if is_shared]
        return set(zip(["", *keys], [*keys, ""], strict=True))

    def gaps(self) -> dict[tuple[str, str], float]:
        """How much stands between two shared words that is not shared."""
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

    def __init__(self, left: _Reading, right: _Reading, weight: Weight, flips: dict[str, str]) -> None:
        # opposites are about the same thing: that they deny each other is another question
        known = _typos(left, right, weight).union(flips, flips.values())
        self._left, self._right = _Side(left, right, known, weight), _Side(right, left, known, weight)

    def score(self) -> float:
        """The part that is shared, less for whatever speaks against it."""
        shared: float = (self._left.shared * self._right.shared) ** 0.5
        cost = _OTHER_WORDS * self._replaced() * self._verbatim()
        if (self._left.names and self._right.names) or self._is_renamed():
            cost += _OTHER_NAMES
        return min(1.0, shared * (1 - min(_MOST_COST, cost)))

    def _is_renamed(self) -> bool:
        """The very same text, but for a name somewhere."""
        left, right = self._left, self._right
        if len(left.units) != len(right.units):
            return False
        moved = [(one.key, other.key) for (one, _), (other, _) in zip(left.units, right.units, strict=True)]
        moved = [(one, other) for one, other in moved if one != other]
        return len(moved) <= 3 and any(one in left.names or other in right.names for one, other in moved)

    def has_same_numbers(self) -> bool:
        return self._left.numbers == self._right.numbers

    def _replaced(self) -> float:
        """The part of a text for which the other one, between the same words, has something else."""
        left, right = self._left.gaps(), self._right.gaps()
        replaced = sum(min(value, right.get(place, 0.0)) for place, value in left.items())
        return replaced / min(self._left.total, self._right.total)

    def _verbatim(self) -> float:
        """How far the shared words stand in one order: who words a thing anew does not only replace a word."""
        left, right = self._left.neighbours(), self._right.neighbours()
        return len(left & right) / max(len(left), len(right))


def _has(text: _Reading, unit: _Unit) -> bool:
    if unit.key in text.terms:
        return True
    if unit.is_number:
        return False
    shared = sum(part in text.terms for part in unit.parts)
    # in scripts without blanks a word's parts are all its pairs of letters, and endings make some of them differ
    return shared == len(unit.parts) or (not unit.key.isascii() and 2 * shared >= len(unit.parts))


def _typos(left: _Reading, right: _Reading, weight: Weight) -> set[str]:
    """Words that only one text has, when the other one has them but for a letter or two."""
    lonely = [_lonely(left, right), _lonely(right, left)]
    if max(map(len, lonely)) > _MOST_LONELY:
        return set()
    rare = _UNKNOWN * weight("\0")
    return {
        key
        for one in lonely[0]
        for other in lonely[1]
        # two words that people know are no misspellings of each other
        if max(weight(one.term), weight(other.term)) >= rare and _is_misspelled(one.spelling, other.spelling)
        for key in (one.key, other.key)
    }


def _lonely(mine: _Reading, yours: _Reading) -> list[_Unit]:
    return [unit for unit in mine.units if not unit.is_name and len(unit.spelling) >= 4 and not _has(yours, unit)]


def _is_misspelled(one: str, other: str) -> bool:
    """Whether a letter is missing, wrong or too many, or two are swapped; in a long word it may be two."""
    if max(len(one), len(other)) < 5 and len(one) != len(other):
        return False
    is_long = min(len(one), len(other)) >= 7
    one, other = _apart(*(part[::-1] for part in _apart(one, other)))
    return max(len(one), len(other)) <= 1 + is_long or (len(one) == 2 and one == other[::-1])


def _apart(one: str, other: str) -> tuple[str, str]:
    """Two words without what both begin with."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[same:], other[same:]


# --- what is denied ------------------------------------------------------------------------------


def _both_ways(pairs: str) -> dict[str, set[str]]:
    opposites: dict[str, set[str]] = {}
    for line in pairs.splitlines():
        one, other = (_one_word(_term(word)) for word in line.split())
        opposites.setdefault(one, set()).add(other)
        opposites.setdefault(other, set()).add(one)
    return opposites


_OPPOSITES_OF = _both_ways(_OPPOSITES)


class _Sense:
    """Two texts by what they affirm and deny."""

    def __init__(self, left: _Reading, right: _Reading, flips: dict[str, str]) -> None:
        self._texts = left, right
        # what is only supposed counts when both texts suppose: "needs it" and "fails without it" are one
        is_counted = left.has_else == right.has_else or bool(left.suppositions and right.suppositions)
        self._left, self._right = _Claims(left, flips, is_counted), _Claims(right, flips, is_counted)

    def is_opposite(self) -> bool:
        return (
            self._left.is_denied_by(self._right)
            or self._right.is_denied_by(self._left)
            or self._is_crossed()
            or self._is_exchanged()
            or self._is_turned()
        )

    def _is_crossed(self) -> bool:
        """One affirms what the other one denies, and denies what that affirms: "this, not that"."""
        turned = {
            denied
            for key, (denied, *more) in self._left.of.items()
            if not more and self._right.of.get(key) == {not denied}
        }
        return len(turned) == 2

    def _is_exchanged(self) -> bool:
        """The very same text, but two words of different clauses have changed places."""
        left, right = self._texts
        moved = [pair for pair in zip(left.units, right.units, strict=False) if pair[0].key != pair[1].key]
        if len(left.units) != len(right.units) or len(moved) != 2 or left.denials or right.denials:
            return False
        (one, other), (later, other_later) = moved
        return one.key == other_later.key and later.key == other.key and one.clause != later.clause

    def _is_turned(self) -> bool:
        """One has before what the other one has after."""
        left, right = (list(_orders(text)) for text in self._texts)
        return any(_are_turned(one, other) for one in left for other in right)


class _Claims:
    """Which words a text denies, and where."""

    def __init__(self, text: _Reading, flips: dict[str, str], with_suppositions: bool) -> None:
        self._words = [(flips.get(unit.key, unit.key), unit.clause) for unit in text.units]
        places = text.denials + [(unit.clause, at) for at, unit in enumerate(text.units) if unit.key in flips]
        self._denials: dict[int, list[int]] = {}
        for clause, at in places + (text.suppositions if with_suppositions else []):
            self._denials.setdefault(clause, []).append(at)
        self._denied = {clause for clause, found in self._denials.items() if len(found) % 2}
        self.of: dict[str, set[bool]] = {}
        for key, clause in self._words:
            self.of.setdefault(key, set()).add(clause in self._denied)

    def is_denied_by(self, other: _Claims) -> bool:
        """Whether the other text affirms what a clause of this one denies."""
        balance = dict.fromkeys(self._denied, 0.0)
        for at, (key, clause) in enumerate(self._words):
            theirs = other.of.get(key, set())
            if clause in self._denied and len(self.of[key]) == len(theirs) == 1:
                balance[clause] += self._nearness(at, clause) * (-1 if True in theirs else 1)
        return any(value > _DENIED for value in balance.values())

    def _nearness(self, at: int, clause: int) -> float:
        """A "not" speaks of what follows it, and of that most what follows at once."""
        return max(1 / (at - no + 1) ** 2 if at >= no else 0.5 / (no - at) ** 2 for no in self._denials[clause])


def _flips(left: _Reading, right: _Reading) -> dict[str, str]:
    """The words that are the opposite of a word in the other text, with that word."""
    flips = {
        max(one, other): min(one, other) for one in left.keys for other in _OPPOSITES_OF.get(one, set()) & right.keys
    }
    flips |= _prefixed(left, right) | _prefixed(right, left)
    both = left.keys & right.keys  # who speaks of both is told by where they stand
    return {one: other for one, other in flips.items() if one not in both or other not in both}


def _prefixed(mine: _Reading, yours: _Reading) -> dict[str, str]:
    """My words that are a word of yours with an "un" or the like; stems alone don't always show it."""
    bare = {form: unit.key for unit in yours.units for form in (unit.spelling, unit.key)}
    return {
        unit.key: bare[form[len(prefix) :]]
        for unit in mine.units
        for form in (unit.spelling, unit.key)
        for prefix in _PREFIXES
        if form.startswith(prefix) and len(form) >= len(prefix) + 3 and form[len(prefix) :] in bare
    }


def _orders(text: _Reading) -> Iterator[tuple[bool, set[str], set[str]]]:
    """For each "before" and "after": which of them it is, some words that follow, and some of what it is said of."""
    for at, unit in enumerate(text.units):
        if unit.spelling in ("before", "after"):
            following = [near.key for near in text.units[at + 1 : at + 5] if near.clause == unit.clause]
            said_of = [near.key for near in text.units[max(0, at - 5) : at] if near.clause == unit.clause]
            next_clause = at + 1 + len(following)
            said_of = said_of or [near.key for near in text.units[next_clause : next_clause + 5]]
            yield unit.spelling == "before", set(following), set(said_of)


def _are_turned(one: tuple[bool, set[str], set[str]], other: tuple[bool, set[str], set[str]]) -> bool:
    straight = len(one[1] & other[1])
    crossed = len(one[1] & other[2]) + len(one[2] & other[1])
    if one[0] == other[0]:
        return crossed > 0 == straight
    return straight > crossed
