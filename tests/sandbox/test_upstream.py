"""A box in a network whose only way out is the network's own proxy."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest
from sandbox.test_network import ESTABLISHED, connect, receive, receive_all, server

from ralphtool.sandbox.bridge import SOCKET
from ralphtool.sandbox.network import NetworkRules, Proxy
from ralphtool.sandbox.upstream import Upstream, find_upstream

HOSTS = NetworkRules(hosts=("far.example", "near.example"))


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, Upstream(host="proxy.example", port=3128)),
        ({"https_proxy": "proxy.example:8080", "HTTP_PROXY": "http://x:1"}, Upstream(host="proxy.example", port=8080)),
        ({"http_proxy": "http://proxy.example"}, Upstream(host="proxy.example", port=80)),
        (
            {"HTTPS_PROXY": "http://me:p%40ss@proxy.example:1", "NO_PROXY": "a"},
            Upstream(host="proxy.example", port=1, login="Basic bWU6cEBzcw==", direct="a"),
        ),
        ({"HTTPS_PROXY": "socks5://proxy.example:1"}, None),
        ({"HTTPS_PROXY": "https://proxy.example:1"}, None),
        ({"HTTPS_PROXY": "http://proxy.example:port"}, None),
        ({"HTTPS_PROXY": "http://"}, None),
    ],
)
def test_it_is_what_the_environment_names(env: dict[str, str], found: Upstream | None) -> None:
    assert find_upstream(env) == found


def answer_as_proxy(line: socket.socket) -> None:
    """Returns the request that it got, and refuses one port."""
    with line:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := line.recv(1)):
                return  # the other side is gone: reading on would keep a processor busy until the last test
            head += byte
        if b":25 " in head:
            line.sendall(b"HTTP/1.1 403 no mail\r\n\r\n")
            return
        line.sendall(b"HTTP/1.1 200 ok\r\nVia: us\r\n\r\n" + head.replace(b"\r\n", b"|"))


def ask(made: Proxy, target: str) -> bytes:
    with connect(made) as line:
        line.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        return receive_all(line)


def test_an_allowed_host_is_asked_for_there_and_nothing_else_is() -> None:
    with server(answer_as_proxy) as port:
        upstream = Upstream(host="127.0.0.1", port=port, login="Basic x")

        def resolve(host: str, port: int) -> list[str]:
            raise AssertionError(f"{host} is the proxy's to look up")

        with Proxy(HOSTS, lambda *_: None, resolve, upstream) as made:
            told = b"CONNECT far.example:443 HTTP/1.1|Host: far.example:443|Proxy-Authorization: Basic x||"
            assert ask(made, "far.example:443") == ESTABLISHED + told
            assert ask(made, "evil.example:443").startswith(b"HTTP/1.1 403 evil.example is not allowed")
            assert ask(made, "far.example:25").startswith(b"HTTP/1.1 502 the proxy 127.0.0.1 refuses")


def test_a_host_that_is_reached_without_it_is_so_from_a_box_too() -> None:
    with server(answer_as_proxy) as port:
        rules = NetworkRules(hosts=("near.example", "127.0.0.1"))
        upstream = Upstream(host="127.0.0.1", port=1, direct=".example")
        with Proxy(rules, lambda *_: None, lambda *_: ["127.0.0.1"], upstream) as made, connect(made) as line:
            line.sendall(f"CONNECT near.example:{port} HTTP/1.1\r\n\r\n".encode())
            assert receive(line, len(ESTABLISHED)) == ESTABLISHED


def test_what_a_killed_proxy_left_behind_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, age in (("old", 3600), ("new", 0)):
        folder = tmp_path / f"ralph-network-{name}"
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(folder / SOCKET))
        then = time.time() - age
        os.utime(folder / SOCKET, (then, then))
    with Proxy(HOSTS, lambda *_: None) as first:
        os.utime(Path(first.folder) / SOCKET, (1, 1))  # it is alive, however old it is
        with Proxy(HOSTS, lambda *_: None) as second:
            left = {path.name for path in tmp_path.iterdir()}
            assert left == {"ralph-network-new", Path(first.folder).name, Path(second.folder).name}
