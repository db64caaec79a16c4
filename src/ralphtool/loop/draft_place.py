"""The place where an agent drafts a change: it may read the whole project, and write into one folder.

In a box the project is shown read-only. Without a box the agent gets a copy of it, and its changes there are lost.
Without git no copy can be made: then the agent's own read-only mode must be enough.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.agents.program import list_logins, list_needs
from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.loop.confining import list_agent_variables, list_named
from ralphtool.record import runs
from ralphtool.sandbox.trial import NoBox, try_box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.agents import Runner
    from ralphtool.executors.process import Confine
    from ralphtool.record.log import Log
    from ralphtool.sandbox.agent_home import AgentHome
    from ralphtool.settings import Settings
    from ralphtool.workspace.git import Repository


class DraftPlace(Struct, frozen=True, kw_only=True):
    """Where the agent is started, and what keeps it from changing more than its draft."""

    kind: str  # box, copy or here
    root: str
    confine: Confine | None = None


class PlaceChoice(Struct, frozen=True, kw_only=True):
    """The kind of place, and why there is no better one."""

    kind: str
    why: str = ""

    def describe(self) -> str:
        """One line for people."""
        reason = f" ({self.why})" if self.why else ""
        if self.kind == "box":
            return "the agent works in a box: it can read your project, and write only its draft"
        if self.kind == "copy":
            return f"the agent works on a copy of your project, not in a box{reason}: only its draft is kept"
        return f"the agent works in your own folder{reason}, in its read-only mode: it can write only its draft"


def choose(settings: Settings, repository: Repository | None) -> PlaceChoice:
    """The best available place that the settings allow."""
    is_wanted = settings.run.workspace in ("auto", "box")
    must = settings.run.workspace == "box" or settings.sandbox.mode == "require"
    found = try_box() if is_wanted or must else None
    if found is not None and not isinstance(found, NoBox):
        return PlaceChoice(kind="box")
    why = f"{found.why}: {found.help}" if found else f'workspace = "{settings.run.workspace}"'
    if must:
        raise InvalidValue(f"no box is available here: {why}")
    return PlaceChoice(kind="copy" if repository else "here", why=why)


def check_runner(choice: PlaceChoice, runner: Runner) -> None:
    """Refuses an agent that nothing would stop from changing the project."""
    if choice.kind == "here" and not runner.traits.drafts:
        raise InvalidValue(
            f"{runner.name} can't be restricted to its draft, and there is neither a box ({choice.why}) nor git to "
            "make a copy with: run `git init`, or use another agent, such as --agent claude"
        )


@contextmanager
def open_place(
    choice: PlaceChoice,
    root: str,
    run: str,
    draft: str,
    settings: Settings,
    runners: Sequence[Runner],
    log: Log,
    repository: Repository | None,
) -> Iterator[DraftPlace]:
    """Creates the place, and removes it at the end."""
    if choice.kind == "box":
        with _open_box(root, run, draft, settings, runners, log, repository) as confine:
            yield DraftPlace(kind="box", root=os.path.realpath(root), confine=confine)
    elif choice.kind == "copy" and repository:
        with _open_copy(root, run, repository) as copied:
            yield DraftPlace(kind="copy", root=copied)
    else:
        yield DraftPlace(kind="here", root=root)


# --- a box ------------------------------------------------------------------------------------------


@contextmanager
def _open_box(
    root: str,
    run: str,
    draft: str,
    settings: Settings,
    runners: Sequence[Runner],
    log: Log,
    repository: Repository | None,
) -> Iterator[Confine]:
    from ralphtool.loop import way_out
    from ralphtool.sandbox import layers
    from ralphtool.sandbox.bubblewrap import BoxPlan
    from ralphtool.sandbox.confinement import AgentPlaces, Confinement, find_home, find_homes

    store = os.path.join(layout.run(root, run), "box")
    home = _copy_agents_files(store, root, runners)
    top = os.path.realpath(repository.top if repository else root)
    named = (*settings.sandbox.read, *settings.sandbox.write)  # both read-only: nothing there belongs to the draft
    rules = way_out.build_rules(settings, runners, root)
    try:
        with way_out.open_proxy(rules, settings, log) as proxy:
            plan = BoxPlan(
                top=top,
                slot=top,
                is_read_only=True,
                home=find_home(),
                homes=find_homes(),
                layers=tuple(home.layers),
                copies=tuple(home.copies),
                read=(*home.read, *([repository.common] if repository else []), *list_named(named, root)),
                write=(*home.write, draft),
                has_network=settings.sandbox.network == "on",
                network=proxy.folder if proxy else "",
                as_user=None if os.geteuid() == 0 else (os.geteuid(), os.getegid()),
            )
            places = AgentPlaces(variables=list_agent_variables(root, settings, runners))
            passed = settings.sandbox.env
            yield Confinement(plan, places=places, host_ports=rules.ports, variables=passed).confine
    finally:
        layers.remove_folder(store)


def _copy_agents_files(store: str, root: str, runners: Sequence[Runner]) -> AgentHome:
    from ralphtool.sandbox import layers
    from ralphtool.sandbox.agent_home import AgentHome

    needs = [path for runner in runners for path in list_needs(runner, root)]
    logins = [path for runner in runners for path in list_logins(runner, root)]
    has_overlay = layers.can_overlay(store) if needs else False
    home = AgentHome(needs, logins, os.path.join(store, "home"), with_overlay=has_overlay)
    home.renew()
    return home


# --- a copy -----------------------------------------------------------------------------------------


@contextmanager
def _open_copy(root: str, run: str, repository: Repository) -> Iterator[str]:
    """A copy of the user's files as they are now, without ignored ones."""
    folder = os.path.join(layout.in_git(repository.common), "copies")
    _clear_left_copies(root, folder)
    place = os.path.join(folder, run)
    try:
        _copy_tree(repository, place)
        inside = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.top))
        copied = os.path.normpath(os.path.join(place, inside))
        os.makedirs(copied, exist_ok=True)
        yield copied
    finally:
        files.clear(place)


def _clear_left_copies(root: str, folder: str) -> None:
    """Removes the copies that killed commands left behind."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            is_used = runs.read_summary(root, name).state in ("running", "paused")
        except RalphError:
            is_used = False
        if not is_used:
            files.clear(os.path.join(folder, name))


def _copy_tree(repository: Repository, place: str) -> None:
    options = ("--cached", "--others", "--exclude-standard", "--full-name")
    listed = repository.list_items("ls-files", "-z", *options, "--", ":/", own_index=False)
    for path in dict.fromkeys(listed):
        if layout.FOLDER not in path.split("/"):
            _copy_file(os.path.join(repository.top, path), os.path.join(place, path), repository.top, place)


def _copy_file(source: str, target: str, top: str, place: str) -> None:
    """Copies a file or a link; a submodule or a deleted file has nothing to copy."""
    try:
        mode = os.lstat(source).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISLNK(mode):
        leads = os.readlink(source)  # must not lead back into the user's own tree
        os.symlink(place + leads[len(top) :] if leads.startswith(f"{top}/") else leads, target)
    elif stat.S_ISREG(mode):
        shutil.copy2(source, target)
