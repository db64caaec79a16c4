"""Work from before the branch of a change began: of the same change, which goes on after `finish`, or of an earlier one
of the same name, with other stories.

A clone has no note of where the branch began, and can't tell the checkpoints below that from those of the branch. So
the first commit on the branch says which of them are of other stories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.workspace.checkpoints import read_earlier
from ralphtool.workspace.plan_merge import spell
from ralphtool.workspace.revert import SpecPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository


def find_outdated(repository: Repository, project: str, change: str, start: str) -> list[str]:
    """The stories with a checkpoint below the start of a branch that the user's plan does not have as they were."""
    return list_outdated(repository, project, change, read_earlier(repository, change, start))


def list_outdated(
    repository: Repository, project: str, change: str, earlier: Mapping[str, str], ref: str | None = None
) -> list[str]:
    """Those of the stories, each with a commit in which it was done, that the user's plan does not have as they were
    done then."""
    if not earlier:
        return []
    try:
        spec = specs.open(project, change, ref)
        done = _list_done(spec)
    except (ChangeNotFound, SpecError):
        return list(earlier)
    place = SpecPlace(repository, project, change, spec.ref)
    return [id for id, commit in earlier.items() if done.get(id) not in _list_done_at(place, commit)]


def _list_done(spec: Spec) -> dict[str, str]:
    return {story.id: spell(story) for story in spec.stories() if story.done}


def _list_done_at(place: SpecPlace, commit: str) -> list[str]:
    """The words of the stories that were done then. Their numbers may have changed since."""
    try:
        with place.open(commit) as spec:
            return list(_list_done(spec).values())
    except (ChangeNotFound, SpecError):
        return []
