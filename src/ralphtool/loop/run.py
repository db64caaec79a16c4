"""One run from start to end: locks a change, runs the loop over its stories, and releases everything.

A program starts a run with `start`. Nothing is printed here: events go to the record, which a viewer reads.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import Struct, structs, to_builtins

from ralphtool import settings as settings_module
from ralphtool import specs, workspace
from ralphtool.core import gate_commands, layout, lifecycle, locks
from ralphtool.errors import ChangeNotFound, InvalidValue, RalphError, SpecError, from_os_error
from ralphtool.history import History
from ralphtool.loop import agent_notices, finished_before, gate_notices, publishing, workspace_choice
from ralphtool.loop.notify import Notifier
from ralphtool.loop.run_place import RunPlace
from ralphtool.loop.runners import build_agent_options, check_runners, make_runners, register_secrets
from ralphtool.loop.same_plan import hold_plan
from ralphtool.loop.story_list import list_prd_ids, list_stories
from ralphtool.loop.workspace_choice import Choice, Findings, Unsuitable
from ralphtool.record import change_state, events, receipts
from ralphtool.record.event_parts import RunGates, RunLimits
from ralphtool.record.events import RunEnded
from ralphtool.record.log import open_log
from ralphtool.record.run_folder import build_id, make_folder
from ralphtool.specs import remaining, titles
from ralphtool.workspace import branch
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_state import ProtectedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ralphtool.agents import Runner
    from ralphtool.executors import LaneExecutor
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.judging.gates import Baseline
    from ralphtool.loop.loop import Loop
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec
    from ralphtool.workspace import Workspace

    Viewer = Callable[[str], AbstractContextManager[object]]

__all__ = ["RunResult", "StopRequest", "recover", "start"]

_NO_LANES = "stories are worked on one after the other: working side by side needs a box for each story"


class StopRequest:
    """Asks a run to stop: it soon ends its current work, and restores the user's files."""

    def __init__(self) -> None:
        self.count = 0  # how often it was asked
        self.is_closing = False  # the run is restoring the user's files: don't interrupt that

    def ask(self) -> None:
        self.count += 1


class RunResult(Struct, frozen=True, kw_only=True):
    """How a run ended, and its record (None if nothing was left to run)."""

    record: str | None
    ended: RunEnded


def start(
    root: str | os.PathLike[str],
    change: str,
    settings: Settings | None = None,
    *,
    ref: str | None = None,
    runners: Sequence[Runner] = (),
    viewer: Viewer = nullcontext,
    stop: StopRequest | None = None,
) -> RunResult:
    """Runs agents over the stories of a change until every one is done, or it must stop.

    `ref` names the spec if the change's name is not enough. Without `settings` those of the project apply, and
    without `runners` the settings name the agents. The viewer gets the path of the record, and stays open during
    the run.
    """
    root = os.path.abspath(root)
    notices = recover(root)
    settings = settings or settings_module.load(root)
    return start_recovered(root, change, settings, ref, runners, viewer, stop or StopRequest(), notices)


def start_recovered(
    root: str,
    change: str,
    settings: Settings,
    ref: str | None,
    runners: Sequence[Runner],
    viewer: Viewer,
    stop: StopRequest,
    notices: Sequence[str] = (),
) -> RunResult:
    """Like `start`, for a caller that has already called `recover`. `notices` go into the record."""
    notices = [*notices, *publishing.prepare(root, change, ref, settings, lambda: stop.count > 0)]
    with _open_spec(root, change, ref) as spec:
        if is_finished(root, spec):
            return _build_empty_result(spec.change)
    branch.check_can_exist(root, spec.change)
    if settings.run.workspace == "here":
        from ralphtool.workspace import in_place

        in_place.check_not_busy(root)
    register_secrets(settings)
    checked = _find_runners(settings, runners)
    return _start_run(root, spec, settings, checked, viewer, stop, notices, are_given=bool(runners))


def _find_runners(settings: Settings, given: Sequence[Runner]) -> Sequence[Runner]:
    """The agents, checked if they work on this machine."""
    if settings.run.executor == "local":
        return check_runners(given or make_runners(settings))
    if given:
        raise InvalidValue("workers start agents by name: define yours in the settings, under [agents]")
    return make_runners(settings)


@contextmanager
def _open_spec(root: str, change: str, ref: str | None) -> Iterator[Spec]:
    """The change as the user has it; if that can no longer be read, as the branch has it."""
    try:
        spec = specs.open(root, change, ref)
        remaining.check_can_run(root, spec)
    except (ChangeNotFound, SpecError):
        with branch.open_spec(root, change, ref or change_state.load(root, change).spec or None) as on_branch:
            if on_branch is None:
                raise
            remaining.check_has_tasks(on_branch, on_branch.stories())
            yield on_branch
    else:
        yield spec


# --- before a run -----------------------------------------------------------------------------------


def recover(root: str | os.PathLike[str]) -> list[str]:
    """Reverts changes by the agents of killed runs to ralphtool's files, and describes them.

    A program that reads the project's settings itself calls this first.
    """
    root = os.path.abspath(root)
    return [text for change, session_id in _find_killed(root) for text in recover_from(root, change, session_id)]


def _find_killed(root: str) -> Iterator[tuple[str, str]]:
    """The changes whose run was killed, each with the session that held it."""
    repository = Repository.find(root)
    if repository and os.path.lexists(layout.stash_note(repository.gitdir)):
        from ralphtool.workspace import in_place  # most runs don't need it

        note = in_place.find_note(repository, root)
        if note and locks.read_lock(root, note.change) is None:
            yield note.change, note.run
    for change in locks.list_locked_changes(root):
        lock = locks.read_lock(root, change)
        if lock is not None and lock.has_dead_owner:
            yield change, lock.session_id


def recover_from(root: str, change: str, session_id: str) -> Iterator[str]:
    """Ends the programs that a killed run left, and restores what they changed in `.ralph`; yields what was done."""
    from ralphtool.executors import process
    from ralphtool.executors.environment import check_session_id

    ours = ProtectedState(root, change, session_id)  # first: it reads the run's last sign of life, which changes below
    record, beside = layout.processes(root, session_id), layout.list_processes(root, session_id)
    check = check_session_id(session_id)
    for name in [*process.end_orphans(record, session_id, *beside), *process.end_orphans(record, check)]:
        yield f"Stopped a process that the last run left behind: {name}"
    for found in ours.recover():
        yield f"Restored {found.path}, which the agent of the last run had changed"


def is_finished(root: str, spec: Spec) -> bool:
    """Whether the change is done and was finished earlier, by ralphtool or by hand."""
    stories = spec.stories()
    if not stories or not all(story.done for story in stories) or (repository := Repository.find(root)) is None:
        return False
    has_branch, was_finished = (repository.resolve(one + spec.change) for one in (layout.BRANCHES, layout.FINISHED))
    return not has_branch and (bool(was_finished) or receipts.is_settled(root, spec.change))


def _build_empty_result(change: str) -> RunResult:
    reason = f"{change} is complete and finished: nothing left to run"
    return RunResult(record=None, ended=RunEnded(result="done", reason=reason))


# --- the run ----------------------------------------------------------------------------------------


def _start_run(
    root: str,
    spec: Spec,
    settings: Settings,
    runners: Sequence[Runner],
    viewer: Viewer,
    stop: StopRequest,
    notices: Sequence[str],
    *,
    are_given: bool,
) -> RunResult:
    """Locks the change, opens the record, and runs the loop."""
    history = History(root)
    history.check()
    notices = [*notices, *history.describe_migration()]
    change_state.load(root, spec.change)
    id = build_id(spec.change)
    is_resumed = locks.read_lock(root, spec.change) is not None
    lifecycle.begin(root, id, spec.change, spec.ref, locks.describe_process())
    try:
        with hold_plan(Repository.find(root), root, spec, f"the run {id}"):
            return _run_locked(root, spec, settings, runners, viewer, stop, notices, history, id, are_given=are_given)
    except Exception:
        # A program that embeds ralphtool survives an error, and may start the next run.
        with suppress(RalphError, OSError):
            lifecycle.abort(id, root, spec.change, is_resumed=is_resumed)
        raise


def _run_locked(
    root: str,
    spec: Spec,
    settings: Settings,
    runners: Sequence[Runner],
    viewer: Viewer,
    stop: StopRequest,
    notices: Sequence[str],
    history: History,
    id: str,
    *,
    are_given: bool,
) -> RunResult:
    folder = make_folder(root, id)
    with open_log(root, id) as log, viewer(log.path):
        run = _ActiveRun(
            root=root,
            spec=spec,
            settings=settings,
            runners=runners,
            are_given=are_given,
            stop=stop,
            id=id,
            folder=folder,
            history=history,
            log=log,
            notifier=Notifier(settings.notify.command, root, folder),
        )
        return RunResult(record=log.path, ended=run.execute(notices))


class _ActiveRun(Struct, frozen=True, kw_only=True):
    """One run that has locked its change: the loop over it, and the cleanup."""

    root: str
    spec: Spec
    settings: Settings
    runners: Sequence[Runner]
    are_given: bool  # by a program, not named by the settings
    stop: StopRequest
    id: str
    folder: str  # of its records
    history: History
    log: Log
    notifier: Notifier
    make_place: Callable[..., RunPlace] = RunPlace

    def execute(self, notices: Sequence[str]) -> RunEnded:
        """The result of the run, which is also the last event of the record."""
        try:
            return self._record_end(self._work(notices))
        except (RalphError, OSError) as error:
            told = from_os_error(error) if isinstance(error, OSError) else error
            self._record_end(RunEnded(result="unfinished", reason=str(told)))
            raise
        finally:
            self.notifier.close()

    def _record_end(self, end: RunEnded) -> RunEnded:
        """A run that was refused before it started has no record: only the notification reports it."""
        is_refused = self.log.is_empty
        news = {name: to_builtins(getattr(end, name)) for name in ("result", "reason", "stories", "tip", "spent")}
        before = self.stop.count
        not_told = self.notifier.tell(event="run_ended", run=self.id, change=self.spec.change, **news)
        failed = self.notifier.finish(lambda: self.stop.count > before)
        if is_refused:
            return end
        for trouble in filter(None, (not_told, failed)):
            self.log.note(events.Notice(text=trouble))
        return self.log.end(end)

    def _work(self, notices: Sequence[str]) -> RunEnded:
        commands = gate_commands.find_commands(self.root)
        gates = [*commands.checks, *commands.tests]
        repository = Repository.find(self.root)
        found = Findings(repository, self.settings, gates, self.spec.change) if repository else None
        if self.settings.run.executor != "local":
            return self._work_elsewhere(repository, found, gates, notices)
        for number, choice in enumerate(workspace_choice.list_choices(self.settings, repository, found)):
            run = self
            if choice.kind == "box" and not self.are_given:
                run = structs.replace(self, runners=make_runners(self.settings, is_boxed=True))
            try:
                return run._work_in(choice, found, gates, notices, is_announced=number > 0)
            except Unsuitable as error:
                if refusal := workspace_choice.explain_refusal(self.settings, choice.kind, error.trouble):
                    raise InvalidValue(refusal) from None
                self.stop.is_closing = False
        raise AssertionError("there is always a folder to work in")

    def _work_elsewhere(
        self, repository: Repository | None, found: Findings | None, gates: Sequence[str], notices: Sequence[str]
    ) -> RunEnded:
        from ralphtool.loop.remote_place import RemoteRun

        away = RemoteRun(repository, self.root, self.spec.change, self.id, self.settings, self.stop, self.log)
        with away.open_places() as make_place:
            run = structs.replace(self, make_place=make_place)
            return run._work_in(Choice(kind="workers", is_settled=True), found, gates, notices, is_announced=False)

    def _work_in(
        self,
        choice: Choice,
        found: Findings | None,
        gates: Sequence[str],
        notices: Sequence[str],
        *,
        is_announced: bool,
    ) -> RunEnded:
        own_branch = layout.branch(self.spec.change) if found else None
        announce = partial(self._announce, own_branch, choice.kind, gates, notices)
        if not is_announced and not branch.may_exist(self.root):
            announce(self.spec)  # there is no other version of the plan yet, so this need not wait for the workspace
            is_announced = True
        kind = "box" if choice.kind == "workers" else choice.kind
        finished_before.forget_other_claims(self.root, self.spec)
        place = workspace.make(self.root, self.spec.change, kind, lambda: self.stop.count > 0)
        opened = place.open(self.id, specs.list_own_paths(self.root, self.spec)) + self._take_up_slots()
        try:
            if not is_announced:
                announce(specs.open(place.root, self.spec.change, self.spec.ref))
            result = self._run_loop(place, choice, found, gates, opened)
        except BaseException:
            place.keep_interrupted(self.id)
            raise
        finally:
            self.stop.is_closing = True
            place.close()
            self.log.note_texts(place.take_notices())
        publishing.report(self.log, self.root, self.spec, self.settings, lambda: self.stop.count > 0, during_run=False)
        lifecycle.end(self.id, self.root, lambda state: None)
        return result

    def _take_up_slots(self) -> list[str]:
        """Resumes what a killed run with several lanes has left."""
        repository = Repository.find(self.root)
        if repository is None or not layout.list_slots(repository.common, self.spec.change):
            return []
        from ralphtool.workspace import slots

        return slots.take_up_left(repository, self.root, self.spec.change)

    def _run_loop(
        self, place: Workspace, choice: Choice, found: Findings | None, gates: Sequence[str], opened: Sequence[str]
    ) -> RunEnded:
        first = self._build_place(place, choice)
        with first.open() as executor:
            notices, blind = self._check_workspace(choice, executor, found, gates)
            self._announce_place(choice, [*opened, *notices])
            ended = self._build_loop(first, gates, executor, blind).run()
        from ralphtool.loop import run_result  # needed only now

        return run_result.complete(ended, self.log.path)

    def _build_place(self, place: Workspace, choice: Choice) -> RunPlace:
        return self.make_place(
            root=self.root,
            run=self.id,
            spec=self.spec,
            prd_ids=list_prd_ids(specs.open(place.root, self.spec.change, self.spec.ref)),
            settings=self.settings,
            runners=self.runners,
            folder=self.folder,
            log=self.log,
            workspace=place,
            is_boxed=choice.kind in ("box", "workers"),
        )

    def _check_workspace(
        self, choice: Choice, executor: LaneExecutor, known: Findings | None, gates: Sequence[str]
    ) -> tuple[Sequence[str], frozenset[str]]:
        """Before the first run with these gates: checks whether they can be trusted there. Returns notices, and the
        gates that notice no broken code."""
        if choice.kind == "here" or choice.is_settled or not gates or known is None or known.is_suitable(choice.kind):
            return (), known.list_blind() if known else frozenset()
        directory = os.path.join(self.folder, f"check-{choice.kind}")
        suggest = partial(workspace_choice.suggest, choice.kind, self.root, self.settings.sandbox, self.log.path)
        here = cast("LocalExecutor", executor)
        found = here.check_workspace(gates, directory, lambda: self.stop.count > 0, suggest)
        if self.stop.count == 0 and (found.trouble or found.is_final(gate_commands.find_commands(self.root).tests)):
            known.remember(choice.kind, found.trouble)
        if found.trouble:
            raise Unsuitable(found.trouble)
        if found.baseline:
            self._keep_baseline(found.baseline)
        unstartable = gate_notices.list_tried(self.settings, self.root, found.results)
        return [*found.notices, *unstartable], found.blind or frozenset()

    def _keep_baseline(self, found: Baseline) -> None:
        """The first story begins with this baseline."""
        state = change_state.load(self.root, self.spec.change)
        state.baseline = found
        change_state.save(self.root, self.spec.change, state)

    def _build_loop(self, place: RunPlace, gates: Sequence[str], executor: LaneExecutor, blind: frozenset[str]) -> Loop:
        from ralphtool.loop.change import Change
        from ralphtool.loop.loop import Loop, Parts

        change = Change(self.root, self.id, self.spec.change, self.spec.ref, place.workspace, self.history)
        change.agent_options = self._build_agent_options()
        parts = Parts(
            change=change,
            folder=self.folder,
            settings=self.settings,
            gates=gates,
            executor=executor,
            agents=[runner.name for runner in self.runners],
            log=self.log,
            stop=lambda: self.stop.count > 0,
            box=self._describe_box(place.workspace),
            blind=set(blind),
            notify=self.notifier.tell,
        )
        if self.settings.run.side_by_side == 1 and self.settings.run.executor == "local":
            return Loop(parts)
        if not place.is_boxed:
            self.log.note(events.Notice(text=_NO_LANES))
            return Loop(parts)
        from ralphtool.loop.side_by_side import SideBySide

        return SideBySide(parts, place, executor)

    def _build_agent_options(self) -> str:
        return build_agent_options(self.root, self.settings, self.runners if self.are_given else ())

    def _describe_box(self, place: Workspace) -> str:
        from ralphtool.loop import box_words

        is_boxed = box_words.is_boxed(place)
        return box_words.describe_box(self.settings, self.runners, self.root) if is_boxed else ""

    def _announce(
        self, own_branch: str | None, kind: str, gates: Sequence[str], notices: Sequence[str], spec: Spec
    ) -> None:
        """Records the first event. The workspace is announced later, when it is decided."""
        run = self.settings.run
        self.log.add(
            events.RunStarted(
                run=self.id,
                change=spec.change,
                title=titles.find_title(spec),
                agent=self.runners[0].name,
                agent_options=self._build_agent_options(),
                adapter=spec.adapter,
                workspace=kind,
                branch=own_branch,
                pid=os.getpid(),
                stories=list_stories(self.root, spec),
                limits=RunLimits(**{name: getattr(run, name) for name in settings_module.list_limits()}),
                gates=RunGates(commands=tuple(gates)),
            )
        )
        doubts = gate_notices.list_at_start(self.settings, self.root, gates)
        for text in [*notices, *remaining.read_warnings(spec), *doubts]:
            self.log.note(events.Notice(text=text))

    def _announce_place(self, choice: Choice, notices: Sequence[str]) -> None:
        self.log.add(events.WorkspaceChosen(kind=choice.kind, why=choice.why, help=choice.help))
        agents = agent_notices.list_agent_notices(self.runners, self.settings)
        if choice.kind == "box":
            from ralphtool.loop import box_words, cloud_login

            agents += cloud_login.list_notices(self.settings, self.runners, self.root)
            agents += box_words.list_filter_notices(self.root)
        for text in [*choice.describe(), *notices, *agents]:
            self.log.note(events.Notice(text=text))
