"""Tests inside source files: the old ones can be put into the new source."""

from __future__ import annotations

import pytest
from judging.guard.samples import RUST, altered

from ralphtool.judging.guard.inline import is_test_module, splice_tests


def splice(old: str, new: str, path: str = "src/cart.rs") -> str | None:
    spliced = splice_tests(old.encode(), new.encode(), path)
    return None if spliced is None else spliced.decode()


def test_old_tests_are_put_into_new_source() -> None:
    broken = altered("{ a }", "{ a + 1 }", RUST)
    cheat = altered("assert_eq!(got, 3);", "assert_eq!(got, 4);", broken)
    assert splice(RUST, cheat) == broken


def test_old_tests_come_back_after_they_were_deleted_and_new_ones_go() -> None:
    source = "pub fn total(a: u32) -> u32 { a }\n"
    tests = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn it_adds() { assert_eq!(super::total(1), 1); }\n}\n"
    assert splice(source + tests, source) == source + tests
    assert splice(source, source + tests) == source + "\n"
    renamed = tests.replace("mod tests", "mod others")
    assert splice(source + tests, source + renamed) == source + "\n" + tests


def test_single_functions_and_what_they_use_are_taken_too() -> None:
    old = (
        "fn a() {}\n\n#[test]\n#[should_panic]\nfn one() { a() }\n\nfn b() {}\n\n#[cfg(test)]\nfn make() -> u8 { 1 }\n"
    )
    new = old.replace("#[should_panic]\n", "").replace("u8 { 1 }", "u8 { 2 }").replace("fn b() {}", "fn b() { a() }")
    assert splice(old, new) == old.replace("fn b() {}", "fn b() { a() }")


def test_a_test_in_a_string_or_a_comment_is_none() -> None:
    text = 'fn a() -> &\'static str { "#[cfg(test)] mod x {}" }\n// #[test]\nfn b() {}\n'
    assert splice(text, text.replace("b()", "c()")) is None


def test_what_holds_no_tests_is_left_alone() -> None:
    assert splice("fn a() {}\n", "fn b() {}\n") is None
    assert splice("def a(): pass\n", "", "a.py") is None
    assert splice("def test_a(: pass\n", "", "a.py") is None
    assert splice("it 'adds' do end\n", "", "a.rb") is None
    assert splice("#[test]\n" + "(" * 200_000, "") is None


def test_tests_in_the_source_of_vitest() -> None:
    old = (
        "export const a = 1\nif (import.meta.vitest) {\n  const { it, expect } = import.meta.vitest\n"
        "  it('a', () => expect(a).toBe(1))\n}\n"
    )
    new = old.replace("a = 1", "a = 2").replace("toBe(1)", "toBe(2)")
    assert splice(old, new, "src/a.ts") == old.replace("a = 1", "a = 2")
    assert splice("const a = 1", "const b = 1", "src/a.ts") is None


OLD_PYTHON = '''\
def total(prices):
    """Adds up.

    >>> total([1])
    1
    """
    return sum(prices)


class Cart:
    def count(self):
        """How many.

        >>> Cart().count()
        0
        """
        return 0


def test_total():
    assert total([1]) == 1
'''
NEW_PYTHON = '''\
def total(prices):
    """Adds up.

    >>> total([1])
    2
    """
    return sum(prices) + 1


class Cart:
    def count(self):
        return 1


def test_total():
    assert total([1]) == 2


def test_more():
    assert True
'''


def test_python_gets_back_its_examples_and_its_tests() -> None:
    assert splice(OLD_PYTHON, NEW_PYTHON, "cart.py") == (
        OLD_PYTHON.replace("return sum(prices)", "return sum(prices) + 1").replace("return 0", "return 1")
        + "\n\npass\n"
    )


def test_the_old_source_of_python_gets_the_new_tests() -> None:
    spliced = splice(NEW_PYTHON, OLD_PYTHON, "cart.py") or ""
    assert ">>> total([1])\n    2" in spliced
    assert "return sum(prices)\n" in spliced
    assert "assert total([1]) == 2" in spliced
    assert "def test_more" in spliced


def test_rust_gets_back_the_examples_in_its_comments() -> None:
    old = "/// ```\n/// assert_eq!(total(), 1);\n/// ```\npub fn total() -> u32 { 1 }\n\npub fn other() {}\n"
    new = "pub fn total() -> u32 { 2 }\n\n/// ```\n/// fresh();\n/// ```\npub fn other() {}\n"
    assert splice(old, new) == old.replace("{ 1 }", "{ 2 }")
    assert splice(old, old) == old


@pytest.mark.parametrize(
    ("path", "text", "is_known", "wanted"),
    [
        ("checks/a.js", "import test from 'node:test';\ntest('a', () => {});\n", False, True),
        ("checks/a.cjs", "const { it } = require('vitest');\n", False, True),
        ("src/a.ts", "describe('a', () => {});\n", False, True),
        ("src/a.ts", "export const test = 1;\n", False, False),
        ("src/a.ts", "if (import.meta.vitest) { const { it } = require('vitest') }\n", False, False),
        ("check_a.py", "import pytest\n\ndef test_a():\n    pass\n", False, True),
        ("check_a.py", "def test_a():\n    pass\n", False, False),
        ("check_a.py", "def test_a():\n    pass\n", True, True),
        ("shop.py", "def a(): pass\ndef b(): pass\ndef test_a(): pass\n", True, False),
    ],
)
def test_a_file_is_all_tests_by_its_framework_or_by_what_is_known(
    path: str, text: str, is_known: bool, wanted: bool
) -> None:
    assert is_test_module(path, text.encode(), is_known=is_known) is wanted
