"""From progress.txt, which loops used to keep, to progress.json: once, and nothing is lost on the way.

The old text becomes learning-0000, whole, and the file is kept as progress.txt.backup. Besides, as far as the text
has the usual shape, what stands under "Codebase Patterns" becomes patterns, and "Learnings for future iterations"
become learnings.
"""

from __future__ import annotations

import datetime
import os
import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ralphtool import files, project, session
from ralphtool.history import kinds
from ralphtool.history.journal import Batch
from ralphtool.history.records import Learning, Pattern, learning_id, pattern_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.history.records import LearningType
    from ralphtool.history.state import State
    from ralphtool.history.store import Store

CONTEXT = "Migrated from progress.txt"
_SOURCE = "migration"
_HEADING = re.compile(r"#{1,6}\s+")
_BULLET = re.compile(r"[-*+]\s+")
_LABEL = re.compile(r"\*\*[^*]+:\*\*|\*\*[^*]+\*\*:")
_DATED = re.compile(r"\[?([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]+([0-9]{2}:[0-9]{2})(:[0-9]{2})?)?\S*\s*[-–—:|]*\s*(.*)")
_STORY = re.compile(r"[A-Za-z][A-Za-z0-9]*[-_][A-Za-z0-9_-]*[0-9]|[A-Z]{1,5}[0-9]+")
_LONGEST_NAME = 60
_LONGEST_HEADING = 200  # and no more of it is looked at: the text may be anything
_LONGEST_LINE = 2000


class Migration(Struct, frozen=True):
    """What was, or would be, taken over from where."""

    path: str
    backup: str
    learnings: tuple[Learning, ...]
    patterns: tuple[Pattern, ...]


def run(store: Store) -> Migration | None:
    """Takes over a progress.txt if there is one and no progress.json yet; finishes what was interrupted."""
    found = plan(store)
    if found is None:
        return None
    store.create(Batch(learnings=found.learnings, patterns=found.patterns))
    _put_away(found)
    return found


def plan(store: Store) -> Migration | None:
    """What there is to take over; nothing if there is a history already."""
    path = _find(store.root)
    if path is None:
        return None
    text = files.read(path).decode("utf-8", "replace").removeprefix("\ufeff")
    if os.path.lexists(store.path) and not store.ask(lambda state: _is_taken_over(state, text)):
        return None
    return Migration(path, _free_backup(path), *read(text, session.now()))


def _find(root: str) -> str | None:
    places = (os.path.join(root, ".ralph", "progress.txt"), os.path.join(root, "progress.txt"))
    # Not through a link: one that came with somebody's repository could lead to what is nobody's business.
    return next((path for path in places if os.path.isfile(path) and not os.path.islink(path)), None)


def _is_taken_over(state: State, text: str) -> bool:
    """Whether we were interrupted after the text had been taken over, and before the file was put away."""
    known = state.catalog.learning(learning_id(0))
    return known is not None and known.content == text


def _free_backup(path: str) -> str:
    """Where the old file goes: never over another one."""
    names = [f"{path}.backup", *(f"{path}.backup.{number}" for number in range(1, 1000))]
    return next(name for name in names if not os.path.lexists(name))


def _put_away(found: Migration) -> None:
    try:
        os.rename(found.path, found.backup)
    except FileNotFoundError:
        return  # somebody else has just done it
    files.sync_folder(found.path)


# --- reading the old text ---------------------------------------------------------------------------


class _Note(NamedTuple):
    """One item of the old text, and what stood above it."""

    text: str
    is_pattern: bool
    moment: str | None
    story: str | None


def read(text: str, now: str) -> tuple[tuple[Learning, ...], tuple[Pattern, ...]]:
    """The whole text as learning-0000, and what could be made out in it. Nothing of a text without content."""
    if not text.strip():
        return (), ()
    notes = list(dict.fromkeys(_notes(text.splitlines())))
    whole = _learning(0, _Note(text, False, None, None), "codebase-pattern", now)
    learnings = [note for note in notes if not note.is_pattern]
    patterns = [note for note in notes if note.is_pattern]
    made = [_learning(number, note, kinds.of_learning(note.text), now) for number, note in enumerate(learnings, 1)]
    return (whole, *made), tuple(_pattern(number, note, now) for number, note in enumerate(patterns, 1))


def _learning(number: int, note: _Note, kind: LearningType, now: str) -> Learning:
    return Learning(
        id=learning_id(number),
        type=kind,
        content=note.text,
        context=CONTEXT,
        source_prd_id=project.slug(note.story or "") or _SOURCE,
        created_at=note.moment or now,
    )


def _pattern(number: int, note: _Note, now: str) -> Pattern:
    name, colon, description = re.sub(r"[*`]", "", note.text).partition(":")
    if not (colon and description.strip() and len(name) <= _LONGEST_NAME):
        name = textwrap.shorten(re.sub(r"[*`]", "", note.text), _LONGEST_NAME, placeholder="…")
    return Pattern(
        id=pattern_id(number),
        name=name.strip(),
        type=kinds.of_pattern(note.text),
        description=note.text,
        discovered_at=note.moment or now,
        source_prd_id=_SOURCE,
        confidence="medium",
    )


class _Place:
    """Where in the old text we are: what the headings said, and whether a list of learnings or patterns goes on."""

    def __init__(self) -> None:
        self.moment: str | None = None
        self.story: str | None = None
        self.list: str | None = None
        self.indent = -1  # of the item that announced the list; a heading has none

    def enter(self, heading: str) -> None:
        self.list, self.indent = None, -1
        if "codebase patterns" in heading.lower():
            self.list = "patterns"
        elif _announces(heading):
            self.list = "learnings"
        else:
            self._enter_entry(heading)

    def _enter_entry(self, heading: str) -> None:
        dated = _DATED.match(heading)
        rest = dated[4] if dated else heading
        self.moment = _moment(dated[1], dated[2], dated[3]) if dated else None
        story = _STORY.search(rest)
        self.story = story[0] if story else None

    def begin_list(self, indent: int) -> None:
        self.list, self.indent = "learnings", indent


def _moment(day: str, minute: str | None, second: str | None) -> str | None:
    """The old text knows no zones: its times are taken as UTC. A day that does not exist is none."""
    try:
        datetime.datetime.fromisoformat(f"{day}T{minute or '00:00'}{second or ':00'}")
    except ValueError:
        return None
    return f"{day}T{minute or '00:00'}{second or ':00'}Z"


def _notes(lines: list[str]) -> Iterator[_Note]:
    place = _Place()
    item: list[str] = []
    for line in [*lines, "---"]:
        shown = line.strip()[:_LONGEST_LINE]
        heading, bullet = _HEADING.match(shown), _BULLET.match(shown)
        goes_on = item and line[:1] in (" ", "\t") and shown and not (heading or bullet)
        if goes_on:
            item.append(line.strip())
            continue
        if item:
            yield _Note(" ".join(item), place.list == "patterns", place.moment, place.story)
            item = []
        if heading:
            place.enter(shown[heading.end() : _LONGEST_HEADING])
        elif shown and not shown.strip("-"):
            place.list = None
        elif bullet:
            item = _item(place, len(line) - len(line.lstrip()), line.strip()[bullet.end() :])
        elif _announces(shown):
            place.begin_list(-1)


def _announces(text: str) -> bool:
    """Whether it is a title like "**Learnings for future iterations:**", rather than a sentence."""
    return len(text) < _LONGEST_HEADING and text.strip("*_: ").lower().startswith("learning") and "." not in text


def _item(place: _Place, indent: int, text: str) -> list[str]:
    """The text of an item that is one to keep; it may instead begin a list, or end one."""
    if _announces(text):
        place.begin_list(indent)
        return []
    if place.list == "learnings" and indent <= place.indent and _LABEL.match(text):
        place.list = None  # the next part of the entry
    return [text] if place.list else []
