"""Entries, learnings and patterns for the tests of the history's store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import UNSET

from ralphtool.history import state, store
from ralphtool.history.records import Category, Entry, EntryStatus, Learning, Observation, Pattern, Progress

PRD = "add-login-1"
MOMENT = "2026-01-31T09:30:00Z"
Value = TypeVar("Value")
STATUSES: tuple[EntryStatus, ...] = ("completed", "failed", "blocked", "partial")


def set_sizes(patch: pytest.MonkeyPatch, *, small: int, share: int, room: int = 64, unsettled: int = 1 << 20) -> None:
    """Gives small documents a journal and an index too. With a share of 0, nothing is folded automatically."""
    for name, value in {"SMALL": small, "_SHARE": share, "_SPARE_BYTES": room, "_UNSETTLED": unsettled}.items():
        patch.setattr(state if hasattr(state, name) else store, name, value)


def observation(title: str, kind: Any = "finding", category: Category | None = None, link: str = "") -> Observation:
    return Observation(type=kind, title=title, category=category or UNSET, related_learning_id=link or UNSET)


def entry(
    iteration: int, prd: str = PRD, status: EntryStatus = "completed", *seen: Observation, at: str = MOMENT
) -> Entry:
    return Entry(
        id=f"{prd}-{iteration}",
        timestamp=at,
        prd_id=prd,
        iteration=iteration,
        status=status,
        summary=f"{iteration} of {prd} “é\u2028”",
        observations=seen,
    )


def learning(content: str, number: int = 1, kind: Any = "tool-usage", prd: str = PRD, at: str = MOMENT) -> Learning:
    return Learning(id=f"learning-{number:04}", type=kind, content=content, source_prd_id=prd, created_at=at)


def pattern(name: str, number: int = 1, kind: Any = "api-pattern", description: str = "so") -> Pattern:
    return Pattern(
        id=f"pattern-{number:04}",
        name=name,
        type=kind,
        description=description,
        discovered_at=MOMENT,
        source_prd_id=PRD,
        confidence="medium",
    )


def written(progress: Progress) -> bytes:
    """A document in the required format."""
    return msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n"


def ids(records: Iterable[Entry | Learning | Pattern]) -> list[str]:
    return [record.id for record in records]
