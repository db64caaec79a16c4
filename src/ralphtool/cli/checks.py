"""The checks of `ralphtool doctor`: what a run needs, from git to the gates. Findings are values, each with its fix.

A check changes nothing and calls no model. Only the check of workers uses the network. A finding that can be fixed
safely has a repair.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from ralphtool import agents, specs
from ralphtool import settings as settings_module
from ralphtool.agents.program import Program, format_version
from ralphtool.cli import detect
from ralphtool.cli.version import describe_version
from ralphtool.core import config, files, layout, locks, secrets
from ralphtool.core.install_hint import build_install_command
from ralphtool.core.project import is_name
from ralphtool.errors import ChangeNotFound, GitError, InvalidValue, RalphError, from_os_error, shorten
from ralphtool.executors import own_command
from ralphtool.loop import budget
from ralphtool.specs import remaining, scaffold
from ralphtool.workspace.change_lock import hold_change
from ralphtool.workspace.git import Repository
from ralphtool.workspace.stash import find_under_way
from ralphtool.workspace.worktree import prune_worktrees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphtool.agents import Runner
    from ralphtool.settings import Settings

_OLDEST_GIT = (2, 38)
_LONGEST = 8.0  # seconds for all programs to answer: people wait for this command
_SHORTEST = 1.0

State = Literal["ok", "warning", "wrong"]


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    about: str
    state: State
    text: str
    mend: str = ""  # what to do, mostly a command
    repair: Callable[[], str] | None = None  # applies the fix if that is safe, and returns what it did
    is_checked: bool = True  # otherwise it only says what was not checked

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("about", "state", "text", "mend")}
        return told | {"fixable": self.repair is not None}


def ok(about: str, text: str) -> Diagnosis:
    return Diagnosis(about=about, state="ok", text=text)


def not_checked(about: str, text: str) -> Diagnosis:
    return Diagnosis(about=about, state="ok", text=text, is_checked=False)


def warning(about: str, text: str, mend: str = "", repair: Callable[[], str] | None = None) -> Diagnosis:
    return Diagnosis(about=about, state="warning", text=text, mend=mend, repair=repair)


def wrong(about: str, text: str, mend: str = "", repair: Callable[[], str] | None = None) -> Diagnosis:
    return Diagnosis(about=about, state="wrong", text=text, mend=mend, repair=repair)


def from_error(about: str, error: RalphError) -> Diagnosis:
    """Splits an error: it says first what happened, then what to do."""
    text = str(error)
    what, _, mend = text.rpartition(": ") if "\n" not in text else (text, "", "")
    return wrong(about, what or text, mend if what else "")


class DoctorContext:
    """The project that is checked. `settings` and `repository` are None if there are none, or they can't be used."""

    def __init__(self, root: str, *, runs_gates: bool = False) -> None:
        self.root = root
        self.runs_gates = runs_gates  # after all other checks
        self.settings: Settings | None = None
        self.repository: Repository | None = None
        self._deadline = time.monotonic() + _LONGEST

    @property
    def seconds_left(self) -> float:
        """The time that is left for programs to answer."""
        return max(self._deadline - time.monotonic(), _SHORTEST)

    @property
    def folder(self) -> str:
        return layout.folder(self.root)


# --- the machine, git, settings ---------------------------------------------------------------------


def check_machine(project: DoctorContext) -> Iterator[Diagnosis]:
    yield ok("machine", f"ralphtool {describe_version()}, Python {platform.python_version()}, {platform.system()}")
    script = own_command.find_script()
    if os.path.isfile(script) and not own_command.can_start(script):
        text = f"{script} can't start: its first line names a Python whose path is too long or has a space"
        command = f"{shlex.quote(sys.executable)} -m ralphtool doctor --fix"
        yield wrong("machine", text, command, partial(_make_startable, script))


def _make_startable(script: str) -> str:
    files.rewrite(script, lambda _: own_command.build_startable(script))
    return f"rewrote {script}: a shell starts it"


def check_git(project: DoctorContext) -> Iterator[Diagnosis]:
    version = _read_git_version()
    if version is None:
        yield warning("git", f"git is not installed: {_WITHOUT_GIT}", "install git, then `git init`")
        return
    words = format_version(version)
    if version < _OLDEST_GIT:
        yield warning(
            "git",
            (f"git {words} is older than the oldest tested version ({format_version(_OLDEST_GIT)})"),
            "update git",
        )
    else:
        yield ok("git", f"git {words}")
    project.repository = Repository.find(project.root)
    if project.repository is None:
        yield warning("git", f"this is not a git repository: {_WITHOUT_GIT}", "git init")
        return
    yield from _check_repository(project, project.repository)


_WITHOUT_GIT = "nothing is committed, failed attempts are not undone, and cheating in the diff can't be detected"


def _read_git_version() -> tuple[int, ...] | None:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part) for part in found.groups() if part) if found and not done.returncode else None


def _check_repository(project: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    if not _has_identity(repository):
        yield warning(
            "git",
            "git has no user name and email, so ralphtool will be the author of commits",
            'git config user.name "…" && git config user.email "…"',
        )
    yield from _check_not_busy(project, repository)
    yield from _check_gitignore(project, repository)
    yield from _check_worktrees(project, repository)


def _has_identity(repository: Repository) -> bool:
    return all(repository.text("config", "--get", f"user.{name}", check=False) for name in ("name", "email"))


def _check_not_busy(project: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    """A run in the user's folder refuses to start during a merge; any other run does not need the folder."""
    name = find_under_way(repository)
    if name and project.settings is not None and project.settings.run.workspace == "here":
        text = f"a merge, rebase or similar operation is in progress ({name}): finish or abort it before the next run"
        yield wrong("git", text, "git status")
    elif name:
        text = (
            f"a merge, rebase or similar operation is in progress ({name}): until it ends, `ralphtool finish` refuses"
        )
        yield warning("git", text, "git status, then finish or abort it")


def _check_gitignore(project: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    found = detect.check_gitignore(repository, project.root)
    if found.state == "closed":
        yield warning(
            "git",
            "git ignores all of .ralph: settings and history are not committed",
            f"to commit them, replace the ignore rule by {', '.join(detect.list_ignore_lines(project.root))}",
        )
    elif found.state == "open":
        yield warning(
            "git",
            f"git would commit files of .ralph that only matter on this machine: {_describe_gitignore(found)}",
            "ralphtool init --yes",
            partial(_fix_gitignore, project, repository, found),
        )


def _describe_gitignore(found: detect.GitignoreState) -> str:
    return f"{found.path} has no rules for them" if os.path.lexists(found.path) else f"there is no {found.path}"


def _fix_gitignore(project: DoctorContext, repository: Repository, found: detect.GitignoreState) -> str:
    detect.update_gitignore(found)
    if detect.check_gitignore(repository, project.root).state == "open":
        raise InvalidValue(
            f"{found.path} has rules for .ralph, but another rule overrides them: `git check-ignore -v` shows which"
        )
    return f"{found.path} has the rules for .ralph"


def _check_worktrees(project: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    names = layout.list_working_trees(repository.common)
    changes = sorted({change for name in names if is_name(change := name.partition("@")[0])})
    known = repository.refs(layout.BRANCHES) if changes else {}
    for change in changes:
        if layout.BRANCHES + change not in known:
            text = f"{layout.in_git(repository.common)} has a worktree of {change}, whose branch is gone"
            repair = partial(_remove_worktrees, project.root, repository, change)
            yield warning("git", text, "ralphtool doctor --fix", repair)
    listed = repository.text("worktree", "list", "--porcelain")
    if any(line.startswith("prunable") for line in listed.split("\n")):
        text = "git lists worktrees whose folders are gone"
        yield warning("git", text, "ralphtool doctor --fix", partial(_prune, repository))


def _remove_worktrees(root: str, repository: Repository, change: str) -> str:
    """Keeps unfinished work first. Does nothing if a run has started meanwhile."""
    from ralphtool.workspace import slots

    repository.ensure_identity()
    with hold_change(repository, root, change, "`ralphtool doctor`"):
        if repository.resolve(layout.BRANCHES + change):
            return f"the worktree of {change} is in use again"
        left = slots.keep_left(repository, root, change, repository.resolve(layout.FINISHED + change))
        if notices := [*left.notices, *slots.remove_left(repository, left)]:
            raise GitError("; ".join(notices))
    kept = f"; its unfinished work is kept as {', '.join(left.kept)}" if left.kept else ""
    return f"removed the worktree of {change}{kept}"


def _prune(repository: Repository) -> str:
    prune_worktrees(repository)  # unlike git's own command, it keeps those of a project that was moved
    return "removed worktrees whose folders are gone from git's list"


def check_settings(project: DoctorContext) -> Iterator[Diagnosis]:
    path = config.path_of(project.root)
    try:
        project.settings = settings_module.load(project.root)
    except InvalidValue as error:
        yield wrong("settings", str(error), f"edit {path}")
        return
    for agent in project.settings.agents.values():
        secrets.register(agent.env)
    if os.path.lexists(path):
        yield ok("settings", path)
    else:
        yield warning("settings", "there is no .ralph/config.toml: defaults are used", "ralphtool init")
    command = project.settings.notify.command
    if command and shutil.which(command[0]) is None:
        yield wrong("settings", f"the program {shorten(command[0])} of [notify] is not installed", f"edit {path}")


# --- agents -----------------------------------------------------------------------------------------


def check_agents(project: DoctorContext) -> Iterator[Diagnosis]:
    settings = project.settings or settings_module.Settings()
    run = settings.run
    names = [*dict.fromkeys([*([run.agent] if run.agent else []), *run.agents])]
    others = [name for name in detect.installed() if name not in names]
    if not names and project.settings:
        yield _describe_no_agent(project, others)
    with ThreadPoolExecutor(max_workers=max(len(names), 1)) as pool:
        for found in pool.map(lambda name: list(_check_agent(project, settings, name)), names):
            yield from found
    if others:
        yield ok("agents", f"also installed: {', '.join(others)}")


def _describe_no_agent(project: DoctorContext, installed: Sequence[str]) -> Diagnosis:
    if not installed:
        get = detect.first_program().package
        return wrong(
            "agents",
            "no agent is configured, and no known agent is installed",
            f'{get}, or configure your own: agent = "NAME" in [run], and command = ["…"] in [agents.NAME]',
        )
    if not os.path.lexists(config.path_of(project.root)):
        return wrong("agents", f"no agent is configured; installed: {', '.join(installed)}", "ralphtool init")
    setting = f'agent = "{installed[0]}"'
    return wrong(
        "agents",
        "no agent is configured",
        f"set {setting} under [run] in .ralph/config.toml, or use --agent {installed[0]}",
    )


def _check_agent(project: DoctorContext, settings: Settings, name: str) -> Iterator[Diagnosis]:
    found = settings.agents.get(name)
    try:
        runner = agents.make(name, structs.asdict(found) if found else {}, settings.agents)
        _limit_patience(runner, project)
        if settings.run.executor == "local":
            runner.check()
    except InvalidValue as error:
        yield from_error("agents", error)
        return
    if settings.run.executor != "local":
        yield ok("agents", f"{name} runs on workers: it must be installed and logged in there")
    elif isinstance(runner, Program):
        _limit_patience(runner, project)
        yield from _check_program(project.root, runner)
    else:
        yield ok("agents", f"{name} can be started")
    yield from _check_limits(runner, settings)


def _limit_patience(runner: Runner, project: DoctorContext) -> None:
    if isinstance(runner, Program):
        runner.patience = project.seconds_left


def _check_program(root: str, runner: Program) -> Iterator[Diagnosis]:
    named = f"{runner.name} {format_version(runner.version())}"
    login = runner.login(root)
    if login.answer == "yes":
        yield ok("agents", f"{named}, logged in ({login.because})")
    elif login.answer == "no":
        yield wrong("agents", f"{named}: not logged in", runner.traits.login_hint)
    else:
        why = f" ({login.because})" if login.because else ""
        text = f"{named}: could not check whether it is logged in{why}"
        yield warning("agents", text, f"if not: {runner.traits.login_hint}")


def _check_limits(runner: Runner, settings: Settings) -> Iterator[Diagnosis]:
    """Settings that can't be enforced for this agent."""
    why = budget.explain_unknown_cost(runner, settings)
    if why and (settings.run.max_cost or settings.run.story_cost):
        yield warning(
            "agents", (f"the cost limit can't be enforced for {runner.name}: {why}"), "set max_tokens or max_time"
        )
    wanted = settings.agents.get(runner.name, settings_module.AgentSettings())
    is_wanted = runner.traits.is_kept if wanted.mcp is None else wanted.mcp
    if runner.traits.mcp and is_wanted and importlib.util.find_spec("mcp") is None:
        text = f"{runner.name} does not get ralphtool's MCP tools: the package mcp is not installed"
        yield warning("agents", text, build_install_command("mcp"))


# --- specs ------------------------------------------------------------------------------------------


def check_specs(project: DoctorContext) -> Iterator[Diagnosis]:
    places = specs.find_all(project.root)
    broken = [place.error for place in places if place.error]
    yield from (from_error("specs", error) for error in broken)
    names = sorted({place.change for place in places if not place.error})
    if not names and not broken:
        yield warning("specs", "there are no changes yet", 'ralphtool new "What it is about"')
    good = []
    for name in names:
        try:
            spec = specs.open(project.root, name)
            stories = spec.stories(locks.list_completed_tasks(project.root, name))
            doubts = remaining.read_warnings(spec)
        except ChangeNotFound as error:  # a tracker's change that is not copied yet
            yield warning("specs", str(error))
            continue
        except RalphError as error:
            yield from_error("specs", error)
            continue
        except OSError as error:
            yield wrong("specs", str(from_os_error(error)))
            continue
        good.append(name)
        yield from (warning("specs", text, f"ralphtool show {name}") for text in doubts)
        if scaffold.is_unfilled(spec):
            yield warning("specs", scaffold.describe_unfilled(spec), scaffold.FILL_IN)
        if not any(story.tasks for story in stories):
            yield warning("specs", f"{name} has no tasks yet", f"write them as {remaining.describe_task(spec)}")
    if good:
        more = f" and {len(good) - 5} more" if len(good) > 5 else ""
        yield ok("specs", f"{', '.join(good[:5])}{more} can be read")


def is_alive(root: str, change: str, run: str) -> bool:
    lock = locks.read_lock(root, change)
    return lock is not None and lock.session_id == run and not lock.is_abandoned
