"""The diff guard: cheats are named with the right kind, honest work is silent, and nothing makes it fall over."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ralphtool import specs
from ralphtool.judging import guard
from ralphtool.judging.guard import Change, Finding
from ralphtool.specs import Story, Task

OURS = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)


def edit(path: str, old: str | None, new: str | None, old_path: str | None = None) -> Change:
    before, after = (None if text is None else textwrap.dedent(text).encode() for text in (old, new))
    return Change(path, before, after, old_path)


def kinds(*changes: Change) -> list[str]:
    return sorted({finding.kind for finding in guard.look(changes)})


def details(*changes: Change) -> str:
    return "\n".join(finding.detail for finding in guard.look(changes))


# --- which files ------------------------------------------------------------------------------------

TEST_FILES = """
    test_login.py tests/unit/test_a.py pkg/login_test.py app/tests.py tests/support.py
    src/a.test.ts src/a.spec.js src/__tests__/a.tsx a.test.mjs e2e/login.ts test/a.cjs
    pkg/login_test.go tests/it.rs src/tests.rs
    src/test/java/com/a/LoginTest.java LoginTests.java TestLogin.java LoginIT.java src/test/kotlin/LoginTest.kt
    spec/models/user_spec.rb test/user_test.rb
    Shop.Tests/Cart.cs CartTests.cs tests/Unit/CartTest.php Tests/ShopTests/CartTests.swift
    test/shop/cart_test.exs src/cart_test.cc tests/test_cart.cpp CartTest.cpp cart_unittest.cc
"""
OTHER_FILES = """
    login.py src/testing.py latest.py contest.py src/a.ts src/attest.js pkg/login.go testdata/a.go src/lib.rs
    src/main/java/com/a/Login.java Latest.java app/models/user.rb Cart.cs src/Cart.php Sources/Cart.swift
    lib/cart.ex src/cart.cc README.md tests/data.json tests/README.md specs/001-login/tasks.md test Makefile
"""
CONFIGS = """
    conftest.py tests/conftest.py pytest.ini pyproject.toml setup.cfg tox.ini package.json web/package.json
    jest.config.js jest.config.ts jest.config.json vitest.config.mts vite.config.ts Makefile GNUmakefile src/lib.rs
    .coveragerc playwright.config.ts .mocharc.json
"""


@pytest.mark.parametrize("path", TEST_FILES.split())
def test_test_files_are_known_by_name_or_folder(path: str) -> None:
    assert guard.is_test(path)
    assert guard.wants_content(path)


@pytest.mark.parametrize("path", OTHER_FILES.split())
def test_other_files_are_no_tests(path: str) -> None:
    assert not guard.is_test(path)


@pytest.mark.parametrize("path", CONFIGS.split())
def test_configuration_is_read(path: str) -> None:
    assert guard.wants_content(path)


@pytest.mark.parametrize("path", ["src/login.py", "src/a.ts", "README.md", "main.go", "poetry.lock"])
def test_what_says_nothing_about_tests_is_not_read(path: str) -> None:
    assert not guard.wants_content(path)
    assert guard.look([Change(path, b"", b""), Change(path, b"", None), Change(path, None, b"")]) == []


# --- Python: cheats ---------------------------------------------------------------------------------

PYTHON = """\
    import pytest
    from shop import Cart, total, parse


    def test_total():
        cart = Cart()
        cart.add("book", 3)
        assert total(cart) == 3
        assert cart.size == 1


    def test_parse_refuses():
        with pytest.raises(ValueError, match="no number"):
            parse("x")


    class TestCart:
        def test_empty(self):
            assert Cart().size == 0

        def test_smoke(self):
            Cart().add("pen", 1)
"""


def altered(old: str, new: str, text: str = PYTHON) -> str:
    assert old in text
    return text.replace(old, new)


def decorated(mark: str, test: str = "def test_total") -> str:
    return altered(f"    {test}", f"    {mark}\n    {test}")


BODY = """\
        cart = Cart()
        cart.add("book", 3)
        assert total(cart) == 3
        assert cart.size == 1
"""
TOTAL = f"    def test_total():\n{BODY}"
EQUAL = "assert total(cart) == 3"
RAISES = 'pytest.raises(ValueError, match="no number")'

PYTHON_CHEATS = {
    # deleted
    "a test": ("test-deleted", altered(TOTAL, "")),
    "a class": ("test-deleted", PYTHON.partition("    class TestCart")[0]),
    "everything": ("test-deleted", "    import pytest\n"),
    "an empty file": ("test-deleted", ""),
    "no longer parses": ("test-deleted", altered("def test_total():", "def test_total(:")),
    "del": ("test-skipped", PYTHON + "\n    del test_total\n"),
    "set to None": ("test-skipped", PYTHON + "\n    test_total = None\n"),
    "a class that nobody collects": ("test-skipped", altered("class TestCart:", "class OldCart:")),
    # skipped
    "mark.skip": ("test-skipped", decorated("@pytest.mark.skip")),
    "mark.skip with a reason": ("test-skipped", decorated('@pytest.mark.skip(reason="flaky")')),
    "mark.skipif": ("test-skipped", decorated("@pytest.mark.skipif(True, reason='x')")),
    "mark.xfail": ("test-skipped", decorated("@pytest.mark.xfail")),
    "mark.xfail on a class": ("test-skipped", decorated("@pytest.mark.xfail(strict=False)", "class TestCart")),
    "unittest.skip": ("test-skipped", decorated('@unittest.skip("later")')),
    "unittest.skipIf": ("test-skipped", decorated('@unittest.skipIf(True, "later")')),
    "expectedFailure": ("test-skipped", decorated("@unittest.expectedFailure")),
    "pytest.skip()": (
        "test-skipped",
        altered("        cart = Cart()\n", '        pytest.skip("later")\n        cart = Cart()\n'),
    ),
    "pytest.skip() in a condition": (
        "test-skipped",
        altered("        cart = Cart()\n", '        if CI:\n            pytest.skip("x")\n        cart = Cart()\n'),
    ),
    "pytest.xfail()": (
        "test-skipped",
        altered("        cart = Cart()\n", '        pytest.xfail("x")\n        cart = Cart()\n'),
    ),
    "skipTest": (
        "test-skipped",
        altered("            Cart().add", '            self.skipTest("x")\n            Cart().add'),
    ),
    "raise SkipTest": (
        "test-skipped",
        altered("        cart = Cart()\n", "        raise SkipTest\n        cart = Cart()\n"),
    ),
    "importorskip": ("test-skipped", altered("    from shop", '    pytest.importorskip("nothing")\n    from shop')),
    "pytestmark": ("test-skipped", altered("    from shop", "    pytestmark = pytest.mark.skip\n    from shop")),
    "pytestmark in a list": (
        "test-skipped",
        altered("    from shop", "    pytestmark = [pytest.mark.slow, pytest.mark.skip(reason='x')]\n    from shop"),
    ),
    "pytestmark of a class": (
        "test-skipped",
        altered("class TestCart:\n", "class TestCart:\n        pytestmark = pytest.mark.skip\n\n"),
    ),
    "__test__": ("test-skipped", altered("class TestCart:\n", "class TestCart:\n        __test__ = False\n\n")),
    "__test__ of a function": ("test-skipped", PYTHON + "\n    test_total.__test__ = False\n"),
    "commented out": (
        "test-skipped",
        altered(TOTAL, "\n".join(f"    # {line.strip()}" for line in TOTAL.splitlines()) + "\n"),
    ),
    "in a string": ("test-skipped", altered(TOTAL, f'    """\n{TOTAL}    """\n')),
    "under another name": ("test-skipped", altered("def test_total", "def _test_total")),
    "if False around a test": (
        "test-skipped",
        altered(TOTAL, "    if False:\n" + textwrap.indent(TOTAL, "    ")),
    ),
    "if False around a body": (
        "test-skipped",
        altered(BODY, "        if False:\n" + textwrap.indent(BODY, "    ")),
    ),
    "return": ("test-skipped", altered("        cart = Cart()\n", "        return\n        cart = Cart()\n")),
    "return in a condition": (
        "test-skipped",
        altered("        cart = Cart()\n", "        if CI:\n            return\n        cart = Cart()\n"),
    ),
    "a fixture for all that skips": (
        "test-skipped",
        altered(
            "    class Test",
            "    @pytest.fixture(autouse=True)\n    def off():\n        pytest.skip()\n\n\n    class Test",
        ),
    ),
    # weakened
    "assertion removed": ("assertion-weakened", altered(f"        {EQUAL}\n", "")),
    "assertions after a return": (
        "assertion-weakened",
        altered(f"        {EQUAL}\n", f"        return\n        {EQUAL}\n"),
    ),
    "body emptied": ("assertion-weakened", altered(BODY, "        pass\n")),
    "body emptied, ellipsis": ("assertion-weakened", altered(BODY, "        ...\n")),
    "smoke test emptied": (
        "assertion-weakened",
        altered('            Cart().add("pen", 1)', '            """Later."""'),
    ),
    "assert True": ("assertion-weakened", altered(EQUAL, "assert True")),
    "assert 1": ("assertion-weakened", altered(EQUAL, "assert 1")),
    "or True": ("assertion-weakened", altered(EQUAL, f"{EQUAL} or True")),
    "a tuple": ("assertion-weakened", altered(EQUAL, 'assert (total(cart) == 3, "wrong")')),
    "itself": ("assertion-weakened", altered("assert cart.size == 1", "assert cart.size == cart.size")),
    "ANY": ("assertion-weakened", altered(EQUAL, "assert total(cart) == ANY")),
    "isinstance object": ("assertion-weakened", altered(EQUAL, "assert isinstance(total(cart), object)")),
    "in": ("assertion-weakened", altered(EQUAL, "assert total(cart) in (2, 3)")),
    ">=": ("assertion-weakened", altered(EQUAL, "assert total(cart) >= 3")),
    "is not None": ("assertion-weakened", altered(EQUAL, "assert total(cart) is not None")),
    "truth": ("assertion-weakened", altered(EQUAL, "assert total(cart)")),
    "approx": ("assertion-weakened", altered(EQUAL, "assert total(cart) == pytest.approx(3)")),
    "!=": ("assertion-weakened", altered(EQUAL, "assert total(cart) != 4")),
    "isinstance": ("assertion-weakened", altered(EQUAL, "assert isinstance(total(cart), int)")),
    "or another value": ("assertion-weakened", altered(EQUAL, f"{EQUAL} or total(cart) == 4")),
    "swallowed": (
        "assertion-weakened",
        altered(
            f"        {EQUAL}\n",
            f"        try:\n            {EQUAL}\n        except AssertionError:\n            pass\n",
        ),
    ),
    "suppressed": (
        "assertion-weakened",
        altered(f"        {EQUAL}\n", f"        with suppress(Exception):\n            {EQUAL}\n"),
    ),
    "no rounds": ("assertion-weakened", altered(f"        {EQUAL}\n", f"        for _ in ():\n            {EQUAL}\n")),
    "exception widened": ("assertion-weakened", altered(RAISES, "pytest.raises(Exception)")),
    "exception widened by another": ("assertion-weakened", altered(RAISES, "pytest.raises((ValueError, KeyError))")),
    "match removed": ("assertion-weakened", altered(RAISES, "pytest.raises(ValueError)")),
    "match of anything": ("assertion-weakened", altered('match="no number"', 'match=".*"')),
    "raises removed": (
        "assertion-weakened",
        altered(f'        with {RAISES}:\n            parse("x")', '        parse("x")'),
    ),
    "raises became nothing much": (
        "assertion-weakened",
        altered(f'        with {RAISES}:\n            parse("x")', '        assert parse("x") is not None'),
    ),
    "shadowed": ("assertion-weakened", PYTHON + "\n    def test_total():\n        pass\n"),
}


@pytest.mark.parametrize("name", PYTHON_CHEATS)
def test_python_cheats_are_named(name: str) -> None:
    kind, new = PYTHON_CHEATS[name]
    assert kinds(edit("tests/test_cart.py", PYTHON, new)) == [kind]


@pytest.mark.parametrize("name", PYTHON_CHEATS)
def test_new_tests_hide_no_cheat(name: str) -> None:
    """What is most usual: a story adds tests of its own, and an old one is in the way."""
    kind, new = PYTHON_CHEATS[name]
    more = """
    def test_discount():
        cart = Cart(discount=5)
        assert cart.discount == 5
        assert cart.discount is not None
        assert cart.price(1) == 0.95


    @pytest.mark.parametrize("rate", [1, 2, 3])
    def test_rates(rate):
        assert Discount(rate).rate == rate
    """
    assert kind in kinds(edit("tests/test_cart.py", PYTHON, new + more))


# --- Python: honest work ----------------------------------------------------------------------------

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
    assert guard.look([edit("tests/test_cart.py", PYTHON, PYTHON_HONEST[name])]) == []


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
    assert guard.look([edit("test_add.py", THREE, ONE)]) == []


def test_fewer_cases_than_tests_are_named() -> None:
    assert kinds(edit("test_add.py", THREE, ONE.replace(", (100, 200, 300), (-1, -2, -3)", ""))) == ["test-deleted"]


def test_cases_that_go_are_named() -> None:
    [found] = guard.look([edit("test_add.py", ONE, ONE.replace(", (-1, -2, -3)", ""))])
    assert (found.kind, found.detail) == ("test-deleted", "test_add: 3 cases, now 2")


TABLE = """\
    CASES = [(1, 2, 3), (100, 200, 300), (-1, -2, -3)]

    @pytest.mark.parametrize("a, b, want", CASES)
    def test_add(a, b, want):
        assert add(a, b) == want
"""


def test_cases_may_stand_in_a_table_or_be_counted_by_nobody() -> None:
    assert guard.look([edit("test_add.py", ONE, TABLE)]) == []
    assert guard.look([edit("test_add.py", THREE, TABLE)]) == []
    assert guard.look([edit("test_add.py", ONE, TABLE.replace("CASES = ", "CASES = load() or "))]) == []
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
    assert guard.look([edit("test_user.py", GET, GET_HONEST[name])]) == []


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
    assert guard.look([edit("test_a.py", old, old.replace("skip()", 'skip("why")'))]) == []


def test_a_class_to_be_inherited_holds_tests() -> None:
    old = "    class Common:\n        def test_a(self):\n            assert self.f() == 1\n"
    assert guard.look([edit("test_a.py", old, old.replace("Common", "Shared"))]) == []
    assert kinds(edit("test_a.py", old, old.replace("== 1", "> 0"))) == ["assertion-weakened"]


def test_a_fixture_is_no_test_whatever_its_name() -> None:
    fixture = "\n    @pytest.fixture\n    def test_client():\n        return Client()\n"
    assert guard.look([edit("test_user.py", GET + fixture, GET)]) == []


# --- Python: several files --------------------------------------------------------------------------


def test_a_deleted_file_is_one_finding_that_names_its_tests() -> None:
    [found] = guard.look([edit("tests/test_cart.py", PYTHON, None)])
    assert found.kind == "test-deleted"
    assert found.path == "tests/test_cart.py"
    assert "4 tests (test_total, test_parse_refuses, TestCart.test_empty" in found.detail


def test_a_renamed_file_is_silent() -> None:
    assert guard.look([edit("tests/unit/test_basket.py", PYTHON, PYTHON, "tests/test_cart.py")]) == []


def test_a_file_that_was_removed_here_and_added_there_is_silent() -> None:
    assert guard.look([edit("tests/test_cart.py", PYTHON, None), edit("tests/unit/test_it.py", None, PYTHON)]) == []


def test_a_test_that_moved_to_another_file_is_silent() -> None:
    rest = altered(TOTAL, "")
    assert guard.look([edit("tests/test_a.py", PYTHON, rest), edit("tests/test_b.py", "", TOTAL)]) == []


def test_a_test_that_moved_and_got_weaker_is_named() -> None:
    moved = edit("tests/test_b.py", None, TOTAL.replace(EQUAL, "assert total(cart)"))
    [found] = guard.look([edit("tests/test_a.py", PYTHON, altered(TOTAL, "")), moved])
    assert (found.kind, found.path) == ("assertion-weakened", "tests/test_b.py")
    assert found.detail == "test_total: total(cart) == 3 became total(cart)"


@pytest.mark.parametrize("path", ["tests/cart_old.py", "tests/test_cart.py.bak", "attic/cart.txt"])
def test_a_name_that_nobody_runs_is_named(path: str) -> None:
    assert kinds(edit(path, PYTHON, PYTHON, "tests/test_cart.py")) == ["test-skipped"]


def test_a_file_that_nobody_runs_is_no_place_to_move_to() -> None:
    assert kinds(edit("tests/test_a.py", PYTHON, None), edit("tests/attic.py", None, PYTHON)) == ["test-deleted"]


def test_a_call_of_the_code_under_test_is_no_assertion() -> None:
    body = "        out = check_output(['a'])\n        check_call(['b'])\n        assert run(out) == 1\n"
    old = f"    def test_a():\n{body}"
    new = "    def test_a():\n        assert run('x') == 1\n"
    assert guard.look([edit("tests/test_a.py", old, new)]) == []
    called = old.replace("check_call(['b'])", "check_total(3)")
    assert kinds(edit("tests/test_a.py", called, new)) == ["assertion-weakened"]


def test_a_method_that_sets_things_up_is_no_assertion() -> None:
    beside = "    class Slow:\n        def wait(self):\n            assert self.ready\n\n"
    old = f"{beside}    def test_a(slow):\n        slow.wait()\n        assert slow.done == 1\n"
    assert guard.look([edit("tests/test_a.py", old, old.replace("slow.wait()", "slow.begin(1)"))]) == []
    ours = "    class TestA:\n        def holds(self):\n            assert self.ready\n\n"
    test = f"{ours}        def test_a(self):\n            self.holds()\n            assert self.done == 1\n"
    assert kinds(edit("tests/test_a.py", test, test.replace("self.holds()", "self.begin()"))) == ["assertion-weakened"]


def test_assertions_may_move_into_a_file_beside() -> None:
    new = altered(f"        {EQUAL}\n        assert cart.size == 1\n", "        holds(cart, 3, 1)\n")
    beside = (
        "    def holds(cart, price, size):\n        assert total(cart) == price\n        assert cart.size == size\n"
    )
    assert guard.look([edit("tests/test_a.py", PYTHON, new), edit("tests/support.py", None, beside)]) == []


def test_a_function_beside_tests_that_asserts_less_is_named() -> None:
    old = "    def holds(cart, price):\n        assert total(cart) == price\n        assert cart.size\n"
    [found] = guard.look([edit("tests/support.py", old, "    def holds(cart, price):\n        assert cart.size\n")])
    assert (found.kind, found.detail[:6]) == ("assertion-weakened", "holds:")


def test_a_fixture_that_begins_to_skip_is_named() -> None:
    old = "    @pytest.fixture\n    def shop():\n        return Shop()\n"
    new = old.replace("        return", '        pytest.skip("no shop")\n        return')
    assert kinds(edit("tests/conftest.py", old, new)) == ["test-skipped"]


def test_files_beside_tests_may_go() -> None:
    assert guard.look([edit("tests/support.py", "    def make():\n        return 1\n", None)]) == []
    assert guard.look([edit("tests/__init__.py", "", None)]) == []


def test_details_are_one_line_and_name_the_test() -> None:
    told = details(edit("tests/test_cart.py", PYTHON, decorated('@pytest.mark.skip(reason="a\\nb")')))
    assert told == "test_total: @pytest.mark.skip(reason='a\\nb')"


# --- other languages --------------------------------------------------------------------------------

JS = """\
    import { total } from './shop'

    describe('cart', () => {
      it('adds up', () => {
        const cart = make({ book: 3 })
        expect(total(cart)).toBe(3)
        expect(cart.items).toEqual([{ name: "it's" }])
      })

      test("refuses", () => {
        expect(() => parse('x')).toThrow(ParseError)
        expect(log).toHaveBeenCalledWith('x')
      })
    })
"""
SUPERTEST = """\
    test('refuses', async () => {
      await request(app)
        .post('/orders')
        .send({})
        .expect(403);
    });
"""
GO = """\
    package shop

    import "testing"

    func TestTotal(t *testing.T) {
    \tgot := Total(3)
    \tif got != 3 {
    \t\tt.Errorf("got %d, want 3", got)
    \t}
    \tassert.Equal(t, 1, size)
    }

    func TestParse(t *testing.T) {
    \t_, err := Parse("x")
    \tif err == nil {
    \t\tt.Fatal("no error")
    \t}
    }
"""
RUST = """\
    pub fn total(a: u32) -> u32 { a }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn adds_up() {
            let got = total(3);
            assert_eq!(got, 3);
            assert!(got > 2, "too small: {}", got);
        }

        #[test]
        #[should_panic(expected = "too big")]
        fn refuses() {
            total(9999);
        }
    }
"""
JAVA = """\
    class CartTest {
        @Test
        void addsUp() {
            Cart cart = new Cart();
            assertEquals(3, cart.total());
            assertThat(cart.size()).isEqualTo(1);
        }

        @Test
        void refuses() {
            assertThrows(IllegalArgumentException.class, () -> parse("x"));
        }
    }
"""
KOTLIN = """\
    class CartTest {
        @Test
        fun `adds up`() {
            assertEquals(3, cart.total())
        }
    }
"""
RUBY = """\
    RSpec.describe Cart do
      it "adds up" do
        cart = Cart.new
        expect(cart.total).to eq(3)
        expect(cart.size).to eq 1
      end

      it "refuses" do
        expect { parse("x") }.to raise_error(ParseError)
      end
    end
"""
MINITEST = """\
    class CartTest < Minitest::Test
      def test_total
        assert_equal 3, @cart.total
      end
    end
"""
CSHARP = """\
    public class CartTests
    {
        [Fact]
        public void AddsUp()
        {
            var cart = new Cart();
            Assert.Equal(3, cart.Total);
            cart.Size.Should().Be(1);
        }

        [Theory]
        [InlineData(1)]
        [InlineData(2)]
        public async Task Refuses(int number)
        {
            Assert.Throws<ArgumentException>(() => Parse(number));
        }
    }
"""
PHP = """\
    <?php
    final class CartTest extends TestCase
    {
        public function testTotal(): void
        {
            $this->assertSame(3, $cart->total());
        }

        /** @test */
        public function it_refuses(): void
        {
            $this->expectException(ParseError::class);
            parse('x');
        }
    }
"""
PEST = """\
    <?php
    it('adds up', function () {
        expect($cart->total())->toBe(3);
    });
"""
SWIFT = """\
    final class CartTests: XCTestCase {
        func testTotal() {
            XCTAssertEqual(cart.total, 3)
        }

        @Test func refuses() {
            #expect(cart.size == 1)
        }
    }
"""
ELIXIR = """\
    defmodule CartTest do
      use ExUnit.Case

      describe "total" do
        test "adds up" do
          assert Cart.total(cart) == 3
        end
      end

      test "refuses" do
        assert_raise ArgumentError, fn -> parse("x") end
      end
    end
"""
CPP = """\
    #include <gtest/gtest.h>

    TEST(Cart, AddsUp) {
      Cart cart;
      EXPECT_EQ(cart.total(), 3);
      ASSERT_TRUE(cart.size() == 1);
    }

    TEST_F(Shop, Refuses) {
      EXPECT_THROW(parse("x"), ParseError);
    }
"""
CATCH = """\
    TEST_CASE("adds up", "[cart]") {
      REQUIRE(total(cart) == 3);
      REQUIRE_THROWS_AS(parse("x"), std::length_error);
    }
"""
FILES = {
    "python": ("tests/test_cart.py", PYTHON),
    "js": ("src/cart.test.ts", JS),
    "supertest": ("test/orders.js", SUPERTEST),
    "go": ("cart_test.go", GO),
    "rust": ("src/cart.rs", RUST),
    "java": ("src/test/java/CartTest.java", JAVA),
    "kotlin": ("src/test/kotlin/CartTest.kt", KOTLIN),
    "ruby": ("spec/cart_spec.rb", RUBY),
    "minitest": ("test/cart_test.rb", MINITEST),
    "csharp": ("Shop.Tests/CartTests.cs", CSHARP),
    "php": ("tests/CartTest.php", PHP),
    "pest": ("tests/Cart.php", PEST),
    "swift": ("Tests/CartTests.swift", SWIFT),
    "elixir": ("test/cart_test.exs", ELIXIR),
    "cpp": ("tests/cart_test.cc", CPP),
    "catch": ("tests/cart_test.cpp", CATCH),
}
DELETED, SKIPPED, WEAKER = "test-deleted", "test-skipped", "assertion-weakened"
_TEST_OF_JS = JS[JS.index("      it(") : JS.index("      test(")]
_TEST_OF_GO = GO[GO.index("    func TestTotal") : GO.index("    func TestParse")]
_TEST_OF_JAVA = JAVA[
    JAVA.index("        @Test\n        void addsUp") : JAVA.index("        @Test\n        void refuses")
]

# Language, what is replaced, by what, and the kind of the finding.
CHEATS = [
    ("js", _TEST_OF_JS, "", DELETED),
    ("js", "      it('adds up'", "      it.skip('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      xit('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      it.only('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      fit('adds up'", SKIPPED),
    ("js", "describe('cart'", "describe.skip('cart'", SKIPPED),
    ("js", "describe('cart'", "xdescribe('cart'", SKIPPED),
    ("js", "describe('cart'", "describe.only('cart'", SKIPPED),
    ("js", "describe('cart'", "fdescribe('cart'", SKIPPED),
    ("js", 'test("refuses", () => {', 'test.fails("refuses", () => {', SKIPPED),
    ("js", 'test("refuses", () => {', 'test.skipIf(ci)("refuses", () => {', SKIPPED),
    ("js", _TEST_OF_JS, "      it.todo('adds up')\n", SKIPPED),
    ("js", _TEST_OF_JS, "".join(f"//{line}\n" for line in _TEST_OF_JS.splitlines()), SKIPPED),
    ("js", _TEST_OF_JS, f"/*{_TEST_OF_JS}*/", SKIPPED),
    ("js", _TEST_OF_JS, f"if (false) {{ {_TEST_OF_JS} }}", SKIPPED),
    ("js", "const cart", "return;\n        const cart", SKIPPED),
    ("js", "        expect(total(cart)).toBe(3)\n", "", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(true).toBe(true)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart) || true).toBe(true)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeTruthy()", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeDefined()", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeGreaterThan(0)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeCloseTo(3)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toEqual(expect.any(Number))", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).not.toBe(4)", WEAKER),
    ("js", 'toEqual([{ name: "it\'s" }])', "toContain('it')", WEAKER),
    ("js", ".toThrow(ParseError)", ".toThrow()", WEAKER),
    ("js", ".toThrow(ParseError)", ".toThrow(Error)", WEAKER),
    ("js", ".toHaveBeenCalledWith('x')", ".toHaveBeenCalled()", WEAKER),
    ("supertest", ".expect(403)", "", WEAKER),
    ("go", _TEST_OF_GO, "", DELETED),
    ("go", "\tgot := Total", '\tt.Skip("later")\n    \tgot := Total', SKIPPED),
    ("go", "\tgot := Total", "\tt.SkipNow()\n    \tgot := Total", SKIPPED),
    ("go", "\tgot := Total", "\treturn\n    \tgot := Total", SKIPPED),
    ("go", "package shop", "//go:build integration\n\n    package shop", SKIPPED),
    ("go", _TEST_OF_GO, "".join(f"//{line}\n" for line in _TEST_OF_GO.splitlines()), SKIPPED),
    ("go", "if got != 3 {", "if got == 0 {", WEAKER),
    ("go", "if got != 3 {", "if got < 1 {", WEAKER),
    ("go", "if got != 3 {", "if false {", WEAKER),
    ("go", "assert.Equal(t, 1, size)", "assert.NotNil(t, size)", WEAKER),
    ("go", "assert.Equal(t, 1, size)", "assert.True(t, true)", WEAKER),
    ("go", "    \tassert.Equal(t, 1, size)\n", "", WEAKER),
    (
        "rust",
        RUST[RUST.index("        #[test]\n        fn") : RUST.index("        #[test]\n        #[should")],
        "",
        DELETED,
    ),
    ("rust", "#[test]\n        fn adds_up", "#[test]\n        #[ignore]\n        fn adds_up", SKIPPED),
    ("rust", "#[test]\n        fn adds_up", '#[test]\n        #[ignore = "slow"]\n        fn adds_up', SKIPPED),
    ("rust", "#[test]\n        fn adds_up", "fn adds_up", SKIPPED),
    ("rust", "assert_eq!(got, 3)", "assert!(got > 0)", WEAKER),
    ("rust", "assert_eq!(got, 3)", "assert!(true)", WEAKER),
    ("rust", "assert_eq!(got, 3)", "assert_ne!(got, 4)", WEAKER),
    ("rust", "            assert_eq!(got, 3);\n", "", WEAKER),
    ("rust", '(expected = "too big")', "", WEAKER),
    ("java", _TEST_OF_JAVA, "", DELETED),
    ("java", "@Test\n        void addsUp", "@Disabled\n        @Test\n        void addsUp", SKIPPED),
    ("java", "@Test\n        void addsUp", '@Test\n        @Ignore("x")\n        void addsUp', SKIPPED),
    ("java", "class CartTest", '@Disabled("later")\n    class CartTest', SKIPPED),
    ("java", "@Test\n        void addsUp", "void addsUp", SKIPPED),
    ("java", "assertEquals(3, cart.total())", "assertNotNull(cart.total())", WEAKER),
    ("java", "assertEquals(3, cart.total())", "assertTrue(cart.total() > 0)", WEAKER),
    ("java", "assertEquals(3, cart.total())", "assertTrue(true)", WEAKER),
    ("java", "isEqualTo(1)", "isNotNull()", WEAKER),
    ("java", "isEqualTo(1)", "isGreaterThan(0)", WEAKER),
    ("java", "IllegalArgumentException.class", "Exception.class", WEAKER),
    ("java", "            assertEquals(3, cart.total());\n", "", WEAKER),
    ("kotlin", "@Test\n", "@Test\n        @Disabled\n", SKIPPED),
    ("kotlin", "assertEquals(3, cart.total())", "assertNotNull(cart.total())", WEAKER),
    ("kotlin", "            assertEquals(3, cart.total())\n", "", WEAKER),
    ("ruby", RUBY[RUBY.index('      it "adds') : RUBY.index('      it "refuses')], "", DELETED),
    ("ruby", 'it "adds up"', 'xit "adds up"', SKIPPED),
    ("ruby", 'it "adds up"', 'fit "adds up"', SKIPPED),
    ("ruby", 'it "adds up" do', 'it "adds up", skip: true do', SKIPPED),
    ("ruby", "        cart = Cart", '        skip "later"\n        cart = Cart', SKIPPED),
    ("ruby", "        cart = Cart", "        pending\n        cart = Cart", SKIPPED),
    ("ruby", "expect(cart.total).to eq(3)", "expect(cart.total).to be_truthy", WEAKER),
    ("ruby", "expect(cart.total).to eq(3)", "expect(cart.total).not_to be_nil", WEAKER),
    ("ruby", "expect(cart.size).to eq 1", "expect(cart.size).to be_within(1).of 1", WEAKER),
    ("ruby", "raise_error(ParseError)", "raise_error", WEAKER),
    ("ruby", "        expect(cart.total).to eq(3)\n", "", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "assert @cart.total", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "assert true", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "refute_nil @cart.total", WEAKER),
    ("minitest", "        assert_equal", "        skip\n        assert_equal", SKIPPED),
    ("csharp", "[Fact]", '[Fact(Skip = "later")]', SKIPPED),
    ("csharp", "[Fact]", "[Fact]\n        [Ignore]", SKIPPED),
    ("csharp", "[Fact]\n", "\n", SKIPPED),
    ("csharp", "Assert.Equal(3, cart.Total)", "Assert.NotNull(cart.Total)", WEAKER),
    ("csharp", "Assert.Equal(3, cart.Total)", "Assert.True(true)", WEAKER),
    ("csharp", "Should().Be(1)", "Should().NotBeNull()", WEAKER),
    ("csharp", "Should().Be(1)", "Should().BeGreaterThan(0)", WEAKER),
    ("csharp", "Assert.Throws<ArgumentException>", "Assert.ThrowsAny<Exception>", WEAKER),
    ("csharp", "        [InlineData(2)]\n", "", DELETED),
    ("php", "$this->assertSame", "$this->markTestSkipped('x');\n            $this->assertSame", SKIPPED),
    ("php", "/** @test */", "/** */", SKIPPED),
    ("php", "assertSame(3, $cart->total())", "assertNotNull($cart->total())", WEAKER),
    ("php", "assertSame(3, $cart->total())", "assertTrue(true)", WEAKER),
    ("php", "ParseError::class", "Exception::class", WEAKER),
    ("pest", "toBe(3);\n    });", "toBe(3);\n    })->skip();", SKIPPED),
    ("pest", "->toBe(3)", "->not->toBeNull()", WEAKER),
    ("swift", "            XCTAssertEqual", "            try XCTSkipIf(true)\n            XCTAssertEqual", SKIPPED),
    ("swift", "@Test func", '@Test(.disabled("x")) func', SKIPPED),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertNotNil(cart.total)", WEAKER),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertTrue(true)", WEAKER),
    ("swift", "#expect(cart.size == 1)", "#expect(cart.size > 0)", WEAKER),
    ("elixir", '        test "adds up"', '        @tag :skip\n        test "adds up"', SKIPPED),
    ("elixir", "use ExUnit.Case", "use ExUnit.Case\n      @moduletag :skip", SKIPPED),
    ("elixir", "assert Cart.total(cart) == 3", "assert Cart.total(cart)", WEAKER),
    ("elixir", "assert Cart.total(cart) == 3", "assert true", WEAKER),
    ("elixir", ELIXIR[ELIXIR.index('      test "refuses') : ELIXIR.rindex("    end")], "", DELETED),
    ("cpp", "TEST(Cart, AddsUp)", "TEST(Cart, DISABLED_AddsUp)", SKIPPED),
    ("cpp", "      Cart cart;\n", "      GTEST_SKIP();\n      Cart cart;\n", SKIPPED),
    ("cpp", CPP[CPP.index("    TEST(") : CPP.index("    TEST_F")], "", DELETED),
    ("cpp", CPP[CPP.index("    TEST(") :], f"#if 0\n{CPP[CPP.index('    TEST(') :]}#endif\n", SKIPPED),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_GT(cart.total(), 0)", WEAKER),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_TRUE(true)", WEAKER),
    ("cpp", 'EXPECT_THROW(parse("x"), ParseError)', 'EXPECT_ANY_THROW(parse("x"))', WEAKER),
    ("catch", '"[cart]"', '"[.cart]"', SKIPPED),
    ("catch", "REQUIRE(total(cart) == 3)", "REQUIRE(total(cart) > 0)", WEAKER),
    ("catch", "std::length_error", "std::exception", WEAKER),
    ("catch", '      REQUIRE_THROWS_AS(parse("x"), std::length_error);\n', "", WEAKER),
]
HONEST = [
    ("js", "toBe(3)", "toBe(4)"),
    ("js", "toBe(3)", "toStrictEqual(3)"),
    ("js", "expect(total(cart)).toBe(3)", "expect(\n          total(cart),\n        ).toBe(3);"),
    ("js", "it('adds up'", 'it("adds up"'),
    ("js", "it('adds up'", "it('adds up the books'"),
    ("js", "it('adds up', () =>", "it('adds up', async () =>"),
    ("js", "describe('cart'", "describe('the cart'"),
    ("js", "        expect(total(cart)", "        // it.skip('adds up') was here; see xit\n        expect(total(cart)"),
    ("js", "expect(total(cart)).toBe(3)", "expect(cart.x).toBe(1)\n        expect(total(cart)).toBe(3)"),
    ("js", "    })\n", "      it('more', () => { expect(a).toBe(/it's {/) })\n    })\n"),
    (
        "js",
        "      it('adds up', () => {\n        const cart = make({ book: 3 })\n        expect(total(cart)).toBe(3)",
        "      it.each([[1], [2]])('adds up', (n) => {\n"
        "        const cart = make({ book: n })\n        expect(total(cart)).toBe(n)",
    ),
    (
        "js",
        '        expect(total(cart)).toBe(3)\n        expect(cart.items).toEqual([{ name: "it\'s" }])',
        "        for (const [got, want] of [[total(cart), 3], [cart.items.length, 1]]) {\n"
        "          expect(got).toBe(want)\n        }",
    ),
    ("supertest", ".expect(403)", ".expect(401)"),
    ("catch", "std::length_error", "std::range_error"),
    ("go", 't.Errorf("got %d, want 3", got)', 't.Errorf("Total(3) = %d", got)'),
    ("go", "if got != 3 {", "if got != 4 {"),
    ("go", 'if got != 3 {\n    \t\tt.Errorf("got %d, want 3", got)\n    \t}', "assert.Equal(t, 3, got)"),
    ("go", "\tgot := Total", "\tt.Parallel()\n    \tgot := Total"),
    ("go", "func TestTotal", "func TestTotalOfOne"),
    (
        "go",
        GO[GO.index("    \tgot :=") : GO.index("    }\n")],
        "    \tfor _, c := range cases {\n    \t\tt.Run(c.name, func(t *testing.T) {\n"
        "    \t\t\tassert.Equal(t, c.want, Total(c.in))\n    \t\t})\n    \t}\n",
    ),
    ("rust", "assert_eq!(got, 3)", "assert_eq!(got, 4)"),
    ("rust", "assert!(got > 2,", "assert_eq!(got, 3); assert!(got > 2,"),
    (
        "rust",
        "pub fn total(a: u32) -> u32 { a }",
        "pub fn sum(a: u32) -> u32 { a }\n\n    fn more<'a>(x: &'a str) -> char { '{' }",
    ),
    ("rust", "fn adds_up", "fn adds_them_up"),
    ("java", "assertEquals(3, cart.total())", "assertEquals(4, cart.total())"),
    ("java", "assertEquals(3, cart.total())", "assertThat(cart.total()).isEqualTo(3)"),
    ("java", "void addsUp()", "void addsUp() throws Exception"),
    ("java", "@Test\n        void addsUp", '@Test\n        @DisplayName("@Disabled {")\n        void addsUp'),
    ("kotlin", "`adds up`", "`adds all up`"),
    ("ruby", "to eq(3)", "to eq 4"),
    ("ruby", '      end\n\n      it "ref', '        expect(cart.owner).to be_nil\n      end\n\n      it "ref'),
    ("ruby", 'it "adds up" do', "it 'adds up', :slow do"),
    ("minitest", "assert_equal 3, @cart.total", "assert_equal 4, @cart.total"),
    ("csharp", "Assert.Equal(3, cart.Total)", "cart.Total.Should().Be(3)"),
    ("csharp", "[InlineData(2)]", "[InlineData(2)]\n        [InlineData(3)]"),
    ("php", "assertSame(3,", "assertSame(4,"),
    ("php", "/** @test */", "#[Test]"),
    ("pest", "->toBe(3)", "->toBe(4)"),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertEqual(cart.total, 4)"),
    ("swift", "#expect(cart.size == 1)", "#expect(cart.size == 2)"),
    ("elixir", "== 3", "== 4"),
    (
        "elixir",
        "assert Cart.total(cart) == 3",
        "cart = make()\n          assert Cart.total(cart) == 3\n          assert cart.size == 1",
    ),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_EQ(cart.total(), 4)"),
    ("cpp", "ASSERT_TRUE(cart.size() == 1)", "ASSERT_EQ(cart.size(), 1)"),
    ("catch", "== 3", "== 4"),
]


def label(case: Sequence[str]) -> str:
    return f"{case[0]}: {' '.join(case[2].split())[:50]}"


@pytest.mark.parametrize("case", CHEATS, ids=label)
def test_cheats_are_named(case: tuple[str, str, str, str]) -> None:
    language, old, new, kind = case
    path, text = FILES[language]
    assert kinds(edit(path, text, altered(old, new, text))) == [kind]


@pytest.mark.parametrize("case", HONEST, ids=label)
def test_honest_work_is_silent(case: tuple[str, str, str]) -> None:
    language, old, new = case
    path, text = FILES[language]
    assert guard.look([edit(path, text, altered(old, new, text))]) == []


@pytest.mark.parametrize("language", FILES)
def test_every_language_moves_and_goes(language: str) -> None:
    path, text = FILES[language]
    folder, _, name = path.rpartition("/")
    moved = f"{folder}/deeper/{name}".lstrip("/")
    assert guard.look([edit(path, None, text)]) == []
    assert guard.look([edit(moved, text, text, path)]) == []
    assert guard.look([edit(path, text, None), edit(moved, None, text)]) == []
    flush = textwrap.dedent(text).encode()
    assert guard.look([Change(path, flush, flush.replace(b"\n", b"\r\n"))]) == []
    deeper = text if language == "python" else text.replace("\n    ", "\n        ")
    assert guard.look([edit(path, text, deeper)]) == []
    assert kinds(edit(path, text, None)) == [DELETED]
    assert kinds(edit(path, text, "")) == [DELETED]


def test_a_test_file_of_an_unknown_kind_may_not_go_either() -> None:
    assert kinds(edit("src/odd.test.js", "    odd.check(1, 2)\n", None)) == [DELETED]


def test_assertions_outside_of_tests_excuse_those_that_went_there() -> None:
    old = "it('a', () => {\n  expect(a.x).toBe(1)\n  expect(a.y).toBe(2)\n})\n"
    checks = "  expect(a.x).toBe(x)\n  expect(a.y).toBe(y)\n"
    new = f"function same(a, x, y) {{\n{checks}}}\nit('a', () => {{\n  same(a, 1, 2)\n}})\n"
    assert guard.look([edit("a.test.js", old, new)]) == []
    assert kinds(edit("a.test.js", old, new.replace(checks, ""))) == [WEAKER]


# --- what runs the tests ----------------------------------------------------------------------------

PACKAGE = (
    '{"scripts": {"test": "eslint . && jest --ci", "lint": "eslint .", "start": "node ."}, "jest": {"bail": false}}'
)
MAKEFILE = "PY = python\n\n.PHONY: test\ntest: lint\n\t@$(PY) -m pytest -q\n\nlint:\n\truff check .\n\nrun:\n\t./run\n"
PYPROJECT = """\
    [project]
    name = "shop"

    [tool.pytest.ini_options]
    testpaths = ["tests"]
    addopts = "-q --strict-markers"

    [tool.coverage.report]
    fail_under = 90
"""
INI = "[pytest]\naddopts = -q\nnorecursedirs = .git\n"
JEST = """\
    module.exports = {
      // testPathIgnorePatterns: ['old']
      testEnvironment: 'node',
      testPathIgnorePatterns: ['/node_modules/'],
      coverageThreshold: { global: { branches: 80, lines: 90 } },
    }
"""
VITEST = """\
    export default defineConfig({
      test: {
        globals: true,
        coverage: { exclude: ['scripts/**'], thresholds: { lines: 90 } },
      },
    })
"""
CONFIG_CHEATS = [
    ("conftest.py", "", 'collect_ignore = ["test_login.py"]\n'),
    ("conftest.py", 'collect_ignore = ["setup.py"]\n', 'collect_ignore = ["setup.py", "test_login.py"]\n'),
    ("tests/conftest.py", None, 'collect_ignore_glob = ["*_slow.py"]\n'),
    (
        "tests/conftest.py",
        "import pytest\n",
        "import pytest\n\ndef pytest_collection_modifyitems(items):\n    items[:] = []\n",
    ),
    ("tests/conftest.py", "", "def pytest_ignore_collect(path):\n    return True\n"),
    ("tests/conftest.py", "", "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore=tests/test_login.py")),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore tests/test_login.py")),
    ("pytest.ini", INI, INI.replace("-q", "-q --deselect tests/test_a.py::test_b")),
    ("pytest.ini", INI, INI.replace("-q", "-q -k 'not login'")),
    ("pytest.ini", INI, INI.replace("-q", '-q -m "not slow"')),
    ("pytest.ini", INI, INI.replace(".git", ".git tests/login")),
    ("pytest.ini", None, "[pytest]\naddopts = --ignore=tests/test_login.py\n"),
    ("setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = a\n[tool:pytest]\naddopts = --ignore=tests/login\n"),
    ("tox.ini", "[testenv]\ncommands = pytest -q\n", "[testenv]\ncommands = true\n"),
    ("tox.ini", "[pytest]\naddopts =\n", "[pytest]\naddopts = --deselect=tests/a.py\n"),
    ("pyproject.toml", PYPROJECT, altered("-q --strict", "-q --ignore=tests/e2e --strict", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["tests/unit"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("fail_under = 90", "fail_under = 50", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("    fail_under = 90\n", "", PYPROJECT)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "true", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "exit 0", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "echo ok", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci || true", PACKAGE)),
    ("package.json", PACKAGE, altered(" && jest --ci", "", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --passWithNoTests", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --testPathIgnorePatterns=login", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "node scripts/ok.js", PACKAGE)),
    ("package.json", PACKAGE, altered('"test": "eslint . && jest --ci", ', "", PACKAGE)),
    ("package.json", PACKAGE, altered('"bail": false', '"testPathIgnorePatterns": ["login"]', PACKAGE)),
    ("package.json", PACKAGE, altered('"bail": false', '"bail": 1', PACKAGE)),
    ("jest.config.js", JEST, altered("['/node_modules/']", "['/node_modules/', 'login']", JEST)),
    ("jest.config.js", JEST, altered("testEnvironment: 'node',", "passWithNoTests: true,", JEST)),
    ("jest.config.js", JEST, altered("branches: 80", "branches: 10", JEST)),
    ("jest.config.js", JEST, altered("coverageThreshold: { global: { branches: 80, lines: 90 } },", "", JEST)),
    (
        "vitest.config.ts",
        VITEST,
        altered("globals: true,", "globals: true,\n        exclude: ['src/login/**'],", VITEST),
    ),
    ("vite.config.ts", VITEST, altered("globals: true,", "exclude: ['src/login/**'],", VITEST)),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q || true", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("\t@$(PY) -m pytest -q\n", "", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("@$(PY) -m pytest -q", "@echo ok", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("\t@$(PY)", "\t-@$(PY)", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q --ignore=tests/login", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("test: lint", "test:", MAKEFILE)),
    ("Makefile", MAKEFILE, None),
]
CONFIG_HONEST = [
    ("conftest.py", "", "import pytest\n\n@pytest.fixture\ndef shop():\n    return 1\n"),
    ("conftest.py", "", "# collect_ignore = ['x']\nNOTE = 'pytest_collection_modifyitems'\n"),
    ("conftest.py", 'collect_ignore = ["test_a.py"]\n', ""),
    ("pytest.ini", INI, INI.replace("-q", "-q -ra --strict-config -x")),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore=node_modules --ignore build/")),
    ("pytest.ini", INI, INI.replace(".git", ".git node_modules .venv")),
    ("setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = b\n"),
    ("tox.ini", "[testenv]\ncommands = pytest -q\n", "[testenv]\ncommands = python -m pytest -q {posargs}\n"),
    ("pyproject.toml", PYPROJECT, altered('"shop"', '"cart"', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("fail_under = 90", "fail_under = 95", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["tests", "e2e"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["test"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, PYPROJECT + '    [tool.ruff]\n    exclude = ["a"]\n'),
    ("pyproject.toml", "[project]\n", PYPROJECT),
    ("pyproject.toml", PYPROJECT, "[[[ not toml"),
    ("package.json", PACKAGE, altered("node .", "node ./server", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci --coverage", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "vitest run", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "eslint . && tsc --noEmit && jest", PACKAGE)),
    (
        "package.json",
        PACKAGE,
        altered('"eslint . && jest --ci"', '"npm run lint && npm run unit", "unit": "npx jest"', PACKAGE),
    ),
    ("package.json", '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', PACKAGE),
    ("package.json", None, PACKAGE),
    ("jest.config.js", JEST, altered("lines: 90", "lines: 95", JEST)),
    ("jest.config.js", None, JEST),
    ("jest.config.js", JEST, JEST.replace("'", '"')),
    ("vitest.config.ts", VITEST, altered("'scripts/**'", "'scripts/**', 'docs/**'", VITEST)),
    (
        "vite.config.ts",
        VITEST,
        altered("defineConfig({", "defineConfig({\n      optimizeDeps: { exclude: ['a'] },", VITEST),
    ),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q -n auto", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("./run", "./run || true", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("test: lint", "test: lint types", MAKEFILE) + "\ntypes:\n\tmypy .\n"),
]


@pytest.mark.parametrize(
    "case", CONFIG_CHEATS, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-60:]}"
)
def test_configuration_that_leaves_tests_out_is_named(case: tuple[str, str | None, str | None]) -> None:
    path, old, new = case
    assert {(found.kind, found.path) for found in guard.look([edit(path, old, new)])} == {("test-config", path)}


@pytest.mark.parametrize(
    "case", CONFIG_HONEST, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-60:]}"
)
def test_honest_configuration_is_silent(case: tuple[str, str | None, str | None]) -> None:
    assert guard.look([edit(*case)]) == []


def test_settings_may_move_from_one_file_to_another() -> None:
    old = "[pytest]\naddopts = --ignore=tests/data\n"
    new = '[tool.pytest.ini_options]\naddopts = "--ignore=tests/data"\n'
    assert guard.look([edit("pytest.ini", old, None), edit("pyproject.toml", "", new)]) == []


# --- the spec ---------------------------------------------------------------------------------------

TASKS = """\
# Tasks

## 1. Set up

- [ ] 1.1 Make the folder
* [x] **1.2** Write the file

## 2. Build (see `[ ]`)

- [ ] 2.1 Compile
  - [ ] 2.2 Link
"""


def stories_of(tmp_path: Path, text: str) -> list[Story]:
    """As the adapter reads them, from a real file."""
    file = tmp_path / "openspec/changes/shop/tasks.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return specs.open(str(tmp_path), "shop", "openspec").stories()


def spec_findings(tmp_path: Path, new: str, story: str = "1", old: str = TASKS) -> list[Finding]:
    before, after = {"tasks.md": old.encode()}, {"tasks.md": new.encode()}
    return guard.look_at_spec(before, after, stories_of(tmp_path, old), stories_of(tmp_path, new), story)


SPEC_CASES = {
    "nothing": (TASKS, []),
    "own box": (altered("- [ ] 1.1", "- [x] 1.1", TASKS), []),
    "own box, capital": (altered("- [ ] 1.1", "- [X] 1.1", TASKS), []),
    "another story's box": (altered("- [ ] 2.1", "- [x] 2.1", TASKS), ["other-story-ticked"]),
    "an indented box of another": (altered("- [ ] 2.2", "- [x] 2.2", TASKS), ["other-story-ticked"]),
    "own and another's": (TASKS.replace("- [ ]", "- [x]"), ["other-story-ticked"] * 2),
    "unticked": (altered("* [x]", "* [ ]", TASKS), ["unticked"]),
    "text": (altered("Make the folder", "Make a folder", TASKS), ["spec-edited"]),
    "text and box": (altered("- [ ] 1.1 Make the", "- [x] 1.1 Make a", TASKS), ["spec-edited"]),
    "a task gone": (altered("- [ ] 1.1 Make the folder\n", "", TASKS), ["spec-edited"]),
    "a task more": (TASKS + "- [x] 2.3 Ship\n", ["spec-edited"]),
    "a blank line at the end": (TASKS + "\n", ["spec-edited"]),
    "no line feed at the end": (TASKS[:-1], ["spec-edited"]),
    "trailing blanks": (altered("Compile", "Compile ", TASKS), ["spec-edited"]),
    "a box that is none": (altered("`[ ]`", "`[x]`", TASKS), ["spec-edited"]),
    "a heading": (altered("## 2. Build", "## 2. Build (optional)", TASKS), ["spec-edited"]),
    "another mark": (altered("* [x]", "* [X]", TASKS), ["spec-edited"]),
}


@pytest.mark.parametrize("name", SPEC_CASES)
def test_only_own_boxes_may_be_ticked(name: str, tmp_path: Path) -> None:
    new, wanted = SPEC_CASES[name]
    assert [finding.kind for finding in spec_findings(tmp_path, new)] == wanted


@pytest.mark.parametrize("name", [name for name in SPEC_CASES if not name.startswith("no line")])
def test_line_endings_make_no_difference(name: str, tmp_path: Path) -> None:
    new, wanted = SPEC_CASES[name]
    old, new = TASKS.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    assert [finding.kind for finding in spec_findings(tmp_path, new, old=old)] == wanted


def test_changed_line_endings_are_an_edit(tmp_path: Path) -> None:
    assert [one.kind for one in spec_findings(tmp_path, TASKS.replace("\n", "\r\n"))] == ["spec-edited"]


def test_the_first_line_that_differs_is_told(tmp_path: Path) -> None:
    [found] = spec_findings(tmp_path, altered("2.1 Compile", "2.1 Ship", TASKS))
    assert found == Finding("spec-edited", "tasks.md", "line 10: - [ ] 2.1 Ship")


def test_what_an_adapter_ticks_is_what_is_allowed(tmp_path: Path) -> None:
    old = "## A\n- [ ](x) one\n1. [ ] two\n+ [] three\n## B\n- [ ] two\n"
    file = tmp_path / "TODO.md"
    file.write_text(old)
    spec = specs.open(str(tmp_path), "TODO", "checklist")
    before = spec.stories()
    for task in before[0].tasks:
        spec.tick(task.id)
    new = file.read_bytes()
    assert new.count(b"[x]") == 3
    told = guard.look_at_spec({"TODO.md": old.encode()}, {"TODO.md": new}, before, spec.stories(), "1")
    assert told == []
    told = guard.look_at_spec({"TODO.md": old.encode()}, {"TODO.md": new}, before, spec.stories(), "2")
    assert [one.kind for one in told] == ["other-story-ticked"] * 3


def test_marks_around_a_task_do_not_hide_it(tmp_path: Path) -> None:
    old = altered("- [ ] 1.1 Make the folder", "- [ ] **1.1 Make** the folder", TASKS)
    old = altered("- [ ] 2.1 Compile", "- [ ] __2.1 Compile__", old)
    assert spec_findings(tmp_path, altered("- [ ] **1.1", "- [x] **1.1", old), old=old) == []
    [found] = spec_findings(tmp_path, altered("- [ ] __2.1", "- [x] __2.1", old), old=old)
    assert found.kind == "other-story-ticked"


def test_a_box_in_a_fence_is_no_task(tmp_path: Path) -> None:
    old = TASKS + "\n```\n- [ ] 1.9 not a task\n```\n"
    found = spec_findings(tmp_path, old.replace("[ ] 1.9", "[x] 1.9").replace("[ ] 1.1", "[x] 1.1"), old=old)
    assert [(one.kind, one.detail[:7]) for one in found] == [("spec-edited", "line 14")]


def test_boxes_of_other_files_are_no_tasks(tmp_path: Path) -> None:
    stories = stories_of(tmp_path, TASKS)
    before: dict[str, bytes | None] = {"tasks.md": TASKS.encode(), "spec.md": b"- [ ] shall\n", "proposal.md": None}
    after = {**before, "spec.md": b"- [x] shall\n", "design.md": b"new\n"}
    found = guard.look_at_spec(before, after, stories, stories, "1")
    assert [(one.kind, one.path) for one in found] == [("spec-edited", "design.md"), ("spec-edited", "spec.md")]
    gone = guard.look_at_spec(before, {**before, "spec.md": None}, stories, stories, "1")
    assert gone == [Finding("spec-edited", "spec.md", "the file is gone")]


PRD = """\
{"userStories": [
  {"id": "US-1", "title": "A", "passes": false},
  {"id": "US-2", "title": "B", "passes": true}
]}
"""
PRD_CASES = [
    (PRD, []),
    (altered('"A", "passes": false', '"A", "passes": true', PRD), ["passes-flipped"]),
    (altered('"A", "passes": false', '"A", "p\\u0061sses": true', PRD), ["passes-flipped", "spec-edited"]),
    (altered('"B", "passes": true', '"B", "passes": false', PRD), ["unticked"]),
    (altered('"A"', '"C"', PRD), ["spec-edited"]),
    (altered('"A", "passes": false', '"C", "passes": true', PRD), ["passes-flipped", "spec-edited"]),
    (PRD + "\n", ["spec-edited"]),
    (PRD.replace("  ", "    "), ["spec-edited"]),
    ("[" * 100_000, ["spec-edited"]),
    ("", ["spec-edited"]),
]


@pytest.mark.parametrize(("new", "wanted"), PRD_CASES, ids=range(len(PRD_CASES)))
def test_prd_json_is_not_for_the_agent(new: str, wanted: list[str]) -> None:
    found = guard.look_at_spec(
        {"prd.json": PRD.encode()}, {"prd.json": new.encode()}, [], [], "US-1", done_key="passes"
    )
    assert [one.kind for one in found] == wanted


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
    assert guard.may_change_tests(story) is wanted


# --- hostile input ----------------------------------------------------------------------------------

LONG = 20_000_000
HOSTILE = {
    "one line": b"x" * LONG,
    "one line of brackets": b"(" * LONG,
    "one line of quotes": b"'" * 1_000_000,
    "deep": b"(" * 100_000,
    "deep and closed": b"(" * 5_000 + b")" * 5_000,
    "deep operators": b"x = " + b"-" * 50_000 + b"1\n",
    "a long sum": b"def test_a():\n    assert " + b"1 + " * 20_000 + b"1 == 2\n",
    "a sum": b"def test_a():\n    assert x == 1\n    assert " + b"1 + " * 900 + b"x == 2\n",
    "deep blocks": b"".join(b" " * depth + b"if x:\n" for depth in range(2_000)),
    "deep calls": b"it('a', () => {" * 20_000,
    "deep functions": b"void testA() {" * 20_000,
    "unclosed comments": b"/*" * 200_000,
    "unclosed strings": b'"""' * 100_000 + b"`" * 100_001,
    "blanks": b"it" + b" " * 400_000 + b"x",
    "chains": b"expect(a)" + b".a" * 200_000,
    "dead blocks": b"if (false) { a }\n" * 20_000,
    "annotations": b"fn a " * 80_000,
    "many tests": b"".join(b"def test_%d(): assert f(%d) == 1\n" % (n, n) for n in range(8_000)),
    "many assertions": b"def test_a():\n" + b"".join(b"    assert f(%d) == %d\n" % (n, n) for n in range(8_000)),
    "zeros": b"\0" * 100_000,
    "not UTF-8": b"def test_a():\n    assert '\xff\xfe' == caf\xe9\n",
    "lines": b"\n" * 400_000,
    "returns": b"\r" * 400_000,
}
HOSTILE_PATHS = [*(path for path, _ in FILES.values()), "test_a.py", "conftest.py", "package.json", "pyproject.toml"]
HOSTILE_PATHS += ["setup.cfg", "Makefile", "jest.config.js"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_survived(name: str) -> None:
    """In time that grows with their size, or this would not end."""
    data = HOSTILE[name]
    paths = ["test_a.py"] if len(data) == LONG else ["test_a.py", "a.test.js", "ATest.java", "a_spec.rb", "Makefile"]
    for path in HOSTILE_PATHS if len(data) < 60_000 else paths:
        assert isinstance(guard.look([Change(path, data, data[: len(data) // 2] + b"\n")]), list)


def test_what_is_too_long_is_still_looked_at() -> None:
    padding = b"\n# " + b"x" * 600_000 + b"\n"
    old = b"def test_a():\n    assert f() == 1\n\ndef test_b():\n    assert g() == 1\n" + padding
    assert kinds(Change("test_a.py", old, old + b"\ndef test_c():\n    assert h()\n")) == []
    assert kinds(Change("test_a.py", old, old.replace(b"def test_b():\n    assert g() == 1\n", b""))) == [
        WEAKER,
        DELETED,
    ]
    assert kinds(Change("test_a.py", old, old.replace(b"assert g()", b"print(1)"))) == [WEAKER]
    assert kinds(Change("test_a.py", old, old.replace(b"def test_b", b"@pytest.mark.skip\ndef test_b"))) == [SKIPPED]
    # Made long on purpose, to be overlooked.
    assert kinds(Change("test_a.py", old[:40], b"def test_z(): pass" + padding)) == [WEAKER, DELETED]


def test_what_is_too_deep_is_still_looked_at() -> None:
    deep = b"\nX = " + b"-" * 50_000 + b"1\n"
    old = b"def test_a():\n    assert f() == 1\n\ndef test_b():\n    assert g() == 1\n"
    assert kinds(Change("test_a.py", old, old[: old.index(b"def test_b")] + deep)) == [WEAKER, DELETED]
    assert kinds(Change("test_a.py", old, old + deep)) == []


def test_depth_is_no_hiding_place() -> None:
    old = b"def test_a():\n    assert f() == 1\n"
    deep = b"    assert " + b"1 + " * 900 + b"x == 2\n"
    assert kinds(Change("test_a.py", old, old.replace(b" == 1", b"") + deep)) == [WEAKER]
    assert kinds(Change("test_a.py", old + deep, old)) == []


def test_a_spec_of_any_size_is_survived() -> None:
    old = "".join(f"- [ ] {n} do it\n" for n in range(50_000))
    new = old.replace("[ ]", "[x]")
    before = [Story("1", "A", [Task(f"1.{n}", "do it", False) for n in range(50_000)])]
    after = [Story("1", "A", [Task(f"1.{n}", "do it", True) for n in range(50_000)])]
    assert guard.look_at_spec({"a.md": old.encode()}, {"a.md": new.encode()}, before, after, "1") == []
    binary = {"a.md": b"\xff" * 1_000_000}
    assert len(guard.look_at_spec(binary, {"a.md": b"\xfe" * 1_000_000}, [], [], "1")) == 1


# --- properties -------------------------------------------------------------------------------------

WORDS = """
    def_test_a(): assert_x==1 @pytest.mark.skip class_TestA: it('a', describe( { } ( ) [ ] ' " ` // /* */ # \\ fn_a
    #[test] expect(x).toBe(3) @Test void_a() func_TestA(t) t.Error( end do it_"a" assert_eq!( return if_False:
    TEST(A,_B) test: RSpec.describe - [x] || true --ignore=a "scripts": [pytest] addopts_=
"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "\n    ", "    ", " ", "\t", "\0", "é", "\ud7ff"])
SOUP = st.lists(PIECES.map(lambda piece: piece.replace("_", " ")), max_size=40).map("".join)
PATHS = st.sampled_from(HOSTILE_PATHS)


@OURS
@given(PATHS, st.none() | st.binary(max_size=200) | SOUP.map(str.encode), st.none() | SOUP.map(str.encode))
@example("tox.ini", b"[pytest]\n", b"[pytest]\naddopts\n   x = 1\n")
def test_nothing_makes_it_fall_over(path: str, old: bytes | None, new: bytes | None) -> None:
    for finding in guard.look([Change(path, old, new)]):
        assert finding.path == path
        assert "\n" not in finding.detail


@OURS
@given(PATHS, SOUP)
def test_what_did_not_change_is_silent(path: str, text: str) -> None:
    assert guard.look([Change(path, text.encode(), text.encode())]) == []


@OURS
@given(st.binary(max_size=200), st.binary(max_size=200), SOUP)
def test_no_spec_makes_it_fall_over(old: bytes, new: bytes, text: str) -> None:
    for name in ("a.md", "prd.json"):
        for one, other in ((old, new), (text.encode(), new), (text.encode(), text.encode() + b"\n")):
            found = guard.look_at_spec({name: one}, {name: other}, [], [], "1", done_key="passes")
            assert bool(found) == (one != other)


APPENDED = {
    "python": ("test_cart.py", PYTHON, "\n\n    def test_{name}():\n        assert {subject}() == {value}\n"),
    "js": ("a.test.js", JS, "\n    it('{name}', () => {{\n      expect({subject}).toBe({value})\n    }})\n"),
    "go": (
        "a_test.go",
        GO,
        "\n    func TestNew{name}(t *testing.T) {{\n    \tassert.Equal(t, {value}, {subject})\n    }}\n",
    ),
    "rust": ("src/a.rs", RUST, "\n    #[test]\n    fn new_{name}() {{ assert_eq!({subject}, {value}); }}\n"),
    "ruby": ("a_spec.rb", RUBY, '\n    it "{name}" do\n      expect({subject}).to eq({value})\n    end\n'),
    "elixir": ("a_test.exs", ELIXIR, '\n    test "{name}" do\n      assert {subject} == {value}\n    end\n'),
    "cpp": ("a_test.cc", CPP, "\n    TEST(New, N{name}) {{\n      EXPECT_EQ({subject}, {value});\n    }}\n"),
    "php": (
        "tests/A.php",
        PEST,
        "\n    it('{name}', function () {{\n        expect({subject})->toBe({value});\n    }});\n",
    ),
}
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("total", "parse_refuses"))


@OURS
@given(st.sampled_from(sorted(APPENDED)), st.lists(st.tuples(NAME, NAME, st.integers(0, 9)), min_size=1, max_size=4))
def test_appending_a_test_is_never_a_finding(language: str, tests: list[tuple[str, str, int]]) -> None:
    path, text, template = APPENDED[language]
    named = {name: (subject, value) for name, subject, value in tests}
    more = "".join(template.format(name=n, subject=f"f_{s}", value=v) for n, (s, v) in named.items())
    assert guard.look([edit(path, text, text + more)]) == []
