"""How a run ended: the result of each story, the cost, and what a person can do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool import specs
from ralphtool.judging import proof_words
from ralphtool.loop import workspace_choice
from ralphtool.record import advice, questions
from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
from ralphtool.record.events import Denied, Gate, RunEnded
from ralphtool.specs import remaining
from ralphtool.workspace import revert
from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphtool.judging.receipt import Receipt
    from ralphtool.loop.budget import Budget
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryState
    from ralphtool.record.event_parts import LastCheck
    from ralphtool.specs import Story

_MOST_DOUBTS = 5  # unproven stories that are named
_MOST_DENIED = 5  # hosts in the summary


def conclude(
    change: Change,
    budget: Budget,
    reason: str,
    *,
    is_stopped: bool,
    tip: LastCheck | None = None,
    accepts_unproven: bool = False,
) -> RunEnded:
    """`tip` is the last check; `accepts_unproven` stands for `[proof] accept = "unproven"`."""
    stories = change.stories()
    done = change.done(stories)
    claims = {id: one for id, one in change.read_receipts().items() if id in done}
    rows = tuple(_build_row(change, budget, story, claims, is_open=story.id not in done) for story in stories)
    is_done = bool(rows) and all(row.state == "done" or row.optional for row in rows)
    doubts = _list_doubts(rows, tip)
    is_doubtful = (tip is not None and not tip.ok) or (bool(doubts) and not accepts_unproven)
    unfinished = "interrupted" if is_stopped else "unfinished"
    spent = budget.total.as_dict() | {"seconds": round(budget.seconds, 3), "iterations": budget.iterations}
    return RunEnded(
        result=("unproven" if is_doubtful else "done") if is_done else unfinished,
        reason=("; ".join(doubts) or _describe_done(rows)) if is_done else reason,
        stories=rows,
        tip=tip,
        spent=Totals(**spent),
        next=tuple(_list_advice(change, stories, rows, is_done=is_done)),
    )


def _describe_done(rows: Sequence[StoryAfter]) -> str:
    counts = proof_words.describe_counts(row.proof for row in rows)
    return f"every story is done: {counts}" if counts else "every story is done"


def _list_doubts(rows: Sequence[StoryAfter], tip: LastCheck | None) -> list[str]:
    """Why a run whose stories are all done is not proven."""
    red = [run.command for run in tip.runs if not run.ok] if tip else []
    doubts = [f"the gates are red at the end of the run: {', '.join(red)}"] if tip and not tip.ok else []
    unproven = [row for row in rows if row.proof == "unproven"]
    named = unproven[:_MOST_DOUBTS]
    doubts += [f"story {row.id} is {proof_words.describe_proof(row.proof, row.proof_why)}" for row in named]
    return doubts + ([f"{len(unproven) - len(named)} more are done, not proven"] if len(unproven) > len(named) else [])


# --- stories ----------------------------------------------------------------------------------------


def _build_row(
    change: Change, budget: Budget, story: Story, claims: Mapping[str, Receipt], *, is_open: bool
) -> StoryAfter:
    state, claim = change.change_state.story(story.id), claims.get(story.id)
    return StoryAfter(
        id=story.id,
        title=story.title,
        optional=story.optional,
        state=_describe_state(state) if is_open else "done",
        attempts=state.attempts + (not is_open and state.status == "completed"),
        why=_explain_open(story, state) if is_open else "",
        failure=state.guidance if is_open else "",
        entry=state.entry,
        question=questions.path_of(change.root, state.question.name) if state.question else None,
        commit=change.workspace.checkpoints().get(story.id),
        proof="" if is_open else claim.state if claim else "ticked",
        proof_why=claim.why if claim else "",
        weaker_tests="" if is_open or not claim else _describe_weaker(claim),
        **budget.totals_of(story.id).as_dict(),
    )


def _describe_weaker(claim: Receipt) -> str:
    allowed = proof_words.describe_allowed(claim.lost, claim.allowed)
    weaker = proof_words.describe_weaker_tests(claim.number_removed, claim.weakened)
    return "; ".join(filter(None, (allowed, weaker)))


def _explain_open(story: Story, state: StoryState) -> str:
    if not specs.can_be_handed_out(story):
        return f"it {remaining.explain_held(story)}"
    return state.decision.reason if state.decision else ""


def _describe_state(state: StoryState) -> str:
    if state.question:
        return "waiting"
    if state.decision and state.decision.action == "skip":
        return "skipped"
    # Failures from before a person gave it fresh attempts don't count.
    return "failed" if state.status in ("failed", "blocked") and state.attempts else "open"


# --- what only the record has -----------------------------------------------------------------------


def complete(ended: RunEnded, record: str) -> RunEnded:
    """Adds the time of gates that belong to no story, and the hosts that the box denied."""
    found = workspace_choice.read_marked(record, b'"type":"gate"', b'"type":"denied"')
    gates = [event for event in found if isinstance(event, Gate) and not event.iteration]
    rows = {f"{event.host}:{event.port}": event.allow for event in found if isinstance(event, Denied)}
    steps = [NextStep(say=f"{name} was denied: allow it with {allow}") for name, allow in rows.items()]
    return structs.replace(ended, spent=_add_gates(ended.spent, gates), next=(*ended.next, *steps[:_MOST_DENIED]))


def _add_gates(spent: Totals, gates: Sequence[Gate]) -> Totals:
    seconds = (spent.gate_seconds or 0.0) + sum(one.seconds for one in gates)
    return structs.replace(spent, gate_seconds=round(seconds, 3))


# --- advice -----------------------------------------------------------------------------------------


def _list_advice(
    change: Change, stories: Sequence[Story], rows: Sequence[StoryAfter], *, is_done: bool
) -> Iterator[NextStep]:
    flag, depends_on = change.change_flag(), {story.id: story.depends_on for story in stories}
    states, has_branch = change.change_state.stories, bool(change.workspace.branch)
    yield from advice.advise_on_stories(change.name, rows, flag, states, has_branch=has_branch)
    yield from advice.advise_on_needed(rows, depends_on, flag)
    if not is_done and change.change_state.paused:
        yield NextStep(say="end the pause", run=f"ralphtool resume {change.name}")
    if not is_done and advice.can_continue(rows, depends_on):
        yield NextStep(say="continue", run=f"ralphtool run {change.name}{change.spec_flag()}{change.agent_options}")
    elif change.workspace.branch and (is_done or any(row.commit for row in rows)):
        repository = Repository.find(change.root)
        place = SpecPlace(repository, change.root, change.name, change.ref) if repository else None
        yield from advice.advise_on_branch(repository, change.name, revert.list_conflicts(place) if place else ())
