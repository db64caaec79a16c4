"""A real server, one for all tests of a process; each test has its own queue on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from executors.temporal.jobs import Workers, open_link

from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.executors.temporal.link import Link
from ralphtool.settings.executor import ExecutorSettings


@pytest.fixture
def settings(server: DevServer) -> ExecutorSettings:
    return ExecutorSettings(address=server.address, queue=f"test-{uuid.uuid4()}")


@pytest.fixture
def link(settings: ExecutorSettings) -> Iterator[Link]:
    link = open_link(settings)
    yield link
    link.close()


@pytest.fixture
def workers(settings: ExecutorSettings, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(settings, tmp_path)
    yield workers
    workers.end()
