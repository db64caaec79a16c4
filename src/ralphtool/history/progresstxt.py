"""Parses a progress.txt: free text, which has the same structure in most loops.

    ## Codebase Patterns
    - **Migrations**: always with IF NOT EXISTS

    ## 2026-01-09 14:30 - US-001
    - What was done
    - **Learnings for future iterations:**
      - The test database has to be made first
    ---

The text is untrusted: only a limited part of each line is parsed.
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core import project
from ralphtool.history import classify
from ralphtool.history.records import Learning, Pattern, learning_id, pattern_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.history.records import LearningType

_CONTEXT = "Migrated from progress.txt"
_SOURCE = "migration"
_HEADING = re.compile(r"(#{1,6})\s+")
_BULLET = re.compile(r"[-*+]\s+")
_LABEL = re.compile(r"\*\*[^*]{1,80}:\*\*|\*\*[^*]{1,80}\*\*:")
_DATED = re.compile(
    r"\[?([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]+([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.[0-9]+)?)?"
    r" ?(Z|[+-][0-9]{2}:?[0-9]{2})?\S*\s*[-–—:|]*\s*(.*)"
)
_STORY = re.compile(r"[A-Za-z][A-Za-z0-9]*[-_][A-Za-z0-9_-]*[0-9]|[A-Z]{1,5}[0-9]+")
_LONGEST_NAME = 60
_LONGEST_TITLE = 200
_LONGEST_LINE = 2000


def parse_text(text: str, now: str) -> tuple[tuple[Learning, ...], tuple[Pattern, ...]]:
    """The whole text as learning-0000, and the items found in it. Nothing if the text is blank."""
    if not text.strip():
        return (), ()
    reader = _ProgressParser()
    reader.read(text.splitlines())
    notes = {(note.text, note.is_pattern): note for note in reversed(reader.notes)}  # keeps the first of equal items
    kept = list(reversed(notes.values()))
    learnings = [note for note in kept if not note.is_pattern]
    patterns = [note for note in kept if note.is_pattern]
    whole = _build_learning(0, _ProgressItem(text, False, None, None), "codebase-pattern", now)
    made = [
        _build_learning(number, note, classify.find_learning_type(note.text), now)
        for number, note in enumerate(learnings, 1)
    ]
    return (whole, *made), tuple(_build_pattern(number, note, now) for number, note in enumerate(patterns, 1))


class _ProgressItem(NamedTuple):
    """One item of the text, and the data of the heading above it."""

    text: str
    is_pattern: bool
    moment: str | None
    story: str | None


def _build_learning(number: int, note: _ProgressItem, kind: LearningType, now: str) -> Learning:
    return Learning(
        id=learning_id(number),
        type=kind,
        content=note.text,
        context=_CONTEXT,
        source_prd_id=project.build_slug(note.story or "") or _SOURCE,
        created_at=note.moment or now,
    )


def _build_pattern(number: int, note: _ProgressItem, now: str) -> Pattern:
    plain = re.sub(r"[*`]", "", note.text)
    name, colon, description = plain.partition(":")
    if not (colon and description.strip() and len(name) <= _LONGEST_NAME):
        import textwrap  # slow to import, and every run loads this module

        name = textwrap.shorten(plain, _LONGEST_NAME, placeholder="…")
    return Pattern(
        id=pattern_id(number),
        name=name.strip(),
        type=classify.find_pattern_type(note.text),
        description=note.text,
        discovered_at=note.moment or now,
        source_prd_id=_SOURCE,
        confidence="medium",
    )


class _ProgressParser:
    """Parses the text line by line, and tracks the headings and the current list."""

    def __init__(self) -> None:
        self.notes: list[_ProgressItem] = []
        self._moment: str | None = None
        self._story: str | None = None
        self._level = 6  # of the heading that began the entry
        self._list: str | None = None  # "learnings" or "patterns" inside such a list
        self._list_level = 0  # of the heading that announced it
        self._indent = -1  # of the item that announced it
        self._item: list[str] = []
        self._in_fence = False

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            shown = line.strip()[:_LONGEST_LINE]
            if shown.startswith(("```", "~~~")):
                self._in_fence = not self._in_fence
            elif not self._in_fence:
                self._read_line(line, shown)
        self._end_item()

    def _read_line(self, line: str, shown: str) -> None:
        heading, bullet = _HEADING.match(shown), _BULLET.match(shown)
        if self._item and line[:1] in (" ", "\t") and shown and not (heading or bullet):
            self._item.append(line.strip())
            return
        self._end_item()
        if heading:
            self._enter(len(heading[1]), shown[heading.end() :][:_LONGEST_TITLE])
        elif bullet:
            self._read_item(len(line) - len(line.lstrip()), line.strip()[bullet.end() :])
        elif _is_title(shown):
            self._list, self._list_level, self._indent = "learnings", 6, -1
        elif shown and (not shown.strip("-") or (self._list == "learnings" and _LABEL.match(shown))):
            self._list = None  # a rule, or the next part of the entry

    def _end_item(self) -> None:
        if self._item:
            is_pattern = self._list == "patterns"
            self.notes.append(_ProgressItem(" ".join(self._item), is_pattern, self._moment, self._story))
        self._item = []

    def _enter(self, level: int, heading: str) -> None:
        if "codebase patterns" in heading.lower():
            self._list, self._list_level, self._indent = "patterns", level, -1
        elif _is_title(heading, is_heading=True):
            self._list, self._list_level, self._indent = "learnings", level, -1
        elif self._list != "patterns" or level <= self._list_level:  # else a group of patterns
            self._list = None
            self._enter_entry(level, heading)

    def _enter_entry(self, level: int, heading: str) -> None:
        """A heading with a date begins an entry; so does another one that is not part of the last entry."""
        dated = _DATED.match(heading)
        if not dated and level > max(self._level, 2):
            return
        story = _STORY.search(dated[5] if dated else heading)
        self._level = level if dated else 2
        self._moment = _parse_moment(dated[1], dated[2], dated[3], dated[4]) if dated else None
        self._story = story[0] if story else None

    def _read_item(self, indent: int, text: str) -> None:
        if _is_title(text):
            self._list, self._list_level, self._indent = "learnings", 6, indent
            return
        if self._list == "learnings" and indent <= self._indent and _LABEL.match(text):
            self._list = None  # the next part of the entry
        if self._list:
            self._item = [text]


def _is_title(text: str, *, is_heading: bool = False) -> bool:
    """Whether it is a title like "**Learnings for future iterations:**", rather than a learning."""
    if len(text) > _LONGEST_TITLE:
        return False
    words = text.strip("*_: ").lower()
    is_title = is_heading or text.rstrip("*_ ").endswith(":") or (text.startswith("**") and text.endswith("**"))
    return words in ("learning", "learnings") or (is_title and words.startswith("learning") and "." not in words)


def _parse_moment(day: str, minute: str | None, second: str | None, zone: str | None) -> str | None:
    """A time without a zone counts as UTC. None for a day or an hour that does not exist."""
    if minute and minute.startswith("24"):
        return None  # Python 3.14 takes it for the next day's midnight
    moment = f"{day}T{minute or '00:00'}{second or ':00'}"
    zone = "Z" if zone in (None, "Z") or minute is None else f"{zone[:3]}:{zone[-2:]}"
    try:
        datetime.datetime.fromisoformat(f"{moment}{zone}")
    except ValueError:
        return None
    return f"{moment}{zone}"
