"""Lanes, and what may be out of date: remembered state, results of gates that ran ahead, leftovers of a kill."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Lab, Process, wait_until
from loop.lanes import (
    END,
    GATE,
    NEEDS_BOXES,
    TWO,
    WRITES,
    list_stories,
    make,
    meet,
    of_kind,
    part,
    set_gate,
)
from patience import PATIENCE

from ralphtool.agents import End
from ralphtool.errors import GitError
from ralphtool.executors import Report
from ralphtool.judging.guard import merges
from ralphtool.loop.budget import Budget
from ralphtool.loop.lane_job import LaneJob
from ralphtool.loop.look_ahead import AheadOfQueue
from ralphtool.settings import Settings
from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import MergedTree
from ralphtool.workspace.worktree import Worktree

pytestmark = NEEDS_BOXES


def test_settings_that_the_user_commits_meanwhile_do_not_seem_deleted(lab: Lab) -> None:
    """They are only in the index. Entries that were once removed from it must not count as present."""
    lab.repository(TWO)
    repository = Repository.find(str(lab.root))
    assert repository is not None
    place = Worktree(repository, str(lab.root), "add-login")
    place.open("run", ())
    place.begin(None)
    lab.write("more.txt", "more\n")
    lab.git("add", "--force", "more.txt", ".ralph/config.toml")
    lab.git("commit", "--quiet", "--message=settings")
    tip = lab.git("rev-parse", "HEAD")
    place.show_upon(tip, repository.tree_of(tip))
    place.take()  # compared with the commit that has none of them
    place.show_upon(tip, repository.tree_of(tip))
    assert place.keep_interrupted("run") is None, "nothing was changed"


def hold_first(lab: Lab) -> str:
    """A gate that blocks while only the first story's part exists, until the test creates `go`."""
    wait = f"touch {meet(lab)}/first; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"
    return f"{{ test -e parts/1.txt && test ! -e parts/2.txt && {{ {wait}; }}; true; }}"


def start_pair(lab: Lab, gate: str, second: list[dict[str, Any]], **config: Any) -> Process:
    """The first story is proven while the gates of the second run ahead."""
    after = {"run": f"while [ ! -e {meet(lab)}/first ]; do sleep 0.05; done"}
    make(lab, TWO, side_by_side=2, **config).play({"story": "2", "steps": [after, *second]}, default=WRITES)
    set_gate(lab, f"{hold_first(lab)}; {gate}; {GATE}")
    return lab.start()


def test_work_that_changes_what_is_installed_is_proven_with_that_alone(lab: Lab) -> None:
    """The second story installs something other than its manifest says; with the manifest, its gate is red."""
    lab.write(".gitignore", ".venv/\n")
    lab.write(".venv/installed", "good\n")
    lab.write("requirements.txt", "good\n")
    install = {"run": "echo bad > requirements.txt; echo good > .venv/new"}
    setup = ["cp requirements.txt .venv/installed"]
    run = start_pair(lab, "grep -q good .venv/installed || exit 1", [install, *WRITES], setup=setup, attempts=1)
    assert wait_until(lambda: len(of_kind(lab.events(), "queued")) == 2)
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert list_stories(lab) == ["1"]
    assert sorted(entry["status"] for entry in lab.entries()) == ["completed", "failed"]


def test_a_story_whose_gates_could_not_run_ahead_is_proven_in_its_turn(lab: Lab) -> None:
    """A file is in the place where ignored files are set aside: the gates can't run until it is removed."""
    wait = {"run": f"touch {meet(lab)}/begun; while [ ! -e {meet(lab)}/blocked ]; do sleep 0.05; done"}
    run = start_pair(lab, "true", [wait, *WRITES])
    assert wait_until(lambda: (meet(lab) / "begun").exists())
    [aside] = [path / "ralph/ignored" for path in (lab.root / ".git/worktrees").glob("add-login@2")]
    aside.parent.mkdir(exist_ok=True)
    aside.touch()
    (meet(lab) / "blocked").touch()
    assert wait_until(lambda: not aside.exists())
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert list_stories(lab) == ["1", "2"]
    begun = [one["story"] for one in of_kind(lab.events(), "iteration_started")]
    assert begun == ["1", "2"], "nobody has worked twice"


def test_gates_that_ran_ahead_and_repaired_the_work_prove_nothing(lab: Lab) -> None:
    repair = f"if test -e parts/2.txt; then touch {meet(lab)}/second; sed -i s/wrong/fine/ parts/2.txt; fi"
    run = start_pair(lab, repair, [part("wrong"), *END], attempts=1)
    assert wait_until(lambda: (meet(lab) / "second").exists())
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert list_stories(lab) == ["1"]
    assert sorted(entry["status"] for entry in lab.entries()) == ["completed", "partial"]


def test_a_merge_that_fails_ahead_is_no_result(tmp_path: Path) -> None:
    """The disk may be full for a moment: work that can't be merged ahead is merged in its turn."""

    def fail(job: LaneJob, upon: str) -> MergedTree:
        raise GitError("no space left on device")

    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    repository = Repository.find(str(tmp_path))
    assert repository is not None
    repository.ensure_identity()  # the machine need not have one
    tree = repository.empty_tree
    tip = repository.commit(tree, [], "first")
    assignment = SimpleNamespace(gates=["true"], number=1)
    started: Any = SimpleNamespace(story=SimpleNamespace(id="2"), assignment=assignment)
    first, second = (LaneJob(lane=None, started=started, base=tip, began=0.0, before={}) for _ in range(2))  # type: ignore[arg-type]
    first.tip, first.tree, second.is_queued = tip, tree, True
    ahead = AheadOfQueue(repository, 2, fail, lambda story: False)
    ahead.look(first, [second])
    assert not ahead.is_awaited(second, tip)
    assert ahead.get_known(second, tip) is None


def test_a_disk_that_is_full_again_and_again_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts once if several lanes meet it at the same time."""
    budget = Budget(Settings().run)
    full = Report(ending="exit", end=End(False), full_disk="/small")
    for _ in range(8):
        budget.add("1", full)
    assert budget.describe_reached_limit() == ""
    monkeypatch.setattr("ralphtool.loop.budget._SAME_TIME", -1.0)
    budget.add("1", full)
    budget.add("1", full)
    assert "the disk of /small keeps running full: free some space there" in budget.describe_reached_limit()
    budget.add("1", Report(ending="exit", end=End(True), gates_ran=True))
    assert budget.describe_reached_limit() == ""


def test_a_file_that_git_put_aside_is_an_unresolved_conflict() -> None:
    aside = f"src/shop~{'0123456789' * 4}"
    found = merges.find_sides([aside, f"{aside}_0", "src/shop", "src/shop~", "notes~draft"])
    assert [one.path for one in found] == [aside, f"{aside}_0"]
