"""The diff guard on Python: honest work is not reported."""

from __future__ import annotations

import textwrap

import pytest
from judging.guard.samples import EQUAL, PYTHON, RAISES, TOTAL, altered, decorated, edit, kinds

from ralphtool.judging.guard import diff

PYTHON_HONEST = {
    "nothing": PYTHON,
    "a test more": PYTHON + "\n    def test_more():\n        assert Cart().more() == 1\n",
    "a skipped test more": PYTHON
    + "\n    @pytest.mark.skipif(WINDOWS, reason='x')\n    def test_more():\n        assert 1\n",
    "an assertion more": altered(EQUAL, f"{EQUAL}\n        assert cart.owner is None"),
    "another value": altered(EQUAL, "assert total(cart) == 4"),
    "another value and subject": altered(EQUAL, "assert cart.total() == 4"),
    "stronger": altered("assert Cart().size == 0", "assert Cart().items == []"),
    "a message": altered(EQUAL, f'{EQUAL}, "wrong total"'),
    "type: ignore": altered(EQUAL, f"{EQUAL}  # type: ignore  # noqa: PLR2004"),
    "other quotes": altered('cart.add("book", 3)', "cart.add('book', 3)"),
    "reformatted": altered(
        EQUAL, "assert (\n            total(\n                cart,\n            )\n            == 3\n        )"
    ),
    "variables renamed": PYTHON.replace("cart", "basket"),
    "test renamed": altered("def test_total", "def test_total_of_one_book"),
    "test moved into the class": altered(TOTAL, "") + textwrap.indent(TOTAL.replace("()", "(self)", 1), "    "),
    "class renamed": altered("class TestCart", "class TestBasket"),
    "order": altered(TOTAL, "") + "\n" + TOTAL,
    "with a helper": altered(f"        {EQUAL}\n        assert cart.size == 1\n", "        holds(cart, 3, 1)\n")
    + "\n    def holds(cart, price, size):\n        assert total(cart) == price\n        assert cart.size == size\n",
    "with a fixture": altered('():\n        cart = Cart()\n        cart.add("book", 3)\n', "(cart):\n")
    + "\n    @pytest.fixture\n    def cart():\n"
    + '        cart = Cart()\n        cart.add("book", 3)\n        return cart\n',
    "split in two": altered(
        "        assert cart.size == 1\n",
        '\n\n    def test_size():\n        cart = Cart()\n        cart.add("book", 3)\n        assert cart.size == 1\n',
    ),
    "merged into a tuple": altered(
        f"        {EQUAL}\n        assert cart.size == 1\n", "        assert (total(cart), cart.size) == (3, 1)\n"
    ),
    "merged by and": altered(
        f"        {EQUAL}\n        assert cart.size == 1\n", "        assert total(cart) == 3 and cart.size == 1\n"
    ),
    "the whole for its parts": altered(
        f"        {EQUAL}\n        assert cart.size == 1\n",
        '        assert cart == Cart([("book", 3)])\n        assert total(cart) == 3\n',
    ),
    "as a loop": altered(
        f"        {EQUAL}\n        assert cart.size == 1\n",
        "        for got, want in [(total(cart), 3), (cart.size, 1)]:\n            assert got == want\n",
    ),
    "parametrized": altered(
        TOTAL,
        '    @pytest.mark.parametrize(("price", "size"), [(3, 1), (4, 1)])\n'
        "    def test_total(price, size):\n        cart = Cart()\n        cart.add('book', price)\n"
        "        assert total(cart) == price\n        assert cart.size == size\n",
    ),
    "exception narrowed": altered("ValueError", "ParseError"),
    "another match": altered('match="no number"', 'match="not a number"'),
    "raises became a value": altered(
        f'        with {RAISES}:\n            parse("x")', '        assert parse("x") == 0'
    ),
    "a mark that skips nothing": decorated("@pytest.mark.slow"),
    "a docstring": altered("def test_total():\n", 'def test_total():\n        """Adds up."""\n'),
    "async": altered("def test_total", "async def test_total"),
}


@pytest.mark.parametrize("name", PYTHON_HONEST)
def test_honest_python_is_silent(name: str) -> None:
    assert diff.inspect_changes([edit("tests/test_cart.py", PYTHON, PYTHON_HONEST[name])]) == []


UNITTEST = """\
    class TestCart(TestCase):
        def test_total(self):
            self.assertEqual(total(self.cart), 3)
            self.assertRaises(ValueError, parse, "x")
            self.mock.assert_called_once_with(1)
"""
UNITTEST_CASES = [
    ("assertEqual(total(self.cart), 3)", "assertTrue(total(self.cart))", ["assertion-weakened"]),
    ("assertEqual(total(self.cart), 3)", "assertIn(total(self.cart), [3, 4])", ["assertion-weakened"]),
    ("assertEqual(total(self.cart), 3)", "assertIsNotNone(total(self.cart))", ["assertion-weakened"]),
    ("assertEqual(total(self.cart), 3)", "assertAlmostEqual(total(self.cart), 3)", ["assertion-weakened"]),
    ("assertEqual(total(self.cart), 3)", "assertGreater(total(self.cart), 2)", ["assertion-weakened"]),
    ("assertEqual(total(self.cart), 3)", "assertTrue(True)", ["assertion-weakened"]),
    ("assertRaises(ValueError, ", "assertRaises(Exception, ", ["assertion-weakened"]),
    ("assert_called_once_with(1)", "assert_called()", ["assertion-weakened"]),
    ("self.assertEqual(total(self.cart), 3)", "assert total(self.cart) == 3", []),
    ("assertEqual(total(self.cart), 3)", "assertEqual(total(self.cart), 4)", []),
    ("assertEqual(total(self.cart), 3)", "assertEqual(3, total(self.cart))", []),
    ('self.assertRaises(ValueError, parse, "x")', 'with pytest.raises(ValueError):\n                parse("x")', []),
    ("assert_called_once_with(1)", "assert_called_once_with(2)", []),
]


@pytest.mark.parametrize(("old", "new", "wanted"), UNITTEST_CASES)
def test_unittest(old: str, new: str, wanted: list[str]) -> None:
    assert kinds(edit("tests/test_cart.py", UNITTEST, altered(old, new, UNITTEST))) == wanted


THREE = """\
    def test_add_small():
        assert add(1, 2) == 3

    def test_add_big():
        assert add(100, 200) == 300

    def test_add_negative():
        assert add(-1, -2) == -3
"""
ONE = """\
    @pytest.mark.parametrize("a, b, want", [(1, 2, 3), (100, 200, 300), (-1, -2, -3)])
    def test_add(a, b, want):
        assert add(a, b) == want
"""


def test_several_tests_may_become_cases() -> None:
    assert diff.inspect_changes([edit("test_add.py", THREE, ONE)]) == []


def test_fewer_cases_than_tests_are_named() -> None:
    assert kinds(edit("test_add.py", THREE, ONE.replace(", (100, 200, 300), (-1, -2, -3)", ""))) == ["test-deleted"]


def test_cases_that_go_are_named() -> None:
    [found] = diff.inspect_changes([edit("test_add.py", ONE, ONE.replace(", (-1, -2, -3)", ""))])
    assert (found.kind, found.detail) == ("test-deleted", "test_add: 3 cases, now 2")


TABLE = """\
    CASES = [(1, 2, 3), (100, 200, 300), (-1, -2, -3)]

    @pytest.mark.parametrize("a, b, want", CASES)
    def test_add(a, b, want):
        assert add(a, b) == want
"""


def test_cases_may_stand_in_a_table_or_be_counted_by_nobody() -> None:
    assert diff.inspect_changes([edit("test_add.py", ONE, TABLE)]) == []
    assert diff.inspect_changes([edit("test_add.py", THREE, TABLE)]) == []
    assert diff.inspect_changes([edit("test_add.py", ONE, TABLE.replace("CASES = ", "CASES = load() or "))]) == []
    assert kinds(edit("test_add.py", TABLE, TABLE.replace(", (-1, -2, -3)", ""))) == ["test-deleted"]


def test_an_unrelated_table_of_cases_hides_no_lost_test() -> None:
    more = """
    @pytest.mark.parametrize("name", ["a", "b", "c"])
    def test_color(name):
        paint = Color.from_name(name)
        assert paint.visible
    """
    assert kinds(edit("test_add.py", THREE, more)) == ["test-deleted"]


GET = """\
    def test_get_user():
        assert get_user(1).name == "ann"

    def test_get_user_twice():
        user = get_user(2)
        assert user.status == 200
        assert user.name == "bob"

    @pytest.mark.skip
    def test_later():
        assert get_user(3).name is True
"""
GET_HONEST = {
    "all renamed": GET.replace("get_user", "fetch_user"),
    "merged": """\
    def test_users():
        assert get_user(1).name == "ann"
        user = get_user(2)
        assert user.status == 200
        assert user.name == "bob"

    @pytest.mark.skip
    def test_later():
        assert get_user(3).name is True
    """,
    "the whole": altered(
        '        assert user.status == 200\n        assert user.name == "bob"\n',
        '        assert user == User(200, "bob")\n',
        GET,
    ),
    "skipped less": altered("mark.skip", 'mark.skipif(WINDOWS, reason="x")', GET),
    "skipped no more": altered("    @pytest.mark.skip\n", "", GET),
    "another reason": altered("mark.skip", 'mark.skip(reason="x")', GET),
    "is True is the truth": altered("name is True", "name", GET),
}


@pytest.mark.parametrize("name", GET_HONEST)
def test_more_honest_python_is_silent(name: str) -> None:
    assert diff.inspect_changes([edit("test_user.py", GET, GET_HONEST[name])]) == []


USUAL = """
    def test_list_orders():
        answer = client.get("/orders")
        assert answer.pages == 7
        assert user.status == 200
"""


def test_the_same_assertion_in_another_test_is_no_excuse() -> None:
    gutted = altered("        assert user.status == 200\n", "", GET)
    assert kinds(edit("test_user.py", GET, gutted + USUAL)) == ["assertion-weakened"]
    lost = GET.replace(GET[GET.index("    def test_get_user_twice") : GET.index("    @pytest")], "")
    more = USUAL + '        assert user.name == "bob"\n'
    assert kinds(edit("test_user.py", GET, lost + more)) == ["test-deleted"]


def test_a_skip_beside_one_that_has_a_condition_is_one_more() -> None:
    old = "    def test_a():\n        if WINDOWS:\n            pytest.skip()\n        assert f() == 1\n"
    new = old.replace("        if WINDOWS", "        pytest.skip()\n        if WINDOWS")
    assert kinds(edit("test_a.py", old, new)) == ["test-skipped"]
    assert diff.inspect_changes([edit("test_a.py", old, old.replace("skip()", 'skip("why")'))]) == []


def test_a_class_to_be_inherited_holds_tests() -> None:
    old = "    class Common:\n        def test_a(self):\n            assert self.f() == 1\n"
    assert diff.inspect_changes([edit("test_a.py", old, old.replace("Common", "Shared"))]) == []
    assert kinds(edit("test_a.py", old, old.replace("== 1", "> 0"))) == ["assertion-weakened"]


def test_a_fixture_is_no_test_whatever_its_name() -> None:
    fixture = "\n    @pytest.fixture\n    def test_client():\n        return Client()\n"
    assert diff.inspect_changes([edit("test_user.py", GET + fixture, GET)]) == []
