"""The `setup` commands install packages: before the first agent, and when the project needs others than before."""

from __future__ import annotations

import pytest
from lab import Lab
from loop.shop import attempt
from project import Result
from sandbox.boxes import needs_box

WORKSPACES = [pytest.param("box", marks=needs_box), "worktree"]
TWO = "## 1. One\n\n- [ ] 1.1 Do it\n\n## 2. Two\n\n- [ ] 2.1 Do it\n"
INSTALL = "mkdir -p node_modules && cp package.json node_modules/installed"
GATE = "cmp package.json node_modules/installed"
WORK = [{"run": "echo done > {story}.txt"}, *attempt({})]
NEW = '{"dependencies": {"a": "1"}}'


def build(lab: Lab, workspace: str, setup: str, gate: str = GATE) -> Lab:
    """The first story adds a package, and installs it; the second does something else."""
    lab.write("package.json", "{}")
    lab.write(".gitignore", "node_modules/\n")
    lab.repository(TWO, workspace=workspace, setup=[setup], tests=[gate])
    first = attempt({"package.json": NEW, "node_modules/installed": NEW})
    return lab.play({"story": "1", "steps": first}, default=WORK)


def list_setups(lab: Lab, run: Result) -> list[str]:
    """The stories before which, or for whose proof, setup ran."""
    return [one["story"] for one in lab.events(run) if one["type"] == "setup" and one["story"]]


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_packages_that_a_story_added_are_there_for_the_next_one(lab: Lab, workspace: str) -> None:
    done = build(lab, workspace, INSTALL).loop()
    assert done.exit_code == 0
    assert [one["status"] for one in lab.entries()] == ["completed", "completed"]
    assert list_setups(lab, done)[-2:] == ["1", "2"]
    lab.openspec(TWO + "\n## 3. Three\n\n- [ ] 3.1 Do it\n")
    lab.play(default=WORK)
    done = lab.loop()
    assert done.exit_code == 0
    assert list_setups(lab, done) == [], "nothing has changed since"


def test_packages_that_the_user_added_are_there_for_the_next_story(lab: Lab) -> None:
    build(lab, "worktree", INSTALL).play(default=WORK)
    lab.loop("--max-iterations", "1")
    lab.git("switch", "--quiet", "--ignore-other-worktrees", "ralph/add-login")
    lab.write("package.json", NEW)
    lab.git("commit", "--quiet", "--message=more", "package.json")
    lab.git("switch", "--quiet", "main")
    done = lab.loop()
    assert done.exit_code == 0
    assert list_setups(lab, done) == ["2"]


def test_packages_that_can_not_be_installed_do_not_end_the_run(lab: Lab) -> None:
    """Only what needs them is affected."""
    build(lab, "worktree", f"(test -e {lab.root}/online || ! grep -q a package.json) && {INSTALL}", "true")
    lab.openspec(TWO + "\n## 3. Three\n\n- [ ] 3.1 Do it\n")
    done = lab.loop()
    assert [one["status"] for one in lab.entries()] == ["completed"] * 3
    told = [one["text"] for one in lab.events(done) if one["type"] == "notice"]
    why = "the packages of the project have changed, but the setup command `(test"
    assert len([one for one in told if one.startswith(why)]) == 1, "it is not tried again before the next change"
    lab.write("online", "")
    lab.openspec(TWO + "\n## 3. Three\n\n- [ ] 3.1 Do it\n\n## 4. Four\n\n- [ ] 4.1 Do it\n")
    assert list_setups(lab, lab.loop()) == ["4"], "the next run tries it again"


def test_a_setup_for_a_state_that_git_no_longer_knows_is_repeated(lab: Lab) -> None:
    """The user has rewritten the branch and removed the old commits."""
    build(lab, "worktree", INSTALL).loop("--max-iterations", "1")
    [mark] = lab.root.glob(".git/worktrees/*/ralph-is-set-up")
    mark.write_bytes(b"0" * 40 + b"\n" + mark.read_bytes().partition(b"\n")[2])
    done = lab.loop()
    assert done.exit_code == 0
    assert list_setups(lab, done) == ["2"]


def test_without_setup_commands_the_packages_of_an_attempt_are_its_own_and_that_is_said(lab: Lab) -> None:
    """An agent of the next story installs them again; what git ignores proves nothing."""
    lab.write("package-lock.json", "{}")
    again = {"run": INSTALL}
    build(lab, "worktree", INSTALL).configure(workspace="worktree", tests=[GATE], accept="held")
    lab.play(
        {"story": "1", "steps": [{"write": "package.json", "text": NEW}, again, *WORK]},
        default=[{"run": "rm -r node_modules"}, again, *WORK],
    )
    lab.loop()
    told = [one["text"] for one in lab.events() if one["type"] == "notice"]
    assert 'the next stories don\'t have them. Add `setup = ["npm ci"]` under [run]' in " ".join(told)
    first, second = (one["receipt"] for one in lab.events() if one["type"] == "proof")
    assert first["state"] == "held"
    assert second["why"].endswith("node_modules/installed; let `[run] setup` install what they need")


@needs_box
def test_what_an_attempt_adds_to_an_environment_that_setup_created_proves_nothing(lab: Lab) -> None:
    """The user's own folder has no such environment, as in a fresh clone."""
    plant = {"run": "touch node_modules/planted"}
    gate = "test ! -e 2.txt || test -e node_modules/planted"
    build(lab, "box", INSTALL, gate).play({"story": "2", "steps": [plant, *WORK]}, default=WORK)
    lab.loop()
    [doubt] = [one["receipt"]["why"] for one in lab.events() if one["type"] == "proof" and one["story"] == "2"]
    assert doubt == "the gates pass only with files that git ignores: node_modules/planted"
