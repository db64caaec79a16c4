"""The gates on the branch's tip at the end of a run: whatever the stories were, the tip must be green."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.judging.receipt import ProofRun
from ralphtool.record.event_parts import LastCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.judging.gates import GateResult
    from ralphtool.loop.change import Change


def find_known_results(change: Change, tree: str | None, results: Sequence[GateResult]) -> Sequence[GateResult]:
    """The results of the last finished story, if the tip differs from its tree only in files of the change."""
    own = specs.list_own_paths(change.workspace.root, change.spec)
    return results if tree and change.workspace.has_same_work(tree, own) else ()


def build(commit: str | None, results: Sequence[GateResult]) -> LastCheck:
    runs = tuple(ProofRun(kind="tip", command=one.command, ok=one.ok, tally=one.tally) for one in results)
    return LastCheck(ok=all(one.ok for one in runs), commit=commit, runs=runs)
