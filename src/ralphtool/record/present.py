"""The stories of an ended run as they are now. Its record says what was so when it ended; since then, the user may have
rewritten, reset or merged the branch. A story is done, and its receipt applies, exactly if `ralphtool list` says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import layout, locks
from ralphtool.errors import RalphError
from ralphtool.judging.receipt import Receipt
from ralphtool.record import questions, receipts
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.record.run_view import RunView
    from ralphtool.record.runs import RunSummary
    from ralphtool.specs import Story

_UNTICKED = "its tasks are not ticked any more"
_SAME = 100  # characters of a title: a record has only the beginning of a long one


class StoryNow(Struct, frozen=True):
    """A story as the branch has it; without a branch, as the user's tree has it."""

    is_done: bool
    why: str = ""  # why it is open
    receipt: Receipt | None = None


def read_stories(root: str, change: str, titles: Mapping[str, str]) -> dict[str, StoryNow]:
    """The stories that are known by these ids and titles; empty before the first run."""
    if not os.path.exists(layout.change_state(root, change)):
        return {}
    claims, plan = receipts.read_receipts(root, change), read_plan(root, change)
    found = {id: _compare(plan.get(id), title, claims.get(id)) for id, title in titles.items()}
    return {id: one for id, one in found.items() if one}


def read_plan(root: str, change: str) -> dict[str, Story]:
    """The stories as they are planned and ticked now. Empty if the plan can't be read: it may be archived."""
    ref = questions.load_change_state(root, change).get("spec") or None
    try:
        with branch.open_spec(root, change, ref) as on_branch:
            spec = on_branch or specs.open(root, change, ref)
            return {story.id: story for story in spec.stories(locks.list_completed_tasks(root, change))}
    except (RalphError, OSError):
        return {}


def _compare(story: Story | None, title: str, claim: Receipt | None) -> StoryNow | None:
    """After an edit of the plan, another story may have the id: then only the receipt counts."""
    is_same = story is not None and story.title[:_SAME] == title[:_SAME]
    if story and is_same and not story.done:
        return StoryNow(False, receipts.UNDONE if claim and claim.why == receipts.GONE else _UNTICKED)
    return StoryNow(True, receipt=claim) if claim else None


def update_view(run: RunSummary, view: RunView) -> bool:
    """Changes the done stories of the closed view of a run to what they are now; returns whether that changed any."""
    before = [(one.state, one.proof) for one in view.stories.values()]
    done = {one.id: one.title for one in view.stories.values() if one.state == "done"}
    try:
        found = read_stories(run.root, run.change, done)
    except (RalphError, OSError):
        return False  # then only what the record says
    for id, now in found.items():
        story, claim = view.stories[id], now.receipt
        if not now.is_done:
            story.reopen(now.why)
        # Old records have no proof, and say no more than "done".
        elif claim and story.proof and (claim.state, claim.why) != (story.proof, story.proof_why):
            story.set_proof(claim.state, claim.why, claim)
    return before != [(one.state, one.proof) for one in view.stories.values()]
