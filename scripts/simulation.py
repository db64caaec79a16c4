"""Simulates a run of many stories on many machines: the loop's rules, its real queue, and a virtual clock.

`Simulation` does what `ralphtool.loop.side_by_side.SideBySide` does, in the same order and on one thread, and uses
the same code: `queue.decide`, `MOST_RETURNS`, `LaneLimit` and `AheadOfQueue` are the real ones. Git, agents, gates,
remote and Temporal are only durations.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from unittest.mock import patch

from msgspec import Struct, field, structs
from simulation_world import Case, Clock, Forest, Life, Process, Station, draw

from ralphtool.loop import lane_limit
from ralphtool.loop.lane_job import LaneJob
from ralphtool.loop.lane_limit import LaneLimit
from ralphtool.loop.look_ahead import AheadOfQueue
from ralphtool.loop.queue import MOST_RETURNS, MergeTrial, decide
from ralphtool.workspace.revert import MergedTree

_GATES_FIRST, _AGENTS_LAST = 0, 1  # free places go to gates first
_CONFLICT, _RED, _OWN, _TESTS = 1, 2, 3, 4  # the kinds of random events


class Work(Struct, frozen=True):
    """Stands for a report: the work of an agent on a story."""

    number: int
    tree: str = ""


class SimStory(Struct, kw_only=True, eq=False):
    id: str
    depends_on: tuple[int, ...] = ()
    tries: int = 0
    failures: int = 0
    returns: int = 0
    ending: str = ""  # "done", or "asked": a person must decide
    seconds: dict[str, float] = field(default_factory=partial(defaultdict, float))  # in each state
    state: str = "to begin"
    since: float = 0.0

    def enter(self, state: str, now: float) -> None:
        self.seconds[self.state] += now - self.since
        self.state, self.since = state, now


class SimStarted(Struct, frozen=True):
    story: SimStory
    assignment: Any


class SimAssignment(Struct, frozen=True):
    gates: tuple[str, ...] = ("gates",)


class SimLane:
    """Stands for a lane, its workspace and its executor. The queue uses it only to start gates that look ahead."""

    def __init__(self, number: int, run_ahead: Callable[[LaneJob], None]) -> None:
        self.number = number
        self.workspace = self.executor = self
        self.job: LaneJob | None = None
        self._run_ahead = run_ahead

    def show_upon(self, commit: str, tree: str) -> None:
        pass

    def run_gates_ahead(self, *_: object) -> None:
        pass

    def start(self, _: object) -> None:
        self._run_ahead(cast("LaneJob", self.job))


class GateEnd(Struct, frozen=True):
    is_red: bool
    is_cut: bool = False


Take = Callable[[LaneJob, GateEnd], None]


class Activity(Struct, kw_only=True, eq=False):
    """A program that runs on a machine for a story."""

    job: LaneJob
    kind: str
    seconds: float
    take: Take
    end: GateEnd
    until: float = 0.0  # when it will end, once it has started
    process: Process | None = None


class Simulation:
    """One run. `run` returns when every story is done, or needs a person."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.clock = Clock()
        self.forest = Forest()
        self.chance = random.Random(case.seed)
        self.machines = Station(self.clock, case.places)
        self.remote = Station(self.clock, case.remote_at_once)
        self.stories = [self._make_story(number) for number in range(case.stories)]
        self.open = list(range(case.stories))
        self.jobs: dict[int, LaneJob] = {}
        self.waiting: list[LaneJob] = []
        self.proving: LaneJob | None = None
        self.tip = "root"
        self.counts: Counter[str] = Counter()
        self.spent: dict[str, float] = defaultdict(float)  # seconds of the loop's thread
        self.used: dict[str, float] = defaultdict(float)  # seconds of machines
        self.queued = 0.0  # waiting stories times seconds
        self.longest = 0
        self._ends: deque[Activity] = deque()
        self._running_ahead: dict[int, Activity] = {}  # by lane
        self._free_lanes: list[int] = []
        self._rests_until = 0.0
        self._limited_at = -1.0
        self.limit = LaneLimit(case.places)
        self._ahead = AheadOfQueue(cast("Any", self.forest), case.speculate, self._merge, lambda _: False)
        self._is_work_left = self._is_time_to_look = True
        self.agent_seconds = 0.0
        self.refs = case.refs
        self._works = 0
        self._cleared: dict[tuple[int, int], set[int]] = {}  # by kind and work: known compatible work

    def _make_story(self, number: int) -> SimStory:
        is_waiting = number > 0 and self.chance.random() < self.case.depends
        before = (self.chance.randrange(max(0, number - 20), number),) if is_waiting else ()
        return SimStory(id=str(number), depends_on=before)

    def run(self) -> None:
        with patch.object(lane_limit, "time", self.clock):
            while self._step():
                pass

    def _step(self) -> bool:
        """Like `SideBySide._step`: checks everything once, then processes the end of one lane."""
        self.spend("step")
        if not self.jobs:
            self.clock.advance(self._rests_until)
            self._is_time_to_look = True
            if self._peek_ready() is None:
                return False
        self._start_ready()
        self._prove_first()
        self._look_ahead()
        self._cut_stale()
        self._take_end()
        return True

    def spend(self, name: str, seconds: float | None = None) -> None:
        """The loop's thread is busy while everything else continues. Heartbeats take a share of its time."""
        own = cast("float", getattr(self.case, name)) if seconds is None else seconds
        share = min(0.9, self.machines.taken * self.case.beat)
        taken = own / (1 - share)
        self.spent[name] += own
        self.spent["heartbeats"] += taken - own
        self._wait_until(self.clock.now + taken)

    def _wait_until(self, until: float) -> None:
        self.queued += len(self.waiting) * (until - self.clock.now)
        self.longest = max(self.longest, len(self.waiting))
        self.clock.advance(until)

    # --- starting -------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        while self._count_free() > 0 and (number := self._find_ready()) is not None:
            self._begin(number)

    def _count_free(self) -> int:
        lanes, working = self.limit.count(), sum(job.report is None for job in self.jobs.values())
        if self.case.is_unbound:
            return lanes - working
        return min(lanes - working, lanes + self.case.speculate - len(self.jobs))

    def _find_ready(self) -> int | None:
        if not self._is_time_to_look or self.clock.now < self._rests_until:
            return None
        self.spend("find")
        found = self._peek_ready()
        if found is None:
            self._is_time_to_look, self._is_work_left = False, bool(self.open)
        return found

    def _peek_ready(self) -> int | None:
        return next((number for number in self.open if self._is_ready(number)), None)

    def _is_ready(self, number: int) -> bool:
        return all(self.stories[one].ending == "done" for one in self.stories[number].depends_on)

    def _begin(self, number: int) -> None:
        story, lane = self.stories[number], self._open_lane()
        self.open.remove(number)
        self.spend("begin")
        started = SimStarted(story, SimAssignment())
        stand_in: Any = lane
        job = LaneJob(lane=stand_in, started=cast("Any", started), base=self.tip, began=self.clock.now, before={})
        lane.job = self.jobs[lane.number] = job
        story.tries += 1
        story.enter("at work", self.clock.now)
        self.counts["agents"] += 1
        self._start_agent(job)

    def _open_lane(self) -> SimLane:
        number = self._free_lanes.pop() if self._free_lanes else len(self.jobs)
        return SimLane(number, self._run_ahead)

    def _start_agent(self, job: LaneJob) -> None:
        story, case = self._story(job), self.case
        seconds = case.agent * self.chance.lognormvariate(-(case.agent_spread**2) / 2, case.agent_spread)
        seconds *= case.return_share if story.tries > 1 else 1.0
        if self.chance.random() < case.limited:
            self._start(job, "agents", seconds * self.chance.random(), self._take_limit, GateEnd(True))
            return
        self._works += 1
        work = self._works
        self.agent_seconds += seconds
        is_red = self._is_own_red(work)
        seconds += self._gate_seconds(work, is_green=not is_red) if case.is_gated_first else 0.0
        self._start(job, "agents", seconds, partial(self._take_work, work), GateEnd(is_red))

    # --- activities -------------------------------------------------------------------------------

    def _start(self, job: LaneJob, kind: str, seconds: float, take: Take, end: GateEnd) -> Activity:
        self.counts[f"runs of {kind}"] += 1
        rank = _AGENTS_LAST if kind == "agents" else _GATES_FIRST
        activity = Activity(job=job, kind=kind, seconds=seconds, take=take, end=end)
        activity.process = self.clock.start(self._live(activity), rank)
        return activity

    def _live(self, activity: Activity) -> Life:
        """Temporal starts it on a machine, which fetches, works and pushes; then the lane fetches."""
        if activity.kind != "agents":
            yield from self.remote.use(self._push_seconds())  # the work to prove
        yield self.machines
        began = self.clock.now
        yield self.case.temporal
        yield from self.remote.use(self.case.fetch)
        activity.until = self.clock.now + activity.seconds
        yield activity.seconds
        activity.until = 0.0
        yield from self.remote.use(self._push_seconds())
        self.refs += 2  # the work, and its records
        self.used["cut off" if activity.end.is_cut else activity.kind] += self.clock.now - began
        self.machines.leave()
        yield from self.remote.use(self.case.fetch)
        if self.case.is_tidied:
            yield from self.remote.use(self._push_seconds())  # a further push, which removes both
            self.refs -= 2
        self._ends.append(activity)

    def _push_seconds(self) -> float:
        """A push begins with a list of all refs of the remote."""
        return self.case.push + self.case.push_ref * self.refs

    def _cut(self, activity: Activity) -> None:
        """Cancels it, since its result is no longer needed."""
        activity.end = structs.replace(activity.end, is_cut=True)
        activity.seconds = min(activity.seconds, self.case.cancel)  # if it has not started yet
        if activity.process and activity.until > self.clock.now + self.case.cancel:
            self.clock.wake(activity.process, self.case.cancel)

    def _gate_seconds(self, work: int, *, is_green: bool) -> float:
        """The seconds of gates and, if those are green, of replay and own tests."""
        return self.case.gates + (self._proof_seconds(work) if is_green else 0.0)

    def _proof_seconds(self, work: int) -> float:
        has_tests = draw(self.case.seed, _TESTS, work) < self.case.tests_touched
        return self.case.proof_runs * self.case.gates if has_tests else 0.0

    def _is_own_red(self, work: int) -> bool:
        return draw(self.case.seed, _OWN, work) < self.case.own_red

    def _is_red_upon(self, job: LaneJob, upon: str) -> bool:
        """The result of the gates there: tests may be flaky."""
        return self.chance.random() < self.case.flaky or self._is_red_by_work(job, upon)

    def _is_red_by_work(self, job: LaneJob, upon: str) -> bool:
        """On the commit that it began with, there is no other work that it could be red with."""
        is_own = self._is_own_red(self._work(job)) and not self.case.is_gated_first
        return is_own or self._is_meeting(job, upon, _RED, self.case.red_together)

    def _is_meeting(self, job: LaneJob, upon: str, kind: int, share: float) -> bool:
        """Whether it is incompatible with some work that was merged since it began."""
        work, seed = self._work(job), self.case.seed
        cleared = self._cleared.setdefault((kind, work), set())
        for one in self.forest.list_between(job.base, upon):
            if one not in cleared:
                if draw(seed, kind, work, one) < share:
                    return True
                cleared.add(one)
        return False

    # --- the queue --------------------------------------------------------------------------------

    def _take_end(self) -> None:
        before = self.clock.now
        while not self._ends and self.clock.go_on():
            pass
        self.queued += len(self.waiting) * (self.clock.now - before)
        if self._ends:
            activity = self._ends.popleft()
            self._is_time_to_look |= self._is_work_left
            activity.take(activity.job, activity.end)

    def _take_limit(self, job: LaneJob, end: GateEnd) -> None:
        """Like `SideBySide._rest_agent`: if several agents hit a limit, it counts once."""
        if job.began > self._limited_at:
            self._limited_at = self.clock.now
            self._rests_until = self.clock.now + self.case.rest
            self.limit.shrink()
            self.counts["limits"] += 1
        self._free(job, is_open=True)

    def _take_work(self, work: int, job: LaneJob, end: GateEnd) -> None:
        self.spend("take")
        stand_in: Any = Work(work, str(work))
        job.report = stand_in
        if self.case.is_gated_first and end.is_red:
            self._settle(job, is_red=True)
            return
        job.is_queued = True
        self._story(job).enter("in the queue", self.clock.now)
        self.waiting.append(job)

    def _prove_first(self) -> None:
        if self.proving or not self.waiting or self._ahead.is_awaited(self.waiting[0], self.tip):
            return
        self._prove_upon(self.waiting.pop(0), self.tip)

    def _prove_upon(self, job: LaneJob, tip: str) -> None:
        self._story(job).enter("being proven", self.clock.now)
        known, work = self._ahead.get_known(job, tip), self._work(job)
        if known:
            self.counts["ahead used"] += 1
            tree, is_red, seconds = known.tree, False, 0.0 if self.case.is_proven_ahead else self._proof_seconds(work)
        else:
            merged = self._merge(job, tip)
            if merged.conflicts:
                self._send_back(job, "conflict")
                return
            tree, is_red = merged.tree, self._is_red_upon(job, tip)
            self.spend("show")
            seconds = self._gate_seconds(work, is_green=not is_red)
        self.spend("prove")
        self.proving, job.tip, job.tree, job.predicted, job.ahead = job, tip, tree, "", None
        self._start(job, "proofs", seconds, self._take_proof, GateEnd(is_red))

    def _merge(self, job: LaneJob, tip: str) -> MergedTree:
        """The loop's thread merges; whether it succeeds is random, once for each pair of stories."""
        self.spend("merge", self.case.merge if tip != job.base else 0.0)
        if self._is_meeting(job, tip, _CONFLICT, self.case.conflict):
            return MergedTree("", ("a file",))
        return MergedTree(self.forest.add(self.forest.trees[tip], self._work(job)))

    def _look_ahead(self) -> None:
        if self.proving and self.waiting:
            self._ahead.look(self.proving, self.waiting)

    def _run_ahead(self, job: LaneJob) -> None:
        """Called by the real code, with the merged tree in `job.ahead`."""
        self.spend("show")
        ahead = job.ahead
        if ahead is None:
            raise AssertionError("it is set before gates are started")
        is_red = self._is_red_upon(job, ahead.upon)
        is_whole = self.case.is_proven_ahead and not is_red
        seconds = self._gate_seconds(self._work(job), is_green=is_whole)
        self._running_ahead[job.lane.number] = self._start(job, "ahead", seconds, self._take_ahead, GateEnd(is_red))

    def _cut_stale(self) -> None:
        """Lanes check all the time whether their gates are still needed."""
        for number, activity in list(self._running_ahead.items()):
            ahead = activity.job.ahead
            if ahead and ahead.is_stale and ahead.is_running:
                del self._running_ahead[number]
                self._cut(activity)

    def _take_ahead(self, job: LaneJob, end: GateEnd) -> None:
        self._running_ahead.pop(job.lane.number, None)
        if job.ahead:
            job.ahead.is_running = False
            results: Any = () if end.is_red or end.is_cut else ("green",)
            job.ahead.results = results

    def _take_proof(self, job: LaneJob, end: GateEnd) -> None:
        self.proving = None
        trial = MergeTrial(
            is_red=end.is_red,
            is_moved=job.tip != job.base,
            is_alone=job.is_alone,
            has_passed_alone=job.has_passed_alone,
        )
        step = decide(trial)
        if step == "settle":
            self._settle(job, is_red=end.is_red)
        elif step == "send-back":
            self._send_back(job, "red together")
        else:
            self.counts["second runs"] += 1
            job.is_alone, job.has_passed_alone = step == "alone", step == "again"
            self._prove_upon(job, job.base if job.is_alone else self.tip)

    # --- the end of an iteration ------------------------------------------------------------------

    def _settle(self, job: LaneJob, *, is_red: bool) -> None:
        self.spend("settle")
        story = self._story(job)
        if is_red:
            story.failures += 1
            self.counts["failed attempts"] += 1
            self._free(job, is_open=story.failures < self.case.most_attempts)
            return
        if story.ending:
            raise AssertionError(f"story {story.id} is done twice")
        self.spend("push", self._push_seconds())  # other stories begin with it
        self.tip = self.forest.commit(job.tree, [self.tip], "done")
        story.ending = "done"
        self._free(job, is_open=False)

    def _send_back(self, job: LaneJob, why: str) -> None:
        story = self._story(job)
        self.counts[why] += 1
        self.spend("settle")
        is_open = story.returns < MOST_RETURNS
        story.returns += 1
        self._free(job, is_open=is_open)

    def _free(self, job: LaneJob, *, is_open: bool) -> None:
        story = self._story(job)
        del self.jobs[job.lane.number]
        self._running_ahead.pop(job.lane.number, None)
        self._free_lanes.append(job.lane.number)
        story.enter("to begin" if is_open else "ended", self.clock.now)
        if is_open:
            self.open.append(int(story.id))
            self.open.sort()
        else:
            story.ending = story.ending or "asked"
        self._is_work_left |= is_open
        self._is_time_to_look |= self._is_work_left

    def _story(self, job: LaneJob) -> SimStory:
        return cast("SimStory", job.started.story)

    def _work(self, job: LaneJob) -> int:
        return cast("Work", job.work).number


def summarize(simulation: Simulation) -> dict[str, Any]:
    """The results of a run, in hours, shares and counts."""
    case, now, counts = simulation.case, simulation.clock.now, simulation.counts
    done = sum(story.ending == "done" for story in simulation.stories)
    states = ("to begin", "at work", "in the queue", "being proven")
    waits = {state: sum(one.seconds[state] for one in simulation.stories) / case.stories for state in states}
    machine = case.places * now
    return {
        "hours": now / 3600,
        "done": done,
        "asked": sum(story.ending == "asked" for story in simulation.stories),
        "stories_an_hour": done / now * 3600,
        "agents_busy": simulation.agent_seconds / machine,
        "machines_busy": simulation.machines.measure_busy() / machine,
        "loop_busy": sum(simulation.spent.values()) / now,
        "refs": simulation.refs,
        "remote_busy": simulation.remote.measure_busy() / case.remote_at_once / now,
        "queue_mean": simulation.queued / now,
        "queue_longest": simulation.longest,
        "gate_runs": counts["runs of proofs"] + counts["runs of ahead"],
        "gate_runs_wasted": counts["runs of ahead"] - counts["ahead used"],
        "counts": dict(counts),
        "waits": waits,
        "machine_seconds": dict(simulation.used),
        "loop_seconds": dict(simulation.spent),
    }
