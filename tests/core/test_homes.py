"""A session belongs to one project: whatever happens to its lock, no other project is touched."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from project import TASKS, Ralph

from ralphtool.core import lifecycle, session
from ralphtool.errors import SessionExists

INIT = ("session", "init", "--change", "add-login")
TASKS_FILE = "openspec/changes/add-login/tasks.md"


@pytest.fixture
def other(project: Ralph) -> Path:
    """Another checkout of the same project."""
    place = project.root.parent / "other"
    shutil.copytree(project.root, place)
    return place


def test_from_another_checkout_the_right_project_is_worked_on(project: Ralph, other: Path) -> None:
    project.begin()
    assert project.agent("task", "done", "1.1", cwd=other).json["remaining"] == ["1.2"]
    assert "[x] 1.1" in project.tasks_file.read_text()
    assert "[x]" not in (other / "openspec/changes/add-login/tasks.md").read_text()


def test_so_it_is_when_somebody_removed_the_lock(project: Ralph, other: Path) -> None:
    project.begin()
    project.agent("learn", "mine")
    shutil.rmtree(project.root / ".ralph/locks")
    assert project.agent("task", "done", "1.1", cwd=other).exit_code == 0
    assert project.agent("session", "flush", cwd=other).json["learnings_written"] == 1
    assert "- mine" in project.design_file.read_text()
    assert not (other / "openspec/changes/add-login/design.md").exists()
    assert not (project.root / ".ralph/locks").exists(), "a flush makes no folders"


def test_a_project_that_is_gone_is_told(project: Ralph, other: Path) -> None:
    project.begin()
    shutil.rmtree(project.root)
    told = project.agent("status", cwd=other)
    assert told.code == "SESSION_NOT_FOUND"
    assert str(project.root) in told.error["error"]


def test_a_project_that_was_moved_is_found_from_within(project: Ralph) -> None:
    project.begin()
    moved = project.root.parent / "moved"
    project.root.rename(moved)
    assert project.agent("task", "done", "1.1", cwd=moved).exit_code == 0
    assert "[x] 1.1" in (moved / "openspec/changes/add-login/tasks.md").read_text()


def test_of_two_projects_that_want_one_id_at_once_one_gets_it(project: Ralph, other: Path) -> None:
    roots = [project.root, other]
    for turn in range(12):
        with ThreadPoolExecutor() as pool:
            begun = [pool.submit(project.agent, *INIT, session=f"s{turn}", cwd=root) for root in roots]
        ended = [one.result() for one in begun]
        [winner] = [root for root, result in zip(roots, ended, strict=True) if result.exit_code == 0]
        assert [result.code for result in ended if result.exit_code] == ["SESSION_EXISTS"]
        assert project.agent("task", "done", "1.1", session=f"s{turn}", cwd="/", RALPH_STORY="1").exit_code == 0
        ticked = [root for root in roots if "[x]" in (root / TASKS_FILE).read_text()]
        assert ticked == [winner]
        (winner / TASKS_FILE).write_text(TASKS)
        assert project.agent("session", "flush", session=f"s{turn}", cwd="/").exit_code == 0


def test_so_it_is_if_both_begin_in_the_same_microsecond(
    project: Ralph, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has found no session yet; its note replaced the first one's, and was removed when it failed."""
    monkeypatch.setenv("TMPDIR", project.env["TMPDIR"])
    monkeypatch.setattr(session, "now", lambda: "2026-01-31T09:30:00.000123Z")
    monkeypatch.setattr(lifecycle, "_refuse_second_use", lambda *about: None)
    lifecycle.begin(str(project.root), "s1", "add-login")
    with pytest.raises(SessionExists):
        lifecycle.begin(str(other), "s1", "add-login")
    assert project.agent("task", "done", "1.1", session="s1", cwd="/", RALPH_STORY="1").exit_code == 0
    assert "[x] 1.1" in project.tasks_file.read_text()
    assert not (other / ".ralph").exists()


@pytest.mark.parametrize(
    "tail",
    [
        ', "accumulated_learnings": []}\n',
        ', "patterns": []}\n',
        ', "later": [1]}\n',
        ' , "later": [1]}\n',
    ],
)
def test_a_learning_is_added_to_the_learnings_whatever_follows_them(project: Ralph, tail: str) -> None:
    project.begin()
    project.agent("learn", "first")
    text = project.session_file().read_text()
    project.session_file().write_text(text.removesuffix("}\n") + tail)
    assert project.agent("learn", "second").json["total_learnings"] == 2
    assert [one["description"] for one in project.session()["learnings"]] == ["first", "second"]
    assert project.session()["patterns"] == []


def test_an_arrow_in_a_note_closes_nobodys_comment(project: Ralph) -> None:
    project.design_file.write_text("# Design\n\n<!-- todo\n\n## Decisions\nuse X\n")
    for text in ("flow is A --> B", "second"):
        project.begin()
        project.agent("learn", text)
        project.agent("session", "flush")
    design = project.design_file.read_text()
    assert design.count("## Learnings") == 1
    assert "-->" not in design


def test_a_lock_that_names_one_file_twice_is_refused(project: Ralph) -> None:
    project.begin()
    lock = json.loads(project.lock_file.read_text())
    lock["unlocked"] = True
    lock["inherits"] = [[f"/{lock['session_file']}", lock["acquired_at"]]]
    project.lock_file.write_text(json.dumps(lock))
    assert project.agent("session", "init", "--change", "add-login", session="s2").code == "CORRUPT_STATE"


def test_a_second_damaged_lock_does_not_replace_the_first(project: Ralph) -> None:
    for text in ("one", "two"):
        project.write(".ralph/locks/add-login.lock", text)
        assert project.run("unlock", "add-login").exit_code == 0
    assert project.read(".ralph/locks/add-login.lock.damaged") == "one"
    assert project.read(".ralph/locks/add-login.lock.damaged-1") == "two"


@pytest.mark.parametrize("command", ["unlock", "learnings"])
def test_a_change_that_is_not_there_is_told(project: Ralph, command: str) -> None:
    told = project.run(command, "add-lgin")
    assert told.exit_code == 1
    assert "ralphtool list" in told.stderr


def test_learnings_may_look_like_the_end_of_their_list(project: Ralph) -> None:
    project.begin()
    texts = ["a [1], and more", 'a "]}" of its own', "plain"]
    for text in texts:
        project.agent("learn", text)
    assert [one["description"] for one in project.session()["learnings"]] == texts
