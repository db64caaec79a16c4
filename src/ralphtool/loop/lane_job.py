"""A story in a lane, from its start until it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from ralphtool.executors import Report
    from ralphtool.judging.gates import GateResult
    from ralphtool.loop.lane import Lane
    from ralphtool.loop.loop import Started
    from ralphtool.specs import Spec


class LookAhead(Struct, kw_only=True):
    """The gates of a story that waits, upon what the branch will be if those before it in the queue are green."""

    upon: str  # a commit that is on no branch
    tree: str = ""  # that of both
    is_in_conflict: bool = False
    is_running: bool = False
    is_stale: bool = False  # the branch has become something else: the gates need not run to their end
    results: tuple[GateResult, ...] = ()  # nothing but green ones: what is red is tried again when it counts


class LaneJob(Struct, kw_only=True, eq=False):
    lane: Lane
    started: Started
    base: str  # the checkpoint that it began with
    began: float
    before: dict[str, str]  # the checkpoints that stories had when it began
    report: Report | None = None  # its work, once that is done
    is_queued: bool = False  # and is to be merged
    gate_seconds: float = 0.0  # of all its gates: some run more than once
    tip: str = ""  # the checkpoint that it is being proven upon
    tree: str = ""  # what is being proven
    predicted: str = ""  # what the branch will be when it is done, as a commit, once somebody looks ahead
    is_alone: bool = False  # that is the one that it began with, though there are newer ones
    has_passed_alone: bool = False
    ahead: LookAhead | None = None

    @property
    def story(self) -> str:
        return self.started.story.id

    @property
    def about(self) -> dict[str, Any]:
        """What events about it say."""
        return {"story": self.story, "iteration": self.started.assignment.number}

    @property
    def is_ahead(self) -> bool:
        return self.ahead is not None and self.ahead.is_running

    @property
    def work(self) -> Report:
        if self.report is None:
            raise AssertionError("what waits to be merged has been worked on")
        return self.report

    def tick(self, spec: Spec) -> None:
        """What the attempt ticked of its own story; the spec is that of the newest work."""
        own = [task.id for task in self.started.story.tasks if task.id in self.work.ticked]
        for id in own:
            spec.tick(id, own, proven=False)
