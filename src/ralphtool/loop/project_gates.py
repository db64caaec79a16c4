"""The gates of a run. A project that begins without tests gets them from its own files, once a checkpoint has some.

Its first stories can't be proven; later ones can, as if the work so far had been there when the run began. Gates are
never taken from work that is not committed, and they are tried first, like those that a run begins with.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import config, gate_commands
from ralphtool.record import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors.local import LocalExecutor
    from ralphtool.executors.workspace_check import CheckResult
    from ralphtool.loop.change import Change
    from ralphtool.record.log import Log


class ProjectGates:
    """`commands` are those that count now."""

    def __init__(self, change: Change, commands: Sequence[str], folder: str, log: Log) -> None:
        self.commands = tuple(commands)
        self._change = change
        self._folder = folder
        self._log = log
        self._tried: tuple[str, ...] = ()
        # With `here`, the user's own folder has the files of the branch by now, and may have tests.
        has_tests = not set(gate_commands.find_commands(change.root).tests).isdisjoint(commands)
        self._is_looking = not has_tests and "tests" not in config.read_verify(change.root)

    def look(self, executor: object, stop: Callable[[], bool], blind: set[str]) -> None:
        """Called while no agent works. Adds to the gates that notice no broken code, if the new ones don't."""
        if not self._is_looking or not hasattr(executor, "check_workspace"):
            return
        self._change.workspace.begin(None)
        found = gate_commands.find_commands(self._change.root, self._change.workspace.root)
        commands = (*found.checks, *found.tests)
        if found.tests and commands != self._tried:
            self._tried = commands
            self._adopt(commands, self._try_out(executor, stop), stop, blind)  # type: ignore[arg-type]

    def _try_out(self, executor: LocalExecutor, stop: Callable[[], bool]) -> CheckResult:
        folder = os.path.join(self._folder, f"check-new-gates-{len(os.listdir(self._folder))}")
        return executor.check_workspace(self._tried, folder, stop, lambda said: "")

    def _adopt(self, commands: tuple[str, ...], tried: CheckResult, stop: Callable[[], bool], blind: set[str]) -> None:
        if stop():
            return
        names = ", ".join(f"`{command}`" for command in commands)
        if tried.trouble and not tried.trouble.blind:
            why = "; ".join((tried.trouble.what, *tried.trouble.causes))
            self._tell(f"the work has tests now, but its gates ({names}) can't be used: {why}")
            return
        self.commands, self._is_looking = commands, False
        blind |= {*(tried.blind or ()), *(tried.trouble.blind if tried.trouble else ())}
        self._change.change_state.baseline = tried.baseline
        self._change.save()
        self._tell(f"the work has tests now: from here on, the gates are {names}; [verify] can set others")

    def _tell(self, text: str) -> None:
        self._log.note(events.Notice(text=text))
