"""The gates of a run. A project that begins without tests gets them from its own files, once a checkpoint has some.

Its first stories can't be proven; later ones can, as if the work so far had been there when the run began. Gates are
never taken from work that is not committed, and they are tried first, like those that a run begins with. An agent chose
them: where there is no code to break yet, they hold nothing until they notice some.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import config, gate_commands
from ralphtool.errors import SetupFailed
from ralphtool.judging import gates
from ralphtool.judging.roles import find_role
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
        self._tried = ""  # the files and commands of the last trial
        self._told = ""
        self._tree: str | None = None  # in which no test files are new
        self._tests: frozenset[str] = frozenset()  # at the last look
        # With `here`, the user's own folder has the files of the branch by now, and may have tests.
        has_tests = not set(gate_commands.find_commands(change.root).tests).isdisjoint(commands)
        self._is_looking = not has_tests and "tests" not in config.read_verify(change.root)

    def look(self, executor: object, stop: Callable[[], bool], blind: set[str]) -> None:
        """Called while no agent works. Adds to the gates that notice no broken code, if the new ones don't."""
        self._is_looking = self._is_looking and hasattr(executor, "check_workspace")
        if not self._is_looking:
            return
        self._change.workspace.begin(None)
        self._tests = self._list_tests()
        found = gate_commands.find_commands(self._change.root, self._change.workspace.root)
        commands = (*found.checks, *found.tests)
        key = gates.build_key(self._change.workspace.checkpoint_tree, commands)
        if found.tests and key != self._tried:
            self._tried = key
            self._try_out(executor, commands, stop, blind)  # type: ignore[arg-type]

    def has_new_tests(self) -> bool:
        """Whether a checkpoint has test files that were not there at the last look."""
        tree = self._change.workspace.checkpoint_tree
        if not self._is_looking or tree == self._tree:
            return False
        if self._list_tests() - self._tests:
            return True
        self._tree = tree
        return False

    def _list_tests(self) -> frozenset[str]:
        return frozenset(path for path in self._change.workspace.list_files() if find_role(path) == "test")

    def _try_out(
        self, executor: LocalExecutor, commands: tuple[str, ...], stop: Callable[[], bool], blind: set[str]
    ) -> None:
        folder = os.path.join(self._folder, f"check-new-gates-{len(os.listdir(self._folder))}")
        try:
            tried = executor.check_workspace(commands, folder, stop, lambda said: "")
        except SetupFailed as error:  # a later story can still fix it: it may add a `.gitignore`
            self._refuse(commands, str(error))
            return
        if stop():
            return
        if tried.trouble and not tried.trouble.blind:
            self._refuse(commands, "; ".join((tried.trouble.what, *tried.trouble.causes)))
        else:
            self._adopt(commands, tried, blind)

    def _refuse(self, commands: Sequence[str], why: str) -> None:
        self._tell(f"the work has tests now, but its gates ({_quote(commands)}) can't be used: {why}")

    def _adopt(self, commands: tuple[str, ...], tried: CheckResult, blind: set[str]) -> None:
        self.commands, self._is_looking = commands, False
        blind |= _list_blind(tried)
        self._change.change_state.baseline = tried.baseline
        self._change.save()
        self._log.note_texts(tried.notices)
        self._tell(f"the work has tests now: from here on, the gates are {_quote(commands)}; [verify] can set others")

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._log.note(events.Notice(text=text))
        self._told = text


def _list_blind(tried: CheckResult) -> frozenset[str]:
    if tried.trouble:
        return frozenset(tried.trouble.blind)
    return frozenset(one.command for one in tried.results) if tried.blind is None else tried.blind


def _quote(commands: Sequence[str]) -> str:
    return ", ".join(f"`{command}`" for command in commands)
