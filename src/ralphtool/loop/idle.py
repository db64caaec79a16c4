"""A change that no run works on: a person's decisions about its stories are carried out at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ralphtool import settings as settings_module
from ralphtool import specs
from ralphtool.core import layout, lifecycle, sender
from ralphtool.errors import GitError
from ralphtool.history import History
from ralphtool.loop import acceptance, finish, outcome, plan_edits, publishing, run
from ralphtool.loop.change import Change
from ralphtool.record import questions, steering
from ralphtool.record.events import PlanEdited
from ralphtool.record.steering import SteeringCommand
from ralphtool.workspace import in_place
from ralphtool.workspace.folder import Folder
from ralphtool.workspace.git import Repository
from ralphtool.workspace.idle import Idle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.core.session import SessionState
    from ralphtool.loop.acceptance import DecisionPlan
    from ralphtool.workspace import Workspace


class IdleChange(Change):
    """A change without a session: the ticks come from the change state."""

    def state(self) -> SessionState:
        return {"completed_tasks": [task for one in self.change_state.stories.values() for task in one.completed]}

    def _set_completed(self, completed: Sequence[str]) -> None:
        pass

    def _forget_commands(self, ids: Sequence[str]) -> None:
        """The files stay for the next run, which adds them to its record."""

    def mark_applied(self, id: str) -> None:
        self.change_state.heeded = [*self.change_state.heeded, id]
        self.save()


@contextmanager
def _open_change(root: str, name: str, *, is_lent: bool) -> Iterator[IdleChange]:
    ref = str(questions.load_change_state(root, name).get("spec") or "") or specs.open(root, name).ref
    repository = Repository.find(root)
    if repository and repository.resolve(layout.BRANCHES + name) is None:
        raise finish.build_no_branch_error(repository, root, name)
    place: Workspace = Idle(repository, root, name, ref, is_lent=is_lent) if repository else Folder(root)
    try:
        place.open("", ())
        yield IdleChange(root, "", name, ref, place, History(root))
    finally:
        place.close()


def plan(root: str, name: str, said: SteeringCommand) -> DecisionPlan:
    """Plans a decision for a change that a run works on. Nothing changes."""
    with _open_change(root, name, is_lent=True) as change:
        return acceptance.plan(change, said)


def decide(root: str, name: str, said: SteeringCommand) -> DecisionPlan:
    """Carries out a decision while no run can begin; raises ChangeLocked if a run works on the change."""
    run.recover(root)
    with lifecycle.ProjectLock(root):
        lifecycle.find_abandoned_lock(root, name)
        _check_given_back(root, name)
        with _open_change(root, name, is_lent=False) as change:
            _finish_outcome(change)
            made = acceptance.plan(change, said)
            if made.kind:
                id = send(root, name, said)
                acceptance.carry_out(change, made)
                change.mark_applied(id)
        return _publish(root, name, made) if made.kind else made


def apply_edit(root: str, name: str) -> list[str]:
    """Applies the user's edit of the plan, so that a command about a story can use its new id; returns what to report.

    Commands that were sent earlier use the earlier ids, so they are applied before. Raises ChangeLocked if a run works
    on the change.
    """
    run.recover(root)
    with lifecycle.ProjectLock(root):
        lifecycle.find_abandoned_lock(root, name)
        _check_given_back(root, name)
        with _open_change(root, name, is_lent=False) as change:
            _finish_outcome(change)
            plan_edits.finish_killed(change)
            change.apply([one for one in steering.list_pending(root, name) if one.action not in steering.JUDGEMENTS])
            plan_edits.take_up(change)
            edits = [event.text for event in change.drain_events() if isinstance(event, PlanEdited)]
            return [*change.drain_notices(), *edits]


def _publish(root: str, name: str, made: DecisionPlan) -> DecisionPlan:
    """Publishes the decision to the issue tracker, if the change has one."""
    ref = str(questions.load_change_state(root, name).get("spec") or "")
    told = publishing.publish(root, name, ref, settings_module.load(root), lambda: False) if ref else []
    return structs.replace(made, text=". ".join([made.text, *told]))


def send(root: str, name: str, said: SteeringCommand) -> str:
    """Writes a decision to a file for a run, with the process that vouches for it."""
    more: dict[str, Any] = {"by": said.by, "entry": said.entry, "sender": sender.describe()}
    return steering.send(root, name, said.action, said.story, said.text, **more)


def _check_given_back(root: str, name: str) -> None:
    """A killed run may have left its files in place of the user's."""
    repository = Repository.find(root)
    note = in_place.find_note(repository, root) if repository else None
    if note and note.change == name:
        raise GitError(
            f"the run {note.run} was interrupted: run `ralphtool back` to restore your branch and files, then try again"
        )


def _finish_outcome(change: IdleChange) -> None:
    """An outcome that was judged before a run was interrupted counts, and comes first."""
    made = change.change_state.outcome
    if made and outcome.is_pending(change):
        outcome.carry_out(change, made)
        change.workspace.begin(None)
