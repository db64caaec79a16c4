"""Machines that die, hang, or lose their connection while they work: each story is done once, at no extra attempt."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from lab import Process, kill, wait_until
from loop.lanes import ONE, TWO, WRITES, check_commits, list_stories, part
from workers.farm import Farm, count, find_worker_events, finish, pause_until, read_remote


def wait_for_turn(farm: Farm) -> dict[str, Any]:
    """A step: the first agent waits for `go-1`, the second for `go-2`."""
    return {"run": f"n=$(wc -l < {farm.meet}/agents); while [ ! -e {farm.meet}/go-$n ]; do sleep 0.05; done"}


# --- a worker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["post-receive", "pre-receive"])
def test_a_worker_that_is_killed_while_it_pushes(farm: Farm, hook: str) -> None:
    """Pushed work is used, and no agent repeats it. Another worker repeats unpushed work: the first result counts."""
    farm.make(ONE, heartbeat="5s").lab.play(default=[count(farm), *WRITES])
    farm.hold_pushes(hook)
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("pushing")
    farm.stop_worker("anna", signal.SIGKILL)
    farm.start_worker("berta")
    if hook == "pre-receive":
        assert wait_until(lambda: farm.count_agents() == 2)
    farm.let_go("push")
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == (1 if hook == "post-receive" else 2)


def test_the_agent_dies_with_its_worker(farm: Farm, record_property: Callable[[str, object], None]) -> None:
    farm.make(ONE).lab.play(default=[{"run": f"touch {farm.meet}/begun; trap '' TERM INT HUP; sleep 3619"}])
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("begun")
    assert farm.list_left("anna/home")
    began = time.monotonic()
    farm.stop_worker("anna", signal.SIGKILL)
    assert wait_until(lambda: not farm.list_left("anna/")), farm.list_left("anna/")
    record_property("seconds until the agent was gone", round(time.monotonic() - began, 2))
    kill(run)  # it would wait for a job that never ends
    assert list_stories(farm.lab) == []


@pytest.mark.parametrize("is_over", [False, True], ids=["meanwhile", "after the run"])
def test_a_worker_that_hangs_and_comes_back(farm: Farm, is_over: bool) -> None:
    """Another worker has its story by then: the late work does not count, and leaves nothing."""
    farm.make(ONE, heartbeat="5s").lab.play(default=[count(farm), wait_for_turn(farm), *WRITES])
    anna = farm.start_worker("anna")
    run = farm.lab.start("add-login")
    assert wait_until(lambda: find_worker_events(farm.lab.events(), "1") == ["anna"] and farm.count_agents() == 1)
    os.kill(anna.pid, signal.SIGSTOP)
    farm.start_worker("berta")
    assert wait_until(lambda: farm.count_agents() == 2)
    if is_over:
        farm.let_go("go-1")
        farm.let_go("go-2")
        finish(run)
    os.kill(anna.pid, signal.SIGCONT)
    farm.let_go("go-1")
    assert wait_until(lambda: len(farm.list_left("anna/home")) == 1), "its agent, and what watches over it, end"
    if not is_over:
        farm.let_go("go-2")
        finish(run)
    assert farm.stop_worker("anna") == 0
    farm.check_done("1")


def test_an_agent_that_is_killed_alone_has_failed_as_it_would_at_home(farm: Farm) -> None:
    farm.make(ONE).lab.play({"attempt": 1, "steps": [part(), {"kill": "self"}]}, default=WRITES)
    farm.start_worker("anna")
    finish(farm.lab.start("add-login"))
    assert list_stories(farm.lab) == ["1"]
    check_commits(farm.lab)
    assert [status for _, status in farm.lab.endings()] == ["failed", "completed"]


# --- the server -------------------------------------------------------------------------------------


def kill_server_twice(farm: Farm) -> None:
    """Once while agents work, which continue, and once when one has ended, whose result comes later."""
    farm.make(TWO).lab.play(default=[count(farm), pause_until(farm, "begun-{story}", "go-{story}"), *WRITES])
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("begun-1")
    farm.wait_for("begun-2")
    farm.server.kill()
    farm.server.start()
    farm.let_go("go-1")
    assert wait_until(lambda: list_stories(farm.lab) == ["1"])
    farm.server.kill()
    farm.let_go("go-2")
    assert wait_until(lambda: read_remote(farm.remote, "for-each-ref", "refs/ralph/results").count("-work-") == 2)
    farm.server.start()
    finish(run)
    farm.check_done("1", "2")
    assert farm.count_agents() == 2, "no agent was started a second time"


def miss_server_until_it_is_done(farm: Farm) -> None:
    """The server may take the worker for dead. Its work in the meantime counts, and is not repeated."""
    run = begin_and_kill_server(farm)
    farm.let_go("go-1")
    assert wait_until(lambda: read_remote(farm.remote, "for-each-ref", "refs/ralph/results"))
    time.sleep(6)  # by the server's clock: there is nothing else to wait for
    farm.server.start()
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == 1


def miss_server_while_it_works(farm: Farm) -> None:
    """The worker reports before it is taken for dead, or after: then the work is done twice, and counts once."""
    run = begin_and_kill_server(farm)
    time.sleep(6)  # by the server's clock: there is nothing else to wait for
    farm.server.start()
    farm.let_go("go-1")
    farm.let_go("go-2")
    finish(run)
    farm.check_done("1")


def begin_and_kill_server(farm: Farm) -> Process:
    farm.make(ONE, heartbeat="5s").lab.play(default=[count(farm), wait_for_turn(farm), *WRITES])
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    assert wait_until(lambda: farm.count_agents() == 1)
    farm.server.kill()
    return run


@pytest.mark.parametrize("lose", [kill_server_twice, miss_server_until_it_is_done, miss_server_while_it_works])
def test_a_server_that_goes_away_and_comes_back(own_farm: Farm, lose: Callable[[Farm], None]) -> None:
    lose(own_farm)
