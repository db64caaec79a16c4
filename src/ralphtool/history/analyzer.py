"""Looking back before an iteration, recording it afterwards, and drawing learnings from it. Pure functions.

Their inputs are a history to query, or values; their results are values. Nothing is written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Struct, structs

from ralphtool.core import session
from ralphtool.history import classify
from ralphtool.history.records import Entry, IterationContext, Learning, Observation, learning_id, parse_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.history.records import Category, EntryStatus

FRICTION_LIMIT = 3  # more tooling friction than this in failed attempts is worth a warning


class AttemptHistory(Protocol):
    """The queries that looking back needs from a history."""

    def attempts(self, prd_id: str) -> int: ...

    def next_iteration(self, prd_id: str) -> int: ...

    def last_entry(self, prd_id: str) -> Entry | None: ...

    def failures(self) -> dict[Category, int]: ...


class AttemptContext(Struct, frozen=True, kw_only=True):
    """The state of a PRD before an iteration of it begins. Relevant learnings come from `knowledge`."""

    prd_id: str
    attempt: int  # the number of the coming attempt
    iteration: int  # the number of its entry: equal, unless a merge has left gaps
    retry_count: int  # attempts since the last completed one, including this one; 0 for a first one
    previous_failure: str | None
    warnings: tuple[str, ...]


def look_back(history: AttemptHistory, prd_id: str, since: int = 0) -> AttemptContext:
    """The earlier attempts at a story. Iterations before `since` were about another story with the same name."""
    last = history.last_entry(prd_id)
    if last and last.iteration < since:
        last = None
    failed = last if last and last.status != "completed" else None
    return AttemptContext(
        prd_id=prd_id,
        attempt=history.attempts(prd_id) + 1,
        iteration=history.next_iteration(prd_id),
        retry_count=_count_retries(failed) + 1 if failed else 0,
        previous_failure=_describe_failure(failed) if failed else None,
        warnings=_build_warnings(history.failures()),
    )


def _count_retries(entry: Entry) -> int:
    return (entry.context.retry_count or 0) if entry.context else 0


def _describe_failure(entry: Entry) -> str:
    """Why an attempt did not complete: its summary, else its first blocker, else its status."""
    blockers = (one.title for one in entry.observations if one.type == "blocker")
    return entry.summary or next(blockers, "") or f"the last attempt ended as {entry.status}"


def _build_warnings(failures: dict[Category, int]) -> tuple[str, ...]:
    times = failures.get("tooling-friction", 0)
    if times <= FRICTION_LIMIT:
        return ()
    return (f"tool problems occurred {times} times in failed attempts: consider fixing the tools first",)


def record(
    before: AttemptContext,
    status: EntryStatus,
    *,
    observations: Iterable[Observation] = (),
    duration_seconds: int | None = None,
    summary: str | None = None,
    files_modified: Iterable[str] = (),
    git_commits: Iterable[str] = (),
    timestamp: str | None = None,
    **context: Any,
) -> Entry:
    """The entry of a finished iteration. `context` are further fields of its IterationContext."""
    known: dict[str, Any] = {"retry_count": before.retry_count}
    if before.previous_failure:
        known["previous_failure_reason"] = before.previous_failure
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in context.items()}
    return Entry(
        id=f"{before.prd_id}-{before.iteration}",
        timestamp=timestamp or session.now(),
        prd_id=before.prd_id,
        iteration=before.iteration,
        status=status,
        duration_seconds=UNSET if duration_seconds is None else duration_seconds,
        summary=UNSET if summary is None else summary,
        observations=tuple(observations),
        files_modified=tuple(files_modified),
        git_commits=tuple(git_commits),
        context=IterationContext(**known | {name: value for name, value in given.items() if value is not None}),
    )


class EntryLearnings(Struct, frozen=True):
    """An entry whose observations link to the learnings drawn from them, and those learnings."""

    entry: Entry
    learnings: tuple[Learning, ...]


def draw_learnings(entry: Entry, known: Iterable[Learning] = (), first: int | None = None) -> EntryLearnings:
    """The learnings of an entry: observations that were documented or are architectural, and are not known yet.

    They are numbered from `first`, or else after the highest known number.
    """
    known = list(known)
    words = {learning.content for learning in known if learning.still_valid}
    number = first or 1 + max((parse_number(learning.id) for learning in known), default=0)
    learnings: list[Learning] = []
    observations = []
    for observation in entry.observations:
        if has_learning(observation) and _describe_observation(observation) not in words:
            learnings.append(_build_learning(observation, entry, learning_id(number + len(learnings))))
            words.add(_describe_observation(observation))
            observation = structs.replace(observation, related_learning_id=learnings[-1].id)
        observations.append(observation)
    return EntryLearnings(structs.replace(entry, observations=tuple(observations)), tuple(learnings))


def has_learning(observation: Observation) -> bool:
    """Whether to draw a learning from it."""
    significant = observation.action_taken == "documented" or observation.category == "architecture"
    return significant and not observation.related_learning_id and bool(_describe_observation(observation).strip())


def _describe_observation(observation: Observation) -> str:
    return observation.description or observation.title


def _build_learning(observation: Observation, entry: Entry, id: str) -> Learning:
    return Learning(
        id=id,
        type=classify.find_observation_type(observation),
        content=_describe_observation(observation),
        context=f"Discovered while working on {entry.prd_id}",
        source_prd_id=entry.prd_id,
        source_entry_id=entry.id,
        created_at=entry.timestamp,
    )
