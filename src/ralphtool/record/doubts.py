"""The stories that are done, not proven, and without a question of their own: a person accepts or rejects each.

A run asks only if a person must judge the work itself. If its gates can't show anything (they are red, or there are
none), all stories have the same doubt, which the receipts tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import config
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.judging.proof_words import describe_proof
from ralphtool.record import plan_numbers, present, questions, receipts, steering
from ralphtool.record.questions import OpenQuestion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphtool.specs import Story

_DECISIONS = ("accept", "reject", "retry", "skip")


def list_doubts(root: str, change: str | None = None) -> list[OpenQuestion]:
    """Those of one change or of all; none if the settings accept unproven stories."""
    if _accepts_unproven(root):
        return []
    return [one for name in ([change] if change else questions.list_changes(root)) for one in _list_of(root, name)]


def _accepts_unproven(root: str) -> bool:
    try:
        return config.accepts_unproven(root)
    except InvalidValue:
        return False  # other commands say what is wrong with the settings


def _read_plan(root: str, change: str) -> tuple[dict[str, Story], dict[str, str]]:
    """The stories, and the new ids of those that an edit of the plan has moved."""
    ref = questions.load_change_state(root, change).get("spec") or None
    try:
        edit = plan_numbers.read_edit(root, change, ref)
    except (RalphError, OSError):
        return {}, {}
    return present.read_plan(root, change), dict(edit.renamed) if edit else {}


def _list_of(root: str, change: str) -> Iterator[OpenQuestion]:
    state = questions.load_change_state(root, change)
    stories = state.get("stories", {})
    completed = {id for id, fields in stories.items() if fields.get("status") == "completed"}
    unasked = {id for id in completed if not stories[id].get("question")}
    if not unasked:
        return
    sent = steering.list_pending(root, change, state.get("heeded") or ())
    unasked -= {one.story for one in sent if one.action in _DECISIONS and one.story}
    found = {id: one for id, one in receipts.read_receipts(root, change).items() if one.state == "unproven"}
    doubted = [id for id in found if id in unasked]
    plan, names = _read_plan(root, change) if doubted else ({}, {})
    for id in doubted:
        story = plan.get(names.get(id, id))
        if story is None or story.done:  # one that is open again has lost its commit, so there is nothing to decide
            title = story.title if story else ""
            told: dict[str, Any] = {"title": title, "missing": describe_proof("unproven", found[id].why)}
            yield OpenQuestion(root, change, id, told, is_done=True)
