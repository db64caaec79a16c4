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
        ("Bump the total to 5", True),
        ("Set the total to 0 for empty carts", True),
        ("Set up the total to be sent by mail", False),
        ("Lower the first letter of the total", False),
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


TOTAL = "tests/test_cart.py::test_cart_total"


@pytest.mark.parametrize(
    ("title", "task", "lost"),
    [
        ("Remove the total", "Delete `Cart.total`, with its tests", TOTAL),
        ("Rename Cart.total to Cart.sum", "Do so everywhere", TOTAL),
        ("Whole cents", "The total must return whole cents", TOTAL),
        ("Whole cents", "`Cart.total()` should return cents instead of euros", TOTAL),
        ("Tax", "The cart's total is incorrect, since it leaves out the tax", TOTAL),
        ("Tax", "Add the tax, and change the total to include it", TOTAL),
        ("Tax", "Fix the total: it should be with the tax", TOTAL),
        ("Invoices", "Replace the receipt, the label and the total by an invoice", TOTAL),
        ("Invoices", "This story replaces the total by a list of amounts", TOTAL),
        ("Get rid of the total", "It is too slow", TOTAL),
        ("Rounding", "We need to change the rounding of the total", TOTAL),
        ("Rounding", "Please update `total` and its tests: prices are in cents now", TOTAL),
        ("Rounding", "In the cart, the total must be rounded", TOTAL),
        ("Rounding", "Round half up instead of down in `total`", TOTAL),
        ("Rounding", "`total([0.1, 0.2])` returns 0.30000000000000004, which is wrong: it must return 0.3", TOTAL),
        ("Rounding", "The total becomes a Decimal", TOTAL),
        ("Rounding", "Convert prices, fees and totals to Decimal", TOTAL),
        ("Drop support for the total in euros", "Do it", TOTAL),
        ("Removal of the total", "Do it", TOTAL),
        ("Pricing", "Move `total` to pricing.py", TOTAL),
        ("Pricing", "Split total into net and gross", TOTAL),
        ("Old endpoints", "The endpoint for totals is removed", "test_endpoint_lists_totals"),
        ("Errors", "Raise ValueError rather than returning None", "test_empty_cart_returns_none"),
        ("Login", "Passwords must be at least 12 characters long", "test_short_password"),
        ("Printing", "Remove `label`, with its test: labels are printed elsewhere now", "cart prints_an_amount"),
        ("Printing", "Change `label` so that it prints a comma instead of a point", "cart > prints an amount"),
        ("Printing", "The expected output of `label` has a comma now", "test_label"),
    ],
)
def test_a_story_that_asks_for_a_change_allows_it(title: str, task: str, lost: str) -> None:
    assert find_allowance(Story("1", title, [Task("1.1", task, False)]), (lost,), [], [])


@pytest.mark.parametrize(
    ("title", "task", "lost"),
    [
        ("Remove items from the cart", "Add Cart.remove(name), which takes an item out of the cart", TOTAL),
        ("Remove items", "Add Cart.remove(name), which takes an item out", "test_items_are_listed"),
        ("Remove items from the cart", "Take an item and its price out", TOTAL),
        ("Add shipping", "Add Cart.shipping(): it must return 5 if the total is below 50, else 0", TOTAL),
        ("Add shipping", "Add Cart.shipping(). It must return 5 if the total is below 50, else 0", TOTAL),
        ("Shipping", "Create `shipping(cart)`, which should return 5 for a total below 50; update the tests", TOTAL),
        ("Shipping", "Shipping must return 5 when the cart total is below 50", TOTAL),
        ("Discounts", "Update prices in the list when a discount is removed from the cart", TOTAL),
        ("Lists", "Let users move an item from the cart to the wish list", TOTAL),
        ("Lists", "As a customer, I want to remove items from my cart", "test_items_are_listed"),
        ("Lists", "Move an item from the cart to the wish list, and show the new total", TOTAL),
        ("Rename carts", "Support renaming a cart in the menu", "test_cart_has_name"),
        ("Rename carts", "Users can rename a cart", "test_cart_has_name"),
        ("Badge", "If the total changes, the badge must be updated", TOTAL),
        ("Badge", "The badge must say how high the total is", TOTAL),
        ("Badge", "Show a hint instead of an empty page if the total is 0", TOTAL),
        ("Merge carts", "Implement Cart.merge(other): items are merged, and the total is the sum", TOTAL),
        ("Speed", "Replace the list in the cart by a dict", TOTAL),
        ("Speed", "Remove the loop from total", TOTAL),
        ("Speed", "The update of the total takes too long", TOTAL),
        ("Import", "Add commands to add, remove and rename items and change totals", TOTAL),
        ("Login", "Add a delay after a wrong password", "test_password"),
        ("Checkout", "Checkout should return an order with the total", TOTAL),
        ("Checkout", "Add a test for the change of the total", TOTAL),
        ("Currency", "Change the currency of the receipt below the total", TOTAL),
        ("Currency", "Turn on rounding for the total", TOTAL),
        ("Cart", "`Cart.clear()` removes all items", "test_items_are_listed"),
    ],
)
def test_a_story_that_only_mentions_a_thing_does_not_allow_it_to_change(title: str, task: str, lost: str) -> None:
    assert not find_allowance(Story("1", title, [Task("1.1", task, False)]), (lost,), [], [])


def test_it_quotes_the_sentence_that_asks() -> None:
    story = Story("1", "Rename the label", [Task("1.1", "Change the total to 4. Add a fee.", False)])
    assert find_allowance(story, LOST, [], []) == "the story asks for it: Change the total to 4."
    assert not find_allowance(story, (*LOST, "test_fee"), [], [])


@pytest.mark.parametrize(("pattern", "wanted"), [("tests/*", True), ("tests/test_cart.py", True), ("legacy/**", False)])
def test_a_setting_allows_what_it_names(pattern: str, wanted: bool) -> None:
    story = Story("1", "Cart", [])
    assert bool(find_allowance(story, LOST, ["tests/test_cart.py"], [pattern])) is wanted
