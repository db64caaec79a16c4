"""The gates on the branch's tip at the end of a run: whatever the stories were, the tip must be green.

The gates are not run again on files that this run has tested already: those of the story that it finished last, or
those of the baseline, if nothing was committed after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.judging import gates
from ralphtool.judging.receipt import ProofRun
from ralphtool.record.event_parts import LastCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.loop.change import Change


class TipGates:
    """The gates on the newest tree that this run has tried them on."""

    def __init__(self, change: Change, *, is_boxed: bool) -> None:
        self._change = change
        self._is_boxed = is_boxed
        self._tree: str | None = None
        self._runs: tuple[ProofRun, ...] = ()
        inherited = change.change_state.baseline
        self._inherited = inherited.key if inherited else ""  # of an earlier run: it may be days old

    def add_story(self, tree: str, results: Sequence[GateResult]) -> None:
        """The results of a story that is finished."""
        self._tree, self._runs = tree, _list_runs(results)

    def add_iteration(self, change: Change, commands: Sequence[str], baseline: Baseline | None) -> None:
        """An agent has worked. Outside of a box, it can change more than the files: nothing is known any more."""
        tree = change.workspace.checkpoint_tree
        if not self._is_boxed:
            self._tree = None
        elif baseline and tree and tree != self._tree and self._is_measured(baseline, tree, commands):
            self._tree, self._runs = tree, tuple(_list_measured(baseline, commands))

    def _is_measured(self, baseline: Baseline, tree: str, commands: Sequence[str]) -> bool:
        """Whether this run measured it, and on this tree: the branch may have moved since."""
        return baseline.key != self._inherited and baseline.key == gates.build_key(tree, commands)

    def check(self, run: Callable[[], Sequence[GateResult]]) -> LastCheck | None:
        """Runs the gates unless the results are known; None if they did not run."""
        runs = self._find_known() or _list_runs(run())
        if not runs:
            return None
        return LastCheck(ok=all(one.ok for one in runs), commit=self._change.workspace.tip, runs=runs)

    def _find_known(self) -> tuple[ProofRun, ...]:
        """Empty if the tip differs from the tree in more than the files of the change."""
        own = specs.list_own_paths(self._change.workspace.root, self._change.spec)
        return self._runs if self._tree and self._change.workspace.has_same_work(self._tree, own) else ()


def _list_runs(results: Sequence[GateResult]) -> tuple[ProofRun, ...]:
    return tuple(ProofRun(kind="tip", command=one.command, ok=one.ok, tally=one.tally) for one in results)


def _list_measured(found: Baseline, commands: Sequence[str]) -> Iterator[ProofRun]:
    for command in commands:
        tests = found.tests.get(command)
        tally = gates.describe_tally(tests.passed, tests.failed) if tests else None
        yield ProofRun(kind="tip", command=command, ok=command not in found.red, tally=tally)
