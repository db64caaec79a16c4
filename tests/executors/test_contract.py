"""The same stories and faults come to the same results: here, side by side, and on workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.lanes import NEEDS_BOXES
from workers.farm import Farm

from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.testing import EXECUTOR_CASES, EXECUTOR_SECRET, ExecutorOutcome, check_executor

pytestmark = NEEDS_BOXES

HERE = {"run": {"workspace": "box"}}
SIDE_BY_SIDE = {"run": {"workspace": "box", "side_by_side": 2}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with DevServer(str(tmp_path_factory.mktemp("temporal"))) as server:
        yield server


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory, server: DevServer) -> Iterator[Farm]:
    """Two workers, which have the secret of the contract too."""
    made = Farm(Lab(tmp_path_factory.mktemp("contract")), server, "contract")
    try:
        for name in ("anna", "berta"):
            made.start_worker(name, **EXECUTOR_SECRET)
        yield made
    finally:
        made.end()


def check(top: Path, settings: dict[str, Any], case: str) -> ExecutorOutcome:
    """In a home of its own."""
    top.mkdir()
    lab = Lab(top)
    return check_executor(str(lab.root), settings, cases=[case], env=lab.env)[case]


@pytest.mark.parametrize("case", EXECUTOR_CASES)
def test_side_by_side_as_one_after_the_other(tmp_path: Path, case: str) -> None:
    here = check(tmp_path / "here", HERE, case)
    assert check(tmp_path / "beside", SIDE_BY_SIDE, case) == here


@pytest.mark.parametrize("case", EXECUTOR_CASES)
def test_on_workers_as_here(tmp_path: Path, farm: Farm, case: str) -> None:
    told = {"address": farm.server.address, "queue": farm.queue, "remote": str(farm.remote), "heartbeat": "15m"}
    there = {"run": {"executor": "temporal", "side_by_side": 2}, "executor": told}
    assert check(tmp_path / "there", there, case) == check(tmp_path / "here", HERE, case)
