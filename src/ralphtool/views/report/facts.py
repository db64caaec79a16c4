"""What a report tells about one run: plain, immutable values whose texts are fit to be shown.

Whoever makes one has cut the texts and made visible what is not seen in them; a format only has to escape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.record.view_parts import ResourceUse
from ralphtool.views.terminal.phrases import is_expected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.record.view_parts import StoryStateName, Wait

ENDINGS = ("completed", "partial", "failed", "blocked")  # of attempts that count
PUT_OFF = ("transient", "interrupted")  # which were no attempts: nothing was wrong with the work


class ReportGate(Struct, frozen=True, kw_only=True):
    when: str  # before or after the agent's work; replay, own-tests, tip
    command: str
    ok: bool
    began: float
    ended: float
    told: str  # what it found, in words
    new: tuple[str, ...]  # the tests that did not fail before

    @property
    def is_fine(self) -> bool:
        """Whether it ended as it should."""
        return is_expected(self.when, self.ok)


class ReportDecision(Struct, frozen=True):
    action: str = ""
    reason: str = ""
    guidance: str = ""


class Diff(Struct, frozen=True):
    """What an attempt changed, as git tells it."""

    lines: tuple[tuple[str, str], ...]  # each with its kind: plus, minus, hunk, head, or none
    added: int
    removed: int
    is_cut: bool


class ReportAttempt(Struct, frozen=True, kw_only=True):
    """One iteration. Times are seconds since the epoch."""

    story: str
    entry: str
    number: int  # of the attempt at its story, counted through all runs of the change
    task: str
    agent: str
    workers: tuple[str, ...] = ()  # other machines that worked on it
    began: float
    ended: float
    status: str  # how it was judged; `running` or `cut off` where it was not
    summary: str = ""
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    files_changed: int = 0
    work: ResourceUse = ResourceUse()  # the agent's part
    gate_seconds: float = 0.0
    gates: tuple[ReportGate, ...] = ()
    decision: ReportDecision = ReportDecision()
    commit: str = ""  # of the checkpoint
    is_kept: bool = False  # git has its work

    @property
    def counts(self) -> bool:
        return self.status in ENDINGS

    @property
    def is_put_off(self) -> bool:
        return self.status in PUT_OFF

    @property
    def is_retry(self) -> bool:
        return self.number > 1


class ReportQuestion(Struct, frozen=True, kw_only=True):
    """What a person is asked."""

    missing: str
    why: str = ""
    text: str = ""  # the whole of it
    path: str = ""
    answer: str = ""  # that was given since
    is_open: bool = True  # whether it still waits
    change: str = ""  # where a story of that id asks in several changes


class ReportReceipt(Struct, frozen=True, kw_only=True):
    """What the "done" of a story rests on: `rows` are labels and texts for people, the rest is for programs."""

    summary: str
    rows: tuple[tuple[str, str], ...] = ()
    own_tests: tuple[str, ...] = ()
    own_count: int = 0
    passed_before: int | None = None
    passed_after: int | None = None
    lost: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    commit: str = ""


class ReportCheck(Struct, frozen=True):
    """The gates on the branch's tip, at the end of the run."""

    ok: bool
    commit: str
    told: str  # the gates that are red


class ReportStory(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    state: StoryStateName
    optional: bool = False
    was_done: bool = False  # before the run
    tasks_done: int = 0
    tasks_total: int = 0
    depends_on: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()  # those of them that are not done
    why: str = ""
    commit: str = ""
    proof: str = ""  # of one that is done: proven, held, unproven, accepted, ticked; empty in old records
    proof_why: str = ""
    receipt: ReportReceipt | None = None
    attempts: tuple[ReportAttempt, ...] = ()
    question: ReportQuestion | None = None

    @property
    def name(self) -> str:
        return f"{self.id}. {self.title}" if self.title else self.id

    @property
    def is_unproven(self) -> bool:
        return self.state == "done" and self.proof == "unproven"

    @property
    def first(self) -> ResourceUse:
        """What first attempts took, without their gates."""
        return sum_use(one.work for one in self.attempts if not one.is_retry)

    @property
    def retries(self) -> ResourceUse:
        return sum_use(one.work for one in self.attempts if one.is_retry)

    @property
    def gates(self) -> ResourceUse:
        return ResourceUse(sum(one.gate_seconds for one in self.attempts))

    @property
    def used(self) -> ResourceUse:
        return self.first + self.retries + self.gates


class ReportOccurrence(Struct, frozen=True):
    """Something else that people should know: a notice, a hand-over, what a person said."""

    kind: str
    at: float
    text: str
    story: str = ""


class NewLearning(Struct, frozen=True):
    """Something that was learnt in this run."""

    id: str
    type: str
    text: str
    source: str  # the entry or the PRD that it comes from


class ShownLearning(Struct, frozen=True):
    """Something that was known, and was shown to attempts of this run."""

    id: str
    text: str
    shown: int
    helped: int  # of those attempts, so many completed


class RunKnowledge(Struct, frozen=True):
    learnt: tuple[NewLearning, ...] = ()
    shown: tuple[ShownLearning, ...] = ()
    entries: int = 0  # attempts at the change's stories since it began, in all runs,
    seconds: float = 0.0  # and what they took
    runs: int = 0  # of the change, this one included,
    cost: float = 0.0  # and what all of them cost
    trouble: str = ""  # why the history tells nothing


class ReportStep(Struct, frozen=True):
    """What people can do now."""

    say: str
    run: str


class Facts(Struct, frozen=True, kw_only=True):
    run: str
    change: str
    title: str  # of the change; its name, if it has no other
    agent: str
    adapter: str
    branch: str
    workspace: str
    is_plan: bool  # a change was drafted, and nothing done yet
    state: str  # running, paused, done, unproven, unfinished, interrupted, died
    reason: str
    verdict: str  # how it ended, in one sentence
    began: float
    ended: float  # or when it was last heard of
    stories: tuple[ReportStory, ...]
    waits: tuple[Wait, ...]
    happenings: tuple[ReportOccurrence, ...]
    limits: tuple[tuple[str, str], ...]
    gates: tuple[str, ...]  # the commands
    knowledge: RunKnowledge
    next: tuple[ReportStep, ...]
    tip: ReportCheck | None = None
    left_out: int = 0  # events that there was no room for

    @property
    def attempts(self) -> list[ReportAttempt]:
        return sorted((one for story in self.stories for one in story.attempts), key=lambda one: one.began)

    @property
    def used(self) -> ResourceUse:
        return sum_use(one.used for one in self.stories)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "paused")

    def list_stories(self, state: StoryStateName) -> list[ReportStory]:
        return [one for one in self.stories if one.state == state]

    def list_unproven(self) -> list[ReportStory]:
        return [one for one in self.stories if one.is_unproven]


def sum_use(parts: Iterable[ResourceUse]) -> ResourceUse:
    return sum(parts, ResourceUse())
