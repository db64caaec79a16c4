"""Turns a session's buffers into records of the history."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET

from ralphtool.core import session
from ralphtool.history import classify, records
from ralphtool.history.records import Learning, Pattern, learning_id, pattern_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ralphtool.history.journal import Batch

    Notes = Iterable[dict[str, Any]]


class HistoryWriter(Protocol):
    """A history that numbers the records it is given."""

    def add(self, learnings: Iterable[Learning] = (), patterns: Iterable[Pattern] = ()) -> Batch: ...


def write(history: HistoryWriter, state: dict[str, Any], prd_id: Callable[[str | None], str]) -> Batch:
    """Adds a session's learnings and patterns to the history, except those that already exist."""
    known = cache(prd_id)  # some adapters read the whole spec for it
    return history.add(
        [_build_learning(one, known(_find_story(one))) for one in state["learnings"]],
        [_build_pattern(one, known(None)) for one in state["patterns"]],
    )


# Another program may have written the session's file: missing values are replaced, so that a flush always completes.


def _find_story(note: dict[str, Any]) -> str | None:
    story = note.get("story_id")
    return story if isinstance(story, str) else None


def _keep_known(kind: Any, kinds: Collection[str]) -> Any:
    return kind if kind in kinds else None


def _find_moment(note: dict[str, Any]) -> str:
    moment = note.get("timestamp")
    return moment if isinstance(moment, str) and records.is_moment(moment) else session.now()


def _build_learning(note: dict[str, Any], prd_id: str) -> Learning:
    text = note["description"]
    return Learning(
        id=learning_id(0),  # numbered when it is added
        type=_keep_known(note.get("type"), session.LEARNING_TYPES) or classify.find_learning_type(text),
        content=text,
        context=f"Recorded with task {note['task_id']}" if isinstance(note.get("task_id"), str) else UNSET,
        source_prd_id=prd_id,
        created_at=_find_moment(note),
    )


def _build_pattern(note: dict[str, Any], prd_id: str) -> Pattern:
    return Pattern(
        id=pattern_id(0),
        name=note["name"],
        type=_keep_known(note.get("type"), session.PATTERN_TYPES)
        or classify.find_pattern_type(f"{note['name']} {note['description']}"),
        description=note["description"],
        discovered_at=_find_moment(note),
        source_prd_id=prd_id,
        confidence="medium",
    )
