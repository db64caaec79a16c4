"""What a compiler or an interpreter says about a missing name, and what linters say that is not about one."""

from __future__ import annotations

import pytest

from ralphtool.judging.testresults import find_uncompiled

MISSING = {
    "cargo": (
        "error[E0432]: unresolved import `shop::shipping`\n --> tests/ship.rs:1:5\n  |\n1 | use shop::shipping;",
        {"tests/ship.rs"},
    ),
    "cargo, a macro": ("error: cannot find macro `ship` in this scope\n --> tests/ship.rs:4:5", {"tests/ship.rs"}),
    "tsc": (
        "test/ship.test.ts(1,10): error TS2305: Module '\"../src/shop\"' has no exported member 'shipping'.",
        {"test/ship.test.ts"},
    ),
    "tsc --pretty": (
        "test/ship.test.ts:1:26 - error TS2307: Cannot find module '../src/ship' or its type declarations.",
        {"test/ship.test.ts"},
    ),
    "go vet": ("# shop\nvet: ./ship_test.go:6:12: undefined: Shipping", {"ship_test.go"}),
    "mypy": ('test_ship.py:1: error: Module "shop" has no attribute "shipping"  [attr-defined]', {"test_ship.py"}),
    "mypy, a module": (
        'tests/test_ship.py:1: error: Cannot find implementation or library stub for module named "ship"',
        {"tests/test_ship.py"},
    ),
    "pyright": (
        '  /work/shop/test_ship.py:1:18 - error: "shipping" is unknown import symbol (reportAttributeAccessIssue)',
        {"test_ship.py"},
    ),
    "pylint": ("test_ship.py:1:0: E0611: No name 'shipping' in module 'shop' (no-name-in-module)", {"test_ship.py"}),
    "eslint": (
        "/work/shop/a.js\n  9:9  error  bad  semi\n\n/work/shop/test/ship.test.js\n"
        "  1:10  error  shipping not found in '../shop.js'  import/named",
        {"test/ship.test.js"},
    ),
    "javac": ("src/test/java/ShipTest.java:5: error: cannot find symbol", {"src/test/java/ShipTest.java"}),
    "maven": ("[ERROR] /work/shop/src/test/ShipTest.java:[5,9] cannot find symbol", {"src/test/ShipTest.java"}),
    "kotlinc": ("e: file:///work/shop/src/ShipTest.kt:5:9 Unresolved reference: ship", {"src/ShipTest.kt"}),
    "dotnet": (
        "ShipTest.cs(5,9): error CS0103: The name 'Ship' does not exist in the current context",
        {"ShipTest.cs"},
    ),
    "gcc": ("tests/ship.c:3:10: fatal error: ship.h: No such file or directory", {"tests/ship.c"}),
    "swift": ("Tests/ShipTests.swift:5:9: error: cannot find 'ship' in scope", {"Tests/ShipTests.swift"}),
    "mocha": (
        "\nError: Cannot find module '../ship'\nRequire stack:\n- /work/shop/test/ship.test.js\n    at x (node:1:2)",
        {"test/ship.test.js"},
    ),
    "mocha 11": (
        "\n Exception during run: Error: Cannot find module '../ship'\nRequire stack:\n- /work/shop/test/ship.test.js",
        {"test/ship.test.js"},
    ),
    "mocha, a module of ES": (
        "file:///work/shop/test/ship.test.js:1\nimport { shipping } from '../shop.js';\n         ^\n"
        "SyntaxError: The requested module '../shop.js' does not provide an export named 'shipping'",
        {"test/ship.test.js"},
    ),
    "python": (
        'Traceback (most recent call last):\n  File "/work/shop/test_ship.py", line 3, in <module>\n'
        "    from shop import shipping\nImportError: cannot import name 'shipping' from 'shop'",
        {"test_ship.py"},
    ),
    "a conftest": ("ImportError while loading conftest '/work/shop/tests/conftest.py'.", {"tests/conftest.py"}),
    "php": (
        'PHP Fatal error:  Uncaught Error: Class "Ship" not found in /work/shop/tests/ShipTest.php:5',
        {"tests/ShipTest.php"},
    ),
    "perl": ("Can't locate Ship.pm in @INC (you may need it) at t/ship.t line 3.", {"t/ship.t"}),
}
OTHERS = {
    "flake8": "test_ship.py:4:80: E501 line too long (90 > 79 characters)",
    "flake8, a name": "test_ship.py:5:12: F821 undefined name 'shiping'",
    "ruff": "test_ship.py:1:1: D100 Missing docstring in public module",
    "eslint": "/work/shop/test/ship.test.js\n  3:1  error  'describe' is not defined  no-undef",
    "mypy --strict": (
        'test_ship.py:1: error: Module "shop" does not explicitly export attribute "discount"  [attr-defined]\n'
        "test_ship.py:3: error: Function is missing a return type annotation  [no-untyped-def]"
    ),
    "tsc --strict": (
        "test/ship.test.ts(3,5): error TS7006: Parameter 'x' implicitly has an 'any' type.\n"
        "test/ship.test.ts(4,5): error TS2582: Cannot find name 'describe'."
    ),
    "clippy": "error: this `if` has identical blocks\n --> tests/ship.rs:3:5",
    "black": "would reformat /work/shop/test_ship.py\nOh no!",
    "a script": "the change log does not mention test_ship.py",
}


@pytest.mark.parametrize("name", MISSING)
def test_a_message_about_something_missing_names_the_file(name: str) -> None:
    output, files = MISSING[name]
    assert find_uncompiled(output.encode(), "/work/shop") >= files


@pytest.mark.parametrize("name", OTHERS)
def test_a_message_of_another_kind_names_none(name: str) -> None:
    assert find_uncompiled(OTHERS[name].encode(), "/work/shop") == frozenset()
