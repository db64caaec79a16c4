"""What a view of a run is made of: stories, attempts, gates, waits, and what else happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ralphtool import agents
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
_ID = 200  # characters of an id
_LAST, _LONGEST_WAIT = 7_000_000_000, 1e9  # seconds: since the epoch, to the year 2191; and of a wait


def parse_time(at: str) -> float | None:
    """A moment in RFC 3339 as seconds since the epoch; None for one in which no agent can have run."""
    try:
        found = datetime.fromisoformat(at[:40])
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _LAST else None


class ResourceUse(Struct, frozen=True):
    """What a piece of work took."""

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
        """How much it is, to be compared: tokens where they are known, else dollars."""
        return self.input_tokens + self.output_tokens or self.cost


class Wait(Struct, frozen=True):
    """A time in which nothing was done."""

    kind: Literal["wait", "pause"]
    began: float
    ended: float
    why: str


OccurredEvent = (
    Setup | Notice | Denied | PlanEdited | HandedOver | BlockerChecked | Question | Answered | Steered | SentBack
)


class Occurrence(Struct, frozen=True):
    """Something besides the work that people should know: a notice, a hand-over, what a person said."""

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
    worker: str = ""  # who works on it now, where that is another machine
    workers: list[WorkerJoined] = []  # all who have, one after the other
    began: float = 0.0
    queued: float = 0.0  # when its agent had ended, where others work beside it
    ended: float = 0.0
    status: str = ""  # how it was judged; empty while it is under way, `cut off` if it never was
    phase: Literal["", "waiting", "merging"] = ""  # where others work beside it: of being merged with their work
    gates: list[GateView] = []
    last_event: Agent | None = None  # the last word of the agent
    end: agents.End | None = None  # what the agent said of its own end
    used: ResourceUse = ResourceUse()  # what the agent reported so far
    last_used: ResourceUse = ResourceUse()  # the last of these reports
    reported: float = 0.0  # the amount of all of them
    work: ResourceUse = ResourceUse()  # what the agent's part took, once it is over
    gate_seconds: float = 0.0
    verdict: Verdict | None = None
    decision: Decision | None = None
    checkpoint: Checkpoint | None = None
    receipt: Receipt | None = None

    @property
    def worker_names(self) -> tuple[str, ...]:
        """All who have worked on it on other machines, each once."""
        return tuple(dict.fromkeys(one.worker for one in self.workers))

    @property
    def last_gates(self) -> list[GateView]:
        """Those before the agent's work, or those after it: whichever ran last."""
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
    tasks_before: int = 0  # that were done when its last attempt began
    ticked: tuple[str, ...] = ()  # tasks that the agent at work has ticked, as far as it was told
    depends_on: tuple[str, ...] = ()
    why: str = ""
    commit: str = ""
    proof: str = ""  # what its "done" claims; empty in old records, and while it is not done
    proof_why: str = ""
    receipt: Receipt | None = None
    attempts: list[AttemptView] = []
    question: Question | None = None
    answer: str = ""
    is_asking: bool = False  # its question is still open
    is_late: bool = False  # nothing but the end of the run names it
    is_settled: bool = False  # a person decided about it since it was last worked on, whatever that work comes to

    def begin(self, row: StoryBefore) -> None:
        """As earlier runs have left it; records of older versions have no state."""
        self.title, self.optional, self.depends_on = row.title, row.optional, row.depends_on
        self.tasks_done, self.tasks_total = row.tasks_done, row.tasks_total
        self.state = parse_state(row.state, "done" if row.done else "open")
        self.was_done, self.proof = self.state == "done", row.proof

    def edit(self, row: StoryBefore) -> None:
        """The plan has it in other words, or with another id, now."""
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
        """Whether the iteration was with that worker already: it goes on with the gates, say."""
        own = [one for one in self.attempts if (one.start.iteration or one.start.number) == event.iteration]
        before = [joined.worker for one in own for joined in one.workers if joined.at < event.at]
        return before[-1:] == [event.worker[:_ID]]

    def settle(self, state: StoryStateName, why: str) -> None:
        self.state, self.why, self.is_settled, self.is_asking = state, why, True, False


def parse_state(name: str, otherwise: StoryStateName) -> StoryStateName:
    return next((one for one in STORY_STATES if one == name), otherwise)
