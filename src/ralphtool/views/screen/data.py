"""What the full screen shows of changes, as values: read from specs, locks, records and questions."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ralphtool import settings, specs
from ralphtool.core import layout, locks
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.history import History
from ralphtool.record import overview as changes_module
from ralphtool.record import questions, runs
from ralphtool.record.run_view import seconds_of
from ralphtool.views.terminal.tables import plural
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphtool.history.records import Learning
    from ralphtool.record.overview import Overview
    from ralphtool.record.runs import Run
    from ralphtool.specs import Place, Scenario, Spec, Story
    from ralphtool.workspace.branch import Branches

RECENT = 20  # runs that are listed
_SLACK = 2.0  # seconds: notes are written to the history after the last event
_NAMED = 90  # characters of a change's name that are in the names of its runs
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
    known, branches = _ids_by_change(root), branch.Branches(root)
    return [_change(root, place, known, branches) for place in specs.find_all(root)]


def _ids_by_change(root: str) -> dict[str, list[str]]:
    """The runs of each change, the newest first; no record is read. Changes with very long names may share them."""
    found: dict[str, list[str]] = {}
    for id in runs.ids(root):
        found.setdefault(runs.change_of(id), []).append(id)
    return found


def recent(root: str) -> list[Run]:
    """The last runs, the newest first."""
    return list(_read(root, runs.ids(root)[:RECENT]))


def _read(root: str, ids: Iterable[str]) -> Iterator[Run]:
    """A run that is removed meanwhile, or is none of ours, is left out."""
    for id in ids:
        try:
            yield runs.read(root, id)
        except (RalphError, OSError):
            continue


def _change(root: str, place: Place, known: dict[str, list[str]], branches: Branches) -> Change:
    overview, asked = changes_module.overview(root, place, branches), 0
    try:
        asked = len(waiting(root, place.change))
    except (RalphError, OSError) as error:
        overview.problem = overview.problem or str(error)
    if overview.problem:
        overview.problem = overview.problem.replace(root + os.sep, "")
    of_it = _read(root, known.get(place.change[:_NAMED], []))
    newest = next((run for run in of_it if run.change == place.change), None)
    return Change(place.change, place.ref, overview, newest, asked)


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
    now = _change(root, place, _ids_by_change(root), branch.Branches(root))
    return Book(now, *told, chapters, {one.story for one in waiting(root, change)})


def is_done(root: str, change: str, story: str) -> bool:
    """Whether a story is done by now, whatever an older record says."""
    with _opened(root, specs.Place(change, "")) as spec:
        stories = spec.stories(locks.completed_tasks(root, change))
    return any(one.id == story and one.done for one in stories)


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


def learnt(root: str, run: Run) -> list[Learning]:
    """What was learnt about a run's change while it went on."""
    with _opened(root, specs.Place(run.change, "")) as spec:
        ids = {specs.prd_id(spec, story.id) for story in spec.stories()} | {specs.prd_id(spec, None)}
    return [one for one in History(root).learnings() if one.source_prd_id in ids and _is_within(one.created_at, run)]


def _is_within(moment: str, run: Run) -> bool:
    at, began = seconds_of(moment), seconds_of(run.began)
    ended = None if run.state in ("running", "paused") else seconds_of(run.last)
    return at is not None and began is not None and began <= at and (ended is None or at <= ended + _SLACK)


def pulse(root: str, path: str | None = None) -> tuple[int, ...]:
    """Changes whenever something has happened that a list of changes shows; costs next to nothing.

    With the path of a spec, also when that was written to.
    """
    ralph = layout.folder(root)
    places = [os.path.join(ralph, name) for name in ("locks", "runs", "standing", "questions")]
    spec = [path, *(os.path.join(path, name) for name in _names_in(path))] if path else []
    return tuple(map(_changed, [*places, *(os.path.join(root, folder) for folder in _folders_of_changes()), *spec]))


@cache
def _folders_of_changes() -> tuple[str, ...]:
    """The folders in which a change appears when it is begun, whatever its format."""
    places = [place for name in specs.names() for place in specs.adapter(name).places("PLAN")]
    return tuple(sorted({os.path.dirname(place) for place in places} | {""}))


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # it is a file, or gone


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
