"""Checks whether gates can be trusted in a workspace, by running them before the first story.

A worktree in which the gates import the code of another folder would prove the wrong files. So the gates must give the
same results there as with the same files in the user's own tree, and they must detect code that is broken there.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.executors.gate_series import FLAKY
from ralphtool.executors.unignored import list_notices, refuse_lost
from ralphtool.judging import gates
from ralphtool.judging.gate_programs import NOT_STARTED
from ralphtool.judging.gate_trouble import Trouble, describe_difference, read_output
from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.roles import find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors.gate_series import GateSeries
    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.workspace.worktree import Worktree

    Suggest = Callable[[str], str]

_BROKEN = b")]} ralphtool broke this file to see whether the gates notice {[(\n"
_MOST_FILES = 5000


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of a check: the trouble with the workspace, if any, and the results of the gates."""

    trouble: Trouble | None = None
    baseline: Baseline | None = None
    notices: tuple[str, ...] = ()
    results: tuple[GateResult, ...] = ()  # of the gates there, with the code as it is
    blind: frozenset[str] | None = None  # commands that stay green with broken code; None: there was no code to break

    def is_final(self, tests: Sequence[str]) -> bool:
        """Whether later runs need not try the gates again: all could be started, and the tests noticed broken code."""
        return not self._is_weak(tests) and not any(one.exit_code in NOT_STARTED for one in self.results)

    def _is_weak(self, tests: Sequence[str]) -> bool:
        """Whether none of the test commands noticed broken code. That may change with the first test."""
        noticing = [one.command for one in self.results if one.ok and one.command not in (self.blind or ())]
        return bool(self.blind) and not any(command in noticing for command in tests)


def check_workspace(
    workspace: Worktree, inside: GateSeries, outside: GateSeries, commands: Sequence[str], suggest: Suggest
) -> CheckResult:
    """`inside` runs gates in the workspace, `outside` in the user's own tree. `suggest` returns the setting that may
    fix the failure in an output."""
    return _WorkspaceCheck(workspace, inside, outside, suggest).run(commands)


class _WorkspaceCheck:
    """One check of the gates of a workspace."""

    def __init__(self, workspace: Worktree, inside: GateSeries, outside: GateSeries, suggest: Suggest) -> None:
        self._workspace = workspace
        self._inside = inside
        self._outside = outside
        self._suggest = suggest
        self._notices: list[str] = []
        self._blind: frozenset[str] | None = None

    def run(self, commands: Sequence[str]) -> CheckResult:
        self._workspace.begin(None)
        before = self._inside.run("before", commands)
        self._workspace.mark_dirty()
        if self._inside.stop():
            return CheckResult()
        trouble = self._compare(before) or self._find_blind(before)
        if self._inside.stop():
            return CheckResult()
        if trouble is None:
            refuse_lost(self._workspace, before)
            self._notices += list_notices(self._workspace)
        found = gates.build_baseline(gates.build_key(self._workspace.checkpoint_tree, commands), before)
        return CheckResult(
            trouble=trouble,
            baseline=None if trouble else found,
            notices=tuple(self._notices),
            results=tuple(before),
            blind=self._blind,
        )

    # --- the same as in the user's tree -----------------------------------------------------------

    def _compare(self, before: list[GateResult]) -> Trouble | None:
        """Red gates are not trouble if they are just as red in the user's own tree. Replaces the result of a flaky
        one in `before`."""
        for number, one in enumerate(before):
            if one.ok and (one.tests is None or _count_passed(one)):
                continue
            [other] = self._outside.run("outside", [one.command]) or [one]
            if not _shows_more(other, one):
                continue
            before[number] = self._run_inside("before-again", one)
            if not _shows_more(other, before[number]):
                self._notices.append(f"`{one.command}` {FLAKY}")
            elif trouble := self._compare_same_files(before[number], other):
                return trouble
        return None

    def _compare_same_files(self, one: GateResult, other: GateResult) -> Trouble | None:
        """The user's tree may have more than the last checkpoint: with the same files, the results may be the same."""
        theirs = self._workspace.commit_user_files()
        if theirs:
            one = self._run_inside("same-files", one, theirs)
            if not _shows_more(other, one):
                self._notices.append(f"`{one.command}` needs uncommitted files: it fails without them")
                return None
        trouble = describe_difference(one, other)
        return structs.replace(trouble, help=self._suggest(read_output(one)))

    def _run_inside(self, when: str, one: GateResult, kept: str | None = None) -> GateResult:
        """Runs a gate again, with the files of a commit. If the run is being stopped, its first result stays."""
        self._workspace.begin(kept)
        [again] = self._inside.run(when, [one.command]) or [one]
        self._workspace.mark_dirty()
        self._workspace.begin(None)
        return again

    # --- the effect of broken code ------------------------------------------------------------------

    def _find_blind(self, before: Sequence[GateResult]) -> Trouble | None:
        """Breaks every source file, and checks which gates stay green."""
        green = [one for one in before if one.ok]
        sources = _list_sources(self._workspace, [one.command for one in before])
        if not green or not sources:
            return None
        for path in sources:
            break_file(os.path.join(self._workspace.root, path))
        still = self._inside.run("blind", [one.command for one in green])
        self._workspace.mark_dirty()
        self._workspace.begin(None)
        self._blind = frozenset(one.command for one in still if one.ok)
        return self._judge_blind(green, self._blind)

    def _judge_blind(self, green: Sequence[GateResult], blind: frozenset[str]) -> Trouble | None:
        """A gate that reads no code does no harm next to one that does; but the tests must be among those that do."""
        tests = [one.command for one in green if _count_passed(one)]
        asked = tests or [one.command for one in green]
        if not all(command in blind for command in asked):
            return None
        what = f"`{asked[0]}` stays green there when the code is broken"
        is_own_path = self._workspace.shown_root == self._outside.root
        if not tests and is_own_path:
            # At the project's own path a command sees the same as in the user's folder: no other place is better.
            self._notices.append(f"{what}: it proves nothing; name a command that runs your code under [verify]")
            return None
        advice = "make the tests use the code in the folder where they are started"
        return Trouble(what=what, help=advice, blind=tuple(sorted(blind)) if is_own_path else ())


def _shows_more(outside: GateResult, inside: GateResult) -> bool:
    return _count_passed(outside) > _count_passed(inside) or (outside.ok and not inside.ok)


def _count_passed(result: GateResult) -> int:
    return result.tests.counts.passed if result.tests else 0


def _list_sources(workspace: Worktree, commands: Sequence[str]) -> list[str]:
    """Without the files that a gate names itself: a broken script fails, whichever code it would have run."""
    named = {os.path.normpath(word.strip("'\"")) for command in commands for word in command.split()}
    paths = [path for path in workspace.list_files()[:_MOST_FILES] if find_language(path) and path not in named]
    return [path for path in paths if find_role(path) == "source" and _is_plain(os.path.join(workspace.root, path))]


def break_file(path: str) -> None:
    with open(path, "wb") as file:
        file.write(_BROKEN)
    # Some programs detect changes by whole seconds, and the gates may have run within the current one.
    moment = int(time.time()) + 2
    os.utime(path, (moment, moment))


def _is_plain(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)
