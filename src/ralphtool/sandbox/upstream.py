"""The proxy that the user's network requires: connections from a box go through it too."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

_NAMES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY")
_LONGEST_ANSWER = 1 << 14
_USUAL_PORT = 80


class Upstream(Struct, frozen=True, kw_only=True):
    """An HTTP proxy from the environment."""

    host: str
    port: int
    login: str = ""  # as in the header
    direct: str = ""  # hosts that are reached without it, as in NO_PROXY

    def covers(self, host: str) -> bool:
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # slow to load

        return not proxy_bypass_environment(host, {"no": self.direct})

    def ask(self, line: socket.socket, host: str, port: int) -> bool:
        """Asks on a connection to the proxy whether it allows a host."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        login = f"Proxy-Authorization: {self.login}\r\n" if self.login else ""
        line.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode())
        words = _read_answer(line).split(b" ")
        return len(words) > 1 and words[1] == b"200"


def find_upstream(env: Mapping[str, str]) -> Upstream | None:
    """None if there is none, or if its protocol is not supported."""
    text = next((env[name] for name in _NAMES if env.get(name)), "")
    try:
        found = urlsplit(text if "://" in text else f"http://{text}")
        host, port = found.hostname, found.port or _USUAL_PORT
    except ValueError:
        return None
    if not host or found.scheme != "http":
        return None
    login = f"{unquote(found.username)}:{unquote(found.password or '')}" if found.username else ""
    coded = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
    return Upstream(host=host, port=port, login=coded, direct=env.get("no_proxy") or env.get("NO_PROXY") or "")


def _read_answer(line: socket.socket) -> bytes:
    """The header of its answer, and not a byte more: anything after it comes from the host."""
    data = b""
    while not data.endswith(b"\r\n\r\n") and len(data) < _LONGEST_ANSWER:
        if not (byte := line.recv(1)):
            return b""
        data += byte
    return data
