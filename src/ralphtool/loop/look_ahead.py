"""Runs the gates of stories that wait to be merged, on the branch as it will be if those before them are green.

Usually they are. The results are used only if the branch then has exactly those files; otherwise the story is proven
in its turn, as if the gates had not run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.errors import GitError
from ralphtool.loop.lane_job import LookAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.loop.lane_job import LaneJob
    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.revert import MergedTree


class AheadOfQueue:
    """At most `most` stories are proven at once; only the first one's result is final."""

    def __init__(
        self,
        repository: Repository,
        most: int,
        merge: Callable[[LaneJob, str], MergedTree],
        must_end: Callable[[str], bool],
    ) -> None:
        self._repository = repository
        self._most = most
        self._merge = merge
        self._must_end = must_end

    def look(self, first: LaneJob, waiting: Sequence[LaneJob]) -> None:
        """`first` is being proven. If it was red together with other work, the next story can't build on it."""
        if first.is_alone or first.has_passed_alone:
            return
        before, upon, tree, left = first, first.tip, first.tree, self._most - 1
        for job in waiting:
            if not left:
                return
            before.predicted = before.predicted or self._repository.commit(tree, [upon], "predicted\n")
            is_looking = self._is_looking(job, before.predicted)
            if job.ahead and job.ahead.is_in_conflict and not job.ahead.is_stale:
                continue  # it will be sent back, so the next story does not build on it
            if not is_looking or job.ahead is None:
                return
            before, upon, tree, left = job, before.predicted, job.ahead.tree, left - 1

    def _is_looking(self, job: LaneJob, upon: str) -> bool:
        """Whether its gates run on a commit, or were green there. Starts them if possible."""
        if job.ahead and not self._repository.has_same_tree(job.ahead.upon, upon):
            job.ahead.is_stale = True
        if (job.ahead is None or job.ahead.is_stale) and not job.is_ahead and self._can_look(job):
            self._try(job, upon)
        ahead = job.ahead
        return ahead is not None and not ahead.is_stale and (ahead.is_running or bool(ahead.results))

    def _can_look(self, job: LaneJob) -> bool:
        return job.is_queued and bool(job.started.assignment.gates) and not self._must_end(job.story)

    def _try(self, job: LaneJob, upon: str) -> None:
        job.ahead, job.predicted = LookAhead(upon=upon), ""
        try:
            merged = self._merge(job, upon)
            job.ahead.is_in_conflict = bool(merged.conflicts)
            if not merged.conflicts:
                job.lane.workspace.show_upon(upon, merged.tree)
                self._start(job, upon, merged.tree)
        except (GitError, OSError):
            pass  # if the disk is full or the box is gone, proving the story in its turn reports it

    def _start(self, job: LaneJob, upon: str, tree: str) -> None:
        job.ahead = LookAhead(upon=upon, tree=tree, is_running=True)
        report, stop = structs.replace(job.work, tree=tree), partial(self._must_stop, job.story, job.ahead)
        job.lane.start(partial(job.lane.executor.run_gates_ahead, report, job.started.assignment, stop))

    def _must_stop(self, story: str, ahead: LookAhead) -> bool:
        """Called by lanes, on their threads."""
        return ahead.is_stale or self._must_end(story)

    def is_awaited(self, job: LaneJob, tip: str) -> bool:
        """Whether its gates still run. Ends them if they no longer run on the newest work."""
        if job.ahead and job.ahead.is_running and not self._repository.has_same_tree(job.ahead.upon, tip):
            job.ahead.is_stale = True
        return job.is_ahead

    def get_known(self, job: LaneJob, tip: str) -> LookAhead | None:
        """The results of its gates, if they ran on exactly the tree that must be proven now."""
        ahead = job.ahead
        is_known = ahead is not None and ahead.results and self._repository.has_same_tree(ahead.upon, tip)
        return ahead if is_known else None
