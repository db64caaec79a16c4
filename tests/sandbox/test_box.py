"""A box shows what the user's own folder has, and what happens in it stays in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from lab import DONE, Lab, kill, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND
from sandbox.boxes import needs_box, needs_root

pytestmark = needs_box
SLOT = ".git/ralph/worktrees/add-login"
TASKS = "## 1. First\n\n- [ ] 1.1 Make a\n"


def put_environment(lab: Lab) -> None:
    """A folder and a file that git ignores."""
    lab.write(".gitignore", "node_modules/\n.env\n")
    lab.write("node_modules/tool/index.js", "theirs\n")
    lab.write(".env", "KEY=1\n")


def read(lab: Lab, name: str) -> str:
    return lab.git("show", f"ralph/add-login:{name}")


def play(lab: Lab, *commands: str) -> None:
    lab.play(default=[*({"run": command, "must": True} for command in commands), *DONE])


def test_ignored_folders_and_files_are_there_and_their_changes_go(lab: Lab) -> None:
    put_environment(lab)
    lab.repository(TASKS, workspace="box")
    change = "echo mine > node_modules/tool/index.js; echo new > node_modules/new.js; echo KEY=2 > .env"
    play(lab, "cat node_modules/tool/index.js .env > seen.txt", change, "cat node_modules/tool/index.js > after.txt")
    before = lab.own_files()
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert (read(lab, "seen.txt"), read(lab, "after.txt")) == ("theirs\nKEY=1", "mine")
    assert lab.own_files() == before


def test_a_folder_that_ignores_itself_is_there_and_its_changes_go(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box")
    lab.write(".venv/.gitignore", "*\n")  # as `uv venv` and newer versions of `python -m venv` write it
    lab.write(".venv/bin/tool", "theirs\n")
    before = lab.own_files()
    play(lab, "cat .venv/bin/tool > seen.txt; echo mine > .venv/bin/tool", "cat .venv/bin/tool > after.txt")
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert (read(lab, "seen.txt"), read(lab, "after.txt")) == ("theirs", "mine")
    assert ".venv" not in lab.git("ls-tree", "-r", "--name-only", "ralph/add-login")
    assert lab.own_files() == before


MAKE_ENVIRONMENT = "test -d .venv || { mkdir -p .venv/bin; echo '*' > .venv/.gitignore; echo made >> .venv/bin/tool; }"


def test_a_gate_may_make_a_folder_that_ignores_itself(lab: Lab) -> None:
    gate = f"{MAKE_ENVIRONMENT}; grep made .venv/bin/tool"
    lab.repository(workspace="box", tests=[gate], attempts=1)
    lab.play(default=[{"run": "cat .venv/bin/tool > seen-{story}.txt", "must": True}, *DONE])
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2"]
    assert (read(lab, "seen-1.txt"), read(lab, "seen-2.txt")) == ("made", "made")
    assert not (lab.root / ".venv").exists()


def test_an_environment_that_was_changed_does_not_help_the_gates(lab: Lab) -> None:
    put_environment(lab)
    gate = "test ! -e node_modules/cheat"
    lab.repository(TASKS, workspace="box", tests=[gate], attempts=1)
    play(lab, "touch node_modules/cheat")
    assert lab.loop().exit_code == 0, lab.events()[-1]


def test_a_folder_that_the_user_removes_meanwhile_is_gone_and_the_run_goes_on(lab: Lab) -> None:
    put_environment(lab)
    lab.repository(workspace="box")
    wait = f"touch ready; while test ! -e {lab.root}/.ralph/go; do sleep 0.02; done; rm ready"
    lab.play({"story": "1", "steps": [{"run": wait}, *DONE]}, default=DONE)
    run = lab.start()
    assert wait_until(lambda: (lab.root / SLOT / "ready").exists() or run.poll() is not None)
    shutil.rmtree(lab.root / "node_modules")
    (lab.root / ".ralph/go").touch()
    told = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    assert lab.checkpoints() == ["1", "2"]


def add_submodule(lab: Lab, other: Path) -> None:
    other.mkdir()
    name = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always")
    lab.git("-C", str(other), "init", "--quiet")
    (other / "lib.txt").write_text("library\n")
    lab.git("-C", str(other), "add", "lib.txt")
    lab.git("-C", str(other), *name, "commit", "--quiet", "--message=first")
    lab.git(*name, "submodule", "add", "--quiet", str(other), "libs/other")
    lab.git("commit", "--quiet", "--message=submodule")


def test_a_submodule_has_its_files(lab: Lab, tmp_path: Path) -> None:
    lab.repository(TASKS, workspace="box")
    add_submodule(lab, tmp_path / "other")
    before = lab.git("ls-tree", "HEAD", "libs/other")
    play(lab, "cat libs/other/lib.txt > seen.txt", "git status --porcelain > status.txt")
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert read(lab, "seen.txt") == "library"
    assert "libs" not in read(lab, "status.txt")
    assert lab.git("ls-tree", "ralph/add-login", "libs/other") == before


def test_what_an_agent_changes_in_a_submodule_is_not_committed_and_not_there_for_the_gates(
    lab: Lab, tmp_path: Path
) -> None:
    lab.repository(TASKS, workspace="box", tests=["grep library libs/other/lib.txt"], accept="held")
    add_submodule(lab, tmp_path / "other")
    play(lab, "echo changed > libs/other/lib.txt")
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert (lab.root / "libs/other/lib.txt").read_text() == "library\n"
    [proof] = [event["receipt"] for event in lab.events() if event["type"] == "proof"]
    told = "changed files of a submodule were set aside for the gates, and are not committed: libs/other/lib.txt"
    assert proof["told"][0] == told


def test_gates_that_pass_only_with_an_agents_changes_in_a_submodule_prove_nothing(lab: Lab, tmp_path: Path) -> None:
    gate = "test ! -e made.txt || grep changed libs/other/lib.txt"
    lab.repository(TASKS, workspace="box", tests=[gate], accept="held")
    add_submodule(lab, tmp_path / "other")
    play(lab, "echo changed > libs/other/lib.txt; touch made.txt")
    lab.loop("--attempts", "1")
    [proof] = [event["receipt"] for event in lab.events() if event["type"] == "proof"]
    assert proof["state"] == "unproven"
    assert proof["why"] == "the gates ran with uncommitted files in the submodule libs/other"


@pytest.mark.parametrize("victim", ["loop", "bwrap", "supervisor"])
def test_a_kill_leaves_nothing_behind(lab: Lab, victim: str) -> None:
    put_environment(lab)
    lab.repository(TASKS, workspace="box")
    wait = f"if test ! -e {lab.root}/.ralph/go; then echo half > half.txt; touch ready; sleep 3611; fi"
    lab.play(default=[{"run": wait}, *DONE])
    run = lab.start()
    assert wait_until(lambda: (lab.root / SLOT / "ready").exists() or run.poll() is not None)
    before = lab.own_files()
    (lab.root / ".ralph/go").touch()
    if victim == "loop":
        kill(run, signal.SIGKILL)
    else:
        kill_program(run.pid, victim)
        run.communicate(timeout=PATIENCE)
    assert wait_until(lambda: not processes_with("sleep 3611") and not processes_with(f"{lab.root}/.git/ralph"))
    assert str(lab.root) not in Path("/proc/self/mounts").read_text()
    assert lab.own_files() == before
    if victim == "loop":
        assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1"]


def kill_program(run: int, name: str) -> None:
    """Kills those of a run's processes that have this name in their command."""
    for child in psutil.Process(run).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended with another one
            if any(name in os.path.basename(word) for word in child.cmdline()[:5]):
                child.kill()


@needs_root
def test_a_full_disk_beneath_the_overlay_loses_nothing(lab: Lab) -> None:
    """The layer is on a disk of two megabytes that no other process sees."""
    put_environment(lab)
    lab.repository(workspace="box")
    fill = "head -c 8000000 /dev/zero > node_modules/big; echo kept > a.txt"
    lab.play({"story": "1", "steps": [{"run": fill}, *DONE]}, default=DONE)
    before = lab.own_files()
    boxes = lab.root / ".git/ralph/boxes"
    boxes.mkdir(parents=True)
    script = f"mount -t tmpfs -o size=2m tmpfs {boxes} && exec {COMMAND} run --json"
    told = subprocess.run(["unshare", "--mount", "sh", "-c", script], cwd=lab.root, capture_output=True, check=False)
    assert told.returncode in (0, 1), told
    assert lab.own_files() == before
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2"]
    assert lab.git("fsck", "--strict", "--no-dangling") == ""


def test_a_box_that_does_not_end_by_itself_is_ended(lab: Lab) -> None:
    """Everything in it ignores the signals that ask it to end, and holds its output open."""
    lab.repository(TASKS, workspace="box", attempts=1, timeout="2s")
    lab.play(default=[{"run": "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; sleep 3612' & sleep 3612"}])
    assert lab.loop().exit_code == 1
    assert wait_until(lambda: not processes_with("sleep 3612"))
    [end] = [event for event in lab.events() if event["type"] == "verdict"]
    assert end["status"] == "failed"
    assert "time" in end["reasons"][0], end


def test_two_changes_run_at_once(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box")
    lab.openspec(TASKS, "second")
    lab.git("add", "openspec")
    lab.git("commit", "--quiet", "--message=second")
    lab.play(default=DONE)
    runs = [lab.start("add-login"), lab.start("second")]
    assert [(run.communicate(timeout=PATIENCE), run.returncode)[1] for run in runs] == [0, 0]
    assert (lab.checkpoints(), lab.checkpoints("second")) == (["1"], ["1"])


def test_a_worktree_that_somebody_removed_is_made_anew(lab: Lab) -> None:
    lab.repository(workspace="box").play(default=DONE)
    lab.loop("--max-iterations", "1")
    shutil.rmtree(lab.root / ".git/ralph/worktrees")
    lab.git("worktree", "prune")
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2"]


def test_the_choice_is_said_with_its_reason(lab: Lab) -> None:
    lab.repository(TASKS, workspace="auto").play(default=DONE)
    lab.loop()
    assert [event["kind"] for event in lab.events() if event["type"] == "workspace"] == ["box"]
    assert lab.run("watch", "--replay").stdout.count("work happens in") == 1
    [began] = [event for event in lab.events() if event["type"] == "run_started"]
    assert began["workspace"] == "box"


@pytest.mark.parametrize("workspace", ["box", "worktree"])
@pytest.mark.parametrize(("folder", "command"), [(".", "sh tools/agent.sh"), ("tools", "sh agent.sh")])
def test_an_agent_may_be_a_script_that_is_not_committed(lab: Lab, workspace: str, folder: str, command: str) -> None:
    lab.repository(TASKS, workspace=workspace)
    lab.write("tools/agent.sh", "touch made.txt\n")
    lab.loop("--agent-command", command, cwd=lab.root / folder)
    [verdict, *_] = [event for event in lab.events() if event["type"] == "verdict"]
    assert verdict["files"] == ["made.txt"]
