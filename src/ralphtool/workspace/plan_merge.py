"""A plan that the user edits while a run works on it: matches its stories, and finds which boxes are ticked.

Numbers alone say little: inserting a story renumbers those that follow. So stories are matched by their words first.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from ralphtool.specs import Story, Task

Item = TypeVar("Item")
_ALIKE = 0.6  # the share of words that a reworded story or task still has in common
_MOST_COMPARED = 10_000  # pairs; if a long plan is completely rewritten, only those with the same number


class PlanEdit(Struct, frozen=True, kw_only=True):
    """The user's edits to a plan. Stories are named by their new ids, removed ones by their old ids."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reworded: tuple[str, ...] = ()  # not done
    reopened: tuple[str, ...] = ()  # were done, but have an open box now
    outdated: tuple[str, ...] = ()  # done, but reworded while an agent worked on them: open again
    changed_when_done: tuple[str, ...] = ()  # done, with a different wording than the plan has now
    renamed: tuple[tuple[str, str], ...] = ()  # old and new ids
    done_tasks: tuple[str, ...] = ()  # those to be ticked

    @property
    def is_nothing(self) -> bool:
        stories = (self.added, self.removed, self.reworded, self.reopened, self.outdated, self.changed_when_done)
        return not any((*stories, self.renamed))

    def describe(self, change: str, flag: str = "") -> str:
        """One line for people; empty if no story has changed. `flag` names the change in a command, if needed."""
        parts = [
            ("new", self.added),
            ("removed", self.removed),
            ("reworded", self.reworded),
            ("open again, with new tasks", self.reopened),
            ("open again, because you reworded it while an agent worked on it", self.outdated),
            ("renumbered", tuple(f"{old} → {new}" for old, new in self.renamed)),
        ]
        told = "; ".join(f"{what}: {_name(ids)}" for what, ids in parts if ids)
        asked = (
            f"{'; ' if told else ''}already done before you reworded it: {_name(self.changed_when_done)} "
            f"(`ralphtool reject {self.changed_when_done[0]}{flag}` reopens it)"
            if self.changed_when_done
            else ""
        )
        return f"you edited the plan of {change}: {told}{asked}" if told or asked else ""


def compare(
    base: Sequence[Story], ours: Sequence[Story], theirs: Sequence[Story], outdated: Collection[str] = ()
) -> PlanEdit:
    """The effect on `ours`, the stories as a run has them, of an edit that turned `base` into `theirs`.

    `outdated` are stories of `ours` that were reworded while an agent worked on them: their work is for other words.
    """
    known = match(ours, theirs)  # by new ids
    before = match(base, theirs)
    by_id = {story.id: story for story in ours}
    matched = [(story, by_id[known[story.id]]) for story in theirs if story.id in known]
    old = tuple(new.id for new, mine in matched if mine.id in outdated and mine.done and spell(new) != spell(mine))
    ticked = [story for story in theirs if story.id not in old]
    done = tuple(_list_done(ticked, known, before, ours, base))
    is_done = {story.id: bool(story.tasks) and all(task.id in done for task in story.tasks) for story in theirs}
    changed = [(new, mine) for new, mine in matched if spell(new) != spell(mine)]
    return PlanEdit(
        added=tuple(story.id for story in theirs if story.id not in known),
        removed=tuple(story.id for story in ours if story.id not in known.values()),
        reworded=tuple(new.id for new, mine in changed if not mine.done and not is_done[new.id]),
        reopened=tuple(new.id for new, mine in matched if _is_reopened(mine, is_done[new.id]) and new.id not in old),
        outdated=old,
        changed_when_done=tuple(new.id for new, mine in changed if mine.done and is_done[new.id]),
        renamed=tuple((mine.id, new.id) for new, mine in matched if new.id != mine.id),
        done_tasks=done,
    )


def _is_reopened(story: Story, is_done: bool) -> bool:
    return bool(story.tasks) and story.done and not is_done


def _list_done(
    theirs: Sequence[Story],
    known: Mapping[str, str],
    before: Mapping[str, str],
    ours: Sequence[Story],
    base: Sequence[Story],
) -> Iterator[str]:
    """The run's state of a box counts, unless the user has changed the box since."""
    of_ours, of_base = ({story.id: story for story in stories} for stories in (ours, base))
    for story in theirs:
        run = _match_tasks(of_ours.get(known.get(story.id, "")), story)
        then = _match_tasks(of_base.get(before.get(story.id, "")), story)
        for task in story.tasks:
            is_set = task.id in then and then[task.id].done != task.done
            found = task if is_set or task.id not in run else run[task.id]
            if found.done:
                yield task.id


def _match_tasks(old: Story | None, new: Story) -> dict[str, Task]:
    """The earlier version of each task of a story. A completely reworded task counts as new, and is not done."""
    if old is None:
        return {}
    pairs = _pair(old.tasks, new.tasks, lambda task: task.id, lambda task: task.text)
    return {after.id: before for before, after in pairs}


def match(old: Sequence[Story], new: Sequence[Story]) -> dict[str, str]:
    """The old id of each story of a new plan that is also in the old plan."""
    return {after.id: before.id for before, after in _pair(old, new, lambda story: story.id, spell)}


def _pair(
    old: Sequence[Item], new: Sequence[Item], name: Callable[[Item], str], spell: Callable[[Item], str]
) -> list[tuple[Item, Item]]:
    """Pairs by name and words; then by words; then by a unique title; then the most similar ones."""
    pairs: list[tuple[Item, Item]] = []
    rest, left = list(old), list(new)
    own = _find_single([old, new], lambda one: _first_line(spell(one)))
    for key in (lambda one: (name(one), spell(one)), spell, lambda one: own.get(_first_line(spell(one)))):
        found = list(_pair_by(rest, left, key))
        pairs += found
        rest = [one for one in rest if not any(one is before for before, _ in found)]
        left = [one for one in left if not any(one is after for _, after in found)]
    return pairs + (_pair_alike(rest, left, name, _Wording([old, new], spell)) if rest and left else [])


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _find_single(sides: Sequence[Sequence[Item]], spell: Callable[[Item], str]) -> dict[str, str]:
    """The texts that no side has twice. A second "Tests" is another story, whatever else is reworded in it."""
    counts = [Counter(map(spell, side)) for side in sides]
    return {text: text for text in {*counts[0], *counts[1]} if all(count[text] <= 1 for count in counts)}


def _pair_by(old: Sequence[Item], new: Sequence[Item], key: Callable[[Item], Hashable]) -> Iterator[tuple[Item, Item]]:
    """Pairs with the same key; if several have it, in order."""
    waiting: dict[Hashable, list[Item]] = {}
    for one in old:
        waiting.setdefault(key(one), []).append(one)
    for one in new:
        if key(one) is not None and (found := waiting.get(key(one))):
            yield found.pop(0), one


def _pair_alike(
    old: Sequence[Item], new: Sequence[Item], name: Callable[[Item], str], wording: _Wording[Item]
) -> list[tuple[Item, Item]]:
    """Pairs with the most words in common first; among equals, those with the same number first."""
    before, after = ([wording.read(one) for one in side] for side in (old, new))
    is_much = len(old) * len(new) > _MOST_COMPARED
    scores = [
        (wording.compare(mine, theirs), is_named, -i, -j)
        for i, mine in enumerate(before)
        for j, theirs in enumerate(after)
        if (is_named := name(old[i]) == name(new[j])) or not is_much
    ]
    chosen: dict[int, int] = {}
    for score, _, i, j in sorted(scores, reverse=True):
        if score >= _ALIKE and -i not in chosen and -j not in chosen.values():
            chosen[-i] = -j
    return [(old[i], new[j]) for i, j in chosen.items()]


class _Words(Struct, frozen=True):
    """The text of a story or task that no other one has."""

    lines: frozenset[str]
    words: Counter[str]
    parts: Counter[str]  # of three letters: "sign-up" is nearly "signup"


class _Wording(Generic[Item]):
    """How similar two stories or tasks are. "A test proves it" means nothing if it is below every heading."""

    def __init__(self, sides: Sequence[Sequence[Item]], spell: Callable[[Item], str]) -> None:
        self._spell = spell
        counts = [Counter(line for one in side for line in set(spell(one).split("\n"))) for side in sides]
        self._common = {line for count in counts for line, times in count.items() if times > 1}

    def read(self, one: Item) -> _Words:
        lines = [line for line in self._spell(one).split("\n") if line.strip() and line not in self._common]
        words = re.findall(r"\w+", " ".join(lines).casefold())
        text = f" {' '.join(words)} "
        parts = Counter(text[start : start + 3] for start in range(len(text) - 2))
        return _Words(frozenset(lines), Counter(words), parts)

    @staticmethod
    def compare(one: _Words, other: _Words) -> float:
        """From 0 to 1. One whole unique line in common is enough."""
        least = _ALIKE if one.lines & other.lines else 0.0
        return max(least, _share(one.words, other.words), _share(one.parts, other.parts))


def _share(one: Counter[str], other: Counter[str]) -> float:
    sizes = sorted([one.total(), other.total()])
    if 2 * sizes[0] < _ALIKE * sum(sizes) or not sizes[0]:
        return 0.0  # too different in length; counting takes long in a big plan
    return 2 * sum(min(count, other[part]) for part, count in one.items() if part in other) / sum(sizes)


def spell(story: Story) -> str:
    """The words of a story, title first, without the numbers of the story and its tasks."""
    return "\n".join([story.title.strip(), (story.description or "").strip(), *(task.text for task in story.tasks)])


def _name(ids: Sequence[str]) -> str:
    return f"{'story' if len(ids) == 1 else 'stories'} {_join(ids)}"


def _join(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
