"""The target of a user's command: the change and the story that it names, and whether a run works on them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ralphtool import specs
from ralphtool.core import locks, project, sender, spelling
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeLocked, InvalidValue, RalphError, StoryNotFound, UsageError, shorten
from ralphtool.record import overview, plan_numbers, questions, runs
from ralphtool.views.terminal.wrapping import echo
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.core.locks import ChangeLock
    from ralphtool.specs import Story
    from ralphtool.workspace.plan_merge import PlanEdit


def refuse_agents(root: str) -> None:
    """A descendant of a run is its agent, whatever its environment says. Files that it writes can't be refused."""
    owners = {
        lock.owner["pid"]
        for change in locks.list_locked_changes(root)
        if (lock := find_run_lock(root, change)) and lock.owner
    }
    if os.environ.get("RALPH_TOKEN") or owners & (_list_ancestors() if owners else set()):
        raise UsageError(
            "this command is for people, not for agents: an agent that is stuck runs "
            '`ralphtool agent observe blocker "what is missing"`'
        )


def _list_ancestors() -> set[int]:
    import psutil  # its import costs more than a short answer

    return {process.pid for process in psutil.Process().parents()}


def find_run_lock(root: str, change: str) -> ChangeLock | None:
    """The lock of the run that works on a change now."""
    lock = locks.find_holder(root, change)
    return lock if lock and lock.owner else None


def find_change(root: str, change: str | None) -> str:
    """The named change, else the only one in progress, else the only one that exists.

    Locks say what is in progress, because an agent may have moved the spec just now.
    """
    refuse_agents(root)
    if change is None:
        return _find_running(root) or overview.find_only(root)
    project.check_name(change, "a change's name")
    if find_run_lock(root, change) or questions.load_change_state(root, change):
        return change
    if change not in (known := overview.list_names(root)):
        raise overview.build_not_found_error(change, known)
    return change


def find_change_of_story(root: str, change: str | None, story: str | None) -> str:
    """The same for commands with the option `--change`. If it is needed, the error lists the changes to choose from."""
    refuse_agents(root)
    names = overview.list_names(root) if change is None and _find_running(root) is None else []
    if len(names) > 1:
        raise _build_choice_error(root, names, story)
    return find_change(root, change)


def _find_running(root: str) -> str | None:
    """The change that a run works on, if there is exactly one."""
    running = [name for name in locks.list_locked_changes(root) if find_run_lock(root, name)]
    return running[0] if len(running) == 1 else None


def _build_choice_error(root: str, names: Sequence[str], story: str | None) -> UsageError:
    branches = branch.Branches(root)
    known = {name: stories for name in names if (stories := _list_open_stories(root, name, branches)) is not None}
    having = [name for name, stories in known.items() if any(story in (id, one.id) for id, one in stories)]
    if len(having) > 1:
        return _build_shared_error(story or "", having)
    if having:
        return UsageError(
            f"there are several changes: add --change {having[0]}, the only open one with a story {story}"
        )
    return UsageError(f"there are several changes: add --change NAME ({', '.join(known or names)})")


def _list_open_stories(root: str, change: str, branches: branch.Branches) -> Stories | None:
    """None if the change is finished or can't be read."""
    with suppress(RalphError):
        stories = list_stories(root, change)
        is_begun = branches.has(change) or questions.load_change_state(root, change).get("stories")
        return stories if is_begun or not all(one.done for _, one in stories) else None
    return None


def _build_shared_error(story: str, changes: Iterable[str]) -> UsageError:
    return UsageError(f"several changes have a story {make_printable(story)}: add --change NAME ({', '.join(changes)})")


def find_edit(root: str, change: str) -> PlanEdit | None:
    """The user's edit of the plan that no run has applied yet; None if it can't be read."""
    with suppress(RalphError, OSError):
        return plan_numbers.read_edit(root, change, _find_ref(root, change))
    return None


def _find_ref(root: str, change: str) -> str | None:
    return questions.load_change_state(root, change).get("spec") or None


def settle_ids(root: str, change: str, story: str) -> None:
    """Makes sure that a story's id means the story that the user's plan has there.

    An edit of the plan may have given it to another story. Without a run it is applied now; a run does so soon.
    """
    if sender.describe_via() and find_edit(root, change):
        plan_numbers.check_clear(root, change, _find_ref(root, change), story)  # the page may show an earlier plan
    apply_edit(root, change)
    edit = find_edit(root, change)
    if edit and {story, _parse_id(root, change, story)} & plan_numbers.list_ambiguous(edit):
        raise InvalidValue(
            f"{edit.describe(change)}. This is not applied yet, so {shorten(story)} is not clear. A run applies it "
            "before its next story: then look at `ralphtool show`, and try again"
        )


def apply_edit(root: str, change: str) -> None:
    """Applies the user's edit of the plan, if there is one and no run works on the change."""
    if find_edit(root, change) is None or find_run_lock(root, change):
        return
    from ralphtool.loop import idle  # most plans are not edited

    try:
        told = idle.apply_edit(root, change)
    except ChangeLocked:
        return  # a run has begun meanwhile
    for text in told:
        echo(make_printable(text), err=True)


def _parse_id(root: str, change: str, name: str) -> str:
    """The id of the story that has this id in the history."""
    with suppress(RalphError):
        return next((one.id for id, one in list_stories(root, change) if name in (id, one.id)), name)
    return name


Stories = list[tuple[str, "StorySummary"]]  # with their ids in the history


class StorySummary:
    """The facts about a story that commands need."""

    def __init__(self, id: str, depends_on: Sequence[str], *, done: bool, optional: bool) -> None:
        self.id = id
        self.depends_on = depends_on
        self.done = done
        self.optional = optional


def find_story(root: str, change: str, name: str) -> tuple[StorySummary, Sequence[StorySummary]]:
    """The story with this id, in the spec or in the history; and all stories."""
    stories = list_stories(root, change)
    found = next((one for id, one in stories if name in (one.id, id)), None)
    if found is None:
        raise build_unknown_error(name, {change: stories})
    return found, [one for _, one in stories]


def build_unknown_error(name: str, known: Mapping[str, Stories], *, or_attempt: bool = False) -> StoryNotFound:
    """No story of these changes has this name; with `or_attempt`, the name of an attempt would also have been valid."""
    if name in known:
        return _build_change_error(name, known, or_attempt=or_attempt)
    what = f"{'no story and no attempt' if or_attempt else 'no story'} {shorten(name)}"
    ids = [id for stories in known.values() for prd_id, one in stories for id in (one.id, prd_id)]
    near = spelling.suggest_id(name, ids)
    if or_attempt and not near:
        near = spelling.suggest_id(name.rpartition("-")[0], ids)  # without the number of the attempt
    more = f"{'. `ralphtool attempts` lists the attempts' if or_attempt else ''}{near and f'; {near}'}"
    if len(known) != 1:
        return StoryNotFound(f"there is {what}; `ralphtool show CHANGE` lists the stories of a change{more}")
    [(change, stories)] = known.items()
    there = ", ".join(one.id for _, one in stories[:20])
    return StoryNotFound(f"{change} has {what}; its stories are {there or 'none'}{more}")


def _build_change_error(change: str, known: Mapping[str, Stories], *, or_attempt: bool) -> StoryNotFound:
    """The name of a change was given in place of a story."""
    there = ", ".join(one.id for _, one in known[change][:20])
    option = f" (with --change {change})" if len(known) > 1 else ""
    more = ", or an attempt of `ralphtool attempts`" if or_attempt else ""
    return StoryNotFound(f"{change} is a change: name one of its stories, {there or 'none yet'}{option}{more}")


def build_no_attempt_error(root: str, name: str, change: str | None, prd_id: str | None) -> RalphError:
    """The name is not that of an attempt, nor of a story with one. `prd_id` is given if it is that of a story."""
    if prd_id:
        return InvalidValue(f"story {shorten(name)} has no attempt yet: `ralphtool attempts` lists the attempts")
    return build_unknown_error(name, list_stories_by_change(root, change), or_attempt=True)


class StoryHistory:
    """Which attempts in the history are about a story. After an edit of the plan, its id was another story's before."""

    def __init__(self, prd_id: str, since: int = 0, earlier: str = "") -> None:
        self.prd_id = prd_id
        self.since = since  # the first iteration of that id that is about the story
        self.earlier = earlier  # its last attempt under another id, if it has none under this one

    def has(self, entry: str) -> bool:
        """Whether it is an attempt at the story."""
        prd_id, _, number = entry.rpartition("-")
        return prd_id == self.prd_id and number.isdecimal() and int(number) >= self.since


def find_history(root: str, name: str, change: str | None) -> StoryHistory | None:
    """The history of the story with this name, in any change if none is given; None if there is no such story."""
    known = list_stories_by_change(root, change)
    found = {one: pair for one, stories in known.items() for pair in stories if name in (pair[1].id, pair[0])}
    if len(found) > 1:
        running = [one for one in found if find_run_lock(root, one)]
        if len(running) != 1:
            raise _build_shared_error(name, found)
        found = {running[0]: found[running[0]]}
    for one, (prd_id, story) in found.items():
        return _build_history(root, one, story.id, prd_id)
    return None


def find_story_of_entry(root: str, change: str, entry: str) -> str:
    """The story whose last attempt this is, whatever its id was then; empty if there is none."""
    stories = questions.load_change_state(root, change).get("stories", {})
    return next((id for id, one in stories.items() if one.get("entry") == entry), "")


def _build_history(root: str, change: str, story: str, prd_id: str) -> StoryHistory:
    edit = find_edit(root, change)
    if edit and story in edit.added:
        return StoryHistory(prd_id, sys.maxsize)
    before = next((old for old, new in edit.renamed if new == story), story) if edit else story
    state = questions.load_change_state(root, change).get("stories", {}).get(before, {})
    entry, since = str(state.get("entry") or ""), state.get("since")
    if before != story:
        return StoryHistory(prd_id, sys.maxsize, entry)
    found = StoryHistory(prd_id, since if isinstance(since, int) else 0)
    found.earlier = "" if found.has(entry) else entry
    return found


def list_stories_by_change(root: str, change: str | None) -> dict[str, Stories]:
    """The stories of a change, or those of every change that can be read."""
    if change is not None:
        change = find_change(root, change)
        return {change: list_stories(root, change)}
    found: dict[str, Stories] = {}
    for one in dict.fromkeys([*overview.list_names(root), *locks.list_locked_changes(root)]):
        with suppress(RalphError):
            found[one] = list_stories(root, one)
    return found


def list_stories(root: str, change: str) -> Stories:
    """Every story with its id in the history: from the spec, otherwise from the start of the run."""
    ref = questions.load_change_state(root, change).get("spec") or None
    try:
        with branch.open_spec(root, change, ref) as on_branch:
            spec = on_branch or specs.open(root, change, ref)
            found = spec.stories(locks.list_completed_tasks(root, change))
            return [(specs.prd_id(spec, one.id), _summarize_story(one)) for one in found]
    except RalphError:
        if not find_run_lock(root, change):
            raise
    run = runs.find_newest(root, change)
    rows = run.start.get("stories") if run else None
    ids = [str(one["id"]) for one in rows if isinstance(one, dict) and "id" in one] if isinstance(rows, list) else []
    return [(project.build_slug(f"{change}-{id}"), StorySummary(id, (), done=False, optional=False)) for id in ids]


def _summarize_story(one: Story) -> StorySummary:
    return StorySummary(one.id, one.depends_on, done=one.done, optional=one.optional)


def complete_story(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Stories of the change, those that need an answer first."""
    try:
        root = project.find()
        waiting = [one.story for one in questions.list_open(root)]
        change = context.params.get("change") or overview.find_only(root)
        known = [one.id for one in specs.open(root, change).stories()]
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [id for id in dict.fromkeys([*waiting, *known]) if id.startswith(incomplete)]
