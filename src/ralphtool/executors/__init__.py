"""Where iterations run. An executor is given an assignment and comes back with a report; it decides nothing.

What goes in and what comes out are values that can be written down, so that iterations can run side by side, or on
other machines, without the loop being any different.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ralphtool.agents import End, Failure, Quota, Usage
from ralphtool.judging.gates import Baseline, GateResult
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.judging.proof import ProofEvidence
from ralphtool.judging.verdict import Ending, RedGate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Assignment(Struct, frozen=True, kw_only=True):
    """One iteration, as it is handed out. It stands alone: nothing in it belongs to the machine of the loop."""

    number: int  # in this run
    run: str = ""  # its name, where the session has another
    change: str
    story: str
    task: str | None  # of a chunk
    entry: str  # the id of the entry to come
    attempt: int
    token: str
    prompt: str
    shown: dict[str, str | None]  # what was learnt and is in it: digests of the words, and ids
    agent: str  # by its name; the settings have its options
    base: str | None = None  # the commit to begin with; None without git
    kept: str | None  # the commit of an earlier attempt to go on from
    cut_off: str | None  # what an earlier iteration had done when a limit ended it
    fix: bool  # run the set-up commands first
    gates: tuple[str, ...]
    baseline: Baseline | None
    folder: str  # for its files, below that of the run's records
    seconds: float  # what is left of the run's time; 0 is no limit
    tokens: float = 0.0
    cost: float = 0.0


class Report(Struct, frozen=True, kw_only=True):
    """What an iteration came to, before anybody judges it."""

    ending: Ending
    end: End
    detail: str = ""
    failure: Failure | None = None
    usage: Usage = Usage()
    quotas: tuple[Quota, ...] = ()
    ticked_before: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()  # the tasks without which the story is not whole
    tree: str | None = None
    paths: tuple[str, ...] = ()
    findings: tuple[GuardFinding, ...] = ()
    results: tuple[GateResult, ...] = ()
    red: tuple[RedGate, ...] = ()
    ahead: tuple[GateResult, ...] = ()  # what the gates have said about its tree already: all of them are green
    gates_ran: bool = False
    proof: ProofEvidence | None = None  # of a story that claims to be complete
    baseline: Baseline | None = None
    trouble: str = ""
    full_disk: str = ""  # a folder that had no room left when the agent or its gates had ended
    left: tuple[str, ...] = ()  # processes that had to be ended
    agent_seconds: float = 0.0
    gate_seconds: float = 0.0


class Executor(Protocol):
    """What a loop asks of whatever carries out its assignments."""

    def examine(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Lets the agent look at the tree as it is, with another prompt, in the mode in which it changes nothing."""
        ...

    def check_tip(self, gates: Sequence[str], directory: str, stop: Callable[[], bool]) -> tuple[GateResult, ...]:
        """Runs the gates on the last checkpoint, at the end of a run; nothing if it was stopped meanwhile."""
        ...


class StoryExecutor(Executor, Protocol):
    """Carries out one assignment after the other, each from the agent's work to its proof."""

    def execute(self, assignment: Assignment, stop: Callable[[], bool]) -> Report: ...


class LaneExecutor(Executor, Protocol):
    """One of several that work side by side: what it does is proven later, together with the work of others."""

    def take_up(self, assignment: Assignment) -> Assignment:
        """What is to be handed out; or what a run that was killed has handed out in its place, and is still valid."""
        ...

    def work(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """An iteration whose work is proven later, together with what others have done meanwhile."""
        ...

    def measure(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """What is red at the last checkpoint, and the seconds that it took to find that out."""
        ...

    def prove(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs the gates on work that is in its place, and gathers what shows that a story is done."""
        ...

    def run_gates_ahead(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """The gates alone, on work that is in its place, and may come to be the newest."""
        ...
