"""The same stories and faults lead to the same results: here, side by side, and on workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.lanes import NEEDS_BOXES
from patience import PATIENCE
from workers.farm import Farm

from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.testing import EXECUTOR_CASES, EXECUTOR_SECRET, ContractBroken, ExecutorOutcome, check_executor

pytestmark = NEEDS_BOXES

HERE = {"run": {"workspace": "box"}}
SIDE_BY_SIDE = {"run": {"workspace": "box", "side_by_side": 2}}
COMMAND = f"{sys.executable} -m ralphtool"


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory, server: DevServer) -> Iterator[Farm]:
    """Two workers, which also have the secret of the contract."""
    made = Farm(Lab(tmp_path_factory.mktemp("contract")), server, "contract")
    try:
        for name in ("anna", "berta"):
            made.start_worker(name, **EXECUTOR_SECRET)
        yield made
    finally:
        made.end()


def check(top: Path, settings: dict[str, Any], case: str, **more: Any) -> ExecutorOutcome:
    """Checks a case in a separate home."""
    top.mkdir()
    lab = Lab(top)
    return check_executor(str(lab.root), settings, cases=[case], env=lab.env, **more)[case]


@pytest.mark.parametrize("case", EXECUTOR_CASES)
def test_side_by_side_and_on_workers_as_one_after_the_other(tmp_path: Path, farm: Farm, case: str) -> None:
    told = {"address": farm.server.address, "queue": farm.queue, "remote": str(farm.remote), "heartbeat": "15m"}
    there = {"run": {"executor": "temporal", "side_by_side": 2}, "executor": told}
    here = check(tmp_path / "here", HERE, case)
    assert check(tmp_path / "beside", SIDE_BY_SIDE, case) == here
    assert check(tmp_path / "there", there, case) == here


BROKEN = {
    "the verdicts are": ("proven", "echo it is Sunday"),
    "the exit code is 0, not 7": ("proven", f'{COMMAND} "$@"; exit 7'),
    "the user's files and branches": ("proven", f'{COMMAND} "$@"; echo more >> shop.py'),
    "commits are of the stories": ("proven", f'{COMMAND} "$@" && git branch -fq ralph/$3 main'),
    "files named in events exist": ("proven", f'{COMMAND} "$@" && rm .ralph/runs/*/001-*/transcript.log'),
    "the agent's learnings are in the history": (
        "learnings",
        f'{COMMAND} "$@" && sed -i s/till/bank/ .ralph/progress.json',
    ),
    "a secret is in no record": ("secret", f'{COMMAND} "$@" && env > .ralph/environment'),
    "the run did not end": ("proven", "exec sleep 3600"),
}


@pytest.mark.parametrize("promise", BROKEN)
def test_what_breaks_a_promise_is_told_which(tmp_path: Path, promise: str) -> None:
    case, script = BROKEN[promise]
    patience = 2.0 if "sleep" in script else PATIENCE
    with pytest.raises(ContractBroken, match=f"{case}: .*{promise}") as error:
        check(tmp_path / "here", HERE, case, command=("sh", "-c", script, "sh"), patience=patience)
    assert ("it is Sunday" in str(error.value)) == ("it is Sunday" in script)  # what it has printed
