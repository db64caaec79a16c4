"""No agent gets out of its box: real attempts, by a real process, as root and as an ordinary user.

Assertions are always about the effects outside. Attempts share a run, since each run costs more than all of them.
Attempts that need the network are in the proxy's own tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from sandbox.escapes import TOGETHER
from sandbox.planted import CLOSED, LARGE, ON_OURS, PLANTED
from sandbox.stage import ORDINARY, Stage, ensure_user

from ralphtool.sandbox.trial import NoBox, try_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.stage import Attempt

USERS = ("root", ORDINARY) if os.geteuid() == 0 else ("myself",)
GROUPS = {"together": TOGETHER, "planted": (*PLANTED, *ON_OURS), "large": LARGE, "closed": CLOSED}
ITERATIONS = {"together": 1, "planted": 2, "large": 1, "closed": 2}  # the next iteration finds what was planted
CASES = [(name, attempt) for name, attempts in GROUPS.items() for attempt in attempts]


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str | None:
    """The user who runs it; None for the user who runs the tests."""
    trial = try_box()
    if isinstance(trial, NoBox):
        pytest.skip(f"no box can be had here: {trial.why}; {trial.help}")
    if request.param != ORDINARY:
        return None
    ensure_user(ORDINARY)
    return ORDINARY


@pytest.fixture(scope="module")
def stages(user: str | None) -> Iterator[dict[str, Stage]]:
    """The stage of each group of attempts, after its run."""
    made: dict[str, Stage] = {}
    yield made
    for stage in made.values():
        stage.close()


def _play(stages: dict[str, Stage], user: str | None, group: str) -> Stage:
    if group not in stages:
        stages[group] = stage = Stage(user, ITERATIONS[group])
        done = stage.play(GROUPS[group])
        stage.output = done.stdout + done.stderr
    return stages[group]


@pytest.mark.parametrize(("group", "attempt"), CASES, ids=[attempt.name for _, attempt in CASES])
def test_no_way_out(stages: dict[str, Stage], user: str | None, group: str, attempt: Attempt) -> None:
    stage = _play(stages, user, group)
    assert attempt.name in stage.said, stage.output.decode("utf-8", "replace")
    stage.looked_at = attempt.name
    attempt.check(stage, stage.said[attempt.name])
