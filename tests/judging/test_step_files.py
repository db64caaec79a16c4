"""Steps and hooks of scenarios, which no name of a test shows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from judging.test_test_side import change, serve

from ralphtool.judging.step_files import find_step_files

BEHAVE = "from behave import given\n"
SCENARIO = {"features/cart.feature": "Feature: cart\n"}


@pytest.mark.parametrize(
    ("path", "text", "files", "is_found"),
    [
        ("features/steps/cart.py", BEHAVE, SCENARIO, True),
        ("features/steps/common.py", BEHAVE, {**SCENARIO, "shop.py": "from .common import a\n"}, True),
        ("features/steps/shared.py", "def build(): ...\n", SCENARIO, True),
        ("features/environment.py", "def before_all(context): ...\n", SCENARIO, True),
        ("features/support/world.js", "", {"features/a/b/cart.feature": ""}, True),
        ("qa/steps.py", BEHAVE, SCENARIO, True),
        ("shop/runner.py", BEHAVE, {**SCENARIO, "shop/cli.py": "from .runner import run\n"}, False),  # the product
        ("features/steps/scale.py", "def scale(): ...\n", {"shop.py": ""}, False),  # no scenarios
        ("src/features/support/Ticket.tsx", "", {**SCENARIO, "src/App.tsx": "import T from './Ticket'\n"}, False),
        ("src/features/support/Ticket.tsx", "", {"src/features/a.feature": "", "src/App.tsx": "'./Ticket'"}, False),
        ("src/features/cart/Cart.tsx", "", {"src/features/cart/cart.feature": ""}, False),
        ("features/steps/data.json", "{}", SCENARIO, False),
    ],
)  # fmt: skip
def test_what_runs_scenarios(path: str, text: str, files: Mapping[str, str], is_found: bool) -> None:
    _, grep = serve({**files, path: text})
    for one in (change(path, text), change(path, None, text)):
        assert find_step_files([one], files, grep) == (frozenset([path]) if is_found else frozenset())
