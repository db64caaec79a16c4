"""The changes of a project: how far each is, and which one is meant on a command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.core import files, layout, locks, quickjson
from ralphtool.errors import ChangeNotFound, RalphError, UsageError, from_os_error
from ralphtool.specs import titles
from ralphtool.workspace import branch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ralphtool.core.locks import ChangeLock
    from ralphtool.specs import ChangeLocation, Spec, Story
    from ralphtool.workspace.branch import Branches
    from ralphtool.workspace.plan_merge import PlanEdit


def list_names(root: str) -> list[str]:
    return sorted({place.change for place in specs.find_all(root)})


def build_not_found_error(change: str, known: list[str]) -> ChangeNotFound:
    from ralphtool.core import spelling  # needed only for the error

    near = spelling.suggest(change, known)
    return ChangeNotFound(
        f"there is no change {change[:100]} here: {near}{near and ' '}`ralphtool list` shows the changes"
    )


def find_only(root: str) -> str:
    found = list_names(root)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ChangeNotFound(
            'there are no changes here: `ralphtool new "Add login"` creates one, and `ralphtool list` shows where '
            "ralphtool looks for them"
        )
    raise UsageError(f"there are several changes: name one ({', '.join(found)})")


# --- progress ---------------------------------------------------------------------------------------


class Overview:
    """One change in a list. Counts are None if the spec could not be read; `problem` says why."""

    def __init__(self, name: str, adapter: str, path: str, locked_by: str | None) -> None:
        self.name = name
        self.title = ""
        self.adapter = adapter
        self.path = path
        self.is_nested = False  # in a project below this one, as in a monorepo
        self.locked_by = locked_by
        self.has_died = False  # its run was killed, and has not been resumed yet
        self.run_command = ""  # which resumes it then
        self.stories_total: int | None = None
        self.stories_done: int | None = None
        self.tasks_total: int | None = None
        self.tasks_done: int | None = None
        self.proofs: dict[str, int] = {}  # the number of done stories for each proof state
        self.waiting = 0  # the number of stories that need an answer to be done
        self.doubted = 0  # the number of done stories that need a decision: they are not proven
        self.skipped = 0  # the number of stories that are not done, and that no run works on
        self.is_paused = False  # no story is started until a person resumes it
        self.problem: str | None = None
        self.warnings: list[str] = []

    def describe(self) -> str:
        """Its title, with the name that commands take."""
        return f"{self.title} ({self.name})" if self.title else self.name

    def count(self, stories: Sequence[Story], ticked: Collection[str] = ()) -> None:
        """`ticked` has tasks that a working agent has ticked: they do not make its story done."""
        self.stories_total = len(stories)
        self.stories_done = sum(story.done for story in stories)
        self.tasks_total = sum(len(story.tasks) for story in stories)
        self.tasks_done = sum(task.done or task.id in ticked for story in stories for task in story.tasks)

    def as_dict(self) -> dict[str, str | int | None]:
        """A title is included only if it says more than the name."""
        return {
            "name": self.name,
            **({"title": self.title} if self.title else {}),
            "adapter": self.adapter,
            "path": self.path,
            "stories_total": self.stories_total,
            "stories_done": self.stories_done,
            "tasks_total": self.tasks_total,
            "tasks_done": self.tasks_done,
            "locked_by": self.locked_by,
        }


def list_overviews(root: str) -> list[Overview]:
    """Every change of every format."""
    branches = branch.Branches(root)
    return [build_overview(root, place, branches) for place in specs.find_all(root)]


def build_overview(root: str, place: ChangeLocation, branches: Branches) -> Overview:
    """The overview of a change, from its branch if there is one."""
    one = Overview(place.change, place.ref.partition(":")[0], root, None)
    one.is_nested = place.nested
    try:
        if place.error:
            raise place.error
        spec = specs.open(root, place.change, place.ref)
        one.adapter, one.path, one.title = spec.adapter, spec.path, titles.find_title(spec)
        if is_namesake(root, spec):
            one.count(spec.stories())
            one.warnings = specs.list_warnings(spec)
            return one
        found = locks.read_lock(root, place.change)
        lock = None if found is None or found.is_abandoned else found
        one.locked_by = lock.session_id if lock else None
        one.has_died = found is not None and lock is None and _has_died(root, found)
        one.run_command = _build_run_command(root, place.change) if one.has_died else ""
        completed = locks.list_completed_tasks(root, place.change)
        with branches.open_spec(place.change, place.ref) as on_branch:
            read = on_branch or spec
            stories = read.stories(completed)
            one.warnings, edit = specs.list_warnings(read), branch.find_edit(read)
        one.count(stories, completed if lock and not edit else ())
        _add_decided(one, root, place.change, stories, edit)
        is_begun = branches.has(place.change) or os.path.exists(layout.change_state(root, place.change))
        _add_state(one, root, stories, edit, is_begun=is_begun)
    except RalphError as error:
        one.problem = str(error)
    except OSError as error:
        one.problem = str(from_os_error(error))
    if one.problem and (running := find_running_change(root)) not in (None, place.change):
        one.problem = f"its files are not committed, and are set aside until the run of {running} ends"
    return one


def is_namesake(root: str, spec: Spec) -> bool:
    """Whether the runs of this name were about another spec that is still there: what they did says nothing here."""
    if not os.path.exists(layout.change_state(root, spec.change)):
        return False
    from ralphtool.record import questions  # not needed for a change that was never run

    try:
        ref = str(questions.load_change_state(root, spec.change).get("spec") or spec.ref)
        if ref == spec.ref:
            return False
        other, own = (specs.open(root, spec.change, one).path for one in (ref, spec.ref))  # not as on its branch
        return other != own
    except RalphError:
        return False  # it was moved; or the state is damaged, which `ralphtool doctor` reports


def _has_died(root: str, lock: ChangeLock) -> bool:
    """Whether the last run was killed. One that was refused, or that an error ended, may have left its lock, too."""
    if not lock.has_dead_owner:
        return False
    from ralphtool.record import runs  # most changes have no such lock

    newest = runs.find_newest(root, lock.fields["change_name"])
    return newest.state == "died" if newest else not lock.fields["unlocked"]


def _build_run_command(root: str, change: str) -> str:
    from ralphtool.record import run_command  # only a run that died needs it

    return run_command.build(root, change)


def _add_decided(one: Overview, root: str, change: str, stories: Sequence[Story], edit: PlanEdit | None) -> None:
    """Adds what people decided. Nothing if the state can't be read: `ralphtool doctor` says why."""
    if not any(map(os.path.exists, (layout.change_state(root, change), layout.steering(root, change)))):
        return
    from ralphtool.record import plan_numbers, skips, steering  # not needed for a change that was never run

    try:
        skipped = plan_numbers.rename(dict.fromkeys(skips.list_skipped(root, change)), edit)
        one.is_paused = steering.is_paused(root, change)
    except RalphError:
        return
    one.skipped = sum(not story.done and story.id in skipped for story in stories)


def _add_state(one: Overview, root: str, stories: Sequence[Story], edit: PlanEdit | None, *, is_begun: bool) -> None:
    """Adds what the done stories claim, and what needs an answer. Nothing if the state can't be read: `ralphtool
    doctor` says why."""
    if not is_begun:
        return
    from ralphtool.judging.proof_words import count_states  # none of these is needed for a change that was never run
    from ralphtool.record import doubts, plan_numbers, questions, receipts

    try:
        found = plan_numbers.rename(receipts.read_receipts(root, one.name), edit)
        asked = questions.list_open(root, one.name)
        asked += doubts.list_doubts(root, one.name) if any(each.state == "unproven" for each in found.values()) else []
    except RalphError:
        return
    asked = plan_numbers.rename_questions(asked, edit)
    one.proofs = count_states(found[story.id].state for story in stories if story.done and story.id in found)
    done = {story.id for story in stories if story.done}
    unanswered = [question.story in done for question in asked if question.answer is None]
    one.waiting, one.doubted = unanswered.count(False), unanswered.count(True)


def find_running_change(root: str) -> str | None:
    """The change whose run uses the user's tree now: uncommitted files are set aside meanwhile."""
    git = branch.git_folder(root)
    if git is None:
        return None
    try:
        return str(quickjson.loads(files.read(layout.stash_note(git)).decode())["change"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
