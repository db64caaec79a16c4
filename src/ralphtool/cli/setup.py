"""`ralphtool init` and `ralphtool new`: from nothing to a first run."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ralphtool import agents, settings, specs
from ralphtool.agents.program import Program
from ralphtool.cli import choosing, detect, present_settings
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import config, gate_commands, quickjson
from ralphtool.core import project as projects
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import InvalidValue
from ralphtool.loop import workspace_choice
from ralphtool.specs import scaffold
from ralphtool.views.terminal.wrapping import echo, echo_command, glue_command
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.cli.detect import DetectedProject, GateCommand, GitignoreState
    from ralphtool.specs.scaffold import Scaffold

_FILES = [name for name in specs.BUILT_IN if name not in specs.TRACKERS]
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")


def _print_line(text: str = "") -> None:
    echo(make_lines_printable(text), 2 if text.startswith(" ") else 9)


def _shorten_path(path: str) -> str:
    """A path relative to the current folder, if it is inside."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near


# --- init -------------------------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@click.option("--agent", metavar="NAME", help="The agent to use. [default: the first one installed]")
@click.option("--yes", is_flag=True, help="Ask nothing, and add the lines to .gitignore.")
@click.option("--here", is_flag=True, help="Set up this folder, even if it is inside a bigger project.")
@_JSON
def init(agent: str | None, yes: bool, here: bool, as_json: bool) -> None:
    """Set up a project: detect specs, tests and agents, and write settings.

    Writes a short .ralph/config.toml, and suggests lines for .gitignore. Existing settings are never changed: then it
    shows them, and the lines that a new file would add. Without a terminal it asks nothing.

    \b
    Examples:
      ralphtool init
      ralphtool init --agent codex --yes
    """
    root = detect.find_root(here)
    found = detect.detect_project(root)
    if agent is not None:
        _check_agent(root, agent)
    asks = not yes and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    if not as_json:
        _print_project(found)
    done = _initialise(found, agent, asks=asks, yes=yes)
    if as_json:
        click.echo(quickjson.dumps(done))
    else:
        _print_result(found, done)


def _check_agent(root: str, name: str) -> None:
    """Raises an error if there is no such agent, not even in the existing settings."""
    try:
        known = settings.load(root).agents
    except InvalidValue:
        known = {}  # the result says that they can't be read
    agents.make(name, structs.asdict(known[name]) if name in known else {}, known)


def _initialise(found: DetectedProject, agent: str | None, *, asks: bool, yes: bool) -> dict[str, Any]:
    """Asks all questions first, so that cancelling changes nothing."""
    path = config.path_of(found.root)
    is_there = os.path.lexists(path)
    if is_there and agent is not None and settings.load(found.root).run.agent != agent:
        raise InvalidValue(f'{path} already exists and is not changed: set agent = "{agent}" under [run] in it')
    chosen = None if is_there else agent or _choose_agent(found.agents, asks=asks)
    repository = Repository.find(found.root)
    ignoring = detect.check_gitignore(repository, found.root) if repository else None
    adds = ignoring is not None and ignoring.state == "open" and (yes or (asks and _confirm_lines(ignoring)))
    is_made = not is_there and detect.write_settings(found.root, detect.render_settings(found, chosen))
    if ignoring and adds:
        detect.update_gitignore(ignoring)
    own = ([ignoring.path] if ignoring and adds else []) + ([path] if is_made or adds else [])
    uncommitted = detect.list_uncommitted(repository, own) if repository and own else []
    return {
        "root": found.root,
        "config": path,
        "created": is_made,
        "agent": chosen,
        "agents": list(found.agents),
        "gates": [_gate_as_dict(one) for one in found.gates],
        "changes": list(found.changes),
        "gitignore": _gitignore_as_dict(ignoring, added=adds),
        **_compare_settings(found, path, is_there=is_there),
        "next": _list_next_steps(found, chosen, uncommitted),
    }


def _gate_as_dict(gate: GateCommand) -> dict[str, Any]:
    return {"kind": gate.kind, "command": gate.command, "missing": gate.missing, "install": gate.install or None}


def _compare_settings(found: DetectedProject, path: str, *, is_there: bool) -> dict[str, Any]:
    """The existing settings, and what a new file would add."""
    if not is_there:
        return {"set": None, "proposed": None, "problem": None}
    try:
        return {**present_settings.compare(found, path), "problem": None}
    except InvalidValue as error:
        return {"set": None, "proposed": None, "problem": str(error)}


def _choose_agent(installed: Sequence[str], *, asks: bool) -> str | None:
    if len(installed) < 2 or not asks:
        return installed[0] if installed else None
    told: str = click.prompt("Which agent?", type=click.Choice(list(installed)), default=installed[0])
    return told


def _confirm_lines(ignoring: GitignoreState) -> bool:
    _print_line()
    _print_line("In .ralph, only settings, history and prompts should be committed.")
    _print_line(f"Lines for {_shorten_path(ignoring.path)}:")
    _print_line("\n".join(f"  {line}" for line in ignoring.lines))
    return click.confirm("Add them?", default=True)


def _gitignore_as_dict(ignoring: GitignoreState | None, *, added: bool) -> dict[str, Any] | None:
    if ignoring is None:
        return None
    return {"path": ignoring.path, "state": ignoring.state, "lines": list(ignoring.lines), "added": added}


def _list_next_steps(found: DetectedProject, agent: str | None, uncommitted: Sequence[str]) -> list[str]:
    known, gates = _load_settings(found)
    steps = [] if gates else [f"set checks and tests under [verify] in {_shorten_path(config.path_of(found.root))}"]
    steps.append("ralphtool doctor")
    if uncommitted:
        steps.append(f'git add {shlex.join(map(_shorten_path, uncommitted))} && git commit -m "Set up ralphtool"')
    if not (agent or found.agents or _list_wanted_agents(known)):
        one = detect.first_program()
        steps.insert(0, f"install an agent, such as {one.title or one.name}: {one.package}")
    if not found.is_repository:
        steps.insert(0, "git init")
    change = choosing.find_next(found.root) if found.changes else None
    if change is None:
        steps.append('ralphtool new "What it is about"')
    name = f" {change}" if change and len(found.changes) > 1 else ""
    return [*steps, f"ralphtool run{name} --dry-run"]


def _load_settings(found: DetectedProject) -> tuple[settings.Settings, Sequence[GateCommand]]:
    """The existing settings and gates; the defaults if they can't be read, which is reported later."""
    try:
        known = settings.load(found.root)
    except InvalidValue:
        return settings.Settings(), found.gates
    return known, detect.list_gates(gate_commands.find_commands(found.root), found.root)


def _print_project(found: DetectedProject) -> None:
    """What is set comes before what was detected."""
    known, gates = _load_settings(found)
    _print_line(f"{'project':9}{found.root}")
    if os.path.realpath(found.root) != os.path.realpath(os.getcwd()):
        _print_line(f"{'':9}found in a parent folder; `ralphtool init --here` sets up this folder instead")
    if not found.is_repository:
        _print_line(f"{'':9}not a git repository: work can't be committed or undone; `git init` creates one")
    _print_line(f"{'changes':9}{_join_first(found.changes) or 'none yet'}")
    commands = [one.command for one in gates]
    is_set = known.verify.checks is not None or known.verify.tests is not None
    told = f"{_join_first(commands)}{', as set' if is_set else ''}" if commands else ""
    _print_line(f"{'gates':9}{told or 'no gates configured: no story can be proven'}")
    for program, one in {one.missing: one for one in gates if one.missing}.items():
        echo(f"{'':9}{make_printable(program)} is not {one.place}: {glue_command(one.install)}", 0)
    _print_agents(known, found.agents)
    first, *more = workspace_choice.preview(known, Repository.find(found.root), commands)
    _print_line(f"{'where':9}{first}")
    for line in more:
        _print_line(f"{'':9}{line}")


def _list_wanted_agents(known: settings.Settings) -> list[str]:
    return list(dict.fromkeys([*([known.run.agent] if known.run.agent else []), *known.run.agents]))


def _print_agents(known: settings.Settings, installed: Sequence[str]) -> None:
    wanted = _list_wanted_agents(known)
    others = [name for name in installed if name not in wanted]
    if not wanted:
        _print_line(f"{'agents':9}{_join_first(others) or 'none found'}")
        return
    more = f"; also installed: {_join_first(others)}" if others else ""
    _print_line(f"{'agents':9}{_join_first(wanted)}, as set{more}")


def _join_first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{', '.join(names[:8])}{more}"


def _print_result(found: DetectedProject, done: dict[str, Any]) -> None:
    path = _shorten_path(done["config"])
    _print_line()
    if not done["created"]:
        _print_present(path, done)
    elif done["agent"] is None:
        _print_line(f"Created {path}. No agent is set in it, because none is installed.")
    else:
        others = len(found.agents) > 1 and done["agent"] in found.agents
        _print_line(
            f"Created {path}, with {done['agent']} as the agent{'; you can change it there' if others else ''}."
        )
    chosen = agents.make(done["agent"], {}) if done["agent"] else None
    if isinstance(chosen, Program) and chosen.needs_all:
        _print_line(f'{chosen.name} {chosen.kept_to}: set permissions = "all" there to allow more.')
    _print_gitignore(done["gitignore"])
    _print_line("Next steps:")
    for step in done["next"]:
        what, colon, command = step.partition(": ")
        advice = f"{what}: {glue_command(make_printable(command))}" if colon else glue_command(make_printable(step))
        echo(f"  {advice}")


def _print_present(path: str, done: dict[str, Any]) -> None:
    if done["problem"]:
        _print_line(f"{path} already exists and can't be read: {done['problem']}")
        return
    _print_line(f"{path} already exists and is not changed{':' if done['set'] else '; it has no settings.'}")
    if done["set"]:
        _print_line("\n".join(f"  {line}" for line in done["set"]))
    if done["proposed"]:
        _print_line("You may want to add:")
        _print_line("\n".join(f"  {line}" for line in done["proposed"]))


def _print_gitignore(told: dict[str, Any] | None) -> None:
    if told is None or told["state"] == "fine":
        return
    path = _shorten_path(told["path"])
    if told["added"]:
        _print_line(f"{path} now has the rules for .ralph.")
    elif told["state"] == "closed":
        _print_line("git ignores all of .ralph: settings and history (progress.json) are not committed.")
    else:
        _print_line(f"Lines for {path} (`ralphtool init --yes` adds them):")
        _print_line("\n".join(f"  {line}" for line in told["lines"]))


# --- new --------------------------------------------------------------------------------------------


def _complete_format(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in scaffold.formats() if name.startswith(incomplete)]


@click.command(cls=FittingCommand)
@click.argument("text", metavar="TEXT")
@click.option(
    "--format",
    metavar="FORMAT",
    shell_complete=_complete_format,
    help=f"The format. [default: the project's own] One of {', '.join(_FILES)}, or another adapter.",
)
@click.option("--name", metavar="NAME", help="The name of the change. [default: made from TEXT]")
@click.option("--file", metavar="PATH", help="The checklist file to create. [default: plans/NAME.md]")
@_JSON
def new(text: str, format: str | None, name: str | None, file: str | None, as_json: bool) -> None:
    """Create a change: a spec for you to fill in.

    It uses the project's format, or a checklist if there is none. Two example stories show what a good story looks
    like. Existing files are never overwritten.

    \b
    Examples:
      ralphtool new "Add login"
      ralphtool new "Add login" --format openspec
      ralphtool new "Add login" --file docs/login.md
    """
    root = projects.find()
    made = scaffold.plan(root, text, format=format, name=name, file=file)
    try:
        scaffold.write(made)
    except FileExistsError:
        raise InvalidValue(
            f"{made.place} was created by another program in the meantime: choose another name"
        ) from None
    if as_json:
        told = {"change": made.change, "format": made.format, "files": made.paths, "spec": made.spec}
        click.echo(quickjson.dumps(told))
    else:
        _print_scaffold(made)


def _print_scaffold(made: Scaffold) -> None:
    _print_line(f"Created change {made.change} ({made.format}):")
    for path in made.paths:
        _print_line(f"  {_shorten_path(path)}")
    spec = f" --spec {made.spec}" if made.spec else ""
    if spec:
        _print_line(f'To select it, use{spec}, or set spec = "{made.spec}" under [run] in .ralph/config.toml.')
    _print_line("Replace the examples with what you want. Next steps:")
    echo_command(make_printable(f"ralphtool show {made.change}{spec}"))
    echo_command(make_printable(f"ralphtool run {made.change}{spec} --dry-run"))
