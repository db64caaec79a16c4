"""Programs of a run are started in its box: their paths become those that the box has."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from ralphtool.core import secrets
from ralphtool.sandbox import shown
from ralphtool.sandbox.bridge import COMPILED, SOCKET
from ralphtool.sandbox.bubblewrap import GIT, NETWORK, OBJECTS, PROGRAMS, Layer, build_command

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ralphtool.sandbox.bubblewrap import BoxPlan

# What leads out of a box: to agents that hold keys, to the user's desktop, to a daemon with all rights.
_WAYS_OUT_NAMES = (
    "SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DOCKER_HOST DISPLAY WAYLAND_DISPLAY XAUTHORITY"
    " XDG_RUNTIME_DIR TMUX TMUX_PANE STY GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_SSH GIT_SSH_COMMAND"
    " GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS DBUS_SYSTEM_BUS_ADDRESS CONTAINER_HOST NOTIFY_SOCKET SESSION_MANAGER"
    " PULSE_SERVER NVIM NVIM_LISTEN_ADDRESS KITTY_LISTEN_ON WEZTERM_UNIX_SOCKET ALACRITTY_SOCKET VSCODE_IPC_HOOK_CLI"
    " VSCODE_GIT_IPC_HANDLE"
)
_WAYS_OUT = frozenset(_WAYS_OUT_NAMES.split())
_PROXY_PORT = 64128  # on the box's loopback; above the ports that the system gives to connections
_PROXY = f"http://127.0.0.1:{_PROXY_PORT}"
_NO_HOME = "/tmp/home"  # noqa: S108 - in the box, where /tmp is empty
_DIRECT = "localhost,127.0.0.1,::1"  # the box has a loopback of its own
_PROXY_ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
    "NODE_USE_ENV_PROXY": "1",
    **{"NO_UPDATE_NOTIFIER": "1", "npm_config_update_notifier": "false"},  # nobody asked for a look at a registry
}


class AgentPlaces(Struct, frozen=True, kw_only=True):
    """What agents alone may write, and what of that is read-only all the same. Gates have no business there. And the
    secret variables that agents alone get."""

    write: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()


_NO_PLACES = AgentPlaces()


class BoxState(Protocol):
    """What differs from one start to the next."""

    def list_layers(self) -> Sequence[Layer]: ...

    def find_cache(self, purpose: str) -> Layer | str:
        """What programs of a purpose keep in `~/.cache`, so that not every build begins with nothing: a folder, or a
        layer. Empty: they have none."""
        ...


class _BareBox:
    """One with nothing in it but what its plan says."""

    def list_layers(self) -> Sequence[Layer]:
        return ()

    def find_cache(self, purpose: str) -> Layer | str:
        return ""


class Confinement:
    """Rewrites how programs are started."""

    def __init__(
        self,
        plan: BoxPlan,
        state: BoxState | None = None,
        *,
        places: AgentPlaces = _NO_PLACES,
        host_ports: Sequence[int] = (),
        variables: Collection[str] = (),
    ) -> None:
        """`host_ports` are ports of this machine that the box's loopback has too, where a proxy is the way out.
        `variables` are secret ones that all programs get."""
        self._plan = plan
        self._state = state or _BareBox()
        self._places = places
        self._host_ports = host_ports
        self._variables = frozenset(variables)

    def confine(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], writable: Sequence[str], purpose: str = "agent"
    ) -> tuple[list[str], str, dict[str, str]]:
        """The same program, in the box. `writable` are further folders that it may write to. Programs of different
        purposes have no cache in common: an agent could leave something there for the gates."""
        own = self._find_uncommitted(argv, cwd) if purpose == "agent" else {}
        words = [*self._build_bridge(), *(own.get(word) or self._translate(word) for word in argv)]
        places = self._places if purpose == "agent" else _NO_PLACES
        inside = self._build_environment(env, self._variables | places.variables)
        temporary = _find_temporary(inside, self._plan.top)
        read = [path for path in shown.list_shown(self._plan.home, inside, words) if path != temporary]
        cache = self._state.find_cache(purpose)
        layers = [*self._state.list_layers(), *self._plan.layers, *((cache,) if isinstance(cache, Layer) else ())]
        plan = structs.replace(
            self._plan,
            layers=tuple(layer for layer in layers if os.path.isdir(layer.source)),  # else it was removed
            read=(*read, *self._plan.read),
            write=(*self._plan.write, *places.write, *writable),
            kept=(*self._plan.kept, *places.kept),
            hidden=(*self._plan.hidden, *self._list_secrets(read), *self._list_daemons()),
            sockets=tuple(self._list_sockets(read)),
            cache=cache.merged if isinstance(cache, Layer) else cache,
            temporary=temporary,
            programs=tuple((self._find_in_user_tree(word, cwd), place) for word, place in own.items()),
        )
        return build_command(plan, words, self._translate(cwd)), "/", inside

    def _list_secrets(self, read: Sequence[str]) -> list[str]:
        """Unless they were asked for by name. What covers all else, or is covered, needs no hiding."""
        named = {*self._plan.read, *self._plan.write}
        found = shown.list_secrets(self._plan.home, [*read, *self._plan.read])
        return [path for path in found if path not in named and not f"{path}/".startswith(f"{self._plan.top}/")]

    def _list_daemons(self) -> list[str]:
        named = {*self._plan.read, *self._plan.write}
        return [path for path in shown.DAEMONS if os.path.isdir(path) and path not in named]

    def _list_sockets(self, read: Sequence[str]) -> list[str]:
        """Sockets of daemons: who can connect to one is out of the box, and often root."""
        found = shown.list_sockets(self._plan.home, [*read, *self._plan.read])
        covered = (*self._list_daemons(), self._plan.top, *self._plan.read, *self._plan.write)
        return [one for one in found if not any(f"{one}/".startswith(f"{other}/") for other in covered)]

    def _build_environment(self, env: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
        withheld = {*_WAYS_OUT, *list_withheld(env, allowed)}
        kept = {name: self._translate(value) for name, value in env.items() if name not in withheld}
        if self._plan.git:
            kept |= {"GIT_OBJECT_DIRECTORY": OBJECTS, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{GIT}/objects"}
        if self._plan.home == _NO_HOME:
            kept["HOME"] = _NO_HOME
        return kept | (_PROXY_ENVIRONMENT if self._plan.network else {})

    def _find_uncommitted(self, argv: Sequence[str], cwd: str) -> dict[str, str]:
        """Files of the user's own tree that a command names and the worktree does not have: where the box has them."""
        found = [word for word in argv if "/" in word and self._is_only_in_user_tree(word, cwd)]
        return {word: f"{PROGRAMS}/{number}/{os.path.basename(word)}" for number, word in enumerate(found)}

    def _is_only_in_user_tree(self, word: str, cwd: str) -> bool:
        theirs = self._find_in_user_tree(word, cwd)
        is_inside = theirs.startswith(f"{self._plan.top}/") and not theirs.startswith(f"{self._plan.slot}/")
        return (
            is_inside
            and os.path.isfile(theirs)
            and not os.path.lexists(self._plan.slot + theirs[len(self._plan.top) :])
        )

    def _find_in_user_tree(self, word: str, cwd: str) -> str:
        return os.path.normpath(os.path.join(self._translate(cwd), self._translate(word)))

    def _build_bridge(self) -> list[str]:
        """What comes before a program whose way out is a proxy."""
        if not self._plan.network:
            return []
        ports = [str(port) for port in (_PROXY_PORT, *self._host_ports)]
        return [sys.executable, "-I", "-S", f"{NETWORK}/{COMPILED}", f"{NETWORK}/{SOCKET}", *ports, "--"]

    def _translate(self, text: str) -> str:
        """The worktree's own path is the project's in the box."""
        return text.replace(self._plan.slot, self._plan.top) if self._plan.slot in text else text


def list_withheld(env: Mapping[str, str], allowed: Collection[str]) -> list[str]:
    """Secrets that a program only has because its user has them in the environment."""
    inherited = [name for name, value in env.items() if os.environ.get(name) == value]
    return sorted(name for name in inherited if name not in allowed and secrets.is_secret(name, env[name]))


def find_home() -> str:
    """The user's home. A user of a container may have none (HOME is / there, or a folder that is missing): a box
    can't be made with that, and so has one of its own."""
    home = os.path.realpath(os.path.expanduser("~"))
    return home if home != "/" and os.path.isdir(home) else _NO_HOME


def find_homes() -> tuple[str, ...]:
    """Where the homes of all users are; root could read them."""
    return tuple(os.path.realpath(path) for path in shown.HOMES if os.path.isdir(path))


def _find_temporary(env: Mapping[str, str], top: str) -> str:
    """A folder for temporary files that programs are told of, besides the usual ones, which are a box's own anyway."""
    folder = os.path.realpath(env.get("TMPDIR") or "/tmp")  # noqa: S108
    is_usual = folder in ("/tmp", "/var/tmp") or top.startswith(f"{folder}/")  # noqa: S108
    return "" if is_usual or not os.path.isdir(folder) else folder
