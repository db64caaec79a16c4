"""Iterations on this machine, one at a time in one workspace."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, structs

from ralphtool import agents, specs
from ralphtool.agents import End, Event, Job, McpServer
from ralphtool.agents.program import write_file
from ralphtool.core import secrets, session
from ralphtool.executors import Assignment, Report, disk, environment, setting_up, unignored
from ralphtool.executors.claims import must_prove
from ralphtool.executors.environment import HIDDEN_VARIABLES, build_path, check_session_id, redact
from ralphtool.executors.gate_series import GateSeries, is_cut_off
from ralphtool.executors.meter import Meter, Prices, UsageLimits, add_login_advice, find_smaller_limit
from ralphtool.executors.proving import Prover
from ralphtool.executors.spec_snapshot import SpecSnapshot, SpecWatch
from ralphtool.executors.tick_watch import TickWatch
from ralphtool.executors.transcript import StderrChunk
from ralphtool.executors.watchdog import Watchdog
from ralphtool.judging import gates, verdict
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.record import events, trace_ids
from ralphtool.sandbox import beneath
from ralphtool.settings import AgentSettings
from ralphtool.workspace.protected_state import ensure_real_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from ralphtool.agents import Reader, Runner
    from ralphtool.executors.process import ProcessResult, Supervisor
    from ralphtool.executors.workspace_check import CheckResult
    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.workspace import Workspace
    from ralphtool.workspace.protected_state import ProtectedState
    from ralphtool.workspace.snapshots import WorkspaceSnapshot

_Event = TypeVar("_Event", bound=Event)
_LONGEST_SHOWN = 2000  # characters of an agent's text in an event; the transcript has all of it


class ExecutorContext(Struct, frozen=True, kw_only=True):
    """The parts that a local executor works with."""

    workspace: Workspace
    supervisor: Supervisor
    runners: Sequence[Runner]
    log: Log
    protected_state: ProtectedState
    settings: Settings
    session_id: str
    change: str
    ref: str
    prd_ids: Sequence[str]
    folder: str  # of the run's records
    user_root: str  # the project's folder in the user's own tree
    slot: int = 0  # among those that work side by side


class LocalExecutor:
    """Runs one iteration after another in a workspace."""

    def __init__(self, place: ExecutorContext) -> None:
        self.context = place
        self._spec = SpecWatch(place.workspace.root, place.change, place.ref, place.session_id)
        self._secrets = secrets.list_values()
        self._rates: dict[str, float] = {}  # dollars per token, as each agent last reported them

    def execute(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        self.make_ready(assignment, stop)
        baseline, seconds = self.find_baseline(assignment, stop)
        report = structs.replace(self._work(assignment, stop), baseline=baseline, gate_seconds=seconds)
        return self.prove(report, assignment, stop) if must_prove(report, assignment, self.context.settings) else report

    def take_up(self, assignment: Assignment) -> Assignment:
        """Nothing to resume: a local agent dies with its run."""
        return assignment

    def work(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs an iteration whose work is proven later, together with the other lanes' work."""
        self.make_ready(assignment, stop)
        return self._work(assignment, stop)

    def measure(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """The baseline at the last checkpoint, measured where no agent works."""
        self.make_ready(assignment, stop)
        return self.find_baseline(assignment, stop)

    def make_ready(self, assignment: Assignment, stop: Callable[[], bool]) -> None:
        """Puts the workspace into the state that the iteration begins with."""
        self.context.supervisor.prepare(self.context.session_id)
        self._ensure_folders(assignment)
        if trouble := self.context.workspace.begin(assignment.kept):
            self.context.log.note(events.Notice(text=trouble))
        self.context.log.note_texts(self.context.workspace.take_notices())
        place, commands = self.context.workspace, self.context.settings.run.setup
        if set_up := setting_up.choose(place, commands, is_broken=assignment.fix):
            if assignment.kept:
                place.begin(None)  # setup runs on the checkpoint, not on an attempt's work
            set_up(place, commands, self._build_series(assignment, stop))
            if assignment.kept:
                place.begin(assignment.kept)

    def _work(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs the agent, and inspects its work."""
        before = self._spec.read(assignment.story)
        self.context.workspace.mark_attempt()
        if assignment.cut_off and (trouble := self.context.workspace.begin(assignment.kept, assignment.cut_off)):
            self.context.log.note(events.Notice(text=trouble))
        if stop():
            return Report(ending="stopped", end=End(False))
        self.context.protected_state.remember(session.load(self.context.session_id))
        loading = _prepare_judging()
        watch = self._watch_ticks(assignment, before)
        report = self._run_agent(assignment, partial(watch.look_and_ask, stop), loading.start)
        watch.look(at_once=True)  # the gates may take long
        if loading.ident:  # otherwise no agent could be started
            loading.join()
        return self._inspect_work(report, assignment, before)

    def examine(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        runner = self._find_runner(assignment)
        if not runner.traits.read_only:
            return Report(ending="not-started", end=End(False, reason=f"{runner.name} has no read-only mode"))
        self._ensure_folders(assignment)
        self.context.protected_state.remember(session.load(self.context.session_id))
        folder = os.path.join(self._find_folder(assignment), "check")
        os.makedirs(folder, exist_ok=True)
        job = Job(
            prompt=write_file(os.path.join(folder, "prompt.md"), assignment.prompt),
            root=self.context.workspace.root,
            folder=folder,
            attempt=assignment.attempt,
            read_only=True,
            cost=assignment.cost,
        )
        before = self._spec.read(assignment.story)
        # A session that does not exist: a read-only agent has nothing to tick or to record.
        env = self._build_environment(assignment) | environment.build_check_variables(
            self.context.session_id, assignment.run, assignment.number
        )
        wall = find_smaller_limit(self.context.settings.run.timeout, assignment.seconds)
        report = self._drive_agent(assignment, job, env, wall, stop)
        self._undo_changes(before, folder)
        return report

    def draft(self, assignment: Assignment, folder: str, stop: Callable[[], bool]) -> Report:
        """Runs the agent so that it may write into one folder, and only read everything else."""
        os.makedirs(self._find_folder(assignment), exist_ok=True)
        can_draft = self._find_runner(assignment).traits.drafts
        job = Job(
            prompt=write_file(os.path.join(self._find_folder(assignment), "prompt.md"), assignment.prompt),
            root=self.context.workspace.root,
            folder=self._find_folder(assignment),
            attempt=assignment.attempt,
            read_only=can_draft,
            draft=folder,
            cost=assignment.cost,
        )
        env = self._build_environment(assignment) | {"RALPH_SESSION": check_session_id(self.context.session_id)}
        wall = find_smaller_limit(self.context.settings.run.timeout, assignment.seconds)
        return self._drive_agent(assignment, job, env, wall, stop)

    def check_tip(self, gates: Sequence[str], directory: str, stop: Callable[[], bool]) -> tuple[GateResult, ...]:
        os.makedirs(directory, exist_ok=True)
        series = self._build_gates(directory, stop)
        setting_up.ensure(self.context.workspace, self.context.settings.run.setup, series)
        results = series.run("tip", gates)
        self._mark_dirty()
        return () if is_cut_off(results, gates) else tuple(results)

    def check_workspace(
        self, gates: Sequence[str], directory: str, stop: Callable[[], bool], suggest: Callable[[str], str]
    ) -> CheckResult:
        """Checks whether the gates can be trusted in this workspace. Sets it up first, if needed."""
        from ralphtool.executors.process import Supervisor
        from ralphtool.executors.workspace_check import CheckResult, check_workspace
        from ralphtool.workspace.worktree import Worktree

        place, series = self.context.workspace, self._build_gates(directory, stop)
        if not isinstance(place, Worktree):
            return CheckResult()
        os.makedirs(directory, exist_ok=True)
        place.begin(None)
        setting_up.ensure(self.context.workspace, self.context.settings.run.setup, series)
        with Supervisor() as free:
            outside = structs.replace(series, root=self.context.user_root, supervisor=free, shown_root="")
            return check_workspace(place, series, outside, gates, suggest)

    def _undo_changes(self, before: SpecSnapshot, folder: str) -> None:
        """Reverts the changes that it was not prevented from making, before the next agent begins."""
        self.context.protected_state.restore_changed(os.path.join(folder, "touched"), self.context.prd_ids)
        self.context.workspace.take()  # this restores git's own files
        self._mark_dirty()
        if self.context.workspace.branch is None:
            before.restore()

    def _find_runner(self, assignment: Assignment) -> Runner:
        return next(runner for runner in self.context.runners if runner.name == assignment.agent)

    def _find_folder(self, assignment: Assignment) -> str:
        return os.path.join(self.context.folder, assignment.folder)

    def _ensure_folders(self, assignment: Assignment) -> None:
        """An agent, or its `git clean`, may have removed ralphtool's folders."""
        ensure_real_folder(self.context.protected_state.folder)
        self.context.log.restore()
        os.makedirs(self._find_folder(assignment), exist_ok=True)

    # --- before the agent -----------------------------------------------------------------------

    def set_up_anew(self, assignment: Assignment, stop: Callable[[], bool]) -> None:
        """The work in place needs other packages than those installed here: another machine has installed them."""
        self._build_series(assignment, stop).set_up_all(self.context.settings.run.setup)

    def find_baseline(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """The red gates and passing tests at the last checkpoint; known unless the environment may have changed."""
        if not assignment.gates:
            return None, 0.0
        key = gates.build_key(self.context.workspace.checkpoint_tree, assignment.gates)
        if assignment.baseline and assignment.baseline.key == key and not assignment.fix:
            return assignment.baseline, 0.0
        self.context.workspace.begin(None)
        results = self._build_series(assignment, stop).run("before", assignment.gates)
        self._mark_dirty()
        self.context.workspace.begin(assignment.kept)
        unignored.refuse_lost(self.context.workspace, results)
        # An interrupted gate means nothing: if it counted as red, it could never be newly red.
        found = None if is_cut_off(results, assignment.gates) else gates.build_baseline(key, results)
        return found, sum(one.seconds for one in results)

    def _build_series(
        self, assignment: Assignment, stop: Callable[[], bool], before: Baseline | None = None
    ) -> GateSeries:
        return self._build_gates(self._find_folder(assignment), stop, assignment.number, assignment.story, before)

    def _build_gates(
        self,
        directory: str,
        stop: Callable[[], bool],
        iteration: int = 0,
        story: str = "",
        before: Baseline | None = None,
    ) -> GateSeries:
        return GateSeries(
            supervisor=self.context.supervisor,
            root=self.context.workspace.root,
            log=self.context.log,
            timeout=self.context.settings.verify.timeout,
            secrets=self._secrets,
            directory=directory,
            iteration=iteration,
            story=story,
            before=before,
            stop=stop,
            shown_root=self.context.workspace.shown_root,
            slot=self.context.slot,
        )

    def _mark_dirty(self) -> None:
        """Commands leave files behind that are not part of the work."""
        self.context.workspace.mark_dirty()

    # --- the agent ------------------------------------------------------------------------------

    def _run_agent(self, assignment: Assignment, stop: Callable[[], bool], meanwhile: Callable[[], None]) -> Report:
        job = Job(
            prompt=write_file(os.path.join(self._find_folder(assignment), "prompt.md"), assignment.prompt),
            root=self.context.workspace.root,
            folder=self._find_folder(assignment),
            attempt=assignment.attempt,
            cost=assignment.cost,
            mcp=self._build_mcp_server(assignment),
        )
        wall = find_smaller_limit(self.context.settings.run.timeout, assignment.seconds)
        report = self._drive_agent(assignment, job, self._build_environment(assignment), wall, stop, meanwhile)
        if report.ending == "wall-clock" and assignment.seconds and wall == assignment.seconds:
            return structs.replace(report, ending="stopped")  # the run's time was up
        return report

    def _watch_ticks(self, assignment: Assignment, before: SpecSnapshot) -> TickWatch:
        """Records ticks when the agent makes them, not only when its work is judged."""
        story = specs.find_story(before.stories, assignment.story)

        def read() -> frozenset[str]:
            return self._spec.read(assignment.story).ticked

        def tell(ticked: frozenset[str]) -> None:
            ids = tuple(task.id for task in story.tasks if task.id in ticked)
            done, total, number = len(ids), len(story.tasks), assignment.number
            event = events.Ticked(story=story.id, ticked=ids, tasks_done=done, tasks_total=total, iteration=number)
            self.context.log.note(event)

        paths = (
            [os.path.join(before.path, name) for name in before.files] if os.path.isdir(before.path) else [before.path]
        )
        return TickWatch([*paths, session.path_of(self.context.session_id)], read, before.ticked, tell)

    def _drive_agent(
        self,
        assignment: Assignment,
        job: Job,
        env: dict[str, str],
        wall: float,
        stop: Callable[[], bool],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Report:
        """Starts the agent, and follows it to its end."""
        runner = self._find_runner(assignment)
        meter, reader = self._build_meter(assignment, runner), runner.reader(job)
        watch = Watchdog(reader, meter, stop)
        start = runner.start(job)
        running = self.context.supervisor.run(
            start.argv,
            cwd=job.root,
            env=env | start.env,
            stdin=start.stdin,
            into=os.path.join(job.folder, "transcript.log"),
            wall=wall,
            silence=self.context.settings.run.silence,
            secrets=self._secrets,
            stop=watch.must_end,
            complaints=True,
            writable=(job.folder, *start.folders),
            meanwhile=meanwhile,
        )
        report = watch.explain(self._follow_agent(assignment, running, reader, meter))
        if meter.rate is not None:
            self._rates[runner.name] = meter.rate
        beneath.sweep(job.folder, with_links=True)  # later writes there must not follow a link elsewhere
        redact(job.folder, self._secrets)
        return add_login_advice(report, runner)

    def _build_meter(self, assignment: Assignment, runner: Runner) -> Meter:
        settings = self.context.settings
        configured = settings.agents.get(runner.name)
        names = (configured.model or "" if configured else "", runner.name)
        limits = UsageLimits(assignment.tokens, assignment.cost, settings.run.patience)
        return Meter(limits, Prices(settings.prices, names, self._rates.get(runner.name)))

    def _build_mcp_server(self, assignment: Assignment) -> McpServer | None:
        """ralphtool's commands as tools. An agent with a free shell needs none, and starting a server delays it."""
        runner = self._find_runner(assignment)
        configured = self.context.settings.agents.get(runner.name) or AgentSettings()
        is_wanted = configured.permissions != "all" if configured.mcp is None else configured.mcp
        if not (runner.traits.mcp and is_wanted and importlib.util.find_spec("mcp")):
            return None
        env = self._session_variables(assignment)
        env |= {name: os.environ[name] for name in ("TMPDIR", "HOME") if name in os.environ}
        # Not the command on its PATH: an agent may have replaced it.
        return McpServer((sys.executable, "-I", "-m", "ralphtool", "mcp"), env)

    def _build_environment(self, assignment: Assignment) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in HIDDEN_VARIABLES}
        return inherited | self.context.workspace.agent_variables | self._session_variables(assignment)

    def _session_variables(self, assignment: Assignment) -> dict[str, str]:
        own = {
            "RALPH_SESSION": self.context.session_id,
            "RALPH_STORY": assignment.story,
            "RALPH_TOKEN": assignment.token,
            "RALPH_ATTEMPT": str(assignment.attempt),
            "RALPH_WORKSPACE": self.context.workspace.shown_root,
            "PATH": build_path(self.context.folder),
            "TRACEPARENT": trace_ids.build_traceparent(assignment.run or self.context.session_id, assignment.number),
        }
        slot = {"RALPH_SLOT": str(self.context.slot)} if self.context.slot else {}
        return own | slot | ({"RALPH_TASK": assignment.task} if assignment.task else {})

    def _follow_agent(
        self, assignment: Assignment, running: Generator[bytes, None, ProcessResult], reader: Reader, meter: Meter
    ) -> Report:
        """Reads the agent's events until it ends, or has used up its budget."""
        ended: ProcessResult | None = None
        began = time.monotonic()
        while reader.is_over or not meter.is_over:
            try:
                chunk = next(running)
            except StopIteration as end:
                ended = end.value
                break
            read = reader.feed_errors if isinstance(chunk, StderrChunk) else reader.feed
            self._record_events(assignment, read(chunk), meter)
        running.close()
        failure = meter.failure if meter.is_retrying else None
        self._record_events(assignment, reader.rest(), meter)
        end_event = self._mask_secrets(reader.end(ended.exit_code if ended else -15))
        self._log_event(assignment, end_event)
        return Report(
            ending=ended.why if ended else "budget",
            end=end_event,
            detail=ended.detail if ended else "",
            # Events that are read after the end of an agent don't change why it had to be ended.
            failure=meter.failure if ended and ended.why == "exit" else failure,
            quotas=meter.quotas,
            usage=meter.usage,
            left=ended.left if ended else (),
            agent_seconds=time.monotonic() - began,
        )

    def _record_events(self, assignment: Assignment, emitted: Iterable[Event], meter: Meter) -> None:
        for event in emitted:
            event = self._mask_secrets(event)
            self._log_event(assignment, event)
            meter.count(event)

    def _mask_secrets(self, event: _Event) -> _Event:
        """Some agents are read from their own files, which are not redacted."""
        if not self._secrets:
            return event
        texts = {name: value for name, value in structs.asdict(event).items() if isinstance(value, str)}
        return structs.replace(event, **secrets.mask(texts, self._secrets))

    def _log_event(self, assignment: Assignment, event: Event) -> None:
        shortened = {name: _truncate(value) for name, value in structs.asdict(event).items()}
        said = cast("events.AgentEvent", structs.replace(event, **shortened))  # runners emit only these
        self.context.log.note(events.Agent(event=said, iteration=assignment.number, story=assignment.story))

    # --- after the agent ------------------------------------------------------------------------

    def _inspect_work(self, report: Report, assignment: Assignment, before: SpecSnapshot) -> Report:
        """Adds the agent's diff and its ticks to the report."""
        report = self._look_at_disk(report)
        self._ensure_folders(assignment)
        kept = os.path.join(self._find_folder(assignment), "touched")
        touched = self.context.protected_state.restore_changed(kept, self.context.prd_ids)
        taken = self.context.workspace.take()
        self.context.log.note_texts(self.context.workspace.take_notices())
        self.context.log.note_texts(unignored.list_committed(self.context.workspace, taken.paths))
        ticked, edited = self._spec.compare(before, assignment.story)
        if edited and self.context.workspace.branch is None:
            before.restore()
        findings = [*touched, *taken.findings, *edited, *self._find_agent_config(taken, assignment)]
        report = structs.replace(
            report,
            ticked_before=before.ticked,
            ticked=ticked,
            tree=taken.tree,
            paths=taken.paths,
            findings=tuple(findings) if self.context.settings.run.guard != "off" else (),
            trouble=taken.trouble,
            full_disk=report.full_disk or taken.full_disk,
            required=frozenset(task.id for task in specs.find_story(before.stories, assignment.story).required),
        )
        return self._look_at_disk(report)

    def _find_agent_config(self, taken: WorkspaceSnapshot, assignment: Assignment) -> list[GuardFinding]:
        """Agent configuration in the project's files takes effect at the next start, including commands to run."""
        if not self._find_runner(assignment).traits.is_kept:
            return []
        told = "it would allow agents more than you have allowed"
        known = [*self.context.runners, *agents.list_runners()]
        return [GuardFinding("agent-config", path, told) for path in taken.paths if agents.is_agent_config(path, known)]

    def prove(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs the gates on work that is in place, and collects the evidence that a story is done."""
        prover = self._build_prover(report, assignment, stop)
        has_claimed = verdict.parse_claim(report.end.message, assignment.token).complete
        report = prover.prove(report, is_whole=has_claimed and report.required <= report.ticked)
        report = self._look_at_disk(report)
        return structs.replace(report, ending="stopped") if stop() else report

    def _look_at_disk(self, report: Report) -> Report:
        return disk.look_at(report, self.context.workspace, self.context.folder)

    def run_gates_ahead(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        """Runs only the gates, on work that is in place and may become the newest."""
        return self._build_prover(report, assignment, stop).run_gates_ahead(report)

    def _build_prover(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Prover:
        series = self._build_series(assignment, stop, report.baseline)
        own = os.path.relpath(self._spec.find_path(), self.context.workspace.root)
        return Prover(self.context.workspace, series, assignment, self.context.settings, own)


def _prepare_judging() -> threading.Thread:
    """Once started, imports the judging modules while the agent is busy: at any other time that would cause a delay."""
    names = ("guard.diff", "guard.spec", "testresults.reading")
    load = [f"ralphtool.judging.{name}" for name in names]
    return threading.Thread(target=lambda: [importlib.import_module(name) for name in load], daemon=True)


def _truncate(value: Any) -> Any:
    return value[:_LONGEST_SHOWN] if isinstance(value, str) else value
