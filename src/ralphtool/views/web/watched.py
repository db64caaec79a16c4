"""A run that is being watched: its record is followed once, however many pages show it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from ralphtool import agents
from ralphtool.core import layout
from ralphtool.errors import RalphError
from ralphtool.record import present, questions, receipts, runs
from ralphtool.record.events import Agent, PlanEdited
from ralphtool.record.follow import Follower
from ralphtool.record.run_view import RunView
from ralphtool.views.report.elements import build_tree
from ralphtool.views.report.facts import RunKnowledge
from ralphtool.views.web import log_items, panels
from ralphtool.views.web.log_items import Batch
from ralphtool.views.web.panels import Shown
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.record.events import Event
    from ralphtool.record.present import StoryNow
    from ralphtool.record.questions import OpenQuestion
    from ralphtool.specs import Task
    from ralphtool.views.report.facts import Facts

LOOK_SECONDS = 0.08  # between two reads of the record
_SLICE = 0.02  # seconds of reading older events, before other work gets its turn
_NEAR = 128 << 10  # bytes at the end of a record that are read in full, and shown first
_DRAW_SECONDS = 0.2  # between two drawings
_DRAW_SHARE = 10  # the pause is at least this many times as long as drawing takes
_ALIVE_SECONDS = 3.0
_QUESTIONS_SECONDS = 0.5
_FACTS_SECONDS = 2.0  # for which all pages share them: building them takes a while in a long run
_BATCHES = 16  # kept for pages that ask at the same time
_QUOTAS = 4


class WatchedView(RunView):
    """Also keeps the last quotas that agents reported."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas: dict[str, agents.Quota] = {}
        self.plan_edits = 0

    def feed(self, event: Event) -> None:
        super().feed(event)
        if isinstance(event, PlanEdited):
            self.plan_edits += 1
        elif isinstance(event, Agent) and isinstance(event.event, agents.Quota):
            name = event.event.name[:40]
            if name in self.quotas or len(self.quotas) < _QUOTAS:
                self.quotas[name] = event.event


class WatchedRun:
    def __init__(self, root: str, id: str, project: str, *, read_only: bool) -> None:
        self.run = runs.read_summary(root, id)
        self.project = project
        self.read_only = read_only
        self.watchers = 0
        self.sections: dict[str, bytes] = {}  # the parts of the page, each encoded once for all clients
        self.tasks: dict[str, Sequence[Task]] = {}
        self._tasks_of = -1  # the number of plan edits when `tasks` was read
        self._follower: Follower[WatchedView] = Follower(self.run.path, WatchedView, joins=True, detail=_NEAR)
        self._batches: dict[int, Batch] = {}
        self._asked: list[OpenQuestion] = []
        self._proofs: dict[str, str] | None = None  # the current claims of the stories; None: as in the record
        self._facts: tuple[float, Facts] | None = None
        self._newer = ""  # the newest run of the change, if this is an older one
        self._is_alive = self.run.state in ("running", "paused")
        self._seen: tuple[int, ...] = ()
        self._questions_seen: tuple[int, ...] = (-1,)
        self._looked = self._looked_alive = self._looked_questions = self._drawn = -1e9
        self._cost = 0.0  # seconds that the last drawing took
        self._is_stale = True

    @property
    def view(self) -> WatchedView:
        return self._follower.view

    @property
    def state(self) -> str:
        if self.view.end is not None:
            return self.view.state
        return self.view.state if self._is_alive else "died"

    @property
    def needs_tasks(self) -> bool:
        """A record has the number of tasks, but not their texts."""
        return self._is_alive and self._tasks_of != self.view.plan_edits

    @property
    def size(self) -> int:
        try:
            return os.path.getsize(self.run.path)
        except OSError:
            return 0  # it is gone

    def load_tasks(self) -> dict[str, Sequence[Task]]:
        """Reads the tasks from the spec, which may take a while."""
        from ralphtool.views import project_data  # imports every format of specs

        try:
            return project_data.read_tasks(self.run.root, self.run.change)
        except (RalphError, OSError):
            return {}  # the log says why, if the run fails too

    def set_tasks(self, tasks: dict[str, Sequence[Task]], edits: int) -> None:
        self.tasks, self._tasks_of, self._is_stale = tasks, edits, True

    # --- following

    def refresh(self) -> None:
        """Reads and draws what is new. Called for every open page; most calls do nothing."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._read()
        self._look_around(now)
        if self._is_stale and now - self._drawn > max(_DRAW_SECONDS, _DRAW_SHARE * self._cost):
            self._draw()

    def _read(self) -> None:
        seen = _read_state_of(self.run.path)
        if seen == self._seen and not self._follower.is_behind:
            return
        self._seen, self._is_stale = seen, True
        try:
            self._follower.read(_SLICE)
        except OSError:
            self._seen = ()  # it can't be read now; the next read tries again

    def _look_around(self, now: float) -> None:
        """Checks what no event reports: whether the run is alive, and which questions are open."""
        if (self._is_alive or self.view.end is None) and now - self._looked_alive > _ALIVE_SECONDS:
            self._looked_alive = now
            is_alive = self.view.end is None and runs.is_alive(self.run)
            if is_alive != self._is_alive:
                self._is_stale, self._questions_seen = True, ()
            self._is_alive = is_alive
        if now - self._looked_questions > _QUESTIONS_SECONDS:
            self._looked_questions = now
            self._look_for_questions()

    def _look_for_questions(self) -> None:
        root, change = self.run.root, self.run.change
        places = (layout.questions(root), layout.change_state(root, change), layout.runs(root))
        seen = tuple(part for place in places for part in _read_state_of(place))
        if not self._is_alive:  # a run moves its branch itself
            seen = (*seen, *branch.read_fingerprint(root), len(self.view.stories), self._follower.is_behind)
        if not change or seen == self._questions_seen:
            return
        self._questions_seen, self._is_stale = seen, True
        try:
            self._asked, self._proofs = questions.list_open(root, change), self._read_proofs()
        except (RalphError, OSError):
            self._asked, self._proofs = [], None  # the reason is shown to a user who wants to answer

    def _read_proofs(self) -> dict[str, str] | None:
        """The current claims of the stories, if people may have decided since; only for the newest run."""
        newest = runs.find_newest(self.run.root, self.run.change)
        self._newer = newest.id if newest and newest.id != self.run.id else ""
        if self._is_alive or newest is None or self._newer:
            return None
        stories = questions.load_change_state(self.run.root, self.run.change).get("stories", {})
        claims = receipts.read_receipts(self.run.root, self.run.change)
        current = {**dict.fromkeys(stories, "rejected"), **{id: one.state for id, one in claims.items()}}
        done = {one.id: one.title for one in self.view.stories.values() if one.state == "done" and one.id in claims}
        found = present.read_stories(self.run.root, self.run.change, done) if done else {}
        return {**current, **{id: _name_reopening(now) for id, now in found.items() if not now.is_done}}

    def _draw(self) -> None:
        began = time.monotonic()
        self._drawn, self._is_stale = began, False
        for name, element in panels.build_sections(self._describe()).items():
            encoded = msgspec.json.encode(build_tree(element))
            if encoded != self.sections.get(name):
                self.sections[name] = encoded
        self._cost = time.monotonic() - began

    def _describe(self) -> Shown:
        return Shown(
            run=self.run,
            view=self.view,
            state=self.state,
            project=self.project,
            asked=self._asked,
            proofs=self._proofs,
            tasks=self.tasks,
            newer=self._newer,
            read_only=self.read_only,
        )

    # --- requests of pages

    def find_proof(self, story: str) -> str:
        """The current claim of a story."""
        known = self.view.stories.get(story)
        return self._describe().find_proof(known) if known else ""

    def read_batch(self, offset: int) -> Batch:
        """The log from an offset on."""
        if self._seen and offset >= self._seen[1]:
            return Batch([], offset)
        found = self._batches.get(offset)
        if found is None or not found.items:
            found = log_items.read_batch(self.run.path, offset, self.view.stories)
            self._batches[offset] = found
            if len(self._batches) > _BATCHES:
                del self._batches[next(iter(self._batches))]
        return found

    def find_start(self) -> int:
        """The offset where a new page begins: near the end."""
        size = self.size
        return log_items.find_line(self.run.path, size - _NEAR) if size > 2 * _NEAR else 0

    def build_facts(self) -> Facts:
        """The facts of a report at this time."""
        from ralphtool.views.report import from_record

        if self._facts and time.monotonic() - self._facts[0] < _FACTS_SECONDS:
            return self._facts[1]
        run = runs.read_summary(self.run.root, self.run.id)
        is_over = self.state not in ("running", "paused")
        view = self.view.copy_closed(self._find_now(), is_over=is_over)
        self._facts = time.monotonic(), from_record.build_facts(run, view, RunKnowledge())
        return self._facts[1]

    def _find_now(self) -> float:
        return time.time() if self.state in ("running", "paused") else self.view.now


def _name_reopening(now: StoryNow) -> str:
    return "gone" if now.why == receipts.UNDONE else "unticked"


def _read_state_of(path: str) -> tuple[int, ...]:
    """Changes whenever a file is written, or an entry of a folder is created or removed."""
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return (info.st_mtime_ns, info.st_size, info.st_ino)
