"""Which folder is the project: the nearest one with a mark, and never one outside the git repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab import Lab

from ralphtool import specs
from ralphtool.core import project

MARKS = [".ralph/config.toml", "openspec/project.md", "prd.json", "specs/x/tasks.md", "fix_plan.md"]


def find(folder: Path) -> Path:
    return Path(project.find(str(folder)))


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.fixture(params=["a repository", "a linked working tree or a submodule"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A repository in a folder that itself has all the marks."""
    for mark in MARKS:
        make(tmp_path / mark)
    top = tmp_path / "repository"
    (top / "a/b").mkdir(parents=True)
    if request.param == "a repository":
        (top / ".git").mkdir()
    else:
        (top / ".git").write_text("gitdir: ../elsewhere\n")
    return top


def test_what_is_above_the_repository_does_not_count(repository: Path) -> None:
    assert find(repository / "a/b") == repository
    assert find(repository) == repository


@pytest.mark.parametrize("mark", MARKS)
def test_the_nearest_mark_inside_wins(repository: Path, mark: str) -> None:
    make(repository / mark)
    assert find(repository / "a/b") == repository
    make(repository / "a" / mark)
    assert find(repository / "a/b") == repository / "a"
    make(repository / "a/b" / mark)
    assert find(repository / "a/b") == repository / "a/b"


def test_a_repository_inside_another_is_one_of_its_own(repository: Path) -> None:
    make(repository / "openspec/project.md")
    (repository / "a/.git").write_text("gitdir: ../.git/modules/a\n")
    assert find(repository / "a/b") == repository / "a"


def test_without_a_repository_the_nearest_mark_else_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert find(tmp_path / "a/b") == tmp_path / "a/b"
    make(tmp_path / "prd.json")
    assert find(tmp_path / "a/b") == tmp_path


def test_a_folder_of_openspec_with_specs_in_it_is_no_project(tmp_path: Path) -> None:
    make(tmp_path / "openspec/changes/x/specs/auth/spec.md")
    assert find(tmp_path / "openspec/changes/x") == tmp_path


def test_commands_stay_in_a_real_submodule(lab: Lab) -> None:
    lab.repository()
    inner = lab.root / "inner"
    inner.mkdir()
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=first"]):
        named = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *named, *words], cwd=inner, env=lab.env, check=True)
    assert lab.run("list", "--json", cwd=inner).json["changes"] == []
    assert [one["name"] for one in lab.run("list", "--json").json["changes"]] == ["add-login"]


def test_every_format_of_ours_has_its_mark() -> None:
    assert list(project.FORMATS) == list(specs.BUILT_IN)
    for name, (module, mark, _) in project.FORMATS.items():
        assert (module, bool(mark)) == (f"ralphtool.specs.{name}", True)
        assert specs.adapter(name).name == name


def test_a_working_tree_that_a_run_made_is_a_part_of_its_project(tmp_path: Path) -> None:
    make(tmp_path / ".ralph/config.toml")
    inside = tmp_path / ".git/ralph/worktrees/add-login"
    make(inside / ".git")
    assert find(inside) == tmp_path
