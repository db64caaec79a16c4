"""How a run ended: the result of each story, the cost, and what a person can do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.judging import proof_words
from ralphtool.loop import workspace_choice
from ralphtool.record import questions
from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
from ralphtool.record.events import Denied, Gate, RunEnded
from ralphtool.specs import remaining
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.loop.budget import Budget
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryState
    from ralphtool.record.event_parts import LastCheck
    from ralphtool.specs import Story

_MOST_ADVICE = 5  # stories of a kind that get their own advice
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
    rows = tuple(_build_row(change, budget, story, is_open=story.id not in done) for story in stories)
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
        next=tuple(_list_advice(change, rows, is_done=is_done)),
    )


def _describe_done(rows: Sequence[StoryAfter]) -> str:
    counts = proof_words.describe_counts(row.proof for row in rows)
    return f"every story is done: {counts}" if counts else "every story is done"


def _list_doubts(rows: Sequence[StoryAfter], tip: LastCheck | None) -> list[str]:
    """Why a run whose stories are all done is not proven."""
    red = [run.command for run in tip.runs if not run.ok] if tip else []
    doubts = [f"the gates are red at the end of the run: {', '.join(red)}"] if tip and not tip.ok else []
    unproven = [row for row in rows if row.proof == "unproven"]
    named = unproven[:_MOST_ADVICE]
    doubts += [f"story {row.id} is {proof_words.describe_proof(row.proof, row.proof_why)}" for row in named]
    return doubts + ([f"{len(unproven) - len(named)} more are done, not proven"] if len(unproven) > len(named) else [])


# --- stories ----------------------------------------------------------------------------------------


def _build_row(change: Change, budget: Budget, story: Story, *, is_open: bool) -> StoryAfter:
    state = change.change_state.story(story.id)
    commit = change.workspace.checkpoints().get(story.id)
    proof = "" if is_open else _find_proof(change, state, story, commit)
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
        commit=commit,
        proof=proof,
        proof_why=state.proof.why if state.proof and state.proof.state == proof else "",
        **budget.totals_of(story.id).as_dict(),
    )


def _explain_open(story: Story, state: StoryState) -> str:
    if not specs.can_be_handed_out(story):
        return f"it {remaining.explain_held(story)}"
    return state.decision.reason if state.decision else ""


def _find_proof(change: Change, state: StoryState, story: Story, commit: str | None) -> str:
    """What the "done" of a story claims. A receipt is about one commit: on another branch it means nothing.

    Empty for a story that was done by a version that wrote no receipts.
    """
    receipt = state.proof
    if receipt and receipt.state == "accepted":
        return receipt.state
    if commit is not None:
        return receipt.state if receipt and receipt.commit in (None, commit) else ""
    if change.workspace.branch is not None or change.history.last_entry(change.prd_id(story.id)) is None:
        return "ticked"
    return receipt.state if receipt else ""


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
    """The first trial of the gates is over before the time of the loop begins; the last check is part of that."""
    whole, trial = (sum(one.seconds for one in gates if one.when not in left_out) for left_out in ((), ("tip",)))
    seconds, gate_seconds = (spent.seconds or 0.0) + trial, (spent.gate_seconds or 0.0) + whole
    return structs.replace(spent, seconds=round(seconds, 3), gate_seconds=round(gate_seconds, 3))


# --- advice -----------------------------------------------------------------------------------------


def _list_advice(change: Change, rows: Sequence[StoryAfter], *, is_done: bool) -> Iterator[NextStep]:
    branch = change.workspace.branch
    named = f" --change {change.name}" if change.has_others() else ""
    unproven = [row for row in rows if row.proof == "unproven"]
    for row in unproven[:_MOST_ADVICE]:
        yield from _advise_on_unproven(row, named)
    if len(unproven) > _MOST_ADVICE:
        more = f"review {len(unproven) - _MOST_ADVICE} more stories that are done, not proven"
        yield NextStep(say=more, run=f"ralphtool report {change.name}")
    for row in rows:
        yield from _advise_on_story(row, named, change.change_state.story(row.id))
    if not is_done:
        yield NextStep(say="continue", run=f"ralphtool run {change.name}{change.spec_flag()}{change.agent_options}")
    elif branch:
        yield NextStep(say="review the work", run=f"git log -p {_since_head(change)}{branch}")
        yield NextStep(say="stage it in your working tree", run=f"ralphtool finish {change.name} --squash")
        if _has_remote(change):
            yield NextStep(say="or open a pull request", run=f"ralphtool finish {change.name} --pr")


def _has_remote(change: Change) -> bool:
    repository = Repository.find(change.root)
    return repository is not None and bool(repository.text("remote", check=False))


def _since_head(change: Change) -> str:
    """If the user has no commit yet, the whole branch is new."""
    repository = Repository.find(change.root)
    return "" if repository and not repository.resolve(layout.BASE + change.name) else "HEAD.."


def _advise_on_unproven(row: StoryAfter, named: str) -> Iterator[NextStep]:
    id = row.id
    if row.entry:
        yield NextStep(say=f"see why story {id} is not proven", run=f"ralphtool explain {row.entry}")
    yield NextStep(say=f"accept story {id} as it is", run=f"ralphtool accept {id}{named}")
    yield NextStep(say=f"or reject story {id}, which reverts its work", run=f'ralphtool reject {id} --why "…"{named}')


def _is_accused(state: StoryState) -> bool:
    """Whether the last attempt was refused because old tests fail on its code: a person may allow that."""
    return bool(state.accused)


def _has_asked(state: StoryState) -> bool:
    """Whether an agent has a question or a blocker. If a story has only used its attempts, there is no question."""
    return bool(state.asked) or state.status == "blocked"


def _advise_on_story(row: StoryAfter, named: str, state: StoryState) -> Iterator[NextStep]:
    """The next steps for a story that is not done."""
    id, is_accused = row.id, _is_accused(state)
    if row.state == "waiting" and not _has_asked(state):
        if row.entry:
            yield NextStep(say=f"see why story {id} failed", run=f"ralphtool explain {row.entry}")
        yield NextStep(say=f"tell the agent what to do in story {id}", run=f'ralphtool answer {id} "…"{named}')
        yield NextStep(say=f"or try story {id} again as it is", run=f"ralphtool retry {id}{named}")
    elif row.state == "waiting":
        yield NextStep(say=f"answer story {id}'s question", run=f'ralphtool answer {id} "…"{named}')
    if row.state == "failed":
        yield NextStep(say=f"see why story {id} failed", run=f"ralphtool explain {row.entry}")
    if row.state in ("waiting", "failed") and is_accused and row.entry:
        yield NextStep(say=f"or accept that attempt of story {id} as it is", run=f"ralphtool accept {row.entry}{named}")
    if row.state == "skipped" and not row.optional:
        yield NextStep(say=f"try story {id} again", run=f"ralphtool retry {id}{named}")
