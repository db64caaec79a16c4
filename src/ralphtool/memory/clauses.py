"""Parses a text for comparison: its words in order, which of them are names, and what is denied where.

A text is split into clauses. A "not" denies the words of its clause; it is not counted as a word, so that a denial and
what it denies have the same words. Neither are optional parts: labels, filler words, times and ids, the start of a
path.
"""

from __future__ import annotations

from ralphtool.memory import tokens
from ralphtool.memory.fingerprint import compile_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

MOST_READ = 4_000  # characters: a learning is a few sentences; texts that are equal so far count as equal
_MOST_UNITS = 400
_LONGEST_NAME = 40  # characters in quotes that are still a name, not a sentence

_LABEL = (
    r"(?i)[\s\W]*(?:(?:note(?: to self)?|n\.?b|til|today i learned|(?:i |we )?(?:just )?(?:learn(?:ed|t)|discovered|"
    r"found out|noticed|reali[sz]ed)|lessons?(?: learn(?:ed|t))?|gotchas?|important|reminder|remember|fyi|heads[ -]?up|"
    r"be aware|beware|warning|caution|caveat|tip|hint|pro tip|pitfall|learning|observation|finding|workaround|"
    r"quirk|psa)\b(?:[\s*_]*(?:[:!.\u2014\u2013]|-\s)[\s*_]*|\s+that\b|(?<=til|fyi)\s)[\s*_`]*)+"
)
_VOLATILE = (
    r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b0x[0-9a-f]{4,}\b|"
    r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|"
    r"\b(?=[a-f]{0,40}\d)(?=\d{0,40}[a-f])[0-9a-f]{7,40}\b|(?<=[a-z]):\d{1,6}(?::\d{1,6})?\b|"
    r"\b(?:lines?|pid|id|build|run)[ #]{1,2}\d{1,12}\b"
)
_COLOUR = r"\x1b\[[0-9;]{0,20}m"
_FAILS_TO = r"(?i)\b(?:fail(?:s|ed)?|refuse[sd]?|stop(?:s|ped)?) (?:to|(?=working))(?=\s*\w)"
_SWITCHED_ON = r"\bon(?=[.,;:!?)]|\s*$)"
_PIECE = (
    r"(?P<word>-{0,2}\w+(?:[.\-'/\\]+\w+)*)|(?P<mark>[`\"“”«»„]|'(?!\w)|(?<!\w)')|"
    r"(?P<end>[.,;:!?](?!\w)|[()\n\u2014\u2013\u2026]| - )"
)
_CLOSING = {"“": "”", "«": "»", "„": "“"}
_BRITISH = (
    r"(?<=\w{3})our(?=s?$|ed$|ing$|al$)|(?<=\w{2})(?:is|ys)(?=(?:e[sdr]?|ing|ations?|ers)$)|"
    r"(?<=\w\wel)l(?=ed$|ing$|er$)|ue(?=s?$)"
)
_AMERICAN = {"our": "or", "is": "iz", "ys": "yz"}


def _split_words(spaced: str) -> frozenset[str]:
    return frozenset(spaced.split())


_WITHOUT = _split_words("without ohne sans sin без")
_DENIALS = _WITHOUT | _split_words(
    """not never no cannot none neither nor nothing non avoid unable impossible hardly lack lacks lacking
    unnecessary unneeded needless unused nicht kein
    keine keinen keiner nie pas jamais nunca не нет ни никогда нельзя"""
)
_ELSE = _split_words("otherwise else or sonst oder иначе")
_BREAKS = _ELSE | _split_words(
    """because since so but and or although though when whenever if unless while which that where then until once weil
    sondern aber denn wenn потому если но"""
)
_AIMS = (("to", "avoid"), ("to", "no"), ("to", "none"))  # "to avoid leaks, do this" denies nothing
# "use this instead of that" denies that
_RATHER = {"instead": "of", "rather": "than", "prefer": "over", "prefers": "over", "preferred": "over"}
_FILLER_WORDS = _split_words(
    """actually basically really simply just apparently fact also always please still already thus therefore hence due
    must need needs needed require requires should shall ought let lets sure ensure remember own itself whatever usually
    mostly here there only solely any every each all within via through using upon longer instead rather gets got
    able want wants per much anymore prior following one ones other another being between"""
)
# too common to count, but they can reverse the meaning
_REVERSING_WORDS = frozenset(("on", "more", "most", "required", "before", "after"))
_STATES = _split_words("is are was were be been turn turned switch switched")
_NUMBERS = {
    **{word: str(at) for at, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine"), 2)},
    **{word: str(at) for at, word in enumerate(("ten", "eleven", "twelve"), 10)},
    **{word: str(10 * at) for at, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty"), 2)},
    "fifteen": "15",
    "ninety": "90",
    "hundred": "100",
}
_WRITTEN_OUT = {"mins": "minutes", "reqs": "requirements"}  # their stems would be other words
# Synonyms, besides those in `tokens`.
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
see seen
"""


class Unit:
    """A word of a text for comparison. A name has parts; a plain word is its own only part."""

    __slots__ = ("clause", "is_name", "is_number", "key", "parts", "spelling", "term")

    def __init__(self, spelling: str, terms: list[str], is_name: bool, clause: int) -> None:
        self.spelling = spelling
        self.term = terms[0]
        self.key = _unify_synonym(terms[0])
        self.parts = tuple(_unify_synonym(term) for term in terms[1:]) or (self.key,)
        self.is_number = all(map(str.isdigit, self.parts))  # versions too: 3.4 and 4.3 share nothing
        self.is_name = is_name
        self.clause = clause

    @property
    def is_reversing(self) -> bool:
        """Whether it has no topic of its own, but can reverse the meaning of a text: "on", "before"."""
        return self.spelling in _REVERSING_WORDS


class ParsedText:
    """A text as units in order, with the positions of denials."""

    def __init__(self, text: str) -> None:
        reader = _TextParser()
        reader.read(_prepare(text))
        self.units = reader.units
        self.denials = reader.denials
        self.suppositions = reader.suppositions
        self.keys = {unit.key for unit in self.units}
        self.has_else = reader.has_else or "fail" in self.keys
        self._terms = self.keys.union(*(unit.parts for unit in self.units if not unit.is_number))

    def has(self, unit: Unit) -> bool:
        """Whether a word of another text, or a name with all its parts, is in this one too."""
        if unit.key in self._terms:
            return True
        if unit.is_number:
            return False
        shared = sum(part in self._terms for part in unit.parts)
        # in scripts without spaces a word's parts are all its pairs of letters, and some differ because of endings
        return shared == len(unit.parts) or (not unit.key.isascii() and 2 * shared >= len(unit.parts))


def build_key(word: str) -> str:
    """The key of a unit with this word."""
    return _unify_synonym(_build_term(word))


def strip_colours(text: str) -> str:
    return compile_pattern(_COLOUR).sub("", text)


class _TextParser:
    """Parses a text in one pass."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.denials: list[tuple[int, int]] = []  # the clause, and the index of the next unit
        self.suppositions: list[tuple[int, int]] = []  # hypothetical denials: "fails without", "or else not"
        self.has_else = False
        self._clause, self._else_clause = 0, -1
        self._quoted_until = 0
        self._denying = ""  # the word that would deny the rest: "of" after "instead"
        self._previous = ""

    def read(self, text: str) -> None:
        for piece in compile_pattern(_PIECE).finditer(text):
            if piece["end"]:
                self._clause += 1
                self._denying = ""
            elif piece["mark"]:
                self._quote(text, piece)
            else:
                self._word(piece["word"], piece.start() < self._quoted_until)
            if len(self.units) >= _MOST_UNITS:
                return

    def _quote(self, text: str, mark: re.Match[str]) -> None:
        if mark.start() >= self._quoted_until:
            end = text.find(_CLOSING.get(mark[0], mark[0]), mark.end(), mark.end() + _LONGEST_NAME)
            is_sentence = mark[0] != "`" and text.count(" ", mark.end(), max(end, 0)) >= 2
            self._quoted_until = 0 if is_sentence else end + 1

    def _word(self, word: str, is_name: bool) -> None:
        if not is_name and self._joins(word.lower()):
            return
        head, quote, tail = word.rpartition("'")
        for part in _split_path_end(head if quote and len(tail) <= 2 else word):
            self._part(part, is_name)
        self._previous = word.lower()

    def _joins(self, word: str) -> bool:
        """Whether it is a word that only connects others; if so, its effect is recorded."""
        if word == self._denying:
            self._clause += 1
            self._denying, word = "", "not"
        self._denying = _RATHER.get(word, self._denying)
        if word in _DENIALS or word.endswith("n't"):
            if (self._previous, word) not in _AIMS:
                self._deny(word)
        elif word in _BREAKS:
            self._break(word)
        elif word not in _FILLER_WORDS:
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
        number = _parse_number(lowered)
        if number:
            self._add(lowered, [number], True)
        elif lowered in _REVERSING_WORDS and not is_name:
            self._add(lowered, [_build_term(lowered)], False)
        elif plain.isalpha():
            self._letters(plain, is_name)
        else:
            self._compound(plain, is_name)

    def _letters(self, word: str, is_name: bool) -> None:
        """A word in any case; `flushQueue` is a name, and also two words."""
        lowered = word.lower()
        spelled = tokens.split_tokens(word)
        whole = tokens.split_tokens(
            _convert_to_american(_WRITTEN_OUT.get(lowered, lowered))
        )  # in lower case, as some people write it
        if whole:
            is_camel = len(spelled) > 1 and word.isascii() and not word.isupper()
            self._add(lowered, [whole[0], *spelled[1:]], is_name or is_camel)

    def _compound(self, word: str, is_name: bool) -> None:
        if not is_name and word.replace("-", "").isalpha():
            for part in word.split("-"):
                self._letters(part, is_name)
            return
        terms = tokens.split_tokens(word)
        if terms:
            self._add(word.lower(), terms, is_name or word.isascii())

    def _add(self, spelling: str, terms: list[str], is_name: bool) -> None:
        self.units.append(Unit(spelling, terms, is_name, self._clause))


def _prepare(text: str) -> str:
    text = strip_colours(text.lstrip()[:MOST_READ]).replace("\u2019", "'").replace("\u2018", "'")
    label = compile_pattern(_LABEL).match(text)
    if label and label.end() < len(text):
        text = text[label.end() :]
    text = compile_pattern(_FAILS_TO).sub("not ", text)
    # "on" at the end is a state, as after an "is"
    return compile_pattern(_SWITCHED_ON).sub("is on", compile_pattern(_VOLATILE).sub(" ", text))


def _split_path_end(word: str) -> list[str]:
    """Only the end of a path: its start depends on the working directory."""
    return [part for part in word.replace("\\", "/").split("/") if part][-2:]


def _parse_number(word: str) -> str:
    """The digits of a number in words, such as "forty-five"; else empty."""
    tens, _, ones = word.partition("-")
    if tens in _NUMBERS and ones in _NUMBERS:
        return str(int(_NUMBERS[tens]) + int(_NUMBERS[ones]))
    return "" if ones else _NUMBERS.get(word, "")


def _convert_to_american(word: str) -> str:
    """It need not be right, only the same for both spellings."""
    if len(word) < 6 or not word.isascii():
        return word
    return compile_pattern(_BRITISH).sub(lambda found: _AMERICAN.get(found[0], ""), word)


def _build_term(word: str) -> str:
    return (tokens.split_tokens(word) or [word])[0]


def _unify_synonym(term: str) -> str:
    return _SAME.get(term, term)


_SAME = {_build_term(word): _build_term(line.split()[0]) for line in _ONE_WORD.splitlines() for word in line.split()}
