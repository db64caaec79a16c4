"""The user's commits to the branch of a change during a run are never overwritten."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, Process, wait_until
from patience import PATIENCE
from sandbox.boxes import needs_box

from ralphtool import workspace
from ralphtool.workspace.git import Repository
from ralphtool.workspace.shared_branch import SharedBranch

pytestmark = needs_box
SLOT = ".git/ralph/worktrees/add-login"
BRANCH = "ralph/add-login"
FAILED = [{"run": "echo half > half.txt"}]


def commit_directly(lab: Lab, name: str = "mine.txt", text: str = "mine\n") -> str:
    """Commits to the branch without a working tree; returns the id."""
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=text.encode(), cwd=lab.root, capture_output=True, check=True
    )
    env = {"GIT_INDEX_FILE": str(lab.root / ".git/mine.index")}
    lab.env |= env
    try:
        lab.git("read-tree", BRANCH)
        lab.git("update-index", "--add", "--cacheinfo", f"100644,{blob.stdout.decode().strip()},{name}")
        made = lab.git("commit-tree", lab.git("write-tree"), "-p", BRANCH, "-m", "mine")
    finally:
        del lab.env["GIT_INDEX_FILE"]
    lab.git("update-ref", f"refs/heads/{BRANCH}", made)
    return made


def begin(lab: Lab, *after: dict[str, Any]) -> Process:
    """Starts a run whose first agent works until `.ralph/go` exists."""
    waits = f"touch ready; while test ! -e {lab.root}/.ralph/go; do sleep 0.02; done; rm ready"
    lab.play({"story": "1", "attempt": 1, "steps": [{"run": waits}, *(after or DONE)]}, default=DONE)
    run = lab.start()
    assert wait_until(lambda: (lab.root / SLOT / "ready").exists() or run.poll() is not None)
    return run


def end(lab: Lab, run: Process) -> int:
    (lab.root / ".ralph/go").touch()
    run.communicate(timeout=PATIENCE)
    return run.returncode


def read_notices(lab: Lab) -> str:
    return "\n".join(event["text"] for event in lab.events() if event["type"] == "notice")


def is_in_branch(lab: Lab, commit: str) -> bool:
    return commit in lab.git("rev-list", BRANCH).split("\n")


def test_a_commit_during_a_story_is_merged_with_it_and_the_next_one_builds_on_both(lab: Lab) -> None:
    run = begin(lab.repository(workspace="box"))
    mine = commit_directly(lab)
    assert end(lab, run) == 0, lab.events()[-1]
    assert is_in_branch(lab, mine)
    assert lab.checkpoints() == ["1", "2"]
    assert {"mine.txt", "1.txt", "2.txt"} <= set(lab.git("ls-tree", "--name-only", BRANCH).split("\n"))
    assert "are merged as" in read_notices(lab)
    assert lab.git("fsck", "--no-dangling") == ""


def test_what_the_branch_has_already_is_not_merged_again(lab: Lab) -> None:
    lab.repository()
    old = lab.git("rev-parse", "HEAD")
    lab.git("branch", BRANCH)
    made = commit_directly(lab)
    repository = Repository.find(str(lab.root))
    assert repository is not None
    branch = SharedBranch(repository, f"refs/heads/{BRANCH}", "add-login", lambda: False)
    assert branch.move(old, made) == made  # it was moved before a kill
    newer = commit_directly(lab, "more.txt")
    assert branch.move(old, made) == newer  # the user has built upon it
    lab.git("update-ref", f"refs/heads/{BRANCH}", made)
    assert branch.move(old, newer) == newer  # the work contains the user's commit
    assert lab.git("rev-list", "--merges", BRANCH) == ""


def test_a_commit_during_an_attempt_that_fails_is_what_the_next_one_begins_with(lab: Lab) -> None:
    run = begin(lab.repository(workspace="box"), *FAILED)
    mine = commit_directly(lab)
    lab.play(default=[{"run": "cat mine.txt > seen.txt", "must": True}, *DONE])
    assert end(lab, run) == 0, lab.events()[-1]
    assert is_in_branch(lab, mine)
    assert lab.git("show", f"{BRANCH}:seen.txt") == "mine"
    assert f"the run continues from your commit {mine[:10]}" in read_notices(lab)


def test_a_commit_that_the_work_does_not_fit_on_stays_and_the_work_is_kept(lab: Lab) -> None:
    run = begin(lab.repository(workspace="box"))
    mine = commit_directly(lab, "1.txt", "mine\n")
    assert end(lab, run) == 1
    assert lab.git("rev-parse", BRANCH) == mine
    reason = lab.events()[-1]["reason"]
    assert "both change 1.txt" in reason
    kept = next(word for word in reason.split() if word.startswith("refs/ralph/")).rstrip(":")
    assert lab.git("show", f"{kept}:1.txt") == "work"
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert is_in_branch(lab, mine)
    assert lab.checkpoints() == ["1", "2"]
    assert lab.git("show", f"{kept}:1.txt") == "work"


def test_a_branch_that_was_rewritten_stays_as_it_is(lab: Lab) -> None:
    lab.repository(workspace="box")
    waits = f"touch ready; while test ! -e {lab.root}/.ralph/go; do sleep 0.02; done; rm ready"
    lab.play({"story": "2", "attempt": 1, "steps": [{"run": waits}, *DONE]}, default=DONE)
    run = lab.start()
    assert wait_until(lambda: (lab.root / SLOT / "ready").exists() or run.poll() is not None)
    before = lab.git("rev-parse", f"{BRANCH}^")
    lab.git("update-ref", f"refs/heads/{BRANCH}", before)
    assert end(lab, run) == 1
    assert lab.git("rev-parse", BRANCH) == before
    assert "lacks the run's checkpoint" in lab.events()[-1]["reason"]
    kept = next(word for word in lab.events()[-1]["reason"].split() if word.startswith("refs/ralph/")).rstrip(":")
    assert {"1.txt", "2.txt"} <= set(lab.git("ls-tree", "--name-only", kept).split("\n"))
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2"]


def edit_own(other: Path) -> None:
    (other / "own.txt").write_text("mine\n")


def edit_same(other: Path) -> None:
    (other / "1.txt").write_text("mine\n")


@pytest.mark.parametrize(("edit", "code"), [(None, 0), (edit_own, 0), (edit_same, 1)])
def test_a_working_tree_on_the_branch_goes_along_and_loses_nothing(
    lab: Lab, tmp_path: Path, edit: Callable[[Path], None] | None, code: int
) -> None:
    """Otherwise a commit made there would revert the work."""
    run = begin(lab.repository(workspace="box"))
    other = tmp_path / "other"
    lab.git("worktree", "add", "--quiet", str(other), BRANCH)
    (other / "mine.txt").write_text("mine\n")
    lab.git("-C", str(other), "add", "mine.txt")
    lab.git("-C", str(other), "commit", "--quiet", "--message=mine")
    mine = lab.git("rev-parse", BRANCH)
    if edit:
        edit(other)
    assert end(lab, run) == code, lab.events()[-1]
    assert is_in_branch(lab, mine)
    status = lab.git("-C", str(other), "status", "--porcelain")
    if edit is edit_same:
        assert (other / "1.txt").read_text() == "mine\n"
        assert "would be overwritten" in lab.events()[-1]["reason"]
        kept = next(word for word in lab.events()[-1]["reason"].split() if word.startswith("refs/ralph/")).rstrip(":")
        assert lab.git("show", f"{kept}:1.txt") == "work"
        (other / "1.txt").unlink()
        assert lab.loop().exit_code == 0, lab.events()[-1]
        status = lab.git("-C", str(other), "status", "--porcelain")
    assert status == ("?? own.txt" if edit is edit_own else "")
    assert (other / "2.txt").read_text() == "work\n"
    assert lab.checkpoints() == ["1", "2"]


def test_a_merge_that_was_published_before_a_kill_is_not_moved_back(lab: Lab) -> None:
    """The next run carries the outcome out again: the branch already has it, with the user's commit."""
    lab.repository(workspace="box")
    place = workspace.make(str(lab.root), "add-login", "box")
    place.open("run", [])
    place.begin(None)
    (lab.root / SLOT / "1.txt").write_text("work\n")
    tree = place.take().tree
    made = place.commit(tree, "First\n\nRalph-Change: add-login\nRalph-Story: 1\n")
    mine = commit_directly(lab)
    assert made
    for _ in range(2):
        place.publish("add-login-1-1", made, tree=tree, story="1")
        tip = lab.git("rev-parse", BRANCH)
        assert lab.git("log", "-1", "--format=%P", BRANCH).split() == [mine, made]
        place.close()
        place = workspace.make(str(lab.root), "add-login", "box")
        place.open("run", [])
        assert place.tip == tip
        assert place.follows(made)
        assert place.checkpoints() == {"1": made}
    place.close()
