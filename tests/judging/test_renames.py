"""Tests that differ only in names that the work renamed, and tests that only seem to."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.test_side import ChangedPaths

SOURCE = b"def total(items):\n    return sum(items)\n\ndef mean(items):\n    return total(items) / len(items)\n"
TEST = b"from cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
RUST = b"pub fn tax(n: u32) -> Result<u32, String> { if n > 9 { Err(String::new()) } else { Ok(n) } }\n"
RUST_TEST = b"#[cfg(test)]\nmod tests {\n    #[test]\n    fn refuses() { assert!(super::tax(10).is_err()); }\n}\n"


def ask(*changes: tuple[str, bytes, bytes]) -> bool:
    return ChangedPaths(tuple(FileChange(*one) for one in changes)).is_same_but_renamed()


def rename(data: bytes, old: bytes = b"total", new: bytes = b"add_up") -> bytes:
    return data.replace(old, new)


def test_a_renamed_function_is_followed() -> None:
    assert ask(("cart.py", SOURCE, rename(SOURCE)), ("tests/test_cart.py", TEST, rename(TEST)))


def test_a_word_in_a_comment_does_not_keep_a_name_alive() -> None:
    new = b'"""Not total any more."""\n' + rename(SOURCE) + b"# was total\n"
    assert ask(("cart.py", SOURCE, new), ("tests/test_cart.py", TEST, rename(TEST)))


def test_a_test_beside_the_source_may_follow_too() -> None:
    old = RUST + RUST_TEST
    assert ask(("src/lib.rs", old, rename(old, b"tax", b"duty")))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(TEST.replace(b"total", b"add_up").replace(b"3", b"4"), id="another value"),
        pytest.param(TEST.replace(b"total", b"add_up").replace(b"    assert", b"    return\n    assert"), id="returns"),
        pytest.param(TEST.replace(b"total", b"mean"), id="a function that was there before"),
        pytest.param(TEST.replace(b"total", b"nowhere"), id="a name that the source does not have"),
    ],
)
def test_what_asks_for_something_else_is_not_the_same(broken: bytes) -> None:
    assert not ask(("cart.py", SOURCE, rename(SOURCE)), ("tests/test_cart.py", TEST, broken))


def test_a_name_that_only_tests_beside_the_source_had_was_not_renamed_by_the_work() -> None:
    new = RUST.replace(b"n > 9", b"n > 99") + RUST_TEST.replace(b"is_err", b"is_ok")
    assert not ask(("src/lib.rs", RUST + RUST_TEST, new))


def test_two_names_that_become_one_are_no_rename() -> None:
    old = b"def low(n):\n    return n < 1\n\ndef high(n):\n    return n > 9\n"
    new = b"def odd(n):\n    return n < 1\n"
    test = b"from cart import low, high\n\ndef test_both():\n    assert low(0)\n    assert high(10)\n"
    changed = test.replace(b"low, high", b"odd").replace(b"low", b"odd").replace(b"high", b"odd")
    assert not ask(("cart.py", old, new), ("tests/test_cart.py", test, changed))
