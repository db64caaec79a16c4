"""The setup of a project: what it already has, the settings that follow from that, and what git should ignore.

Detection starts no agent and writes nothing. Files are written atomically, and nothing is overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import agents, specs
from ralphtool.agents.program import Program
from ralphtool.cli.gate_causes import describe_install
from ralphtool.core import config, files, gate_commands, layout, project, setup_inference
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.history import neighbour
from ralphtool.history.state import HistoryLock
from ralphtool.judging.gate_programs import find_in_environment, find_missing_program
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner


class GateCommand(Struct, frozen=True):
    """A command that proves a story. `missing` is its program, if it is not installed."""

    kind: str  # checks or tests
    command: str
    missing: str | None
    own: str | None = None  # the missing program in the project's environment

    @property
    def place(self) -> str:
        """Where the missing program is not."""
        return "on the PATH" if self.own else "installed here"

    @property
    def install(self) -> str:
        """How to install the missing program, or where it is."""
        if self.own:
            return f"use {self.own}"
        return describe_install(self.missing) if self.missing else ""


class DetectedProject(Struct, frozen=True, kw_only=True):
    """What was detected in a project."""

    root: str
    is_repository: bool
    changes: tuple[str, ...]
    gates: tuple[GateCommand, ...]
    agents: tuple[str, ...]  # installed ones, in the order in which they are proposed


def detect_project(root: str) -> DetectedProject:
    return DetectedProject(
        root=root,
        is_repository=Repository.find(root) is not None,
        changes=_list_changes(root),
        gates=list_gates(gate_commands.infer(root), root),
        agents=installed(),
    )


def _list_changes(root: str) -> tuple[str, ...]:
    try:
        return tuple(sorted({place.change for place in specs.find_all(root) if not place.error}))
    except InvalidValue:
        return ()  # the existing settings can't be read: `doctor` says why


def list_gates(commands: gate_commands.GateCommands, root: str) -> tuple[GateCommand, ...]:
    both = (("checks", commands.checks), ("tests", commands.tests))
    return tuple(_build_gate(kind, one, root) for kind, each in both for one in each)


def _build_gate(kind: str, command: str, root: str) -> GateCommand:
    missing = find_missing_program(command, root)
    return GateCommand(kind, command, missing, find_in_environment(missing, root) if missing else None)


def installed() -> tuple[str, ...]:
    """The agents whose programs are installed."""
    return tuple(one.name for one in _programs() if shutil.which(one.command[0]) is not None)


def first_program() -> Program:
    """The agent that is proposed if none is installed."""
    return _programs()[0]


def _programs() -> list[Program]:
    return [one for one in agents.list_runners() if isinstance(one, Program)]


# --- settings ---------------------------------------------------------------------------------------


def render_settings(found: DetectedProject, agent: str | None) -> str:
    """A short `config.toml`: the detected settings, and the ones that people change first, as comments."""
    others = [name for name in found.agents if name != agent]
    runner = agents.make(agent, {}) if agent else None
    lines = [
        "# Settings of ralphtool for this project. `ralphtool doctor` checks them; `ralphtool run --help` lists more.",
        "# Lines that begin with # are examples.",
        "",
        "[run]",
        *_render_agent(agent, others),
        f"# {setup_inference.render(found.root):21} # installs packages: at the start, and when they change",
        "# attempts = 3          # attempts at a story before you are asked",
        '# max_time = "8h"       # time limit of a run; none by default',
        "# max_cost = 20.00      # cost limit of a run, in dollars",
        '# workspace = "auto"    # a box if available, else a worktree, else "here": your own folder',
        "",
        *_render_gates(found.gates, found.root),
        *_render_agent_table(agent, runner),
        "",
        "# [sandbox]             # what agents and gates can access from their box",
        '# mode = "require"      # refuse to run without a box',
        '# hosts = ["packages.example.org"]   # added to the hosts of the agent',
        '# read = ["~/.config/tool"]          # files in your home that are visible, read-only',
        "",
        "# [notify]              # called when a run ends or needs an answer, with JSON on stdin",
        '# command = ["notify-send", "ralphtool"]',
    ]
    return "\n".join(lines) + "\n"


def _render_agent(agent: str | None, others: Sequence[str]) -> list[str]:
    if agent is None:
        example = f"# agent = {_quote(first_program().name)}"
        return [f"{example:23} # none found: `ralphtool doctor` shows how to install one"]
    lines = [f"agent = {_quote(agent)}"]
    if others:
        order = ", ".join(map(_quote, (agent, *others[:2])))
        lines.append(f"# agents = [{order}]   # if one can't continue, the next one takes over")
    return lines


def _render_gates(found: Sequence[GateCommand], root: str) -> list[str]:
    """The table's name is alone on its line, so that the fast parser of the agent's commands can read it."""
    lines = ["# The commands that verify a story. All must pass.", "[verify]", *render_notes(found)]
    below = gate_commands.GateCommands() if found else gate_commands.suggest(root)
    for kind, examples in (("checks", below.checks or ["make lint"]), ("tests", below.tests or ["make test"])):
        lines.append(render_commands(kind, found) or f"# {kind} = [{', '.join(map(_quote, examples))}]")
    return lines


def render_commands(kind: str, found: Sequence[GateCommand]) -> str:
    """The setting of one kind of gate; empty if none was found."""
    commands = [_quote(one.command) for one in found if one.kind == kind]
    return f"{kind} = [{', '.join(commands)}]" if commands else ""


def render_notes(found: Sequence[GateCommand]) -> list[str]:
    """Notes about programs that are missing on this machine. The commands themselves are correct."""
    missing = {one.missing: one for one in found if one.missing}
    return [f"# {program} is not {one.place}: {one.install}" for program, one in missing.items()]


def _render_agent_table(agent: str | None, runner: Runner | None) -> list[str]:
    if isinstance(runner, Program):
        return ["", f"# [agents.{agent}]", f'# permissions = "all"   # {runner.skips}, unasked']
    if runner is None or not runner.traits.example:
        return []
    return ["", f"# [agents.{agent}]", f"# {runner.traits.example}"]


def _quote(text: str) -> str:
    return json.dumps(text)  # TOML reads it the same way


def write_settings(root: str, text: str) -> bool:
    """Creates `.ralph/config.toml`; False if it already exists."""
    path = config.path_of(root)
    folder = os.path.dirname(path)
    files.ensure_folder(folder)
    lock = HistoryLock(folder)
    try:
        with lock:
            if os.path.lexists(path):
                return False
            files.create(path, text.encode(), 0o644)
    finally:
        lock.close()
    return True


# --- .gitignore -------------------------------------------------------------------------------------

IGNORED = (".ralph/*", "!.ralph/config.toml", "!.ralph/progress.json", "!.ralph/prompts/")
_PASSING = (
    "runs/x",
    "progress.journal",
    "progress.index",
    "memory.index",
    "usefulness.jsonl",
    "questions/x",
    "locks/x",
)


class GitignoreState(Struct, frozen=True):
    """How git treats `.ralph`: `fine`, `open` (it would commit temporary files), `closed` (it ignores everything)."""

    state: str
    path: str  # of the .gitignore
    lines: tuple[str, ...]  # missing lines; what the user ignores on purpose stays ignored


def list_ignore_lines(root: str) -> tuple[str, ...]:
    """The lines for .gitignore: all of `.ralph` is ignored, except files that are worth a commit."""
    return (*IGNORED, f"!.ralph/{layout.HISTORY_APART}") if _has_neighbour(root) else IGNORED


def _list_lasting(root: str) -> tuple[str, ...]:
    return ("config.toml", os.path.basename(_find_history(root)), "prompts/x")


def _has_neighbour(root: str) -> bool:
    return _find_history(root) == layout.history_apart(root)


def _find_history(root: str) -> str:
    try:
        return neighbour.find_path(root)
    except (RalphError, OSError):
        return layout.history(root)  # an unreadable history is a separate finding


def check_gitignore(repository: Repository, root: str) -> GitignoreState:
    path = os.path.join(root, ".gitignore")
    prefix = os.path.relpath(layout.folder(os.path.realpath(root)), os.path.realpath(repository.top))
    kept = _list_lasting(root)
    ignored = _find_ignored(repository, [os.path.join(prefix, name) for name in (*_PASSING, *kept)])
    lasting = [name for name in kept if os.path.join(prefix, name) in ignored]
    if not all(os.path.join(prefix, name) in ignored for name in _PASSING):
        kept_out = {f"!.ralph/{name.removesuffix('x')}" for name in lasting}
        return GitignoreState("open", path, tuple(line for line in list_ignore_lines(root) if line not in kept_out))
    return GitignoreState("closed" if len(lasting) == len(kept) else "fine", path, ())


def _find_ignored(repository: Repository, paths: Sequence[str]) -> set[str]:
    told = repository.run(
        "check-ignore", "--no-index", "-z", "--stdin", input=os.fsencode("\0".join(paths)), own_index=False, check=False
    )
    return {os.fsdecode(one) for one in told.split(b"\0") if one}


def list_uncommitted(repository: Repository, paths: Sequence[str]) -> list[str]:
    """Those of the files that git would commit, and has not yet. Ignored ones are left out."""
    top = os.path.realpath(repository.top)
    inside = {os.path.relpath(os.path.realpath(path), top): path for path in paths}
    command = ("--no-optional-locks", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--")
    told = repository.run(*command, *(f":(literal){path}" for path in inside), own_index=False, check=False)
    names = dict.fromkeys(os.fsdecode(one[3:]) for one in told.split(b"\0"))  # two rows after `git rm --cached`
    return [inside[name] for name in names if name in inside]


def update_gitignore(found: GitignoreState) -> None:
    """Adds the missing lines to .gitignore, which may not exist yet."""
    lines = [line.encode() for line in found.lines]
    if not os.path.lexists(found.path):
        try:
            files.create(found.path, b"".join(line + b"\n" for line in lines), 0o644)
            return
        except FileExistsError:
            pass
    files.rewrite(found.path, lambda data: _add_lines(data, lines))


def _add_lines(data: bytes, lines: Sequence[bytes]) -> bytes:
    """Adds the lines, unless they already exist in the right order."""
    end = b"\r\n" if b"\r\n" in data else b"\n"
    there = [line for line in data.splitlines() if line in lines]
    if there[-len(lines) :] == list(lines):
        return data
    before = data if not data or data.endswith(b"\n") else data + end
    return before + b"".join(line + end for line in lines)


def find_root(here: bool) -> str:
    """The project to set up: the one that every command would find, or the current folder."""
    return os.getcwd() if here else project.find()
