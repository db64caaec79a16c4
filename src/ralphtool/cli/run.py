"""`ralphtool run`: reads the command line, starts the run, shows it, and stops it on Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs, to_builtins

from ralphtool import settings as settings_module
from ralphtool import specs
from ralphtool.cli import arguments, choosing, given_command, moving, run_output
from ralphtool.cli.help_text import FittingCommand
from ralphtool.cli.run_output import RunOutput, Wanted
from ralphtool.core import gate_commands, project, quickjson
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import RalphError, SpecError, UsageError
from ralphtool.loop.run import StopRequest, is_finished, recover, start_recovered
from ralphtool.loop.runners import check_runners, make_runners, register_secrets
from ralphtool.record import change_flag
from ralphtool.specs import remaining
from ralphtool.views.terminal import raw, wrapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.agents import Runner
    from ralphtool.cli.run_output import Format
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec

_TICK = 0.01  # seconds between two checks whether the record has started
_EXIT_CODES = {"done": 0, "unproven": 1, "unfinished": 1, "interrupted": 130}


class _SettingOption(click.Option):
    """The flag of a setting. Its help is in the setting's docstring, and is read only when it is shown."""

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        one = next(one for one in settings_module.describe("run") if one.key == self.name)
        self.metavar = None if self.is_flag else one.metavar
        self.help = one.help if self.is_flag or not one.default else f"{one.help} [default: {one.default}]"
        return super().get_help_record(context)


def _add_settings_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for key, is_switch in reversed(settings_module.list_flags()):
        extra: dict[str, Any] = {"is_flag": True, "flag_value": "true"} if is_switch else {}
        flag = settings_module.build_flag(key)
        command = click.option(flag, key, default=None, cls=_SettingOption, **extra)(command)
    return command


class _RunCommand(FittingCommand):
    """With `--format json`, prints the object even if the command line is wrong."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        given = list(args)  # parsing empties the list
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            run_output.print_usage_error(given, error)
            raise


@click.command(cls=_RunCommand)
@click.argument("change", **arguments.OPTIONAL)
@click.option("--spec", metavar="FORMAT|PATH", help="The format of the change, or its file.")
@click.option("--all", "runs_all", is_flag=True, help="Run every open change, one after the other.")
@click.option(
    "--agent-command", metavar="COMMAND", help="The command that starts the agent. It gets the prompt on stdin."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, the gates and the first prompt, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format events.")
@click.option(
    "--format",
    "form",
    type=click.Choice(run_output.FORMATS),
    help="What goes to standard output: lines for people, every event as a line of JSON, or one JSON object at the"
    " end. [default: text]",
)
@click.option("--junit", metavar="FILE", type=click.Path(), help="Write the stories as JUnit XML at the end.")
@click.option(
    "--report", metavar="FILE", type=click.Path(), help="Write the report at the end: .md, .html, .xml or .json."
)
@_add_settings_flags
def run(
    change: str | None,
    spec: str | None,
    runs_all: bool,
    agent_command: str | None,
    dry_run: bool,
    as_json: bool,
    form: str | None,
    junit: str | None,
    report: str | None,
    **flags: Any,
) -> int:
    """Run an agent on the stories of a change until all are done.

    At the end it shows the proof of each story: proven by its own tests, held by the existing tests, done but not
    proven, or accepted by you. The exit code is 0 if every story is done, none is unproven, and the gates are green.

    Work is committed to the branch ralph/CHANGE. It is done in a box if one is available, else in a worktree: your own
    files are not touched. With workspace = "here", or if nothing else works, your own folder is used; your files are
    restored at the end. Ctrl-C stops the run, and running it again resumes where it stopped.

    \b
    Examples:
      ralphtool run add-login --agent-command "my-agent --headless"
      ralphtool run                              # the only open change
      ralphtool run --all                        # every open change in turn
      ralphtool run add-login --dry-run          # the plan and the first prompt
      ralphtool run add-login --max-time 8h --max-iterations 40
      ralphtool run add-login --side-by-side 4   # four stories at once, in boxes
      ralphtool run add-login --json | jq -r 'select(.type == "verdict") | .summary'
      ralphtool run add-login --format json --junit stories.xml  # in CI
    """
    chosen = run_output.choose_format(form, as_json=as_json)
    with RunOutput(Wanted(chosen, junit, report, is_all=runs_all)) as output:
        output.check(form, as_json=as_json, is_dry=dry_run)
        return _run(output, change, spec, agent_command, flags, is_dry=dry_run)


def _run(
    output: RunOutput, change: str | None, spec: str | None, agent_command: str | None, flags: Any, *, is_dry: bool
) -> int:
    root = project.find()
    if not is_dry:
        for text in recover(root):
            wrapping.echo(make_printable(text), err=True)
    loaded = settings_module.load(root, flags)
    given = agent_command and given_command.locate(agent_command, root)
    if given and loaded.run.workspace == "here":
        given_command.refuse_uncommitted(given, root)
    loaded, agent_command = _use_command_elsewhere(loaded, given)
    ref = specs.parse_ref(root, spec)
    if output.wanted.is_all:
        return _run_all(output, root, change, ref, loaded, agent_command, is_dry=is_dry)
    name = change or specs.find_named(root, spec) or choosing.choose(root, may_ask=output.form == "text")
    if is_dry:
        return _print_plan(root, specs.open(root, name, ref), loaded, agent_command, as_json=output.form != "text")
    if ref is None and output.form == "text":
        moving.offer_move(root, name)
    return _start_run(output, root, name, ref, loaded, given_command.make_runner(agent_command))


def _use_command_elsewhere(settings: Settings, command: str | None) -> tuple[Settings, str | None]:
    """Workers find agents in the settings, so for them the agent of the command line is added there."""
    if command is None or settings.run.executor == "local":
        return settings, command
    given = settings_module.AgentSettings(command=tuple(given_command.split(command)))
    run = structs.replace(settings.run, agent="command", agents=())
    return structs.replace(settings, run=run, agents={**settings.agents, "command": given}), None


def _run_all(
    output: RunOutput,
    root: str,
    change: str | None,
    ref: str | None,
    settings: Settings,
    agent_command: str | None,
    *,
    is_dry: bool,
) -> int:
    """Runs changes one by one. One that is unfinished or can't start does not stop the next; an interrupt does."""
    if change or ref:
        raise UsageError("--all runs every open change: leave CHANGE out")
    chosen = choosing.list_all(root)
    for one in chosen.unreadable:
        _report_left_out(one.name, one.problem)
        if not is_dry:
            output.fail(SpecError(one.problem or "it can't be read"), one.name)
    codes = [_EXIT_CODES["unfinished"]] * len(chosen.unreadable)
    for name in chosen.names:
        try:
            if is_dry:
                as_json = output.form != "text"
                codes.append(_print_plan(root, specs.open(root, name), settings, agent_command, as_json=as_json))
            else:
                codes.append(_start_run(output, root, name, None, settings, given_command.make_runner(agent_command)))
        except RalphError as error:
            _report_left_out(name, str(error))
            if not is_dry:
                output.fail(error, name, _EXIT_CODES["unfinished"])
            codes.append(_EXIT_CODES["unfinished"])
        if codes[-1] == _EXIT_CODES["interrupted"]:
            break
    return max(codes)


def _report_left_out(change: str, problem: str | None) -> None:
    wrapping.echo(f"{make_printable(change)} is skipped: {make_lines_printable(problem or '')}", err=True)


def _start_run(
    output: RunOutput, root: str, change: str, ref: str | None, settings: Settings, runners: Sequence[Runner]
) -> int:
    stop = StopRequest()
    output.begin(root, change)
    with Signals(stop):
        result = start_recovered(root, change, settings, ref, runners, partial(_view_run, output, root, settings), stop)
    code = _EXIT_CODES[result.ended.result]
    output.end(result, code)
    if result.record is None and output.form != "json":
        wrapping.echo(f"{result.ended.reason}.", err=output.form == "events")
    elif output.form == "text":
        from ralphtool.views.terminal import summary

        summary.print_summary(result.ended, change)
    return code


def _view_run(output: RunOutput, root: str, settings: Settings, path: str) -> RunViewer:
    output.note_record(path)
    if settings.otel.endpoint:
        from ralphtool.cli import exporting

        exporting.start_export(root, path, settings.otel.endpoint)
    return RunViewer(path, output.form)


def _print_plan(root: str, spec: Spec, settings: Settings, agent_command: str | None, *, as_json: bool) -> int:
    """The exit code says whether a run could start."""
    from ralphtool.cli import plan
    from ralphtool.loop import dryrun

    if is_done := is_finished(root, spec):
        wrapping.echo(f"{spec.change} is complete and finished: nothing left to run.", err=as_json)
    if is_done and not as_json:
        return 0
    register_secrets(settings)
    commands = gate_commands.find_commands(root)
    gates = [*commands.checks, *commands.tests]
    made = dryrun.plan(root, spec, settings, gates, given_command.make_runner(agent_command))
    names, troubles = _find_troubles(root, spec, settings, agent_command) if not is_done else ([], [])
    if as_json:
        click.echo(quickjson.dumps({**to_builtins(made), "agents": names, "trouble": "; ".join(troubles) or None}))
    else:
        plan.print_plan(made, names, troubles, change_flag.build(spec.change, root))
    return 1 if troubles else 0


def _find_troubles(root: str, spec: Spec, settings: Settings, agent_command: str | None) -> tuple[list[str], list[str]]:
    """The names of the agents, and what would keep a run from starting."""
    names: list[str] = []
    troubles: list[str] = []
    try:
        runners = given_command.make_runner(agent_command) or make_runners(settings)
        names = [one.name for one in (check_runners(runners) if settings.run.executor == "local" else runners)]
    except RalphError as error:
        troubles.append(str(error))
    try:
        remaining.check_can_run(root, spec)
    except RalphError as error:
        troubles.append(str(error))
    return names, troubles


class Signals:
    """Ctrl-C once: stop soon. Twice: stop at once. A closed terminal and SIGTERM count as Ctrl-C."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: object) -> None:
        self._stop.ask()
        if self._stop.count == 2 and not self._stop.is_closing:
            raise KeyboardInterrupt

    def __exit__(self, kind: object, *rest: object) -> None:
        """Ignores Ctrl-C after a run has ended: its exit code is already known."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if kind is None and number == signal.SIGINT else before)


class RunViewer:
    """Shows the run in progress, by reading its events."""

    def __init__(self, path: str, form: Format = "text") -> None:
        self._path = path
        self._form = form
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def _show(self) -> None:
        """Imports the drawing code only when there is something to draw: the run doesn't wait for it."""
        with suppress(FileNotFoundError):
            while not os.path.getsize(self._path) and not self._stop.wait(_TICK):
                pass
        if self._form == "events":
            raw.follow(self._path, self._stop)
            return
        if self._form == "json" and not sys.stderr.isatty():
            return
        from ralphtool.views.terminal import live

        if self._form == "json":
            live.print_lines_aside(self._path, self._stop)
            return
        show = live.show_live if sys.stdout.isatty() else live.print_lines
        show(self._path, self._stop)

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(5)
