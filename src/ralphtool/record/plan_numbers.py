"""The ids of stories while the user has edited the plan, and no run has applied that yet.

The plan that people see has the new ids. The state of a change, its questions and its commits have the earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ralphtool.core.text import make_printable
from ralphtool.errors import InvalidValue
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphtool.record.questions import OpenQuestion
    from ralphtool.workspace.plan_merge import PlanEdit

Value = TypeVar("Value")


def read_edit(root: str, change: str, ref: str | None) -> PlanEdit | None:
    """The user's edit that no run has applied yet."""
    with branch.open_spec(root, change, ref) as spec:
        return branch.find_edit(spec) if spec else None


def rename(found: Mapping[str, Value], edit: PlanEdit | None) -> dict[str, Value]:
    """Values by the ids that the edited plan has, without those of removed stories."""
    if edit is None:
        return dict(found)
    names = dict(edit.renamed)
    return {names.get(id, id): value for id, value in found.items() if id not in edit.removed}


def rename_questions(asked: Iterable[OpenQuestion], edit: PlanEdit | None) -> list[OpenQuestion]:
    """The questions that stay open, with the ids that the edited plan has."""
    found = list(asked)
    if edit is None:
        return found
    for one in (kept := [each for each in found if each.story not in edit.removed]):
        one.story = dict(edit.renamed).get(one.story, one.story)
    return [one for one in kept if one.is_done or one.story not in edit.reworded]


def check_clear(root: str, change: str, ref: str | None, story: str) -> None:
    """Refuses a story that was chosen in the view of a run, if the plan was edited since and the id changed hands."""
    edit = read_edit(root, change, ref)
    if edit and story in list_ambiguous(edit):
        raise InvalidValue(
            f"story {make_printable(story)} is not clear, because the plan was edited after this run: look at "
            "`ralphtool show`, and decide in a terminal"
        )


def list_ambiguous(edit: PlanEdit) -> set[str]:
    """The ids that do not mean the same before and after the edit."""
    return {*edit.added, *edit.removed, *(id for pair in edit.renamed for id in pair)}
