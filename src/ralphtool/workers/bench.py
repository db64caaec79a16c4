"""A place on a worker where orders are carried out, one after another: a box with its own session.

It corresponds to a local lane. It stays open between the orders of a change, so that it is set up only once.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from ralphtool import specs, workspace
from ralphtool.core import files, layout, lifecycle, locks, secrets, session
from ralphtool.errors import RemoteFailed
from ralphtool.executors.orders import Result
from ralphtool.judging.manifests import has_manifest
from ralphtool.loop import workspace_choice
from ralphtool.loop.run_place import RunPlace
from ralphtool.loop.runners import make_runners
from ralphtool.loop.workspace_choice import Findings, Unsuitable
from ralphtool.record.log import Log
from ralphtool.record.run_folder import make_folder
from ralphtool.workspace.worktree import Worktree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.executors import Assignment
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.executors.orders import Order
    from ralphtool.judging.gates import Baseline
    from ralphtool.loop.workspace_choice import Choice
    from ralphtool.workspace.git import Repository

    Stop = Callable[[], bool]


class Bench:
    """Opened for a change and its settings; carries out one order at a time."""

    def __init__(self, repository: Repository, number: int, order: Order) -> None:
        self.number = number
        self.change = order.assignment.change
        self.token = ""  # of the assignment whose work is in the box
        self.awaits_proof = False
        self._own_baseline: tuple[str, Baseline | None] = ("", None)  # of a checkpoint, on this machine
        self._key = _describe(order)
        self._root = repository.top
        self.repository = repository
        self._settings = order.settings
        self._id = f"{self.change[:60]}-worker-{number}-{os.urandom(4).hex()}"
        self._stack = ExitStack()
        self._place: Worktree
        self._executor: LocalExecutor

    @property
    def folder(self) -> str:
        """The folder of its records."""
        return layout.run(self._root, self._id)

    @property
    def events(self) -> str:
        return layout.events(self._root, self._id)

    def fits(self, order: Order) -> bool:
        return self._key == _describe(order)

    # --- opening ------------------------------------------------------------------------------------

    def open(self, order: Order, stop: Stop) -> None:
        self._move_to(order.upon)
        lifecycle.begin(self._root, self._id, self.change, order.spec, locks.describe_process())
        self._stack.callback(lifecycle.unlock, self._root, self.change, force=True)
        make_folder(self._root, self._id)
        try:
            log = self._stack.enter_context(closing(Log(self.events)))
            self._enter_first_suitable(order, log, stop)
        except BaseException:
            self.close()
            raise

    def _move_to(self, commit: str) -> None:
        """Moves the branch of the change to where the order needs it: a workspace begins from there."""
        self.repository.ensure_identity()
        self.repository.set_head(commit)
        self.repository.set_refs({layout.BRANCHES + self.change: commit})

    def _enter_first_suitable(self, order: Order, log: Log, stop: Stop) -> None:
        """Enters a box, or else a worktree: tested with the real gates before they are trusted, as in a local run."""
        found = Findings(self.repository, self._settings, order.assignment.gates, self.change)
        troubles: list[str] = []
        for choice in workspace_choice.list_choices(self._settings, self.repository, found):
            if choice.kind == "here":
                troubles += choice.why
                break
            with ExitStack() as trial:
                self._enter(order, choice, log, trial, stop)
                try:
                    self._check(order, choice, found, stop)
                except Unsuitable as error:
                    troubles.append(error.trouble.what)
                    continue
                self._stack.enter_context(trial.pop_all())
                return
        raise RemoteFailed(f"the gates are not reliable on this machine: {'; '.join(troubles)}")

    def _enter(self, order: Order, choice: Choice, log: Log, stack: ExitStack, stop: Stop) -> None:
        place = workspace.make(self._root, self.change, choice.kind, stop)
        if not isinstance(place, Worktree):
            raise RemoteFailed("a worker needs a box or a worktree")
        place.open(self._id, ())
        stack.callback(place.close)
        is_boxed = choice.kind == "box"
        run_place = RunPlace(
            root=self._root,
            run=self._id,
            spec=specs.open(place.root, self.change, order.spec),
            prd_ids=order.prd_ids,
            settings=self._settings,
            runners=make_runners(self._settings, is_boxed=is_boxed),
            folder=self.folder,
            log=log,
            workspace=place,
            is_boxed=is_boxed,
            slot=self.number,
        )
        self._place, self._executor = place, cast("LocalExecutor", stack.enter_context(run_place.open()))

    def _check(self, order: Order, choice: Choice, found: Findings, stop: Stop) -> None:
        gates = order.assignment.gates
        if choice.is_settled or not gates or found.is_suitable(choice.kind):
            return
        self.repository.run("checkout", "--quiet", "--force", "--detach", order.upon, own_index=False)
        folder = os.path.join(self.folder, f"check-{choice.kind}")
        seen = self._executor.check_workspace(gates, folder, stop, lambda output: "")
        if not stop():
            found.remember(choice.kind, seen.trouble)
        if seen.trouble:
            raise Unsuitable(seen.trouble)

    def close(self) -> None:
        self._stack.close()
        files.clear(self.folder)  # its records were already sent

    # --- an order -----------------------------------------------------------------------------------

    def carry_out(self, order: Order, worker: str, stop: Stop) -> Result:
        self._begin_session(order)
        act = {
            "work": self._work,
            "prove": self._prove,
            "gates-ahead": self._prove,
            "measure": self._measure,
            "tip": self._check_tip,
            "examine": self._examine,
        }[order.kind]
        made = act(order, stop)
        self.awaits_proof = order.kind in ("work", "gates-ahead") and bool(self.token)
        return structs.replace(made, worker=worker, session=self._read_session() if order.kind == "work" else {})

    def _read_session(self) -> dict[str, Any]:
        """What the agent has recorded. The loop does not know this machine's secrets, so it could not mask them."""
        return dict(secrets.mask(session.load(self._id), secrets.list_values()))

    def _begin_session(self, order: Order) -> None:
        """A fresh one each time; it keeps its creation time, by which the lock of the change recognizes it."""
        with session.LockedSession(self._id) as held:
            created = held.state["created_at"]
            held.state.clear()
            held.state.update(session.build_state(self._id, self.change), created_at=created)
            held.state["current_story_id"] = order.assignment.story or None
            held.state["iteration"] = order.iteration
            held.state["completed_tasks"] = list(order.completed)
            held.save()

    def _build_result(self, order: Order) -> Result:
        return Result(token=order.assignment.token, order=order.name, worker="", root=self.folder)

    def _work(self, order: Order, stop: Stop) -> Result:
        self.token = ""
        self._move_place(order)
        report = self._executor.work(order.assignment, stop)
        self.token = order.assignment.token
        return structs.replace(self._build_result(order), report=report)

    def _prove(self, order: Order, stop: Stop) -> Result:
        """Where the agent worked, its packages are installed; elsewhere the setup must install them."""
        report, assignment = order.report, structs.replace(order.assignment, kept=None, cut_off=None)
        if report is None or order.work is None:
            raise AssertionError("there is nothing to prove")
        if self.token != assignment.token:
            self.token = ""
            self._move_place(order)
            self._executor.make_ready(assignment, stop)
            self._place.mark_attempt()
        self._place.show_upon(order.upon, self.repository.tree_of(order.work))
        if self.token != assignment.token and has_manifest(report.paths):
            self._executor.set_up_anew(assignment, stop)
        run = self._executor.prove if order.kind == "prove" else self._executor.run_gates_ahead
        made = run(report, assignment, stop)
        if any(not one.ok for one in made.results) and (own := self._measure_here(order, assignment, stop)):
            made = run(structs.replace(report, baseline=own, ahead=()), assignment, stop)
        return structs.replace(self._build_result(order), report=made)

    def _measure_here(self, order: Order, assignment: Assignment, stop: Stop) -> Baseline | None:
        """The baseline on this machine, if it differs from the known one: a machine may lack a tool. Used once
        something is red with the work, which is in place again afterwards."""
        known = order.report.baseline if order.report else None
        if self._own_baseline[0] != order.upon:
            found, _ = self._executor.find_baseline(structs.replace(assignment, baseline=None), stop)
            self._own_baseline = (order.upon, found)
            self.token = ""
            self._place.show_upon(order.upon, self.repository.tree_of(str(order.work)))
            if order.report and has_manifest(order.report.paths):
                self._executor.set_up_anew(assignment, stop)
        own = self._own_baseline[1]
        return own if own and not stop() and (known is None or own.red != known.red) else None

    def _measure(self, order: Order, stop: Stop) -> Result:
        self.token = ""
        self._move_place(order)
        baseline, seconds = self._executor.measure(order.assignment, stop)
        return structs.replace(self._build_result(order), baseline=baseline, seconds=seconds)

    def _check_tip(self, order: Order, stop: Stop) -> Result:
        self.token = ""
        self._move_place(order)
        self._place.begin(None)
        folder = os.path.join(self.folder, order.assignment.folder)
        results = self._executor.check_tip(order.assignment.gates, folder, stop)
        return structs.replace(self._build_result(order), results=results)

    def _examine(self, order: Order, stop: Stop) -> Result:
        self.token = ""
        self._move_place(order)
        self._place.begin(None)
        return structs.replace(self._build_result(order), report=self._executor.examine(order.assignment, stop))

    def _move_place(self, order: Order) -> None:
        self.repository.set_refs({layout.BRANCHES + self.change: order.upon})
        self._place.catch_up(order.upon)

    def commit_work(self, tree: str, upon: str) -> str:
        return self.repository.commit(tree, [upon], "ralphtool: work\n")


def _describe(order: Order) -> tuple[object, ...]:
    """The values in which an order must match a bench."""
    return order.assignment.change, order.spec, order.settings, order.prd_ids, order.assignment.gates
