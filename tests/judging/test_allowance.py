from __future__ import annotations

import pytest

from ralphtool.judging.allowance import find_allowance
from ralphtool.specs import Story, Task

LOST = ("tests/test_cart.py::test_total",)


@pytest.mark.parametrize(
    ("story", "wanted"),
    [
        (Story("1", "Rewrite (may change tests)", []), True),
        (Story("1", "Rewrite", [], description="It is old. (May change\ntests)"), True),
        (Story("1", "Rewrite", [Task("1.1", "Do it", False), Task("1.2", "Drop (MAY CHANGE TESTS) it", False)]), True),
        (Story("1", "Rewrite, may change tests", [Task("1.1", "Do it", False)]), False),
        (Story("1", "", []), False),
    ],
)
def test_a_story_can_say_that_tests_may_change(story: Story, wanted: bool) -> None:
    assert (find_allowance(story, LOST, [], []) == "the story says (may change tests)") is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Change the total so that it includes the fee", True),
        ("The total is wrong for empty carts: it should be 0", True),
        ("The total no longer counts what is free", True),
        ("The total should be in cents", True),
        ("Add a total of the month", False),
        ("Change the refund", False),
        ("Change the cart", False),
        ("Do not change the total", False),
        ("Move the total to another file, without changing what it does", False),
        ("Update the documentation of total", False),
        ("Simplify the total", False),
        ("Change the fee. The total stays as it is.", False),
        ("Change the fee. The total must be shown to all.", False),
    ],
)
def test_plain_words_allow_what_they_name(text: str, wanted: bool) -> None:
    assert bool(find_allowance(Story("1", "Cart", [Task("1.1", text, False)]), LOST, [], [])) is wanted


@pytest.mark.parametrize(("pattern", "wanted"), [("tests/*", True), ("tests/test_cart.py", True), ("legacy/**", False)])
def test_a_setting_allows_what_it_names(pattern: str, wanted: bool) -> None:
    story = Story("1", "Cart", [])
    assert bool(find_allowance(story, LOST, ["tests/test_cart.py"], [pattern])) is wanted
