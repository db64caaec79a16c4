"""Gates that change the files of the work, as formatters do: what they tested is not what would be committed.

Others write files of the work without any harm, such as a report with the time of day; and in the user's own folder,
the user may save one meanwhile. So the gates run once more on the work: only a repair has the same result again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.executors.proof_notes import join_paths
from ralphtool.judging.gates import RedGate
from ralphtool.judging.roles import find_role
from ralphtool.sandbox.layers import is_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.gates import GateResult
    from ralphtool.judging.guard.model import FileChange
    from ralphtool.workspace import Workspace


class RewrittenWork:
    """Finds the files of the work that gates have changed. Only text can be repaired.

    Test programs write snapshots in their own form, but compare what is in them.
    """

    def __init__(self, workspace: Workspace, changes: Iterable[FileChange]) -> None:
        self._workspace = workspace
        self._paths = [one.path for one in changes if _can_be_repaired(one)]
        self.remember()

    def remember(self) -> None:
        """The work is in place."""
        self._work = self._workspace.read_in_place(self._paths)

    def find_changed(self) -> dict[str, bytes | None]:
        now = self._workspace.read_in_place(self._paths)
        return {path: now[path] for path in self._paths if now[path] != self._work[path]}

    def run_again(
        self,
        commands: Sequence[str],
        first: Mapping[str, bytes | None],
        run: Callable[[Sequence[str]], list[GateResult]],
    ) -> tuple[list[GateResult], list[RedGate]]:
        """Returns the results, and the gates that make the same changes as in the `first` run."""
        results: list[GateResult] = []
        gate_of: dict[str, str] = {}
        for command in commands:
            results += run([command])
            gate_of = dict.fromkeys(self.find_changed(), command) | gate_of
        again = self.find_changed()
        repaired = [path for path in first if path in again and again[path] == first[path]]
        files = {command: [path for path in repaired if gate_of[path] == command] for command in commands}
        return results, [_accuse(command, paths) for command, paths in files.items() if paths]


def _accuse(command: str, paths: Sequence[str]) -> RedGate:
    return RedGate(command, why=f"it changes {join_paths(paths)}", is_repair=True)


def _can_be_repaired(change: FileChange) -> bool:
    is_text = change.new is not None and b"\0" not in change.new
    return is_text and not is_cache(change.path) and find_role(change.path) != "snapshot"
