"""Whole runs, as git shows them: the branch, its commits, the attempts, and the user's tree, which stays theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, STORIES, Lab, kill, wait_until
from sandbox.boxes import needs_box

HALF = [{"write": "half.txt", "text": "half\n"}, {"tick": "1.1"}]
FIRST = "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n"


def turn(story: str, attempt: int, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"story": story, "attempt": attempt, "steps": list(steps)}


def on_branch(lab: Lab, name: str = "ralph/add-login") -> set[str]:
    return set(lab.git("ls-tree", "-r", "--name-only", name).split("\n"))


def subjects(lab: Lab) -> list[str]:
    return lab.git("log", "--reverse", "--format=%s", "ralph/add-login").split("\n")


def same_after_a_run(lab: Lab, *arguments: str, code: int = 0) -> None:
    before = lab.users_state()
    result = lab.loop(*arguments)
    assert result.exit_code == code, result.stderr
    assert lab.users_state() == before


# --- the branch -------------------------------------------------------------------------------------


def test_a_committed_change_needs_no_commit_of_its_own(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    same_after_a_run(lab)
    assert subjects(lab) == ["first", "First (add-login 1)", "Second (add-login 2)"]
    assert lab.checkpoints() == ["1", "2"]
    assert {"1.txt", "2.txt"} <= on_branch(lab)


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree", "here"])
def test_settings_that_are_committed_stay_on_the_branch(lab: Lab, workspace: str) -> None:
    lab.repository(workspace=workspace).play(default=DONE)
    lab.git("add", "--force", ".ralph/config.toml")
    lab.git("commit", "--quiet", "--message=settings")
    same_after_a_run(lab, "--max-iterations", "1", code=1)
    same_after_a_run(lab)
    assert ".ralph/config.toml" in on_branch(lab)
    settings = (lab.root / ".ralph/config.toml").read_text()
    assert lab.run("finish", "--merge").exit_code == 0
    assert (lab.root / ".ralph/config.toml").read_text() == settings


def test_a_change_that_is_not_committed_goes_into_the_first_commit(lab: Lab) -> None:
    lab.repository()
    lab.git("rm", "--quiet", "--cached", "-r", "openspec")
    lab.git("commit", "--quiet", "--message=not yet")
    lab.write("own.txt", "mine\n")
    lab.play(default=DONE)
    same_after_a_run(lab)
    assert subjects(lab)[2] == "ralphtool: the change add-login"
    assert "own.txt" not in on_branch(lab)
    assert "openspec/changes/add-login/tasks.md" in lab.git("show", "--name-only", "--format=", "ralph/add-login~2")


def test_a_change_that_is_committed_in_part(lab: Lab) -> None:
    lab.repository()
    lab.write("openspec/changes/add-login/design.md", "# Design\n")
    lab.tasks_file.write_text(STORIES + "\n<!-- edited -->\n")
    lab.write("README.md", "mine\n")
    lab.play(default=DONE)
    same_after_a_run(lab)
    first = lab.git("show", "--name-only", "--format=", "ralph/add-login~2").split("\n")
    assert first == ["openspec/changes/add-login/design.md", "openspec/changes/add-login/tasks.md"]
    assert lab.git("show", "ralph/add-login:README.md") == "hello"


def test_a_checkpoint_says_what_it_is(lab: Lab) -> None:
    lab.repository(FIRST).play(default=DONE)
    assert lab.loop().exit_code == 0
    message = lab.git("log", "-1", "--format=%B", "ralph/add-login")
    assert "- 1.1 Make a\n- 1.2 Make b" in message
    assert message.endswith("Ralph-Change: add-login\nRalph-Entry: add-login-1-1\nRalph-Story: 1\n".rstrip("\n"))
    assert lab.git("log", "-1", "--format=%an", "ralph/add-login") == "Tester"


def test_commits_of_an_agent_are_folded_into_the_checkpoint(lab: Lab) -> None:
    commits = [{"run": f"echo {n} > {n}.c && git add {n}.c && git commit -qm {n}", "must": True} for n in ("a", "b")]
    lab.repository(FIRST).play(default=[*commits, *DONE])
    same_after_a_run(lab)
    assert subjects(lab) == ["first", "First (add-login 1)"]
    assert {"a.c", "b.c", "1.txt"} <= on_branch(lab)


def test_every_attempt_is_kept(lab: Lab) -> None:
    lab.repository(FIRST).play(turn("1", 1, {"write": "wrong.txt", "text": "wrong\n"}, {"say": "no"}), default=DONE)
    same_after_a_run(lab)
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-1-2", "completed")]
    assert "wrong.txt" in on_branch(lab, "refs/ralph/attempts/add-login-1-1")
    assert "wrong.txt" not in on_branch(lab)
    assert lab.git("rev-parse", "refs/ralph/attempts/add-login-1-2", "ralph/add-login").split("\n")[0] == lab.git(
        "rev-parse", "ralph/add-login"
    )


def test_a_partial_attempt_is_kept_and_built_on(lab: Lab) -> None:
    look = {"run": "test -e half.txt", "must": True}
    lab.repository(FIRST).play(turn("1", 1, *HALF), default=[look, *DONE])
    same_after_a_run(lab)
    assert lab.endings() == [("add-login-1-1", "partial"), ("add-login-1-2", "completed")]
    assert {"half.txt", "1.txt"} <= on_branch(lab)


def test_learnings_are_one_commit_more(lab: Lab) -> None:
    lab.repository().play(default=[{"learn": "mind the gap"}, *DONE])
    same_after_a_run(lab)
    assert subjects(lab)[-1] == "Learnings of add-login"
    assert len(subjects(lab)) == 4


# --- ralphtool's own folder -------------------------------------------------------------------------


def test_nothing_of_ours_is_in_a_commit(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    assert not [path for path in on_branch(lab) if ".ralph" in path]


def track(lab: Lab, *names: str) -> None:
    lab.git("add", "--force", *(f".ralph/{name}" for name in names))
    lab.git("commit", "--quiet", "--message=tracked")


def test_settings_that_the_user_tracks(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    track(lab, "config.toml")
    settings = lab.read(".ralph/config.toml")
    same_after_a_run(lab)
    assert lab.read(".ralph/config.toml") == settings
    assert lab.git("diff", "--name-only", "main", "ralph/add-login", "--", ".ralph") == ""


def test_settings_that_the_user_tracks_and_has_changed_are_in_no_commit(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    track(lab, "config.toml")
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + "# mine\n")
    settings = lab.read(".ralph/config.toml")
    same_after_a_run(lab)
    assert lab.read(".ralph/config.toml") == settings
    assert lab.git("diff", "--name-only", "main", "ralph/add-login", "--", ".ralph") == ""


def test_settings_that_are_staged_are_still_there(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.git("add", "--force", ".ralph/config.toml")
    settings = lab.read(".ralph/config.toml")
    same_after_a_run(lab)
    assert lab.read(".ralph/config.toml") == settings
    assert lab.git("status", "--porcelain", ".ralph/config.toml") == "A  .ralph/config.toml"


def test_a_history_that_the_user_commits_between_runs_is_still_there(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    track(lab, "config.toml", "progress.json")
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert (lab.root / ".ralph/config.toml").exists()


def test_a_history_that_is_staged_is_still_there(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    lab.git("add", "--all")
    before = lab.users_state()
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert (lab.root / ".ralph/config.toml").exists()
    assert lab.users_state() == before


# --- states of the repository -----------------------------------------------------------------------


def test_a_detached_head(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.git("switch", "--quiet", "--detach")
    same_after_a_run(lab)
    assert lab.checkpoints() == ["1", "2"]


def test_no_commit_yet(lab: Lab) -> None:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.openspec(STORIES)
    lab.configure()
    lab.write("own.txt", "mine\n")
    lab.play(default=DONE)
    same_after_a_run(lab)
    assert lab.checkpoints() == ["1", "2"]
    assert "own.txt" in on_branch(lab), "an empty tree would have nothing to work on"


def test_no_git(lab: Lab) -> None:
    lab.openspec(STORIES)
    lab.configure()
    lab.play(default=DONE)
    result = lab.loop()
    assert result.exit_code == 0
    assert any("no git repository" in event.get("text", "") for event in lab.events(result))
    assert (lab.root / "1.txt").exists()


def test_no_git_program(lab: Lab, tmp_path: Path) -> None:
    lab.repository().play(default=DONE)
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sh", "env"):
        (commands / name).symlink_to(str(shutil.which(name)))
    result = lab.loop(PATH=str(commands))
    assert result.exit_code == 0, result.stderr
    assert any("git" in event.get("text", "") for event in lab.events(result) if event["type"] == "notice")


def failing_hooks(lab: Lab) -> None:
    for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction"):
        path = lab.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >> {lab.tmp}/hooks\nexit 1\n")
        path.chmod(0o755)


def hooks_elsewhere(lab: Lab) -> None:
    failing_hooks(lab)
    shutil.move(lab.root / ".git/hooks", lab.home / "hooks")
    lab.git("config", "core.hooksPath", str(lab.home / "hooks"))


def signed_commits(lab: Lab) -> None:
    lab.git("config", "commit.gpgSign", "true")
    lab.git("config", "gpg.program", "/bin/false")


def no_identity(lab: Lab) -> None:
    lab.git("config", "--unset", "user.name")
    lab.git("config", "--unset", "user.email")
    lab.git("config", "user.useConfigOnly", "true")


def a_submodule(lab: Lab) -> None:
    other = lab.home / "other"
    subprocess.run(["git", "clone", "--quiet", str(lab.root), str(other)], env=lab.env, check=True)
    lab.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    lab.git("commit", "--quiet", "--message=sub")
    lab.write("sub/README.md", "mine\n")


def strict_settings(lab: Lab) -> None:
    """User settings that change what git prints or does."""
    for name, value in (
        ("status.showUntrackedFiles", "no"),
        ("status.relativePaths", "true"),
        ("color.ui", "always"),
        ("core.untrackedCache", "true"),
        ("core.quotePath", "true"),
        ("diff.noprefix", "true"),
        ("core.safecrlf", "true"),
        ("log.showSignature", "true"),
        ("merge.conflictStyle", "diff3"),
        ("core.fileMode", "false"),
    ):
        lab.git("config", name, value)
    lab.write("own.txt", "mine\n")


@pytest.mark.parametrize(
    "make", [failing_hooks, hooks_elsewhere, signed_commits, no_identity, a_submodule, strict_settings]
)
def test_a_repository_with_ways_of_its_own(lab: Lab, make: Callable[[Lab], None]) -> None:
    lab.repository(FIRST).play(default=DONE)
    make(lab)
    same_after_a_run(lab)
    assert lab.checkpoints() == ["1"]
    assert "own.txt" not in on_branch(lab)
    assert not (lab.tmp / "hooks").exists()


def test_another_ones_repository_is_refused_with_gits_own_advice(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    os.chown(lab.root / ".git", 12345, 12345)
    os.chown(lab.root, 12345, 12345)
    told = lab.loop()
    assert told.exit_code == 1
    assert "safe.directory" in told.stderr


def test_the_user_is_on_the_branch(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    lab.git("switch", "--quiet", "ralph/add-login")
    lab.write("own.txt", "mine\n")
    assert lab.loop().exit_code == 0
    assert lab.git("symbolic-ref", "HEAD") == "refs/heads/ralph/add-login"
    assert lab.git("status", "--porcelain", "--", ":!.ralph") == "?? own.txt"
    assert (lab.root / "2.txt").exists()


def begin_merge(lab: Lab) -> None:
    for branch, text in (("other", "b"), ("main", "c")):
        lab.git("switch", "--quiet", *([] if branch == "main" else ["--create"]), branch)
        lab.write("README.md", text)
        lab.git("commit", "--quiet", "--all", f"--message={branch}")
    lab.git("merge", "other", check=False)
    assert (lab.root / ".git/MERGE_HEAD").exists()


@pytest.mark.parametrize("has_run", [False, True])
def test_a_run_that_a_merge_refuses_leaves_no_lock_and_no_record(lab: Lab, *, has_run: bool) -> None:
    lab.repository().play(default=DONE)
    if has_run:
        assert lab.loop("--max-iterations", "1").exit_code == 1
    begin_merge(lab)
    before = lab.run("list").stdout, lab.run("runs").stdout
    told = lab.loop()
    assert (told.exit_code, "MERGE_HEAD" in told.stderr) == (1, True)
    assert (lab.run("list").stdout, lab.run("runs").stdout) == before
    assert not (lab.root / ".ralph/locks/add-login.lock").exists()
    assert not list((lab.tmp / "ralph/sessions").glob("add-login*"))


def test_a_refused_run_does_not_hide_that_the_one_before_died(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=[{"run": f"touch {lab.tmp}/began; sleep 3600"}])
    process = lab.start()
    assert wait_until(lambda: (lab.tmp / "began").exists())
    kill(process)
    died = lab.run("list").stdout
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + '\n[executor]\naddress = "127.0.0.1:1"\n')
    assert lab.loop("--executor", "temporal").exit_code in (1, 2), "it has the lock, but no server"
    assert (lab.run("list").stdout, "its last run died" in died) == (died, True)


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "here"])
@pytest.mark.parametrize("is_staged", [False, True])
def test_uncommitted_changes_of_a_user_on_the_branch_are_refused_first(
    lab: Lab, workspace: str, is_staged: bool
) -> None:
    """Their next commit would revert the work."""
    lab.repository(workspace=workspace).play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    lab.git("switch", "--quiet", "ralph/add-login")
    lab.write("1.txt", "mine\n")
    if is_staged:
        lab.git("add", "1.txt")
    before, tip = lab.users_state(), lab.git("rev-parse", "HEAD")
    told = lab.loop()
    assert told.exit_code == 1
    for part in ("1.txt", "ralph/add-login", "commit or stash them", "Nothing was changed"):
        assert part in told.stderr
    assert [one["type"] for one in lab.events(told) if one["type"].startswith("iteration")] == []
    assert (lab.users_state(), lab.git("rev-parse", "HEAD")) == (before, tip)
    assert not (lab.root / ".ralph/locks/add-login.lock").exists()
    assert "died" not in lab.run("list").stdout
    lab.git("commit", "--quiet", "--all", "--message=mine")
    assert lab.loop().exit_code == 0
    assert (lab.read("1.txt"), lab.checkpoints()) == ("mine\n", ["1", "2"])


@pytest.mark.parametrize("name", ["ralph", "ralph/add-login/mine"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_branch_that_is_in_the_way_is_named_first(lab: Lab, name: str, is_packed: bool) -> None:
    lab.repository().play(default=DONE)
    lab.git("branch", name)
    if is_packed:
        lab.git("pack-refs", "--all")
    told = lab.loop()
    assert told.exit_code == 1
    assert f"`git branch -m {name} other-name`" in told.stderr
    lab.git("branch", "-m", name, "other-name")
    assert lab.loop().exit_code == 0


def test_a_branch_of_the_users_that_moved_on(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    lab.write("newer.txt", "newer\n")
    lab.git("add", "newer.txt")
    lab.git("commit", "--quiet", "--message=newer")
    same_after_a_run(lab)
    assert lab.checkpoints() == ["1", "2"]


def test_a_merge_under_way(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.git("switch", "--quiet", "--create", "side")
    for branch in ("side", "main"):
        lab.git("switch", "--quiet", branch)
        lab.write("README.md", branch)
        lab.git("commit", "--quiet", "--all", f"--message={branch}")
    lab.git("merge", "side", check=False)
    before, refs = lab.users_state(), lab.git("for-each-ref")
    told = lab.loop()
    assert told.exit_code == 1
    assert "in progress" in told.stderr
    assert lab.users_state() == before
    assert lab.git("for-each-ref") == refs
    lab.git("merge", "--abort")
    assert lab.loop().exit_code == 0


# --- a separate working tree ------------------------------------------------------------------------


def test_a_worktree_leaves_the_users_tree_alone(lab: Lab) -> None:
    lab.repository(workspace="worktree", setup=["touch set-up.log"]).play(
        {"story": "1", "steps": [{"run": "while test ! -e go; do sleep 0.02; done"}, *DONE]}, default=DONE
    )
    lab.write(".gitignore", "*.log\ngo\n")
    lab.git("add", ".gitignore")
    lab.git("commit", "--quiet", "--message=ignore")
    lab.write("own.txt", "mine\n")
    before = lab.users_state()
    place = lab.root / ".git/ralph/worktrees/add-login"
    run = lab.start()
    try:
        assert wait_until(lambda: (place / "set-up.log").exists()), run.poll()
        assert lab.users_state() == before
        (place / "go").touch()
        assert run.wait(120) == 0
    finally:
        kill(run)
    assert lab.users_state() == before
    assert lab.checkpoints() == ["1", "2"]


def test_a_second_run_uses_the_same_worktree(lab: Lab) -> None:
    lab.repository(workspace="worktree", setup=["echo x >> ../set-up"]).play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert lab.loop().exit_code == 0
    assert (lab.root / ".git/ralph/worktrees/set-up").read_text() == "x\n"
    assert lab.checkpoints() == ["1", "2"]


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree"])
@pytest.mark.parametrize("before", [[], ["touch other.txt"]], ids=["added", "changed"])
def test_a_setup_command_that_was_added_or_changed_is_executed(lab: Lab, workspace: str, before: list[str]) -> None:
    """The gates that failed without it are run again, although no file of the project has changed."""
    lab.write(".gitignore", "dep.txt\nother.txt\n")
    lab.repository(setup=before, workspace=workspace, tests=["test -f dep.txt"]).play(default=[{"say": "nothing"}])
    lab.loop("--max-iterations", "1")
    lab.play(default=DONE)
    lab.configure(setup=["touch dep.txt"], workspace=workspace, tests=["test -f dep.txt"])
    second = lab.events(lab.loop("--max-iterations", "1"))
    assert [one["command"] for one in second if one["type"] == "setup"] == ["touch dep.txt"]
    assert {(one["when"], one["ok"]) for one in second if one["type"] == "gate"} >= {("before", True), ("after", True)}
    third = lab.events(lab.loop("--max-iterations", "1"))
    assert [one for one in third if one["type"] == "setup"] == [], "it was executed"


# --- inspecting it ----------------------------------------------------------------------------------


@pytest.fixture
def tried(lab: Lab) -> Lab:
    """One failed attempt, and one good one."""
    lab.repository(FIRST).play(turn("1", 1, {"write": "wrong.txt", "text": "wrong\n"}, {"say": "no"}), default=DONE)
    assert lab.loop().exit_code == 0
    return lab


def test_looking_at_what_was_tried(tried: Lab) -> None:
    before = tried.users_state()
    assert "tasks 2/2  stories 1/1" in tried.run("list").stdout
    assert "1.1" in tried.run("show", "add-login").stdout
    rows = tried.run("attempts", "--json").json["attempts"]
    assert [(row["id"], row["status"]) for row in rows] == tried.endings()
    assert rows == tried.run("attempts", "add-login", "--json").json["attempts"]
    assert "add-login-1-1" in tried.run("attempts").stdout
    assert "+wrong" in tried.run("diff", "add-login-1-1").stdout
    assert "wrong.txt" in tried.run("diff", "--stat", "add-login-1-1").stdout
    assert "no story and no attempt 'add-login-9-9'" in tried.run("diff", "add-login-9-9").stderr
    assert tried.users_state() == before


def test_why_it_was_judged_so(tried: Lab) -> None:
    told = tried.run("explain", "add-login-1-1", "--json").json
    assert told["verdict"]["status"] == "failed"
    assert told["decision"]["action"] == "retry"
    assert told["next_entry"] == "add-login-1-2"
    shown = tried.run("explain", "add-login-1-1").stdout
    assert "Reasons for the verdict" in shown
    assert "no story and no attempt 'add-login-9-9'" in tried.run("explain", "add-login-9-9").stderr
    shutil.rmtree(tried.root / ".ralph/runs")
    assert "the run's records are gone" in tried.run("explain", "add-login-1-1").stdout
    assert json.loads(tried.run("explain", "add-login-1-1", "--json").stdout)["verdict"] is None


def test_going_back_after_a_kill(lab: Lab) -> None:
    lab.repository().play(default=[{"write": "half.txt", "text": "half\n"}, {"hang": True}])
    lab.write("own.txt", "mine\n")
    lab.write("README.md", "mine\n")
    before = lab.users_state()
    run = lab.start()
    assert wait_until(lambda: (lab.root / "half.txt").exists())
    assert lab.run("back").exit_code == 1
    kill(run)
    told = lab.run("back")
    assert "your files are restored" in told.stdout
    assert lab.users_state() == before
    assert "Nothing to restore" in lab.run("back").stdout


@pytest.mark.parametrize("rule", [".ralph", ".ralph/", "/.ralph/*", "*.toml"])
def test_our_folder_may_be_ignored(lab: Lab, rule: str) -> None:
    lab.repository().play(default=DONE)
    lab.write(".gitignore", f"{rule}\n")
    lab.git("add", ".gitignore")
    lab.git("commit", "--quiet", "--message=ignore")
    lab.loop()
    assert [status for _, status in lab.endings()] == ["completed"] * 2, lab.entries()
    assert ".ralph" not in lab.git("ls-tree", "-r", "--name-only", "ralph/add-login")


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree"])
def test_uncommitted_files_that_a_run_does_not_see_are_named(lab: Lab, workspace: str) -> None:
    lab.repository(workspace=workspace).play(default=DONE)
    lab.write("README.md", "edited\n")
    lab.write("new.txt", "new\n")
    lab.write(".gitignore", "*.log\n")
    lab.write("openspec/changes/add-login/proposal.md", "part of the change\n")
    lab.loop()
    notices = [event["text"] for event in lab.events() if event["type"] == "notice"]
    [told] = [text for text in notices if "does not include" in text]
    assert told == "the run does not include your uncommitted files: README.md, new.txt"


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree", "here"])
def test_commits_since_the_branch_began_are_named_until_they_are_merged(lab: Lab, workspace: str) -> None:
    lab.repository(workspace=workspace).play({"attempt": 1, "steps": [{"exit": 1}]}, default=DONE)

    def list_told() -> list[str]:
        result = lab.loop("--max-iterations", "1", "--attempts", "1")
        found = [event["text"] for event in lab.events(result) if event["type"] == "notice"]
        return [text for text in found if "does not include" in text]

    def commit(name: str) -> None:
        lab.write(name, "mine\n")
        lab.git("add", "--all")
        lab.git("commit", "--quiet", "--message=mine")

    assert list_told() == []
    commit("openspec/changes/add-login/proposal.md")
    assert list_told() == [], "edits of the plan are merged"
    commit("agent.sh")
    told = "the run does not include your newer commits (agent.sh); to include them, merge main into ralph/add-login"
    assert list_told() == [told]
    lab.git("update-ref", "-d", "refs/ralph/base/add-login")
    assert list_told() == [told], "so it is in a clone, which has only the branch"
    lab.git("switch", "--quiet", "--ignore-other-worktrees", "ralph/add-login")
    lab.git("merge", "--quiet", "-m", "newer", "main")
    lab.git("switch", "--quiet", "main")
    assert list_told() == []
