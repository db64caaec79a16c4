"""How the programs of a run are started in a box or a worktree."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.agents.endpoints import list_named_variables
from ralphtool.agents.program import KEYS, list_logins, list_needs
from ralphtool.core import layout, session
from ralphtool.errors import InvalidValue, shorten
from ralphtool.record.events import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphtool.agents import Runner
    from ralphtool.executors.process import Confine
    from ralphtool.record.log import Log
    from ralphtool.sandbox.agent_home import AgentHome
    from ralphtool.sandbox.bubblewrap import BoxPlan
    from ralphtool.sandbox.confinement import AgentPlaces
    from ralphtool.settings import Settings
    from ralphtool.workspace import Workspace
    from ralphtool.workspace.box import Box
    from ralphtool.workspace.worktree import Worktree


@contextmanager
def confine(
    place: Workspace, root: str, run: str, settings: Settings, runners: Sequence[Runner], log: Log, slot: int = 0
) -> Iterator[Confine | None]:
    """Yields the function that puts a program into its box or worktree; None for the user's own folder. The box's
    network lives as long as this context. Notices that apply to all boxes of a run are logged with the first."""
    from ralphtool.workspace.box import Box
    from ralphtool.workspace.worktree import Worktree

    if not isinstance(place, Box):
        yield partial(_use_own_programs, place) if isinstance(place, Worktree) else None
        return
    from ralphtool.loop import way_out
    from ralphtool.sandbox.confinement import Confinement

    rules = way_out.build_rules(settings, runners, root)
    with way_out.open_proxy(rules, settings, log) as proxy:
        plan = structs.replace(
            _build_plan(place, root, settings, runners, None if slot else log),
            has_network=settings.sandbox.network == "on",
            network=proxy.folder if proxy else "",
        )
        places, passed = _find_agent_places(run, root, settings, runners), settings.sandbox.env
        if not slot and (told := _describe_withheld(places, passed)):
            log.note(Notice(text=told))
        yield Confinement(plan, place, places=places, host_ports=rules.ports, variables=passed).confine


def _use_own_programs(
    place: Worktree,
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    writable: Sequence[str],
    purpose: str = "agent",
) -> tuple[list[str], str, dict[str, str]]:
    """An agent may be a script that is only in the user's own folder, because it is not committed yet."""
    inside = os.path.relpath(cwd, place.place)
    theirs = {word: os.path.join(place.home.top, inside, word) for word in argv if "/" in word and purpose == "agent"}
    own = {
        word: os.path.normpath(path)
        for word, path in theirs.items()
        if os.path.isfile(path) and not os.path.lexists(os.path.join(cwd, word))
    }
    return [own.get(word, word) for word in argv], cwd, dict(env)


def _build_plan(place: Box, root: str, settings: Settings, runners: Sequence[Runner], log: Log | None) -> BoxPlan:
    from ralphtool.sandbox.bubblewrap import BoxPlan
    from ralphtool.sandbox.confinement import find_home, find_homes
    from ralphtool.workspace.box import describe_unreadable

    home = _show_agents_files(place, root, runners)
    if home.unreadable and log:
        log.note(Notice(text=describe_unreadable(home.unreadable)))
    return BoxPlan(
        top=place.top,
        slot=place.place,
        home=find_home(),
        homes=find_homes(),
        git=place.git,
        layers=tuple(home.layers),
        copies=tuple(home.copies),
        read=(*home.read, *list_named(settings.sandbox.read, root)),
        write=(*home.write, *list_named(settings.sandbox.write, root)),
        kept=(layout.folder(root),),
        as_user=None if os.geteuid() == 0 else (os.geteuid(), os.getegid()),
    )


def _find_agent_places(run: str, root: str, settings: Settings, runners: Sequence[Runner]) -> AgentPlaces:
    """An agent's commands write its session. The folder above the sessions has other files of ralphtool."""
    from ralphtool.sandbox.confinement import AgentPlaces

    sessions = os.path.dirname(session.path_of(run))
    own = list_agent_variables(root, settings, runners)
    return AgentPlaces(write=(sessions,), kept=(os.path.dirname(sessions),), variables=own)


def list_agent_variables(root: str, settings: Settings, runners: Sequence[Runner]) -> frozenset[str]:
    """The secrets that only the agents need: gates don't get them."""
    own = {*KEYS, *(name for runner in runners for name in runner.traits.credentials.variables)}
    own |= {name for runner in runners if (known := settings.agents.get(runner.name)) for name in known.env}
    needs = [path for runner in runners for path in list_needs(runner, root)]
    return frozenset(own.union(list_named_variables(needs, os.environ)))


def _describe_withheld(places: AgentPlaces, passed: Sequence[str]) -> str:
    from ralphtool.sandbox.confinement import list_withheld

    gates = list_withheld(os.environ, passed)
    both = [name for name in gates if name not in places.variables]
    own = [name for name in gates if name in places.variables]
    parts = [f"a box does not get {', '.join(both)}"] if both else []
    parts += [f"its gates don't get {', '.join(own)}"] if own else []
    named = ", ".join(f'"{name}"' for name in gates[:2])
    return f"{'; '.join(parts)}: to pass a secret, set env = [{named}] under [sandbox]" if gates else ""


def _show_agents_files(place: Box, root: str, runners: Sequence[Runner]) -> AgentHome:
    needs = [path for runner in runners for path in list_needs(runner, root)]
    return place.show_agents_files(needs, [path for runner in runners for path in list_logins(runner, root)])


def list_named(paths: Sequence[str], root: str) -> Iterator[str]:
    """Resolves paths from the settings; one that does not exist can't be shown in a box."""
    for path in paths:
        found = os.path.realpath(os.path.join(root, os.path.expanduser(path)))
        if not os.path.exists(found):
            raise InvalidValue(
                f"[sandbox] names {shorten(path)}, which does not exist: create it, or remove it from the list"
            )
        yield found
