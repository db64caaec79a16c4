"""Packages and crates that only tests use, to check results."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from judging.test_test_side import change, serve

from ralphtool.judging.checking_packages import find_checking_packages

GO = 'package assertx\n\nimport "testing"\n\nfunc Equal(t *testing.T, a int) {\n\tif a > 0 {\n\t\tt.Fatal(a)\n\t}\n}\n'
GO_USE = 'package shop\n\nimport (\n\t"testing"\n\t"shop/internal/assertx"\n)\n'
RUST = "pub fn same(a: i64, b: i64) {\n    assert!(a == b);\n}\n"
CRATE = {"crates/near/Cargo.toml": '[package]\nname = "near"\n'}
DEVELOPED = '[dev-dependencies]\nnear = { path = "crates/near" }\n[workspace.dependencies]\nnear = "1"\n'
PLATFORM = f"{DEVELOPED}[target.'cfg(unix)'.dependencies]\nnear.workspace = true\n"


@pytest.mark.parametrize(
    ("path", "text", "files", "is_found"),
    [
        ("internal/assertx/a.go", GO, {"shop_test.go": GO_USE}, True),
        ("internal/assertx/a.go", GO, {"shop_test.go": GO_USE, "qa/b.go": GO_USE}, True),  # through another helper
        ("internal/assertx/a.go", GO, {"shop_test.go": GO_USE, "shop.go": 'import "shop/internal/assertx"'}, False),
        ("internal/assertx/a.go", GO, {"internal/assertx/a_test.go": GO_USE}, False),  # it is what is tested
        ("internal/assertx/a.go", GO.replace('"testing"', '"fmt"'), {"shop_test.go": GO_USE}, False),
        ("assertx.go", GO, {"shop_test.go": GO_USE}, False),
        ("crates/near/src/lib.rs", RUST, {**CRATE, "Cargo.toml": DEVELOPED}, True),
        ("crates/near/src/lib.rs", f"{RUST}pub fn total() {{}}\n", {**CRATE, "Cargo.toml": DEVELOPED}, False),
        ("crates/near/src/lib.rs", RUST, {**CRATE, "Cargo.toml": PLATFORM}, False),
        ("crates/near/src/lib.rs", RUST, {**CRATE, "Cargo.toml": '[dependencies]\na = {package = "near"}'}, False),
        ("crates/near/src/lib.rs", RUST, {**CRATE, "Cargo.toml": "near = ["}, False),
        ("crates/near/src/lib.rs", RUST, {"Cargo.toml": DEVELOPED}, False),
    ],
)
def test_what_only_tests_use(path: str, text: str, files: Mapping[str, str], is_found: bool) -> None:
    read, grep = serve({**files, path: text})
    assert find_checking_packages([change(path, text)], read, grep) == (frozenset([path]) if is_found else frozenset())
    assert not find_checking_packages([change(path, None, text)], read, grep)
