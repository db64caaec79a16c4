"""Whether the next steps in a record are still those of now, for `ralphtool watch`: without reading the record."""

from __future__ import annotations

import shlex

from ralphtool.core import layout
from ralphtool.errors import RalphError
from ralphtool.record import questions, runs, steering
from ralphtool.record.run_end import RunEnd, StepToTake
from ralphtool.workspace.git import Repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.record.runs import RunSummary


def update_steps(run: RunSummary, end: RunEnd) -> RunEnd:
    """The end of a run with the next steps of now: the report has them in full."""
    try:
        repository = Repository.find(run.root) if end.next and run.change else None
        kept = layout.FINISHED + run.change
        if repository and not repository.resolve(layout.BRANCHES + run.change) and repository.resolve(kept):
            end.next = (_build_step("review the finished work", f"git log -p {shlex.quote(kept)}"),)
        elif end.next and run.change and _is_outdated(run, end):
            end.next = (_build_step("see what has changed since", f"ralphtool report {run.change}"),)
    except (RalphError, OSError):
        return end  # then only what the record says
    return end


def _build_step(say: str, command: str) -> StepToTake:
    return StepToTake({"say": say, "run": command})


def _is_outdated(run: RunSummary, end: RunEnd) -> bool:
    """Whether there is a later run, a decision that no run has recorded, or an answer."""
    newest = runs.find_newest(run.root, run.change)
    open_stories = {one.story for one in questions.list_open(run.root, run.change) if one.answer is None}
    waiting = {one.id for one in end.stories if one.state == "waiting"}
    is_newest = newest is None or newest.id == run.id
    return not is_newest or bool(steering.list_pending(run.root, run.change)) or not waiting <= open_stories
