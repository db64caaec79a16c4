"""One real server for all tests of a process; each test has its own queue on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from workers.farm import Farm

from ralphtool.executors.temporal.dev_server import DevServer


@pytest.fixture
def farm(tmp_path: Path, server: DevServer) -> Iterator[Farm]:
    made = Farm(Lab(tmp_path), server, f"test-{uuid.uuid4()}")
    yield made
    made.end()


@pytest.fixture
def own_farm(tmp_path: Path, own_server: DevServer) -> Iterator[Farm]:
    made = Farm(Lab(tmp_path), own_server, "test")
    yield made
    made.end()
