"""Several stories at once: each in its own box, merged and proven one after another.

Everything is decided here, on one thread. Lanes only run programs, and return the results.
"""

from __future__ import annotations

import queue
import time
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from ralphtool.agents import Usage
from ralphtool.errors import GitError
from ralphtool.executors.claims import is_network_trouble, must_prove
from ralphtool.judging.recovery import RecoveryDecision
from ralphtool.loop import outcome, sending_back
from ralphtool.loop.budget import RemainingBudget
from ralphtool.loop.known_baselines import KnownBaselines
from ralphtool.loop.lane import Lane, LanePool
from ralphtool.loop.lane_job import LaneJob
from ralphtool.loop.lane_limit import LaneLimit
from ralphtool.loop.look_ahead import AheadOfQueue
from ralphtool.loop.loop import Loop
from ralphtool.loop.queue import MOST_RETURNS, MergeTrial, decide
from ralphtool.loop.sending_back import Meeting
from ralphtool.record import events
from ralphtool.workspace.paths import printable
from ralphtool.workspace.revert import MergedTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.executors import Assignment, LaneExecutor, Report
    from ralphtool.history.analyzer import AttemptContext
    from ralphtool.judging.gates import Baseline
    from ralphtool.loop.change import Change
    from ralphtool.loop.loop import Parts
    from ralphtool.loop.outcome import Iteration
    from ralphtool.loop.run_place import RunPlace
    from ralphtool.specs import Story
    from ralphtool.workspace.box import Box

_TICK = 0.2  # seconds between two looks for steering commands
_MOST_LOSSES = 3
_LOOK = 5.0  # seconds between two regular looks for new stories


class SideBySide(Loop):
    """The loop with lanes. Its own workspace is at the last checkpoint, and no agent works there."""

    def __init__(self, parts: Parts, place: RunPlace, executor: LaneExecutor) -> None:
        super().__init__(parts)
        self._home = cast("Box", place.workspace)
        self._main = executor
        self._lanes = LanePool(place, parts.change, parts.stop)
        self._jobs: dict[int, LaneJob] = {}  # by lane
        self._waiting: list[LaneJob] = []  # to be merged, in this order
        self._proving: LaneJob | None = None
        self._abandoned: set[str] = set()  # stories that a person wants no more work on
        self._baselines = KnownBaselines(parts.change.change_state)
        self._losses = 0  # of boxes
        self._limited: dict[str, float] = {}  # when each agent last reached a limit
        self._is_broken = False  # a lane has failed in a way that ends the run
        self._next_look = 0.0
        self._is_work_left = True  # besides the running jobs, as far as is known
        self._limit = LaneLimit(parts.settings.run.side_by_side)
        # Some formats mark a story as done once it is proven: then its tree can't be predicted.
        at_once = 1 if outcome.has_marks(parts.change.spec) else parts.settings.run.speculate
        self._ahead = AheadOfQueue(self._home.repository, at_once, self._merge, self._must_end)

    def _work_through(self) -> None:
        with self._lanes:
            try:
                while self._step():
                    pass
            except BaseException:
                self._keep_all()
                raise

    def _keep_all(self) -> None:
        """After an error, keeps the unfinished work of all lanes in refs."""
        self._is_broken = True
        for job in self._jobs.values():
            job.lane.join()
            job.lane.workspace.keep_interrupted(self.change.run)

    def _step(self) -> bool:
        """One round; returns whether there is more to do."""
        self._listen()
        if not self._jobs:
            story = self._next_story()
            if story is None:
                return False
            self._begin(story)
        self._start_ready()
        self._prove_first()
        self._look_ahead()
        self._take_end()
        return True

    # --- steering -------------------------------------------------------------------------------

    def _listen(self) -> None:
        self.listener.listen()
        self._abandoned |= {job.story for job in self._jobs.values() if self._is_unwanted(job)}
        if self.listener.has_pending:
            self._next_look = 0.0

    def _is_unwanted(self, job: LaneJob) -> bool:
        """Whether a person has decided about its story meanwhile, or about one that it depends on."""
        id = job.story
        decision = self.change.change_state.story(id).decision
        is_skipped = decision is not None and decision.action == "skip"
        checkpoints = self.change.workspace.checkpoints()
        own = (id, *job.started.story.depends_on)
        is_decided = any(checkpoints.get(one) != job.before.get(one) for one in own)
        return is_skipped or is_decided or self.listener.is_skipped(id)

    def _must_end(self, story: str) -> bool:
        """Called by lanes, on their threads: it reads nothing that could be half written."""
        return self._is_stopped() or self._is_broken or story in self._abandoned

    def _must_end_now(self, story: str) -> bool:
        """Like `_must_end`, but for this thread, which must also listen."""
        self._listen()
        return self._must_end(story)

    # --- starting -------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Fills the free lanes. Stories that wait to be merged keep theirs, while a few more lanes work."""
        while self._count_free() > 0 and (story := self._find_ready()):
            self._begin(story)

    def _count_free(self) -> int:
        lanes = self._limit.count()
        return min(lanes - len(self._list_working()), lanes + self.settings.run.speculate - len(self._jobs))

    def _list_working(self) -> list[LaneJob]:
        return [job for job in self._jobs.values() if job.report is None]

    def _find_ready(self) -> Story | None:
        """The next story, if one can begin at once; never waits while other lanes work."""
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
            self._is_work_left = self._has_others()
        return story

    def _has_others(self) -> bool:
        """Whether a story is open that no lane works on. If not, there is nothing to begin when a lane ends."""
        stories = self.change.stories()
        settled = {*self.change.done(stories), *(job.story for job in self._jobs.values())}
        return any(story.id not in settled for story in stories)

    def _can_begin(self) -> bool:
        """An edited plan is applied when no lane works on the old one; new tests are tried when no lane works."""
        must_rest = self.gates.has_new_tests() or self.change.workspace.has_edited_plan(self.change.ref)
        return not (must_rest or self.change.change_state.paused or self.roster.next().seconds > 0)

    def _is_taken(self, story: str) -> bool:
        is_at_work = any(job.story == story for job in self._jobs.values())
        return is_at_work or self.budget.is_story_exhausted(story)

    def _begin(self, story: Story) -> None:
        self._hand_over(self.roster.next())
        self._abandoned.discard(story.id)
        tip = self._find_tip()
        try:
            lane = self._prepare_lane(story, tip)
        except (GitError, OSError) as error:
            self._do_without(error)
            return
        started = self._start(self.change.seen_from(lane.workspace), story)
        base = started.assignment.base or tip  # an older one, if a killed run has already sent this work out
        lane.workspace.catch_up(base)
        before = dict(self.change.workspace.checkpoints())
        self._jobs[lane.number] = LaneJob(lane=lane, started=started, base=base, began=time.monotonic(), before=before)
        lane.start(partial(lane.executor.work, started.assignment, partial(self._must_end, story.id)))

    def _prepare_lane(self, story: Story, tip: str) -> Lane:
        """A box with the newest work, and the kept work of an earlier attempt."""
        lane, state = self._lanes.find_free(self._jobs), self.change.change_state.story(story.id)
        lane.workspace.catch_up(tip)
        try:
            trouble = lane.workspace.begin(state.kept, state.cut_off)
        except (GitError, OSError) as error:
            self._lanes.close(lane)
            if self._jobs or not (state.kept or state.cut_off):
                raise
            # No other lane is working, so waiting would not free any space. The kept work stays in its ref.
            self.log.note(events.Notice(text=f"story {story.id} starts over, without the kept work: {error}"))
            state.kept = state.cut_off = state.sent_back = None
            return self._prepare_lane(story, tip)
        if trouble:
            self.log.note(events.Notice(text=trouble))
            state.kept = state.cut_off = state.sent_back = None
        return lane

    def _do_without(self, error: Exception) -> None:
        """No box can be created: the disk may be full. Running lanes continue."""
        if not self._jobs:
            raise error
        self._limit.shrink()
        self._next_look = time.monotonic() + _LOOK
        self.log.note(
            events.Notice(text=(f"working on fewer stories at once for now, because no box is available: {error}"))
        )

    def _build_assignment(self, change: Change, story: Story, before: AttemptContext) -> Assignment:
        return self._main.take_up(super()._build_assignment(change, story, before))

    def _share_budget(self, story: str) -> RemainingBudget:
        """Excludes what running lanes may still use, and shares the rest among the free lanes."""
        working = [job.started.assignment for job in self._list_working()]
        held = RemainingBudget(0.0, sum(one.tokens for one in working), sum(one.cost for one in working))
        return self.budget.remaining_for(story, held, max(1, self._count_free()))

    def _rest_agent(self, iteration: Iteration) -> None:
        """A limit that several lanes reach at once counts once: lanes that began before it was known add nothing."""
        number, agent = iteration.assignment.number, iteration.assignment.agent
        [began] = [job.began for job in self._jobs.values() if job.started.assignment.number == number]
        if began > self._limited.get(agent, 0.0):
            super()._rest_agent(iteration)
            self._limited[agent] = time.monotonic()
            if not is_network_trouble(iteration.report):  # a lost machine or connection: fewer lanes don't help
                self._limit.shrink()

    def _find_tip(self) -> str:
        return str(self.change.workspace.tip)

    def _lose_lane(self, job: LaneJob, error: Exception) -> None:
        """The job's box can no longer be used: its story begins again in a new one, a limited number of times."""
        self._losses += 1
        if self._losses > _MOST_LOSSES:
            raise error
        text = f"the box of story {job.story} can no longer be used: {error}"
        self.log.note(events.Notice(text=text))
        job.started.change.undo_ticks(job.started.story)
        self._proving = None if job is self._proving else self._proving
        self._waiting = [one for one in self._waiting if one is not job]
        self._keep_for_next(job)
        self._free(job)
        self._lanes.close(job.lane)

    def _keep_for_next(self, job: LaneJob) -> None:
        """Keeps finished work that is not settled: the next attempt at its story continues from it."""
        if job.report is None or not job.is_queued or job.story in self._abandoned:
            return
        message = f"ralphtool: {self.change.name}, story {job.story}, to be merged\n"
        commit = self._home.repository.commit(str(job.report.tree), [job.base], message)
        self.change.change_state.story(job.story).cut_off = self._home.keep_commit(self.change.run, commit)
        self.change.save()

    def _guard(self, job: LaneJob, act: Callable[[], None]) -> None:
        """Does something with the box of a job, which may have been removed meanwhile."""
        try:
            act()
        except (GitError, OSError) as error:
            if job.lane.workspace.is_there or job.lane.number not in self._jobs:
                raise
            self._lose_lane(job, error)

    # --- the queue ------------------------------------------------------------------------------

    def _take_end(self) -> None:
        """Waits a moment for a lane to end, and processes its report."""
        try:
            end = self._lanes.ends.get(timeout=_TICK)
        except queue.Empty:
            return
        job = self._jobs[end.lane.number]
        try:
            report = end.job.result()
            job.lane.workspace.check_there()
        except (GitError, OSError) as error:
            if job.ahead and job.is_ahead and job.lane.workspace.is_there:
                job.ahead.is_running = False  # without a result: it is proven in its turn
            else:
                self._lose_lane(job, error)
            return
        self._look_soon()
        if self._is_unwanted(job):
            self._abandoned.add(job.story)
            report = structs.replace(report, ending="stopped")
        take = self._take_ahead if job.is_ahead else self._take_proof if job is self._proving else self._take_work
        self._guard(job, partial(take, job, report))

    def _take_work(self, job: LaneJob, report: Report) -> None:
        job.report = self._inspect(job, self._count(job.started.assignment, report))
        if must_prove(job.report, job.started.assignment, self.settings):
            self._protect(job, job.report)
            job.is_queued = job.report.tree is not None
            self._waiting.append(job)
            self.log.note(events.Queued(**job.about, waiting=len(self._waiting) - 1))
        else:
            self._settle(job, job.report)

    def _protect(self, job: LaneJob, report: Report) -> None:
        """After a kill, the story resumes from this work."""
        if report.tree:
            job.lane.workspace.protect(report.tree, job.story, job.started.assignment.entry)

    def _inspect(self, job: LaneJob, report: Report) -> Report:
        """Checks that work that was sent back resolves its conflict and undoes nothing else."""
        returned = self.change.change_state.story(job.story).sent_back
        if returned is None or report.tree is None:
            return report
        found = sending_back.inspect(job.lane.workspace, returned, report.tree, job.base)
        return structs.replace(report, findings=(*report.findings, *found))

    def _prove_first(self) -> None:
        """Proves one story at a time: the next one is merged with the result of this one."""
        if self._proving or not self._waiting or self._ahead.is_awaited(self._waiting[0], self._find_tip()):
            return
        job = self._waiting.pop(0)
        if self._must_end(job.story):
            self._guard(job, partial(self._stop_waiting, job))
            return
        self.change.follow_branch()
        self._guard(job, partial(self._prove_upon, job, self._find_tip()))

    def _stop_waiting(self, job: LaneJob) -> None:
        """Keeps only its own work, without that of other stories that its gates may have run on."""
        job.lane.workspace.show_upon(job.base, str(job.work.tree))
        self._settle(job, structs.replace(job.work, ending="stopped"))

    def _prove_upon(self, job: LaneJob, tip: str) -> None:
        report, lane, known = job.work, job.lane, self._ahead.get_known(job, tip)
        if known:
            lane.workspace.move_upon(tip)
            report = structs.replace(report, tree=known.tree, ahead=known.results)
        else:
            merged = self._merge(job, tip) if tip != job.base else MergedTree(str(report.tree))
            if merged.conflicts:
                self._send_back(job, tip, merged.tree, files=merged.conflicts)
                return
            report = structs.replace(report, tree=merged.tree)
            lane.workspace.show_upon(tip, merged.tree)
        self.log.note(events.Merging(**job.about, upon=tip, others=self._list_others(job)))
        assignment = structs.replace(job.started.assignment, guarded=self.change.list_guarded())
        baseline, seconds = self._find_baseline(job)
        report = structs.replace(report, baseline=baseline, gate_seconds=seconds)
        self._proving, job.tip, job.tree, job.predicted, job.ahead = job, tip, str(report.tree), "", None
        lane.start(partial(lane.executor.prove, report, assignment, partial(self._must_end, job.story)))

    def _merge(self, job: LaneJob, tip: str) -> MergedTree:
        """The merged tree, with the story's boxes ticked unless there is a conflict."""
        place = job.lane.workspace
        place.catch_up(job.base)
        merged = place.merge_work(str(job.work.tree), tip, self.change.ref)
        if merged.conflicts:
            return merged
        place.catch_up(tip)
        return MergedTree(place.edit_newest_spec(merged.tree, self.change.ref, job.tick))

    def _look_ahead(self) -> None:
        if self._proving and self._waiting and not self._is_stopped():
            self._ahead.look(self._proving, self._waiting)

    def _take_ahead(self, job: LaneJob, report: Report) -> None:
        if job.ahead:
            job.ahead.is_running, job.ahead.results = False, report.ahead
        self._count_gates(job, report)

    def _count_gates(self, job: LaneJob, report: Report) -> None:
        """Counts only the gates: the agent's part was counted when it ended."""
        self.budget.add(job.story, structs.replace(report, agent_seconds=0.0, usage=Usage()))
        job.gate_seconds += report.gate_seconds

    # --- the proof ------------------------------------------------------------------------------

    def _find_baseline(self, job: LaneJob) -> tuple[Baseline | None, float]:
        """The baseline at the last checkpoint: known after each story, and measured before the first one."""
        commands, tree = job.started.assignment.gates, str(job.lane.workspace.checkpoint_tree)
        known = self._baselines.find(tree, commands)
        if (known and not job.started.assignment.fix) or not commands:
            return known, 0.0
        looking = structs.replace(job.started.assignment, kept=None, cut_off=None, baseline=None)
        found, seconds = self._main.measure(looking, partial(self._must_end_now, job.story))
        self._baselines.add(found)
        return found, seconds

    def _is_base_known(self, job: LaneJob) -> bool:
        tree, commands = self._home.repository.tree_of(job.base), job.started.assignment.gates
        return not commands or self._baselines.find(tree, commands) is not None

    def _take_proof(self, job: LaneJob, report: Report) -> None:
        self._proving = None
        self._count_gates(job, report)
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

    def _settle(self, job: LaneJob, report: Report) -> None:
        """Judges the iteration like any other, and frees the lane."""
        self._conclude_job(job, self._judge(job.started, structs.replace(report, gate_seconds=job.gate_seconds)))

    def _conclude_job(self, job: LaneJob, iteration: Iteration) -> None:
        self.is_abandoned = job.story in self._abandoned
        state = self.change.change_state.story(job.story)
        returned = state.cut_off if state.sent_back else None
        self._log_iteration(iteration)
        self._act(job.started.change, iteration)
        self.is_abandoned = False
        if iteration.is_done:
            tip = str(job.lane.workspace.tip)
            if job.tip != job.base:
                self.log.note(events.Merged(**job.about, commit=tip))
            made = self.change.change_state.outcome
            is_alone = self._home.tip == job.tip and made is not None and made.commit == tip
            self._home.catch_up(tip, job.story if is_alone else "")
            job.lane.workspace.rest()
            sending_back.drop(self._home, returned)
        elif iteration.verdict.status == "interrupted":
            self._keep_for_next(job)
        self._free(job)
        if iteration.report.full_disk:
            self._lanes.close(job.lane)  # its files may be what fills the disk; the work is kept elsewhere

    def _free(self, job: LaneJob) -> None:
        job.lane.workspace.release()
        del self._jobs[job.lane.number]
        self._is_work_left |= job.story not in self.change.workspace.checkpoints()
        self._look_soon()

    def _look_soon(self) -> None:
        if self._is_work_left:
            self._next_look = 0.0

    def _send_back(
        self, job: LaneJob, tip: str, tree: str, files: tuple[str, ...] = (), tests: tuple[str, ...] = ()
    ) -> None:
        """Sends the story back to its agent, merged with the others' work; this does not count as an attempt."""
        place, others = job.lane.workspace, self._list_others(job)
        if files:
            others = sending_back.list_changing(self._home, self._home.checkpoints(), others, files) or others
        files = tuple(map(printable, files))
        meeting = Meeting(
            tree=tree,
            others=others,
            files=files,
            tests=tests,
            own_paths=[*map(printable, place.list_between(job.base, str(job.work.tree)))],
            their_paths=[*map(printable, place.list_between(job.base, tip))],
        )
        if self.change.change_state.story(job.story).returns >= MOST_RETURNS:
            self._give_up(job, meeting.explain())
            return
        why, took = "conflict" if files else "red-together", job.describe_durations()
        self.log.add(events.SentBack(**job.about, why=why, others=others, files=files, tests=tests, seconds=took))
        place.catch_up(tip)
        sending_back.send_back(job.started, place, meeting)
        self._free(job)

    def _give_up(self, job: LaneJob, why: str) -> None:
        """Asks a person: the story was sent back too often."""
        job.lane.workspace.catch_up(job.base)
        iteration = self._judge(job.started, structs.replace(job.work, trouble=why, gate_seconds=job.gate_seconds))
        reason = f"it was sent back {MOST_RETURNS} times: {why}"
        asked = RecoveryDecision("manual", "", reason)
        self._conclude_job(job, structs.replace(iteration, decision=asked))

    def _list_others(self, job: LaneJob) -> tuple[str, ...]:
        """The stories that were done since it began."""
        now = self.change.workspace.checkpoints()
        return tuple(id for id, commit in now.items() if job.before.get(id) != commit)
