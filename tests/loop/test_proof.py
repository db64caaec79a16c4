"""Proof through the whole loop, with a real test program: what a story may claim when it is done."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lab import Lab

CART = "def total(prices):\n    return sum(prices)\n\n\ndef count(prices):\n    return len(prices)\n"
TESTS = """\
from cart import count, total


def test_total():
    assert total([1, 2]) == 3


def test_count():
    assert count([1, 2]) == 2
"""
TASKS = "## 1. Add a discount\n\n- [ ] 1.1 Add discount(prices, percent)\n"
DISCOUNT = "\n\ndef discount(prices, percent):\n    return sum(prices) * (100 - percent) / 100\n"
OWN_TEST = "from cart import discount\n\n\ndef test_discount():\n    assert discount([100], 20) == 80\n"
GATE = f"{sys.executable} -m pytest -q -p no:cacheprovider"


def attempt(files: dict[str, str]) -> list[dict[str, Any]]:
    """The steps of an agent that writes these files, ticks and promises."""
    write = [{"write": path, "text": text} for path, text in files.items()]
    return [*write, {"tick": "all"}, {"complete": True}]


@pytest.fixture
def shop(lab: Lab) -> Lab:
    """A project with two tests that pass."""
    lab.write("cart.py", CART)
    lab.write("tests/test_cart.py", TESTS)
    lab.write("conftest.py", "")
    lab.write(".gitignore", "__pycache__/\nlocal/\npytest/\n")
    return lab.repository(tasks=TASKS, tests=[GATE], attempts=2)


def receipts(lab: Lab) -> list[dict[str, Any]]:
    return [event["receipt"] for event in lab.events() if event["type"] == "proof"]


def state_of(lab: Lab) -> str:
    """What the run says of its only story: the state of proof, or `failed`."""
    lab.loop()
    told = receipts(lab)
    return str(told[-1]["state"]) if told else "failed"


def test_a_story_is_proven_by_its_own_tests(shop: Lab) -> None:
    shop.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": OWN_TEST}))
    assert state_of(shop) == "proven"
    told = receipts(shop)[0]
    assert told["own_count"] == 1
    assert "test_discount" in told["own_tests"][0]
    assert (told["passed_before"], told["passed_after"]) == (2, 3)
    assert shop.git("show", "ralph/add-login:tests/test_discount.py") == OWN_TEST.rstrip()


def test_a_story_without_tests_is_held(shop: Lab) -> None:
    shop.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(shop) == "held"
    assert [run["kind"] for run in receipts(shop)[0]["runs"]] == ["gates"]


def test_an_agent_that_only_ticks_has_done_nothing(shop: Lab) -> None:
    shop.play(default=attempt({}))
    assert state_of(shop) == "failed"
    assert "nothing was changed but the spec" in shop.entries()[0]["summary"]


BROKEN = CART.replace("return sum(prices)", "return 4") + DISCOUNT
CHEATS: dict[str, dict[str, str]] = {
    "expected values edited": {"tests/test_cart.py": TESTS.replace("== 3", "== 4")},
    "the test deleted": {"tests/test_cart.py": TESTS.partition("def test_count")[0].partition("\n\n")[0]},
    "a conftest that replaces runtest": {
        "conftest.py": "import pytest\npytest.Function.runtest = lambda self: None\n",
    },
    "a plugin that sets the exit status": {
        "conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
    },
    "names narrowed": {"pytest.ini": "[pytest]\npython_functions = test_count\n"},
    "a package in place of pytest": {
        "pytest/__init__.py": "",
        "pytest/__main__.py": "print('2 passed in 0.01s')\n",
    },
    "a skip": {
        "tests/test_cart.py": TESTS.replace("def test_total", "import pytest\n@pytest.mark.skip\ndef test_total"),
    },
    "a new test file that patches the source": {
        "tests/test_aaa.py": "import cart\ncart.total = sum\n\n\ndef test_it():\n    assert cart.total([1]) == 1\n",
    },
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_neither_proven_nor_held(shop: Lab, name: str) -> None:
    shop.play(default=attempt({"cart.py": BROKEN, **CHEATS[name]}))
    assert state_of(shop) in ("failed", "unproven")
