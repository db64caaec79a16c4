"""What the full screen shows of changes, as values: read from specs, locks, records and questions."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ralphtool import branch, locks, questions, runs, settings, specs
from ralphtool import changes as changes_module
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.history import History
from ralphtool.ui.tables import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.branch import Branches
    from ralphtool.changes import Overview
    from ralphtool.history.records import Learning
    from ralphtool.runs import Run
    from ralphtool.specs import Place, Scenario, Spec, Story

RECENT = 20  # runs that are listed
_TOLD = {
    "running": "running",
    "paused": "paused",
    "died": "the last run died",
    "interrupted": "interrupted",
    "unfinished": "unfinished",
}


class Change(NamedTuple):
    """One change of the list: how far it is, and what goes on with it."""

    name: str
    ref: str
    overview: Overview
    run: Run | None  # the newest
    questions: int

    @property
    def is_alive(self) -> bool:
        return self.run is not None and self.run.state in ("running", "paused")

    @property
    def state(self) -> str:
        """One of the states that have a mark everywhere."""
        if self.overview.problem is not None:
            return "failed"
        if self.is_alive:
            return "current"
        if self.questions:
            return "waiting"
        one = self.overview
        return "done" if one.stories_total and one.stories_done == one.stories_total else "open"

    @property
    def told(self) -> str:
        """What goes on, in a few words."""
        parts = []
        if self.is_alive or (self.run and self.state == "open"):
            parts.append(_TOLD.get(self.run.state if self.run else "", ""))
        elif self.overview.locked_by:
            parts.append("held by another session")
        if self.questions:
            parts.append(f"{plural(self.questions, 'question waits', 'questions wait')} for you")
        return ", ".join(filter(None, parts))


class Chapter(NamedTuple):
    """A story with the scenarios that belong to it."""

    story: Story
    scenarios: list[Scenario]


class Book(NamedTuple):
    """A change to be read."""

    change: Change
    proposal: str
    design: str
    chapters: list[Chapter]
    waiting: set[str]  # the stories that wait for a human


def changes(root: str) -> list[Change]:
    """Every change of the project, with its newest run."""
    newest, branches = _newest_runs(root), branch.Branches(root)
    return [_change(root, place, newest.get(place.change), branches) for place in specs.find_all(root)]


def _newest_runs(root: str) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in recent(root):
        found.setdefault(run.change, run)
    return found


def recent(root: str) -> list[Run]:
    """The last runs, the newest first. One that is removed meanwhile, or is none of ours, is left out."""
    found = []
    for id in runs.ids(root)[:RECENT]:
        try:
            found.append(runs.read(root, id))
        except (RalphError, OSError):
            continue
    return found


def _change(root: str, place: Place, run: Run | None, branches: Branches) -> Change:
    overview, asked = changes_module.overview(root, place, branches), 0
    try:
        asked = len(waiting(root, place.change))
    except (RalphError, OSError) as error:
        overview.problem = overview.problem or str(error)
    if overview.problem:
        overview.problem = overview.problem.replace(root + os.sep, "")
    return Change(place.change, place.ref, overview, run or _older_run(root, place.change), asked)


def _older_run(root: str, change: str) -> Run | None:
    try:
        return runs.of_change(root, change)
    except (RalphError, OSError):
        return None


@contextmanager
def _opened(root: str, place: Place) -> Iterator[Spec]:
    """The spec as its branch has it; as the user's tree has it where there is no branch."""
    with branch.opened(root, place.change, place.ref or None) as on_branch:
        yield on_branch or specs.open(root, place.change, place.ref or None)


def book(root: str, change: str, ref: str) -> Book:
    """All that there is to read of a change."""
    place = specs.Place(change, ref)
    with _opened(root, place) as spec:
        stories = spec.stories(locks.completed_tasks(root, change))
        chapters = [Chapter(story, spec.scenarios(story)) for story in stories]
        told = (spec.proposal() or "", spec.design() or "")
    return Book(
        _change(root, place, None, branch.Branches(root)), *told, chapters, {one.story for one in waiting(root, change)}
    )


def waiting(root: str, change: str) -> list[questions.Waiting]:
    """The questions of a change that nobody has answered yet."""
    return [one for one in questions.waiting(root, change) if one.answer is None]


def agent(root: str) -> str:
    """The agent that a run would begin with."""
    run = settings.load(root).run
    name = run.agent or next(iter(run.agents), None)
    if name is None:
        raise InvalidValue("no agent is named yet: `ralphtool init` finds those that are installed, and names one")
    return name


def learnt(root: str, change: str, since: str) -> list[Learning]:
    """What was learnt about a change since a moment."""
    with _opened(root, specs.Place(change, "")) as spec:
        ids = {specs.prd_id(spec, story.id) for story in spec.stories()} | {specs.prd_id(spec, None)}
    return [one for one in History(root).learnings() if one.source_prd_id in ids and one.created_at >= since]


def pulse(root: str) -> tuple[int, ...]:
    """Changes whenever something has happened that a list of changes shows; costs next to nothing."""
    ralph = os.path.join(root, ".ralph")
    places = [os.path.join(ralph, name) for name in ("locks", "runs", "standing", "questions")]
    return tuple(map(_changed, [*places, os.path.join(root, "openspec", "changes"), root]))


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
