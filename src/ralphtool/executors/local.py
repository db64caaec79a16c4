"""Iterations on this machine, one at a time in one workspace."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, structs

from ralphtool import agents, specs
from ralphtool.agents import End, Event, Job, Mcp
from ralphtool.agents.program import written
from ralphtool.core import secrets, session
from ralphtool.errors import RalphError, SetupFailed
from ralphtool.executors import Assignment, Report, gate_run, spec_files
from ralphtool.executors.environment import path_with_us, redact, session_of_check
from ralphtool.executors.meter import Limits, Meter, Prices
from ralphtool.executors.transcript import Complaint
from ralphtool.executors.watchdog import Watch
from ralphtool.judging import gates, verdict
from ralphtool.judging.guard.model import Finding
from ralphtool.record import events
from ralphtool.settings import Agent
from ralphtool.workspace.protected_state import make_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from ralphtool.agents import Reader, Runner
    from ralphtool.executors.process import Ended, Keeper
    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec, Story
    from ralphtool.workspace import Workspace
    from ralphtool.workspace.protected_state import Ours
    from ralphtool.workspace.tree import Taken

_Event = TypeVar("_Event", bound=Event)
_MOST_TESTS = 100  # names of failed tests in an event
_LONGEST_SHOWN = 2000  # characters of an agent's words in an event; the transcript has them all
_KEPT_BACK = ("RALPH_SESSION", "RALPH_STORY", "RALPH_TOKEN", "RALPH_ATTEMPT", "RALPH_TASK", "RALPH_WORKSPACE")


class Place(Struct, frozen=True, kw_only=True):
    """What a local executor works with."""

    workspace: Workspace
    keeper: Keeper
    runners: Sequence[Runner]
    log: Log
    ours: Ours
    settings: Settings
    session_id: str
    change: str
    ref: str
    prd_ids: Sequence[str]
    folder: str  # where the run's records lie


class _Spec(Struct, frozen=True):
    """The spec as it was when an iteration began."""

    path: str
    files: Mapping[str, bytes]
    stories: Sequence[Story]
    ticked: frozenset[str]


class Here:
    """Runs one iteration after the other in a workspace."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._secrets = secrets.values()
        self._rates: dict[str, float] = {}  # dollars for a token, as each agent told them last

    def execute(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        self._ensure_folders(assignment)
        if trouble := self.place.workspace.begin(assignment.kept):
            self.place.log.note(events.Notice(text=trouble))
        if assignment.fix or self.place.workspace.needs_setup:
            self._set_up(assignment, stop)
        baseline, before_seconds = self._baseline(assignment, stop)
        before = self._read_spec(assignment.story)
        if assignment.cut_off and (trouble := self.place.workspace.begin(assignment.kept, assignment.cut_off)):
            self.place.log.note(events.Notice(text=trouble))
        if stop():
            return Report(ending="stopped", end=End(False), baseline=baseline)
        self.place.ours.remember(session.load(self.place.session_id))
        report = self._run_agent(assignment, stop)
        return self._examined(
            structs.replace(report, baseline=baseline, gate_seconds=before_seconds), assignment, before, stop
        )

    def examine(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        runner = self.place.runners[assignment.agent]
        if not runner.traits.read_only:
            return Report(ending="not-started", end=End(False, reason=f"{runner.name} has no read-only mode"))
        self._ensure_folders(assignment)
        self.place.ours.remember(session.load(self.place.session_id))
        folder = os.path.join(assignment.directory, "check")
        os.makedirs(folder, exist_ok=True)
        job = Job(
            prompt=written(os.path.join(folder, "prompt.md"), assignment.prompt),
            root=self.place.workspace.root,
            folder=folder,
            attempt=assignment.attempt,
            read_only=True,
            cost=assignment.cost,
        )
        before = self._read_spec(assignment.story)
        # A session that is not there: whoever only looks has nothing to tick, and nothing to record.
        env = self._environment(assignment) | {"RALPH_SESSION": session_of_check(self.place.session_id)}
        wall = _shorter(self.place.settings.run.timeout, assignment.seconds)
        report = self._driven(assignment, job, env, wall, stop)
        self._take_back(before, folder)
        return report

    def _take_back(self, before: _Spec, folder: str) -> None:
        """Whatever it was not kept from changing is not there any more when the next one begins."""
        self.place.ours.touched(os.path.join(folder, "touched"), self.place.prd_ids)
        self.place.workspace.take()  # which puts right what git itself keeps
        self._disturbed()
        if self.place.workspace.branch is None:
            self._put_spec_back(before)

    def _ensure_folders(self, assignment: Assignment) -> None:
        """An agent, or its `git clean`, may have taken away what is ours."""
        make_plain(self.place.ours.folder)
        self.place.log.mend()
        os.makedirs(assignment.directory, exist_ok=True)

    # --- before the agent -----------------------------------------------------------------------

    def _set_up(self, assignment: Assignment, stop: Callable[[], bool]) -> None:
        """Runs the set-up commands. If one fails, no agent can do anything about it."""
        for number, command in enumerate(self.place.settings.run.setup, 1):
            log = os.path.join(assignment.directory, f"setup-{number}.log")
            one = gate_run.run(command, self._gate_place(stop), log, self.place.settings.verify.timeout)
            self.place.log.note(_setup_event(one, assignment))
            if one.why == "stopped" or stop():
                return  # it is not set up, then
            if not one.ok:
                ending = one.why or f"exit status {one.exit_code}"
                raise SetupFailed(f"the set-up command `{command}` failed ({ending}): mend it; its output is in {log}")
        self.place.workspace.was_set_up()
        self._disturbed()

    def _gate_place(self, stop: Callable[[], bool]) -> gate_run.Place:
        env = {name: value for name, value in os.environ.items() if name not in _KEPT_BACK}
        return gate_run.Place(self.place.keeper, self.place.workspace.root, env, self._secrets, stop)

    def _baseline(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """What is red before the agent begins, unless that is known already."""
        if not assignment.gates:
            return None, 0.0
        key = gates.key(self.place.workspace.tree, assignment.gates)
        if assignment.baseline and assignment.baseline.key == key:
            return assignment.baseline, 0.0
        results = self._run_gates("before", assignment, None, stop)
        self._disturbed()
        self.place.workspace.begin(assignment.kept)
        seconds = sum(one.seconds for one in results)
        # A gate that was cut off tells nothing: taken for red, it could never be newly red.
        return (None if _cut_off(results, assignment) else gates.baseline(key, results)), seconds

    def _disturbed(self) -> None:
        """Commands leave files behind that are nobody's work."""
        self.place.workspace.disturbed()

    def _run_gates(
        self, when: str, assignment: Assignment, before: Baseline | None, stop: Callable[[], bool]
    ) -> list[GateResult]:
        results: list[GateResult] = []
        for number, command in enumerate(assignment.gates, 1):
            if stop():
                break
            begun = events.GateStarted(when=when, command=command, iteration=assignment.number, story=assignment.story)
            self.place.log.note(begun)
            log = os.path.join(assignment.directory, f"gate-{number}-{when}.log")
            one = gate_run.run(command, self._gate_place(stop), log, self.place.settings.verify.timeout)
            red = gates.newly_red([one], before) if before else []
            new = [test for fresh in red for test in fresh.tests or [command]]
            self.place.log.note(_gate_event(one, when, new, assignment))
            results.append(one)
        return results

    def _spec(self) -> Spec:
        return specs.open(self.place.workspace.root, self.place.change, self.place.ref)

    def _read_spec(self, story_id: str) -> _Spec:
        spec = self._spec()
        stories = spec.stories(session.load(self.place.session_id)["completed_tasks"])
        story = specs.story_by_id(stories, story_id)
        return _Spec(spec.path, spec_files.read(spec), stories, frozenset(task.id for task in story.tasks if task.done))

    # --- the agent ------------------------------------------------------------------------------

    def _run_agent(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        job = Job(
            prompt=written(os.path.join(assignment.directory, "prompt.md"), assignment.prompt),
            root=self.place.workspace.root,
            folder=assignment.directory,
            attempt=assignment.attempt,
            cost=assignment.cost,
            mcp=self._mcp(assignment),
        )
        wall = _shorter(self.place.settings.run.timeout, assignment.seconds)
        report = self._driven(assignment, job, self._environment(assignment), wall, stop)
        if report.ending == "wall-clock" and assignment.seconds and wall == assignment.seconds:
            return structs.replace(report, ending="stopped")  # it was the run's time that was up
        return report

    def _driven(
        self, assignment: Assignment, job: Job, env: dict[str, str], wall: float, stop: Callable[[], bool]
    ) -> Report:
        """Starts the agent, and follows it to its end."""
        runner = self.place.runners[assignment.agent]
        meter, reader = self._meter(assignment, runner), runner.reader(job)
        watch = Watch(reader, meter, stop)
        start = runner.start(job)
        running = self.place.keeper.run(
            start.argv,
            cwd=job.root,
            env=env | start.env,
            stdin=start.stdin,
            into=os.path.join(job.folder, "transcript.log"),
            wall=wall,
            silence=self.place.settings.run.silence,
            secrets=self._secrets,
            stop=watch.has_to_end,
            complaints=True,
        )
        report = watch.explained(self._followed(assignment, running, reader, meter))
        if meter.rate is not None:
            self._rates[runner.name] = meter.rate
        redact(job.folder, self._secrets)
        return _advised(report, runner)

    def _meter(self, assignment: Assignment, runner: Runner) -> Meter:
        settings = self.place.settings
        configured = settings.agents.get(runner.name)
        names = (configured.model or "" if configured else "", runner.name)
        limits = Limits(assignment.tokens, assignment.cost, settings.run.patience)
        return Meter(limits, Prices(settings.prices, names, self._rates.get(runner.name)))

    def _mcp(self, assignment: Assignment) -> Mcp | None:
        """Our commands as tools. Whoever has a free shell needs none, and a server that starts keeps him waiting."""
        runner = self.place.runners[assignment.agent]
        configured = self.place.settings.agents.get(runner.name) or Agent()
        is_wanted = configured.permissions != "all" if configured.mcp is None else configured.mcp
        if not (runner.traits.mcp and is_wanted and importlib.util.find_spec("mcp")):
            return None
        env = self._own(assignment)
        env |= {name: os.environ[name] for name in ("TMPDIR", "HOME") if name in os.environ}
        # Not the command that is on its PATH: an agent may have put another one in its place.
        return Mcp((sys.executable, "-I", "-m", "ralphtool", "mcp"), env)

    def _environment(self, assignment: Assignment) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in _KEPT_BACK} | self._own(assignment)

    def _own(self, assignment: Assignment) -> dict[str, str]:
        """The session's variables."""
        own = {
            "RALPH_SESSION": self.place.session_id,
            "RALPH_STORY": assignment.story,
            "RALPH_TOKEN": assignment.token,
            "RALPH_ATTEMPT": str(assignment.attempt),
            "RALPH_WORKSPACE": self.place.workspace.root,
            "PATH": path_with_us(self.place.folder),
        }
        return own | ({"RALPH_TASK": assignment.task} if assignment.task else {})

    def _followed(
        self, assignment: Assignment, running: Generator[bytes, None, Ended], reader: Reader, meter: Meter
    ) -> Report:
        """Reads the agent's events until it ends, or has used up what it may."""
        ended: Ended | None = None
        began = time.monotonic()
        while reader.is_over or not meter.is_over:
            try:
                chunk = next(running)
            except StopIteration as end:
                ended = end.value
                break
            read = reader.feed_errors if isinstance(chunk, Complaint) else reader.feed
            self._take(assignment, read(chunk), meter)
        running.close()
        failure = meter.failure if meter.is_retrying else None
        self._take(assignment, reader.rest(), meter)
        end_event = self._masked(reader.end(ended.exit_code if ended else -15))
        self._note(assignment, end_event)
        return Report(
            ending=ended.why if ended else "budget",
            end=end_event,
            detail=ended.detail if ended else "",
            # What an agent tells of its past when it is gone changes nothing in how we had to end it.
            failure=meter.failure if ended and ended.why == "exit" else failure,
            quotas=meter.quotas,
            usage=meter.usage,
            left=ended.left if ended else (),
            agent_seconds=time.monotonic() - began,
        )

    def _take(self, assignment: Assignment, emitted: Iterable[Event], meter: Meter) -> None:
        for event in emitted:
            event = self._masked(event)
            self._note(assignment, event)
            meter.count(event)

    def _masked(self, event: _Event) -> _Event:
        """Some agents are read from files of their own, which nobody has redacted."""
        if not self._secrets:
            return event
        texts = {name: value for name, value in structs.asdict(event).items() if isinstance(value, str)}
        return structs.replace(event, **secrets.masked(texts, self._secrets))

    def _note(self, assignment: Assignment, event: Event) -> None:
        shortened = {name: _short(value) for name, value in structs.asdict(event).items()}
        said = cast("events.Said", structs.replace(event, **shortened))  # a runner emits no other kinds
        self.place.log.note(events.Agent(event=said, iteration=assignment.number, story=assignment.story))

    # --- after the agent ------------------------------------------------------------------------

    def _examined(self, report: Report, assignment: Assignment, before: _Spec, stop: Callable[[], bool]) -> Report:
        """What the agent left: its diff, its ticks, and whether the gates are green."""
        self._ensure_folders(assignment)
        touched = self.place.ours.touched(os.path.join(assignment.directory, "touched"), self.place.prd_ids)
        taken = self.place.workspace.take()
        ticked, edited = self._read_again(before, assignment.story)
        if edited and self.place.workspace.branch is None:
            self._put_spec_back(before)
        story = specs.story_by_id(before.stories, assignment.story)
        findings = [*touched, *taken.findings, *edited, *self._cheats(taken, story), *self._freed(taken, assignment)]
        report = structs.replace(
            report,
            ticked_before=before.ticked,
            ticked=ticked,
            tree=taken.tree,
            paths=taken.paths,
            findings=tuple(findings) if self.place.settings.run.guard != "off" else (),
            trouble=taken.trouble,
        )
        return self._proven(report, assignment, stop) if self._worth_proving(report, assignment) else report

    def _read_again(self, before: _Spec, story_id: str) -> tuple[frozenset[str], list[Finding]]:
        from ralphtool.judging.guard.spec import look_at_spec

        try:
            spec = self._spec()
            stories = spec.stories(session.load(self.place.session_id)["completed_tasks"])
            story = specs.story_by_id(stories, story_id)
            after = spec_files.read(spec)
        except RalphError as error:
            return before.ticked, [Finding("spec-edited", self.place.change, str(error))]
        ticked = frozenset(task.id for task in story.tasks if task.done)
        done_key = getattr(spec, "done_key", None)
        found = look_at_spec(before.files, after, before.stories, stories, story_id, done_key=done_key)
        is_fine = found and spec_files.has_only_ticks(
            self.place.workspace.root, before.files, spec, sorted(ticked - before.ticked)
        )
        return ticked, [] if is_fine else found

    def _put_spec_back(self, before: _Spec) -> None:
        """Without git nothing else can take it back."""
        spec_files.write(before.path, before.files)

    def _cheats(self, taken: Taken, story: Story) -> list[Finding]:
        from ralphtool.judging.guard.diff import look, may_change_tests

        own = os.path.relpath(self._spec_path(), self.place.workspace.root)
        found = look([one for one in taken.changes if f"/{own}" not in f"/{one.path}"])
        return [] if may_change_tests(story) else found

    def _freed(self, taken: Taken, assignment: Assignment) -> list[Finding]:
        """What agents are told in the project's own files holds from their next start on, commands to run included."""
        if not self.place.runners[assignment.agent].traits.is_kept:
            return []
        told = "agents would be allowed more by it than you have allowed"
        known = [*self.place.runners, *agents.known()]
        return [Finding("agent-config", path, told) for path in taken.paths if agents.configures(path, known)]

    def _spec_path(self) -> str:
        try:
            return self._spec().path
        except RalphError:
            return os.path.join(self.place.workspace.root, self.place.change)

    def _worth_proving(self, report: Report, assignment: Assignment) -> bool:
        if report.ending == "stopped" or report.trouble or not assignment.gates or verdict.is_transient(report):
            return False
        if report.findings and self.place.settings.run.guard == "fail":
            return False
        claimed = verdict.claim(report.end.message, assignment.token).complete
        return claimed or bool(report.ticked - report.ticked_before)

    def _proven(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        before = report.baseline or gates.baseline("", ())
        results = self._run_gates("after", assignment, before, stop)
        self._disturbed()
        return structs.replace(
            report,
            results=tuple(results),
            red=tuple(gates.newly_red(results, before)),
            gates_ran=True,
            gate_seconds=report.gate_seconds + sum(one.seconds for one in results),
            ending="stopped" if stop() or _cut_off(results, assignment) else report.ending,
        )


def _cut_off(results: Sequence[GateResult], assignment: Assignment) -> bool:
    """Whether somebody stopped the gates before all of them had their say."""
    return len(results) < len(assignment.gates) or any(one.why == "stopped" for one in results)


def _advised(report: Report, runner: Runner) -> Report:
    """Who is not logged in can't be helped by waiting: the one who reads this has to know what to do."""
    failure = report.failure
    if failure is None or failure.trouble != "login" or not runner.traits.login_hint:
        return report
    return structs.replace(
        report, failure=structs.replace(failure, text=f"{runner.traits.login_hint} ({failure.text})")
    )


def _shorter(one: float, other: float) -> float:
    """Of two limits the one that comes first; 0 is none."""
    return min(one, other) if one and other else one or other


def _short(value: Any) -> Any:
    return value[:_LONGEST_SHOWN] if isinstance(value, str) else value


def _setup_event(result: GateResult, assignment: Assignment) -> events.Setup:
    return events.Setup(
        command=result.command,
        ok=result.ok,
        exit_code=result.exit_code,
        seconds=result.seconds,
        log=result.log,
        iteration=assignment.number,
        story=assignment.story,
    )


def _gate_event(result: GateResult, when: str, new: Sequence[str], assignment: Assignment) -> events.Gate:
    return events.Gate(
        when=when,
        new=tuple(new),
        command=result.command,
        ok=result.ok,
        exit_code=result.exit_code,
        seconds=round(result.seconds, 3),
        failed=(result.failed or ())[:_MOST_TESTS],
        tally=result.tally,
        log=result.log,
        iteration=assignment.number,
        story=assignment.story,
    )
