"""A story in a lane, from its start until it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ralphtool.record.event_parts import Durations

if TYPE_CHECKING:
    from ralphtool.executors import Report
    from ralphtool.judging.gates import GateResult
    from ralphtool.loop.lane import Lane
    from ralphtool.loop.loop import Started
    from ralphtool.specs import Spec


class LookAhead(Struct, kw_only=True):
    """The gates of a waiting story, run on the branch as it will be if the stories before it in the queue are green."""

    upon: str  # a commit that is not on any branch
    tree: str = ""  # the merged tree
    is_in_conflict: bool = False
    is_running: bool = False
    is_stale: bool = False  # the branch became something else: the gates need not finish
    results: tuple[GateResult, ...] = ()  # only green ones: red ones are run again when they count


class LaneJob(Struct, kw_only=True, eq=False):
    lane: Lane
    started: Started
    base: str  # the checkpoint that it began with
    began: float
    before: dict[str, str]  # the checkpoints that stories had when it began
    report: Report | None = None  # once its work is done
    is_queued: bool = False  # to be merged
    gate_seconds: float = 0.0  # of all its gates: some run more than once
    tip: str = ""  # the checkpoint that it is being proven on
    tree: str = ""  # what is being proven
    predicted: str = ""  # the commit that the branch will be after this story, if a look-ahead needs it
    is_alone: bool = False  # `tip` is the checkpoint that it began with, although there are newer ones
    has_passed_alone: bool = False
    ahead: LookAhead | None = None

    @property
    def story(self) -> str:
        return self.started.story.id

    @property
    def about(self) -> dict[str, Any]:
        """The fields of events about it."""
        return {"story": self.story, "iteration": self.started.assignment.number}

    @property
    def is_ahead(self) -> bool:
        return self.ahead is not None and self.ahead.is_running

    @property
    def work(self) -> Report:
        if self.report is None:
            raise AssertionError("what waits to be merged has been worked on")
        return self.report

    def describe_durations(self) -> Durations:
        return Durations(agent=round(self.work.agent_seconds, 3), gates=round(self.gate_seconds, 3))

    def tick(self, spec: Spec) -> None:
        """Ticks the attempt's tasks in `spec`, which belongs to the newest work."""
        own = [task.id for task in self.started.story.tasks if task.id in self.work.ticked]
        for id in own:
            spec.tick(id, own, proven=False)
