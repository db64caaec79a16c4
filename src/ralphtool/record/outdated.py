"""What `ralphtool watch` shows of an ended run, as it is now: the record itself is as old as the end of the run.

Nothing but the end is read, and git is asked only if something may have changed.
"""

from __future__ import annotations

from ralphtool.core import layout
from ralphtool.errors import RalphError
from ralphtool.record import questions, runs, steering
from ralphtool.record.run_end import RunEnd, StepToTake, find_result
from ralphtool.workspace import branch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ralphtool.record.present import StoryNow
    from ralphtool.record.run_end import StoryClaim, StoryEnd
    from ralphtool.record.runs import RunSummary

_CLAIMS = ("proven", "held", "unproven", "accepted")  # those with a receipt


def update_end(run: RunSummary, end: RunEnd) -> RunEnd:
    """The end of a run with the stories and the next steps of now: the report has them in full."""
    try:
        if not run.change:
            return end
        newest = runs.find_newest(run.root, run.change)
        is_newest = newest is None or newest.id == run.id
        # A later run has an end of its own.
        is_changed = is_newest and _may_differ(run, end) and (_update_stories(run, end) or _is_branch_gone(run))
        if end.next and _is_finished(run):
            import shlex  # few runs need it

            kept = layout.FINISHED + run.change
            end.next = (_build_step("review the finished work", f"git log -p {shlex.quote(kept)}"),)
        elif is_changed or (end.next and (not is_newest or _is_outdated(run, end))):
            end.next = (_build_step("see what has changed since", f"ralphtool report {run.change}"),)
    except (RalphError, OSError):
        return end  # then only what the record says
    return end


def _is_finished(run: RunSummary) -> bool:
    if not branch.may_be_finished(run.root, run.change):
        return False
    from ralphtool.workspace.git import Repository  # it takes longer than all the rest

    repository = Repository.find(run.root)
    if repository is None or repository.resolve(layout.BRANCHES + run.change):
        return False
    return repository.resolve(layout.FINISHED + run.change) is not None


def _is_branch_gone(run: RunSummary) -> bool:
    from ralphtool.workspace.git import Repository

    repository = Repository.find(run.root) if run.branch else None
    return repository is not None and repository.resolve(layout.BRANCHES + run.change) is None


def _build_step(say: str, command: str) -> StepToTake:
    return StepToTake({"say": say, "run": command})


def _is_outdated(run: RunSummary, end: RunEnd) -> bool:
    """Whether there is a decision that no run has recorded, or an answer."""
    open_stories = {one.story for one in questions.list_open(run.root, run.change) if one.answer is None}
    waiting = {one.id for one in end.stories if one.state == "waiting"}
    return bool(steering.list_pending(run.root, run.change)) or not waiting <= open_stories


# --- the stories ------------------------------------------------------------------------------------


def _may_differ(run: RunSummary, end: RunEnd) -> bool:
    """Whether the stories can be other than the run left them, checked without git: the change state has other claims,
    or the branch is not at the commit that the run tested last."""
    state = questions.load_change_state(run.root, run.change)
    if not state:
        return False
    known, finished = state.get("stories", {}), state.get("finished") or {}
    claims = {one.id: known.get(one.id, {}).get("proof") or finished.get(one.id) for one in end.stories}
    if any(_has_other_claim(one, claims[one.id]) for one in end.stories):
        return True
    tip = end.tip.commit if end.tip else ""
    return branch.git_folder(run.root) is not None and (not tip or branch.read_tip(run.root, run.change) != tip)


def _has_other_claim(story: StoryEnd, claim: Any) -> bool:
    state = claim.get("state") if isinstance(claim, dict) else None
    if story.state == "done":
        return story.proof in _CLAIMS and state != story.proof
    return state == "accepted"


def _update_stories(run: RunSummary, end: RunEnd) -> bool:
    """Returns whether that changed any."""
    from ralphtool.record import present  # only if something may have changed

    found = present.read_stories(run.root, run.change, {one.id: one.title for one in end.stories})
    then = _list_states(end)
    for one in end.stories:
        if now := found.get(one.id):
            _update_story(one, now)
    if then == (rows := _list_states(end)):
        return False
    is_red = end.tip is not None and not end.tip.ok
    end.result, end.reason = find_result(end.result, then, rows, is_red=is_red), ""
    return True


def _list_states(end: RunEnd) -> list[StoryClaim]:
    return [(one.state, one.proof, one.optional) for one in end.stories]


def _update_story(story: StoryEnd, now: StoryNow) -> None:
    claim = now.receipt
    if story.state == "done" and not now.is_done:
        story.state, story.why, story.proof, story.commit = "open", now.why, "", ""
    elif claim and (story.proof if story.state == "done" else claim.state == "accepted"):
        story.state, story.proof, story.proof_why = "done", claim.state, claim.why
