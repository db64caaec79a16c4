"""The tree stays the user's during a run: what they do there does not affect the run, nor the run their files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import DONE, Lab, kill, wait_until
from patience import PATIENCE
from sandbox.boxes import needs_box

SLOT = ".git/ralph/worktrees/add-login"
COMMITS = {"run": "git commit --quiet --allow-empty --message=agents", "must": True}
EXPECTED = {"1.txt", "2.txt", "README.md"}


def edit(lab: Lab) -> None:
    lab.write("README.md", "mine\n")


def add(lab: Lab) -> None:
    lab.write("new.txt", "mine\n")


def commit(lab: Lab) -> None:
    lab.write("new.txt", "mine\n")
    lab.git("add", "new.txt")
    lab.git("commit", "--quiet", "--message=mine")


def switch(lab: Lab) -> None:
    lab.git("switch", "--quiet", "--create", "other")
    lab.write("README.md", "on another branch\n")
    lab.git("commit", "--quiet", "--all", "--message=other")


def stash(lab: Lab) -> None:
    lab.write("README.md", "mine\n")
    lab.git("stash")


def plan(lab: Lab) -> None:
    assert lab.run("new", "Second thing").exit_code == 0


def delete(lab: Lab) -> None:
    (lab.root / "README.md").unlink()
    shutil.rmtree(lab.root / "openspec")


def write_same_name(lab: Lab) -> None:
    lab.write("1.txt", "mine\n")


def add_hook(lab: Lab) -> None:
    lab.write(".git/hooks/pre-push", "#!/bin/sh\n")


def edit_settings(lab: Lab) -> None:
    path = lab.root / ".ralph/config.toml"
    path.write_text(f"{path.read_text()}# mine\n")


def commit_all_elsewhere(lab: Lab) -> None:
    lab.git("switch", "--quiet", "--create", "x")
    lab.git("add", "--all")
    lab.git("commit", "--quiet", "--message=all")
    lab.git("switch", "--quiet", "main")


def stash_all(lab: Lab) -> None:
    lab.write("new.txt", "mine\n")
    lab.git("stash", "--include-untracked")


def hold_the_index(lab: Lab) -> None:
    """As a commit does while its message is being written."""
    lab.write(".git/index.lock", "")
    lab.write(".git/packed-refs.lock", "")


def look_at_everything(lab: Lab) -> None:
    lab.git("gc", "--quiet", "--prune=now")
    lab.git("log", "--all", "--oneline")
    assert "missing" not in lab.git("fsck", "--full", "--no-dangling")


DOINGS: dict[str, Callable[[Lab], None]] = {
    "edits a file": edit,
    "adds a file": add,
    "commits": commit,
    "switches branches": switch,
    "stashes": stash,
    "plans another change": plan,
    "deletes files": delete,
    "writes a file of the same name": write_same_name,
    "has a git command at work": hold_the_index,
    "looks at everything": look_at_everything,
}
# Only in a box: in a worktree, the agent could have done these too.
IN_A_BOX: dict[str, Callable[[Lab], None]] = {
    "adds a hook": add_hook,
    "edits the settings": edit_settings,
    "commits all elsewhere": commit_all_elsewhere,
    "stashes all": stash_all,
}
CASES = [
    *((kind, doing) for kind in ("box", "worktree") for doing in DOINGS),
    *(("box", doing) for doing in IN_A_BOX),
]


def read_shared(lab: Lab) -> dict[str, bytes]:
    """The user's files in folders where a run has files too."""
    paths = [*lab.root.glob(".git/hooks/*"), *lab.root.glob(".git/*.lock"), lab.root / ".ralph/config.toml"]
    return {str(path): path.read_bytes() for path in paths if path.exists()}


@pytest.mark.parametrize(
    ("kind", "doing"), [pytest.param(*case, marks=needs_box if case[0] == "box" else ()) for case in CASES]
)
def test_what_the_user_does_meanwhile(lab: Lab, kind: str, doing: str) -> None:
    waits = f"touch ready; while test ! -e {lab.root}/.ralph/go; do sleep 0.02; done; rm ready"
    lab.repository(workspace=kind).play({"story": "1", "steps": [COMMITS, {"run": waits}, *DONE]}, default=DONE)
    run = lab.start()
    assert wait_until(lambda: (lab.root / SLOT / "ready").exists() or run.poll() is not None)
    (DOINGS | IN_A_BOX)[doing](lab)
    before = lab.users_state(), read_shared(lab)
    (lab.root / ".ralph/go").touch()
    told = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    assert (lab.users_state(), read_shared(lab)) == before
    listed = lab.git("ls-tree", "-r", "--name-only", "ralph/add-login").split("\n")
    assert {name for name in listed if not name.startswith("openspec/")} == EXPECTED
    assert lab.git("show", "ralph/add-login:README.md") == "hello"
    assert lab.checkpoints() == ["1", "2"]


@pytest.mark.parametrize("kind", [pytest.param("box", marks=needs_box), "worktree", "here"])
def test_a_repository_without_commits(lab: Lab, kind: str) -> None:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.openspec("## 1. First\n\n- [ ] 1.1 Make a\n")
    lab.configure(workspace=kind, tests=["test -e code.txt"])
    lab.write("code.txt", "code\n")
    lab.play(default=DONE)
    before = lab.own_files()
    assert lab.loop().exit_code == 0
    assert lab.own_files() == before
    gates = [event for event in lab.events() if event["type"] == "gate"]
    assert [gate["ok"] for gate in gates] == [True] * len(gates)
    assert lab.git("show", "ralph/add-login:code.txt") == "code"


def test_two_working_trees_of_a_repository_don_t_run_the_same_change_at_once(lab: Lab, tmp_path: Path) -> None:
    """They share its branch. When the first run has ended, or was killed, the second one may start."""
    lab.repository(workspace="worktree", attempts=1).play(default=[{"say": "begun"}, {"hang": True}])
    other = tmp_path / "other"
    lab.git("worktree", "add", "--quiet", "--detach", str(other))
    shutil.copytree(lab.root / ".ralph", other / ".ralph", ignore=shutil.ignore_patterns("runs", "locks"))
    run = lab.start()
    try:
        assert wait_until(lambda: any(event["type"] == "agent" for event in lab.events()))
        told = lab.run("run", "--json", cwd=other)
        assert told.exit_code == 1
        assert "CHANGE_LOCKED" in told.stderr
        assert f"in {lab.root}" in told.stderr
    finally:
        kill(run)
    lab.play(default=DONE)
    assert lab.run("run", "--json", cwd=other).exit_code == 0
