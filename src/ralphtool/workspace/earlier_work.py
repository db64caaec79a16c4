"""Checkpoints below the commit where a branch begins, which a clone can't tell from those of the branch.

Only the repository where a branch began has a note of that commit. So the first commit on the branch says which of them
are of other stories: an earlier change, merged since, may have had the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.workspace.checkpoints import read_earlier
from ralphtool.workspace.plan_merge import spell
from ralphtool.workspace.revert import SpecPlace

if TYPE_CHECKING:
    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository


def list_outdated(repository: Repository, project: str, change: str, start: str) -> list[str]:
    """The stories whose checkpoints do not count on a branch that begins at `start`. Those that the plan has as they
    were done keep theirs: the change goes on after `finish`."""
    earlier = read_earlier(repository, change, start)
    if not earlier:
        return []
    try:
        spec = specs.open(project, change)
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
