"""The way out of a box: a proxy on a Unix socket, which allows only what is permitted by name.

It runs in threads of the process that runs the loop. A name is resolved only if it is allowed, because a DNS query
alone can carry data out; it is resolved once, and the connection goes to the address that was checked.
"""

from __future__ import annotations

import glob
import ipaddress
import os
import py_compile
import re
import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files
from ralphtool.sandbox import bridge
from ralphtool.sandbox.bridge import COMPILED, SOCKET, relay, shut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.sandbox.upstream import Upstream

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Resolve = Callable[[str, int], Sequence[str]]
    OnDenied = Callable[[str, int, str], None]

_LONGEST_HEADER = 1 << 16
_PREFIX = "ralph-network-"
_ABANDONED_AFTER = 60.0  # seconds; a new proxy may not be listening yet
_HEADER_TIME = 15.0  # seconds
_CONNECT_TIME = 20.0
_MOST_CONNECTIONS = 200
_MOST_DENIALS = 200  # maximum reported: a program may try any number of names
_CLOSE_TIME = 5.0
_BRIDGE: list[bytes] = []  # the compiled bridge, cached
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::(\d{1,5}))?", re.ASCII)
_URL = re.compile(r"http://([^/?#]+)(/?[^#]*)(?:#.*)?", re.ASCII | re.IGNORECASE)
_SIX_TO_FOUR = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64: IPv4 addresses in a network without IPv4
_PROXY_HEADERS = (b"connection", b"proxy-connection", b"proxy-authorization", b"host", b"keep-alive")


# --- the rules --------------------------------------------------------------------------------------


class Refusal(Struct, frozen=True):
    """Why something is not allowed, and the setting that would allow it."""

    why: str
    allow: str


class NetworkRules(Struct, frozen=True, kw_only=True):
    """What may be reached: hosts by name or address, and ports of this machine."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    set_hosts: tuple[str, ...] = ()  # those of them that the settings name: a refusal repeats them
    set_ports: tuple[int, ...] = ()

    def check_host(self, host: str, port: int) -> Refusal | None:
        """None if its name is allowed; nothing is resolved."""
        name = normalize_host(host)
        if is_this_machine(name):
            is_allowed = port in self.ports or name in self._names
            allow = name_setting("ports", self.set_ports, port)
            return None if is_allowed else Refusal(f"port {port} of this machine is not allowed", allow)
        if any(_fits(name, allowed) for allowed in self._names):
            return None
        return Refusal(f"{name} is not allowed", name_setting("hosts", self.set_hosts, name))

    def check_address(self, host: str, address: str) -> Refusal | None:
        """None if the address that an allowed name resolved to may be reached."""
        found = normalize_host(address)
        kind = describe_private(ipaddress.ip_address(found))
        if not kind or found in self._names:
            return None
        allow = name_setting("hosts", self.set_hosts, found)
        return Refusal(f"{normalize_host(host)} is at {found}, {kind}", allow)

    @property
    def _names(self) -> set[str]:
        return {normalize_host(host) for host in self.hosts}


def normalize_host(host: str) -> str:
    """The canonical form of a name or address: lower case, without a trailing dot."""
    name = host.strip().removeprefix("[").removesuffix("]").lower().removesuffix(".")
    address = parse_address(name)
    return name if address is None else str(address)


def parse_address(text: str) -> Address | None:
    """An address; an IPv4-mapped IPv6 address becomes IPv4."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped) or found


def is_this_machine(name: str) -> bool:
    return name in ("localhost", "127.0.0.1", "::1")


def describe_private(address: Address) -> str:
    """The kind of an address that is not public; empty if it is public."""
    if inner := _find_inner(address):
        return describe_private(inner)
    kinds = {
        "an unspecified address": address.is_unspecified,
        "a loopback address": address.is_loopback,
        "a link-local address": address.is_link_local,
        "a multicast address": address.is_multicast,
        "a private address": address.is_private or getattr(address, "is_site_local", False),
        "a reserved address": address.is_reserved or not address.is_global,
    }
    return next((kind for kind, is_one in kinds.items() if is_one), "")


def _find_inner(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _fits(name: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return name.endswith(allowed[1:]) and len(name) >= len(allowed) and parse_address(name) is None
    return name == allowed


def name_setting(name: str, present: Sequence[str | int], more: str | int) -> str:
    """A setting of `[sandbox]` with its present values and one more: people replace the line that they have."""
    import json  # only needed for a refusal

    return f"[sandbox] {name} = {json.dumps([*present, more], ensure_ascii=False)}"


# --- requests ---------------------------------------------------------------------------------------


class ProxyRequest(Struct, frozen=True):
    """A program's request to the proxy."""

    host: str
    port: int
    first: bytes = b""  # sent to the host first; if empty, the program gets the plain connection


class _BadRequest(ValueError):
    """Not a request that a proxy can answer. The text is a status line."""


def parse_request(head: bytes) -> ProxyRequest:
    """Parses a request header, including the empty line at its end: CONNECT, or a request with a full URL."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = line.decode("latin-1").split(" ")
    is_broken = any(byte in part for part in (line, *fields) for byte in b"\r\n\0")
    if is_broken or len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequest("400 This is a proxy for HTTP/1")
    method, target, version = words
    if method == "CONNECT":
        return ProxyRequest(*_parse_authority(target, None))
    if (found := _URL.fullmatch(target)) is None:
        raise _BadRequest("400 This is a proxy: ask for http://host/path, or CONNECT host:port")
    host, port = _parse_authority(found[1], 80)
    path = found[2] if found[2].startswith("/") else f"/{found[2]}"
    kept = [field for field in fields if field.partition(b":")[0].strip().lower() not in _PROXY_HEADERS]
    # One connection serves one request: the next one may be for another host.
    own = [f"{method} {path} {version}", f"Host: {found[1]}", "Connection: close"]
    return ProxyRequest(host, port, b"\r\n".join([*(text.encode("latin-1") for text in own), *kept]) + b"\r\n\r\n")


def _parse_authority(text: str, usual_port: int | None) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    port = int(found[3]) if found and found[3] else usual_port
    if not found or port is None or not 0 < port < 1 << 16:
        raise _BadRequest("400 The target must be a host and a port")
    return normalize_host(found[1] or found[2]), port


# --- the proxy --------------------------------------------------------------------------------------


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, in the order in which the system prefers them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _write_bridge(path: str) -> None:
    """The compiled bridge starts a third faster, and not every Python caches what it compiles. Boxes that work side by
    side have one each."""
    if not _BRIDGE:
        py_compile.compile(bridge.__file__, path, doraise=True)
        _BRIDGE.append(files.read(path))
        return
    with open(path, "wb") as file:
        file.write(_BRIDGE[0])


class Proxy:
    """Listens from its creation until it is closed. Its folder has what a box needs to reach it."""

    def __init__(
        self,
        rules: NetworkRules,
        on_denied: OnDenied,
        resolve: Resolve = resolve,
        upstream: Upstream | None = None,
    ) -> None:
        self._rules = rules
        self._upstream = upstream
        self._on_denied = on_denied
        self._resolve = resolve
        self._lock = threading.Lock()
        self._denied: set[tuple[str, int]] = set()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._is_closed = False
        _remove_abandoned()
        self.folder = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            _write_bridge(os.path.join(self.folder, COMPILED))
            self._listener = self._listen()
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._accepting.start()

    def _listen(self) -> socket.socket:
        """Binds by a short path, whatever the folder's name: the system limits it to about a hundred bytes."""
        listener, folder = socket.socket(socket.AF_UNIX), os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
            listener.listen(_MOST_CONNECTIONS)
        except OSError:
            listener.close()
            raise
        finally:
            os.close(folder)
        return listener

    def close(self) -> None:
        """Ends every connection. Resolving a name can't be interrupted; its thread ends soon after."""
        with self._lock:
            self._is_closed = True
            for line in self._open:
                shut(line, socket.SHUT_RDWR)
            threads = list(self._threads)
        shut(self._listener, socket.SHUT_RDWR)
        until = time.monotonic() + _CLOSE_TIME
        for thread in (self._accepting, *threads):
            thread.join(max(0.0, until - time.monotonic()))
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                time.sleep(0.01)  # closed, or temporarily out of file descriptors
                continue
            thread = threading.Thread(target=self._serve, args=(near,), name="proxy connection", daemon=True)
            with self._lock:
                is_full = len(self._threads) >= _MOST_CONNECTIONS
                if not is_full:
                    self._threads.add(thread)
            if is_full:
                _answer(near, "503 Too many connections at once")
                near.close()
            else:
                thread.start()

    def _serve(self, near: socket.socket) -> None:
        try:
            with near:
                self._keep(near)
                self._respond(near)
        except OSError:
            pass  # one of them is gone
        finally:
            with self._lock:
                self._open.discard(near)
                self._threads.discard(threading.current_thread())

    def _keep(self, line: socket.socket) -> None:
        """Registers a connection for `close`."""
        with self._lock:
            if self._is_closed:
                raise ConnectionAbortedError
            self._open.add(line)

    def _respond(self, near: socket.socket) -> None:
        try:
            head, rest = _read_header(near)
            request = parse_request(head)
        except _BadRequest as error:
            _answer(near, str(error))
            return
        found = self._find_addresses(request.host, request.port)
        if isinstance(found, Refusal):
            self._refuse(near, request, found)
        elif found:
            self._connect(near, request, found, rest)
        else:
            _answer(near, f"502 {request.host} was not found")

    def _find_addresses(self, host: str, port: int) -> list[str] | Refusal:
        """The addresses at which the host may be reached."""
        if refusal := self._rules.check_host(host, port):
            return refusal
        if is_this_machine(host):
            return ["::1" if host == "::1" else "127.0.0.1"]
        if upstream := self._find_upstream(host):
            return self._look_up(upstream.host, upstream.port)  # the upstream proxy resolves the host
        addresses = self._look_up(host, port)
        checked = [(address, self._rules.check_address(host, address)) for address in addresses]
        refused = next((refusal for _, refusal in checked if refusal), None)
        return [address for address, refusal in checked if not refusal] or refused or []

    def _look_up(self, host: str, port: int) -> list[str]:
        try:
            return [host] if parse_address(host) else list(self._resolve(host, port))
        except (OSError, UnicodeError):
            return []

    def _find_upstream(self, host: str) -> Upstream | None:
        """The upstream proxy for a host, if there is one."""
        is_far = self._upstream and not is_this_machine(host) and self._upstream.covers(host)
        return self._upstream if is_far else None

    def _refuse(self, near: socket.socket, request: ProxyRequest, refusal: Refusal) -> None:
        """Records the refusal before the program gets it."""
        with self._lock:
            key = (request.host, request.port)
            is_new = key not in self._denied and len(self._denied) < _MOST_DENIALS
            self._denied.add(key) if is_new else None
        if is_new:
            self._on_denied(request.host, request.port, refusal.allow)
        _answer(near, f"403 {refusal.why}; to allow it, set {refusal.allow}")

    def _connect(self, near: socket.socket, request: ProxyRequest, addresses: list[str], rest: bytes) -> None:
        upstream = self._find_upstream(request.host)
        far = self._open_first(addresses, upstream.port if upstream else request.port)
        if far is None:
            _answer(near, f"502 {request.host}:{request.port} can't be reached")
            return
        try:
            with far:
                if upstream and not upstream.ask(far, request.host, request.port):
                    _answer(near, f"502 the proxy {upstream.host} refuses {request.host}:{request.port}")
                    return
                if not request.first:
                    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                far.sendall(request.first + rest)
                relay(near, far)
        finally:
            with self._lock:
                self._open.discard(far)

    def _open_first(self, addresses: list[str], port: int) -> socket.socket | None:
        for address in addresses:
            far = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            try:
                self._keep(far)
                far.settimeout(_CONNECT_TIME)
                far.connect((address, port))
                far.settimeout(None)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                far.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            except OSError:
                with self._lock:
                    self._open.discard(far)
                far.close()
            else:
                return far
        return None


def _remove_abandoned() -> None:
    """Removes the folders of proxies that were killed: nothing listens there any more."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*", SOCKET)):
        line = socket.socket(socket.AF_UNIX)
        try:
            is_old = time.time() - os.lstat(path).st_mtime > _ABANDONED_AFTER
            line.connect(path)
        except ConnectionRefusedError:
            if is_old:
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        except OSError:
            continue  # another user's, or gone
        finally:
            line.close()


def _read_header(near: socket.socket) -> tuple[bytes, bytes]:
    """The header of a request, and any data after it."""
    data, until = b"", time.monotonic() + _HEADER_TIME
    while b"\r\n\r\n" not in data:
        if len(data) > _LONGEST_HEADER:
            raise _BadRequest("431 That header is too long")
        near.settimeout(max(0.001, until - time.monotonic()))
        try:
            block = near.recv(_LONGEST_HEADER)
        except TimeoutError:
            raise _BadRequest("408 The header did not arrive in time") from None
        if not block:
            raise ConnectionResetError
        data += block
    near.settimeout(None)
    head, end, rest = data.partition(b"\r\n\r\n")
    if len(head) > _LONGEST_HEADER:
        raise _BadRequest("431 That header is too long")
    return head + end, rest


def _answer(near: socket.socket, status: str) -> None:
    """Repeats the message in the body: programs show either that or the status line."""
    body = status.partition(" ")[2] + "\n"
    fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    with suppress(OSError):
        near.settimeout(1.0)  # the program may not be reading
        near.sendall(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}".encode("ascii", "replace"))
        near.shutdown(socket.SHUT_WR)
