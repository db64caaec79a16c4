"""Runs and workers that a person stops, two runs of one change, and secrets."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, wait_until
from loop.lanes import ONE, WRITES, check_commits, list_stories, of_kind, part, set_gate
from patience import PATIENCE
from workers.farm import Farm, count, find_notices, find_worker_events, finish, pause_until, read_remote

from ralphtool.core.layout import CLAIMS
from ralphtool.errors import ChangeLocked, GitError
from ralphtool.loop.run_claim import RunClaim
from ralphtool.workspace.git import Repository
from ralphtool.workspace.remote import Remote

# --- a run that is stopped --------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["works", "waits", "pushes"])
def test_a_run_that_is_ended_while_a_job(farm: Farm, when: str) -> None:
    """As in a local run: nothing continues, partial work is kept by a ref, and the next run has the finished work."""
    goes_on = f"[ -e parts/{{story}}.txt ] && touch {farm.meet}/found; true"
    hangs = {"run": f"touch {farm.meet}/begun; [ -e {farm.meet}/go ] || sleep 3620"}
    steps = [count(farm), {"run": goes_on}, part(), *([hangs] if when == "works" else []), *WRITES]
    farm.make(ONE).lab.play(default=steps)
    farm.hold_pushes("pre-receive")
    if when != "waits":
        farm.start_worker("anna")
    run = farm.lab.start("add-login")
    assert wait_until(lambda: has_come_to(farm, when))
    run.send_signal(signal.SIGINT)
    farm.let_go("push")
    run.communicate(timeout=PATIENCE)
    farm.let_go("go")  # not before: the agent looks for it after it has created `begun`
    assert run.returncode == 130
    assert wait_until(lambda: not processes_of_agents(farm)), processes_of_agents(farm)
    assert read_remote(farm.remote, "for-each-ref") == ""
    assert bool(farm.lab.git("for-each-ref", "refs/ralph/interrupted")) == (when != "waits")
    if when == "waits":
        farm.start_worker("anna")
        assert farm.count_agents() == 0
    finish(farm.lab.start("add-login"))
    farm.check_done("1")
    assert (farm.meet / "found").exists() == (when == "pushes")


def has_come_to(farm: Farm, when: str) -> bool:
    if when == "waits":
        return bool(find_notices(farm.lab.events(), "no worker is connected"))
    return (farm.meet / ("begun" if when == "works" else "pushing")).exists()


def processes_of_agents(farm: Farm) -> list[str]:
    """Without the box and its supervisor, which a worker keeps for the next order."""
    return [one for one in farm.list_left("anna/") if "script.json" in one or "sleep" in one]


# --- a worker that is stopped -----------------------------------------------------------------------


def stop_while_it_works(farm: Farm) -> None:
    """The partial work is handed over, and another worker continues from there."""
    goes_on = {"run": f"[ -e parts/{{story}}.txt ] && touch {farm.meet}/found; true"}
    hangs = {"run": f"touch {farm.meet}/begun; [ -e {farm.meet}/go ] || sleep 3621"}
    farm.make(ONE).lab.play(default=[count(farm), goes_on, part(), hangs, *WRITES])
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("begun")
    farm.let_go("go")
    assert farm.stop_worker("anna") == 0
    assert not farm.list_left("anna/")
    farm.start_worker("berta")
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == 2
    assert (farm.meet / "found").exists(), "the second goes on from the work of the first"


def stop_while_it_proves(farm: Farm) -> None:
    """Another worker proves it: half a proof means nothing, and the work is not repeated."""
    farm.make(ONE).lab.play(default=[count(farm), *WRITES])
    wait = f"touch {farm.meet}/proving; while [ ! -e {farm.meet}/go ]; do sleep 0.05; done"
    set_gate(farm.lab, f"test ! -e parts/1.txt || {{ {wait}; }}")
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("proving")
    farm.start_worker("berta")
    assert farm.stop_worker("anna") == 0
    farm.let_go("go")
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == 1
    assert find_worker_events(farm.lab.events(), "1")[-1] == "berta"


@pytest.mark.parametrize("stop", [stop_while_it_works, stop_while_it_proves])
def test_a_worker_that_is_stopped(farm: Farm, stop: Callable[[Farm], None]) -> None:
    stop(farm)


# --- two runs of a change ---------------------------------------------------------------------------


def test_one_run_of_a_change_at_a_time(farm: Farm, tmp_path: Path) -> None:
    """The second, in another clone of the project, is told which run has it; the first is not affected."""
    farm.make(ONE).lab.play(default=[pause_until(farm, "begun", "go"), *WRITES])
    (tmp_path / "other").mkdir()
    other = Lab(tmp_path / "other")
    shutil.copytree(farm.lab.root, other.root, dirs_exist_ok=True)
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    farm.wait_for("begun")
    [name] = [one["run"] for one in of_kind(farm.lab.events(), "run_started")]
    refused = other.loop("add-login")
    assert refused.exit_code == 1
    assert f"the run {name} works on add-login" in refused.stderr
    assert '"CHANGE_LOCKED"' in refused.stderr
    farm.let_go("go")
    finish(run)
    farm.check_done("1")


class ClaimBench:
    """Claims of several folders, each with its own times."""

    def __init__(self, top: Path) -> None:
        self.top = top
        subprocess.run(["git", "init", "--quiet", "--bare", top / "remote.git"], check=True)
        self.lost: list[str] = []

    def claim(self, name: str, **times: float) -> RunClaim:
        place = self.top / name
        subprocess.run(["git", "init", "--quiet", place], check=True)
        repository = Repository.find(str(place))
        assert repository
        remote = Remote(repository, str(self.top / "remote.git"))
        return RunClaim(remote, "add-login", name, lambda: self.lost.append(name), lambda run: False, **times)

    def find(self) -> str:
        return read_remote(self.top / "remote.git", "for-each-ref", "--format=%(objectname)", CLAIMS)


def test_a_claim_that_moves_is_not_taken(tmp_path: Path) -> None:
    bench = ClaimBench(tmp_path)
    first = bench.claim("first", beat=0.1).take(lambda: False, print)
    told: list[str] = []
    with pytest.raises(ChangeLocked, match="the run first works on add-login"):
        bench.claim("second", lease=900.0).take(lambda: False, told.append)
    assert told == ["the run first has add-login: waiting for 900 seconds to see whether it is alive"]
    first.release()
    assert bench.find() == ""


def test_a_dead_claim_is_taken_and_its_holder_stops_if_it_lives(tmp_path: Path) -> None:
    bench = ClaimBench(tmp_path)
    first = bench.claim("first", beat=3.0).take(lambda: False, lambda text: None)  # its machine seems to sleep
    second = bench.claim("second", beat=900.0, lease=0.1).take(lambda: False, lambda text: None)
    assert wait_until(lambda: bench.lost == ["first"])
    held = bench.find()
    first.release()
    assert bench.find() == held, "it is not the first one's to give up"
    second.release()
    assert bench.find() == ""


def test_what_is_pushed_for_an_order_that_is_gone_is_refused(tmp_path: Path) -> None:
    """A worker that comes back after the run has ended leaves nothing on the remote."""
    lab = Lab(tmp_path)
    lab.repository(ONE)
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "remote.git"], check=True)
    repository = Repository.find(str(lab.root))
    assert repository
    remote, commit = Remote(repository, str(tmp_path / "remote.git")), lab.git("rev-parse", "HEAD")
    assert remote.push_new("refs/ralph/orders/1", commit)
    assert remote.push_new("refs/ralph/results/1", commit, upon={"refs/ralph/orders/1": commit})
    remote.push({"refs/ralph/orders/1": None, "refs/ralph/results/1": None})
    with pytest.raises(GitError, match="git push"):
        remote.push_new("refs/ralph/results/1", commit, upon={"refs/ralph/orders/1": commit})
    assert remote.list() == {}


# --- secrets ----------------------------------------------------------------------------------------


def test_a_secret_of_a_worker_is_told_to_nobody(farm: Farm) -> None:
    secret = "hunter2-of-this-machine"
    says: list[dict[str, Any]] = [
        {"run": f"echo $MY_API_KEY; echo $MY_API_KEY >&2; touch {farm.meet}/key-is-${{MY_API_KEY:-missing}}"},
        {"say": f"the key is {secret}"},
        {"observe": "finding", "title": f"the key is {secret}", "description": f"I have seen {secret}"},
        {"learn": f"the key is {secret}"},
    ]
    farm.make(ONE).lab.play(default=[*says, *WRITES])
    farm.start_worker("anna", MY_API_KEY=secret)
    farm.hold_pushes("pre-receive", "refs/ralph/results/*-prove-*")
    run = farm.lab.start("add-login")
    farm.wait_for("pushing")
    listed = read_remote(farm.remote, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    told = [id for id in listed if secret in read_remote(farm.remote, "cat-file", "-p", id)]
    farm.let_go("push")
    finish(run)
    assert told == []
    assert [str(path) for path in farm.lab.root.rglob("*") if path.is_file() and secret in read(path)] == []
    assert secret not in farm.lab.git("log", "-p", "--all")
    assert list_stories(farm.lab) == ["1"]
    check_commits(farm.lab)


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")
