"""The diff guard: which files are tests, and which configure how tests are run."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.guard.test_files import is_test

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


@pytest.mark.parametrize("path", TEST_FILES.split())
def test_test_files_are_known_by_name_or_folder(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", OTHER_FILES.split())
def test_other_files_are_no_tests(path: str) -> None:
    assert not is_test(path)


@pytest.mark.parametrize("path", ["src/login.py", "src/a.ts", "README.md", "main.go", "poetry.lock"])
def test_what_says_nothing_about_tests_is_no_finding(path: str) -> None:
    assert (
        diff.inspect_changes([FileChange(path, b"", b""), FileChange(path, b"", None), FileChange(path, None, b"")])
        == []
    )
