"""Work that was being proven when its run was killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_work import take_protected


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    found = Repository.find(str(tmp_path))
    assert found is not None
    found.ensure_identity()  # the machine need not have one
    return found


def protect(repository: Repository, lane: str, entry: str, story: str) -> str:
    message = f"being proven\n\nRalph-Entry: {entry}\nRalph-Story: {story}\n"
    commit = repository.commit(repository.empty_tree, [], message)
    repository.set_refs({f"refs/ralph/proving/{lane}": commit})
    return commit


def test_it_is_kept_for_the_next_run(repository: Repository) -> None:
    commits = [protect(repository, "add-login", "add-login-1-1", "1"), protect(repository, "add-login@2", "e-2", "2")]
    protect(repository, "add-login-2", "other", "1")
    taken = take_protected(repository, "add-login", "run")
    assert [(one.story, one.entry) for one in taken] == [("1", "add-login-1-1"), ("2", "e-2")]
    assert [repository.resolve(one.ref) for one in taken] == commits
    assert list(repository.refs("refs/ralph/proving/")) == ["refs/ralph/proving/add-login-2"], "of another change"


def test_it_is_not_kept_twice_if_the_attempt_was_settled(repository: Repository) -> None:
    settled = protect(repository, "add-login", "add-login-1-1", "1")
    repository.set_refs({"refs/ralph/attempts/add-login-1-1": settled})
    assert take_protected(repository, "add-login", "run") == []
    assert list(repository.refs("refs/ralph/")) == ["refs/ralph/attempts/add-login-1-1"]


def test_an_older_attempt_of_the_same_name_is_other_work(repository: Repository, tmp_path: Path) -> None:
    """After somebody removed the history, the attempts are counted from 1 again."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=b", "commit-tree", repository.empty_tree, "-m", "older"]
    env = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    made = subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    repository.set_refs({"refs/ralph/attempts/add-login-1-1": made.stdout.strip()})
    newer = protect(repository, "add-login", "add-login-1-1", "1")
    [taken] = take_protected(repository, "add-login", "run")
    assert repository.resolve(taken.ref) == newer
