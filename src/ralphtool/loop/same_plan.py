"""Two plans may have the same name, and so the same branch: only one of them can be worked on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.errors import InvalidValue
from ralphtool.record import change_state, overview
from ralphtool.workspace.change_lock import hold_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import Repository


@contextmanager
def hold_plan(repository: Repository | None, root: str, spec: Spec, holder: str) -> Iterator[None]:
    """Locks a change, as `hold_change` does, if its branch does not belong to another plan."""
    with hold_change(repository, root, spec.change, holder):
        if repository and repository.resolve(layout.BRANCHES + spec.change):
            _check_same(root, spec)
        yield


def _check_same(root: str, spec: Spec) -> None:
    """The other plan's commits, and what is known of its stories, would count as this one's."""
    if not overview.is_namesake(root, spec):
        return
    ref = change_state.load(root, spec.change).spec
    raise InvalidValue(
        f"the branch {layout.branch(spec.change)} belongs to another plan of that name ({specs.file_of(ref) or ref}): "
        f"finish that one first, or rename {os.path.relpath(spec.path, root)}"
    )
