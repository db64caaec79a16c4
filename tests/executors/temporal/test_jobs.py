"""A job from start to end, with a healthy worker and a running server."""

from __future__ import annotations

from pathlib import Path

import pytest
from executors.temporal.jobs import CALM, Worker, has_told, notes, open_link, reach
from lab import wait_until
from msgspec import structs

from ralphtool.errors import InvalidValue, RemoteFailed
from ralphtool.executors.temporal.link import JobState, Link
from ralphtool.settings.executor import ExecutorSettings


@pytest.fixture
def id(settings: ExecutorSettings) -> str:
    return f"{settings.queue}/run/entry/1"


def test_a_job_is_carried_out_and_its_result_comes_back(
    link: Link, settings: ExecutorSettings, tmp_path: Path, id: str
) -> None:
    job = link.start(id, b"hello", CALM)
    assert job.look() == JobState(id=id, state="waiting", attempt=1)
    with pytest.raises(RemoteFailed, match="waiting"):
        job.result()
    with Worker(settings, tmp_path):
        assert reach(job, "done") == JobState(id=id, state="done", worker="anna", attempt=1)
    assert job.result() == b"hello of anna"


def test_the_same_id_again_is_the_same_job(link: Link, settings: ExecutorSettings, tmp_path: Path, id: str) -> None:
    with Worker(settings, tmp_path) as worker:
        first = link.start(id, b"wait", CALM)
        reach(first, "running")
        again = link.start(id, b"wait", CALM)
        assert again.look().state == "running"
        (tmp_path / "go").touch()
        reach(first, "done")
        assert link.start(id, b"wait", CALM).result() == again.result() == b"anna"
    assert worker.begun == [(id, 1)]


def test_a_run_that_starts_anew_finds_its_jobs(link: Link, settings: ExecutorSettings, tmp_path: Path, id: str) -> None:
    link.start(id, b"hello", CALM)
    later = open_link(settings)
    with Worker(settings, tmp_path):
        job = later.attach(id)
        reach(job, "done")
        assert job.result() == b"hello of anna"
    later.close()


def test_a_job_that_nobody_knows_is_lost(link: Link) -> None:
    assert (link.attach("nobody").look().state, link.attach("nobody").look().kind) == ("lost", "missing")
    link.attach("nobody").cancel()


def test_what_a_worker_tells_is_seen_while_it_works(
    link: Link, settings: ExecutorSettings, tmp_path: Path, id: str
) -> None:
    with Worker(settings, tmp_path):
        job = link.start(id, b"wait", CALM)
        first = reach(job, "running", also=has_told)
        assert (first.worker, first.attempt) == ("anna", 1)
        reach(job, "running", also=lambda state: int(state.heartbeat) > int(first.heartbeat))
        (tmp_path / "go").touch()
        reach(job, "done")


@pytest.mark.parametrize(
    ("order", "state", "kind", "failure", "attempts"),
    [
        ("refuse", "failed", "login", "nobody is logged in", 1),
        ("crash", "failed", "bug", "ZeroDivisionError: a bug\nin two lines", 1),
        ("say_too_much", "failed", "bug", "a result of 300000 bytes is too big: the maximum is 262144", 1),
        ("fail_once", "done", "", "", 2),
        ("fail_always", "failed", "network", "no route", 2),
    ],
)
def test_what_goes_wrong_is_told_by_its_kind(
    link: Link,
    settings: ExecutorSettings,
    tmp_path: Path,
    id: str,
    order: str,
    state: str,
    kind: str,
    failure: str,
    attempts: int,
) -> None:
    with Worker(settings, tmp_path) as worker:
        seen = reach(link.start(id, order.encode(), structs.replace(CALM, attempts=2)), "done", "failed")
    assert (seen.state, seen.kind, seen.failure, seen.attempt) == (state, kind, failure, attempts)
    assert len(worker.begun) == attempts


def test_what_is_too_big_is_not_sent(link: Link, id: str) -> None:
    with pytest.raises(InvalidValue, match="262145 bytes is too big"):
        link.start(id, bytes(262_145), CALM)
    assert link.attach(id).look().kind == "missing"
    assert link.start(id, bytes(262_144), CALM).look().state == "waiting"


# --- the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "state"), [("wait", "done"), ("wait_and_leave", "cancelled")])
def test_a_worker_hears_that_its_job_is_cancelled(
    link: Link, settings: ExecutorSettings, tmp_path: Path, id: str, order: str, state: str
) -> None:
    with Worker(settings, tmp_path) as worker:
        job = link.start(id, order.encode(), CALM)
        reach(job, "running", also=has_told)
        job.cancel()
        assert reach(job, "done", "cancelled").state == state
        assert worker.ended == {id: "cancelled"}
    if state == "done":
        assert job.result() == b"anna cancelled"
    job.cancel()  # changes nothing: the job has ended


def test_a_job_that_waits_is_cancelled_at_once(link: Link, settings: ExecutorSettings, tmp_path: Path, id: str) -> None:
    job = link.start(id, b"hello", CALM)
    job.cancel()
    assert reach(job, "cancelled").worker == ""
    with Worker(settings, tmp_path) as worker:
        reach(link.start(f"{id}0", b"hello", CALM), "done")
    assert worker.begun == [(f"{id}0", 1)]


def test_a_worker_that_stops_ends_what_runs_and_takes_nothing_new(
    link: Link, settings: ExecutorSettings, tmp_path: Path, id: str
) -> None:
    with Worker(settings, tmp_path, slots=1) as worker:
        running = link.start(id, b"wait", CALM)
        assert wait_until(lambda: worker.begun)  # for the server, it runs as soon as the worker has it
        waiting = link.start(f"{id}0", b"hello", CALM)
    assert not worker.thread.is_alive()
    assert wait_until(lambda: worker.ended == {id: "stopping"}), worker.ended  # the job's thread may still be ending
    assert running.result() == b"anna stopping"
    assert waiting.look().state == "waiting"
    with Worker(settings, tmp_path, "berta"):
        reach(waiting, "done")
    assert waiting.result() == b"hello of berta"


def test_what_a_worker_that_stops_leaves_is_done_by_another(
    link: Link, settings: ExecutorSettings, tmp_path: Path, id: str
) -> None:
    with Worker(settings, tmp_path):
        job = link.start(id, b"wait_and_leave", CALM)
        reach(job, "running", also=has_told)
    seen = job.look()
    assert (seen.state, seen.kind, seen.attempt, seen.worker) == ("waiting", "stopping", 2, "")
    assert seen.heartbeat == b""  # the previous attempt's heartbeat does not count for this one
    with Worker(settings, tmp_path, "berta"):
        reach(job, "running", also=lambda state: state.worker == "berta")
        assert wait_until(lambda: notes(tmp_path)[2:3] == ["berta begins 2"]), notes(tmp_path)


# --- lists of jobs and workers ----------------------------------------------------------------------


def test_workers_and_jobs_are_listed(link: Link, settings: ExecutorSettings, tmp_path: Path, id: str) -> None:
    assert link.list_workers() == []
    assert link.list_jobs() == []
    with Worker(settings, tmp_path, slots=1):
        assert wait_until(lambda: [one.identity for one in link.list_workers()] == ["anna"])
        assert 0 <= link.list_workers()[0].seconds < 600
        reach(link.start(id, b"wait", CALM), "running")
        link.start("other's", b"wait", CALM)
        states = {id: ("running", "anna"), "other's": ("waiting", "")}
        other = open_link(structs.replace(settings, queue=f"{settings.queue}-2"))
        other.start(f"{id}2", b"wait", CALM)
        assert wait_until(lambda: [one.id for one in other.list_jobs()] == [f"{id}2"])
        other.close()
        assert wait_until(lambda: {one.id: (one.state, one.worker) for one in link.list_jobs()} == states)
        assert [one.id for one in link.list_jobs("other'")] == ["other's"]
        (tmp_path / "go").touch()
        assert wait_until(lambda: link.list_jobs() == [])
