"""The diff guard on Python: cheats are reported with the right kind, in one file and across several."""

from __future__ import annotations

import textwrap

import pytest
from judging.guard.samples import BODY, EQUAL, PYTHON, RAISES, TOTAL, altered, decorated, edit, kinds

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange


def details(*changes: FileChange) -> str:
    return "\n".join(finding.detail for finding in diff.inspect_changes(changes))


# --- Python: cheats ---------------------------------------------------------------------------------


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
    """The most common case: a story adds its own tests, and weakens an old one."""
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


# --- Python: several files --------------------------------------------------------------------------


def test_a_deleted_file_is_one_finding_that_names_its_tests() -> None:
    [found] = diff.inspect_changes([edit("tests/test_cart.py", PYTHON, None)])
    assert found.kind == "test-deleted"
    assert found.path == "tests/test_cart.py"
    assert "4 tests (test_total, test_parse_refuses, TestCart.test_empty" in found.detail


def test_a_renamed_file_is_silent() -> None:
    assert diff.inspect_changes([edit("tests/unit/test_basket.py", PYTHON, PYTHON, "tests/test_cart.py")]) == []


def test_a_file_that_was_removed_here_and_added_there_is_silent() -> None:
    assert (
        diff.inspect_changes([edit("tests/test_cart.py", PYTHON, None), edit("tests/unit/test_it.py", None, PYTHON)])
        == []
    )


def test_a_test_that_moved_to_another_file_is_silent() -> None:
    rest = altered(TOTAL, "")
    assert diff.inspect_changes([edit("tests/test_a.py", PYTHON, rest), edit("tests/test_b.py", "", TOTAL)]) == []


def test_a_test_that_moved_and_got_weaker_is_named() -> None:
    moved = edit("tests/test_b.py", None, TOTAL.replace(EQUAL, "assert total(cart)"))
    [found] = diff.inspect_changes([edit("tests/test_a.py", PYTHON, altered(TOTAL, "")), moved])
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
    assert diff.inspect_changes([edit("tests/test_a.py", old, new)]) == []
    called = old.replace("check_call(['b'])", "check_total(3)")
    assert kinds(edit("tests/test_a.py", called, new)) == ["assertion-weakened"]


def test_a_method_that_sets_things_up_is_no_assertion() -> None:
    beside = "    class Slow:\n        def wait(self):\n            assert self.ready\n\n"
    old = f"{beside}    def test_a(slow):\n        slow.wait()\n        assert slow.done == 1\n"
    assert diff.inspect_changes([edit("tests/test_a.py", old, old.replace("slow.wait()", "slow.begin(1)"))]) == []
    ours = "    class TestA:\n        def holds(self):\n            assert self.ready\n\n"
    test = f"{ours}        def test_a(self):\n            self.holds()\n            assert self.done == 1\n"
    assert kinds(edit("tests/test_a.py", test, test.replace("self.holds()", "self.begin()"))) == ["assertion-weakened"]


def test_assertions_may_move_into_a_file_beside() -> None:
    new = altered(f"        {EQUAL}\n        assert cart.size == 1\n", "        holds(cart, 3, 1)\n")
    beside = (
        "    def holds(cart, price, size):\n        assert total(cart) == price\n        assert cart.size == size\n"
    )
    assert diff.inspect_changes([edit("tests/test_a.py", PYTHON, new), edit("tests/support.py", None, beside)]) == []


def test_a_function_beside_tests_that_asserts_less_is_named() -> None:
    old = "    def holds(cart, price):\n        assert total(cart) == price\n        assert cart.size\n"
    [found] = diff.inspect_changes(
        [edit("tests/support.py", old, "    def holds(cart, price):\n        assert cart.size\n")]
    )
    assert (found.kind, found.detail[:6]) == ("assertion-weakened", "holds:")


def test_a_fixture_that_begins_to_skip_is_named() -> None:
    old = "    @pytest.fixture\n    def shop():\n        return Shop()\n"
    new = old.replace("        return", '        pytest.skip("no shop")\n        return')
    assert kinds(edit("tests/conftest.py", old, new)) == ["test-skipped"]


def test_files_beside_tests_may_go() -> None:
    assert diff.inspect_changes([edit("tests/support.py", "    def make():\n        return 1\n", None)]) == []
    assert diff.inspect_changes([edit("tests/__init__.py", "", None)]) == []


def test_details_are_one_line_and_name_the_test() -> None:
    told = details(edit("tests/test_cart.py", PYTHON, decorated('@pytest.mark.skip(reason="a\\nb")')))
    assert told == "test_total: @pytest.mark.skip(reason='a\\nb')"
