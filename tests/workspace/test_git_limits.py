"""A git command that hangs is killed: files that an agent left could keep it waiting."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from lab import Lab

from ralphtool.errors import GitError
from ralphtool.workspace import git
from ralphtool.workspace.git import Repository


def make_hanging(lab: Lab) -> Repository:
    lab.repository()
    os.mkfifo(lab.root / "src.gitignore")
    lab.git("config", "core.excludesFile", str(lab.root / "src.gitignore"))
    found = Repository.find(str(lab.root))
    assert found is not None
    return found


def test_a_stop_ends_it_soon(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_SHORT", 0.1)
    repository, asked = make_hanging(lab), threading.Event()
    repository.must_end = asked.is_set
    threading.Timer(0.2, asked.set).start()
    with pytest.raises(GitError, match="git ls-files was stopped"):
        repository.list_unknown_files()


def test_its_time_is_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_LONGEST", 0.1)
    repository = make_hanging(lab)
    repository.must_end = lambda: False
    with pytest.raises(GitError, match="was stopped after"):
        repository.list_changes()


def test_a_long_input_is_read_to_its_end(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_TICK", 0.001)
    lab.repository()
    repository = Repository.find(str(lab.root))
    assert repository is not None
    repository.must_end = lambda: False
    data = os.urandom(5_000_000)
    blob = repository.run("hash-object", "-w", "--stdin", input=data).decode().strip()
    assert repository.blobs([blob]) == {blob: data}
