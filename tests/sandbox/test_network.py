"""What a box may reach: a table for the rules, and servers on the loopback for the proxy."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from patience import PATIENCE

from ralphtool import agents
from ralphtool.agents.endpoints import list_configured, list_endpoints
from ralphtool.loop.way_out import build_rules, open_proxy
from ralphtool.record import events
from ralphtool.record.events import IterationStarted
from ralphtool.record.log import Log
from ralphtool.sandbox import network
from ralphtool.sandbox.bridge import SOCKET
from ralphtool.sandbox.network import NetworkRules, Proxy, describe_private, parse_address, parse_request
from ralphtool.settings import AgentSettings, SandboxSettings, Settings
from ralphtool.views.terminal.event_lines import describe_event

Denial = tuple[str, int, str]

# --- rules ------------------------------------------------------------------------------------------

HOSTS = ("api.example.org", "*.wide.example", "Upper.Example.ORG", "dotted.example.", "192.0.2.7", "2001:DB8::1")
NAMES = {
    ("api.example.org", 443): True,
    ("api.example.org", 8443): True,
    ("API.Example.Org", 443): True,
    ("api.example.org.", 443): True,
    ("upper.example.org", 443): True,
    ("dotted.example", 443): True,
    ("example.org", 443): False,
    ("x.api.example.org", 443): False,
    ("api.example.org.evil.example", 443): False,
    ("evilapi.example.org", 443): False,
    ("a.wide.example", 443): True,
    ("a.b.wide.example", 443): True,
    ("A.Wide.Example.", 443): True,
    ("wide.example", 443): False,
    (".wide.example", 443): False,
    ("evilwide.example", 443): False,
    ("192.0.2.7", 80): True,
    ("192.0.2.8", 80): False,
    ("::ffff:192.0.2.7", 80): True,
    ("2001:db8:0::1", 80): True,
    ("2001:db8::2", 80): False,
    ("127.0.0.1", 5432): True,
    ("localhost", 5432): True,
    ("LOCALHOST.", 5432): True,
    ("::1", 5432): True,
    ("::ffff:127.0.0.1", 5432): True,
    ("127.0.0.1", 5433): False,
    ("localhost", 80): False,
    ("127.0.0.2", 5432): False,
    ("0.0.0.0", 5432): False,
    ("x.localhost", 5432): False,
    ("127.1", 5432): False,
    ("2130706433", 5432): False,
    ("169.254.169.254", 80): False,
}


@pytest.mark.parametrize(("asked", "is_allowed"), NAMES.items())
def test_a_host_is_allowed_by_its_name(asked: tuple[str, int], is_allowed: bool) -> None:
    refusal = NetworkRules(hosts=HOSTS, ports=(5432,)).check_host(*asked)
    assert (refusal is None) == is_allowed, refusal


@pytest.mark.parametrize(
    ("asked", "allow"),
    [
        (("files.example.org", 443), '[sandbox] hosts = ["files.example.org"]'),
        (("Files.Example.Org.", 443), '[sandbox] hosts = ["files.example.org"]'),
        (("127.0.0.1", 8080), "[sandbox] ports = [8080]"),
        (("localhost", 8080), "[sandbox] ports = [8080]"),
        (("10.0.0.1", 80), '[sandbox] hosts = ["10.0.0.1"]'),
    ],
)
def test_a_refusal_names_the_setting_that_helps(asked: tuple[str, int], allow: str) -> None:
    refusal = NetworkRules().check_host(*asked)
    assert refusal is not None
    assert refusal.allow == allow


PRIVATE = (
    *("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.1.1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "fc00::1", "224.0.0.1", "ff02::1"),
    *("240.0.0.1", "255.255.255.255", "198.18.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1", "fec0::1"),
)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    rules = NetworkRules(hosts=("api.example.org", "*.wide.example"))
    refusal = rules.check_address("api.example.org", address)
    assert refusal is not None
    named = refusal.allow.split('"')[1]
    assert NetworkRules(hosts=("api.example.org", named)).check_address("api.example.org", address) is None


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"])
def test_a_public_address_is_one(address: str) -> None:
    found = parse_address(address)
    assert found is not None
    assert describe_private(found) == ""
    assert NetworkRules().check_address("api.example.org", address) is None


# --- requests ---------------------------------------------------------------------------------------


def test_a_request_for_a_whole_address_becomes_one_for_its_host() -> None:
    head = (
        b"GET http://a.example:81/x?y=1 HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\nProxy-Connection: k\r\n\r\n"
    )
    request = parse_request(head)
    assert (request.host, request.port) == ("a.example", 81)
    assert request.first == (b"GET /x?y=1 HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\nAccept: */*\r\n\r\n")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            "GET",
            "GET / HTTP/1.1",
            "GET https://a.example/ HTTP/1.1",
            "CONNECT a.example HTTP/1.1",
            "PRI * HTTP/2.0",
        ),
        *("CONNECT a.example:0 HTTP/1.1", "CONNECT a.example:65536 HTTP/1.1", "CONNECT a b:1 HTTP/1.1"),
        *("GET http:/// HTTP/1.1", "GET http://u@a.example/ HTTP/1.1", "CONNECT ü.example:1 HTTP/1.1"),
        *(
            "CONNECT [::1:1 HTTP/1.1",
            'CONNECT a"b:1 HTTP/1.1',
            "GET http://[x/ HTTP/1.1",
            "GET http://a.example/ HTTP/1.1\nHost: b.example",
        ),
    ],
)
def test_what_is_no_request_is_refused(line: str) -> None:
    with proxy() as (ask, denied):
        assert ask(f"{line}\r\n\r\n".encode()).startswith(b"HTTP/1.1 400 ")
    assert denied == []


# --- the proxy --------------------------------------------------------------------------------------


def refuse_to_resolve(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was looked up")


@contextmanager
def proxy(
    rules: NetworkRules | None = None, resolve: network.Resolve = refuse_to_resolve
) -> Iterator[tuple[Callable[[bytes], bytes], list[Denial]]]:
    """A proxy, as a function that sends data to it and returns the whole answer; and its denials."""
    denied: list[Denial] = []
    with Proxy(rules or NetworkRules(), lambda *denial: denied.append(denial), resolve) as made:

        def ask(data: bytes) -> bytes:
            with connect(made) as line:
                line.sendall(data)
                return receive_all(line)

        yield ask, denied


def connect(made: Proxy) -> socket.socket:
    line, folder = socket.socket(socket.AF_UNIX), os.open(made.folder, os.O_RDONLY)
    line.settimeout(20)
    line.connect(f"/proc/self/fd/{folder}/{SOCKET}")
    os.close(folder)
    return line


def receive_all(line: socket.socket) -> bytes:
    """Everything received; it ends with an error if the other side did not read all that was sent."""
    data = b""
    with suppress(ConnectionResetError):
        while block := line.recv(1 << 16):
            data += block
    return data


def receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (block := line.recv(size - len(data))):
        data += block
    return data


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on the loopback, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(line,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def answer_when_all_has_come(line: socket.socket) -> None:
    """Answers only when the other side has sent everything: half of the connection is closed by then."""
    with line:
        data = receive_all(line)
        line.sendall(b"got " + data)


def answer_once(line: socket.socket) -> None:
    with line:
        data = line.recv(1 << 16)
        line.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data)


def echo(line: socket.socket) -> None:
    with line:
        while data := line.recv(1 << 16):
            line.sendall(data)


def test_a_port_of_this_machine_is_reached_and_half_closed_connections_work() -> None:
    with (
        server(answer_when_all_has_come) as port,
        Proxy(NetworkRules(ports=(port,)), lambda *_: None) as made,
        connect(made) as line,
    ):
        line.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello ".encode())
        assert receive(line, len(ESTABLISHED)) == ESTABLISHED
        line.sendall(b"there")
        line.shutdown(socket.SHUT_WR)
        assert receive_all(line) == b"got hello there"


def test_plain_http_is_forwarded() -> None:
    with server(answer_once) as port, proxy(NetworkRules(ports=(port,))) as (ask, denied):
        answer = ask(f"GET http://localhost:{port}/a?b HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        told = f"GET /a?b HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"
    assert answer == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + told.encode()
    assert denied == []


def test_much_data_in_both_directions_at_once_does_not_get_stuck() -> None:
    data = os.urandom(1 << 23)
    with server(echo) as port, Proxy(NetworkRules(ports=(port,)), lambda *_: None) as made, connect(made) as line:
        line.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert receive(line, len(ESTABLISHED)) == ESTABLISHED
        sending = threading.Thread(target=line.sendall, args=(data,), daemon=True)
        sending.start()
        assert receive(line, len(data)) == data
        sending.join(10)


def test_a_name_that_is_not_allowed_is_never_looked_up() -> None:
    looked_up = []

    def resolve(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    asked = ("secret.evil.example:443", "evil.example:80", "x.localhost:80", "2130706433:80", "10.0.0.1:80")
    with proxy(NetworkRules(hosts=("api.example.org",)), resolve) as (ask, denied):
        for one in asked:
            assert ask(f"CONNECT {one} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 403 ")
    assert looked_up == []
    assert [f"{host}:{port}" for host, port, _ in denied] == list(asked)


def test_a_refusal_says_what_would_allow_it_and_is_reported_once() -> None:
    with proxy() as (ask, denied):
        for text in ("CONNECT Files.Example.Org:443 HTTP/1.1", "CONNECT files.example.org.:443 HTTP/1.1"):
            status, _, body = ask(f"{text}\r\n\r\n".encode()).partition(b"\r\n")
            told = 'files.example.org is not allowed; to allow it, set [sandbox] hosts = ["files.example.org"]'
            assert status.decode() == f"HTTP/1.1 403 {told}"
            assert body.decode().endswith(f"\r\n\r\n{told}\n")
        assert b"[sandbox] ports = [8080]" in ask(b"GET http://127.0.0.1:8080/ HTTP/1.1\r\n\r\n")
        ask(b"CONNECT files.example.org:80 HTTP/1.1\r\n\r\n")
    allow = '[sandbox] hosts = ["files.example.org"]'
    assert denied == [
        ("files.example.org", 443, allow),
        ("127.0.0.1", 8080, "[sandbox] ports = [8080]"),
        ("files.example.org", 80, allow),
    ]


def test_an_allowed_name_is_looked_up_once_and_reached_where_it_was_found() -> None:
    looked_up = []

    def resolve(host: str, port: int) -> Sequence[str]:
        """Counts lookups: the second time, an attacker's server would answer with a private address."""
        looked_up.append(host)
        return ["127.0.0.1"]

    with server(answer_once) as port, proxy(NetworkRules(hosts=("a.example", "127.0.0.1")), resolve) as (ask, denied):
        assert b"Host: a.example" in ask(f"GET http://a.example:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert looked_up == ["a.example"]
    assert denied == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"])
def test_an_allowed_name_leads_to_no_private_address(address: str) -> None:
    with server(echo) as port, proxy(NetworkRules(hosts=("a.example",), ports=(port,)), lambda *_: [address]) as found:
        ask, denied = found
        answer = ask(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    shown = address.removeprefix("::ffff:")
    assert answer.startswith(f"HTTP/1.1 403 a.example is at {shown}, a ".encode())
    assert denied == [("a.example", port, f'[sandbox] hosts = ["{shown}"]')]


def test_of_several_addresses_only_public_ones_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []
    monkeypatch.setattr(Proxy, "_open_first", lambda self, addresses, port: tried.append(addresses))
    with proxy(NetworkRules(hosts=("a.example",)), lambda *_: ["10.0.0.1", "1.1.1.1", "::1"]) as (ask, denied):
        assert ask(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502 a.example:443 can't be reached")
    assert (tried, denied) == ([["1.1.1.1"]], [])


def test_what_is_not_there_is_told_so() -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with proxy(NetworkRules(hosts=("a.example",), ports=(port,)), resolve) as (ask, denied):
        assert ask(b"CONNECT a.example:1 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502 a.example was not found")
        assert ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 502 127.0.0.1")
    assert denied == []


# --- limits -----------------------------------------------------------------------------------------


def test_a_header_has_to_be_short_and_to_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_HEADER_TIME", 0.2)
    with proxy() as (ask, _):
        assert ask(b"CONNECT a.example:443 HTTP/1.1\r\n").startswith(b"HTTP/1.1 408 ")
        assert ask(b"X: " + b"x" * (1 << 17)).startswith(b"HTTP/1.1 431 ")
        assert ask(b"X: " + b"x" * (1 << 16) + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")


def test_there_is_a_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_MOST_CONNECTIONS", 2)
    with Proxy(NetworkRules(), lambda *_: None) as made:
        first, second = connect(made), connect(made)
        with connect(made) as third:
            assert receive_all(third).startswith(b"HTTP/1.1 503 ")
        first.close()
        until = time.monotonic() + PATIENCE
        answer = b"HTTP/1.1 503 "
        while answer.startswith(b"HTTP/1.1 503 ") and time.monotonic() < until:
            with connect(made) as fourth:
                with suppress(BrokenPipeError):  # it was refused before it sent anything
                    fourth.sendall(b"CONNECT a.example:1 HTTP/1.1\r\n\r\n")
                answer = receive_all(fourth)
        assert answer.startswith(b"HTTP/1.1 403 ")
        second.close()


def test_many_names_that_are_tried_do_not_fill_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_MOST_DENIALS", 3)
    with proxy() as (ask, denied):
        for number in range(6):
            ask(f"CONNECT n{number}.example:443 HTTP/1.1\r\n\r\n".encode())
    assert [host for host, _, _ in denied] == ["n0.example", "n1.example", "n2.example"]


def test_closing_ends_every_thread_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)  # longer than the path of a socket may be
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    before = set(threading.enumerate())
    with server(echo) as port:
        made = Proxy(NetworkRules(ports=(port,)), lambda *_: None)
        idle, busy = connect(made), connect(made)
        busy.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert receive(busy, len(ESTABLISHED)) == ESTABLISHED
        assert Path(made.folder).stat().st_mode & 0o777 == 0o700
        made.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("proxy")]
        assert (receive_all(idle), receive_all(busy)) == (b"", b"")
        with pytest.raises(OSError, match=r".*"):
            connect(made)
    assert list(deep.iterdir()) == []
    idle.close()
    busy.close()
    assert {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("proxy")} == set()


# --- what a run may reach ---------------------------------------------------------------------------


class Needy:
    """A runner that only needs hosts, and has nothing else."""

    def __init__(self, name: str, *hosts: str) -> None:
        self.name = name
        self.traits = agents.Traits(hosts=hosts)

    def check(self) -> None: ...

    def start(self, job: agents.Job) -> agents.Start:
        raise NotImplementedError

    def reader(self, job: agents.Job) -> agents.Reader:
        raise NotImplementedError


def test_the_rules_of_a_run_are_those_of_its_settings_and_of_all_its_agents() -> None:
    settings = Settings(
        sandbox=SandboxSettings(hosts=("files.example.org",), ports=(5432,)),
        agents={"two": AgentSettings(env={"OPENAI_BASE_URL": "https://gateway.example/v1"})},
    )
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1234", "OPENAI_BASE_URL": "http://10.0.0.5:8000/v1"}
    rules = build_rules(
        settings, [Needy("one", "api.example.org"), Needy("two", "api.example.org", "x.example")], "/", env
    )
    assert set(rules.hosts) == {"files.example.org", "api.example.org", "x.example", "gateway.example", "10.0.0.5"}
    assert rules.ports == (5432, 1234)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("https://gateway.example/v1", [("gateway.example", 443)]),
        ("http://Gateway.example:8080", [("gateway.example", 8080)]),
        ("http://[::1]:1234/", [("::1", 1234)]),
        ("127.0.0.1:11434", [("127.0.0.1", 11434)]),
        ("", []),
        ("http://a.example:port", []),
        ("http://", []),
    ],
)
def test_the_address_of_a_model_is_read(value: str, found: list[tuple[str, int]]) -> None:
    assert list(list_endpoints({"OLLAMA_HOST": value, "SOME_BASE_URL": "http://other.example"})) == found


def test_the_address_of_a_model_is_read_from_an_agents_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[model_providers.x]\nbase_url = "http://127.0.0.1:1234/v1"\n')
    (tmp_path / "opencode.json").write_text('{"options": {"baseURL": "https://gateway.example/v1"}}')
    found = list(list_configured([str(tmp_path), str(tmp_path / "nothing")]))
    assert found == [("127.0.0.1", 1234), ("gateway.example", 443)]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "aider", "mini"])
def test_every_built_in_agent_says_what_it_needs(name: str) -> None:
    hosts = agents.make(name, {}).traits.hosts
    assert hosts
    assert all(NetworkRules(hosts=hosts).check_host(host, 443) is None for host in hosts)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_there_is_a_proxy_only_where_there_is_a_list(mode: str, tmp_path: Path) -> None:
    settings = Settings(sandbox=SandboxSettings(network=mode))  # type: ignore[arg-type]
    with open_proxy(NetworkRules(), settings, Log(str(tmp_path / "events.jsonl"))) as made:
        assert made is None


def test_what_is_denied_goes_to_the_record_with_its_iteration(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "events.jsonl"))
    with open_proxy(NetworkRules(), Settings(), log) as made:
        assert made is not None
        log.note(IterationStarted(number=3, iteration=3, story="2"))
        for _ in range(2):
            with connect(made) as line:
                line.sendall(b"CONNECT files.example.org:443 HTTP/1.1\r\n\r\n")
                receive_all(line)
    log.close()
    _, *found = map(events.decode, (tmp_path / "events.jsonl").read_bytes().splitlines())
    [denied] = found
    assert isinstance(denied, events.Denied)
    assert (denied.host, denied.port, denied.iteration, denied.story) == ("files.example.org", 443, 3, "2")
    line_of_it = describe_event(denied, "2")
    assert line_of_it is not None
    assert str(line_of_it.plain) == (
        'network: files.example.org:443 was denied; to allow it, set [sandbox] hosts = ["files.example.org"]'
    )
