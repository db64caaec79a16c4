"""Several stories at once: each in a box of its own, merged and proven one after the other.

Everything is decided here, on one thread. Lanes only run programs, and hand back what came of it.
"""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.agents import Usage
from ralphtool.errors import GitError
from ralphtool.judging import gates
from ralphtool.judging.recovery import RecoveryDecision
from ralphtool.loop import sending_back
from ralphtool.loop.budget import RemainingBudget
from ralphtool.loop.lane import Lane
from ralphtool.loop.lane_limit import LaneLimit
from ralphtool.loop.loop import Loop
from ralphtool.loop.queue import MOST_RETURNS, MergeTrial, decide
from ralphtool.loop.sending_back import Meeting
from ralphtool.record import events
from ralphtool.record.log import LaneLog
from ralphtool.workspace import slots

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from ralphtool.executors import Report
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.judging.gates import Baseline
    from ralphtool.loop.lane import LaneEnd
    from ralphtool.loop.loop import Parts, Started
    from ralphtool.loop.outcome import Iteration
    from ralphtool.loop.run_place import RunPlace
    from ralphtool.specs import Spec, Story
    from ralphtool.workspace.box import Box

_TICK = 0.2  # seconds between two looks at what a person says
_MOST_LOSSES = 3
_LOOK = 5.0  # seconds between two looks for stories that nobody has pointed to


class _Job(Struct, kw_only=True):
    """A story in a lane, from its start until it is settled."""

    lane: Lane
    started: Started
    base: str  # the checkpoint that it began with
    began: float
    checkpoint: str | None  # that its story had before, if it was done once and is open again
    report: Report | None = None  # its work, once that is done
    is_queued: bool = False  # and is to be merged
    tip: str = ""  # the checkpoint that it is being proven upon
    is_alone: bool = False  # that is the one that it began with, though there are newer ones
    has_passed_alone: bool = False


class SideBySide(Loop):
    """The loop with lanes. Its own workspace is at the last checkpoint, and no agent works there."""

    def __init__(self, parts: Parts, place: RunPlace, executor: LocalExecutor) -> None:
        super().__init__(parts)
        self._place = place
        self._home = cast("Box", place.workspace)
        self._main = executor
        self._lanes: list[Lane] = []
        self._ends: SimpleQueue[LaneEnd] = queue.SimpleQueue()
        self._jobs: dict[int, _Job] = {}  # by lane
        self._waiting: list[_Job] = []  # to be merged, the first of them next
        self._proving: _Job | None = None
        self._abandoned: set[str] = set()  # stories that a person does not want worked on
        self._baselines: dict[str, Baseline] = {}  # by their keys
        self._losses = 0  # of boxes
        self._limited: dict[int, float] = {}  # when each agent last met a limit
        self._is_broken = False  # a lane has failed in a way that ends the run
        self._next_look = 0.0
        self._limit = LaneLimit(parts.settings.run.side_by_side)

    def _work_through(self) -> None:
        with ExitStack() as self._stack:
            try:
                while self._step():
                    pass
            except BaseException:
                self._keep_all()
                raise

    def _keep_all(self) -> None:
        """Something has gone wrong: what the others had done by now is kept by refs."""
        self._is_broken = True
        for job in self._jobs.values():
            job.lane.join()
            job.lane.workspace.keep_interrupted(self.change.run)

    def _step(self) -> bool:
        """One look at everything; tells whether there is more to do."""
        self._listen()
        if not self._jobs:
            story = self._next_story()
            if story is None:
                return False
            self._begin(story)
        self._start_ready()
        self._prove_first()
        self._take_end()
        return True

    # --- what a person says ---------------------------------------------------------------------

    def _listen(self) -> None:
        self.listener.listen()
        self._abandoned |= {job.started.story.id for job in self._jobs.values() if self._is_unwanted(job)}
        if self.listener.has_pending:
            self._next_look = 0.0

    def _is_unwanted(self, job: _Job) -> bool:
        """Whether a person has decided about its story meanwhile."""
        id = job.started.story.id
        decision = self.change.change_state.story(id).decision
        is_skipped = decision is not None and decision.action == "skip"
        is_decided = self.change.workspace.checkpoints().get(id) != job.checkpoint
        return is_skipped or is_decided or self.listener.is_skipped(id)

    def _must_end(self, story: str) -> bool:
        """Asked by lanes, on their threads: it looks at nothing that could be half written."""
        return self._is_stopped() or self._is_broken or story in self._abandoned

    def _must_end_now(self, story: str) -> bool:
        """The same, for this thread, which listens meanwhile."""
        self._listen()
        return self._must_end(story)

    # --- starting -------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Fills the lanes that are free."""
        while len(self._jobs) < self._limit.count() and (story := self._find_ready()):
            self._begin(story)

    def _find_ready(self) -> Story | None:
        """The next story, if one can begin at once; nothing is waited for while others work."""
        if time.monotonic() < self._next_look or self._is_over():
            return None
        self.change.follow_branch()
        self.listener.apply()
        story = None
        if self._can_begin():
            strict_order = self.settings.run.strict_order
            story = self.change.next_story(strict_order=strict_order, is_spent=self._is_taken, takes_edits=False)
            self.listener.report()
        if story is None:
            self._next_look = time.monotonic() + _LOOK
        return story

    def _can_begin(self) -> bool:
        """A plan that was edited is taken up when nobody is at work on the one before."""
        is_edited = self.change.workspace.has_edited_plan(self.change.ref)
        return not (is_edited or self.change.change_state.paused or self.roster.next().seconds > 0)

    def _is_taken(self, story: str) -> bool:
        is_at_work = any(job.started.story.id == story for job in self._jobs.values())
        return is_at_work or self.budget.is_story_exhausted(story)

    def _begin(self, story: Story) -> None:
        self._hand_over(self.roster.next())
        self._abandoned.discard(story.id)
        lane = self._find_lane()
        tip, state = self._find_tip(), self.change.change_state.story(story.id)
        lane.workspace.catch_up(tip)
        if trouble := lane.workspace.begin(state.kept, state.cut_off):
            self.log.note(events.Notice(text=trouble))
            state.kept = state.cut_off = state.sent_back = None
        started = self._start(self.change.seen_from(lane.workspace), story)
        before = self.change.workspace.checkpoints().get(story.id)
        self._jobs[lane.number] = _Job(lane=lane, started=started, base=tip, began=time.monotonic(), checkpoint=before)
        lane.start(partial(lane.executor.work, started.assignment, partial(self._must_end, story.id)))

    def _share_budget(self, story: str) -> RemainingBudget:
        """What others may still use is not there for this one, and what is left is for all lanes that are free."""
        working = [job.started.assignment for job in self._jobs.values() if job.report is None]
        held = RemainingBudget(0.0, sum(one.tokens for one in working), sum(one.cost for one in working))
        return self.budget.remaining_for(story, held, max(1, self._limit.count() - len(self._jobs)))

    def _rest_agent(self, iteration: Iteration) -> None:
        """A limit that several lanes meet at once is one limit: who began before it was known tells nothing new."""
        number, agent = iteration.assignment.number, iteration.assignment.agent
        [began] = [job.began for job in self._jobs.values() if job.started.assignment.number == number]
        if began > self._limited.get(agent, 0.0):
            super()._rest_agent(iteration)
            self._limited[agent] = time.monotonic()
            self._limit.shrink()

    def _find_tip(self) -> str:
        return str(self.change.workspace.tip)

    def _find_lane(self) -> Lane:
        """One that is free, or a new one. Somebody may have removed its folder meanwhile."""
        for lane in [one for one in self._lanes if one.number not in self._jobs]:
            if lane.workspace.is_there:
                return lane
            self._close_lane(lane)
        taken = {one.number for one in self._lanes}
        return self._open_lane(next(number for number in count(1) if number not in taken))

    def _open_lane(self, number: int) -> Lane:
        root, change, stop = self.change.root, self.change.name, self.parts.stop
        stack, place = self._stack.enter_context(ExitStack()), slots.make_slot(root, change, number, stop)
        stack.callback(slots.remove_slot, place.home, place.slot_name)
        place.open(self.change.run, specs.list_own_paths(self.change.workspace.root, self.change.spec))
        stack.callback(place.close)
        opened = structs.replace(self._place, workspace=place, slot=number, log=LaneLog(self.log))
        lane = Lane(number, place, stack.enter_context(opened.open()), self._ends, stack.close)
        self._lanes.append(lane)
        return lane

    def _close_lane(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        lane.close()

    def _lose_lane(self, job: _Job, error: Exception) -> None:
        """Its box can't be used any more, for whatever reason: the story is begun again in a new one, a few times."""
        self._losses += 1
        if self._losses > _MOST_LOSSES:
            raise error
        text = f"the box in which story {job.started.story.id} was worked on can't be used any more: {error}"
        self.log.note(events.Notice(text=text))
        job.started.change.undo_ticks(job.started.story)
        self._proving = None if job is self._proving else self._proving
        self._keep_for_next(job)
        self._free(job)
        self._close_lane(job.lane)

    def _keep_for_next(self, job: _Job) -> None:
        """Work that is finished, and not settled: the next attempt at its story goes on from it."""
        if job.report is None or not job.is_queued or job.started.story.id in self._abandoned:
            return
        message = f"ralphtool: {self.change.name}, story {job.started.story.id}, to be merged\n"
        commit = self._home.repository.commit(str(job.report.tree), [job.base], message)
        self.change.change_state.story(job.started.story.id).cut_off = self._home.keep_commit(self.change.run, commit)
        self.change.save()

    def _guard(self, job: _Job, act: Callable[[], None]) -> None:
        """Does something with the box of a job; somebody may have removed it meanwhile."""
        try:
            act()
        except (GitError, OSError) as error:
            if job.lane.workspace.is_there or job.lane.number not in self._jobs:
                raise
            self._lose_lane(job, error)

    # --- the queue ------------------------------------------------------------------------------

    def _take_end(self) -> None:
        """Waits a moment for a lane, and takes up what it came to."""
        try:
            end = self._ends.get(timeout=_TICK)
        except queue.Empty:
            return
        job = self._jobs[end.lane.number]
        try:
            report = end.job.result()
            job.lane.workspace.check_there()
        except (GitError, OSError) as error:
            self._lose_lane(job, error)
            return
        self._next_look = 0.0
        if self._is_unwanted(job):
            self._abandoned.add(job.started.story.id)
            report = structs.replace(report, ending="stopped")
        self._guard(job, partial(self._take_proof if job is self._proving else self._take_work, job, report))

    def _take_work(self, job: _Job, report: Report) -> None:
        job.report = self._inspect(job, self._count(job.started.assignment, report))
        if job.lane.executor.must_prove(job.report, job.started.assignment):
            self._protect(job, job.report)
            job.is_queued = job.report.tree is not None
            self._waiting.append(job)
            self.log.note(events.Queued(**self._about(job), waiting=len(self._waiting) - 1))
        else:
            self._settle(job, job.report)

    def _protect(self, job: _Job, report: Report) -> None:
        """After a kill its story goes on from there."""
        if report.tree:
            job.lane.workspace.protect(report.tree, job.started.story.id, job.started.assignment.entry)

    def _inspect(self, job: _Job, report: Report) -> Report:
        """Whether work that was sent back was resolved, and nothing else undone."""
        returned = self.change.change_state.story(job.started.story.id).sent_back
        if returned is None or report.tree is None:
            return report
        found = sending_back.inspect(job.lane.workspace, returned, report.tree, job.base)
        return structs.replace(report, findings=(*report.findings, *found))

    def _prove_first(self) -> None:
        """One at a time: the next one is merged with what comes of this one."""
        if self._proving or not self._waiting:
            return
        job = self._waiting.pop(0)
        if self._must_end(job.started.story.id):
            self._settle(job, structs.replace(_get_report(job), ending="stopped"))
            return
        self.change.follow_branch()
        self._guard(job, partial(self._prove_upon, job, self._find_tip()))

    def _prove_upon(self, job: _Job, tip: str) -> None:
        report, lane = _get_report(job), job.lane
        if tip != job.base:
            merged = self._merge(job, tip)
            if merged is None:
                return
            report = structs.replace(report, tree=merged)
        self._show(job, tip, str(report.tree))
        self.log.note(events.Merging(**self._about(job), upon=tip, others=self._list_others(job)))
        assignment = job.started.assignment
        baseline, seconds = self._find_baseline(job)
        report = structs.replace(report, baseline=baseline, gate_seconds=seconds)
        self._proving, job.tip = job, tip
        lane.start(partial(lane.executor.prove, report, assignment, partial(self._must_end, job.started.story.id)))

    def _show(self, job: _Job, tip: str, tree: str) -> None:
        if job.lane.workspace.tip != tip or tree != _get_report(job).tree:
            job.lane.workspace.show_upon(tip, tree)

    def _merge(self, job: _Job, tip: str) -> str | None:
        """The tree of both, with the boxes of the story ticked; None where they are in conflict."""
        place, report = job.lane.workspace, _get_report(job)
        place.catch_up(job.base)
        merged = place.merge_work(str(report.tree), tip, self.change.ref)
        if merged.conflicts:
            self._send_back(job, tip, merged.tree, files=merged.conflicts)
            return None
        place.catch_up(tip)
        return place.edit_newest_spec(merged.tree, self.change.ref, partial(_tick, report, job.started.story))

    def _find_baseline(self, job: _Job) -> tuple[Baseline | None, float]:
        """What is red at the last checkpoint: known after each story, and found out before the first one."""
        key = self._build_key(job, str(job.lane.workspace.checkpoint_tree))
        self._remember_baseline()
        if not job.started.assignment.gates or key in self._baselines:
            return self._baselines.get(key), 0.0
        looking = structs.replace(job.started.assignment, kept=None, cut_off=None, baseline=None)
        found, seconds = self._main.measure(looking, partial(self._must_end_now, job.started.story.id))
        self.change.change_state.baseline = found or self.change.change_state.baseline
        self._remember_baseline()
        return found, seconds

    def _build_key(self, job: _Job, tree: str) -> str:
        return gates.build_key(tree, job.started.assignment.gates)

    def _remember_baseline(self) -> None:
        """Also of earlier checkpoints: work may have to be proven upon the one that it began with."""
        if known := self.change.change_state.baseline:
            self._baselines[known.key] = known

    def _is_base_known(self, job: _Job) -> bool:
        tree = self._home.repository.tree_of(job.base)
        return not job.started.assignment.gates or self._build_key(job, tree) in self._baselines

    def _take_proof(self, job: _Job, report: Report) -> None:
        self._proving = None
        # The agent's part was counted when it ended.
        self.budget.add(job.started.story.id, structs.replace(report, agent_seconds=0.0, usage=Usage()))
        self.change.follow_branch()
        if not (report.red or job.is_alone or report.ending == "stopped") and job.tip != self._find_tip():
            self._prove_upon(job, self._find_tip())  # a person has committed, accepted or rejected something meanwhile
            return
        step = decide(
            MergeTrial(
                is_red=bool(report.red),
                is_moved=job.tip != job.base,
                is_alone=job.is_alone,
                has_passed_alone=job.has_passed_alone,
            )
        )
        if step == "alone" and not self._is_base_known(job):
            step = "again"
        if step == "settle" or report.ending == "stopped":
            self._settle(job, report)
        elif step == "send-back":
            red = tuple(f"{gate.command}: {', '.join(gate.tests) or gate.why}" for gate in report.red)
            self._send_back(job, job.tip, str(report.tree), tests=red)
        else:
            job.is_alone, job.has_passed_alone = step == "alone", step == "again"
            self._prove_upon(job, job.base if job.is_alone else self._find_tip())

    # --- the end of an iteration ----------------------------------------------------------------

    def _settle(self, job: _Job, report: Report) -> None:
        """Judged like any other; from here on the lane is free."""
        self._conclude_job(job, self._judge(job.started, report))

    def _conclude_job(self, job: _Job, iteration: Iteration) -> None:
        self.is_abandoned = job.started.story.id in self._abandoned
        self._log_iteration(iteration)
        self._act(job.started.change, iteration)
        self.is_abandoned = False
        if iteration.is_done:
            tip = str(job.lane.workspace.tip)
            if job.tip != job.base:
                self.log.note(events.Merged(**self._about(job), commit=tip))
            self._home.catch_up(tip)
            job.lane.workspace.rest()
        elif iteration.verdict.status == "interrupted":
            self._keep_for_next(job)
        self._free(job)

    def _free(self, job: _Job) -> None:
        job.lane.workspace.release()
        del self._jobs[job.lane.number]
        self._next_look = 0.0

    def _send_back(
        self, job: _Job, tip: str, tree: str, files: tuple[str, ...] = (), tests: tuple[str, ...] = ()
    ) -> None:
        """Its own agent gets it again, with what others have done; no attempt is charged."""
        place, others = job.lane.workspace, self._list_others(job)
        meeting = Meeting(
            tree=tree,
            others=others,
            files=files,
            tests=tests,
            own_paths=place.list_between(job.base, str(_get_report(job).tree)),
            their_paths=place.list_between(job.base, tip),
        )
        why = "conflict" if files else "red-together"
        self.log.add(events.SentBack(**self._about(job), why=why, others=others, files=files, tests=tests))
        if self.change.change_state.story(job.started.story.id).returns >= MOST_RETURNS:
            self._give_up(job, meeting.explain())
            return
        place.catch_up(tip)
        sending_back.send_back(job.started, place, meeting)
        self._free(job)

    def _give_up(self, job: _Job, why: str) -> None:
        """A person is asked: its agent has had it often enough."""
        job.lane.workspace.catch_up(job.base)
        iteration = self._judge(job.started, structs.replace(_get_report(job), trouble=why))
        reason = f"it was sent back {MOST_RETURNS} times: {why}"
        asked = RecoveryDecision("manual", "", reason)
        self._conclude_job(job, structs.replace(iteration, decision=asked))

    def _list_others(self, job: _Job) -> tuple[str, ...]:
        """The stories that were done since it began."""
        newer = self._home.repository.list_newer(job.base, self._find_tip())
        return tuple(id for id, commit in self.change.workspace.checkpoints().items() if commit in newer)

    def _about(self, job: _Job) -> dict[str, Any]:
        return {"story": job.started.story.id, "iteration": job.started.assignment.number}


def _get_report(job: _Job) -> Report:
    if job.report is None:
        raise AssertionError("what waits to be merged has been worked on")
    return job.report


def _tick(report: Report, story: Story, spec: Spec) -> None:
    """What the attempt ticked of its own story; the spec is that of the newest work."""
    own = [task.id for task in story.tasks if task.id in report.ticked]
    for id in own:
        spec.tick(id, own, proven=False)
