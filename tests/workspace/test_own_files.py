"""The user's own files in `.ralph`, which an agent may remove by accident."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ralphtool.core import files
from ralphtool.workspace.own_files import OwnFiles
from ralphtool.workspace.protected_state import ProtectedState

RUN = "add-login-20260301-220000-1a2b"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A `.ralph` with a script that is an agent, and files of ralphtool's own."""
    folder = tmp_path / "project" / ".ralph"
    for name in ("agents/night.sh", "try.toml", "config.toml", "runs/r/events.jsonl", "memory.index", "questions/q.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "agents/night.sh").chmod(0o750)
    return folder


def build(folder: Path) -> OwnFiles:
    return OwnFiles(str(folder), str(folder.parent.parent / "copies"))


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_an_agent_removes_is_restored_as_it_was(folder: Path) -> None:
    own = build(folder)
    own.remember()
    shutil.rmtree(folder)
    folder.mkdir()
    build(folder).restore_removed()  # by the next run, after a kill
    assert list_files(folder) == ["agents/night.sh", "try.toml"]
    assert os.access(folder / "agents/night.sh", os.X_OK)


def test_what_is_changed_stays_and_so_does_what_the_user_removes_before_an_attempt(folder: Path) -> None:
    own = build(folder)
    own.remember()
    (folder / "try.toml").unlink()
    (folder / "agents/night.sh").write_text("better")
    own.remember()
    (folder / "agents/night.sh").write_text("other")
    own.restore_removed()
    assert (folder / "agents/night.sh").read_text() == "other"
    (folder / "agents/night.sh").unlink()
    own.restore_removed()
    assert (folder / "agents/night.sh").read_text() == "better"
    assert not (folder / "try.toml").exists()


def test_what_is_large_or_no_plain_file_is_not_copied(folder: Path) -> None:
    (folder / "large").write_bytes(b"x" * (1 << 20) + b"x")
    (folder / "link").symlink_to("try.toml")
    os.mkfifo(folder / "pipe")
    own = build(folder)
    own.remember()
    assert list_files(folder.parent.parent / "copies") == ["agents/night.sh", "try.toml"]


def test_nothing_is_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    own = build(folder)
    own.remember()
    shutil.rmtree(folder / "agents")
    (tmp_path / "elsewhere").mkdir()
    (folder / "agents").symlink_to(tmp_path / "elsewhere")
    own.restore_removed()
    assert list_files(tmp_path / "elsewhere") == []


def test_they_are_restored_after_an_attempt_without_a_finding(folder: Path) -> None:
    state = ProtectedState(str(folder.parent), "add-login", RUN)
    state.remember({})
    for name in ("try.toml", "config.toml"):
        (folder / name).unlink()
    told = state.restore_changed(str(folder / "runs/r/touched"), ())
    state.forget()
    assert [(one.path, one.detail) for one in told][:1] == [(".ralph/config.toml", "removed, and restored")]
    assert not any("try.toml" in one.path for one in told)
    assert (folder / "try.toml").read_text() == "try.toml"
    assert not os.path.exists(os.path.dirname(files.private_path("ralph", f"kept-{RUN}", "record")))


def test_a_file_and_a_folder_may_change_places(folder: Path) -> None:
    own = build(folder)
    own.remember()
    shutil.rmtree(folder / "agents")
    (folder / "agents").write_text("now a file")
    (folder / "try.toml").unlink()
    (folder / "try.toml").mkdir()
    (folder / "try.toml/a").write_text("now a folder")
    own.remember()
    shutil.rmtree(folder)
    folder.mkdir()
    own.restore_removed()
    assert list_files(folder) == ["agents", "try.toml/a"]
