"""What is missing or wrong in a project: findings as values, each with what mends it.

Looking changes nothing, asks no model and no network. What can be mended without harm brings its own repair.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from ralphtool import __version__, agents, specs
from ralphtool import settings as settings_module
from ralphtool.agents.program import Program, format_version
from ralphtool.cli import detect
from ralphtool.core import config, files, gate_commands, layout, lifecycle, locks, project, secrets
from ralphtool.errors import GitError, InvalidValue, RalphError, TreeBusy, from_os_error, shorten
from ralphtool.executors import gate_run
from ralphtool.executors.process import Supervisor
from ralphtool.history.store import Store
from ralphtool.loop import budget
from ralphtool.record import change_state, questions
from ralphtool.workspace import in_place
from ralphtool.workspace.git import Repository
from ralphtool.workspace.stash import Stash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ralphtool.agents import Runner
    from ralphtool.core.locks import ChangeLock
    from ralphtool.settings import Settings

_OLDEST_GIT = (2, 38)
_MIB = 1 << 20
_LEAST_ROOM = 100 * _MIB  # below that the next run is likely to fail
_LITTLE_ROOM = 1024 * _MIB
_LAST_LINES = 12
_HIDDEN_VARIABLES = ("RALPH_SESSION", "RALPH_STORY", "RALPH_TOKEN", "RALPH_TASK")

State = Literal["ok", "warning", "wrong"]


class Diagnosis(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    about: str
    state: State
    text: str
    mend: str = ""  # what to do, mostly a command
    repair: Callable[[], str] | None = None  # does that, where it is safe, and tells what it did

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("about", "state", "text", "mend")}
        return told | {"fixable": self.repair is not None}


def _ok(about: str, text: str) -> Diagnosis:
    return Diagnosis(about=about, state="ok", text=text)


def _warning(about: str, text: str, mend: str = "", repair: Callable[[], str] | None = None) -> Diagnosis:
    return Diagnosis(about=about, state="warning", text=text, mend=mend, repair=repair)


def _wrong(about: str, text: str, mend: str = "", repair: Callable[[], str] | None = None) -> Diagnosis:
    return Diagnosis(about=about, state="wrong", text=text, mend=mend, repair=repair)


def _from_error(about: str, error: RalphError) -> Diagnosis:
    """An error says first what happened, then what to do."""
    text = str(error)
    what, _, mend = text.rpartition(": ") if "\n" not in text else (text, "", "")
    return _wrong(about, what or text, mend if what else "")


class DoctorContext:
    """The project that is looked at. `settings` and `repository` are None where there are none that can be used."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.settings: Settings | None = None
        self.repository: Repository | None = None

    @property
    def folder(self) -> str:
        return layout.folder(self.root)


def examine(
    root: str, *, with_gates: bool = True, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Diagnosis]:
    """All that there is to say, in the order in which it matters. `tell` hears of what takes long, before it begins."""
    patient = DoctorContext(root)
    checks = (_machine, _config, _git, _agents, _specs, _locks, _tree, _history, _standings, _memory, _questions, _room)
    for check in checks:
        if check is _agents:
            tell("asking the agents for their versions")
        yield from _run_check(check, patient)
    if with_gates:
        yield from _gates(patient, tell)


def _run_check(check: Callable[[DoctorContext], Iterable[Diagnosis]], patient: DoctorContext) -> Iterator[Diagnosis]:
    """A check that meets something unreadable says so; the others go on."""
    about = check.__name__.strip("_")
    try:
        yield from check(patient)
    except RalphError as error:
        yield _from_error(about, error)
    except OSError as error:
        yield _wrong(about, str(from_os_error(error)))


# --- the machine, git, settings ---------------------------------------------------------------------


def _machine(patient: DoctorContext) -> Iterator[Diagnosis]:
    yield _ok("machine", f"ralphtool {__version__}, Python {platform.python_version()}, {platform.system()}")


def _git(patient: DoctorContext) -> Iterator[Diagnosis]:
    version = _git_version()
    if version is None:
        yield _warning("git", f"git is not there: {_WITHOUT_GIT}", "install git, then `git init`")
        return
    words = format_version(version)
    if version < _OLDEST_GIT:
        yield _warning("git", f"git {words} is older than what is tried ({format_version(_OLDEST_GIT)})", "update git")
    else:
        yield _ok("git", f"git {words}")
    patient.repository = Repository.find(patient.root)
    if patient.repository is None:
        yield _warning("git", f"this is no git repository: {_WITHOUT_GIT}", "git init")
        return
    yield from _repository(patient, patient.repository)


_WITHOUT_GIT = "nothing is committed, a failed attempt is not taken back, and cheating in the diff can't be seen"


def _git_version() -> tuple[int, ...] | None:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part) for part in found.groups() if part) if found and not done.returncode else None


def _repository(patient: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    if not _has_identity(repository):
        yield _warning(
            "git",
            "git does not know who you are, so commits will be ralphtool's",
            'git config user.name "…" && git config user.email "…"',
        )
    yield from _under_way(patient, repository)
    yield from _ignoring(patient, repository)
    yield from _worktrees(patient, repository)


def _has_identity(repository: Repository) -> bool:
    return all(repository.text("config", "--get", f"user.{name}", check=False) for name in ("name", "email"))


def _under_way(patient: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    if patient.settings and patient.settings.run.workspace == "worktree":
        return
    try:
        Stash(repository, layout.FOLDER).check_not_busy()
    except TreeBusy as error:
        yield _wrong("git", str(error), "git status")


def _ignoring(patient: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    found = detect.check_gitignore(repository, patient.root)
    if found.state == "closed":
        yield _warning(
            "git",
            "git ignores all of .ralph: settings and history are not kept in the repository",
            f"to keep them, put {', '.join(detect.IGNORED)} in the place of what ignores it",
        )
    elif found.state == "open":
        yield _warning(
            "git",
            f"{found.path} lets git commit files of .ralph that are of no use to others",
            "ralphtool init --yes",
            partial(_fix_gitignore, patient, repository, found),
        )


def _fix_gitignore(patient: DoctorContext, repository: Repository, found: detect.GitignoreState) -> str:
    detect.update_gitignore(found)
    if detect.check_gitignore(repository, patient.root).state == "open":
        raise InvalidValue(f"{found.path} has lines for .ralph, but another rule wins: `git check-ignore -v` names it")
    return f"lines for .ralph are in {found.path}"


def _worktrees(patient: DoctorContext, repository: Repository) -> Iterator[Diagnosis]:
    place = os.path.join(repository.common, "ralph", "worktrees")
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    known = {*repository.refs(layout.BRANCHES)}
    for name in names:
        if layout.BRANCHES + name not in known:
            path = os.path.join(place, name)
            text = f"{path} is a working tree of a change that has no branch any more"
            yield _warning("git", text, f"git worktree remove --force {shlex.quote(path)}")
    listed = repository.text("worktree", "list", "--porcelain")
    if any(line.startswith("prunable") for line in listed.split("\n")):
        text = "git knows working trees whose folders are gone"
        yield _warning("git", text, "git worktree prune", partial(_prune, repository))


def _prune(repository: Repository) -> str:
    repository.run("worktree", "prune")
    return "git has forgotten working trees whose folders are gone"


def _config(patient: DoctorContext) -> Iterator[Diagnosis]:
    path = config.path_of(patient.root)
    try:
        patient.settings = settings_module.load(patient.root)
    except InvalidValue as error:
        yield _wrong("settings", str(error), f"edit {path}")
        return
    for agent in patient.settings.agents.values():
        secrets.register(agent.env)
    if os.path.lexists(path):
        yield _ok("settings", path)
    else:
        yield _warning("settings", "there is no .ralph/config.toml: defaults are used", "ralphtool init")
    command = patient.settings.notify.command
    if command and shutil.which(command[0]) is None:
        yield _wrong("settings", f"the program {shorten(command[0])} of [notify] is not there", f"edit {path}")


# --- agents -----------------------------------------------------------------------------------------


def _agents(patient: DoctorContext) -> Iterator[Diagnosis]:
    settings = patient.settings or settings_module.Settings()
    run = settings.run
    names = [*dict.fromkeys([*([run.agent] if run.agent else []), *run.agents])]
    others = [name for name in detect.installed() if name not in names]
    if not names and patient.settings:
        yield _describe_no_agent(patient, others)
    with ThreadPoolExecutor(max_workers=max(len(names), 1)) as pool:
        for found in pool.map(lambda name: list(_agent(patient.root, settings, name)), names):
            yield from found
    if others:
        yield _ok("agents", f"installed as well: {', '.join(others)}")


def _describe_no_agent(patient: DoctorContext, installed: Sequence[str]) -> Diagnosis:
    if not installed:
        get = detect.first_program().package
        return _wrong(
            "agents", "no agent is named, and none that is known is installed", f"{get}, or see docs/agents.md"
        )
    if not os.path.lexists(config.path_of(patient.root)):
        return _wrong("agents", f"no agent is named; installed are {', '.join(installed)}", "ralphtool init")
    setting = f'agent = "{installed[0]}"'
    return _wrong(
        "agents", "no agent is named", f"set {setting} under [run] in .ralph/config.toml, or say --agent {installed[0]}"
    )


def _agent(root: str, settings: Settings, name: str) -> Iterator[Diagnosis]:
    found = settings.agents.get(name)
    try:
        runner = agents.make(name, structs.asdict(found) if found else {})
        runner.check()
    except InvalidValue as error:
        yield _from_error("agents", error)
        return
    if isinstance(runner, Program):
        yield from _program(root, runner)
    else:
        yield _ok("agents", f"{name} can be started")
    yield from _check_limits(runner, settings)


def _program(root: str, runner: Program) -> Iterator[Diagnosis]:
    named = f"{runner.name} {format_version(runner.version())}"
    login = runner.login(root)
    if login.answer == "yes":
        yield _ok("agents", f"{named}, logged in ({login.because})")
    elif login.answer == "no":
        yield _wrong("agents", f"{named}: nobody is logged in", runner.traits.login_hint)
    else:
        why = f" ({login.because})" if login.because else ""
        text = f"{named}: whether anybody is logged in can't be told from here{why}"
        yield _warning("agents", text, f"if not: {runner.traits.login_hint}")


def _check_limits(runner: Runner, settings: Settings) -> Iterator[Diagnosis]:
    """Settings that this agent can't be held to."""
    why = budget.explain_unknown_cost(runner, settings)
    if why and (settings.run.max_cost or settings.run.story_cost):
        yield _warning("agents", f"the limit of cost can't hold for {runner.name}: {why}", "set max_tokens or max_time")
    wanted = settings.agents.get(runner.name, settings_module.AgentSettings())
    is_wanted = runner.traits.is_kept if wanted.mcp is None else wanted.mcp
    if runner.traits.mcp and is_wanted and importlib.util.find_spec("mcp") is None:
        text = f"{runner.name} gets no MCP tools of ours: the package for them is not installed"
        yield _warning("agents", text, 'pip install "ralphtool[mcp]"')


# --- specs ------------------------------------------------------------------------------------------


def _specs(patient: DoctorContext) -> Iterator[Diagnosis]:
    places = specs.find_all(patient.root)
    broken = [place.error for place in places if place.error]
    yield from (_from_error("specs", error) for error in broken)
    names = sorted({place.change for place in places if not place.error})
    if not names and not broken:
        yield _warning("specs", "there is no change yet", 'ralphtool new "What it is about"')
    good = []
    for name in names:
        try:
            stories = specs.open(patient.root, name).stories(locks.list_completed_tasks(patient.root, name))
        except RalphError as error:
            yield _from_error("specs", error)
            continue
        except OSError as error:
            yield _wrong("specs", str(from_os_error(error)))
            continue
        good.append(name)
        if not stories:
            yield _warning("specs", f"{name} has no stories", f"write some, then `ralphtool show {name}`")
    if good:
        more = f" and {len(good) - 5} more" if len(good) > 5 else ""
        yield _ok("specs", f"{', '.join(good[:5])}{more} can be read")


# --- gates ------------------------------------------------------------------------------------------


def _gates(patient: DoctorContext, tell: Callable[[str], None]) -> Iterator[Diagnosis]:
    try:
        found = detect.list_gates(gate_commands.find_commands(patient.root), patient.root)
    except (RalphError, OSError):
        return  # the settings can't be read, which has been told
    if not found:
        text = "there is no gate: that a story is done rests on its ticks and its diff alone"
        yield _warning("gates", text, "set checks and tests under [verify] in .ralph/config.toml")
    if at_work := _find_running(patient):
        yield _ok("gates", f"not run, since {at_work} is at work here")
        return
    timeout = (patient.settings or settings_module.Settings()).verify.timeout
    with tempfile.TemporaryDirectory(prefix="ralphtool-doctor-") as folder, Supervisor() as supervisor:
        for number, gate in enumerate(found):
            if gate.missing:
                text = f"`{gate.command}`: the program {gate.missing} is not there"
                yield _wrong("gates", text, f"install {gate.missing}, or change [verify] in .ralph/config.toml")
                continue
            tell(f"running {gate.command}")
            yield _gate(patient.root, gate.command, supervisor, os.path.join(folder, f"{number}.log"), timeout)


def _gate(root: str, command: str, supervisor: Supervisor, log: str, timeout: float) -> Diagnosis:
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN_VARIABLES}
    done = gate_run.run(
        command, gate_run.CommandContext(supervisor, root, env, secrets.list_values(), lambda: False), log, timeout
    )
    if done.ok:
        return _ok("gates", f"`{command}` is green{f' ({done.tally})' if done.tally else ''}, {done.seconds:.1f} s")
    if done.why == "wall-clock":
        return _wrong("gates", f"`{command}` took longer than {timeout:g} s and was ended", "raise timeout in [verify]")
    last = gate_run.read_last_output([done]).splitlines()[-_LAST_LINES:]
    ending = done.why or f"exit status {done.exit_code}"
    text = f"`{command}` is red already ({ending}), before any agent has begun"
    mend = "make it green: what is red at the start proves nothing, and only what is newly red is held against a story"
    return _wrong("gates", "\n".join([text, *(f"    {line}" for line in last)]), mend)


def _find_running(patient: DoctorContext) -> str:
    """The run that works in this very tree, if one does."""
    try:
        note = in_place.find_note(patient.repository, patient.root) if patient.repository else None
        return note.run if note and _is_alive(patient.root, note.change, note.run) else ""
    except RalphError:
        return ""


def _is_alive(root: str, change: str, run: str) -> bool:
    lock = locks.read_lock(root, change)
    return lock is not None and lock.session_id == run and not lock.is_abandoned


# --- what runs leave --------------------------------------------------------------------------------


def _locks(patient: DoctorContext) -> Iterator[Diagnosis]:
    folder = layout.locks(patient.root)
    locks.check_folders(patient.root)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        change = name.removesuffix(".lock")
        if name.endswith(".lock") and project.is_name(change):
            yield from _lock(patient.root, change)


def _lock(root: str, change: str) -> Iterator[Diagnosis]:
    unlock = f"ralphtool unlock {change}"
    try:
        lock = locks.read_lock(root, change)
    except RalphError as error:
        yield _wrong("locks", str(error), unlock, partial(_unlock, root, change))
        return
    if lock is None or lock.fields["unlocked"]:
        return  # what its session recorded waits for the next one
    if lock.is_abandoned:
        text = f"{change} is held by {_describe_dead_lock(lock)}; the next run takes it over"
        yield _warning("locks", text, unlock, partial(_unlock, root, change))
    else:
        yield _ok("locks", f"{change} is held by {lock.describe()}")


def _describe_dead_lock(lock: ChangeLock) -> str:
    return f"{lock.describe()}, which is {'dead' if lock.has_dead_owner else 'gone'}"


def _unlock(root: str, change: str) -> str:
    return lifecycle.unlock(root, change) or f"{change} is free already"


def _tree(patient: DoctorContext) -> Iterator[Diagnosis]:
    note = in_place.find_note(patient.repository, patient.root) if patient.repository else None
    if note is None:
        return
    if _is_alive(patient.root, note.change, note.run):
        yield _ok("tree", f"the run {note.run} is at work in your tree; your own work comes back at its end")
    else:
        text = f"the run {note.run} was killed: your branch and your own work wait to be given back"
        yield _wrong("tree", text, "ralphtool back")


def _history(patient: DoctorContext) -> Iterator[Diagnosis]:
    store = Store(patient.root)  # not History, which would take over an old progress.txt
    try:
        if not os.path.isdir(patient.folder):
            return
        problems = store.ask(lambda state: [reason for _, reason in state.catalog.problems()])
    except RalphError as error:
        yield _wrong("history", str(error), "ralphtool progress validate .ralph/progress.json")
        return
    finally:
        store.close()
    if problems:
        text = f"{'; '.join(problems[:5])}: the next write sets that aside"
        yield _warning("history", text, "ralphtool progress fold", partial(_fold, patient.root))
    if os.path.lexists(store.damaged_path):
        text = f"records that could not be read were set aside in {store.damaged_path}"
        yield _warning("history", text, "look whether you miss anything, then remove it")
    elif not problems and os.path.lexists(store.path):
        yield _ok("history", "the history can be read")


def _fold(root: str) -> str:
    store = Store(root)
    try:
        store.fold()
    finally:
        store.close()
    return f"what can't be read of the history is set aside in {store.damaged_path}"


def _standings(patient: DoctorContext) -> Iterator[Diagnosis]:
    folder = os.path.join(patient.folder, "standing")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        change = name.removesuffix(".json")
        if not name.endswith(".json") or not project.is_name(change):
            continue
        try:
            change_state.load(patient.root, change)
        except RalphError as error:
            path = shlex.quote(change_state.path_of(patient.root, change))
            yield _wrong("standing", str(error), f"mv {path} {path}.damaged")


def _memory(patient: DoctorContext) -> Iterator[Diagnosis]:
    path = os.path.join(patient.folder, "memory.index")
    if not os.path.lexists(path):
        return
    if why := _find_database_problem(path):
        text = f"{path} can't be used ({why}); it is only a cache, and is made again"
        yield _warning("memory", text, f"rm {shlex.quote(path)}", partial(_remove_cache, path))


def _find_database_problem(path: str) -> str:
    if os.path.islink(path) or not os.path.isfile(path):
        return "it is no plain file"
    try:
        db = sqlite3.connect(f"file:{_quote_for_uri(path)}?mode=ro", uri=True, timeout=5)
        try:
            [(told,)] = db.execute("PRAGMA quick_check(1)")
        finally:
            db.close()
    except (sqlite3.Error, UnicodeDecodeError, ValueError) as error:
        return "" if "locked" in str(error) else str(error)  # somebody works with it
    return "" if told == "ok" else str(told)


def _quote_for_uri(path: str) -> str:
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _remove_cache(path: str) -> str:
    for name in (path, f"{path}-journal", f"{path}-wal", f"{path}-shm"):
        files.clear(name)
    return f"{path} is removed"


def _questions(patient: DoctorContext) -> Iterator[Diagnosis]:
    waiting = [one for one in questions.list_open(patient.root) if one.answer is None]
    for one in waiting[:5]:
        text = f"story {one.story} of {one.change} waits for your answer"
        yield _warning("questions", text, f'ralphtool questions, then ralphtool answer {one.story} "…"')


def _room(patient: DoctorContext) -> Iterator[Diagnosis]:
    seen = set()
    for place in (patient.root, files.tmp_dir()):
        device = os.stat(place).st_dev
        if device not in seen:
            seen.add(device)
            yield from check_disk_space(place, shutil.disk_usage(place).free)


def check_disk_space(place: str, free: int) -> Iterator[Diagnosis]:
    if free >= _LITTLE_ROOM:
        return
    text = f"the disk of {place} has {free // _MIB} MiB left"
    yield (_wrong if free < _LEAST_ROOM else _warning)("disk", text, "free some space")


# --- mending ----------------------------------------------------------------------------------------


def repaired(finding: Diagnosis) -> tuple[bool, str]:
    """Does what can be done about a finding; whether that was done, and in words what was, or why not."""
    if finding.repair is None:
        return False, ""
    try:
        return True, finding.repair()
    except (RalphError, GitError) as error:
        return False, str(error)
    except OSError as error:
        return False, str(from_os_error(error))
