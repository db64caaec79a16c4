"""What changes in the user's own folder while no agent works there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from workspace.busy import Project

from ralphtool.workspace.in_place import InPlace
from ralphtool.workspace.late_edits import LateEdits


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def refs(project: Project) -> list[str]:
    return project.git("for-each-ref", "'--format=%(refname)'", "refs/ralph/interrupted").split()


def show(project: Project, ref: str, path: str) -> str:
    return project.git("show", f"{ref}:{path}")


def run_round(here: InPlace, *changes: tuple[str, str], is_attempt: bool = True, is_green: bool = True) -> list[str]:
    """The gates run, and write these files; returns the notices."""
    here.begin(None)
    if is_attempt:
        here.mark_attempt()
        if is_green:
            here.late_edits.note_proof()
    for path, text in changes:
        Path(here.root, path).write_text(text)
    here.mark_dirty()
    here.begin(None)
    return here.take_notices()


def test_a_changed_a_new_and_a_removed_file_are_kept(project: Project) -> None:
    (project.top / "gone.txt").write_text("to be removed\n")
    project.git("add", "gone.txt")
    project.git("commit", "--quiet", "--message=more")
    here = project.here()
    here.mark_attempt()
    (project.top / "a.txt").write_text("changed\n")
    (project.top / "d").mkdir()
    (project.top / "d/new.txt").symlink_to("a.txt")
    (project.top / "gone.txt").unlink()
    here.mark_dirty()
    here.begin(None)
    assert (project.top / "a.txt").read_text() == "second\n"
    assert not (project.top / "d").exists()
    [text] = here.take_notices()
    [ref] = refs(project)
    assert f"git cherry-pick --no-commit {ref}`" in text
    assert "a.txt, d/new.txt, gone.txt" in text
    told = project.git("diff-tree", "--no-commit-id", "--name-status", "-r", ref).split()
    assert told == ["M", "a.txt", "A", "d/new.txt", "D", "gone.txt"]
    here.close()
    project.git("cherry-pick", "--no-commit", ref)
    assert (project.top / "a.txt").read_text() == "changed\n"
    assert os.readlink(project.top / "d/new.txt") == "a.txt"


def test_an_earlier_version_of_the_same_file_is_not_lost(project: Project) -> None:
    here = project.here()
    here.mark_attempt()
    for text in ("one\n", "two\n"):
        (project.top / "a.txt").write_text(text)
        here.mark_dirty()
        here._switch_to(here.tip)
    here.begin(None)
    assert len(here.take_notices()) == 1
    [ref] = refs(project)
    assert (show(project, ref, "a.txt"), show(project, f"{ref}~2", "a.txt")) == ("two\n", "one\n")
    assert show(project, f"{ref}^", "a.txt") == "second\n"
    here.close()


def test_who_saves_only_sometimes_is_told_each_time(project: Project) -> None:
    here = project.here()
    report = ("report.xml", "of the gates\n")
    assert run_round(here, report, ("mine.txt", "1\n"), is_attempt=False) == [], "it may be the gates' own"
    [first] = run_round(here, report)
    assert "mine.txt" in first
    assert "report.xml" not in first, "the gates wrote it again"
    [second] = run_round(here, report, ("mine.txt", "2\n"))
    assert "mine.txt" in second
    assert "report.xml" not in second
    assert run_round(here, report) == []
    ref = re.findall(r"refs/\S+-\d+", second)[0]
    assert project.git("diff-tree", "--no-commit-id", "--name-only", "-r", ref).split() == ["mine.txt"]
    assert show(project, ref, "report.xml") == "of the gates\n", "what gates write is kept as well"
    here.close()
    assert here.take_notices() == []


def test_red_gates_may_not_write_their_files(project: Project) -> None:
    here = project.here()
    report = ("report.xml", "of the gates\n")
    assert run_round(here, report, is_attempt=False) == []
    assert run_round(here, is_green=False) == []
    assert run_round(here, report) == []
    here.close()


def test_what_is_never_written_again_is_told_at_the_end(project: Project) -> None:
    here = project.here()
    assert run_round(here, ("mine.txt", "1\n"), is_attempt=False) == []
    (project.top / "a.txt").write_text("just before the end\n")
    here.mark_dirty()
    here.close()
    [text] = here.take_notices()
    assert "a.txt, mine.txt" in text
    assert show(project, refs(project)[0], "a.txt") == "just before the end\n"


def test_what_changed_while_an_agent_only_looked_is_not_lost(project: Project) -> None:
    here = project.here()
    here.mark_attempt()
    here.take()
    (project.top / "mine.txt").write_text("1\n")
    here.take()  # of the agent that looked
    here.mark_dirty()
    here.begin(None)
    assert len(here.take_notices()) == 1
    here.close()


def test_what_git_can_not_keep_is_no_obstacle(project: Project) -> None:
    here = project.here()
    here.mark_attempt()
    (project.top / "mine.txt").write_text("1\n")
    os.mkfifo(project.top / "pipe")
    (project.top / "huge").write_bytes(b"\0" * (11 << 20))
    (project.top / "x.pyc").write_bytes(b"compiled")
    (project.top / "a.txt").unlink()
    (project.top / "a.txt").mkdir()
    (project.top / "a.txt/b").write_text("below\n")
    project.git("init", "--quiet", "inner")
    project.git("-C", "inner", "-c", "user.name=U", "-c", "user.email=u@e", "commit", "--quiet", "--allow-empty", "-mx")
    here.mark_dirty()
    here.begin(None)
    assert (project.top / "a.txt").read_text() == "second\n"
    told = project.git("diff-tree", "--no-commit-id", "--name-status", "-r", refs(project)[0]).split()
    assert told == ["D", "a.txt", "A", "a.txt/b", "A", "mine.txt"]
    here.close()


def test_if_it_can_not_be_kept_that_is_told(project: Project) -> None:
    here = project.here()
    late = LateEdits(here.repository, "add-login")
    late.run = "run-1"
    here.repository.index = str(project.top / "missing/index")
    (project.top / "mine.txt").write_text("1\n")
    late.keep(["mine.txt"], here.tip)
    [text] = late.take_notices()
    assert text.startswith("mine.txt changed while no agent worked, and can't be kept: ")


@pytest.mark.parametrize("has_attributes", [False, True])
def test_an_edit_of_a_file_that_is_shown_as_it_was_is_kept_as_just_that_edit(
    project: Project, has_attributes: bool
) -> None:
    if has_attributes:  # only git can put the files in place
        (project.top / ".gitattributes").write_text("*.bin -text\n")
        project.git("add", ".gitattributes")
        project.git("commit", "--quiet", "--message=attributes")
    here = project.here()
    here.mark_attempt()
    (project.top / "a.txt").write_text("second\nof the work\n")
    for name in ("b.txt", "c.txt", "d.txt"):
        (project.top / name).write_text("new\n")
    tree = str(here.take().tree)
    here.compare(tree)
    here.show_mix(tree, lambda path: True, {})
    (project.top / "c.txt").write_text("of the user\n")
    here.show_work(tree)
    assert (project.top / "c.txt").read_text() == "new\n"
    here.show_mix(tree, lambda path: True, {})
    assert (project.top / "a.txt").read_text() == "second\n"
    (project.top / "a.txt").write_text("second\nof the user\n")
    here.show_mix(tree, lambda path: False, {"b.txt": None})
    assert (project.top / "a.txt").read_text() == "second\nof the work\n"
    assert not (project.top / "b.txt").exists()
    (project.top / "b.txt").write_text("again\n")
    here.show_work(tree)
    assert (project.top / "b.txt").read_text() == "new\n"
    here.begin(None)
    [text] = here.take_notices()
    assert "not part of the work: a.txt, b.txt, c.txt. If" in text
    [ref] = refs(project)
    assert project.git("diff", "--unified=0", f"{ref}^", ref, "--", "a.txt").split("\n")[-2:] == ["+of the user", ""]
    assert show(project, ref, "b.txt") == "again\n"
    assert show(project, ref, "c.txt") == "of the user\n"
    assert project.git("ls-tree", f"{ref}^", "b.txt", "c.txt") == ""
    here.close()
