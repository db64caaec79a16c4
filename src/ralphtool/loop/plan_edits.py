"""Applies the user's edits to the plan, made during a run or between two runs.

The branch and the note of the version that was seen change in one step. The state of the stories follows: after a kill
between the two, the next run finds the edit in that note and completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ralphtool import typed
from ralphtool.loop.story_list import list_stories
from ralphtool.record import change_state, plan_numbers
from ralphtool.record.change_state import StoryState
from ralphtool.record.events import PlanEdited
from ralphtool.workspace.checkpoints import build_trailers
from ralphtool.workspace.plan_merge import PlanEdit
from ralphtool.workspace.user_plan import UnusablePlan

if TYPE_CHECKING:
    from ralphtool.loop.change import Change
    from ralphtool.loop.outcome import Iteration
    from ralphtool.record.change_state import ChangeState

_MARK = "Ralph-Edit: "


def note_rewording(change: Change, iteration: Iteration) -> None:
    """Notes if the user has reworded a story while an agent did it: then its work is not what the plan asks for."""
    if not iteration.is_done:
        return
    change.change_state.story(iteration.story.id).is_outdated = iteration.story.id in _list_reworded(change)


def _list_reworded(change: Change) -> set[str]:
    """The stories that the user has reworded since the plan was taken up last."""
    try:
        merged = change.workspace.merge_users_plan(change.ref)
    except UnusablePlan:
        change.workspace.forget_users_plan()
        return set()
    if merged is None:  # not forgotten: lanes would wait for each other to take up an edit that does not exist
        return set()
    change.workspace.forget_users_plan()
    known = {new: old for old, new in merged.edit.renamed}
    return {known.get(id, id) for id in merged.edit.reworded}


def follow_user_at_end(change: Change) -> None:
    """A run that ends must not call a story done that was reworded meanwhile. Other edits can wait for the next run."""
    change.follow_branch()
    change.workspace.begin(None)
    if any(state.is_outdated for state in change.change_state.stories.values()):
        take_up(change)


def take_up(change: Change) -> bool:
    """Whether the plan has changed. Reports go to the change's notices and events."""
    outdated = [id for id, state in change.change_state.stories.items() if state.is_outdated]
    try:
        merged = change.workspace.merge_users_plan(change.ref, outdated)
    except UnusablePlan as error:
        change.notices.append(
            f"your plan of {change.name} can't be used as it is now, so the last valid version stays in use: {error}"
        )
        return False
    for id in outdated:  # either the merge has reopened it, or the user has taken the edit back
        change.change_state.story(id).is_outdated = False
    if merged is None:
        return False
    left = _describe_left_work(change, merged.edit)
    message, note = build_message(change.name, merged.edit), build_note(change.name, merged.edit)
    start = change.workspace.publish_plan(merged, message, note)
    _apply(change, merged.edit, start)
    change.workspace.begin(None)
    if text := merged.edit.describe(change.name, change.change_flag()) + left:
        rows = list_stories(change.root, change.spec)
        change.events.append(
            PlanEdited(text=text, stories=rows, renumbered=merged.edit.renamed, commit=change.workspace.tip)
        )
    return True


def finish_killed(change: Change) -> None:
    """Completes an edit that was being applied when a run was killed."""
    start, message = change.workspace.read_plan_message()
    line = next((line for line in message.split("\n") if line.startswith(_MARK)), "")
    if line and start != change.change_state.plan:
        _apply(change, typed.decode(line.removeprefix(_MARK), PlanEdit), start)


def build_message(change: str, edit: PlanEdit) -> str:
    """The message of the commit on the branch."""
    subject = f"ralphtool: the plan of {change}, as its user edited it"
    return f"{subject}\n\nRalph-Change: {change}\n{build_trailers(edit.removed, edit.renamed)}"


def build_note(change: str, edit: PlanEdit) -> str:
    """The message of the commit that keeps the user's own version."""
    return f"ralphtool: the plan of {change} as its user has it\n\n{_MARK}{msgspec.json.encode(edit).decode()}\n"


def _describe_left_work(change: Change, edit: PlanEdit) -> str:
    """Removing a done story from the plan does not revert its commit, which `finish` would merge."""
    commits = change.workspace.checkpoints()
    left = [f"{commits[id][:10]} (story {id})" for id in edit.removed if id in commits]
    return (
        f"; the work of done stories stays on the branch, until you revert it there: {', '.join(left)}" if left else ""
    )


def _apply(change: Change, edit: PlanEdit, start: str) -> None:
    """Moves the state of the stories to their new ids; a reworded story gets fresh attempts."""
    state = change.change_state
    change.keep_guards(edit.removed)
    for id in (*edit.removed, *edit.reworded):
        old = next((before for before, after in edit.renamed if after == id), id)
        if known := state.stories.get(old):
            change.close_question(known)
    move_state(state, edit)
    for id in (*edit.added, *dict(edit.renamed).values()):  # the history's entries under it are another story's
        state.stories.setdefault(id, StoryState()).since = change.history.next_iteration(change.prd_id(id))
    state.plan = start
    change.forget_ticked_at_start()
    change.save()


def move_state(state: ChangeState, edit: PlanEdit) -> None:
    """Moves what is known of the stories to their new ids. The questions and the history stay as they are."""
    state.stories = plan_numbers.rename(state.stories, edit)
    state.finished = plan_numbers.rename(state.finished, edit)
    for id in (*edit.reworded, *edit.reopened, *edit.outdated):
        change_state.reset_attempts(state.story(id))
    for id in (*edit.reopened, *edit.outdated):  # ticking it again is not the work that was done before
        state.story(id).proof = state.story(id).status = None
