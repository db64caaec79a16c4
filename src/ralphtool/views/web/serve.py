"""The server: listens on this machine only (elsewhere only with a certificate), or on a Unix socket."""

from __future__ import annotations

import os
import socket
import stat
import struct
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from ralphtool.core.install_hint import build_install_command
from ralphtool.errors import InvalidValue, IoError, UsageError
from ralphtool.views.web.checks import Site
from ralphtool.views.web.peers import UNIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.views.web.access import Access
    from ralphtool.views.web.app import App

_LOOPBACK = "127.0.0.1"
_FIRST_PORT, _PORTS = 20_000, 12_000  # below the ephemeral ports of the system
BACKLOG = 64
_CONNECTIONS = 100  # at once
_HEAD_SECONDS = 5.0  # for the head of a request to arrive
_LONGEST_HEAD = 16 << 10  # bytes


class Place(NamedTuple):
    """Where the server listens, as the user requested."""

    host: str = _LOOPBACK
    port: int = 0
    socket_path: str = ""
    names: tuple[str, ...] = ()  # other host names of the page
    certificate: str = ""
    key: str = ""

    @property
    def is_local(self) -> bool:
        return bool(self.socket_path) or self.host in (_LOOPBACK, "localhost")


def check_place(place: Place) -> None:
    """Options that make the page less safe require those that make it safe again."""
    if bool(place.certificate) != bool(place.key):
        raise UsageError("--cert and --key belong together: give both")
    if place.socket_path and (place.port or place.certificate or place.names or place.host != _LOOPBACK):
        raise UsageError("--socket can't be combined with --host, --port, --allow-host, --cert or --key")
    if not place.is_local and not (place.certificate and place.names):
        raise UsageError(
            f"others could eavesdrop at {place.host}: give a certificate (--cert FILE --key FILE) and the name by "
            "which the page is opened (--allow-host NAME), or leave --host out and use `ssh -L`"
        )
    for path in filter(None, (place.certificate, place.key)):
        if not os.path.isfile(path):
            raise InvalidValue(f"there is no file {path}: name the certificate and its key")
    for name in place.names:
        if not name or name != name.lower() or not all(one.isalnum() or one in ".-" for one in name):
            raise UsageError(f"{name[:100]} is not a host name: write it as browsers do, in lower case, without a port")


def choose_port(access: Access) -> int:
    """The same port for the same projects, so that an open page finds its server again."""
    return _FIRST_PORT + int(access.secret[:8], 16) % _PORTS


def open_socket(place: Place, preferred: int) -> socket.socket:
    """A socket that is bound, so that the port is known, but not yet listening."""
    if place.socket_path:
        return _open_unix_socket(place.socket_path)
    wanted = [place.port] if place.port else [preferred, 0]
    for port in wanted:
        try:
            return _bind(place.host, port)
        except OSError as error:
            problem = error.strerror or str(error)
    where = f"{place.host}:{place.port}" if place.port else place.host
    raise IoError(f"{where} can't be used ({problem}): give another --port")


def _bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    opened = socket.socket(found[0], socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(found[4])
    except OSError:
        opened.close()
        raise
    return opened


def _open_unix_socket(path: str) -> socket.socket:
    """Accessible only to its owner, from the start. A dead socket is replaced."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path):
            _remove_dead_socket(path)
        before = os.umask(0o177)
        try:
            opened.bind(path)
        finally:
            os.umask(before)
    except OSError as error:
        raise IoError(f"{path} can't be a socket ({error.strerror or error}): name another path") from None
    return opened


def _remove_dead_socket(path: str) -> None:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise InvalidValue(f"{path} already exists, but is not a socket: name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise InvalidValue(f"a server already listens at {path}: use that one, or name another path")


def build_site(place: Place, opened: socket.socket, access: Access, *, read_only: bool) -> Site:
    scheme = "https" if place.certificate else "http"
    if place.socket_path:
        return Site(scheme, frozenset({"localhost"}), access, read_only)
    port = opened.getsockname()[1]
    names = [_LOOPBACK, "localhost", *place.names] if place.is_local else list(place.names)
    hosts = {f"{name}:{port}" for name in names}
    if port == {"http": 80, "https": 443}[scheme]:
        hosts |= set(names)  # browsers omit the default port
    return Site(scheme, frozenset(hosts), access, read_only)


def build_address(place: Place, opened: socket.socket, token: str) -> str:
    """The address to open. Browsers don't send the part after the #."""
    if place.socket_path:
        return f"unix:{place.socket_path}#token={token}"
    name = place.names[0] if place.names else _LOOPBACK
    return f"{'https' if place.certificate else 'http'}://{name}:{opened.getsockname()[1]}/#token={token}"


def check_installed() -> None:
    if find_spec("uvicorn") is None:
        raise UsageError(f"the page needs one more package. Install it: {build_install_command('web')}")


def serve(app: App, place: Place, opened: socket.socket) -> None:
    """Serves until it is interrupted."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http=_build_protocol(),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        ssl_certfile=place.certificate or None,
        ssl_keyfile=place.key or None,
    )

    class CleaningServer(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Here and not after `run`: by then, the signal that ended the server ends the process."""
            await super().shutdown(sockets)
            if place.socket_path:
                os.unlink(place.socket_path)

    CleaningServer(config).run(sockets=[opened])


def _find_unix_client(transport: Any) -> tuple[str, int] | None:
    """The process at the other end of a Unix socket."""
    opened = transport.get_extra_info("socket")
    if opened is None or opened.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    return UNIX, struct.unpack("3i", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def _find_silent(connections: Iterable[Any], newest: Any) -> Any:
    """The oldest connection without a request: clients that open many and send nothing lose them first."""
    silent = [one for one in connections if one.cycle is None and one is not newest and not one.transport.is_closing()]
    return min(silent, key=lambda one: one._began, default=newest)


def _build_protocol() -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class ImpatientProtocol(H11Protocol):
        """Closes connections on which no request arrives: uvicorn would wait forever."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.client = self.client or _find_unix_client(transport)
            self.app_state = {**self.app_state, "abort": transport.abort}
            self._began = self.loop.time()
            if len(self.connections) >= _CONNECTIONS:  # with so many, uvicorn refuses every request
                _find_silent(self.connections, self).transport.abort()
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self._close_silent)

        def _close_silent(self) -> None:
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            super().connection_lost(exc)

    return ImpatientProtocol
