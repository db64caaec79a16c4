"""Whether the next steps in a record are still those of now, for `ralphtool watch`: without reading the record."""

from __future__ import annotations

import shlex

from ralphtool.core import layout
from ralphtool.errors import RalphError
from ralphtool.record import questions, runs, steering
from ralphtool.record.run_end import RunEnd, StepToTake
from ralphtool.workspace import branch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.record.runs import RunSummary


def update_steps(run: RunSummary, end: RunEnd) -> RunEnd:
    """The end of a run with the next steps of now: the report has them in full."""
    try:
        if not end.next or not run.change:
            return end
        if _is_finished(run):
            kept = layout.FINISHED + run.change
            end.next = (_build_step("review the finished work", f"git log -p {shlex.quote(kept)}"),)
        elif _is_outdated(run, end):
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


def _build_step(say: str, command: str) -> StepToTake:
    return StepToTake({"say": say, "run": command})


def _is_outdated(run: RunSummary, end: RunEnd) -> bool:
    """Whether there is a later run, a decision that no run has recorded, or an answer."""
    newest = runs.find_newest(run.root, run.change)
    open_stories = {one.story for one in questions.list_open(run.root, run.change) if one.answer is None}
    waiting = {one.id for one in end.stories if one.state == "waiting"}
    is_newest = newest is None or newest.id == run.id
    return not is_newest or bool(steering.list_pending(run.root, run.change)) or not waiting <= open_stories
