"""Workers that can't do it, and remotes that do not take it: somebody says so, and the story is done nevertheless."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from lab import wait_until
from loop.lanes import ONE, WRITES
from workers.farm import Farm, count, find_notices, find_worker_events, finish, pause_until, read_remote

from ralphtool import __version__

# --- workers ----------------------------------------------------------------------------------------


@contextmanager
def start_without_agent(farm: Farm) -> Iterator[str]:
    """The script is looked for where a worker was started."""
    config = farm.lab.read(".ralph/config.toml").replace(str(farm.lab.script), "script.json")
    farm.lab.write(".ralph/config.toml", config)
    for place in (farm.lab.root, farm.top / "berta"):
        place.mkdir(exist_ok=True)
        shutil.copy(farm.lab.script, place)
    farm.start_worker("anna")
    yield "script.json"


@contextmanager
def start_without_remote(farm: Farm) -> Iterator[str]:
    farm.start_worker("anna", "--remote", str(farm.top / "nowhere.git"))
    yield f"it can't use the remote {farm.top}/nowhere.git"


@contextmanager
def start_other_version(farm: Farm) -> Iterator[str]:
    place = farm.top / "other"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import ralphtool\nralphtool.__version__ = '99.1'\n")
    farm.start_worker("anna", PYTHONPATH=str(place))
    yield f"the run uses ralphtool {__version__}, and the worker has 99.1: install the same version on both"


@contextmanager
def start_on_full_disk(farm: Farm) -> Iterator[str]:
    place = farm.top / "anna/work"
    place.mkdir(parents=True)
    with mount_small(place):
        farm.start_worker("anna")
        subprocess.run(f"head -c 9M /dev/zero > {place}/big", shell=True, stderr=subprocess.DEVNULL, check=False)
        yield "its disk is full"
        farm.stop_worker("anna")


@contextmanager
def mount_small(place: Path) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


Start = Callable[[Farm], AbstractContextManager[str]]
UNFIT: dict[str, Start] = {
    "version": start_other_version,
    "agent": start_without_agent,
    "remote": start_without_remote,
    "disk": start_on_full_disk,
}


@pytest.mark.parametrize("start", UNFIT.values(), ids=UNFIT)
def test_what_a_worker_can_not_do_is_done_by_another(farm: Farm, start: Start) -> None:
    farm.make(ONE).lab.play(default=[count(farm), *WRITES])
    with start(farm) as why:
        run = farm.lab.start("add-login")
        assert wait_until(lambda: find_notices(farm.lab.events(), "worker anna can't work on story 1"))
        [told] = find_notices(farm.lab.events(), "worker anna can't work on story 1")
        assert why in told
        farm.start_worker("berta")
        finish(run)
    farm.check_done("1")
    assert find_worker_events(farm.lab.events(), "1")[0] == "berta"
    assert farm.count_agents() == 1


def test_a_worker_that_sends_something_else(farm: Farm) -> None:
    """What it has pushed is not used, whoever changed it, and the story goes to another worker."""
    farm.make(ONE).lab.play(default=[count(farm), *WRITES])
    other = "$(git commit-tree -m other $(git hash-object -t tree /dev/null))"
    swap = f'case "$ref" in refs/ralph/results/*-work-*) git update-ref "$ref" {other};; esac'
    hook = farm.write_hook("post-receive", f"while read old new ref; do {swap}; done")
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    assert wait_until(lambda: find_notices(farm.lab.events(), "it pushed something other than what was requested"))
    hook.unlink()
    farm.start_worker("berta")
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == 2


def test_a_story_that_loses_one_worker_after_another_is_charged(farm: Farm) -> None:
    """Most likely it is the story: to try it on machine after machine would never end.

    The server gives a job to three workers before it is lost, and a story that is lost three times has failed.
    """
    farm.make(ONE, heartbeat="3s").lab.play(default=[count(farm), pause_until(farm, "begun", "go"), *WRITES])
    run = farm.lab.start("add-login")
    for turn in range(1, 10):
        farm.start_worker(f"worker-{turn}")
        assert wait_until(lambda turn=turn: farm.count_agents() == turn or run.poll() is not None)
        assert not has_failed(farm)
        farm.stop_worker(f"worker-{turn}", signal.SIGKILL)
    assert wait_until(lambda: has_failed(farm))
    farm.let_go("go")
    farm.start_worker("anna")
    finish(run)
    assert [status for _, status in farm.lab.endings()] == ["failed", "completed"]
    assert "3 times in a row" in json.dumps(farm.lab.events())


def has_failed(farm: Farm) -> bool:
    return any(one["type"] == "verdict" and one["status"] == "failed" for one in farm.lab.events())


# --- the remote -------------------------------------------------------------------------------------


def test_a_remote_that_refuses_what_was_done(farm: Farm) -> None:
    """It is kept by its worker until the remote takes it: no agent does it again."""
    farm.make(ONE).lab.play(default=[count(farm), *WRITES])
    refuses = (
        'while read old new ref; do case "$ref" in refs/ralph/results/*) echo "we are full" >&2; exit 1;; esac; done'
    )
    hook = farm.write_hook("pre-receive", refuses)
    farm.start_worker("anna")
    run = farm.lab.start("add-login")
    assert wait_until(lambda: find_notices(farm.lab.events(), "worker anna can't work on story 1"))
    [told] = find_notices(farm.lab.events(), "worker anna can't work on story 1")
    assert "we are full" in told
    hook.unlink()
    finish(run)
    farm.check_done("1")
    assert farm.count_agents() == 1


def test_a_remote_that_refuses_all_is_one_clear_error(farm: Farm) -> None:
    farm.make(ONE).lab.play(default=WRITES)
    farm.write_hook("pre-receive", 'echo "nobody may push" >&2; exit 1')
    done = farm.lab.loop("add-login")
    assert done.exit_code == 1
    assert "nobody may push" in done.stderr
    assert farm.lab.entries() == []
    assert read_remote(farm.remote, "for-each-ref") == ""
