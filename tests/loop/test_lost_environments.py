"""Environments that `setup` creates, but git does not ignore, so that they are removed before a gate can use them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_OWN, attempt, make_shop
from sandbox.boxes import needs_box

from ralphtool.workspace.environments import find_environments, find_installed

# As `python3 -m venv .venv` does it, but faster; since Python 3.13 it writes the last line, too.
MAKE = f"mkdir -p .venv/bin && touch .venv/pyvenv.cfg && ln -sf {sys.executable} .venv/bin/python"
MAKE_IGNORED = f"{MAKE} && echo '*' > .venv/.gitignore"
GATE = ".venv/bin/python -B -m unittest discover -v -s tests"


def build(lab: Lab, setup: str, gate: str = GATE, **settings: Any) -> Lab:
    make_shop(lab, gate).configure(tests=[gate], setup=[setup], accept="held", **{"workspace": "worktree"} | settings)
    return lab.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))


def list_agents_started(lab: Lab) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] == "iteration_started"]


def test_a_run_stops_before_its_first_agent_if_a_gate_needs_an_environment_that_was_removed(lab: Lab) -> None:
    build(lab, MAKE)
    done = lab.loop()
    assert done.exit_code == 1
    assert list_agents_started(lab) == []
    told = "setup created .venv, which git does not ignore on ralph/add-login, so it was removed"
    assert told in done.stderr
    assert "add .venv/ to .gitignore, commit it, and merge that into ralph/add-login" in done.stderr


def test_the_run_works_once_the_advice_is_followed(lab: Lab) -> None:
    build(lab, MAKE)
    assert lab.loop().exit_code == 1
    lab.write(".gitignore", lab.read(".gitignore") + ".venv/\n")
    lab.git("commit", "--quiet", "--message=ignore", ".gitignore")
    assert "does not ignore on ralph/add-login" in lab.loop().stderr, "the branch began before that"
    lab.git("switch", "--quiet", "--ignore-other-worktrees", "ralph/add-login")
    lab.git("merge", "--quiet", "-m", "ignore", "main")
    lab.git("switch", "--quiet", "main")
    assert lab.loop().exit_code == 0


@pytest.mark.parametrize("workspace", ["worktree", pytest.param("auto", marks=needs_box)])
def test_an_environment_that_ignores_itself_stays(lab: Lab, workspace: str) -> None:
    assert build(lab, MAKE_IGNORED, workspace=workspace).loop().exit_code == 0


def test_an_environment_that_no_gate_needs_is_only_named(lab: Lab) -> None:
    done = build(lab, MAKE, f"{sys.executable} -B -m unittest discover -v -s tests").loop()
    assert done.exit_code == 0
    notices = [one["text"] for one in lab.events() if one["type"] == "notice"]
    assert any("setup created .venv, which git does not ignore" in one for one in notices), notices


def test_a_gate_that_lacks_another_program_is_no_reason_to_stop(lab: Lab) -> None:
    build(lab, MAKE, f"{sys.executable} -B -m unittest discover -v -s tests", checks=["pytst -q"]).loop()
    assert [one["status"] for one in lab.entries()] == ["completed"]


def test_a_script_may_need_an_environment_that_the_gate_does_not_name(lab: Lab) -> None:
    build(lab, "mkdir -p node_modules/.bin && touch node_modules/.bin/jest", "sh -c jest")
    assert "setup created node_modules, which git does not ignore" in lab.loop().stderr
    assert lab.entries() == []


@needs_box
def test_doctor_names_an_environment_that_git_does_not_ignore(lab: Lab) -> None:
    build(lab, MAKE, f"test -d .venv && {GATE}", workspace="auto")
    found = json.loads(lab.run("doctor", "--json", "--gates").stdout)["findings"]
    [told] = [one for one in found if one["about"] == "gates"]
    assert told["text"].startswith("setup created .venv, which git does not ignore, so it was removed")
    assert told["mend"] == "add .venv/ to .gitignore, and commit it"


@pytest.mark.parametrize("workspace", ["worktree", pytest.param("auto", marks=needs_box)])
def test_a_branch_that_is_older_than_the_rule_is_refused_although_the_gates_are_known(lab: Lab, workspace: str) -> None:
    """They were tried with the user's files, so the first story is the next to run them."""
    build(lab, MAKE, workspace=workspace)
    lab.git("branch", "ralph/add-login")
    lab.write(".gitignore", lab.read(".gitignore") + ".venv/\n")
    lab.git("commit", "--quiet", "--message=ignore", ".gitignore")
    subprocess.run(MAKE, shell=True, cwd=lab.root, check=True)
    assert "skips this trial" in lab.run("doctor", "--gates").stdout
    for _ in range(2):
        assert "does not ignore on ralph/add-login" in lab.loop().stderr
    assert lab.entries() == []


def test_environments_are_found_by_their_names_and_their_files() -> None:
    files = ["web/node_modules/a/node_modules/b.js", "tools/py/pyvenv.cfg", "tools/py/bin/python", "src/app.py", "env"]
    assert find_environments("", files) == ("tools/py", "web/node_modules")
    assert find_environments("web/", files) == ("node_modules", "tools/py")


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "here"])
def test_an_environment_that_an_agent_adds_to_its_work_is_named_once(lab: Lab, workspace: str) -> None:
    install = {"run": "mkdir -p web/node_modules/.bin && echo x > web/node_modules/.bin/a && echo x >> web/x"}
    tasks = "## 1. One\n\n- [ ] 1.1 Do\n\n## 2. Two\n\n- [ ] 2.1 Do\n"
    lab.repository(tasks, workspace=workspace).play(default=[install, *attempt({})])
    assert lab.loop().exit_code == 0
    [told] = [one["text"] for one in lab.events() if one["type"] == "notice" and "node_modules" in one["text"]]
    assert told == (
        "this attempt adds web/node_modules to its work (1 file), because git does not ignore it; to keep it out of "
        "commits, add web/node_modules/ to .gitignore, and commit that"
    )


def test_only_what_a_package_manager_has_written_is_an_environment_of_its_own() -> None:
    web = ["web/node_modules/.package-lock.json", "web/node_modules/a/node_modules/.bin/b"]
    files = [*web, "tools/py/pyvenv.cfg", "vendor/composer/installed.json", "vendor/a.php"]
    sources = ["env/main.py", "vendor.py", "tests/node_modules/fake/index.js", "vendor2/a.php", "lib/vendor/a.go"]
    assert find_installed([*files, *sources]) == {
        "tools/py": ["tools/py/pyvenv.cfg"],
        "vendor": ["vendor/composer/installed.json", "vendor/a.php"],
        "web/node_modules": web,
    }
