"""The gates in `ralphtool doctor`: whether their programs are installed, whether they are green, and if not, why."""

from __future__ import annotations

import os
import tempfile
from glob import glob
from typing import TYPE_CHECKING

from ralphtool import settings as settings_module
from ralphtool.cli import detect, gate_causes
from ralphtool.cli.checks import from_error, is_alive, not_checked, ok, warning, wrong
from ralphtool.core import files, gate_commands, secrets
from ralphtool.core.amounts import format_duration
from ralphtool.errors import RalphError, SetupFailed
from ralphtool.executors import gate_run
from ralphtool.executors.process import Supervisor
from ralphtool.loop.gate_trial import GateTrial
from ralphtool.loop.workspace_choice import AGAIN, Findings
from ralphtool.workspace import in_place
from ralphtool.workspace.paths import join_first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ralphtool.cli.checks import Diagnosis, DoctorContext
    from ralphtool.cli.detect import GateCommand
    from ralphtool.executors.workspace_check import CheckResult
    from ralphtool.judging.gates import GateResult
    from ralphtool.loop.workspace_choice import Choice
    from ralphtool.settings import Settings

_LAST_LINES = 12
_HIDDEN_VARIABLES = ("RALPH_SESSION", "RALPH_STORY", "RALPH_TOKEN", "RALPH_TASK")


def check_gates(project: DoctorContext, tell: Callable[[str], None]) -> Iterator[Diagnosis]:
    """Checks every gate. With `runs_gates` it also runs them, however long that takes."""
    try:
        found = detect.list_gates(gate_commands.find_commands(project.root), project.root)
    except (RalphError, OSError):
        return  # the settings can't be read, which is already a finding
    if not found:
        text = "no gates configured: no story can be proven"
        yield warning("gates", text, gate_commands.explain_missing(project.root))
    yield from _list_missing(found)
    there = [gate.command for gate in found if not gate.missing]
    if there and not project.runs_gates:
        yield not_checked("gates", f"{_quote(there)}: not run (`ralphtool doctor --gates` runs them)")
    elif at_work := _find_running(project):
        yield not_checked("gates", f"not run, because {at_work} is running here")
    elif there:
        # All gates, as a run does: the results are stored for these commands together.
        yield from _try_gates(project, [gate.command for gate in found], there, tell)


def _list_missing(found: Sequence[GateCommand]) -> Iterator[Diagnosis]:
    """One finding for each program, however many gates need it."""
    for program, gate in {one.missing: one for one in found if one.missing}.items():
        commands = _quote([one.command for one in found if one.missing == program])
        if gate.own:
            text = f"{commands}: {program} is not on the PATH, but {gate.own} exists"
            yield wrong("gates", text, f"replace {program} by {gate.own} in [verify] of .ralph/config.toml")
        else:
            text = f"{commands}: {program} is not installed"
            yield wrong("gates", text, f"{gate.install}, or change [verify] in .ralph/config.toml")


def _quote(commands: Sequence[str]) -> str:
    return ", ".join(f"`{command}`" for command in commands)


def _try_gates(
    project: DoctorContext, commands: Sequence[str], there: Sequence[str], tell: Callable[[str], None]
) -> Iterator[Diagnosis]:
    """Runs gates where the next run would, and with broken code too: a gate that can't fail proves nothing."""
    settings = project.settings or settings_module.Settings()
    with tempfile.TemporaryDirectory(prefix="ralphtool-doctor-") as folder:
        if project.repository is None:
            yield from _run_here(project, there, folder, tell)
            return
        trial = GateTrial(
            root=project.root,
            repository=project.repository,
            settings=settings,
            commands=commands,
            folder=folder,
            tell=tell,
        )
        try:
            known = Findings(project.repository, settings, commands)
            for tried in trial.run(known):
                if tried.found is None:
                    yield from _run_here(project, there, folder, tell)
                else:
                    yield from _describe_tried(project.root, tried.choice, tried.found, there, settings)
                    yield from _describe_place(project.root, tried.choice, tried.found, known)
        except SetupFailed as error:
            yield _describe_setup(error, folder)
        except RalphError as error:
            yield from_error("gates", error)


def _describe_setup(error: SetupFailed, folder: str) -> Diagnosis:
    """Includes the output, because its file is deleted with the trial."""
    logs = sorted(glob(os.path.join(folder, "*", "setup-*.log*")), key=os.path.getmtime)
    lines = [line for log in logs for line in files.read(log).decode("utf-8", "replace").splitlines()]
    what, _, mend = str(error).rpartition(": ")
    mend = mend.partition("; its output")[0]
    return wrong("gates", "\n".join([what, *(f"    {line}" for line in lines[-_LAST_LINES:])]), mend)


def _describe_tried(
    root: str, choice: Choice, found: CheckResult, there: Sequence[str], settings: Settings
) -> Iterator[Diagnosis]:
    if found.trouble and not choice.is_settled:
        text = "\n".join((f"in a {choice.kind}: {found.trouble.what}", *found.trouble.causes))
        yield warning("gates", text, found.trouble.help or AGAIN)
        return
    for one in found.results:
        if one.command in there:
            yield _describe_result(root, one, settings.verify.timeout, found.blind or frozenset())
    for notice in found.notices:
        what, _, mend = notice.partition("; ")
        yield warning("gates", what, mend or "commit them, or add them to the change")


def _describe_place(root: str, choice: Choice, found: CheckResult, known: Findings) -> Iterator[Diagnosis]:
    """Where the next run works. What is known about a box applies only to changes that began with the same files."""
    if found.trouble and not choice.is_settled:
        return
    is_final = found.is_final(gate_commands.find_commands(root).tests)
    rest = "and skips this trial" if is_final or choice.is_settled else "and tries them again"
    text = f"tried in a {choice.kind}: the next run works there {rest}"
    if others := known.list_other_changes():
        text += f"; but a run of {join_first(others)}, which began with other files, first tries them again"
    yield ok("gates", text)


def _run_here(
    project: DoctorContext, commands: Sequence[str], folder: str, tell: Callable[[str], None]
) -> Iterator[Diagnosis]:
    timeout = (project.settings or settings_module.Settings()).verify.timeout
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN_VARIABLES}
    with Supervisor() as supervisor:
        place = gate_run.CommandContext(supervisor, project.root, env, secrets.list_values(), lambda: False)
        for number, command in enumerate(commands):
            tell(f"running {command}")
            done = gate_run.run(command, place, os.path.join(folder, f"{number}.log"), timeout)
            yield _describe_result(project.root, done, timeout)


def _describe_result(root: str, done: GateResult, timeout: float, blind: Collection[str] = ()) -> Diagnosis:
    if done.ok:
        can_fail = "; it stays green when the code is broken" if done.command in blind else ""
        tally = f" ({done.tally})" if done.tally else ""
        return ok("gates", f"`{done.command}` is green{tally}, {format_duration(done.seconds)}{can_fail}")
    if done.why == "wall-clock":
        text = f"`{done.command}` took longer than {format_duration(timeout)} and was killed"
        return wrong("gates", text, "raise timeout in [verify]")
    return _describe_red(root, done)


def _describe_red(root: str, done: GateResult) -> Diagnosis:
    output = gate_run.read_last_output([done])
    ending = done.why or f"exit status {done.exit_code}"
    cause = gate_causes.find_cause(done.command, done.exit_code, output, set(os.listdir(root)))
    text = f"`{done.command}` is already red ({ending}), before any agent has started"
    mend = "make it green: tests that are red from the start prove nothing; only new failures count against a story"
    if cause:
        text, mend = f"{text}: {cause.text}", cause.fix
    return wrong("gates", "\n".join([text, *(f"    {line}" for line in output.splitlines()[-_LAST_LINES:])]), mend)


def _find_running(project: DoctorContext) -> str:
    """The run that works in this tree, if there is one."""
    try:
        note = in_place.find_note(project.repository, project.root) if project.repository else None
        return note.run if note and is_alive(project.root, note.change, note.run) else ""
    except RalphError:
        return ""
