"""Runs whose iterations happen on workers: the same results as in local runs."""

from __future__ import annotations

import signal

from lab import kill, wait_until
from loop.lanes import END, ONE, TWO, WRITES, check_commits, check_left, list_stories, of_kind, part
from patience import PATIENCE
from workers.farm import Farm, find_worker_events, pause_until, read_remote


def test_stories_are_done_by_two_workers(farm: Farm) -> None:
    farm.make().lab.play(default=WRITES)
    farm.start_worker("anna")
    farm.start_worker("berta")
    done = farm.lab.loop("add-login")
    assert done.exit_code == 0, done.stderr
    assert sorted(list_stories(farm.lab)) == ["1", "2", "3", "4"]
    check_commits(farm.lab)
    check_left(farm.lab)
    events = farm.lab.events(done)
    assert {one["worker"] for one in of_kind(events, "worker")} <= {"anna", "berta"}
    for story in "1234":
        assert find_worker_events(events, story)
        assert any(one["story"] == story for one in of_kind(events, "agent"))
        assert any(one["story"] == story for one in of_kind(events, "gate"))
    assert read_remote(farm.remote, "for-each-ref") == "", "no ref of ours is left there"
    assert farm.lab.git("for-each-ref", "refs/ralph/orders", "refs/ralph/results", "refs/ralph/sent") == ""


def test_a_killed_run_is_taken_up_by_the_next(farm: Farm) -> None:
    farm.make(ONE).lab.play(default=[pause_until(farm, "begun", "go"), part(), *END])
    farm.start_worker("anna")
    first = farm.lab.start("add-login")
    farm.wait_for("begun")
    kill(first)
    begun = (farm.meet / "begun").stat().st_mtime_ns
    second = farm.lab.start("add-login")
    assert wait_until(lambda: of_kind(farm.lab.events(), "agent")), "it sees what the agent does that it found"
    farm.let_go("go")
    assert second.wait(PATIENCE) == 0
    assert list_stories(farm.lab) == ["1"]
    assert (farm.meet / "begun").stat().st_mtime_ns == begun, "no agent was started a second time"
    assert [one["attempt"] for one in of_kind(farm.lab.events(), "iteration_started")] == [1, 1]


def test_the_story_of_a_killed_worker_is_done_by_another(farm: Farm) -> None:
    farm.make(TWO, heartbeat="5s").lab.play(
        {"story": "1", "steps": [pause_until(farm, "begun-1", "go-1"), part(), *END]}, default=WRITES
    )
    farm.start_worker("anna", "--slots", "1")
    run = farm.lab.start("add-login", "--side-by-side", "1")
    farm.wait_for("begun-1")
    assert wait_until(lambda: find_worker_events(farm.lab.events(), "1") == ["anna"])
    farm.stop_worker("anna", signal.SIGKILL)
    farm.let_go("go-1")
    farm.start_worker("berta")
    out, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, out
    assert sorted(list_stories(farm.lab)) == ["1", "2"]
    assert find_worker_events(farm.lab.events(), "1")[:2] == ["anna", "berta"]
    assert {one["attempt"] for one in of_kind(farm.lab.events(), "iteration_started")} == {1}
