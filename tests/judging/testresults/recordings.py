"""Recorded output of test programs, with the failed tests and the counts.

Recorded with jest 30.5, vitest 3.2 (verbose: 4.1), mocha 12.0, go 1.19, cargo 1.95, phpunit 9.6 and rspec 3.12; only
stack traces and code frames were removed. The recorded tests print text that looks like results, and some names
occur twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ralphtool.judging.testresults.model import Counts

FOLDER = Path(__file__).parent / "recorded"


class Recording(NamedTuple):
    output: str
    ids: set[str]
    counts: Counts | None


def load(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


JEST = load("jest")
VITEST = load("vitest")
MOCHA = load("mocha")
MOCHA_AS_TAP = load("mocha-as-tap")
JS_IDS = {"a.test.js > same name", "a.test.js > is odd 2", "b/a.test.js > same name"}
JEST_IDS = JS_IDS | {"a.test.js > cart › adds › two items", "broken.test.js > Test suite failed to run"}
VITEST_IDS = JS_IDS | {"a.test.js > cart > adds > two items", "broken.test.js"}
MOCHA_IDS = {"same name", "cart > same name", "cart > adds > two items", 'hooks > "before all" hook for "never"'}
JAVASCRIPT = {
    "jest": Recording(JEST, JEST_IDS, Counts(3, 4, 2)),
    "jest in colour": Recording(load("jest-in-colour"), JEST_IDS, Counts(3, 4, 2)),
    "vitest": Recording(VITEST, VITEST_IDS, Counts(3, 4, 2)),
    "mocha": Recording(MOCHA, MOCHA_IDS, Counts(1, 4, 1)),
    "mocha in colour": Recording(load("mocha-in-colour"), MOCHA_IDS, Counts(1, 4, 1)),
}
TAP = {"mocha as TAP": Recording(MOCHA_AS_TAP, {name.replace(" > ", " ") for name in MOCHA_IDS}, Counts(1, 4, 0))}

GO_TEXT = load("go")
GO_JSON = load("go-json")
GO_CRASH = load("go-crash")
GO_IDS = {
    "example.com/shop/a.TestSame",
    "example.com/shop/a.TestTable/three",
    "example.com/shop/b.TestSame",
    "example.com/shop/b.TestPanic",
    "example.com/shop/build [build failed]",
}
GO = {
    "go": Recording(GO_TEXT, GO_IDS, Counts(1, 6, 0)),
    "go -v": Recording(load("go-verbose"), GO_IDS, Counts(3, 6, 1)),
    "go -json": Recording(GO_JSON, GO_IDS, Counts(3, 6, 1)),
}

CARGO = load("cargo")
CARGO_IDS = {
    "shop src/lib.rs tests::same",
    "api tests/api.rs tests::same",
    "api tests/api.rs tests::other",
    "shop src/lib.rs - two",
}
RUST = {
    "cargo": Recording(CARGO, CARGO_IDS, Counts(1, 4, 1)),
    "cargo in colour": Recording(load("cargo-in-colour"), {"shop src/lib.rs tests::same"}, Counts(1, 1, 1)),
}

PHPUNIT = load("phpunit")
PHPUNIT_IDS = {"CartTest::testError", "CartTest::testTwo", 'CartTest::testOdd with data set "named"'}
PHP = {"phpunit": Recording(PHPUNIT, PHPUNIT_IDS, Counts(2, 3, 1))}

RSPEC = load("rspec")
RSPEC_IDS = {
    "spec/a_spec.rb # cart same",
    "spec/b/a_spec.rb # cart same",
    "spec/a_spec.rb # cart each",
    "spec/a_spec.rb # cart adds two items",
}
RUBY = {
    "rspec": Recording(RSPEC, RSPEC_IDS, Counts(2, 4, 1)),
    "rspec, broken": Recording(load("rspec-broken"), {"while loading ./spec/broken_spec.rb"}, Counts(0, 1, 0)),
}

RECORDED = {**JAVASCRIPT, **TAP, **GO, **RUST, **PHP, **RUBY}
