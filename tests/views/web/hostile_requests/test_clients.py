"""Many clients, slow ones, and those of other machines."""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from lab import wait_until
from patience import PATIENCE
from project import Ralph
from views.night import Night
from views.web.hostile import (
    ACTIONS,
    CHANGE,
    CHUNKED,
    MORE_MEMORY,
    PAGES,
    Server,
    check_refused,
    connect,
    each,
    read_until,
    receive,
    send,
)

# --- many clients, and slow ones --------------------------------------------------------------------


def _can_listen(server: Server, stack: ExitStack) -> bool:
    line = stack.enter_context(server.listen("/api/stream"))
    return b": welcome" in read_until(line, b": welcome")


def test_the_21st_stream_is_told_to_wait_and_a_place_gets_free(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            assert wait_until(lambda: _can_listen(server, stack)), "those of before are gone soon"
        answer = check_refused(server, server.build(target="/api/stream"), 503)
        assert answer.get("retry-after") == "10"
    with ExitStack() as stack:
        assert wait_until(lambda: _can_listen(server, stack))


def test_those_who_never_read_keep_nobody_waiting(server: Server) -> None:
    _write_long_run(server.ralph)
    before = server.measure_memory()
    with ExitStack() as stack:
        target = server.name_run("stream", run=LONG_RUN, after="0")
        for _ in range(10):
            stack.enter_context(server.listen(target, room=4096))
        reader = stack.enter_context(server.listen(target))
        assert b"the last word" in read_until(reader, b"the last word"), "whoever reads gets it all"
        assert server.get().status == 200
        assert server.measure_memory() - before < MORE_MEMORY
    assert server.is_answering()


LONG_RUN = "add-login-20260303-220000-3c3c"


def _write_long_run(ralph: Ralph) -> None:
    night = Night()
    night.start()
    for number in range(3500):  # more than the system buffers for clients that don't read
        night.add("agent", event={"kind": "message", "text": f"{number} " + "x" * 1000})
    night.add("agent", event={"kind": "message", "text": "the last word"})
    night.write(ralph.root, LONG_RUN)


def _start_slow_ones(server: Server) -> dict[str, socket.socket]:
    """Starts clients that stall, each in its own way."""
    order = server.build_order()
    said = {
        "silent": b"",
        "half a line": b"GET / HT",
        "half a head": server.build()[:-10],
        "a head by and by": b"GET / HTTP/1.1\r\nX: ",
        "half a body": server.build_order({"Content-Length": ["100"]}).partition(b"\r\n\r\n")[0] + b"\r\n\r\n{",
        "a body by and by": order.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
        "a body in chunks by and by": server.build("POST", "/api/do", CHUNKED, b"1\r\n \r\n"),
    }
    lines = {name: server.connect() for name in said}
    for name, line in lines.items():
        send(line, said[name])
    return lines


def _wait_for_end(lines: dict[str, socket.socket]) -> dict[str, bytes]:
    """What each client gets in the end; slow senders keep sending until then."""
    told = dict.fromkeys(lines, b"")
    open_ones = dict(lines)
    end = time.monotonic() + PATIENCE
    while open_ones and time.monotonic() < end:
        ready = select.select(list(open_ones.values()), [], [], 0.3)[0]
        for name, line in list(open_ones.items()):
            if line in ready:
                block = receive(line)
                told[name] += block
                if not block:
                    del open_ones[name]
            elif "by and by" in name:
                send(line, b"1\r\n \r\n" if "chunks" in name else b" ")
    assert not open_ones, "they are let go after a while"
    return told


def test_slow_ones_and_idle_ones_are_let_go_and_keep_nobody_waiting(server: Server, looking: Server) -> None:
    before, memory = server.look(), looking.measure_memory()
    slow = _start_slow_ones(server)
    idle = {str(number): connect(looking.where) for number in range(300)}
    with ExitStack() as stack:
        for line in (*slow.values(), *idle.values()):
            stack.enter_context(line)
        assert server.get().status == 200
        assert looking.get().status == 200, "those that say nothing are dropped first"
        assert not select.select(list(slow.values()), [], [], 0)[0], "it was answered before those were let go"
        told = _wait_for_end(slow)
        assert [one for one in _wait_for_end(idle).values() if one] == []
        assert looking.is_answering(), "while none of those has closed its end"
        assert looking.measure_memory() - memory < MORE_MEMORY
    _check_let_go(told)
    assert (server.look(), server.is_answering()) == (before, True)


def _check_let_go(told: dict[str, bytes]) -> None:
    statuses = {name: raw.split(b" ", 2)[1] if raw else b"" for name, raw in told.items()}
    expected = {name: b"408" if "body" in name else b"" for name in told}
    assert statuses == expected


# --- a read-only server -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_done_by_a_server_for_looking(looking: Server, action: str) -> None:
    answer = check_refused(looking, looking.build_order(do=action, story="2", text="x"), 403)
    assert "--read-only" in answer.json["error"]


def test_a_server_for_looking_shows_everything(looking: Server) -> None:
    assert looking.get("/api/session").json["read_only"] is True
    queries = {"story": "2", "before": "9999", "iteration": "1", "gate": "0"}
    assert [looking.get(looking.name_run(what, **queries)).status for what in PAGES] == [200] * len(PAGES)
    with looking.listen(looking.name_run("stream")) as line:
        assert b"event: log" in read_until(line, b"event: log")


# --- where it listens -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "192.0.2.1", "evil.example", ""])
def test_others_are_let_in_only_with_a_certificate_and_a_name(place: Ralph, host: str) -> None:
    told = place.run("web", "--json", "--host", host)
    assert (told.exit_code, told.stdout) == (2, "")
    assert "--cert" in told.stderr


@each(
    "options",
    {
        "certificate without key": ["--cert", "README.md"],
        "certificate without name": ["--host", "0.0.0.0", "--cert", "README.md", "--key", "README.md"],
        "name in upper case": ["--allow-host", "Evil.example"],
        "name with a port": ["--allow-host", "evil.example:80"],
        "every name": ["--allow-host", "*"],
        "socket and host": ["--socket", "s", "--host", "0.0.0.0"],
    },
)
def test_half_of_what_makes_it_safe_is_refused(place: Ralph, options: list[str]) -> None:
    told = place.run("web", "--json", *options)
    assert (told.exit_code, told.stdout) == (2, "")


def test_only_this_machine_can_reach_it(server: Server) -> None:
    assert server.list_addresses() == [("127.0.0.1", int(server.port))]


def test_a_socket_is_for_its_owner_alone_and_replaces_a_dead_one(private: Server) -> None:
    info = os.stat(str(private.where))
    assert (stat.S_ISSOCK(info.st_mode), stat.S_IMODE(info.st_mode)) == (True, 0o600)
    assert CHANGE.encode() in private.get().body
    assert private.list_addresses() == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:80", "LOCALHOST", ""])
def test_a_socket_knows_one_host(private: Server, host: str) -> None:
    check_refused(private, private.build(changes={"Host": [host]}), 400, 421)


def test_a_socket_wants_the_cookie_too(private: Server) -> None:
    check_refused(private, private.build(changes={"Cookie": []}), 401)
    check_refused(private, private.build_order({"X-CSRF-Token": []}), 403)


def test_a_socket_that_is_in_use_is_not_taken_over(private: Server) -> None:
    told = private.ralph.run("web", "--json", "--socket", str(private.where))
    assert (told.exit_code != 0, told.stdout, "already" in told.stderr) == (True, "", True)
    assert private.is_answering()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_no_socket_is_not_replaced(place: Ralph, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    (tmp_path / "kept").write_text("kept")
    if kind == "file":
        path.write_text("kept")
    elif kind == "link":
        path.symlink_to("kept")
    else:
        path.mkdir()
    told = place.run("web", "--json", "--socket", str(path))
    assert (told.exit_code != 0, told.stdout, "not a socket" in told.stderr) == (True, "", True)
    assert (path.is_symlink(), path.is_dir()) == (kind == "link", kind == "folder")
    assert kind == "folder" or path.read_text() == "kept"


# --- another host name -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for box.example.org, and its key."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.DNSName("box.example.org"), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name.value)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False).sign(key, hashes.SHA256())
    paths = [tmp_path_factory.mktemp("tls") / "both.pem"] * 2
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*plain))
    return str(paths[0]), str(paths[1])


def test_another_host_is_served_by_tls_and_by_its_own_name_only(place: Ralph, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    options = ("--host", "127.0.0.2", "--allow-host", "box.example.org", "--cert", cert, "--key", key)
    command = [sys.executable, "-P", "-m", "ralphtool", "web", str(place.root), "--json", *options]
    with subprocess.Popen(command, cwd=place.root, env=place.env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            address = json.loads(process.stdout.readline())["address"]
            port = int(address.partition("/#")[0].rpartition(":")[2])
            assert address.startswith("https://box.example.org:")
            answers = [ask_over_tls(cert, port, host) for host in (f"box.example.org:{port}", f"127.0.0.1:{port}")]
        finally:
            process.terminate()
    assert [one.split(b" ")[1] for one in answers] == [b"200", b"421"]
    assert b"<script>" not in answers[1]


def ask_over_tls(cert: str, port: int, host: str) -> bytes:
    context = ssl.create_default_context(cafile=cert)
    plain = socket.create_connection(("127.0.0.2", port))
    with context.wrap_socket(plain, server_hostname="box.example.org") as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(65536), b""))
