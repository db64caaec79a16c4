"""The parts of a run view: stories, attempts, gates, waits, and other occurrences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ralphtool import agents
from ralphtool.record.event_parts import Durations
from ralphtool.record.events import (
    Agent,
    Answered,
    BlockerChecked,
    Checkpoint,
    Decision,
    Denied,
    Gate,
    GateStarted,
    HandedOver,
    IterationStarted,
    Notice,
    PlanEdited,
    Question,
    SentBack,
    Setup,
    Steered,
    Verdict,
    WorkerJoined,
)

if TYPE_CHECKING:
    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.event_parts import StoryBefore

StoryStateName = Literal["done", "waiting", "failed", "skipped", "open"]
STORY_STATES: tuple[StoryStateName, ...] = ("done", "waiting", "failed", "skipped", "open")
COUNTED = ("completed", "partial", "failed", "blocked")  # the verdicts on attempts that count
_ID = 200  # characters of an id
_LAST, _LONGEST_WAIT = 7_000_000_000, 1e9  # seconds: since the epoch (the year 2191), and of a wait


def parse_time(at: str) -> float | None:
    """An RFC 3339 time as seconds since the epoch; None if no agent can have run at that time."""
    try:
        found = datetime.fromisoformat(at[:40])
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _LAST else None


class ResourceUse(Struct, frozen=True):
    """The resources that a piece of work used."""

    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: ResourceUse) -> ResourceUse:
        return ResourceUse(
            self.seconds + other.seconds,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )

    @property
    def amount(self) -> float:
        """An amount for comparison: tokens if they are known, else dollars."""
        return self.input_tokens + self.output_tokens or self.cost


class Wait(Struct, frozen=True):
    """A period without work."""

    kind: Literal["wait", "pause"]
    began: float
    ended: float
    why: str


OccurredEvent = (
    Setup | Notice | Denied | PlanEdited | HandedOver | BlockerChecked | Question | Answered | Steered | SentBack
)


class Occurrence(Struct, frozen=True):
    """Something besides the work that people should know: a notice, a handover, a steering command."""

    at: float
    event: OccurredEvent


class GateView(Struct, frozen=True):
    """A gate that is running or has ended."""

    event: GateStarted | Gate
    began: float
    ended: float

    @property
    def is_running(self) -> bool:
        return isinstance(self.event, GateStarted)


class AttemptView(Struct, kw_only=True):
    """One iteration. Times are seconds since the epoch; 0 is unknown."""

    start: IterationStarted
    worker: str = ""  # the worker that has it now, if on another machine
    workers: list[WorkerJoined] = []  # all that have worked on it, in order
    began: float = 0.0
    queued: float = 0.0  # when its agent ended, if iterations run side by side
    ended: float = 0.0
    status: str = ""  # of its verdict; empty while it is in progress, `cut off` if it was never judged
    phase: Literal["", "waiting", "merging"] = ""  # of merging its work, if iterations run side by side
    gates: list[GateView] = []
    last_event: Agent | None = None  # the last activity of the agent
    end: agents.End | None = None  # the agent's own report of its end
    used: ResourceUse = ResourceUse()  # as reported by the agent so far
    last_used: ResourceUse = ResourceUse()  # the last of these reports
    reported: float = 0.0  # the total amount of these reports
    work: ResourceUse = ResourceUse()  # of the agent's part, once it is over
    gate_seconds: float = 0.0
    verdict: Verdict | None = None
    decision: Decision | None = None
    checkpoint: Checkpoint | None = None
    receipt: Receipt | None = None

    @property
    def counts(self) -> bool:
        return self.status in COUNTED

    def estimate_durations(self, now: float) -> Durations:
        """How long its parts took, if the record does not say: the agent is at work when no gate is."""
        gates = sum(one.ended - one.began for one in self.gates)
        return Durations(agent=max(0.0, (self.queued or now - gates) - self.began), gates=gates)

    @property
    def worker_names(self) -> tuple[str, ...]:
        """All workers on other machines that have worked on it, each once."""
        return tuple(dict.fromkeys(one.worker for one in self.workers))

    @property
    def last_gates(self) -> list[GateView]:
        """The gates before the agent's work, or those after it: whichever ran last."""
        number = len(self.gates)
        while number and self.gates[number - 1].event.when == self.gates[-1].event.when:
            number -= 1
        return self.gates[number:]


class StoryView(Struct, kw_only=True):
    """A story, as far as the events describe it."""

    id: str
    title: str = ""
    state: StoryStateName = "open"
    optional: bool = False
    was_done: bool = False  # before the run
    tasks_done: int = 0
    tasks_total: int = 0
    tasks_before: int = 0  # done when its last attempt began
    ticked: tuple[str, ...] = ()  # tasks that the current agent has ticked, as far as reported
    depends_on: tuple[str, ...] = ()
    why: str = ""
    commit: str = ""
    proof: str = ""  # what its "done" claims; empty in old records, and if it is not done
    proof_why: str = ""
    receipt: Receipt | None = None
    attempts: list[AttemptView] = []
    question: Question | None = None
    answer: str = ""
    is_asking: bool = False  # its question is still open
    is_late: bool = False  # only the end of the run names it
    is_settled: bool = False  # a person decided about it after its last attempt began: that overrides the attempt

    def begin(self, row: StoryBefore) -> None:
        """Sets the state that earlier runs left; records of older versions have none."""
        self.title, self.optional, self.depends_on = row.title, row.optional, row.depends_on
        self.tasks_done, self.tasks_total = row.tasks_done, row.tasks_total
        self.state = parse_state(row.state, "done" if row.done else "open")
        self.was_done, self.proof = self.state == "done", row.proof

    def edit(self, row: StoryBefore) -> None:
        """Applies an edit of the plan: new words, or a new id."""
        is_same = self.state == parse_state(row.state, "open")
        self.id, self.title, self.optional, self.depends_on = row.id, row.title, row.optional, row.depends_on
        self.tasks_done, self.tasks_total = row.tasks_done, row.tasks_total
        if not is_same:
            self.state, self.why, self.proof = parse_state(row.state, "open"), "", row.proof

    def set_state(self, state: StoryStateName, why: str = "") -> None:
        if not self.is_settled:
            self.state, self.why = state, why

    def set_proof(self, proof: str, why: str = "", receipt: Receipt | None = None) -> None:
        self.proof, self.proof_why, self.receipt = proof[:_ID], why, receipt

    def is_known_worker(self, event: WorkerJoined) -> bool:
        """Whether the iteration was already on that worker: it continues with the gates, for example."""
        own = [one for one in self.attempts if (one.start.iteration or one.start.number) == event.iteration]
        before = [joined.worker for one in own for joined in one.workers if joined.at < event.at]
        return before[-1:] == [event.worker[:_ID]]

    def settle(self, state: StoryStateName, why: str) -> None:
        self.state, self.why, self.is_settled, self.is_asking = state, why, True, False

    def steer(self, action: str, text: str) -> None:
        """Applies a person's `skip` or `retry`. A done story can't be skipped or retried."""
        if action == "skip" and self.state != "done":
            self.settle("skipped", f"you skipped it{text and f': {text}'}")
        elif action == "retry" and self.state != "done":
            self.settle("open", "you asked to try it again; it is next")

    def accept(self, receipt: Receipt) -> None:
        """A person accepted it when its run was over."""
        self.settle("done", "")
        self.commit, self.tasks_done = receipt.commit or self.commit, self.tasks_total
        self.set_proof(receipt.state, receipt.why, receipt)

    def reopen(self, why: str) -> None:
        """A person rejected it, or a story that it builds on."""
        self.commit, self.was_done, self.tasks_done = "", False, 0
        self.set_proof("")
        self.settle("open", why)


def parse_state(name: str, otherwise: StoryStateName) -> StoryStateName:
    return next((one for one in STORY_STATES if one == name), otherwise)
