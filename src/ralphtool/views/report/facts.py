"""The facts of a report about one run: plain, immutable values with texts that are safe to show.

Their texts are already cut, and invisible characters made visible; a format only has to escape them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.record.view_parts import COUNTED, ResourceUse
from ralphtool.views.terminal.phrases import is_expected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.record.view_parts import StoryStateName, Wait

PUT_OFF = ("transient", "interrupted")  # not counted as attempts: the work was not at fault


class ReportGate(Struct, frozen=True, kw_only=True):
    when: str  # before or after the agent's work; replay, own-tests, tip
    command: str
    ok: bool
    began: float
    ended: float
    told: str  # its result in words
    new: tuple[str, ...]  # the newly red tests

    @property
    def is_fine(self) -> bool:
        """Whether it ended as expected."""
        return is_expected(self.when, self.ok)


class ReportDecision(Struct, frozen=True):
    action: str = ""
    reason: str = ""
    guidance: str = ""


class Diff(Struct, frozen=True):
    """The diff of an attempt, from git."""

    lines: tuple[tuple[str, str], ...]  # each with its kind: plus, minus, hunk, head, or none
    added: int
    removed: int
    is_cut: bool


class ReportAttempt(Struct, frozen=True, kw_only=True):
    """One iteration. Times are seconds since the epoch."""

    story: str
    entry: str
    number: int  # of the attempt at its story, across all runs of the change
    task: str
    agent: str
    workers: tuple[str, ...] = ()  # other machines that worked on it
    began: float
    ended: float
    status: str  # its verdict; `running` or `cut off` if there is none
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
    is_kept: bool = False  # its work is kept in git

    @property
    def counts(self) -> bool:
        return self.status in COUNTED

    @property
    def is_put_off(self) -> bool:
        return self.status in PUT_OFF

    @property
    def is_retry(self) -> bool:
        return self.number > 1


class ReportQuestion(Struct, frozen=True, kw_only=True):
    """A question for a person."""

    missing: str
    why: str = ""
    text: str = ""  # the whole question
    path: str = ""
    answer: str = ""  # given since
    is_open: bool = True  # whether it still needs an answer
    change: str = ""  # set if stories of several changes with this id have questions


class ReportReceipt(Struct, frozen=True, kw_only=True):
    """The proof of a story's "done": `rows` are labels and texts for people, the rest is for programs."""

    summary: str
    rows: tuple[tuple[str, str], ...] = ()
    own_tests: tuple[str, ...] = ()
    own_count: int = 0
    own_unloaded: int = 0
    passed_before: int | None = None
    passed_after: int | None = None
    lost: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    weaker: str = ""  # tests that were removed, skipped or weakened, or that the story was allowed to break, in words
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
    waits_for: tuple[str, ...] = ()  # dependencies that are not done
    why: str = ""
    commit: str = ""
    proof: str = ""  # if it is done: proven, held, unproven, accepted, ticked; empty in old records
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
        """The use of first attempts, without their gates."""
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
    """Something else worth knowing: a notice, a handover, a steering command."""

    kind: str
    at: float
    text: str
    story: str = ""


class NewLearning(Struct, frozen=True):
    """A learning from this run."""

    id: str
    type: str
    text: str
    source: str  # its entry or PRD


class ShownLearning(Struct, frozen=True):
    """A known learning that was shown to attempts of this run."""

    id: str
    text: str
    shown: int
    helped: int  # the number of those attempts that completed


class RunKnowledge(Struct, frozen=True):
    learnt: tuple[NewLearning, ...] = ()
    shown: tuple[ShownLearning, ...] = ()
    entries: int = 0  # attempts at the change's stories, in all runs
    seconds: float = 0.0  # of all runs and drafts of the change
    runs: int = 0  # of the change, including this one
    drafts: int = 0  # runs that only drafted the change
    cost: float = 0.0  # of all these runs and drafts
    trouble: str = ""  # why the history can't be read


class ReportStep(Struct, frozen=True):
    """A next step for the user."""

    say: str
    run: str


class Facts(Struct, frozen=True, kw_only=True):
    run: str
    change: str
    title: str  # of the change; its name, if it has no title
    agent: str
    adapter: str
    branch: str
    workspace: str
    is_plan: bool  # a change was drafted, and not yet worked on
    state: str  # running, paused, done, unproven, unfinished, interrupted, died
    reason: str
    verdict: str  # how it ended, in one sentence
    began: float
    ended: float  # or the time of the last event
    stories: tuple[ReportStory, ...]
    waits: tuple[Wait, ...]
    happenings: tuple[ReportOccurrence, ...]
    limits: tuple[tuple[str, str], ...]
    gates: tuple[str, ...]  # the commands
    knowledge: RunKnowledge
    next: tuple[ReportStep, ...]
    since: tuple[ReportOccurrence, ...] = ()  # what people have decided since it ended
    newer: str = ""  # the newest run of the change, if it is a later one
    is_finished: bool = False  # the change was finished since: there is no branch any more
    is_branch_gone: bool = False  # for whatever reason
    tip: ReportCheck | None = None
    left_out: int = 0  # events omitted for lack of room
    is_cut_short: bool = False  # an error ended it, or its process died

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
