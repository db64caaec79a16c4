"""The state of a run after its events: the one projection of a record, from which every view and report is built.

Nothing is drawn and no text is sanitized here: the views do that. A record may be endless, so every list has a
maximum, and omitted items are counted. This is one file because all events change the same few values.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from msgspec import structs

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
    Merging,
    Notice,
    Paused,
    PlanEdited,
    Proof,
    Question,
    Queued,
    Reopened,
    Resumed,
    RunEnded,
    RunStarted,
    SentBack,
    Setup,
    Steered,
    Ticked,
    Verdict,
    Waiting,
    WorkerJoined,
    WorkspaceChosen,
    is_activity,
)
from ralphtool.record.fitting import trim
from ralphtool.record.view_parts import (
    AttemptView,
    GateView,
    Occurrence,
    ResourceUse,
    StoryStateName,
    StoryView,
    Wait,
    parse_state,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.record.event_parts import StoryAfter
    from ralphtool.record.events import Event

_STORIES, _ATTEMPTS, _GATES, _HAPPENINGS, _WAITS = 1000, 2000, 60, 300, 1000  # maximum number kept
_WORKERS = 20  # of one iteration
_LANES = 64  # iterations in progress at once
_ID = 200  # characters of an id
_NOT_COMMITTED = "its work is not on the branch"
_KEEPS_TICKS = ("completed", "partial")  # after other verdicts, the ticks are undone
_LONGEST_WAIT = 1e9  # seconds
_UNKNOWN = Durations()


class RunView:
    """The state of a run after the events that were fed to it."""

    def __init__(self) -> None:
        self.start = RunStarted()
        self.end: RunEnded | None = None
        self.began: float | None = None
        self.now = 0.0  # time of the last event; agent events don't count
        self.stories: dict[str, StoryView] = {}
        self.attempts: list[AttemptView] = []  # in the order in which they began
        self.current: dict[int, AttemptView] = {}  # iterations in progress by number, the last to start at the end
        self.spent = ResourceUse()  # by the agents of finished iterations
        self.waiting: Waiting | None = None
        self.paused: Paused | None = None
        self.is_pause_requested = False  # paused now, or after this iteration
        self.steered: Steered | None = None  # the last steering command, until an agent gets it
        self.waits: list[Wait] = []
        self.happenings: list[Occurrence] = []
        self.left_out = 0  # events that exceeded a maximum
        self._unassigned = AttemptView(start=IterationStarted())  # for iterations whose start is unknown
        self._open_wait: Wait | None = None

    @property
    def state(self) -> str:
        """The state according to the record, which can't show whether a run without an end is still alive."""
        if self.end is not None:
            return self.end.result if self.end.result in ("done", "unproven", "interrupted") else "unfinished"
        return "running" if self.paused is None else "paused"

    @property
    def attempt(self) -> AttemptView | None:
        """The last iteration to start, among those in progress."""
        return next(reversed(self.current.values()), None)

    @property
    def spent_so_far(self) -> ResourceUse:
        return sum((one.used for one in self.current.values()), self.spent + self._unassigned.used)

    @property
    def gates(self) -> list[GateView]:
        return (self.attempt or self._unassigned).last_gates

    def feed(self, event: Event) -> None:
        if isinstance(event, Agent):
            self._apply_agent(event)
            return
        at = parse_time(event.at)
        self.now = max(self.now, self.now if at is None else at)  # clocks may be set back
        self.began = at if self.began is None else self.began
        self.waiting = None if isinstance(event, _WORK) else self.waiting
        if take := _APPLY_BY_TYPE.get(type(event)):
            take(self, event)

    # --- iterations -----------------------------------------------------------------------------

    def _apply_agent(self, event: Agent) -> None:
        """Agents may print thousands of lines a second, so this does next to nothing."""
        attempt, said = self._find_attempt(event.iteration), event.event
        if isinstance(said, agents.Usage):
            used = ResourceUse(0.0, said.input_tokens, said.output_tokens, said.cost or 0.0)
            attempt.used, attempt.last_used = attempt.used + used, used
            attempt.reported += used.amount
        elif is_activity(said):
            attempt.last_event = event
            if isinstance(said, agents.End) and attempt.end is None:  # a second one comes from a blocker check
                attempt.end = said

    def _find_attempt(self, iteration: int) -> AttemptView:
        """The iteration that an event belongs to; the last to begin, if the record doesn't say."""
        return (self.current.get(iteration) if iteration else self.attempt) or self._unassigned

    def _find_story(self, id: str | None) -> StoryView:
        id = (id or "")[:_ID]
        if id not in self.stories and len(self.stories) >= _STORIES:
            self.left_out += 1
            return StoryView(id=id)
        return self.stories.setdefault(id, StoryView(id=id))

    def _apply_start(self, event: RunStarted) -> None:
        self.start = trim(event)
        self.stories, self.current, self._unassigned = {}, {}, AttemptView(start=IterationStarted())
        self.paused = self.steered = self.end = None
        for row in event.stories:
            self._find_story(row.id).begin(trim(row))

    def _apply_workspace(self, event: WorkspaceChosen) -> None:
        self.start = structs.replace(self.start, workspace=trim(event).kind)

    def _apply_iteration(self, event: IterationStarted) -> None:
        number, story = event.iteration or event.number, self._find_story(event.story)
        for key, one in list(self.current.items()):
            if not (number and key) or one.start.story == event.story or len(self.current) >= _LANES:
                self._cut_off(key)
        self._end_wait()
        self._add_spent(self._unassigned.used)
        story.title = story.title or trim(event).title
        story.state, story.why, story.is_settled, story.ticked = (
            "open",
            "",
            False,
            (),
        )  # it is tried again, whatever its state was
        story.tasks_before = story.tasks_done
        story.set_proof("")
        self.paused = self.steered = None
        self.current[number] = self._add_attempt(story, event, self.now)

    def _add_attempt(self, story: StoryView, event: IterationStarted, began: float) -> AttemptView:
        attempt = AttemptView(start=trim(event), began=began, ended=began)
        if len(self.attempts) >= _ATTEMPTS:
            self.left_out += 1
        else:
            self.attempts.append(attempt)
            story.attempts.append(attempt)
        return attempt

    def _cut_off(self, number: int, status: str = "cut off", took: Durations = _UNKNOWN) -> None:
        attempt = self.current.pop(number)
        attempt.status, attempt.ended = status, self.now
        took = took if took != _UNKNOWN else attempt.estimate_durations(self.now)
        attempt.gate_seconds, attempt.work = took.gates, attempt.used + ResourceUse(took.agent)
        self._add_spent(attempt.used)

    def _add_spent(self, used: ResourceUse) -> None:
        self.spent += used
        self._unassigned = AttemptView(start=IterationStarted())

    def _apply_gate(self, event: GateStarted | Gate) -> None:
        gates, began = self._find_attempt(event.iteration).gates, self.now
        if isinstance(event, Gate):
            began -= event.seconds
            if gates and gates[-1].is_running:
                began = gates.pop().began
        gates.append(GateView(trim(event), min(began, self.now), self.now))
        if len(gates) > _GATES:
            del gates[0]
            self.left_out += 1

    def _apply_worker(self, event: WorkerJoined) -> None:
        """A job begins on this worker: a gate that another worker did not finish is no longer running."""
        attempt = self._find_attempt(event.iteration) if event.iteration else self._unassigned
        if attempt.gates and attempt.gates[-1].is_running:
            attempt.gates.pop()
        event = structs.replace(trim(event), worker=event.worker[:_ID])
        attempt.worker = event.worker
        if not attempt.workers or attempt.workers[-1].worker != event.worker:
            attempt.workers = [*attempt.workers, event][-_WORKERS:]

    def _apply_queue(self, event: Queued | Merging) -> None:
        attempt, is_queued = self._find_attempt(event.iteration), isinstance(event, Queued)
        attempt.phase = "waiting" if is_queued else "merging"
        attempt.queued = self.now if is_queued else attempt.queued
        attempt.worker = "" if is_queued else attempt.worker

    def _apply_return(self, event: SentBack) -> None:
        if event.iteration in self.current:
            self._cut_off(event.iteration, "sent back", event.seconds)
        story, told = self._find_story(event.story), trim(event)
        story.ticked, story.tasks_done = (), story.tasks_before  # its ticks are undone
        what = f"both change {', '.join(told.files)}" if told.files else "together they are red"
        story.set_state("open", f"sent back to its agent because of story {', '.join(told.others)}: {what}")
        self._add_occurrence(event)

    def _apply_ticks(self, event: Ticked) -> None:
        story = self._find_story(event.story)
        story.tasks_done, story.tasks_total, story.ticked = event.tasks_done, event.tasks_total, trim(event).ticked

    def _apply_verdict(self, event: Verdict) -> None:
        attempt = self._pop_current(event)
        story = self._find_story(event.story or (attempt.start.story if attempt else ""))
        is_kept = attempt is None or event.status in _KEEPS_TICKS
        attempt = attempt or self._add_late_attempt(story, event)
        attempt.verdict, attempt.status, attempt.ended = trim(event), event.status[:_ID] or "unknown", self.now
        told = ResourceUse(0.0, event.input_tokens, event.output_tokens, event.cost or 0.0)
        attempt.work = (told if told != ResourceUse() else attempt.used) + ResourceUse(event.seconds.agent)
        attempt.gate_seconds = event.seconds.gates
        attempt.last_event = None
        self._add_spent(structs.replace(attempt.work, seconds=0.0))
        if not is_kept:
            story.ticked, story.tasks_done = (), story.tasks_before
        elif event.tasks_total:
            story.tasks_done, story.tasks_total = event.tasks_done, event.tasks_total
        if event.status == "completed":
            # Without git, there are no checkpoints.
            story.state, story.why = ("open", _NOT_COMMITTED) if self.start.branch else ("done", "")
        else:
            story.set_state("failed" if event.status in ("failed", "blocked") else "open")

    def _pop_current(self, event: Verdict) -> AttemptView | None:
        """The iteration that is judged. Without a number, iterations ran one at a time, so no other is in progress."""
        if event.iteration:
            return self.current.pop(event.iteration, None)
        about = {event.story, event.entry} - {""}
        ours = next((key for key, one in self.current.items() if {one.start.story, one.start.entry} & about), None)
        found = self.current.pop(ours) if ours is not None else None
        for key in list(self.current):
            self._cut_off(key)
        return found

    def _add_late_attempt(self, story: StoryView, event: Verdict) -> AttemptView:
        """An iteration whose start is not in the record."""
        start = IterationStarted(
            story=event.story, entry=event.entry, attempt=event.attempt, task=event.task, iteration=event.iteration
        )
        attempt = self._add_attempt(story, start, self.now - event.seconds.agent - event.seconds.gates)
        attempt.gates, attempt.used = self._unassigned.gates, self._unassigned.used
        attempt.workers = [
            one for one in self._unassigned.workers if one.iteration and one.iteration == event.iteration
        ]
        return attempt

    def _apply_decision(self, event: Decision) -> None:
        story, event = self._find_story(event.story), trim(event)
        if story.attempts:
            story.attempts[-1].decision = event
        decided: dict[str, StoryStateName] = {"skip": "skipped", "manual": "waiting"}
        if story.why != _NOT_COMMITTED:
            story.set_state(decided.get(event.action, story.state), event.reason)

    def _apply_checkpoint(self, event: Checkpoint) -> None:
        story = self._find_story(event.story)
        story.commit, story.state, story.why = (event.commit or "")[:_ID], "done", ""
        if event.proof and event.proof != story.proof:
            story.set_proof(event.proof)
        if story.attempts:
            story.attempts[-1].checkpoint = trim(event)

    def _apply_proof(self, event: Proof) -> None:
        story, receipt = self._find_story(event.story), trim(event).receipt
        story.set_proof(receipt.state, receipt.why, receipt)
        if receipt.state == "accepted":
            story.state, story.why, story.is_asking = "done", "", False
        if attempt := next((one for one in reversed(story.attempts) if one.start.entry == event.entry), None):
            attempt.receipt = receipt

    def _apply_reopening(self, event: Reopened) -> None:
        story, why = self._find_story(event.story), trim(event).why
        story.reopen(f"you rejected it{why and f': {why}'}")

    def _apply_plan(self, event: PlanEdited) -> None:
        """Moves the state of stories to their new ids."""
        known, self.stories = self.stories, {}
        moved = {new: known.pop(old) for old, new in event.renumbered if old in known}
        for row in event.stories:
            # A new story may have an id that another story had before.
            found = moved.get(row.id) or known.get(row.id) or StoryView(id=row.id)
            found.edit(trim(row))
            self.stories[found.id] = found
        self._add_occurrence(event)

    # --- people ---------------------------------------------------------------------------------

    def _apply_question(self, event: Question) -> None:
        story = self._find_story(event.story)
        story.set_state("waiting", story.why)
        story.question, story.answer, story.is_asking = trim(event), "", True
        self._add_occurrence(event)

    def _apply_answer(self, event: Answered) -> None:
        story = self._find_story(event.story)
        if story.state != "done":
            story.settle("open", "you answered; it is next")
        story.answer = trim(event).text
        self._add_occurrence(event)

    def _apply_steering(self, event: Steered) -> None:
        self.steered = event = trim(event)
        self._add_occurrence(event)
        if event.action in ("pause", "resume"):
            self.is_pause_requested = event.action == "pause"
        if story := self.stories.get((event.story or "")[:_ID]):
            story.steer(event.action, event.text)

    def _apply_setup(self, event: Setup) -> None:
        if not event.ok:
            self._add_occurrence(event)

    def _add_occurrence(self, event: Any) -> None:
        if len(self.happenings) < _HAPPENINGS:
            self.happenings.append(Occurrence(self.now, trim(event)))
        else:
            self.left_out += 1

    # --- waits ----------------------------------------------------------------------------------

    def _apply_wait(self, event: Waiting) -> None:
        self._end_wait()
        self.waiting = trim(event)
        until = self.now + min(event.seconds, _LONGEST_WAIT)
        self._open_wait = Wait("wait", self.now, until, self.waiting.why)

    def _apply_pause(self, event: Paused) -> None:
        self._end_wait()
        self.paused, self.is_pause_requested = trim(event), True
        self._open_wait = Wait("pause", self.now, self.now + _LONGEST_WAIT, self.paused.why)

    def _apply_resume(self, event: Resumed) -> None:
        self._end_wait()
        self.paused, self.steered, self.is_pause_requested = None, None, False

    def _end_wait(self) -> None:
        """A wait ends when work continues, or when its time is up."""
        if self._open_wait and len(self.waits) < _WAITS:
            self.waits.append(structs.replace(self._open_wait, ended=min(self.now, self._open_wait.ended)))
        self._open_wait = None

    # --- the end --------------------------------------------------------------------------------

    def _apply_end(self, event: RunEnded) -> None:
        self.end = trim(event)
        for key in list(self.current):
            self._cut_off(key)
        self.paused = self.steered = None
        for row in self.end.stories:
            self._end_story(row)

    def _end_story(self, row: StoryAfter) -> None:
        is_late = row.id[:_ID] not in self.stories
        story = self._find_story(row.id)
        story.title, story.is_late = story.title or row.title, is_late
        story.is_settled = story.is_settled and row.state != "done"
        story.set_state(parse_state(row.state, story.state), row.why)
        story.commit = row.commit or story.commit
        if row.state == "done":
            story.set_proof(row.proof, row.proof_why, story.receipt if row.proof == story.proof else None)
        if story.state == "waiting" and story.question is None:
            story.question = Question(story=story.id, path=row.question or "", missing=row.failure or row.why)
            story.is_asking = True

    def copy_closed(self, at: float, *, is_over: bool) -> RunView:
        """A closed copy as of this moment; this view stays open."""
        copied = copy.deepcopy(self)
        copied.close(at, is_over=is_over)
        return copied

    def close(self, at: float, *, is_over: bool) -> None:
        """Ends everything that is still open, at this moment, because there are no more events for now."""
        self.now = max(self.now, at)
        for key in list(self.current):
            self._cut_off(key, "cut off" if is_over else "running")
        self._end_wait()


_WORK = (RunStarted, IterationStarted, GateStarted, Gate, Verdict, Decision, Question, RunEnded)  # ends a wait
_APPLY_BY_TYPE: dict[type, Callable[[RunView, Any], None]] = {
    RunStarted: RunView._apply_start,
    WorkspaceChosen: RunView._apply_workspace,
    IterationStarted: RunView._apply_iteration,
    Setup: RunView._apply_setup,
    **dict.fromkeys((GateStarted, Gate), RunView._apply_gate),
    Ticked: RunView._apply_ticks,
    WorkerJoined: RunView._apply_worker,
    **dict.fromkeys((Queued, Merging), RunView._apply_queue),
    SentBack: RunView._apply_return,
    Verdict: RunView._apply_verdict,
    Decision: RunView._apply_decision,
    Checkpoint: RunView._apply_checkpoint,
    Proof: RunView._apply_proof,
    Reopened: RunView._apply_reopening,
    PlanEdited: RunView._apply_plan,
    Question: RunView._apply_question,
    Answered: RunView._apply_answer,
    Steered: RunView._apply_steering,
    **dict.fromkeys((Notice, Denied, HandedOver, BlockerChecked), RunView._add_occurrence),
    Waiting: RunView._apply_wait,
    Paused: RunView._apply_pause,
    Resumed: RunView._apply_resume,
    RunEnded: RunView._apply_end,
}
