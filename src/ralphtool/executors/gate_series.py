"""Runs gates one after another, in a workspace as it is, and records them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.errors import SetupFailed
from ralphtool.executors import gate_run
from ralphtool.executors.environment import HIDDEN_VARIABLES
from ralphtool.judging import gates
from ralphtool.record import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors.process import Supervisor
    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.record.log import Log

_MOST_TESTS = 100  # names of failed tests in an event
OLD_TESTS_ON_WORK = ("replay", "replay-again", "guarded", "guarded-again")  # runs of tests as they were
FLAKY = "failed once and passed once without changes"
# In these runs old tests meet new source. A file that can't be loaded, or a test that fails, must not keep pytest from
# running the others: they would be missing, as if the story had lost them.
_OLD_TESTS = (*OLD_TESTS_ON_WORK, "guarded-before")
_RUN_ALL = "--continue-on-collection-errors --maxfail=0"


class GateSeries(Struct, frozen=True, kw_only=True):
    """Where and how the gates of an iteration run."""

    supervisor: Supervisor
    root: str
    log: Log
    timeout: float
    secrets: tuple[str, ...]
    directory: str  # where the logs go
    iteration: int
    story: str
    before: Baseline | None = None
    stop: Callable[[], bool]
    shown_root: str = ""
    slot: int = 0

    def run(self, when: str, commands: Sequence[str]) -> list[GateResult]:
        """`when` is the purpose: before, after, replay, replay-again, own-tests, guarded, tip …"""
        results: list[GateResult] = []
        for number, command in enumerate(commands, 1):
            if self.stop():
                break
            results.append(self._run_one(when, number, command))
        return results

    def _run_one(self, when: str, number: int, command: str) -> GateResult:
        begun = events.GateStarted(when=when, command=command, iteration=self.iteration, story=self.story)
        self.log.note(begun)
        log = os.path.join(self.directory, f"gate-{number}-{when}.log")
        one = gate_run.run(command, self._build_context_for(when), log, self.timeout)
        red = gates.find_newly_red([one], self.before) if self.before and when == "after" else []
        new = [test for fresh in red for test in fresh.tests or [command]]
        self.log.note(self._build_event(one, when, new))
        return one

    def set_up_all(self, commands: Sequence[str]) -> bool:
        """Runs the setup commands; False if they were stopped. If one fails, it raises: no agent can fix that."""
        for number, command in enumerate(commands, 1):
            one = self.set_up(command, f"setup-{number}.log")
            if one.why == "stopped" or self.stop():
                return False
            if not one.ok:
                ending = one.why or f"exit status {one.exit_code}"
                raise SetupFailed(
                    f"the setup command `{command}` failed ({ending}): fix it; its output is in {one.log}"
                )
        return True

    def set_up(self, command: str, log: str) -> GateResult:
        """Runs a command that sets up the environment, and records it."""
        one = gate_run.run(command, self.build_context(), os.path.join(self.directory, log), self.timeout)
        self.log.note(
            events.Setup(
                command=one.command,
                ok=one.ok,
                exit_code=one.exit_code,
                seconds=one.seconds,
                log=one.log,
                iteration=self.iteration,
                story=self.story,
            )
        )
        return one

    def build_context(self) -> gate_run.CommandContext:
        env = {name: value for name, value in os.environ.items() if name not in HIDDEN_VARIABLES}
        env |= {"RALPH_SLOT": str(self.slot)} if self.slot else {}
        return gate_run.CommandContext(self.supervisor, self.root, env, self.secrets, self.stop, self.shown_root)

    def _build_context_for(self, when: str) -> gate_run.CommandContext:
        context = self.build_context()
        if when not in _OLD_TESTS:
            return context
        options = f"{context.env.get('PYTEST_ADDOPTS', '')} {_RUN_ALL}".strip()
        return structs.replace(context, env={**context.env, "PYTEST_ADDOPTS": options})

    def _build_event(self, result: GateResult, when: str, new: Sequence[str]) -> events.Gate:
        return events.Gate(
            when=when,
            new=tuple(new),
            command=result.command,
            ok=result.ok,
            exit_code=result.exit_code,
            why=result.why,
            seconds=round(result.seconds, 3),
            failed=(result.failed or ())[:_MOST_TESTS],
            tally=result.tally,
            log=result.log,
            iteration=self.iteration,
            story=self.story,
        )


def describe_flaky(tests: Sequence[str]) -> tuple[str, ...]:
    return (f"{FLAKY}: {', '.join(tests[:3])}",) if tests else ()


def describe_beside(tests: Sequence[str], files: Sequence[str]) -> tuple[str, ...]:
    if not tests:
        return ()
    passed = f"passed beside copies that do nothing: {', '.join(tests[:3])}"
    return (f"failed without the added test files ({', '.join(files[:3])}), and {passed}",)


def is_cut_off(results: Sequence[GateResult], commands: Sequence[str]) -> bool:
    """Whether the gates were stopped before all of them had ended."""
    return len(results) < len(commands) or any(one.why == "stopped" for one in results)
