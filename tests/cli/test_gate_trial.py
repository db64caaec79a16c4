"""`ralphtool doctor --gates`: runs the gates where the next run would, and checks that they can fail."""

from __future__ import annotations

import json
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
