"""The data that the full screen and the web page show about changes, from specs, locks, records and questions."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ralphtool import settings, specs
from ralphtool.core import layout, locks
from ralphtool.core.amounts import pluralize
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.history import History
from ralphtool.record import overview as changes_module
from ralphtool.record import plan_numbers, questions, receipts, runs
from ralphtool.record.view_parts import parse_time
from ralphtool.specs import scaffold
from ralphtool.views.terminal.phrases import choose_mark
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ralphtool.history.records import Learning
    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.overview import Overview
    from ralphtool.record.runs import RunSummary
    from ralphtool.specs import ChangeLocation, Scenario, Spec, Story, Task
    from ralphtool.workspace.branch import Branches

RECENT = 20  # runs that are listed
_SLACK = 2.0  # seconds: notes are written to the history after the last event
_NAMED = 90  # characters of a change's name in the ids of its runs
_STATUS_TEXTS = {
    "running": "running",
    "paused": "paused",
    "died": "the last run died",
    "interrupted": "interrupted",
    "unfinished": "unfinished",
    "unproven": "done, not all proven",
}


class ChangeItem(NamedTuple):
    """One change of the list: its progress, and its status."""

    name: str
    ref: str
    overview: Overview
    run: RunSummary | None  # the newest
    questions: int

    @property
    def title(self) -> str:
        """The title, or the name if there is none."""
        return self.overview.title or self.name

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
        if one.proofs.get("unproven") and one.stories_done == one.stories_total:
            return "unproven"
        return "done" if one.stories_total and one.stories_done == one.stories_total else "open"

    @property
    def status(self) -> str:
        """The status in a few words."""
        parts = []
        if self.is_alive or (self.run and self.state in ("open", "unproven")):
            parts.append(_STATUS_TEXTS.get(self.run.state if self.run else "", ""))
        elif self.overview.locked_by:
            parts.append("locked by another session")
        if self.questions:
            parts.append(f"{pluralize(self.questions, 'question needs', 'questions need')} your answer")
        return ", ".join(filter(None, parts))


class StoryDetails(NamedTuple):
    """A story with the scenarios that belong to it."""

    story: Story
    scenarios: list[Scenario]


class ChangeDetails(NamedTuple):
    """The whole text of a change."""

    change: ChangeItem
    proposal: str
    design: str
    chapters: list[StoryDetails]
    asked: list[questions.OpenQuestion]  # not answered yet
    receipts: dict[str, Receipt]  # of the stories that are done

    @property
    def waiting(self) -> set[str]:
        """The stories that need an answer."""
        return {one.story for one in self.asked}

    def choose_state(self, story: Story) -> str:
        """One of the states that have a mark everywhere."""
        if story.id in self.waiting:
            return "waiting"
        receipt = self.receipts.get(story.id)
        return choose_mark("done", receipt.state if receipt else "") if story.done else "open"


def list_changes(root: str) -> list[ChangeItem]:
    """Every change of the project, with its newest run."""
    known, branches = _group_ids(root), branch.Branches(root)
    return [_build_change(root, place, known, branches) for place in specs.find_all(root)]


def _group_ids(root: str) -> dict[str, list[str]]:
    """The runs of each change, the newest first; no record is read. Changes with very long names may share them."""
    found: dict[str, list[str]] = {}
    for id in runs.list_ids(root):
        found.setdefault(runs.parse_change(id), []).append(id)
    return found


def list_recent_runs(root: str) -> list[RunSummary]:
    """The last runs, the newest first."""
    return list(_read_runs(root, runs.list_ids(root)[:RECENT]))


def _read_runs(root: str, ids: Iterable[str]) -> Iterator[RunSummary]:
    """Skips runs that are removed meanwhile, or can't be read."""
    for id in ids:
        try:
            yield runs.read_summary(root, id)
        except (RalphError, OSError):
            continue


def _build_change(root: str, place: ChangeLocation, known: dict[str, list[str]], branches: Branches) -> ChangeItem:
    overview, asked = changes_module.build_overview(root, place, branches), 0
    try:
        asked = len(list_unanswered(root, place.change))
    except (RalphError, OSError) as error:
        overview.problem = overview.problem or str(error)
    if overview.problem:
        overview.problem = overview.problem.replace(root + os.sep, "")
    of_it = _read_runs(root, known.get(place.change[:_NAMED], []))
    newest = next((run for run in of_it if run.change == place.change), None)
    return ChangeItem(place.change, place.ref, overview, newest, asked)


@contextmanager
def open_spec(root: str, place: ChangeLocation) -> Iterator[Spec]:
    """The spec on the change's branch; without a branch, the one in the user's tree."""
    with branch.open_spec(root, place.change, place.ref or None) as on_branch:
        yield on_branch or specs.open(root, place.change, place.ref or None)


def read_details(root: str, change: str, ref: str) -> ChangeDetails:
    """The whole text of a change."""
    place = specs.ChangeLocation(change, ref)
    with open_spec(root, place) as spec:
        stories = spec.stories(locks.list_completed_tasks(root, change))
        chapters = [StoryDetails(story, spec.scenarios(story)) for story in stories]
        told, edit = (spec.proposal() or "", spec.design() or ""), branch.find_edit(spec)
    now = _build_change(root, place, _group_ids(root), branch.Branches(root))
    done = {story.id for story in stories if story.done}
    claims = plan_numbers.rename(receipts.read_receipts(root, change), edit)
    found = {story: one for story, one in claims.items() if story in done}
    asked = plan_numbers.rename_questions(list_unanswered(root, change), edit)
    return ChangeDetails(now, *told, chapters, asked, found)


def find_change(root: str, name: str) -> ChangeItem:
    """One change of the list."""
    place = next((one for one in specs.find_all(root) if one.change == name), None)
    if place is None:
        raise changes_module.build_not_found_error(name, changes_module.list_names(root))
    return _build_change(root, place, _group_ids(root), branch.Branches(root))


def begin_change(root: str, text: str) -> str:
    """Creates a change with examples to replace, as `ralphtool new` does; returns its name."""
    made = scaffold.plan(root, text)
    try:
        scaffold.write(made)
    except FileExistsError:
        raise InvalidValue(f"{made.place} already exists: give the change another title") from None
    return made.change


def read_tasks(root: str, change: str) -> dict[str, Sequence[Task]]:
    """The tasks of every story."""
    with open_spec(root, specs.ChangeLocation(change, "")) as spec:
        return {story.id: story.tasks for story in spec.stories(locks.list_completed_tasks(root, change))}


def is_done(root: str, change: str, story: str) -> bool:
    """Whether a story is done now, regardless of older records."""
    with open_spec(root, specs.ChangeLocation(change, "")) as spec:
        stories = spec.stories(locks.list_completed_tasks(root, change))
    return any(one.id == story and one.done for one in stories)


def list_unanswered(root: str, change: str) -> list[questions.OpenQuestion]:
    """The unanswered questions of a change."""
    return [one for one in questions.list_open(root, change) if one.answer is None]


def find_agent(root: str) -> str:
    """The agent that a run would use first."""
    run = settings.load(root).run
    name = run.agent or next(iter(run.agents), None)
    if name is None:
        raise InvalidValue("no agent is configured yet: `ralphtool init` finds the installed agents and configures one")
    return name


def list_learnings(root: str, run: RunSummary) -> list[Learning]:
    """The learnings about a run's change that were recorded during the run."""
    with open_spec(root, specs.ChangeLocation(run.change, "")) as spec:
        ids = {specs.prd_id(spec, story.id) for story in spec.stories()} | {specs.prd_id(spec, None)}
    return [one for one in History(root).learnings() if one.source_prd_id in ids and _is_within(one.created_at, run)]


def _is_within(moment: str, run: RunSummary) -> bool:
    at, began = parse_time(moment), parse_time(run.began)
    ended = None if run.state in ("running", "paused") else parse_time(run.last)
    return at is not None and began is not None and began <= at and (ended is None or at <= ended + _SLACK)


def read_fingerprint(root: str, path: str | None = None) -> tuple[int, ...]:
    """Changes whenever a list of changes would look different; costs next to nothing.

    With the path of a spec, also when the spec was written.
    """
    ralph = layout.folder(root)
    places = [os.path.join(ralph, name) for name in ("locks", "runs", "standing", "questions")]
    spec = [path, *(os.path.join(path, name) for name in _list_names(path))] if path else []
    folders = (os.path.join(root, folder) for folder in _list_change_folders())
    return (*map(_read_mtime, [*places, *folders, *spec]), *branch.read_fingerprint(root))


@cache
def _list_change_folders() -> tuple[str, ...]:
    """The folders in which new changes appear, in all formats."""
    places = [place for name in specs.names() for place in specs.adapter(name).places("PLAN")]
    return tuple(sorted({os.path.dirname(place) for place in places} | {""}))


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # it is a file, or gone


def _read_mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
