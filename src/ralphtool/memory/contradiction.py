"""Finds out whether two texts say the opposite of each other, in similar words.

A clause with a "not" denies its words, and so does one with the opposite of a word in the other text ("disabled"
there, "enabled" here); two of these in a clause cancel out. Or nothing is denied, but two things are swapped.
"""

from __future__ import annotations

from ralphtool.memory.clauses import ParsedText, Unit, build_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DENIED = 0.3  # not reached if the word right after the denial is not shared
_NEAR = 5  # words around a "before" or "after" that it may be about

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
enable off
disable on
allow prevent
visible hidden
success failure
succeed fail
mandatory optional
manual automatic
public private
internal external
local remote
static dynamic
online offline
explicit implicit
high low
good bad
better worse
early late
safe dangerous
always sometimes
serial parallel
sequential parallel
shared isolated
shared separate
persistent volatile
strict lenient
swallow raise
swallow propagate
attach detach
import export
encode decode
push pull
commit rollback
all none
check skip
check ignore
read ignore
change preserve
support drop
"""
# These deny their clause even if the other text does not contain their opposite.
_REFUSALS = "forbid exclude skip ignore omit prevent"
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "dis", "de", "mis")


def find_opposite_words(left: ParsedText, right: ParsedText) -> dict[str, str]:
    """The words with an opposite in the other text, each with that opposite."""
    known = [(one, other) for one in left.keys for other in _OPPOSITES_OF.get(one, set()) & right.keys]
    # sorted, since a word can have two opposites, and sets have no order
    flips = dict(sorted((max(pair), min(pair)) for pair in known))
    flips |= _find_prefixed(left, right) | _find_prefixed(right, left)
    flips |= _find_refusals(left, right, flips) | _find_refusals(right, left, flips)
    both = left.keys & right.keys  # if a text has both, their positions matter
    return {one: other for one, other in flips.items() if one not in both or other not in both}


def are_opposite(left: ParsedText, right: ParsedText, flips: dict[str, str]) -> bool:
    """Whether one text says the opposite of the other; `flips` are their opposite words."""
    return _is_denied(left, right, flips) or _is_swapped(left, right) or _is_reversed(left, right)


def _find_refusals(mine: ParsedText, yours: ParsedText, flips: dict[str, str]) -> dict[str, str]:
    """The words in `mine` that refuse something, unless they or their opposites are in `yours`."""
    known = {key[:4] for key in yours.keys.union(flips, flips.values())}  # by prefix: they can be misspelled
    return {key: key for key in mine.keys & _REFUSING if key[:4] not in known}


def _find_prefixed(mine: ParsedText, yours: ParsedText) -> dict[str, str]:
    """The words in `mine` that are a word of `yours` with a prefix like "un"; stems alone don't always show it."""
    bare = {form: unit.key for unit in yours.units for form in (unit.spelling, unit.key)}
    return {
        unit.key: bare[form[len(prefix) :]]
        for unit in mine.units
        for form in (unit.spelling, unit.key)
        for prefix in _PREFIXES
        if form.startswith(prefix) and len(form) >= len(prefix) + 3 and form[len(prefix) :] in bare
    }


def _index_pairs(pairs: str) -> dict[str, set[str]]:
    opposites: dict[str, set[str]] = {}
    for line in pairs.splitlines():
        one, other = map(build_key, line.split())
        opposites.setdefault(one, set()).add(other)
        opposites.setdefault(other, set()).add(one)
    return opposites


_OPPOSITES_OF = _index_pairs(_OPPOSITES)
_REFUSING = frozenset(map(build_key, _REFUSALS.split()))


# --- denials -------------------------------------------------------------------------------------


def _is_denied(left: ParsedText, right: ParsedText, flips: dict[str, str]) -> bool:
    # hypothetical denials count only if both texts have some: "needs it" and "fails without it" agree
    is_counted = left.has_else == right.has_else or bool(left.suppositions and right.suppositions)
    one, other = _Claims(left, flips, is_counted), _Claims(right, flips, is_counted)
    return one.denies(other) or other.denies(one) or one.is_crossed_with(other) or _is_turned(left, right, flips)


def _is_turned(left: ParsedText, right: ParsedText, flips: dict[str, str]) -> bool:
    """The same words in the same order, with one more "not" in one of them: that is not a rewording."""

    turns = flips | {build_key("after"): build_key("before")}

    def split(text: ParsedText) -> tuple[list[str], int]:
        words = [turns.get(unit.key, unit.key) for unit in text.units]
        flipped = sum(unit.key in turns for unit in text.units)
        return words, (len(text.denials) + len(text.suppositions) + flipped) % 2

    (mine, is_mine_denied), (yours, is_yours_denied) = split(left), split(right)
    return mine == yours and is_mine_denied != is_yours_denied


class _Claims:
    """The words that a text denies, and where."""

    def __init__(self, text: ParsedText, flips: dict[str, str], with_suppositions: bool) -> None:
        self._words = [(flips.get(unit.key, unit.key), unit.clause) for unit in text.units]
        flipped = [(unit.clause, at) for at, unit in enumerate(text.units) if unit.key in flips]
        supposed = text.suppositions if with_suppositions else []
        self._denials = _group_by_clause(text.denials + flipped + supposed)
        self._denied = {clause for clause, found in self._denials.items() if len(found) % 2}
        self._is_denied: dict[str, set[bool]] = {}  # both, if the word is affirmed in one place and denied in another
        for key, clause in self._words:
            self._is_denied.setdefault(key, set()).add(clause in self._denied)

    def denies(self, other: _Claims) -> bool:
        """Whether a clause of this text denies something that the other text affirms."""
        balance = dict.fromkeys(self._denied, 0.0)
        for at, (key, clause) in enumerate(self._words):
            theirs = other._is_denied.get(key, set())
            if clause in self._denied and len(self._is_denied[key]) == len(theirs) == 1:
                balance[clause] += self._nearness(at, clause) * (-1 if True in theirs else 1)
        return any(value > _DENIED for value in balance.values())

    def is_crossed_with(self, other: _Claims) -> bool:
        """Whether each text affirms something that the other denies: "this, not that"."""
        mine, theirs = self._is_denied.items(), other._is_denied
        return all(
            any(found == {denied} and theirs.get(key) == {not denied} for key, found in mine)
            for denied in (True, False)
        )

    def _nearness(self, at: int, clause: int) -> float:
        """A "not" applies to what follows it, most of all to the next word."""
        return max(1 / (at - no + 1) ** 2 if at >= no else 0.5 / (no - at) ** 2 for no in self._denials[clause])


def _group_by_clause(places: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for clause, at in places:
        found.setdefault(clause, []).append(at)
    return found


# --- swapped words -------------------------------------------------------------------------------


def _is_swapped(left: ParsedText, right: ParsedText) -> bool:
    """The same text, but two words of different clauses are swapped."""
    if len(left.units) != len(right.units) or left.denials or right.denials:
        return False
    moved = [(one, other) for one, other in zip(left.units, right.units, strict=True) if one.key != other.key]
    if len(moved) != 2:
        return False
    (one, other), (one_later, other_later) = moved
    return one.key == other_later.key and one_later.key == other.key and one.clause != one_later.clause


def _is_reversed(left: ParsedText, right: ParsedText) -> bool:
    """One text has "before" where the other has "after"."""
    theirs = list(_find_orders(right))
    return any(one.is_reverse_of(other) for one in _find_orders(left) for other in theirs)


class _Order:
    """A "before" or "after", with some of the words after it, and some of those that it refers to."""

    def __init__(self, units: list[Unit], at: int) -> None:
        clause = units[at].clause
        following = [near.key for near in units[at + 1 : at + _NEAR] if near.clause == clause]
        said_of = [near.key for near in units[max(0, at - _NEAR) : at] if near.clause == clause]
        next_clause = at + 1 + len(following)  # "before this, that" says the same as "that before this"
        self._is_before = units[at].spelling == "before"
        self._following = set(following)
        self._said_of = set(said_of or [near.key for near in units[next_clause : next_clause + _NEAR]])

    def is_reverse_of(self, other: _Order) -> bool:
        straight = len(self._following & other._following)
        crossed = len(self._following & other._said_of) + len(self._said_of & other._following)
        if self._is_before == other._is_before:
            return crossed > 0 and straight == 0
        return straight > crossed


def _find_orders(text: ParsedText) -> Iterator[_Order]:
    return (_Order(text.units, at) for at, unit in enumerate(text.units) if unit.spelling in ("before", "after"))
