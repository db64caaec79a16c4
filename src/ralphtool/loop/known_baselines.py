"""The red gates at each checkpoint of a run: work may have to be proven on the checkpoint that it began with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.judging import gates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.judging.gates import Baseline
    from ralphtool.record.change_state import ChangeState


class KnownBaselines:
    """The newest baseline is part of the change state, where each finished story puts it."""

    def __init__(self, state: ChangeState) -> None:
        self._state = state
        self._known: dict[str, Baseline] = {}  # by key

    def find(self, tree: str, commands: Sequence[str]) -> Baseline | None:
        if newest := self._state.baseline:
            self._known[newest.key] = newest
        return self._known.get(gates.build_key(tree, commands))

    def add(self, found: Baseline | None) -> None:
        if found:
            self._state.baseline = self._known[found.key] = found
