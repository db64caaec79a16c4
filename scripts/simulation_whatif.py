"""Queues that ralphtool does not have: separate models, to compare them with the real one."""

from __future__ import annotations

from typing import Any

from simulation import GateEnd, Simulation
from simulation_world import Case, Clock

from ralphtool.loop.lane_job import LaneJob
from ralphtool.loop.lane_limit import QUIET, LaneLimit
from ralphtool.loop.queue import MergeTrial, decide


class RedAside(Simulation):
    """A red story leaves the queue at once, is tried alone outside it, and comes back at its end.

    It uses the same decisions as the head of the real queue (`decide`), but nothing waits for the results.
    """

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._passed_alone: set[int] = set()  # by work

    def _take_ahead(self, job: LaneJob, end: GateEnd) -> None:
        super()._take_ahead(job, end)
        is_wanted = job.ahead is not None and not job.ahead.is_stale
        if end.is_red and not end.is_cut and is_wanted and job in self.waiting:
            self.waiting.remove(job)
            self._leave(job, is_moved=True)

    def _take_proof(self, job: LaneJob, end: GateEnd) -> None:
        self.proving = None
        if end.is_red:
            self._leave(job, is_moved=job.tip != job.base)
        else:
            self._settle(job, is_red=False)

    def _leave(self, job: LaneJob, *, is_moved: bool) -> None:
        has_passed = self._work(job) in self._passed_alone
        step = decide(MergeTrial(is_red=True, is_moved=is_moved, has_passed_alone=has_passed))
        if step == "settle":
            self._settle(job, is_red=True)
        elif step == "send-back":
            self._send_back(job, "red together")
        else:
            self.counts["second runs"] += 1
            is_red = self._is_red_upon(job, job.base)
            self._start(job, "proofs", self.case.gates, self._come_back, GateEnd(is_red))

    def _come_back(self, job: LaneJob, end: GateEnd) -> None:
        if decide(MergeTrial(is_red=end.is_red, is_moved=False, is_alone=True)) == "settle":
            self._settle(job, is_red=True)
            return
        self._passed_alone.add(self._work(job))
        job.ahead, job.predicted = None, ""
        self._story(job).enter("in the queue", self.clock.now)
        self.waiting.append(job)


class Train(Simulation):
    """Up to `train` stories are merged on top of each other and proven as one; a red train is split in two.

    Only the last commit of a train is proven. That is less than ralphtool's present promise that every commit is green.
    """

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._parts: list[list[LaneJob]] = []  # halves of a red train, in order
        self._train: list[LaneJob] = []

    def _look_ahead(self) -> None:
        pass

    def _prove_first(self) -> None:
        if self.proving or self._train or not (self._parts or self.waiting):
            return
        wanted = self._parts.pop(0) if self._parts else self._take_waiting()
        self._train = self._merge_all(wanted)
        if len(self._train) == 1:
            [job], self._train = self._train, []
            self._prove_upon(job, self.tip)  # as in the real queue
        elif self._train:
            self._start_train()

    def _take_waiting(self) -> list[LaneJob]:
        taken, self.waiting = self.waiting[: self.case.train], self.waiting[self.case.train :]
        return taken

    def _merge_all(self, jobs: list[LaneJob]) -> list[LaneJob]:
        """Merges each on top of the previous one; a story with a conflict goes back to its agent."""
        upon, merged = self.tip, []
        for job in jobs:
            self._story(job).enter("being proven", self.clock.now)
            found = self._merge(job, upon)
            if found.conflicts:
                self._send_back(job, "conflict")
                continue
            job.tip, job.tree = upon, found.tree
            upon = self.forest.commit(found.tree, [upon], "predicted")
            merged.append(job)
        return merged

    def _start_train(self) -> None:
        """Red if one of them is red on top of those before it, or the gates are flaky, which is drawn once."""
        self.spend("show")
        works = [self._work(job) for job in self._train]
        is_red = self.chance.random() < self.case.flaky
        is_red |= any(self._is_red_by_work(job, job.tip) for job in self._train)
        seconds = self.case.gates + (0.0 if is_red else max(map(self._proof_seconds, works)))
        self._start(self._train[-1], "proofs", seconds, self._take_train, GateEnd(is_red))

    def _take_train(self, job: LaneJob, end: GateEnd) -> None:
        train, self._train = self._train, []
        if not end.is_red:
            for one in train:
                self._settle(one, is_red=False)
            return
        self.counts["split trains"] += 1
        middle = len(train) // 2
        self._parts[:0] = [train[:middle], train[middle:]]


class SharedGrowth(LaneLimit):
    """After a rate limit, lanes come back by a share of the remaining ones, not one by one."""

    def __init__(self, most: int, share: float, clock: Clock) -> None:
        super().__init__(most)
        self._share, self._clock = share, clock

    def count(self) -> int:
        if self._allowed < self._most and self._clock.now - self._since >= QUIET:
            more = max(1, int(self._allowed * self._share))
            self._allowed, self._since = min(self._most, self._allowed + more), self._clock.now
        return self._allowed


def simulate(case: Case) -> Simulation:
    """Runs a case with the queue that it selects."""
    kind: Any = Train if case.train else RedAside if case.is_red_aside else Simulation
    made: Simulation = kind(case)
    if case.limit_growth:
        made.limit = SharedGrowth(case.places, case.limit_growth, made.clock)
    made.run()
    return made
