"""A shop whose stories are proven, for the tests of proof."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

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
# For tests that are not about the test program: pytest takes four times as long to start.
UNITTEST_GATE = f"{sys.executable} -B -m unittest discover -v -s tests"
UNITTESTS = """\
import unittest

from cart import count, total


class TestCart(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)

    def test_count(self):
        self.assertEqual(count([1, 2]), 2)
"""
UNITTEST_OWN = """\
import unittest

from cart import discount


class TestDiscount(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(discount([100], 20), 80)
"""


def attempt(files: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The steps of an agent that writes these files, or deletes those without a text, ticks all tasks and promises."""
    steps = [{"delete": path} if text is None else {"write": path, "text": text} for path, text in files.items()]
    return [*steps, {"tick": "all"}, {"complete": True}]


def make_shop(lab: Lab, gate: str = GATE) -> Lab:
    """A project with two tests that pass."""
    lab.write("cart.py", CART)
    lab.write("tests/test_cart.py", TESTS if gate == GATE else UNITTESTS)
    lab.write("conftest.py", "")
    lab.write(".gitignore", "__pycache__/\nlocal/\npytest/\n")
    return lab.repository(tasks=TASKS, tests=[gate], attempts=2)


def receipts(lab: Lab) -> list[dict[str, Any]]:
    return [event["receipt"] for event in lab.events() if event["type"] == "proof"]


def state_of(lab: Lab) -> str:
    """Runs the loop; returns the proof state of its only story, or `failed`."""
    lab.loop()
    told = receipts(lab)
    return str(told[-1]["state"]) if told else "failed"
