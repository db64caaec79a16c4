"""`ralphtool doctor --gates`: runs the gates where the next run would, and checks that they can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, TASKS, UNITTEST_GATE, UNITTEST_OWN, UNITTESTS, attempt, make_shop
from sandbox.boxes import needs_box


def examine(lab: Lab) -> list[dict[str, Any]]:
    """Its findings about the gates."""
    found = json.loads(lab.run("doctor", "--json", "--gates").stdout)["findings"]
    return [one for one in found if one["about"] == "gates"]


def describe(found: list[dict[str, Any]]) -> list[str]:
    return [f"{one['state']}: {one['text']}" for one in found]


def list_gates(lab: Lab) -> list[str]:
    return [event["when"] for event in lab.events() if event["type"] == "gate"]


def list_left(lab: Lab) -> tuple[str, str, list[str]]:
    """What a trial could leave behind: refs, working trees, and folders of ralphtool."""
    ours = lab.root / ".git/ralph"
    folders = [str(path) for name in ("worktrees", "boxes") for path in ours.glob(f"{name}/*")]
    return lab.git("for-each-ref"), lab.git("worktree", "list"), folders


@pytest.fixture
def shop(lab: Lab) -> Lab:
    make_shop(lab, UNITTEST_GATE).configure(checks=["true"], tests=[UNITTEST_GATE], workspace="auto", attempts=1)
    return lab.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))


@needs_box
def test_gates_are_tried_in_a_box_and_the_next_run_need_not_do_it_again(shop: Lab) -> None:
    before = list_left(shop)
    blind, sees, used = describe(examine(shop))
    assert blind.startswith("ok: `true` is green")
    assert blind.endswith("it stays green when the code is broken")
    assert sees.startswith(f"ok: `{UNITTEST_GATE}` is green (2 passed)")
    assert "broken" not in sees
    assert used == "ok: tried in a box: the next run works there and skips this trial"
    assert list_left(shop) == before
    assert shop.git("status", "--porcelain").split() == ["??", ".ralph/"]
    assert shop.loop().exit_code == 0
    assert "blind" not in list_gates(shop)
    assert [event["kind"] for event in shop.events() if event["type"] == "workspace"] == ["box"]


def make_red_in_a_box(lab: Lab) -> str:
    """Returns a gate that needs a file of the home, which it does not name as a whole."""
    Path(lab.env["HOME"], "marker.txt").write_text("here\n")
    return f'test -f "$(echo ~/marker).txt" && {UNITTEST_GATE}'


@needs_box
def test_what_is_red_in_a_box_only_is_not_tried_again_by_a_change_that_began_before_the_gate(shop: Lab) -> None:
    assert shop.loop("--max-iterations", "1").exit_code == 0
    shop.configure(tests=[make_red_in_a_box(shop)], workspace="auto", attempts=1)
    shop.git("add", "--force", ".ralph/config.toml")
    shop.git("commit", "--quiet", "--message=gate")
    result = shop.run("doctor", "--gates", COLUMNS="300")
    assert "tried in a worktree: the next run works there and skips this trial\n" in result.stdout
    assert "the next run first tries" not in result.stdout, "there is one answer to where it works"
    shop.write("openspec/changes/add-login/tasks.md", f"{TASKS}\n## 2. More\n\n- [ ] 2.1 Add more\n")
    run = shop.loop()
    assert [one["kind"] for one in shop.events(run) if one["type"] == "workspace"] == ["worktree"]
    assert "outside" not in [one["when"] for one in shop.events(run) if one["type"] == "gate"]


@needs_box
def test_a_change_that_began_with_other_files_is_named_because_its_run_tries_the_gates_again(shop: Lab) -> None:
    assert shop.loop("--max-iterations", "1").exit_code == 0
    shop.configure(tests=[make_red_in_a_box(shop)], workspace="auto", attempts=1)
    shop.write("other.py", "MORE = 1\n")
    shop.git("add", "other.py")
    shop.git("commit", "--quiet", "--message=other")
    told = describe(examine(shop))[-1]
    assert told.startswith("ok: tried in a worktree: the next run works there and skips this trial; ")
    assert told.endswith("; but a run of add-login, which began with other files, first tries them again")


@needs_box
def test_gates_that_can_t_fail_are_named(shop: Lab) -> None:
    shop.configure(tests=["true"], workspace="auto")
    found = examine(shop)
    [warning] = [one for one in found if one["state"] == "warning"]
    assert warning["text"] == "`true` stays green there when the code is broken: it proves nothing"
    assert warning["mend"] == "name a command that runs your code under [verify]"


def make_editable(lab: Lab, workspace: str) -> Lab:
    """A project whose tests always import the code of the user's own folder."""
    lab.write("src/cart.py", CART)
    lab.write("tests/test_cart.py", UNITTESTS)
    lab.write(".gitignore", "__pycache__/\n")
    return lab.repository(tasks=TASKS, tests=[f"PYTHONPATH={lab.root}/src {UNITTEST_GATE}"], workspace=workspace)


def test_a_worktree_in_which_gates_are_blind_can_t_be_used(lab: Lab) -> None:
    [found] = examine(make_editable(lab, "worktree"))
    assert found["state"] == "wrong"
    assert "stays green there when the code is broken" in found["text"]
    assert 'workspace = "worktree"' in found["text"] + found["mend"]
    assert list_left(lab)[2] == []
    assert lab.read("src/cart.py") == CART


def test_what_is_red_in_a_worktree_is_told_with_its_output(shop: Lab) -> None:
    shop.configure(tests=["cat cart.py nothing"], workspace="worktree")
    red, used = describe(examine(shop))
    assert red.startswith("wrong: `cat cart.py nothing` is already red (exit status 1)")
    assert "nothing: No such file" in red
    assert used.startswith("ok: tried in a worktree")


def test_a_set_up_that_fails(shop: Lab) -> None:
    shop.configure(tests=["true"], workspace="worktree", setup=["echo no room >&2; exit 5"])
    [found] = examine(shop)
    assert found["text"].startswith("the setup command `echo no room >&2; exit 5` failed (exit status 5)")
    assert found["text"].endswith("\n    no room")
    assert list_left(shop)[2] == []


def test_what_a_killed_trial_left_is_cleared_away(shop: Lab) -> None:
    shop.configure(tests=["true"], workspace="worktree")
    before = list_left(shop)
    left = shop.root / ".git/ralph/worktrees/_trial-4194305"  # no process has this id
    shop.git("worktree", "add", "--quiet", "--detach", str(left))
    shop.git("update-ref", "refs/ralph/trials/_trial-4194305", "HEAD")
    examine(shop)
    assert list_left(shop) == before
