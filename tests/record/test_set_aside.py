"""`ralphtool list` reports that a run has set uncommitted files aside, wherever in the repository the project is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab import STORIES, Lab

from ralphtool.core import layout
from ralphtool.record import overview
from ralphtool.workspace.git import Repository


def note_aside(project: Path, change: str) -> None:
    """The note of a run that uses the tree around the project."""
    repository = Repository.find(str(project))
    assert repository is not None
    path = Path(layout.stash_note(repository.gitdir))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"change": "{change}"}}')


def linked(lab: Lab) -> Path:
    lab.git("worktree", "add", "--quiet", "--detach", "../linked")
    return lab.root.parent / "linked"


def in_subfolder(lab: Lab) -> Path:
    lab.write("tools/app/openspec/changes/other/tasks.md", STORIES)
    return lab.root / "tools/app"


def in_subfolder_of_linked(lab: Lab) -> Path:
    in_subfolder(lab)
    lab.git("add", "tools")
    lab.git("commit", "--quiet", "--message=tools")
    return linked(lab) / "tools/app"


def in_submodule(lab: Lab) -> Path:
    outer = lab.root.parent / "outer"
    outer.mkdir()
    for words in (
        ["init", "--quiet"],
        ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lab.root), "inner"],
    ):
        subprocess.run(["git", *words], cwd=outer, env=lab.env, check=True)
    return outer / "inner"


@pytest.mark.parametrize("place", [lambda lab: lab.root, in_subfolder, linked, in_subfolder_of_linked, in_submodule])
def test_the_note_is_found(lab: Lab, place: object) -> None:
    lab.repository()
    assert callable(place)
    project: Path = place(lab)
    assert overview.find_running_change(str(project)) is None
    note_aside(project, "some-change")
    assert overview.find_running_change(str(project)) == "some-change"
    told = lab.run("list", cwd=project)
    assert "until the run of some-change ends" in told.stdout
    if project != lab.root and "tools" not in project.parts:
        assert overview.find_running_change(str(lab.root)) is None  # another working tree is not in use


def test_without_a_repository_there_is_none(tmp_path: Path) -> None:
    assert overview.find_running_change(str(tmp_path)) is None
    (tmp_path / ".git").write_text("no such thing\n")
    assert overview.find_running_change(str(tmp_path)) is None
