"""One run from start to end: locks a change, runs the loop over its stories, and releases everything.

A program starts a run with `start`. Nothing is printed here: what happens goes to the record, which a viewer reads.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs, to_builtins

from ralphtool import agents, specs, workspace
from ralphtool import settings as settings_module
from ralphtool.core import files, gate_commands, layout, lifecycle, locks, secrets
from ralphtool.errors import InvalidValue, RalphError, SpecError, shorten
from ralphtool.history import History
from ralphtool.loop import budget
from ralphtool.loop.notify import Notifier
from ralphtool.record import change_state, events
from ralphtool.record.event_parts import RunGates, RunLimits, StoryBefore
from ralphtool.record.events import RunEnded
from ralphtool.record.log import Log
from ralphtool.specs import scaffold
from ralphtool.workspace import in_place
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_state import ProtectedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ralphtool.agents import Runner
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.executors.process import Supervisor
    from ralphtool.loop.loop import Loop
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec, Story
    from ralphtool.workspace import Workspace

    Viewer = Callable[[str], AbstractContextManager[object]]

__all__ = ["RunResult", "StopRequest", "recover", "start"]

_LONGEST_ID = 180  # it becomes a part of file names and refs
_NO_GATE = "there is no gate: stories will be done, not proven; set [verify]"


class StopRequest:
    """Asks a run to stop: it soon ends what it is doing, and restores the user's files."""

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
    """Runs agents over the stories of a change until every one is done, or it has to stop.

    `ref` names the spec where a change's name is not enough. Without `settings` those of the project apply, and
    without `runners` the settings name the agents. The viewer gets the path of the record, and stays open while
    it runs.
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
    """The same, for a caller that has called `recover` already. `notices` go into the record."""
    spec = specs.open(root, change, ref)
    scaffold.check_filled_in(spec)
    if is_finished(root, spec):
        return _build_empty_result(spec.change)
    register_secrets(settings)
    checked = check_runners(runners or make_runners(settings))
    return _start_run(root, spec, settings, checked, viewer, stop, notices)


# --- before a run -----------------------------------------------------------------------------------


def recover(root: str | os.PathLike[str]) -> list[str]:
    """Puts back what the agents of killed runs did to our files, and describes it.

    A program that reads the project's settings itself calls this first.
    """
    root = os.path.abspath(root)
    return [text for change, session_id in _find_killed(root) for text in _recover_from(root, change, session_id)]


def _find_killed(root: str) -> Iterator[tuple[str, str]]:
    """The changes whose run was killed, each with the session that held it."""
    repository = Repository.find(root)
    if repository and (note := in_place.find_note(repository, root)) and locks.read_lock(root, note.change) is None:
        yield note.change, note.run
    for change in locks.list_locked_changes(root):
        lock = locks.read_lock(root, change)
        if lock is not None and lock.has_dead_owner:
            yield change, lock.session_id


def _recover_from(root: str, change: str, session_id: str) -> Iterator[str]:
    from ralphtool.executors import process
    from ralphtool.executors.environment import check_session_id

    ours = ProtectedState(root, change, session_id)  # which looks for its last sign of life, before we change that
    record = layout.processes(root, session_id)
    check = check_session_id(session_id)
    for name in [*process.end_orphans(record, session_id), *process.end_orphans(record, check)]:
        yield f"A process that the last run left was ended: {name}"
    for found in ours.recover():
        yield f"The agent of the last run had changed {found.path}: it is put back"


def is_finished(root: str, spec: Spec) -> bool:
    """Whether all of it was done, and taken over, in an earlier run."""
    if not all(story.done for story in spec.stories()) or (repository := Repository.find(root)) is None:
        return False
    is_known = repository.resolve(layout.FINISHED + spec.change) is not None
    return is_known and repository.resolve(layout.BRANCHES + spec.change) is None


def _build_empty_result(change: str) -> RunResult:
    reason = f"{change} is done and finished: nothing is left to run"
    return RunResult(record=None, ended=RunEnded(result="done", reason=reason))


def register_secrets(settings: Settings) -> None:
    """Keeps what the agents get in their environment out of every record."""
    for agent in settings.agents.values():
        secrets.register(agent.env)


def make_runners(settings: Settings) -> list[Runner]:
    """The agents that the settings name, the first choice first."""
    run = settings.run
    names = [run.agent, *(name for name in run.agents if name != run.agent)] if run.agent else list(run.agents)
    if not names:
        raise InvalidValue(
            'no agent is named: give one with --agent-command "…" or --agent NAME, or set agent = "…" under [run] '
            "in .ralph/config.toml"
        )
    return [agents.make(name, _read_options(settings, name)) for name in names]


def _read_options(settings: Settings, name: str) -> dict[str, Any]:
    found = settings.agents.get(name)
    return structs.asdict(found) if found else {}


def check_runners(runners: Sequence[Runner]) -> Sequence[Runner]:
    """The same agents, after each has checked that it can work."""
    for runner in runners:
        runner.check()
    return runners


# --- the run ----------------------------------------------------------------------------------------


def _start_run(
    root: str,
    spec: Spec,
    settings: Settings,
    runners: Sequence[Runner],
    viewer: Viewer,
    stop: StopRequest,
    notices: Sequence[str],
) -> RunResult:
    """Locks the change, opens the record, and runs the loop."""
    history = History(root)
    history.check()
    change_state.load(root, spec.change)
    id = _build_id(spec.change)
    lifecycle.begin(root, id, spec.change, spec.ref, locks.describe_process())
    try:
        return _run_locked(root, spec, settings, runners, viewer, stop, notices, history, id)
    except Exception:
        # A program that embeds us lives on after an error, and may start the next run: that takes over what is left.
        with suppress(RalphError, OSError):
            lifecycle.unlock(root, spec.change, force=True)
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
) -> RunResult:
    folder = _make_folder(root, id)
    with closing(Log(layout.events(root, id))) as log, viewer(log.path):
        run = _ActiveRun(
            root=root,
            spec=spec,
            settings=settings,
            runners=runners,
            stop=stop,
            id=id,
            folder=folder,
            history=history,
            log=log,
            notifier=Notifier(settings.notify.command, root, folder),
        )
        return RunResult(record=log.path, ended=run.execute(notices))


def _build_id(change: str) -> str:
    return f"{change[:90]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(2).hex()}"


def _make_folder(root: str, run: str) -> str:
    for parent in (layout.runs(root), layout.change_states(root)):
        files.ensure_folder(parent)
        ignore = os.path.join(parent, ".gitignore")
        if not os.path.lexists(ignore):
            files.create(ignore, b"*\n", 0o644)
    folder = layout.run(root, run)
    files.ensure_folder(folder)
    return folder


class _ActiveRun(Struct, frozen=True, kw_only=True):
    """One run that has locked its change: the loop over it, and the cleanup."""

    root: str
    spec: Spec
    settings: Settings
    runners: Sequence[Runner]
    stop: StopRequest
    id: str
    folder: str  # where its records lie
    history: History
    log: Log
    notifier: Notifier

    def execute(self, notices: Sequence[str]) -> RunEnded:
        """What it came to, which is also the last event of the record."""
        try:
            result = self._work(notices)
            self._record_end(result)
        except (RalphError, OSError) as error:
            self._record_end(RunEnded(result="unfinished", reason=str(error)))
            raise
        finally:
            self.notifier.close()
        return result

    def _record_end(self, end: RunEnded) -> None:
        news = {name: to_builtins(getattr(end, name)) for name in ("result", "reason", "stories", "tip", "spent")}
        before = self.stop.count
        not_told = self.notifier.tell(event="run_ended", run=self.id, change=self.spec.change, **news)
        failed = self.notifier.finish(lambda: self.stop.count > before)
        for trouble in filter(None, (not_told, failed)):
            self.log.note(events.Notice(text=trouble))
        self.log.add(end)

    def _work(self, notices: Sequence[str]) -> RunEnded:
        place = workspace.make(self.root, self.spec.change, self.settings.run.workspace)
        commands = gate_commands.find_commands(self.root)
        opened = place.open(self.id, specs.list_own_paths(self.root, self.spec))
        try:
            result = self._run_loop(place, [*commands.checks, *commands.tests], [*notices, *opened])
        except BaseException:
            place.keep_interrupted(self.id)
            raise
        finally:
            self.stop.is_closing = True
            place.close()
        lifecycle.end(self.id, self.root, lambda state: None)
        return result

    def _run_loop(self, place: Workspace, gates: Sequence[str], notices: Sequence[str]) -> RunEnded:
        spec = specs.open(place.root, self.spec.change, self.spec.ref)
        prd_ids = _list_prd_ids(spec)
        ours = ProtectedState(self.root, self.spec.change, self.id)
        self._announce(spec, place, gates, notices)
        from ralphtool.executors.process import Supervisor  # slow to import, and not needed for the first event

        try:
            with Supervisor(layout.processes(self.root, self.id)) as supervisor:
                return self._build_loop(place, gates, self._build_executor(place, supervisor, ours, prd_ids)).run()
        except BaseException:
            ours.restore_interrupted()
            raise
        finally:
            ours.forget()

    def _build_executor(
        self, place: Workspace, supervisor: Supervisor, ours: ProtectedState, prd_ids: Sequence[str]
    ) -> LocalExecutor:
        from ralphtool.executors.local import ExecutorContext, LocalExecutor

        return LocalExecutor(
            ExecutorContext(
                workspace=place,
                supervisor=supervisor,
                runners=self.runners,
                log=self.log,
                protected_state=ours,
                settings=self.settings,
                session_id=self.id,
                change=self.spec.change,
                ref=self.spec.ref,
                prd_ids=prd_ids,
                folder=self.folder,
            )
        )

    def _build_loop(self, place: Workspace, gates: Sequence[str], executor: LocalExecutor) -> Loop:
        from ralphtool.loop.change import Change
        from ralphtool.loop.loop import Loop, Parts

        return Loop(
            Parts(
                change=Change(self.root, self.id, self.spec.change, self.spec.ref, place, self.history),
                folder=self.folder,
                settings=self.settings,
                gates=gates,
                executor=executor,
                agents=[runner.name for runner in self.runners],
                log=self.log,
                stop=lambda: self.stop.count > 0,
                notify=self.notifier.tell,
            )
        )

    def _announce(self, spec: Spec, place: Workspace, gates: Sequence[str], notices: Sequence[str]) -> None:
        run = self.settings.run
        self.log.add(
            events.RunStarted(
                run=self.id,
                change=spec.change,
                agent=self.runners[0].name,
                adapter=spec.adapter,
                workspace=run.workspace,
                branch=place.branch,
                pid=os.getpid(),
                stories=_describe_stories(self.root, spec),
                limits=RunLimits(**{name: getattr(run, name) for name in settings_module.list_limits()}),
                gates=RunGates(commands=tuple(gates)),
            )
        )
        for text in [*notices, *([] if gates else [_NO_GATE]), *_list_agent_notices(self.runners, self.settings)]:
            self.log.note(events.Notice(text=text))


def _list_prd_ids(spec: Spec) -> list[str]:
    """What the history calls the stories. Two that share a name would share their attempts as well."""
    known: dict[str, str] = {}
    for story in spec.stories():
        prd_id = specs.prd_id(spec, story.id)
        if len(prd_id) > _LONGEST_ID:
            raise SpecError(f"{spec.path}: the story {shorten(story.id)} has too long an id: give it a shorter one")
        other = known.setdefault(prd_id, story.id)
        if other != story.id:
            raise SpecError(
                f"{spec.path}: the stories {other} and {story.id} are the same to the history, which knows small "
                "letters and digits only: rename one of them"
            )
    return list(known)


# --- what the first event says -----------------------------------------------------------------------


def _describe_stories(root: str, spec: Spec) -> tuple[StoryBefore, ...]:
    """How each story stands when the run begins."""
    stands = change_state.load(root, spec.change)
    return tuple(
        StoryBefore(
            id=story.id,
            title=story.title,
            tasks_total=len(story.tasks),
            tasks_done=story.tasks_done,
            done=story.done,
            state=_describe_state(story, stands.stories.get(story.id)),
            optional=story.optional,
            depends_on=tuple(story.depends_on),
            proof=_find_proof(story, stands.stories.get(story.id)),
        )
        for story in spec.stories()
    )


def _describe_state(story: Story, state: change_state.StoryState | None) -> str:
    if story.done:
        return "done"
    if state and state.question:
        return "waiting"
    return "skipped" if state and state.decision and state.decision.action == "skip" else "open"


def _find_proof(story: Story, state: change_state.StoryState | None) -> str:
    return state.proof.state if story.done and state and state.proof else ""


def _list_agent_notices(runners: Sequence[Runner], settings: Settings) -> list[str]:
    """What each of the agents may do, and limits that can't hold for it."""
    notices = [text for runner in runners for text in runner.traits.notices]
    unknown = [(runner.name, budget.explain_unknown_cost(runner, settings)) for runner in runners]
    if settings.run.max_cost or settings.run.story_cost:
        notices += [f"the limit of cost can't hold for {name}: {why}" for name, why in unknown if why]
    return notices
