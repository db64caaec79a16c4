"""Environments, such as `.venv` and `node_modules`, that git does not ignore.

Those that `setup` created were removed, as everything that is not committed. A gate that needs one of them is red
before the first story and stays red, so that no story can be proven. No agent can fix that, and the user can with one
line, so the run stops before it costs anything.

Those that an agent creates are committed with its work. A notice names them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.core.amounts import pluralize
from ralphtool.errors import SetupFailed
from ralphtool.judging.gate_programs import NOT_STARTED, find_missing_program
from ralphtool.judging.gate_trouble import read_output
from ralphtool.workspace.environments import find_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.judging.gates import GateResult
    from ralphtool.workspace import Workspace


def list_notices(place: Workspace) -> list[str]:
    return [f"{_describe(place, path)}; {_advise(place, path)}" for path in place.lost_environments]


def refuse_lost(place: Workspace, results: Sequence[GateResult]) -> None:
    """Stops the run if a gate is red because it needs such an environment."""
    for path, one in _find_needed(place, results):
        place.mark_set_up(())  # the next run must set it up again
        raise SetupFailed(f"{_describe(place, path)}, but the gate `{one.command}` needs it: {_advise(place, path)}")


def list_committed(place: Workspace, paths: Sequence[str]) -> list[str]:
    """Notices about those that the work adds; `paths` are the changed files, as git names them."""
    added = find_installed([path.removeprefix(place.prefix) for path in paths if path.startswith(place.prefix)])
    known = place.list_files() if added else []  # it takes long in a big repository
    return [
        f"this attempt adds {path} to its work ({pluralize(len(below), 'file', 'files')}), because git does not ignore "
        f"it; to keep it out of commits, add {path}/ to .gitignore, and commit that"
        for path, below in added.items()
        if not any(one.startswith(f"{path}/") for one in known)
    ]


def _find_needed(place: Workspace, results: Sequence[GateResult]) -> Iterator[tuple[str, GateResult]]:
    for one in results:
        for path in () if one.ok or one.why else place.lost_environments:
            named = re.compile(rf"(?<![\w/]){re.escape(path)}/")
            if named.search(one.command) or named.search(read_output(one)) or _lacks_inner_program(place, one):
                yield path, one


def _lacks_inner_program(place: Workspace, one: GateResult) -> bool:
    """Whether the gate's own program is there, but not one that it starts: `npm test` finds those in node_modules."""
    return one.exit_code in NOT_STARTED and find_missing_program(one.command, place.root) is None


def _describe(place: Workspace, path: str) -> str:
    where = f" on {place.branch}" if place.branch else ""
    return f"setup created {path}, which git does not ignore{where}, so it was removed"


def _advise(place: Workspace, path: str) -> str:
    commit = f"commit it, and merge that into {place.branch}" if place.branch else "and commit it"
    return f"add {path}/ to .gitignore, {commit}"
