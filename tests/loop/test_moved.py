"""A project that is moved to another folder after its run was killed: nothing is lost, and the next run continues."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until

WORK: list[dict[str, Any]] = [{"write": "work.txt", "text": "hours of work\n"}, {"run": "sleep 3600"}]


def kill_and_move(lab: Lab, workspace: str) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n", workspace=workspace).play(default=WORK)
    places = [lab.root, lab.root / ".git/ralph/worktrees/add-login"]
    run = lab.start()
    assert wait_until(lambda: any((place / "work.txt").exists() for place in places))
    kill(run)
    lab.root = lab.root.rename(lab.root.parent / "elsewhere")


def list_kept(lab: Lab) -> list[str]:
    refs = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split()
    return [lab.git("show", f"{ref}:work.txt") for ref in refs]


@pytest.mark.parametrize("workspace", ["here", "worktree", "box"])
def test_the_next_run_keeps_what_the_killed_one_left(lab: Lab, workspace: str) -> None:
    kill_and_move(lab, workspace)
    config = (lab.root / ".git/config").read_bytes()
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert list_kept(lab) == ["hours of work"]
    assert (lab.root / ".git/config").read_bytes() == config
    assert lab.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert lab.checkpoints() == ["1"]


def test_a_record_with_the_old_paths_restores_nothing(lab: Lab) -> None:
    """Earlier versions wrote absolute paths: as seen from the new place, every file would be new, and deleted."""
    old = f"{lab.root}/.git"
    kill_and_move(lab, "here")
    path = lab.root / ".git/ralph/internals.json"
    record = json.loads(path.read_bytes())
    record["paths"] = [f"{old}/{name}" for name in record["paths"]]
    record["files"] = {f"{old}/{name}": file for name, file in record["files"].items()}
    path.write_text(json.dumps(record))
    config = (lab.root / ".git/config").read_bytes()
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert (lab.root / ".git/config").read_bytes() == config


@pytest.mark.parametrize("workspace", ["worktree", "box"])
def test_doctor_does_not_remove_what_the_next_run_needs(lab: Lab, workspace: str) -> None:
    kill_and_move(lab, workspace)
    lab.run("doctor", "--fix")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert list_kept(lab) == ["hours of work"]


@pytest.mark.parametrize("workspace", ["worktree", "box"])
def test_finish_keeps_it_too(lab: Lab, workspace: str) -> None:
    kill_and_move(lab, workspace)
    assert lab.run("finish", "add-login", "--squash").exit_code == 0
    assert list_kept(lab) == ["hours of work"]
    assert not list(Path(lab.root, ".git/ralph/worktrees").iterdir())


# --- a project that is copied, while the original stays --------------------------------------------


@pytest.mark.parametrize("workspace", ["worktree", "box"])
def test_work_in_a_copy_does_not_reach_the_original(lab: Lab, workspace: str, tmp_path: Path) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n\n## 2. Two\n\n- [ ] 2.1 b\n", workspace=workspace).play(default=DONE)
    lab.loop("--max-iterations", "1")
    lab.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "mine"))
    before = freeze_git(lab, tmp_path)
    original = lab.root
    lab.root = Path(shutil.copytree(original, tmp_path / "copy", symlinks=True))
    assert lab.run("reject", "1").exit_code == 0
    result = lab.loop()
    assert result.exit_code == 0, result.stderr
    assert lab.checkpoints() == ["1", "1", "2"]
    lab.root = original
    assert freeze_git(lab, tmp_path) == before
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2"]


def freeze_git(lab: Lab, tmp_path: Path) -> list[str]:
    """The refs, the worktrees with their commits, and the links between them."""
    links = [tmp_path / "mine/.git", lab.root / ".git/ralph/worktrees/add-login/.git"]
    return [lab.git("for-each-ref"), lab.git("worktree", "list"), *(link.read_text() for link in links)]
