"""Starts the programs of a run in its box: their paths are translated to those in the box."""

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

# Variables that lead out of a box: to key agents, to the user's desktop, to a privileged daemon.
_WAYS_OUT_NAMES = (
    "SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DOCKER_HOST DISPLAY WAYLAND_DISPLAY XAUTHORITY"
    " XDG_RUNTIME_DIR TMUX TMUX_PANE STY GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_SSH GIT_SSH_COMMAND"
    " GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS DBUS_SYSTEM_BUS_ADDRESS CONTAINER_HOST NOTIFY_SOCKET SESSION_MANAGER"
    " PULSE_SERVER NVIM NVIM_LISTEN_ADDRESS KITTY_LISTEN_ON WEZTERM_UNIX_SOCKET ALACRITTY_SOCKET VSCODE_IPC_HOOK_CLI"
    " VSCODE_GIT_IPC_HANDLE"
)
_WAYS_OUT = frozenset(_WAYS_OUT_NAMES.split())
_PROXY_PORT = 64128  # on the box's loopback; above the system's ephemeral ports
_PROXY = f"http://127.0.0.1:{_PROXY_PORT}"
_NO_HOME = "/tmp/home"  # noqa: S108 - in the box, where /tmp is empty
_DIRECT = "localhost,127.0.0.1,::1"  # the box has its own loopback
_PROXY_ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
    "NODE_USE_ENV_PROXY": "1",
    **{"NO_UPDATE_NOTIFIER": "1", "npm_config_update_notifier": "false"},  # no unrequested access to a registry
}


class AgentPlaces(Struct, frozen=True, kw_only=True):
    """What only agents may write, not gates, and which parts of that are read-only nevertheless. And the secret
    variables that only agents get."""

    write: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()


_NO_PLACES = AgentPlaces()


class BoxState(Protocol):
    """What may differ each time a program is started."""

    def list_layers(self) -> Sequence[Layer]: ...

    def find_cache(self, purpose: str) -> Layer | str:
        """The `~/.cache` for programs of a purpose, so that not every build starts from scratch: a folder, or a layer.
        Empty: they have none."""
        ...


class _BareBox:
    """A box with nothing but the contents of its plan."""

    def list_layers(self) -> Sequence[Layer]:
        return ()

    def find_cache(self, purpose: str) -> Layer | str:
        return ""


class Confinement:
    """Rewrites command lines so that programs start in the box."""

    def __init__(
        self,
        plan: BoxPlan,
        state: BoxState | None = None,
        *,
        places: AgentPlaces = _NO_PLACES,
        host_ports: Sequence[int] = (),
        variables: Collection[str] = (),
    ) -> None:
        """`host_ports` are ports of this machine that are also on the box's loopback, if a proxy is the way out.
        `variables` are secret ones that all programs get."""
        self._plan = plan
        self._state = state or _BareBox()
        self._places = places
        self._host_ports = host_ports
        self._variables = frozenset(variables)

    def confine(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], writable: Sequence[str], purpose: str = "agent"
    ) -> tuple[list[str], str, dict[str, str]]:
        """The same program, in the box. `writable` has additional folders that it may write to. Programs of different
        purposes do not share a cache: an agent could leave something there for the gates."""
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
            layers=tuple(layer for layer in layers if os.path.isdir(layer.source)),  # otherwise it was removed
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
        """Secrets to hide, unless they were requested by name. The worktree covers those in the project anyway."""
        named = {*self._plan.read, *self._plan.write}
        found = shown.list_secrets(self._plan.home, [*read, *self._plan.read])
        return [path for path in found if path not in named and not f"{path}/".startswith(f"{self._plan.top}/")]

    def _list_daemons(self) -> list[str]:
        named = {*self._plan.read, *self._plan.write}
        return [path for path in shown.DAEMONS if os.path.isdir(path) and path not in named]

    def _list_sockets(self, read: Sequence[str]) -> list[str]:
        """Sockets of daemons: a program that connects to one is out of the box, and often root."""
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
        """Files of the user's own tree that a command names and the worktree lacks, with their paths in the box."""
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
        """The command prefix for a program whose way out is a proxy."""
        if not self._plan.network:
            return []
        ports = [str(port) for port in (_PROXY_PORT, *self._host_ports)]
        return [sys.executable, "-I", "-S", f"{NETWORK}/{COMPILED}", f"{NETWORK}/{SOCKET}", *ports, "--"]

    def _translate(self, text: str) -> str:
        """In the box, the worktree's path is the project's."""
        return text.replace(self._plan.slot, self._plan.top) if self._plan.slot in text else text


def list_withheld(env: Mapping[str, str], allowed: Collection[str]) -> list[str]:
    """Secrets that a program would get only because they are in the user's environment."""
    inherited = [name for name, value in env.items() if os.environ.get(name) == value]
    return sorted(name for name in inherited if name not in allowed and secrets.is_secret(name, env[name]))


def find_home() -> str:
    """The user's home. In a container there may be none (HOME is /, or a missing folder): a box can't be created with
    that, so it gets its own."""
    home = os.path.realpath(os.path.expanduser("~"))
    return home if home != "/" and os.path.isdir(home) else _NO_HOME


def find_homes() -> tuple[str, ...]:
    """The folders with the homes of all users; root could read them."""
    return tuple(os.path.realpath(path) for path in shown.HOMES if os.path.isdir(path))


def _find_temporary(env: Mapping[str, str], top: str) -> str:
    """The TMPDIR of programs, if it is not one of the usual folders, which a box has of its own anyway."""
    folder = os.path.realpath(env.get("TMPDIR") or "/tmp")  # noqa: S108
    is_usual = folder in ("/tmp", "/var/tmp") or top.startswith(f"{folder}/")  # noqa: S108
    return "" if is_usual or not os.path.isdir(folder) else folder
