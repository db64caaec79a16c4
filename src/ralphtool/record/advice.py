"""What a person can do about a change when its run is over: sentences with commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.record.event_parts import NextStep
from ralphtool.workspace.paths import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphtool.record.change_state import StoryState
    from ralphtool.record.event_parts import StoryAfter
    from ralphtool.workspace.git import Repository

_MOST = 5  # stories of a kind that get their own advice


def advise_on_stories(
    change: str, rows: Sequence[StoryAfter], named: str, states: Mapping[str, StoryState], *, has_branch: bool
) -> Iterator[NextStep]:
    """`named` is the option that names the change, if it is needed. Without git there is no branch."""
    unproven = [row for row in rows if row.proof == "unproven"]
    for row in unproven[:_MOST]:
        yield from _advise_on_unproven(row, named, can_revert=has_branch)
    if len(unproven) > _MOST:
        more = f"review {len(unproven) - _MOST} more stories that are done, not proven"
        yield NextStep(say=more, run=f"ralphtool report {change}")
    for row in rows:
        yield from _advise_on_story(row, named, states.get(row.id))


def _advise_on_unproven(row: StoryAfter, named: str, *, can_revert: bool) -> Iterator[NextStep]:
    id = row.id
    if row.entry:
        yield NextStep(say=f"see why story {id} is not proven", run=f"ralphtool explain {row.entry}")
    yield NextStep(say=f"accept story {id} as it is", run=f"ralphtool accept {id}{named}")
    if can_revert:
        reject = f'ralphtool reject {id} --why "…"{named}'
        yield NextStep(say=f"or reject story {id}, which reverts its work", run=reject)


def _is_accused(state: StoryState | None) -> bool:
    """Whether the last attempt was refused because old tests fail on its code: a person may allow that."""
    return state is not None and bool(state.accused)


def _has_asked(state: StoryState | None) -> bool:
    """Whether an agent has a question or a blocker. If a story has only used its attempts, there is no question."""
    return state is None or bool(state.asked) or state.status == "blocked"


def _advise_on_story(row: StoryAfter, named: str, state: StoryState | None) -> Iterator[NextStep]:
    """The next steps for a story that is not done."""
    id = row.id
    if row.state == "waiting" and not _has_asked(state):
        if row.entry:
            yield NextStep(say=f"see why story {id} failed", run=f"ralphtool explain {row.entry}")
        yield NextStep(say=f"tell the agent what to do in story {id}", run=f'ralphtool answer {id} "…"{named}')
        yield NextStep(say=f"or try story {id} again as it is", run=f"ralphtool retry {id}{named}")
    elif row.state == "waiting":
        yield NextStep(say=f"answer story {id}'s question", run=f'ralphtool answer {id} "…"{named}')
    if row.state == "failed":
        yield NextStep(say=f"see why story {id} failed", run=f"ralphtool explain {row.entry}")
    if row.state in ("waiting", "failed") and _is_accused(state) and row.entry:
        yield NextStep(say=f"or accept that attempt of story {id} as it is", run=f"ralphtool accept {row.entry}{named}")
    if row.state == "skipped" and not row.optional:
        yield NextStep(say=f"try story {id} again", run=f"ralphtool retry {id}{named}")


def advise_on_needed(
    rows: Sequence[StoryAfter], depends_on: Mapping[str, Sequence[str]], named: str
) -> Iterator[NextStep]:
    """The optional stories that were skipped, although others wait for them."""
    needed = {id for row in rows if row.state != "done" for id in depends_on.get(row.id, ())}
    for row in rows:
        if row.state == "skipped" and row.optional and row.id in needed:
            yield NextStep(say=f"try story {row.id} again", run=f"ralphtool retry {row.id}{named}")


def can_continue(rows: Sequence[StoryAfter], depends_on: Mapping[str, Sequence[str]]) -> bool:
    """Whether another run could work on a story as it is: not if all that are left are skipped, or wait for those."""
    held = {row.id for row in rows if row.state == "skipped"}
    left = {row.id for row in rows if row.state != "done"} - held
    while more := {id for id in left if held.intersection(depends_on.get(id, ()))}:
        held |= more
        left -= more
    return bool(left)


def _is_all_new(repository: Repository, change: str) -> bool:
    """Whether there was no commit before. Another clone has no note of that; with `workspace = "here"`, HEAD is the
    branch of the change during the run."""
    branch = layout.BRANCHES + change
    if repository.resolve(layout.BASE + change):
        return False
    return repository.head() == branch or not repository.text("merge-base", "HEAD", branch, check=False)


def _is_merged(repository: Repository, change: str) -> bool:
    """Whether the user's branch has all of its work."""
    ref = layout.BRANCHES + change
    tip, begun, head = (repository.resolve(name) for name in (ref, layout.BASE + change, "HEAD"))
    if tip and head and repository.head() != ref:  # it is while a run uses the user's tree
        return repository.is_ancestor(tip, head)
    return tip is not None and tip == begun


def advise_on_branch(repository: Repository | None, change: str, conflicts: Sequence[str]) -> Iterator[NextStep]:
    """Every story is done or skipped, and the work is on the branch of the change. `conflicts` are the files that the
    user's branch has changed in the same lines: `finish` refuses those."""
    if repository is not None and _is_merged(repository, change):
        yield NextStep(say="delete its branch: yours has all of its work", run=f"ralphtool finish {change} --squash")
        return
    since = "" if repository is not None and _is_all_new(repository, change) else "HEAD.."
    yield NextStep(say="review the work", run=f"git log -p {since}{layout.branch(change)}")
    if conflicts:
        say = f"merge it and resolve the conflicts: your branch changed the same lines ({join_first(conflicts)})"
        yield NextStep(say=say, run=f"git merge {layout.branch(change)}")
    finish = "then delete its branch" if conflicts else "stage it in your working tree"
    yield NextStep(say=finish, run=f"ralphtool finish {change} --squash")
    if repository is not None and repository.text("remote", check=False):
        yield NextStep(say="or open a pull request", run=f"ralphtool finish {change} --pr")
