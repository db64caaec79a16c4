"""The stories of a change as the record lists them: when a run begins, and when its plan was edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.errors import SpecError, shorten
from ralphtool.record import change_state, receipts
from ralphtool.record.event_parts import StoryBefore

if TYPE_CHECKING:
    from ralphtool.record.change_state import StoryState
    from ralphtool.specs import Spec, Story

_LONGEST_ID = 180  # it becomes part of file names and refs


def list_stories(root: str, spec: Spec) -> tuple[StoryBefore, ...]:
    """The state of each story."""
    stands, claims = change_state.load(root, spec.change), receipts.read_receipts(root, spec.change)
    return tuple(
        StoryBefore(
            id=story.id,
            title=story.title,
            tasks_total=len(story.tasks),
            tasks_done=story.tasks_done,
            done=story.done,
            state=_describe_state(story, stands.stories.get(story.id)),
            optional=story.optional,
            depends_on=tuple(story.depends_on),
            proof=claims[story.id].state if story.done and story.id in claims else "",
        )
        for story in spec.stories()
    )


def _describe_state(story: Story, state: StoryState | None) -> str:
    if story.done:
        return "done"
    if state and state.question:
        return "waiting"
    return "skipped" if state and state.decision and state.decision.action == "skip" else "open"


def list_prd_ids(spec: Spec) -> list[str]:
    """The stories' ids in the history. Two stories with the same id would share their attempts."""
    known: dict[str, str] = {}
    for story in spec.stories():
        prd_id = specs.prd_id(spec, story.id)
        if len(prd_id) > _LONGEST_ID:
            raise SpecError(f"{spec.path}: the id of story {shorten(story.id)} is too long: shorten it")
        other = known.setdefault(prd_id, story.id)
        if other != story.id:
            raise SpecError(
                f"{spec.path}: the stories {other} and {story.id} are the same in the history, which uses only "
                "lower-case letters and digits: rename one of them"
            )
    return list(known)
