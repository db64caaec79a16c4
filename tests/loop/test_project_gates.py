"""A project that begins without tests: its stories can be proven as soon as the work so far has some."""

from __future__ import annotations

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_OWN, UNITTESTS, attempt, receipts
from sandbox.boxes import needs_box

TASKS = "## 1. Begin\n\n- [ ] 1.1 Write the cart\n\n## 2. Discount\n\n- [ ] 2.1 Write it\n"
BEGIN = attempt({"cart.py": CART, "tests/__init__.py": "", "tests/test_cart.py": UNITTESTS})
DISCOUNTS = attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN})


def begin(lab: Lab, workspace: str = "worktree") -> Lab:
    lab.repository(TASKS, workspace=workspace, accept="held")
    text = lab.read(".ralph/config.toml")
    lab.write(".ralph/config.toml", "\n".join(line for line in text.split("\n") if not line.startswith("tests = ")))
    return lab.play({"story": "1", "steps": BEGIN}, default=DISCOUNTS)


def list_notices(lab: Lab) -> list[str]:
    return [one["text"] for one in lab.events() if one["type"] == "notice" and "the work has tests" in one["text"]]


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "here"])
def test_stories_are_proven_as_soon_as_there_are_tests(lab: Lab, workspace: str) -> None:
    begin(lab, workspace).loop()
    [told] = list_notices(lab)
    assert told.startswith("the work has tests now: from here on, the gates are `")
    assert told.endswith("`; [verify] can set others")
    assert [(one["state"], one["why"]) for one in receipts(lab)] == [("unproven", "there is no gate"), ("proven", "")]
    lab.openspec(TASKS + "\n## 3. Tax\n\n- [ ] 3.1 Write it\n")
    lab.play(default=attempt({"notes.txt": "tax"}))
    lab.loop()
    assert len(list_notices(lab)) == 2, "the next run finds them on the branch"
    assert receipts(lab)[-1]["state"] == "held"


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree"])
def test_tests_that_notice_no_broken_code_hold_nothing(lab: Lab, workspace: str) -> None:
    """In a worktree they might test the code of the user's own folder, so that they can't be used there."""
    hollow = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    first = attempt({"cart.py": CART, "tests/__init__.py": "", "tests/test_cart.py": hollow})
    begin(lab, workspace).play({"story": "1", "steps": first}, default=attempt({"cart.py": CART + DISCOUNT}))
    lab.loop()
    [told] = list_notices(lab)
    is_used = "can't be used" not in told
    assert is_used == (workspace == "box")
    why = "no gate noticed broken code (`python -m unittest`)" if is_used else "there is no gate"
    assert [one["why"] for one in receipts(lab)] == ["there is no gate", why]


def test_tests_that_notice_no_broken_code_prove_nothing_until_they_do(lab: Lab) -> None:
    hollow = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    first = attempt({"cart.py": CART, "tests/__init__.py": "", "tests/test_smoke.py": hollow})
    second = attempt({"tests/test_cart.py": UNITTESTS})
    begin(lab).openspec(TASKS + "\n## 3. Tax\n\n- [ ] 3.1 Write it\n")
    lab.play({"story": "1", "steps": first}, {"story": "2", "steps": second}, default=DISCOUNTS)
    lab.loop()
    assert [one["why"] for one in receipts(lab)] == ["there is no gate"] * 2 + [""]
    refused, adopted = list_notices(lab)
    assert "but its gates (`python -m unittest`) can't be used: " in refused
    assert "broken" in refused
    assert "from here on" in adopted


def test_gates_that_had_no_code_to_notice_hold_nothing(lab: Lab) -> None:
    first = attempt({"Makefile": "test:\n\t@echo ok\n"})
    begin(lab).play({"story": "1", "steps": first}, default=attempt({"cart.py": CART}))
    lab.loop()
    assert [one["why"] for one in receipts(lab)] == ["there is no gate", "no gate noticed broken code (`make test`)"]


@needs_box
def test_lanes_rest_once_there_are_tests_to_try(lab: Lab) -> None:
    begin(lab, "box").configure(workspace="box", side_by_side=2, accept="held")
    text = lab.read(".ralph/config.toml")
    lab.write(".ralph/config.toml", "\n".join(line for line in text.split("\n") if not line.startswith("tests = ")))
    lab.openspec("".join(f"## {number}. Do\n\n- [ ] {number}.1 Do it\n\n" for number in range(1, 6)))
    later = [{"run": "sleep 0.5; echo done > {story}.txt"}, *attempt({})]
    lab.play({"story": "1", "steps": BEGIN}, default=later)
    lab.loop()
    assert [one["state"] for one in receipts(lab)][-2:] == ["held", "held"]


def test_no_gates_are_tried_beyond_a_limit(lab: Lab) -> None:
    begin(lab).loop("--max-iterations", "1")
    assert [one for one in lab.events() if one["type"] == "gate"] == []


def test_nothing_is_looked_for_where_the_user_wants_no_tests(lab: Lab) -> None:
    begin(lab).configure(workspace="worktree", tests=[], accept="held")
    lab.loop()
    assert list_notices(lab) == []
    assert [one["why"] for one in receipts(lab)] == ["there is no gate"] * 2
