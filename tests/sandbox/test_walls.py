"""Gates run an agent's code, so their effects stay in the box: they run after the agent, before ralphtool's work."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab
from patience import PATIENCE
from sandbox.boxes import needs_box

from ralphtool.sandbox import layers

TASKS = "## 1. First\n\n- [ ] 1.1 Make a\n"
KINDS = [pytest.param("box", marks=needs_box), "worktree"]


def attack(lab: Lab, agent: str, gate: str, kind: str = "box", **more: Any) -> None:
    """A run in which the agent does something, and writes the gate."""
    lab.write("gate.sh", "true\n")
    lab.repository(TASKS, workspace=kind, tests=["sh gate.sh"], **{"attempts": 1, **more})
    lab.play(default=[{"run": agent}, {"run": f"cat > gate.sh <<'END'\n{gate}\nEND"}, *DONE])
    lab.loop()
    assert any(event["type"] == "gate" and event["when"] == "after" for event in lab.events()), lab.events()


def make_victim(lab: Lab, tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "keys").write_text("the user's\n")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_own", [False, True], ids=["new folder", "folder of the user"])
def test_ignored_files_are_not_put_back_through_a_link(lab: Lab, tmp_path: Path, kind: str, has_own: bool) -> None:
    victim = make_victim(lab, tmp_path)
    lab.write(".gitignore", "build/\n")
    if has_own:
        lab.write("build/d/keys", "built\n")
    plants = f"rm -rf build/d; mkdir -p build; ln -s {victim} build/d; exit 1"
    attack(lab, "mkdir -p build/d; echo evil > build/d/keys; echo evil > build/d/new", plants, kind)
    assert [path.name for path in victim.iterdir()] == ["keys"]
    assert (victim / "keys").read_text() == "the user's\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_environment_is_not_put_back_through_a_link(lab: Lab, tmp_path: Path, kind: str) -> None:
    victim = make_victim(lab, tmp_path)
    (victim / "node_modules").mkdir()
    (victim / "node_modules/keys").write_text("the user's\n")
    lab.write(".gitignore", "node_modules/\n")
    lab.write("web/package.json", "{}\n")
    setup = f"test ! -e web/evil || {{ rm -rf web; ln -s {victim} web; exit 1; }}"
    agent = (
        "mkdir -p web/node_modules/x; echo evil > web/node_modules/keys; echo '{ }' > web/package.json; touch web/evil"
    )
    attack(lab, agent, "true", kind, setup=[setup])
    assert (victim / "node_modules/keys").read_text() == "the user's\n"


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_not_put_back_through_a_link(lab: Lab, tmp_path: Path, kind: str) -> None:
    victim = make_victim(lab, tmp_path)
    (victim / "test_a.py").write_text("the user's\n")
    lab.write("tests/test_a.py", "old = 1\n")
    plants = f"rm -rf tests; ln -s {victim} tests"
    attack(lab, "echo 'new = 1' > tests/test_a.py; echo 'x = 1' > src.py", plants, kind, accept="held")
    assert (victim / "test_a.py").read_text() == "the user's\n"
    assert sorted(path.name for path in victim.iterdir()) == ["keys", "test_a.py"]


@pytest.mark.parametrize("kind", KINDS)
def test_learnings_are_not_written_through_a_link(lab: Lab, tmp_path: Path, kind: str) -> None:
    victim = make_victim(lab, tmp_path)
    lab.write("specs/add-login/spec.md", "# Login\n")
    lab.write("specs/add-login/tasks.md", "# Tasks\n\n## Phase 1: First\n\n- [ ] T001 Make a\n")
    lab.repository(TASKS, "other", workspace=kind)
    notes = "specs/add-login/add-login-learnings.md"
    learn = {"run": "ralphtool agent learn 'evil words'", "must": True}
    lab.play(default=[learn, {"run": f"ln -s {victim}/keys {notes}", "must": True}, *DONE])
    assert lab.loop("add-login").exit_code == 0, lab.events()[-1]
    assert (victim / "keys").read_text() == "the user's\n"
    assert "evil words" in lab.git("show", f"ralph/add-login:{notes}")


# --- ralphtool's own folder ---------------------------------------------------------------------------

_WRITES = "echo x > .ralph/planted; mkdir -p .ralph/prompts; echo x > .ralph/config.toml; rm -rf .ralph/progress*"


@needs_box
@pytest.mark.parametrize("who", ["agent", "gate"])
def test_our_own_folder_is_read_only(lab: Lab, who: str) -> None:
    lab.write(".ralph/progress.old", "history\n")
    writes = f"{_WRITES}; true"
    attack(lab, *((writes, "true") if who == "agent" else ("true", writes)))
    assert not (lab.root / ".ralph/planted").exists()
    assert not (lab.root / ".ralph/prompts").exists()
    assert "scripted" in (lab.root / ".ralph/config.toml").read_text()
    assert (lab.root / ".ralph/progress.old").exists()


@needs_box
def test_settings_that_are_not_there_cannot_be_made(lab: Lab) -> None:
    lab.repository(TASKS)
    (lab.root / ".ralph/config.toml").unlink()
    plants = 'printf \'[notify]\\ncommand = ["touch", "/tmp/x"]\\n\' > .ralph/config.toml; true'
    lab.loop("--agent-command", f"sh -c {shlex.quote(plants)}", "--max-iterations", "1")
    assert [event["workspace"] for event in lab.events() if event["type"] == "run_started"] == ["box"]
    assert not (lab.root / ".ralph/config.toml").exists()


@needs_box
def test_the_commands_of_an_agent_work(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box")
    commands = (
        *("context", "status", "recall words", "learn 'use x'", "pattern name description", "task done 1.1"),
        "observe finding title",
    )
    for number in range(2):  # the second time there is a history, and an index of it
        lab.write("openspec/changes/add-login/tasks.md", TASKS)
        lab.play(default=[*({"run": f"ralphtool agent {one}", "must": True} for one in commands), *DONE])
        assert lab.loop().exit_code == 0, (number, lab.events()[-1])


@needs_box
def test_links_in_the_folder_of_an_iteration_lead_nowhere(lab: Lab, tmp_path: Path) -> None:
    """An agent may write there, and ralphtool writes there later."""
    victim = make_victim(lab, tmp_path)
    names = "gate-1-after.log gate-1-after.log.err touched check"
    plants = f"cd .ralph/runs/*/001-*/ && for one in {names}; do ln -s {victim}/keys $one; done"
    lab.repository(TASKS, workspace="box", tests=["echo evil; exit 1"], attempts=1)
    lab.play(default=[{"run": plants, "must": True}, *DONE])
    lab.loop()
    assert (victim / "keys").read_text() == "the user's\n"
    [gate] = [event for event in lab.events() if event["type"] == "gate" and event["when"] == "after"]
    assert "evil" in Path(gate["log"]).read_text()


# --- what one attempt leaves for the next -------------------------------------------------------------


@needs_box
@pytest.mark.parametrize("has_own", [False, True], ids=["new folder", "folder of the user"])
@pytest.mark.parametrize("folder", [".turbo", "target/classes", "node_modules", ".pytest_cache"])
def test_what_a_failed_attempt_left_does_not_help_the_gates(lab: Lab, folder: str, has_own: bool) -> None:
    lab.write(".gitignore", f"{folder.partition('/')[0]}/\n")
    if has_own:
        lab.write(f"{folder}/own", "theirs\n")
    lab.repository(TASKS, workspace="box", tests=[f"! test -e bug || test -e {folder}/ok"], attempts=2)
    first = [{"run": f"mkdir -p {folder}; touch {folder}/ok; touch bug"}]
    lab.play({"story": "1", "attempt": 1, "steps": first}, default=[{"run": "touch bug"}, *DONE])
    lab.loop()
    assert lab.checkpoints() == []


@needs_box
def test_the_gates_of_a_failed_attempt_leave_nothing_in_their_cache(lab: Lab) -> None:
    lab.write("gate.sh", "mkdir -p ~/.cache; echo $RALPH_X >> ~/.cache/known\n")
    gate = "sh gate.sh && { ! test -e bug || test -e ~/.cache/ok; }"
    lab.repository(TASKS, workspace="box", tests=[gate, "test $(wc -l < ~/.cache/known) -ge 1"], attempts=2)
    poison = "touch bug; echo 'mkdir -p ~/.cache; touch ~/.cache/ok; exit 1' > gate.sh"
    second = [{"run": "touch bug"}, *DONE]
    lab.play({"story": "1", "attempt": 1, "steps": [{"run": poison}, *DONE]}, default=second)
    lab.loop()
    ran = [event["ok"] for event in lab.events() if event["type"] == "gate" and event["when"] == "before"]
    assert set(ran) == {True}
    assert lab.checkpoints() == []


@needs_box
def test_what_the_set_up_made_is_there_for_every_attempt_and_as_it_made_it(lab: Lab) -> None:
    lab.write(".gitignore", "deps/\nown/\nversion.txt\n")
    lab.write("own/theirs", "theirs\n")
    setup = "mkdir deps && echo 1 > deps/lib && echo 1 > version.txt && echo 1 > own/made"
    gate = "test $(cat deps/lib version.txt own/made own/theirs | tr -d '\\n') = 111theirs"
    lab.repository(TASKS, workspace="box", setup=[setup], tests=[gate], attempts=2)
    breaks = "echo 2 | tee deps/lib version.txt own/made; rm -rf deps"
    lab.play({"story": "1", "attempt": 1, "steps": [{"run": f"{breaks}; exit 1", "must": True}]}, default=DONE)
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert [event["ok"] for event in lab.events() if event["type"] == "gate"].count(False) == 0
    assert len([event for event in lab.events() if event["type"] == "setup"]) == 1
    assert sorted(path.name for path in lab.root.iterdir() if path.name in ("deps", "version.txt")) == []


@needs_box
def test_files_in_a_folder_that_is_ignored_no_longer_are_committed(lab: Lab) -> None:
    lab.write(".gitignore", "build/\n")
    lab.write("build/own.o", "theirs\n")
    lab.repository(
        workspace="box", tests=["test ! -e .gitignore || grep -q build .gitignore || test -e build/new.json"]
    )
    work = "echo > .gitignore; echo work > build/new.json"
    lab.play({"story": "1", "steps": [{"run": work}, *DONE]}, default=[{"run": "cat build/new.json > seen"}, *DONE])
    assert lab.loop().exit_code == 0, lab.events()[-1]
    listed = lab.git("ls-tree", "-r", "--name-only", "ralph/add-login").split("\n")
    assert [path for path in listed if path.startswith("build/")] == ["build/new.json"]
    assert lab.git("show", "ralph/add-login:seen") == "work"
    assert [path.name for path in (lab.root / "build").iterdir()] == ["own.o"]


# --- special files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", ".gitmodules", "src/.gitignore", "report.xml"])
def test_a_pipe_does_not_keep_us_waiting(lab: Lab, kind: str, name: str) -> None:
    gates = ["true # --junitxml=report.xml"]
    lab.repository(TASKS, workspace=kind, tests=gates, attempts=1, check_blockers=False)
    lab.play(default=[{"run": f"mkdir -p src; mkfifo {name}", "must": True}, *DONE])
    run = lab.start()
    told = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    assert lab.checkpoints() == ["1"]


# --- unreadable files ---------------------------------------------------------------------------------


@needs_box
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ignored_file_of_another_user_is_left_out_and_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can read everything, so the answer for an ordinary user is simulated."""
    lab.write(".gitignore", ".env\nprivate/\n")
    lab.write(".env", "KEY=1\n")
    lab.write("private/x", "x\n")
    found = layers.IgnoredPlaces(["private"], [".env"])
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith((".env", "private")))
    assert layers.list_unreadable(str(lab.root), found) == ["private", ".env"]
    layers.copy_files(str(lab.root), str(lab.root / "slot"), [".env"])
    assert not (lab.root / "slot").exists()


@needs_box
def test_secrets_that_are_withheld_are_named_once(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box", tests=['test -z "$GITHUB_TOKEN"'])
    lab.env |= {"GITHUB_TOKEN": "a long secret"}
    lab.play(default=[{"run": 'test -z "$GITHUB_TOKEN"', "must": True}, *DONE])
    assert lab.loop().exit_code == 0, lab.events()[-1]
    told = [event["text"] for event in lab.events() if event["type"] == "notice" and "GITHUB_TOKEN" in event["text"]]
    assert len(told) == 1
    assert 'env = ["GITHUB_TOKEN"]' in told[0]


def test_a_link_in_the_place_of_an_attempts_folder_is_not_followed(lab: Lab, tmp_path: Path) -> None:
    """Without a box nothing keeps an agent from planting one; its target must not change."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "link").symlink_to("nowhere")
    lab.repository(tasks="## 1. First\n\n- [ ] 1.1 Make a\n", workspace="here")
    plant = f"cd .ralph/runs/*/001-*; here=$PWD; cd ..; rm -rf $here; ln -s {theirs} $here"
    lab.play({"attempt": 1, "steps": [{"run": plant}]}, default=DONE)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert [path.name for path in theirs.iterdir()] == ["link"]
