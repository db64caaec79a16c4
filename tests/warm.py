"""Runs `ralphtool` in a fork of a process with its modules loaded: most of a short call is imports.

Each call is a separate process with the same arguments, folder, environment and streams, and starts others as usual.
`starts_warm` says which calls are left to the command itself. Run as a program, this is the process that forks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patience import PATIENCE

COMMAND = str(Path(sys.executable).with_name("ralphtool"))
LOCALE = "C.UTF-8"
MOST_INPUT = 1 << 15  # bytes that fit into a pipe without a reader
# The sender of `accept` and `reject` is identified by its command line, but a fork has that of its parent.
# `mcp` waits for its client.
COLD = {"accept", "reject", "mcp"}


# --- in a test --------------------------------------------------------------------------------------


def starts_warm(arguments: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str]) -> bool:
    """Whether a call may be forked: nothing in it matters to Python, or to others, from the process start on."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or LOCALE
    return (
        hasattr(os, "pidfd_open")
        and locale == LOCALE
        and len(stdin) <= MOST_INPUT
        and not COLD.intersection(arguments)
        and not any("\0" in word for word in (*arguments, *env, *env.values()))
        and not any(name.startswith(("PYTHON", "LD_")) for name in env)
        and os.access(cwd, os.X_OK)
    )


class Warm:
    """The process with the modules loaded."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={"PATH": os.environ["PATH"], "LC_ALL": LOCALE},
                cwd="/",
                pass_fds=[theirs.fileno()],
                # Pipes, as in a call: Python inspects its streams when it starts.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self._process.wait()  # the process it forks is not a child of this one: some tests count children
        atexit.register(self.close)

    def close(self) -> None:
        if os.getpid() == self._owner:
            self._line.close()  # it ends when no more calls can come
            self._process.communicate()

    def run(
        self, arguments: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Like `subprocess.run` with `capture_output`."""
        process = self.start(arguments, stdin, cwd, env)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.close()
            raise
        return subprocess.CompletedProcess(process.args, process.wait(), stdout, stderr)

    def start(self, arguments: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str]) -> WarmProcess:
        """Like `subprocess.Popen` with pipes for the output."""
        command = [COMMAND, *arguments]
        call = json.dumps({"argv": command, "cwd": os.fspath(cwd), "env": dict(env)}).encode()
        line, outputs = self._ask(call, stdin)
        return WarmProcess(command, line, outputs)

    def _ask(self, call: bytes, stdin: bytes) -> tuple[socket.socket, list[int]]:
        """Sends a call with its streams; returns the socket for its exit status, and the streams to read from."""
        line, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        passed = [pipes[0][0], pipes[1][1], pipes[2][1]]
        os.write(pipes[0][1], stdin)
        os.close(pipes[0][1])
        with theirs:
            try:
                socket.send_fds(self._line, [b"call"], [theirs.fileno(), *passed])
            finally:
                for number in passed:
                    os.close(number)
        line.sendall(len(call).to_bytes(8, "big") + call)
        return line, [pipes[1][0], pipes[2][0]]


class WarmProcess:
    """A call in progress, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], line: socket.socket, outputs: list[int]) -> None:
        self.args = args
        self.pid = _receive_number(line)
        self.returncode: int | Any = None  # as of `subprocess`
        self.stdout, self.stderr = map(io.FileIO, outputs)
        self._line = line

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ready, _, _ = select.select([self._line], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = _receive_number(self._line)
            self._line.close()
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[bytes, bytes]:
        """Its output, which is read until no process has its streams open."""
        if self.stdout.closed:
            return b"", b""  # it was read before
        until = time.monotonic() + timeout
        try:
            stdout, stderr = _read_all([self.stdout.fileno(), self.stderr.fileno()], until)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout) from None
        self.wait(max(0.01, until - time.monotonic()))
        self.close()
        return stdout, stderr

    def close(self) -> None:
        for opened in (self.stdout, self.stderr, self._line):
            opened.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        block = line.recv(size - len(data))
        if not block:
            raise ConnectionError("the process that calls are forked off is gone")
        data += block
    return data


def _receive_number(line: socket.socket) -> int:
    return int.from_bytes(_receive(line, 8), "big", signed=True)


def _read_all(outputs: list[int], until: float) -> list[bytes]:
    """The output of a call, until no process has its streams open."""
    blocks: dict[int, list[bytes]] = {number: [] for number in outputs}
    with selectors.DefaultSelector() as selector:
        for number in outputs:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(until - time.monotonic())
            if not ready and time.monotonic() >= until:
                raise TimeoutError
            for key, _ in ready:
                block = os.read(key.fd, 1 << 16)
                if block:
                    blocks[key.fd].append(block)
                else:
                    selector.unregister(key.fd)
    return [b"".join(blocks[number]) for number in outputs]


# --- in the process that forks ----------------------------------------------------------------------

NOT_LOADED = (  # large, and for few calls
    "ralphtool.cli.mcp",
    "ralphtool.memory.minilm",
    "ralphtool.memory.semantic",
    "ralphtool.memory.vector_store",
    "ralphtool.testing",
    "ralphtool.views.screen",
)


def load() -> None:
    """Imports the modules that most calls import."""
    load_package("ralphtool")
    gc.freeze()  # otherwise the first garbage collection of a call would copy the memory of all modules


def load_temporal(project: str) -> None:
    """Imports what a run on workers needs, once and not in every fork: that takes longer than all other modules."""
    try:
        text = Path(project, ".ralph/config.toml").read_text()
    except (OSError, ValueError):
        return
    if 'executor = "temporal"' in text and "temporalio" not in sys.modules:
        for name in ("temporalio.client", "temporalio.worker"):
            importlib.import_module(name)
        gc.freeze()


def load_package(name: str) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
        if module.name in NOT_LOADED:
            continue
        importlib.import_module(module.name)
        if module.ispkg:
            load_package(module.name)


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Forks for every call; returns the call in the new process, and None when no more calls can come."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that reports its end
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not channel:
                selector.unregister(key.fd)
                report_end(key.fd, *running.pop(key.fd))
                continue
            data, passed, _, _ = socket.recv_fds(channel, 16, 4)
            if not data:
                return None
            call, pid, line = begin_call(passed)
            if pid == 0:
                selector.close()
                channel.close()
                for number, (_, other) in running.items():
                    os.close(number)
                    other.close()
                return call
            told = os.pidfd_open(pid)
            running[told] = pid, line
            selector.register(told, selectors.EVENT_READ)


def begin_call(passed: list[int]) -> tuple[dict[str, Any], int, socket.socket]:
    line = socket.socket(fileno=passed[0])
    call = json.loads(_receive(line, _receive_number(line)))
    load_temporal(call["cwd"])
    pid = os.fork()
    if pid == 0:
        line.close()
        for stream, number in enumerate(passed[1:]):
            os.dup2(number, stream)
    else:
        line.sendall(pid.to_bytes(8, "big", signed=True))
    for number in passed[1:]:
        os.close(number)
    return call, pid, line


def report_end(told: int, pid: int, line: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(told)
    with line:
        try:
            line.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
        except OSError:
            pass  # it took too long, and the caller no longer waits


def become(call: dict[str, Any]) -> None:
    """Sets up everything that the command would have from its start."""
    os.environ.clear()
    os.environ.update(call["env"])
    if not any(os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        os.environ["LC_CTYPE"] = LOCALE  # as Python does
    time.tzset()
    os.chdir(call["cwd"])
    sys.argv = call["argv"]
    sys.path[0] = os.path.dirname(COMMAND)


def main() -> int:
    if os.fork():
        os._exit(0)
    load()
    call = serve(socket.socket(fileno=int(sys.argv[1])))
    if call is None:
        return 0
    become(call)
    from ralphtool.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
