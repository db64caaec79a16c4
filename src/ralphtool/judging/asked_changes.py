"""Which things a story asks to change, remove or rename, read from its plain words. Pure functions, no grammar.

A word of the story counts only where a request governs it: as the object of a verb ("Change the total") or as the
subject of a statement ("The total is wrong"). A word that only stands after a preposition ("Remove items from the
cart"), in a condition ("if the total is below 50"), or in what the story adds ("Add Cart.remove(name)") asks for
nothing. In doubt a word does not count: the attempt fails once, and the next one can explain what it changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Words of a sentence that does not ask for different behaviour, whatever its verbs are.
_KEEPS = re.compile(
    r"\b(?:not|never|without|un(?:changed|touched|affected)|stays?|keeps?|remains?|same"
    r"|as (?:it|they) (?:is|are|was|were)|document\w*|docs?|docstrings?"
    r"|readme|comments?|refactor\w*|tid(?:y|ies)|clean\w*|simplif\w*|nothing)\b|n't\b",
    re.IGNORECASE,
)
_NO_LONGER = re.compile(r"\b(?:not any ?more|no longer|anymore)\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\brather than\b", re.IGNORECASE)
_RID_OF = re.compile(r"\bget rid of\b", re.IGNORECASE)
_SET_UP = re.compile(r"\bset(?:s|ting)? up\b", re.IGNORECASE)
_SO_THAT = re.compile(r"\b(?:so|such) that\b", re.IGNORECASE)
# What the tests expect, as a part of a request: "and update the tests", "with its test", "the expected value".
_TEST_SIDE = re.compile(
    r"\b(?:the|its|their|old|existing|update|adjust|adapt|change|fix|rewrite|remove|delete|drop|replace)"
    r" (?:\w+ )?(?:tests?|fixtures?|golden|expectations?|assertions?)\b",
    re.IGNORECASE,
)
_EXPECTED = re.compile(r"\bexpected (?:value|output|result)s?\b|\bsnapshots?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_TOKEN = re.compile(r"`[^`]*`|[^\s,;:()`—\u2013]+\([^)]*\)|[^\s,;:()`—\u2013]+|[,;:()—\u2013]")
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FAMILIES = {
    form: base
    for base, forms in {
        "remove": "remove removes removing removed removal",
        "delete": "delete deletes deleting deleted deletion",
        "drop": "drop drops dropping dropped",
        "retire": "retire retires retiring retired",
        "move": "move moves moving moved",
        "rename": "rename renames renaming renamed",
        "split": "split splits splitting",
        "merge": "merge merges merging merged",
        "deprecate": "deprecate deprecates deprecating deprecated deprecation",
        "replace": "replace replaces replacing replaced replacement",
        "change": "change changes changing changed",
        "switch": "switch switches switching switched",
        "migrate": "migrate migrates migrating migrated migration",
        "convert": "convert converts converting converted conversion",
        "update": "update updates updating updated",
        "turn": "turn turns turning turned",
        "set": "set sets setting",
        "bump": "bump bumps bumping bumped",
        "lower": "lower lowers lowering lowered",
        "increase": "increase increases increasing increased",
        "decrease": "decrease decreases decreasing decreased",
        "reduce": "reduce reduces reducing reduced",
    }.items()
    for form in forms.split()
}
# These ask for a change only if they say how far: "Lower the limit to 5", but not "Lower the letters".
_AIMED = {"turn": {"into"}, **{verb: {"to", "by"} for verb in _set("set bump lower increase decrease reduce")}}
# These take a thing out of its place, which stays as it is: "Remove a line of the cart".
_TAKES_OUT = _set("remove delete drop retire move rename split merge deprecate")
_ADDS = _set("add create implement introduce build provide offer support allow let enable expose define")
_OPENS = _set("support allow let enable")  # what follows is what becomes possible
_POSSIBLE = _set("can could may might able want wants")  # "As a customer, I want to remove items"
_OTHER_VERBS = _set(
    "show print display return report give say raise write log compute calculate sum round test check verify use make"
    " keep fix let set store save load read send open close start stop count accept reject refuse handle parse format"
    " ensure include exclude apply call run adjust adapt rewrite list sort filter validate"
)
_VERBS = frozenset(_FAMILIES.values()) | _ADDS | _OTHER_VERBS
_BE = _set("is are was were be been being gets get")
_AUXILIARIES = _BE | _set("must should will shall has have had does do can could may might needs need")
_DETERMINERS = _set("a an the this that these those its their our your his her all any each every both no some")
_PRONOUNS = _set("it they them this that these those one")
_PREPOSITIONS = _set(
    "from in into out of on onto off to at by for with within below above under over between among against through"
    " during about per than as like via behind beside inside outside near across along around upon toward towards"
)
_SUBORDINATORS = _set(
    "if when whenever while where unless until once because since after before although though whether which who whose"
    " that how why what"
)
# Before a verb, these leave it a request: "Please remove", "We need to change", "This story removes".
_FILLERS = _set(
    "please also then now and or but so finally first next completely entirely just we you should must need needs"
    " have has will to this the story task plan is time goal"
)
_STORY = _set("this story task plan")  # "This story removes the label"; "`clear` removes all items" asks for nothing
_WRONG = _set("wrong wrongly incorrect incorrectly obsolete")
_STATED = _set("return say give raise")
_ONLY_TOLD = _set("shown told documented tested covered")
_PARTS = _set("support use uses usage need fallback")  # "Drop support for labels"
_STOPS = _set("; : ( ) — \u2013")


class AskedChange(NamedTuple):
    """A sentence that asks for different behaviour, and the words for what is to be different."""

    sentence: str
    words: tuple[str, ...]


class _Clause(NamedTuple):
    opener: str  # the punctuation or word before it
    tokens: tuple[str, ...]

    @property
    def lower(self) -> tuple[str, ...]:
        return tuple(token.lower() for token in self.tokens)


def list_asked_changes(texts: Sequence[str]) -> list[AskedChange]:
    """Those of the title, the description and the tasks of one story."""
    added = _list_added_verbs(texts)
    sentences = [sentence for text in texts for sentence in _SENTENCE.split(text)]
    read = (AskedChange(sentence, tuple(_read_sentence(sentence, added))) for sentence in sentences)
    return [change for change in read if change.words]


def _read_sentence(sentence: str, added: frozenset[str]) -> Iterator[str]:
    if _KEEPS.search(_NO_LONGER.sub("", sentence)):
        return
    main = _list_main(_split_clauses(sentence))
    asked = [_find_asked(clause, topic, added) for clause, topic in main]
    yield from (word for found in asked if found for word in found)
    is_asked = any(found is not None for found in asked) and _TEST_SIDE.search(sentence)
    if is_asked or _EXPECTED.search(sentence):
        yield from (word for clause, _ in main for word in _list_core(clause.tokens))


# --- clauses ----------------------------------------------------------------------------------------


def _split_clauses(sentence: str) -> list[_Clause]:
    text = _RID_OF.sub("remove", _INSTEAD.sub("instead", _NO_LONGER.sub("anymore", sentence)))
    text = _SET_UP.sub("prepare", _SO_THAT.sub("so", text))
    tokens = [token.rstrip(".!?") or token for token in _TOKEN.findall(text)]
    clauses, opener, begun = list[_Clause](), "", list[str]()
    for at, token in enumerate(tokens):
        if _is_boundary(tokens, at, begun):
            clauses += [_Clause(opener, tuple(begun))] if begun else []
            opener, begun = token.lower(), []
        else:
            begun.append(token)
    return [*clauses, _Clause(opener, tuple(begun))] if begun else clauses


def _is_boundary(tokens: Sequence[str], at: int, begun: Sequence[str]) -> bool:
    word, rest = tokens[at].lower(), [one.lower() for one in tokens[at + 1 : at + 6]]
    if word in _STOPS or word in _SUBORDINATORS or word == "so":
        return True
    if word == ",":
        return not _is_in_list(rest)
    if word in ("and", "or", "but", "then"):
        return not begun or word == "but" or _starts_with_verb(rest)
    return False


def _is_in_list(rest: Sequence[str]) -> bool:
    """Whether a comma stands in a list of things: `, snapshots and the receipt`."""
    joins = [at for at, token in enumerate(rest) if token in ("and", "or", ",")]
    return bool(joins) and 0 < joins[0] <= 3 and not _starts_with_verb(rest) and not _PRONOUNS & {*rest[: joins[0]]}


def _starts_with_verb(rest: Sequence[str]) -> bool:
    """A word before an article is a verb, too: `and colour the total`."""
    if not rest or rest[0] in _DETERMINERS or rest[0].startswith("`"):
        return False
    return rest[0] in _VERBS or (len(rest) > 1 and rest[1] in _DETERMINERS)


def _list_main(clauses: Iterable[_Clause]) -> list[tuple[_Clause, tuple[str, ...]]]:
    """The clauses that may ask for something, each with the words for what "it" is there."""
    found, topic = list[tuple[_Clause, tuple[str, ...]]](), tuple[str, ...]()
    is_added = is_open = False
    for clause in clauses:
        if clause.opener in _SUBORDINATORS:
            continue
        is_added = _adds(clause) or (is_open and clause.opener not in _STOPS) or (is_added and _goes_with(clause))
        is_open = is_added and (is_open or _opens(clause))
        if not is_added:
            found.append((clause, topic))
        topic = () if is_added else topic if _is_about_it(clause) else _list_core(clause.tokens)
    return found


def _adds(clause: _Clause) -> bool:
    words = [word for word in clause.lower if word not in ("also", "then", "please")]
    if not words:
        return False
    if words[0] == "let" and len(clause.tokens) > 1 and _is_code(clause.tokens[1]):
        return False  # "Let `total` return cents"
    return words[0] in _ADDS or (bool(_POSSIBLE & {*words}) and "we" not in words)


def _opens(clause: _Clause) -> bool:
    """Whether verbs after it may still be what becomes possible: `Add commands to add, remove and rename items`."""
    pairs = zip(clause.lower, clause.lower[1:], strict=False)
    return bool((_OPENS | _POSSIBLE) & {*clause.lower}) or any(one == "to" and two in _VERBS for one, two in pairs)


def _goes_with(clause: _Clause) -> bool:
    """Whether it says more about what the clause before it adds: `it must return 5`, `to remove items`."""
    return _is_about_it(clause) or clause.lower[0] == "to"


def _is_about_it(clause: _Clause) -> bool:
    return clause.lower[0] in _PRONOUNS


# --- what a clause asks for -------------------------------------------------------------------------


def _find_asked(clause: _Clause, topic: tuple[str, ...], added: frozenset[str]) -> list[str] | None:
    """The words for what must be different; None if it asks for nothing."""
    found: list[str] | None = None
    for at, word in enumerate(clause.lower):
        if (words := _read_request(clause, at, word, added)) is None:
            words = _read_statement(clause, at, word)
        if words is not None:
            is_about_it = not words or {one.lower() for one in words} <= _PRONOUNS or _is_about_it(clause)
            found = [*(found or ()), *words, *(topic if is_about_it else ())]
    return found


def _read_request(clause: _Clause, at: int, word: str, added: frozenset[str]) -> list[str] | None:
    """`Remove the label`, `We need to remove the label`, `The label is removed`, `Removal of the label`."""
    family = _FAMILIES.get(word)
    if family is None or family in added or (family in _AIMED and not _AIMED[family] & {*clause.lower[at:]}):
        return None
    before = clause.lower[:at]
    if word.endswith("ed") or (at and before[-1] in _BE):
        return _list_subject(clause.tokens[:at]) if _BE & {*before} else None
    if word.endswith(("al", "ion", "ment")):
        is_of = clause.lower[at + 1 : at + 2] == ("of",) and {*before} <= _DETERMINERS
        return _read_object(clause.tokens[at + 2 :], family) if is_of else None
    if word.endswith("s") and not _STORY & {*before}:
        return _list_subject(clause.tokens[:at]) if word == "changes" else None
    if before and before[-1] in _DETERMINERS:
        return None  # a noun, as in "the update of the total"
    if {*before} <= _FILLERS or (before[-1] == "by" and word.endswith("ing")):
        return _read_object(clause.tokens[at + 1 :], family)
    return None


def _read_statement(clause: _Clause, at: int, word: str) -> list[str] | None:
    """`The total is wrong`, `The total must return cents`, `It prints a comma instead of a point`."""
    before, after = clause.tokens[:at], clause.lower[at + 1 : at + 3]
    if word in ("instead", "breaking"):
        return [one for one in _list_core(clause.tokens) if one.lower() != word]
    if word in ("becomes", "become", "anymore") or (word in ("should", "must") and _states_behaviour(after)):
        return _list_subject(before)
    if word in _WRONG and not _is_in_phrase(clause.lower[:at]):
        return [*_list_subject(before), *_read_object(clause.tokens[at + 1 :], "change")]
    return None


def _states_behaviour(after: Sequence[str]) -> bool:
    if not after or after[0] in _STATED:
        return bool(after)
    return len(after) > 1 and after[0] == "be" and after[1] not in _ONLY_TOLD


def _is_in_phrase(before: Sequence[str]) -> bool:
    """Whether the last words are a preposition and what belongs to it: `after a`."""
    nouns = [word for word in before if word not in _DETERMINERS]
    return bool(nouns) and nouns[-1] in _PREPOSITIONS


# --- phrases ----------------------------------------------------------------------------------------


def _read_object(tokens: Sequence[str], family: str) -> list[str]:
    """The words up to the first preposition; `the rounding of the total` goes on, `a line of the cart` may not."""
    found = list[str]()
    for at, token in enumerate(tokens):
        word = token.lower()
        if word in _AUXILIARIES or (word in _PREPOSITIONS and not _goes_on(tokens, at, family)):
            break
        found.append(token)
    return found


def _goes_on(tokens: Sequence[str], at: int, family: str) -> bool:
    word, head = tokens[at].lower(), tokens[at - 1].lower() if at else ""
    if word in ("of", "for") and head in _PARTS:
        return True
    if family in _TAKES_OUT:
        return family == "merge" and word == "with"
    return word == "of" or (word == "in" and at + 1 < len(tokens) and _is_code(tokens[at + 1]))


def _list_subject(tokens: Sequence[str]) -> list[str]:
    """The noun before its verb: `The total of the month is wrong`, but not `The colour below the total is wrong`."""
    return _read_object(tokens, "change")


def _list_core(tokens: Sequence[str]) -> tuple[str, ...]:
    """All words that don't belong to a preposition."""
    found, is_inside = list[str](), False
    for at, token in enumerate(tokens):
        word = token.lower()
        if word in _PREPOSITIONS:
            is_inside = not _goes_on(tokens, at, "change")
        elif word in _AUXILIARIES:
            is_inside = False
        elif not is_inside:
            found.append(token)
    return tuple(found)


def _is_code(token: str) -> bool:
    return token.startswith("`") or "_" in token or token.endswith(")")


# --- what the story adds ----------------------------------------------------------------------------


def _list_added_verbs(texts: Iterable[str]) -> frozenset[str]:
    """Verbs that name what the story adds, as in `Add Cart.remove(name)`: its "Remove items" asks to lose nothing."""
    sentences = [sentence for text in texts for sentence in _SENTENCE.split(text)]
    clauses = [clause for sentence in sentences for clause in _split_clauses(sentence)]
    return frozenset(verb for clause in clauses if _adds(clause) for verb in _list_named_verbs(clause))


def _list_named_verbs(clause: _Clause) -> Iterator[str]:
    for before, token in zip(("", *clause.lower), clause.tokens, strict=False):
        if before in ("the", "this", "that"):
            continue  # "Add a test for the change"
        for part in _NAME_PART.findall(token.partition("(")[0]):
            word = part.lower()
            if word in _FAMILIES and not word.endswith("ed") and (word == _FAMILIES[word] or not word.endswith("s")):
                yield _FAMILIES[word]
