"""A real server of the page, with requests byte by byte, so that tests can send what a browser never would."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psutil
import pytest
from lab import wait_until
from patience import PATIENCE
from project import Ralph
from views.night import RUN

from ralphtool.views.web.access import Access
from ralphtool.views.web.checks import Site
from ralphtool.views.web.served import Served

CHANGE = "add-login"
OTHER_RUN = "add-login-20260302-220000-2b2b"  # its record was written by an attacker who wants to read other files
SECRET = "the-secret-of-the-owner"
GUARDS = {
    "connection": "close",  # so that nothing after a request is read
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}
# The HTTP library's own answers to anything that is not HTTP, or to one connection too many.
NOT_OURS = (b"Invalid HTTP request received.", b"Service Unavailable")

EVIL = "http://evil.example"
CHUNKED: Changes = {"Content-Length": [], "Transfer-Encoding": ["chunked"]}
MORE_MEMORY = 64 << 20  # bytes that a server may use, whatever clients do to it
ACTIONS = ("answer", "guide", "pause", "resume", "stop", "stop-after", "retry", "skip", "accept", "reject", "run")
PAGES = ("log", "story", "gate", "timeline", "report")

# Logs of gates, as the record of `OTHER_RUN` names them: only the first one is honest.
HONEST_LOG = "logs/1.txt"
STOLEN_LOGS = {
    "relative": "../../../secret.txt",
    "deep": "logs/../../../../secret.txt",
    "absolute": "{root}/secret.txt",
    "link": "logs/link.txt",
    "folder that is a link": "way/secret.txt",
    "neighbour whose name begins alike": f"../{OTHER_RUN}-more/secret.txt",
    "nul": "logs/1.txt\0",
    "folder": "logs",
}

Changes = Mapping[str, Sequence[str]]  # a header's name, and the values that replace the honest one
Where = tuple[str, int] | str  # an address, or the path of a socket


class Answer(NamedTuple):
    raw: bytes

    @property
    def status(self) -> int:
        """0 if the connection was closed without an answer."""
        return int(self.raw.split(b" ", 2)[1]) if self.raw else 0

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def get(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class Server:
    """`ralphtool web` in a separate process, with a logged-in client."""

    def __init__(self, ralph: Ralph, *options: str, socket_path: str = "") -> None:
        self.ralph = ralph
        self._errors = ralph.tmp / f"errors-{os.urandom(4).hex()}.txt"
        where = ["--socket", socket_path] if socket_path else ["--port", "0"]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ralphtool", "web", str(ralph.root), "--json", *where, *options],
                cwd=ralph.root,
                env=ralph.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._read_address(socket_path)
        self.cookie, self.csrf = self.log_in()
        self.key = self.stream_key
        self.cookie_name = self.cookie.partition("=")[0]

    def _read_address(self, socket_path: str) -> None:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self._errors.read_text()
        told = json.loads(line)
        self.address, _, self.token = told["address"].partition("#token=")
        self.host = "localhost" if socket_path else self.address.removeprefix("http://").rstrip("/")
        self.port = self.host.partition(":")[2]
        self.where: Where = socket_path or ("127.0.0.1", int(self.port))
        [self.project] = Served(told["projects"], Site("http", frozenset(), Access(self.token, "x"))).projects

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)

    # --- requests

    def connect(self) -> socket.socket:
        return connect(self.where)

    def ask(self, said: bytes) -> Answer:
        """Sends data, and reads until the server closes."""
        with self.connect() as line:
            send(line, said)
            return read_answer(line)

    def build(
        self,
        method: str = "GET",
        target: str = "",
        changes: Changes | None = None,
        body: bytes = b"",
        version: str = "1.1",
    ) -> bytes:
        """A request: an honest one of the page, except for the changes."""
        headers = {**self._list_honest(method, body), **(changes or {})}
        lines = [f"{method} {self._add_key(target or self.log)} HTTP/{version}"]
        lines += [f"{name}: {value}" for name, values in headers.items() for value in values]
        text = "\r\n".join(lines).replace("{host}", self.host).replace("{port}", self.port)
        return text.encode("latin-1") + b"\r\n\r\n" + body

    def _add_key(self, target: str) -> str:
        """A stream has its key in the query, since a browser can't send headers with it."""
        is_bare = target.partition("?")[0] == "/api/stream" and "key=" not in target and hasattr(self, "key")
        return f"{target}{'&' if '?' in target else '?'}key={self.key}" if is_bare else target

    def _list_honest(self, method: str, body: bytes) -> dict[str, Sequence[str]]:
        headers: dict[str, Sequence[str]] = {"Host": [self.host], "Sec-Fetch-Site": ["same-origin"]}
        if hasattr(self, "cookie"):
            headers |= {"Cookie": [self.cookie]}
        if hasattr(self, "csrf"):
            headers |= {"X-CSRF-Token": [self.csrf]}
        if method != "POST":
            return headers
        about = {"Content-Type": ["application/json"], "Content-Length": [str(len(body))]}
        return {**headers, "Origin": ["http://{host}"], **about}

    def get(self, target: str = "", changes: Changes | None = None) -> Answer:
        return self.ask(self.build("GET", target, changes))

    def build_order(self, changes: Changes | None = None, **fields: Any) -> bytes:
        """A command to pause the change, except for the given fields."""
        order = {"project": self.project, "do": "pause", "change": CHANGE, **fields}
        return self.build("POST", "/api/do", changes, json.dumps(order).encode())

    def build_login(self, token: Any, changes: Changes | None = None) -> bytes:
        return self.build("POST", "/api/login", changes, json.dumps({"token": token}).encode())

    def log_in(self) -> tuple[str, str]:
        """A new cookie, and its CSRF token."""
        answer = self.ask(self.build_login(self.token, {"Cookie": []}))
        assert answer.status == 200, answer.raw
        self.stream_key = str(answer.json["stream"])
        return answer.get("set-cookie").partition(";")[0], str(answer.json["csrf"])

    # --- what an honest page asks for

    @property
    def log(self) -> str:
        """The target that reveals most: a line of the log has the name of the change."""
        return self.name_run("log", before=self.end)

    @property
    def end(self) -> str:
        """Where the record ends."""
        return str((self.ralph.root / ".ralph/runs" / RUN / "events.jsonl").stat().st_size)

    def name_run(self, what: str, **query: str) -> str:
        """An address for something about a run; the query's values are sent as they are."""
        given = {"project": self.project, "run": RUN, **query}
        return f"/api/{what}?" + "&".join(f"{name}={value}" for name, value in given.items())

    @contextmanager
    def listen(self, target: str, room: int = 0) -> Iterator[socket.socket]:
        """A requested stream that has not been read from yet."""
        with connect(self.where, room) as line:
            send(line, self.build("GET", target))
            yield line

    # --- its state

    def is_answering(self) -> bool:
        return self.get("/api/session").status == 200

    def look(self) -> tuple[list[str], int]:
        """What no refused request may change: the steering commands, and the number of server errors."""
        said = [str(path) for path in sorted(self.ralph.root.glob(".ralph/steering/**/*"))]
        return said, self._errors.read_bytes().count(b"Traceback")

    def measure_memory(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def list_addresses(self) -> list[tuple[str, int]]:
        """Where it can be reached from a network."""
        found = psutil.Process(self.process.pid).net_connections("inet")
        return [(one.laddr.ip, one.laddr.port) for one in found if one.status == "LISTEN"]

    def list_children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


def connect(where: Where, room: int = 0) -> socket.socket:
    """`room` is the size of the receive buffer in bytes; without it, the system's default."""
    line = socket.socket(socket.AF_INET if isinstance(where, tuple) else socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(PATIENCE)
    if room:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    line.connect(where)
    return line


def send(line: socket.socket, said: bytes) -> None:
    """The server may close the connection before it has read everything."""
    try:
        line.sendall(said)
    except (BrokenPipeError, ConnectionResetError):
        pass


def read_answer(line: socket.socket) -> Answer:
    """The whole answer; of an unexpected stream, only its beginning."""
    raw = b""
    while b"text/event-stream" not in raw and (block := receive(line)):
        raw += block
    return Answer(raw)


def receive(line: socket.socket) -> bytes:
    try:
        return line.recv(1 << 16)
    except ConnectionResetError:
        return b""


def read_until(line: socket.socket, wanted: bytes) -> bytes:
    """Everything received until the wanted bytes or the end."""
    raw = b""
    while wanted not in raw and (block := receive(line)):
        raw += block
    return raw


# --- rules for every refusal ------------------------------------------------------------------------


def check_refused(server: Server, said: bytes, *statuses: int, tells: bool = False) -> Answer:
    """Refused, with nothing revealed and nothing done; `tells` is for clients that may know the project."""
    before = server.look()
    answer = server.ask(said)
    assert answer.status in statuses, answer.raw[:600]
    assert answer.raw.count(b"HTTP/1.1 ") == bool(answer.raw), "one answer"
    check_guarded(answer)
    if not tells:
        check_silent(server, answer.raw)
    assert server.look() == before, "nothing is written, and nothing has failed"
    assert server.is_answering()
    return answer


def check_silent(server: Server, raw: bytes) -> None:
    told = (CHANGE, str(server.ralph.root), "Login form", SECRET, server.token, server.csrf, server.cookie)
    assert [one for one in told if one.encode() in raw] == []


def check_guarded(answer: Answer) -> None:
    """Has the headers that keep other pages from reading, framing, storing or misinterpreting an answer."""
    names = [name for name, _ in answer.headers]
    assert [name for name in names if name.startswith("access-control-")] == []
    if answer.raw and not any(one in answer.body for one in NOT_OURS):
        assert {name: answer.get(name) for name in GUARDS} == GUARDS
        policy = answer.get("content-security-policy").split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy)
        assert names.count("content-security-policy") == 1


# --- an agent ---------------------------------------------------------------------------------------

# Locks a change as `ralphtool run` does, and lets a child process send what it reads: base64, one line each.
RUNNING = """
import base64, json, os, socket, sys
from ralphtool import specs
from ralphtool.core import lifecycle, locks

def speak(order):
    where = order["where"]
    line = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    line.connect(where if isinstance(where, str) else tuple(where))
    line.sendall(base64.b64decode(order["said"]))
    heard = b""
    while order["waits"] and (block := line.recv(65536)):
        heard += block
    print(base64.b64encode(heard).decode(), flush=True)

root, change = sys.argv[1:]
lifecycle.begin(root, "s1", change, specs.open(root, change).ref, owner=locks.describe_process())
print("held", flush=True)
while text := sys.stdin.readline():
    if (child := os.fork()) == 0:
        speak(json.loads(text))
        os._exit(0)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


class Agent:
    """A process that a run has started."""

    def __init__(self, run: subprocess.Popen[bytes]) -> None:
        self._run = run
        self.read_line()

    def read_line(self) -> bytes:
        assert self._run.stdout
        line = self._run.stdout.readline()
        assert line, "the run has ended"
        return line

    def say(self, where: Where, said: bytes, *, waits: bool = True) -> Answer:
        """Sends data to a server; without waiting, the agent is gone before the server can check who it was."""
        assert self._run.stdin
        order = {"where": where, "said": base64.b64encode(said).decode(), "waits": waits}
        self._run.stdin.write(json.dumps(order).encode() + b"\n")
        self._run.stdin.flush()
        heard, _ = self.read_line(), self.read_line()
        return Answer(base64.b64decode(heard))


@contextmanager
def run_with_agent(ralph: Ralph) -> Iterator[Agent]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNING, str(ralph.root), CHANGE],
        cwd=ralph.root,
        env=ralph.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Agent(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def wait_for_commands(server: Server) -> None:
    """Waits until earlier requests are processed: they come before this one, and their commands have ended."""
    assert server.ask(server.build_order(do=1)).status == 400
    assert wait_until(lambda: not server.list_children())


# --- cases ------------------------------------------------------------------------------------------


def ids(cases: dict[str, Any]) -> list[str]:
    return [name.replace(" ", "-") for name in cases]


def each(names: str, cases: dict[str, Any]) -> Callable[[Any], Any]:
    """A case for every entry, named after it."""
    return pytest.mark.parametrize(names, list(cases.values()), ids=ids(cases))
