"""The records of progress.json, version 1.0: immutable, with the allowed values of each field.

An absent optional field is `UNSET`, which is falsy; `null` is never allowed. An absent list is empty.
The JSON Schema is generated from these types, and error messages from that (`schema.py`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ralphtool import typed

__all__ = ["Entry", "IterationContext", "Learning", "Observation", "Pattern", "Progress"]

# RFC 3339 with its zone, on a day that exists. \Z and [0-9]: the whole string, and no digits of other scripts.
_DAY = (
    r"(?!0000)(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

_MOMENT = rf"^{_DAY}[Tt]{_TIME}\Z"

Moment = Annotated[str, Meta(pattern=_MOMENT, extra_json_schema={"format": "date-time"})]
Version = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\Z", description="1.x is read; a newer major is refused")]
EntryId = Annotated[str, Meta(pattern=r"^[a-z0-9-]+-[0-9]+\Z", description="prd_id-iteration, unique")]
LearningId = Annotated[str, Meta(pattern=r"^learning-[0-9]{4,}\Z", description="numbered from the highest")]
PatternId = Annotated[str, Meta(pattern=r"^pattern-[0-9]{4,}\Z", description="numbered from the highest")]
Count = Annotated[int, Meta(ge=0)]
IterationNumber = Annotated[int, Meta(ge=1, description="the number of this entry for its PRD: 1, 2, 3")]

EntryStatus = Literal["completed", "failed", "blocked", "partial"]
ObservationType = Literal["blocker", "finding", "completion"]
Category = Literal[
    "bug",
    "stub",
    "dependency",
    "scope-creep",
    "api-issue",
    "test-failure",
    "tooling-friction",
    "architecture",
    "documentation",
    "performance",
    "security",
]
Severity = Literal["critical", "high", "medium", "low", "info"]
ActionTaken = Literal["fixed", "deferred", "escalated", "documented", "none"]
RecoveryAction = Literal["retry", "fix-state", "break-chunks", "skip", "manual"]
LearningType = Literal[
    "codebase-pattern",
    "build-command",
    "test-pattern",
    "api-convention",
    "error-workaround",
    "tool-usage",
    "architecture-constraint",
    "dependency-quirk",
]
PatternType = Literal[
    "file-structure",
    "naming-convention",
    "api-pattern",
    "test-pattern",
    "error-handling",
    "state-management",
    "build-pattern",
    "deployment-pattern",
]
Confidence = Literal["high", "medium", "low"]


class HistoryRecord(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One object of the document. It can't be part of a reference cycle, so the garbage collector ignores it."""


class Observation(HistoryRecord, frozen=True, kw_only=True):
    """Something that was noticed during an iteration."""

    type: ObservationType
    title: str
    description: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    category: Category | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    action_taken: ActionTaken | UnsetType = UNSET
    related_learning_id: str | UnsetType = UNSET


class IterationContext(HistoryRecord, frozen=True, kw_only=True):
    """How an iteration came about: what went before it, and what was made of a claimed blocker."""

    retry_count: Count | UnsetType = UNSET
    previous_failure_reason: str | UnsetType = UNSET
    recovery_action: RecoveryAction | UnsetType = UNSET
    recovery_guidance: str | UnsetType = UNSET
    dependencies_completed: tuple[str, ...] = ()
    blocker_verified: bool | UnsetType = UNSET
    blocker_valid: bool | UnsetType = UNSET


class Entry(HistoryRecord, frozen=True, kw_only=True):
    """How one iteration of a PRD ended."""

    id: EntryId
    timestamp: Moment
    prd_id: str
    iteration: IterationNumber
    status: EntryStatus
    duration_seconds: Count | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    observations: tuple[Observation, ...]
    files_modified: tuple[str, ...] = ()
    git_commits: tuple[str, ...] = ()
    context: IterationContext | UnsetType = UNSET


class Learning(HistoryRecord, frozen=True, kw_only=True):
    """What later iterations should know."""

    id: LearningId
    type: LearningType
    content: str
    context: str | UnsetType = UNSET
    source_prd_id: str
    source_entry_id: str | UnsetType = UNSET
    created_at: Moment
    times_referenced: Count = 0
    still_valid: bool = True


class Pattern(HistoryRecord, frozen=True, kw_only=True):
    """How things are done in this code base."""

    id: PatternId
    name: str
    type: PatternType
    description: str | UnsetType = UNSET
    examples: tuple[str, ...] = ()
    discovered_at: Moment
    source_prd_id: str | UnsetType = UNSET
    confidence: Confidence | UnsetType = UNSET


class Progress(HistoryRecord, frozen=True, kw_only=True):
    """The history of a project: what every iteration came to, and what was learnt from them."""

    version: Version
    created_at: Moment
    project_name: str | UnsetType = UNSET
    entries: tuple[Entry, ...]
    learnings: tuple[Learning, ...] = ()
    patterns: tuple[Pattern, ...] = ()


def is_moment(text: str) -> bool:
    return re.search(_MOMENT, text) is not None


def learning_id(number: int) -> str:
    return f"learning-{number:04}"


def pattern_id(number: int) -> str:
    return f"pattern-{number:04}"


def parse_number(id: str) -> int:
    """The number in an id of a learning or a pattern; 0 if it is absurdly large."""
    digits = id.rpartition("-")[2]
    return int(digits) if len(digits) < 16 else 0


# --- reading ----------------------------------------------------------------------------------------

_Kind = TypeVar("_Kind")


def decode(data: bytes | str | Raw, kind: type[_Kind]) -> _Kind:
    """One object of JSON, every field checked.

    Each decoder is built on first use: the patterns of its fields take long to compile.
    """
    return typed.decode(data, kind)
