"""A run in the user's own folder was killed: what the user did since stays, and no commit is ever without a ref."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from workspace.busy import CHANGE, Project, run

from ralphtool.core import layout, locks
from ralphtool.workspace import in_place
from ralphtool.workspace.git import Repository
from ralphtool.workspace.in_place import InPlace
from ralphtool.workspace.worktree import Worktree

BRANCH = f"ralph/{CHANGE}"
HOOK = ".git/hooks/pre-commit"
ADD_HOOK = f"echo '#!/bin/sh' > {HOOK}; chmod +x {HOOK}"
LONG_AGO, YET_TO_COME = -1000.0, 1000.0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def kill(here: InPlace, died: float | None) -> None:
    """As the end of its process does. It died so many seconds from now; None: its records are gone."""
    os.close(here._lock)
    write_record(here.root, died)


def write_record(root: str, died: float | None) -> None:
    """The last sign of life of the run."""
    if died is None:
        return
    record = Path(layout.events(root, "run-1"))
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    moment = time.time() + died - locks.HEARTBEAT_SECONDS
    os.utime(record, (moment, moment))


def commit(project: Project, branch: str, text: str) -> str:
    """Commits to a branch, and goes back to the one of the run."""
    project.git("checkout", "--quiet", "--force", branch)
    (project.top / "a.txt").write_text(f"{text}\n")
    project.git("commit", "--quiet", "--all", f"--message={text}")
    made = project.git("rev-parse", "HEAD").strip()
    project.git("checkout", "--quiet", BRANCH)
    return made


def find_value(project: Project, ref: str) -> str:
    return project.git("rev-parse", ref).strip()


def recover(project: Project) -> list[str]:
    here = project.here_closed()
    return in_place.recover(here.repository, here.root)


def test_later_commits_on_other_branches_stay(project: Project) -> None:
    kill(project.here(), LONG_AGO)
    mine = commit(project, "main", "mine")
    project.git("update-ref", "refs/heads/old", mine)
    project.git("tag", "--force", "v1", mine)
    assert recover(project) == ["the run run-1 was interrupted: your files are restored"]
    assert {find_value(project, ref) for ref in ("main", "old", "v1", "HEAD")} == {mine}
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_file_that_comes_back_older_than_the_users_branch_is_named(project: Project, is_killed: bool) -> None:
    (project.top / "a.txt").write_text("uncommitted\n")
    project.git("worktree", "add", "--quiet", "--detach", "../linked")
    here = project.here()
    if is_killed:
        kill(here, LONG_AGO)
    commit(project, "main", "mine")
    if is_killed:
        told = recover(project)
    else:
        here.close()
        told = here.take_notices()
    assert "main has newer commits that change a.txt" in told[-1]
    assert "-mine\n+uncommitted" in project.git(told[-1].rpartition("`git ")[2].rstrip("`"))


def test_commits_on_the_branch_of_the_change_are_kept_and_named(project: Project) -> None:
    kill(project.here(), LONG_AGO)
    tip = find_value(project, BRANCH)
    mine = commit(project, BRANCH, "mine")
    [_, told] = recover(project)
    assert told.startswith(f"{BRANCH} is back at {tip[:10]}")
    assert f"`git log {tip[:10]}..{mine[:10]}`" in told
    assert find_value(project, BRANCH) == tip
    assert find_value(project, f"refs/ralph/moved/{mine}") == mine


def test_the_next_run_tells_it_too(project: Project) -> None:
    kill(project.here(), LONG_AGO)
    mine = commit(project, BRANCH, "mine")
    again = project.here_closed()
    told = again.open("run-2", [])
    again.close()
    assert any(f"..{mine[:10]}` shows them" in text for text in told)
    assert find_value(project, f"refs/ralph/moved/{mine}") == mine


@pytest.mark.parametrize("died", [YET_TO_COME, None], ids=["before-the-end", "no-records"])
def test_what_may_be_the_agents_is_moved_back_but_kept_and_named(project: Project, died: float | None) -> None:
    kill(project.here(), died)
    first = find_value(project, "main")
    mine = commit(project, "main", "mine")
    [_, told] = recover(project)
    assert told.startswith("refs/heads/main: moved by the agent, and restored")
    assert f"`git log {first[:10]}..{mine[:10]}` shows them" in told
    assert find_value(project, "main") == first
    assert find_value(project, f"refs/ralph/moved/{mine}") == mine


def test_a_time_that_was_made_up_does_not_make_a_commit_the_users(project: Project) -> None:
    here, first = project.here(), find_value(project, "main")
    kill(here, 100)
    move = "git update-ref refs/heads/main $(git commit-tree -p main -m x 'main^{tree}')"
    run(here.root, move, GIT_COMMITTER_DATE="2099-01-01T00:00:00Z")
    recover(project)
    assert find_value(project, "main") == first


def test_a_branch_that_the_agent_moved_first_and_the_user_later_is_named(project: Project) -> None:
    here, first = project.here(), find_value(project, "main")
    theirs = commit(project, "main", "agent")
    time.sleep(1.1)
    kill(here, 0)
    mine = commit(project, "main", "mine")
    [_, told] = recover(project)
    assert "refs/heads/main is left as it is" in told
    assert f"`git log {first[:10]}..{theirs[:10]}`" in told
    assert find_value(project, "main") == mine


def test_a_branch_of_the_change_that_was_deleted_is_restored(project: Project) -> None:
    kill(project.here(), YET_TO_COME)
    tip = find_value(project, BRANCH)
    project.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    assert any(f"{BRANCH} is back at {tip[:10]}" in text for text in recover(project))
    assert find_value(project, BRANCH) == tip


def test_a_branch_that_the_user_deletes_later_stays_deleted_and_is_kept(project: Project) -> None:
    kill(project.here(), LONG_AGO)
    old = find_value(project, "old")
    project.git("branch", "-D", "old")
    [_, told] = recover(project)
    assert told.endswith(f"`git update-ref refs/heads/old {old}`")
    assert project.git("branch", "--list", "old") == ""
    assert find_value(project, f"refs/ralph/moved/{old}") == old


def test_later_settings_and_hooks_stay_and_are_named(project: Project) -> None:
    kill(project.here(), LONG_AGO)
    project.git("config", "core.editor", "ed")
    run(project.top, ADD_HOOK)
    [_, config, hook] = recover(project)
    assert project.git("config", "core.editor") == "ed\n"
    assert (project.top / HOOK).exists()
    assert hook.startswith(f"{HOOK} was changed after the run had been killed, and is left as it is")
    run(project.top, config.split("`")[1])
    run(project.top, hook.split("`")[1])
    assert "editor" not in project.git("config", "--list", "--local")
    assert not (project.top / HOOK).exists()


def test_a_hook_that_the_user_removes_later_stays_removed(project: Project) -> None:
    run(project.top, ADD_HOOK)
    kill(project.here(), LONG_AGO)
    (project.top / HOOK).unlink()
    [_, told] = recover(project)
    assert told.startswith(f"{HOOK} was removed after the run had been killed")
    assert not (project.top / HOOK).exists()


def test_settings_and_hooks_of_the_agent_are_reverted_and_named(project: Project) -> None:
    kill(project.here(), YET_TO_COME)
    before = (project.top / ".git/config").read_bytes()
    project.git("config", "core.editor", "evil")
    run(project.top, ADD_HOOK)
    [_, config, hook] = recover(project)
    assert (project.top / ".git/config").read_bytes() == before
    assert not (project.top / HOOK).exists()
    assert config.startswith(".git/config: changed by the agent, and restored; the changed file is ")
    assert Path(hook.rpartition(" ")[2]).read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("died", [LONG_AGO, YET_TO_COME], ids=["later", "before-the-end"])
def test_no_entry_of_the_stash_is_lost(project: Project, died: float) -> None:
    here = project.here()
    kill(here, died)
    project.git("checkout", "--quiet", "--force", "main")
    (project.top / "a.txt").write_text("stashed\n")
    project.git("stash", "push", "--quiet", "--message=three")
    mine = find_value(project, "stash@{0}")
    project.git("checkout", "--quiet", BRANCH)
    told = recover(project)
    names = [line.rpartition(": ")[2] for line in project.git("stash", "list").splitlines()]
    if died == LONG_AGO:
        assert (names, len(told)) == (["three", "two", "one"], 1)
    else:
        assert names == ["two", "one"]
        assert f"`git stash show -p {mine[:10]}`" in told[1]
        assert find_value(project, f"refs/ralph/moved/{mine}") == mine


# --- in a worktree ----------------------------------------------------------------------------------


@pytest.fixture
def killed(project: Project) -> Project:
    """An agent was at work in a worktree when its run was killed."""
    project.worktree()
    return project


def open_again(project: Project) -> str:
    """What the next run says about it."""
    found = Repository.find(str(project.top))
    assert found is not None
    again = Worktree(found, str(project.top), CHANGE)
    told = "\n".join(again.open("run-2", []))
    again.close()
    return told


def test_a_later_hook_stays_and_is_named_after_a_run_in_a_worktree(killed: Project) -> None:
    write_record(str(killed.top), LONG_AGO)
    run(killed.top, ADD_HOOK)
    told = open_again(killed)
    assert (killed.top / HOOK).exists()
    assert f"{HOOK} was changed after the run had been killed, and is left as it is" in told
    run(killed.top, told.partition("If it wasn't you, run `")[2].partition("`")[0])
    assert not (killed.top / HOOK).exists()
    assert HOOK not in open_again(killed), "it is said once"


@pytest.mark.parametrize("died", [YET_TO_COME, None], ids=["before-the-end", "no-records"])
def test_a_hook_that_may_be_the_agents_is_reverted_after_a_run_in_a_worktree(
    killed: Project, died: float | None
) -> None:
    write_record(str(killed.top), died)
    run(killed.top, ADD_HOOK)
    told = open_again(killed)
    assert not (killed.top / HOOK).exists()
    assert f"{HOOK}: changed by the agent, and restored" in told


def test_a_hook_that_the_user_changes_later_stays_also_if_the_agent_had_changed_it(killed: Project) -> None:
    run(killed.top, ADD_HOOK)
    write_record(str(killed.top), LONG_AGO)
    run(killed.top, f"echo exit 0 >> {HOOK}")
    assert f"{HOOK} was changed after the run had been killed" in open_again(killed)
    assert (killed.top / HOOK).read_text().endswith("exit 0\n")
