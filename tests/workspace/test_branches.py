"""Whether a repository can have branches of changes, found without git: a wrong "no" would hide a run's work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ralphtool.errors import GitError
from ralphtool.workspace import branch

IDENTITY = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")


def git(root: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *IDENTITY, *words], cwd=root, env=env, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--initial-branch=main")
    git(root, "commit", "--allow-empty", "--message=first")
    return root


def test_a_folder_without_git_has_none(tmp_path: Path) -> None:
    assert not branch.may_exist(str(tmp_path))


def test_another_branch_is_none_of_ours(project: Path) -> None:
    git(project, "branch", "feature/ralph")
    git(project, "pack-refs", "--all")
    assert (project / ".git/packed-refs").exists()
    assert not branch.may_exist(str(project))


def test_it_is_seen_wherever_git_keeps_it(project: Path) -> None:
    git(project, "branch", "ralph/add-login")
    assert branch.may_exist(str(project))
    git(project, "pack-refs", "--all", "--prune")
    assert not (project / ".git/refs/heads/ralph/add-login").exists()
    assert branch.may_exist(str(project))


def test_it_is_seen_from_a_folder_below_and_from_a_linked_working_tree(project: Path, tmp_path: Path) -> None:
    git(project, "branch", "ralph/add-login")
    git(project, "worktree", "add", str(tmp_path / "linked"), "-b", "other")
    (project / "src").mkdir()
    assert branch.may_exist(str(project / "src"))
    assert branch.may_exist(str(tmp_path / "linked"))


def test_a_repository_whose_refs_are_in_tables_is_always_asked(project: Path) -> None:
    (project / ".git/reftable").mkdir()
    assert branch.may_exist(str(project))


@pytest.mark.parametrize("change", ["uv.lock", "v1..v2", "done."])
def test_a_name_that_git_refuses_is_refused_before_the_run(project: Path, change: str) -> None:
    branch.check_can_exist(str(project), "uv-lock")
    with pytest.raises(GitError, match="rename the plan"):
        branch.check_can_exist(str(project), change)
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "branch", f"ralph/{change}")
