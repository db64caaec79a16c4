"""Where iterations run. An executor gets an assignment and returns a report; it decides nothing.

Both are values that can be serialized, so that iterations can run side by side, or on other machines, without any
difference for the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ralphtool.agents import End, Failure, Quota, Usage
from ralphtool.judging.gates import Baseline, GateResult, RedGate
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.proof_evidence import ProofEvidence
from ralphtool.judging.verdict import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Assignment(Struct, frozen=True, kw_only=True):
    """One iteration, as an executor gets it. It is self-contained: nothing in it depends on the loop's machine."""

    number: int  # in this run
    run: str = ""  # its id, if the session has another
    change: str
    story: str
    task: str | None  # of a chunk
    entry: str  # the id of its future entry
    attempt: int
    token: str
    prompt: str
    shown: dict[str, str | None]  # the learnings in it: digests of their texts, and ids
    agent: str  # by its name; the settings have its options
    base: str | None = None  # the commit to begin with; None without git
    kept: str | None  # the commit of an earlier attempt to continue from
    cut_off: str | None  # the work of an earlier iteration that a limit ended
    fix: bool  # run the setup commands first
    gates: tuple[str, ...]
    baseline: Baseline | None
    guarded: tuple[GuardedTests, ...] = ()  # tests that earlier stories changed, the oldest first
    folder: str  # for its files, below that of the run's records
    seconds: float  # what is left of the run's time; 0 means no limit
    tokens: float = 0.0
    cost: float = 0.0


class Report(Struct, frozen=True, kw_only=True):
    """The result of an iteration, before it is judged."""

    ending: Ending
    end: End
    detail: str = ""
    failure: Failure | None = None
    usage: Usage = Usage()
    quotas: tuple[Quota, ...] = ()
    ticked_before: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()  # the tasks without which the story is not complete
    tree: str | None = None
    paths: tuple[str, ...] = ()
    findings: tuple[GuardFinding, ...] = ()
    results: tuple[GateResult, ...] = ()
    red: tuple[RedGate, ...] = ()
    ahead: tuple[GateResult, ...] = ()  # gate results for its tree from a look-ahead: all of them are green
    gates_ran: bool = False
    proof: ProofEvidence | None = None  # of a story that claims to be complete
    baseline: Baseline | None = None
    trouble: str = ""
    full_disk: str = ""  # a folder whose disk was full when the agent or its gates ended
    fills_disk: bool = False  # the story's own files may be what fills it
    left: tuple[str, ...] = ()  # processes that had to be ended
    agent_seconds: float = 0.0
    gate_seconds: float = 0.0


class Executor(Protocol):
    """What a loop requires of the object that carries out its assignments."""

    def examine(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs the agent on the tree as it is, with another prompt, in a mode in which it changes nothing."""
        ...

    def check_tip(self, gates: Sequence[str], directory: str, stop: Callable[[], bool]) -> tuple[GateResult, ...]:
        """Runs the gates on the last checkpoint, at the end of a run; empty if it was stopped meanwhile."""
        ...


class StoryExecutor(Executor, Protocol):
    """Carries out one assignment after another, each from the agent's work to its proof."""

    def execute(self, assignment: Assignment, stop: Callable[[], bool]) -> Report: ...


class LaneExecutor(Executor, Protocol):
    """One of several that work side by side: its work is proven later, together with that of others."""

    def take_up(self, assignment: Assignment) -> Assignment:
        """The assignment to carry out; or the one that a killed run has sent out in its place, if still valid."""
        ...

    def work(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs an iteration whose work is proven later, together with the other lanes' work."""
        ...

    def measure(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """The baseline at the last checkpoint, and the seconds that it took to measure it."""
        ...

    def prove(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs the gates on work that is in place, and collects the evidence that a story is done."""
        ...

    def run_gates_ahead(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs only the gates, on work that is in place and may become the newest."""
        ...
