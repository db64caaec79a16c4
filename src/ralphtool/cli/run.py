"""`ralphtool run` and what belongs to it: explain, attempts, diff, finish, back."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs, to_builtins

from ralphtool import agents, specs, workspace
from ralphtool import settings as settings_module
from ralphtool.cli import arguments
from ralphtool.core import files, gate_commands, layout, lifecycle, locks, project, quickjson, secrets
from ralphtool.core.text import printable
from ralphtool.errors import InvalidValue, RalphError, SpecError, UsageError, shorten
from ralphtool.executors import process
from ralphtool.executors.environment import session_of_check
from ralphtool.executors.local import Here, Place
from ralphtool.history import History
from ralphtool.loop import budget
from ralphtool.loop.change import Change
from ralphtool.loop.loop import Loop, Parts
from ralphtool.loop.notify import Notifier
from ralphtool.record import change_state, overview
from ralphtool.record.log import NAME, Log
from ralphtool.specs import scaffold
from ralphtool.views.terminal import raw
from ralphtool.workspace import in_place
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_state import Ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.agents import Runner
    from ralphtool.loop.run_result import Result
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec
    from ralphtool.workspace import Workspace

_INTERRUPTED = 130
_LONGEST_ID = 180  # it becomes a part of file names and refs
_FLAGS = [one for one in settings_module.describe() if one.flag]


def _settings_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every setting of `[run]` as a flag; its help stands with the setting."""
    for one in reversed(_FLAGS):
        is_switch = one.default in ("true", "false")
        extra: dict[str, Any] = {"is_flag": True, "flag_value": "true"} if is_switch else {"metavar": "VALUE"}
        default = f" [default: {one.default}]" if one.default and not is_switch else ""
        command = click.option(str(one.flag), one.key, default=None, help=f"{one.help}{default}", **extra)(command)
    return command


@click.command()
@click.argument("change", **arguments.OPTIONAL)
@click.option("--spec", metavar="FORMAT", help="The format, or the Markdown file, that holds the change.")
@click.option(
    "--agent-command", metavar="COMMAND", help="The agent, as it would be typed: the prompt comes on its stdin."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, the gates and the first prompt, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one JSON object a line, for programs.")
@_settings_flags
def run(
    change: str | None, spec: str | None, agent_command: str | None, dry_run: bool, as_json: bool, **flags: Any
) -> int:
    """Run an agent over the stories of a change until every one is done and proven.

    Work happens on the branch ralph/CHANGE; your own files, committed or not, are back as they were at the end. Ctrl-C
    stops it, and running it again goes on where it was.

    \b
    Examples:
      ralphtool run add-login --agent-command "my-agent --headless"
      ralphtool run                                  the only change there is, with the configured agent
      ralphtool run add-login --dry-run              what it would do, and the first prompt
      ralphtool run add-login --max-time 8h --max-iterations 40
      ralphtool run add-login --json | jq -r 'select(.type == "verdict") | .summary'
    """
    root = project.find()
    if not dry_run:
        _recover_ours(root)
    loaded = settings_module.load(root, flags)
    ref = specs.ref_of(root, spec)
    found = specs.open(root, change or specs.change_of(ref) or overview.only(root), ref)
    if not dry_run:
        scaffold.refuse_untouched(found)
    if _is_finished(root, found):
        click.echo(f"{found.change} is done and finished: nothing is left to run.")
        return 0
    for agent in loaded.agents.values():
        secrets.know(agent.env)
    if dry_run:
        return _show_plan(root, found, loaded, agent_command, as_json=as_json)
    runners = _runners(loaded, agent_command)
    result = _Run(root, found, loaded, runners).go(as_json=as_json)
    return {"done": 0, "unfinished": 1, "interrupted": _INTERRUPTED}[result.result]


def _is_finished(root: str, spec: Spec) -> bool:
    """Whether all of it was done, and taken over, in an earlier run."""
    repository = Repository.find(root)
    is_known = repository is not None and repository.resolve(layout.FINISHED + spec.change) is not None
    has_branch = repository is not None and repository.resolve(layout.BRANCHES + spec.change) is not None
    return is_known and not has_branch and all(story.done for story in spec.stories())


def _show_plan(root: str, spec: Spec, settings: Settings, agent_command: str | None, *, as_json: bool) -> int:
    """The exit code tells whether a run could begin."""
    from ralphtool.cli import plan
    from ralphtool.loop import dryrun

    commands = gate_commands.commands(root)
    made = dryrun.plan(root, spec, settings, [*commands.checks, *commands.tests])
    agents, troubles = [], []
    try:
        agents = [runner.name for runner in _runners(settings, agent_command)]
    except RalphError as error:
        troubles.append(str(error))
    try:
        scaffold.refuse_untouched(spec)
    except RalphError as error:
        troubles.append(str(error))
    if as_json:
        click.echo(quickjson.dumps({**to_builtins(made), "agents": agents, "trouble": "; ".join(troubles) or None}))
    else:
        plan.show(made, agents, troubles)
    return 1 if troubles else 0


def _recover_ours(root: str) -> None:
    """After runs that were killed: what their agents did to our files is put back before anybody reads them."""
    repository = Repository.find(root)
    if repository and (note := in_place.waiting(repository, root)) and locks.read_lock(root, note.change) is None:
        _recover_from(root, note.change, note.run)
    for change in locks.held(root):
        lock = locks.read_lock(root, change)
        if lock is not None and lock.owner_died:
            _recover_from(root, change, lock.session_id)


def _recover_from(root: str, change: str, session_id: str) -> None:
    ours = Ours(root, change, session_id)  # which looks for its last sign of life, before we change that
    record = os.path.join(root, ".ralph", "runs", session_id, "processes")
    check = session_of_check(session_id)
    for name in [*process.end_orphans(record, session_id), *process.end_orphans(record, check)]:
        click.echo(f"A process that the last run left was ended: {printable(name)}", err=True)
    for found in ours.recover():
        click.echo(f"The agent of the last run had changed {printable(found.path)}: it is put back", err=True)


def _runners(settings: Settings, agent_command: str | None) -> list[Runner]:
    if agent_command is not None:
        made = [agents.make("command", {"command": _words(agent_command)})]
    else:
        run = settings.run
        names = [run.agent, *(name for name in run.agents if name != run.agent)] if run.agent else list(run.agents)
        if not names:
            raise InvalidValue(
                'no agent is named: give one with --agent-command "…" or --agent NAME, or set agent = "…" under [run] '
                "in .ralph/config.toml"
            )
        made = [agents.make(name, _options(settings, name)) for name in names]
    for runner in made:
        runner.check()
    return made


def _options(settings: Settings, name: str) -> dict[str, Any]:
    found = settings.agents.get(name)
    return structs.asdict(found) if found else {}


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--agent-command: {error}: mend the quotes") from None
    if not words:
        raise UsageError('--agent-command is empty: say which program, as in --agent-command "my-agent"')
    return words


class _Run:
    """One run, from taking the change to giving everything back."""

    def __init__(self, root: str, spec: Spec, settings: Settings, runners: Sequence[Runner]) -> None:
        self.root = root
        self.spec = spec
        self.settings = settings
        self.runners = runners
        self.id = _run_id(spec.change)
        self.folder = os.path.join(root, ".ralph", "runs", self.id)
        self.interrupts = 0
        self.is_closing = False  # what is under way then must not be cut off

    def go(self, *, as_json: bool) -> Result:
        history = History(self.root)
        history.check()
        change_state.load(self.root, self.spec.change)
        lifecycle.begin(self.root, self.id, self.spec.change, self.spec.ref, locks.this_process())
        self._make_folder()
        log = Log(os.path.join(self.folder, NAME))
        notifier = Notifier(self.settings.notify.command, self.root, self.folder)
        with _Signals(self), _Viewer(log.path, as_json=as_json):
            try:
                result = self._work(history, log, notifier)
                self._end(log, notifier, **structs.asdict(result))
            except (RalphError, OSError) as error:
                self._end(log, notifier, result="unfinished", reason=str(error), stories=[], spent={}, next=[])
                raise
            finally:
                notifier.close()
        if not as_json:
            from ralphtool.views.terminal import summary

            summary.show({"type": "run_ended", **structs.asdict(result)}, self.spec.change)
        return result

    def _end(self, log: Log, notifier: Notifier, **fields: Any) -> None:
        told = {name: fields[name] for name in ("result", "reason", "stories", "spent")}
        before = self.interrupts
        not_told = notifier.tell(event="run_ended", run=self.id, change=self.spec.change, **told)
        failed = notifier.finish(lambda: self.interrupts > before)
        for trouble in filter(None, (not_told, failed)):
            log.note("notice", text=trouble)
        log.add("run_ended", **fields)

    def _make_folder(self) -> None:
        for folder in (os.path.join(self.root, ".ralph", "runs"), os.path.join(self.root, ".ralph", "standing")):
            files.own_dir(folder)
            ignore = os.path.join(folder, ".gitignore")
            if not os.path.lexists(ignore):
                files.create(ignore, b"*\n", 0o644)
        files.own_dir(self.folder)

    def _work(self, history: History, log: Log, notifier: Notifier) -> Result:
        place = workspace.make(self.root, self.spec.change, self.settings.run.workspace)
        commands = gate_commands.commands(self.root)
        gates = [*commands.checks, *commands.tests]
        told = place.open(self.id, specs.own_paths(self.root, self.spec))
        try:
            result = self._loop(history, log, notifier, place, gates, told)
        except BaseException:
            place.keep_interrupted(self.id)
            raise
        finally:
            self.is_closing = True
            place.close()
        lifecycle.end(self.id, self.root, lambda state: None)
        return result

    def _loop(
        self,
        history: History,
        log: Log,
        notifier: Notifier,
        place: Workspace,
        gates: Sequence[str],
        told: Sequence[str],
    ) -> Result:
        spec = specs.open(place.root, self.spec.change, self.spec.ref)
        prd_ids = _prd_ids(spec)
        ours = Ours(self.root, self.spec.change, self.id)
        self._announce(log, spec, place, gates, told)
        try:
            with process.Keeper(os.path.join(self.folder, "processes")) as keeper:
                executor = self._executor(place, keeper, log, ours, prd_ids)
                return self._joined(history, log, notifier, place, gates, executor).run()
        except BaseException:
            ours.put_right()
            raise
        finally:
            ours.forget()

    def _executor(self, place: Workspace, keeper: process.Keeper, log: Log, ours: Ours, prd_ids: Sequence[str]) -> Here:
        return Here(
            Place(
                workspace=place,
                keeper=keeper,
                runners=self.runners,
                log=log,
                ours=ours,
                settings=self.settings,
                session_id=self.id,
                change=self.spec.change,
                ref=self.spec.ref,
                prd_ids=prd_ids,
                folder=self.folder,
            )
        )

    def _joined(
        self,
        history: History,
        log: Log,
        notifier: Notifier,
        place: Workspace,
        gates: Sequence[str],
        executor: Here,
    ) -> Loop:
        return Loop(
            Parts(
                change=Change(self.root, self.id, self.spec.change, self.spec.ref, place, history),
                folder=self.folder,
                settings=self.settings,
                gates=gates,
                executor=executor,
                agents=[runner.name for runner in self.runners],
                log=log,
                stop=lambda: self.interrupts > 0,
                notify=notifier.tell,
            )
        )

    def _announce(self, log: Log, spec: Spec, place: Workspace, gates: Sequence[str], told: Sequence[str]) -> None:
        run = self.settings.run
        stands = change_state.load(self.root, spec.change)
        log.add(
            "run_started",
            run=self.id,
            change=spec.change,
            agent=self.runners[0].name,
            adapter=spec.adapter,
            workspace=run.workspace,
            branch=place.branch,
            pid=os.getpid(),
            stories=[
                {
                    "id": story.id,
                    "title": story.title,
                    "tasks_total": len(story.tasks),
                    "tasks_done": story.tasks_done,
                    "done": story.done,
                    "state": _state(story, stands.stories.get(story.id)),
                    "optional": story.optional,
                    "depends_on": list(story.depends_on),
                }
                for story in spec.stories()
            ],
            limits={name: getattr(run, name) for name in settings_module.list_limits()},
            gates={"commands": list(gates)},
        )
        no_gate = ["there is no gate: that a story is done rests on its ticks and its diff alone; set [verify]"]
        for text in [*told, *([] if gates else no_gate), *self._about_agents()]:
            log.note("notice", text=text)

    def _about_agents(self) -> list[str]:
        """What each of the agents may do, and limits that can't hold for it."""
        run = self.settings.run
        told = [text for runner in self.runners for text in runner.traits.notices]
        unknown = [(runner.name, budget.why_no_cost(runner, self.settings)) for runner in self.runners]
        if run.max_cost or run.story_cost:
            told += [f"the limit of cost can't hold for {name}: {why}" for name, why in unknown if why]
        return told


def _state(story: specs.Story, state: change_state.StoryStanding | None) -> str:
    """How a story stands when a run begins."""
    if story.done:
        return "done"
    if state and state.question:
        return "waiting"
    return "skipped" if state and state.decision and state.decision.action == "skip" else "open"


def _prd_ids(spec: Spec) -> list[str]:
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


def _run_id(change: str) -> str:
    return f"{change[:90]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(2).hex()}"


class _Signals:
    """Ctrl-C once: stop soon. Twice: at once. A closed terminal and a polite kill are like the first."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: object) -> None:
        self.run.interrupts += 1
        if self.run.interrupts == 2 and not self.run.is_closing:
            raise KeyboardInterrupt

    def __exit__(self, kind: object, *rest: object) -> None:
        """A run that has come to its end has nothing left to interrupt: its exit code is known."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if kind is None and number == signal.SIGINT else before)


def _show(*, as_json: bool) -> Callable[[str, threading.Event], None]:
    """What is not drawn does not wait for what draws."""
    if as_json:
        return raw.follow
    from ralphtool.views.terminal import live

    return live.live if sys.stdout.isatty() else live.plain


class _Viewer:
    """Shows the run while it goes on, by reading its events."""

    def __init__(self, path: str, *, as_json: bool) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=_show(as_json=as_json), args=(path, self._stop), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(5)
