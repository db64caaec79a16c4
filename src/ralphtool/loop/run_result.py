"""How a run ended: the result of each story, the cost, and what a person can do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.record import questions
from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
from ralphtool.record.events import RunEnded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.loop.budget import Budget
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryState
    from ralphtool.specs import Story


def conclude(change: Change, budget: Budget, reason: str, *, is_stopped: bool) -> RunEnded:
    stories = change.stories()
    done = change.done(stories)
    rows = tuple(_build_row(change, budget, story, is_open=story.id not in done) for story in stories)
    is_done = all(row.state == "done" or row.optional for row in rows)
    unfinished = "interrupted" if is_stopped else "unfinished"
    spent = budget.total.as_dict() | {"seconds": round(budget.seconds, 3), "iterations": budget.iterations}
    return RunEnded(
        result="done" if is_done else unfinished,
        reason="every story is done and proven" if is_done else reason,
        stories=rows,
        spent=Totals(**spent),
        next=tuple(_list_advice(change, rows, is_done=is_done)),
    )


def _build_row(change: Change, budget: Budget, story: Story, *, is_open: bool) -> StoryAfter:
    state = change.change_state.story(story.id)
    return StoryAfter(
        id=story.id,
        title=story.title,
        optional=story.optional,
        state=_describe_state(state) if is_open else "done",
        attempts=state.attempts + (not is_open and state.status == "completed"),
        why=state.decision.reason if state.decision and is_open else "",
        failure=state.guidance if is_open else "",
        entry=state.entry,
        question=questions.path_of(change.root, state.question.name) if state.question else None,
        commit=change.workspace.checkpoints().get(story.id),
        **budget.totals_of(story.id).as_dict(),
    )


def _describe_state(state: StoryState) -> str:
    if state.question:
        return "waiting"
    if state.decision and state.decision.action == "skip":
        return "skipped"
    # What failed before a human gave it fresh attempts is past.
    return "failed" if state.status in ("failed", "blocked") and state.attempts else "open"


def _list_advice(change: Change, rows: Sequence[StoryAfter], *, is_done: bool) -> Iterator[NextStep]:
    branch = change.workspace.branch
    named = f" --change {change.name}" if change.has_others() else ""
    for row in rows:
        if step := _advise_on_story(row, named):
            yield step
    if not is_done:
        yield NextStep(say="go on", run=f"ralphtool run {change.name}{change.spec_flag()}")
    elif branch:
        yield NextStep(say="look at the work", run=f"git log -p HEAD..{branch}")
        yield NextStep(say="take it into your working tree", run=f"ralphtool finish {change.name} --squash")


def _advise_on_story(row: StoryAfter, named: str) -> NextStep | None:
    """What can be done about one story."""
    id = row.id
    if row.state == "waiting":
        return NextStep(say=f"answer the question of story {id}", run=f'ralphtool answer {id} "…"{named}')
    if row.state == "failed":
        return NextStep(say=f"see why story {id} failed", run=f"ralphtool explain {row.entry}")
    if row.state == "skipped" and not row.optional:
        return NextStep(say=f"take story {id} up again", run=f"ralphtool retry {id}{named}")
    return None
