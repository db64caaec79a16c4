"""What an agent does to the user's branches, tags, stash and git settings, while the user may work there too."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace.busy import Project, run

from ralphtool.workspace.in_place import InPlace
from ralphtool.workspace.worktree import Worktree


def act(tree: Worktree | InPlace, command: str) -> None:
    """As the agent."""
    run(tree.root, command, **tree.agent_variables)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


MISDEEDS = {
    "commit": 'git update-ref refs/heads/main $(git commit-tree -p main -m x "HEAD^{tree}")',
    "checkout": "git checkout -q --ignore-other-worktrees main; echo x > a.txt; git commit -qam x",
    "rewind": "git update-ref refs/heads/main HEAD~1",
    "twice": "git update-ref refs/heads/main HEAD~1; git update-ref refs/heads/main HEAD; "
    "git update-ref refs/heads/main HEAD~1",
    "rename": "git branch -q -m old older",
    "delete": "git branch -q -D old; git tag -d v1; git tag -d v2",
    "stash": "git stash clear",
    "stash-entry": "git stash drop -q stash@{1}",
    "settings": "git config user.name evil; git config core.hooksPath /tmp/h; git remote add r /tmp",
    "pruned": "git stash clear; git branch -q -D old; git tag -d v2; git reflog expire --expire=now --all; "
    "git gc -q --prune=now",
}


@pytest.mark.parametrize("name", MISDEEDS)
@pytest.mark.parametrize("kind", ["worktree", "here", "here-with-another-worktree"])
def test_what_an_agent_did_is_reverted_and_reported(project: Project, kind: str, name: str) -> None:
    if kind == "here-with-another-worktree":
        project.git("worktree", "add", "--quiet", "--detach", "../linked")
    before = project.state()
    tree = project.worktree() if kind == "worktree" else project.here()
    act(tree, MISDEEDS[name])
    found = tree.take().findings
    assert found
    assert {one.kind for one in found} == {"git-touched"}
    assert tree.take_notices() == []
    assert project.state() == before
    assert tree.take().findings == (), "each change is reported once"
    tree.close()
    assert project.state() == before
    assert project.git("for-each-ref", "refs/ralph/guarded") == ""


def test_an_agent_may_use_branches_and_stash_entries_of_its_own(project: Project) -> None:
    tree, before = project.worktree(), project.state()
    act(tree, "git checkout -q -b mine; git checkout -q --detach; git branch -q -D mine; git branch -q other")
    act(tree, "echo x > a.txt; git stash -q; git stash pop -q")
    assert tree.take().findings == ()
    assert tree.take_notices() == []
    assert project.state() == before


def test_what_the_user_did_stays_and_is_reported_with_the_command_that_reverts_it(project: Project) -> None:
    before, tree = project.state(), project.worktree()
    (project.top / "a.txt").write_text("third\n")
    project.git("commit", "--quiet", "--amend", "--all", "--message=third")
    project.git("branch", "-D", "old")
    project.git("tag", "-d", "v2")
    project.git("stash", "drop", "--quiet", "'stash@{0}'")
    project.git("config", "core.editor", "ed")
    project.git("config", "branch.main.remote", "origin")
    after = project.state()
    assert tree.take().findings == ()
    assert project.state() == after
    told = tree.take_notices()
    assert [text.split(" ")[0] for text in told] == [
        "core.editor",
        "a",
        "refs/heads/main",
        "refs/heads/old",
        "refs/tags/v2",
    ]
    run(project.top, "git reflog expire --expire=now --all; git gc -q --prune=now")
    for text in told:
        run(project.top, text.rpartition("run `")[2].rstrip("`"))
    assert sorted(project.state()[1]) != sorted(before[1]), "the entry has another number"
    assert project.git("stash", "list").count("two") == 1
    assert [project.state()[2], project.git("for-each-ref", "refs/heads/main", "refs/heads/old", "refs/tags")] == [
        before[2],
        "".join(line for line in before[0].splitlines(keepends=True) if "refs/stash" not in line),
    ]


def test_a_commit_of_the_users_is_not_lost_when_an_agent_then_moves_the_branch(project: Project) -> None:
    tree = project.worktree()
    (project.top / "a.txt").write_text("mine\n")
    project.git("commit", "--quiet", "--all", "--message=mine")
    mine = project.git("rev-parse", "main")
    act(tree, "git update-ref refs/heads/main HEAD~1")
    assert [one.path for one in tree.take().findings] == ["refs/heads/main"]
    assert project.git("rev-parse", "main") == mine


def test_a_commit_in_a_worktree_that_the_user_adds_meanwhile_is_not_the_agents(project: Project) -> None:
    here = project.here()
    project.git("worktree", "add", "--quiet", "../hotfix", "main")
    run(project.top.parent / "hotfix", "echo fix > a.txt; git commit -qam fix")
    fix = project.git("rev-parse", "main")
    act(here, "git branch -q -D old")
    assert [one.path for one in here.take().findings] == ["refs/heads/old"]
    assert [text.split(" ")[0] for text in here.take_notices()] == ["refs/heads/main"]
    here.close()
    assert project.git("rev-parse", "main") == fix


def test_settings_of_the_users_stay_when_an_agent_changes_others(project: Project) -> None:
    tree = project.worktree()
    project.git("config", "core.editor", "ed")
    act(tree, "git config user.name evil")
    [found] = tree.take().findings
    assert found.detail == "user.name changed by the agent, and restored"
    assert project.git("config", "core.editor", "&&", "git", "config", "user.name") == "ed\nU\n"


def test_after_a_kill_only_what_was_the_agents_is_reverted(project: Project) -> None:
    tree = project.worktree()
    before = project.state()[0]
    act(tree, "git update-ref refs/heads/main HEAD~1")
    project.git("tag", "-d", "v1")
    again = project.worktree("refs/heads/main: moved by the agent, and restored")
    assert project.state()[0] == "".join(line for line in before.splitlines(keepends=True) if "tags/v1" not in line)
    assert again.take().findings == ()


def test_a_worktree_of_a_run_does_not_count_as_the_users(project: Project) -> None:
    project.worktree().close()
    before, here = project.state(), project.here()
    run(here.root, "git update-ref refs/heads/main HEAD~1")
    assert [one.path for one in here.take().findings] == ["refs/heads/main"]
    here.close()
    assert project.state() == before


def test_a_ref_that_cannot_be_restored_does_not_keep_the_users_files(project: Project) -> None:
    (project.top / "a.txt").write_text("mine\n")
    (project.top / "un.txt").write_text("mine\n")
    here = project.here()
    act(
        here,
        "for one in $(git for-each-ref --format='%(refname)' refs/ralph refs/stash); do git update-ref -d $one; done",
    )
    act(here, "git branch -q -D old; git reflog expire --expire=now --all; git gc -q --prune=now")
    told = {one.path: one.detail for one in here.take().findings}
    assert "can't be restored" in told["refs/stash"]
    assert told["refs/heads/old"] == "deleted by the agent, and restored"
    here.close()
    assert [(project.top / name).read_text() for name in ("a.txt", "un.txt")] == ["mine\n"] * 2
    assert project.git("branch", "--show-current") == "main\n"
