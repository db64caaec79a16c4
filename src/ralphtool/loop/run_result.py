"""How a run ended: what it came to, story by story, what that cost, and what a person can do now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ralphtool.record import questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.loop.budget import Budget
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryStanding
    from ralphtool.specs import Story

    Row = dict[str, Any]
    Step = dict[str, str | None]


class Result(Struct, frozen=True, kw_only=True):
    """The event `run_ended`."""

    result: Literal["done", "unfinished", "interrupted"]
    reason: str
    stories: list[dict[str, Any]]
    spent: dict[str, float]
    next: list[dict[str, str | None]]


def conclude(change: Change, budget: Budget, reason: str, *, is_stopped: bool) -> Result:
    stories = change.stories()
    done = change.done(stories)
    rows = [_row(change, budget, story, is_open=story.id not in done) for story in stories]
    is_done = all(row["state"] == "done" or row["optional"] for row in rows)
    unfinished: Literal["interrupted", "unfinished"] = "interrupted" if is_stopped else "unfinished"
    return Result(
        result="done" if is_done else unfinished,
        reason="every story is done and proven" if is_done else reason,
        stories=rows,
        spent=budget.total.as_dict() | {"seconds": round(budget.seconds, 3), "iterations": budget.iterations},
        next=list(_advice(change, rows, is_done=is_done)),
    )


def _row(change: Change, budget: Budget, story: Story, *, is_open: bool) -> Row:
    state = change.standing.story(story.id)
    return {
        "id": story.id,
        "title": story.title,
        "optional": story.optional,
        "state": _state(state) if is_open else "done",
        "attempts": state.attempts + (not is_open and state.status == "completed"),
        "why": state.decision.reason if state.decision and is_open else "",
        "failure": state.guidance if is_open else "",
        "entry": state.entry,
        "question": questions.path_of(change.root, state.question.name) if state.question else None,
        "commit": change.workspace.checkpoints().get(story.id),
        **budget.on(story.id).as_dict(),
    }


def _state(state: StoryStanding) -> str:
    if state.question:
        return "waiting"
    if state.decision and state.decision.action == "skip":
        return "skipped"
    # What failed before a human gave it fresh attempts is past.
    return "failed" if state.status in ("failed", "blocked") and state.attempts else "open"


def _advice(change: Change, rows: Sequence[Row], *, is_done: bool) -> Iterator[Step]:
    branch = change.workspace.branch
    named = f" --change {change.name}" if change.has_others() else ""
    for row in rows:
        if step := _about(row, named):
            yield step
    if not is_done:
        yield {"say": "go on", "run": f"ralphtool run {change.name}{change.spec_flag()}"}
    elif branch:
        yield {"say": "look at the work", "run": f"git log -p HEAD..{branch}"}
        yield {"say": "take it into your working tree", "run": f"ralphtool finish {change.name} --squash"}


def _about(row: Row, named: str) -> Step | None:
    """What can be done about one story."""
    id = row["id"]
    if row["state"] == "waiting":
        return {"say": f"answer the question of story {id}", "run": f'ralphtool answer {id} "…"{named}'}
    if row["state"] == "failed":
        return {"say": f"see why story {id} failed", "run": f"ralphtool explain {row['entry']}"}
    if row["state"] == "skipped" and not row["optional"]:
        return {"say": f"take story {id} up again", "run": f"ralphtool retry {id}{named}"}
    return None
