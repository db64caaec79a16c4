"""The servers for requests that the page would never make."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from project import Ralph
from views.night import Night, a_night
from views.web.hostile import (
    HONEST_LOG,
    OTHER_RUN,
    SECRET,
    STOLEN_LOGS,
    Server,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """A project with a change, a run that has ended, and a record that an attacker wrote."""
    ralph = Ralph(tmp_path_factory.mktemp("hostile"))
    ralph.openspec()
    a_night().write(ralph.root)
    _write_other_run(ralph)
    return ralph


def _write_other_run(ralph: Ralph) -> None:
    night = Night()
    night.start()
    night.add("iteration_started", number=1, story="2", entry="add-login-2-1", attempt=1)
    for log in (HONEST_LOG, *STOLEN_LOGS.values()):
        night.add("gate_started", when="after", command="pytest")
        night.add("gate", when="after", command="pytest", ok=True, log=log.replace("{root}", str(ralph.root)))
    folder = night.write(ralph.root, OTHER_RUN).parent
    ralph.write("secret.txt", SECRET)
    ralph.write(f".ralph/runs/{OTHER_RUN}-more/secret.txt", SECRET)
    (folder / "logs").mkdir()
    (folder / HONEST_LOG).write_text("what the gate printed")
    (folder / "logs/link.txt").symlink_to(ralph.root / "secret.txt")
    (folder / "way").symlink_to(ralph.root)


@pytest.fixture(scope="module")
def server(place: Ralph) -> Iterator[Server]:
    started = Server(place)
    yield started
    started.close()


@pytest.fixture(scope="module")
def looking(place: Ralph) -> Iterator[Server]:
    """A read-only server."""
    started = Server(place, "--read-only")
    yield started
    started.close()


@pytest.fixture(scope="module")
def private(place: Ralph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server at a socket that another server left behind."""
    path = str(tmp_path_factory.mktemp("s") / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    started = Server(place, socket_path=path)
    yield started
    started.close()
