"""The gates on the tip at the end of a run: what the run already knows about the same files is not measured again."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_GATE, attempt, make_shop

RED = {"cart.py": CART.replace("return sum(prices)", "return 4")}
GREEN = {"cart.py": CART + DISCOUNT}
TWO_STORIES = "## 1. Discount\n\n- [ ] 1.1 a\n\n## 2. More\n\n- [ ] 2.1 b\n"


@pytest.fixture
def shop(lab: Lab) -> Lab:
    return make_shop(lab, UNITTEST_GATE)


def run(shop: Lab, workspace: str) -> tuple[list[str], dict[str, Any]]:
    """When each gate ran, and how the run ended."""
    shop.configure(tests=[UNITTEST_GATE], attempts=1, workspace=workspace)
    events = shop.events(shop.loop())
    return [event["when"] for event in events if event["type"] == "gate"], events[-1]


def test_in_a_box_nothing_is_run_again_if_nothing_was_committed(shop: Lab) -> None:
    shop.play(default=attempt(RED))
    run(shop, "box")  # the first one also tries the gates in a box
    shop.write("other.txt", "no run has seen a tree with this file")
    shop.git("add", "other.txt")
    shop.git("commit", "--quiet", "--message=other")
    shop.git("branch", "-D", "ralph/add-login")
    shop.run("retry", "1")
    whens, end = run(shop, "box")
    assert whens == ["before", "after", "after-again"]
    assert end["tip"] == {
        "ok": True,
        "commit": shop.git("rev-parse", "ralph/add-login"),
        "runs": [{"kind": "tip", "command": UNITTEST_GATE, "ok": True, "tally": "2 passed"}],
    }


def test_what_an_earlier_run_measured_is_measured_again(shop: Lab) -> None:
    shop.play(default=attempt(RED))
    run(shop, "box")
    shop.run("retry", "1")
    whens, end = run(shop, "box")
    assert whens == ["after", "after-again", "tip"]
    assert end["tip"]["ok"] is True


def test_outside_of_a_box_the_agent_may_have_changed_more_than_the_files(shop: Lab) -> None:
    shop.openspec(TWO_STORIES)
    shop.git("commit", "--quiet", "--all", "--message=two")
    shop.play({"story": "2", "steps": attempt(RED)}, default=attempt(GREEN))
    whens, end = run(shop, "here")
    assert whens == ["before", "after", "after", "after-again", "tip"]
    assert end["stories"][0]["state"] == "done"
