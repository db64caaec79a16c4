"""A server and two workers on one machine, for trying it out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ralphtool.errors import RemoteFailed
from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.settings.executor import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.settings.executor import ExecutorSettings

_NAMES = ("dev-1", "dev-2")
_END = 30.0  # seconds that a worker has to hand over its work


@contextmanager
def start(settings: ExecutorSettings, slots: int, home: str) -> Iterator[str]:
    """Yields the address of the server when the workers are ready. Everything ends with the block."""
    with ExitStack() as stack:
        place = home or stack.enter_context(tempfile.TemporaryDirectory(prefix="ralphtool-dev-"))
        os.makedirs(place, exist_ok=True)
        address = stack.enter_context(DevServer(place, _find_port(settings.address))).address
        workers = [_start_worker(address, settings.queue, slots, name, place) for name in _NAMES]
        for one in workers:
            stack.callback(_stop, one)
        for one in workers:
            if not one.stdout or not one.stdout.readline():
                raise RemoteFailed("a worker could not be started: its output is above")
        yield address


def _find_port(address: str) -> int:
    """The usual port, so that a run needs no setting; any other if it is in use."""
    port = int(address.rpartition(":")[2]) if is_loopback(address) else 0
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _start_worker(address: str, queue: str, slots: int, name: str, place: str) -> subprocess.Popen[bytes]:
    words = ["worker", "--address", address, "--queue", queue, "--slots", str(slots), "--name", name]
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "ralphtool", *words, "--home", os.path.join(place, name)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # this process answers a Ctrl-C in the terminal
    )


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    try:
        worker.wait(_END)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
