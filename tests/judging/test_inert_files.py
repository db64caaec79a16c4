"""Copies of added test files keep their text, and do nothing."""

from __future__ import annotations

import ast

import pytest

from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.inert_files import build_inert_copies
from ralphtool.judging.proof_evidence import SuiteRun, merge_beside


def copy(path: str, new: str | bytes) -> str:
    data = new if isinstance(new, bytes) else new.encode()
    return build_inert_copies([FileChange(path, None, data)]).get(path, b"").decode()


def test_every_line_is_a_comment() -> None:
    copied = copy("tests/test_a.py", 'import os\r\n"""\x0c\nos.abort()\n"""\u2028os.abort()\n')
    assert ast.parse(copied).body == []
    assert "# os.abort()" in copied
    script = copy("test/a.test.js", "/* */\nprocess.exit()\u2028process.exit()\n")
    assert all(line.startswith("//") for line in script.splitlines())


def test_an_encoding_is_not_read() -> None:
    copied = copy("tests/test_a.py", "# coding: utf-7\n+AAo-import os\n")
    assert ast.parse(copied.encode()).body == []


def test_a_file_of_go_keeps_its_package() -> None:
    assert copy("a_test.go", "//go:build x\npackage shop\n\nfunc init() {}\n").splitlines()[-1] == "package shop"


@pytest.mark.parametrize("path", ["tests/conftest.py", "tests/helpers.py", "cart.py", "package.json", "tests/A.php"])
def test_other_files_are_left_out(path: str) -> None:
    assert copy(path, "text") == ""


def test_a_changed_file_is_left_out() -> None:
    assert build_inert_copies([FileChange("tests/test_a.py", b"1", b"2")]) == {}
    assert build_inert_copies([FileChange("tests/test_a.py", None, b"2", "tests/test_b.py")]) == {}


def run(passed: str, failed: str = "", *, named: bool = True) -> SuiteRun:
    return SuiteRun(
        command="t",
        ok=not failed,
        passed=frozenset(passed) if named else None,
        failed=frozenset(failed),
        count_passed=len(passed),
        count_failed=len(failed),
    )


@pytest.mark.parametrize("named", [True, False])
def test_only_a_test_that_then_passes_is_believed(*, named: bool) -> None:
    first = run("a", "bc", named=named)
    again = merge_beside(first, run("ab", "cx", named=named))
    assert (again.ok, again.failed, again.count_passed, again.count_failed) == (False, frozenset("c"), 2, 1)
    whole = merge_beside(run("a", "b", named=named), run("ab", "x", named=named))  # the copy itself fails
    assert (whole.ok, whole.failed, whole.count_passed) == (True, frozenset(), 2)


def test_a_test_that_did_not_run_again_is_not_believed() -> None:
    assert "b" in (merge_beside(run("a", "b"), run("a", "x")).failed or ())
    assert not merge_beside(run("a", "b", named=False), run("a", "x", named=False)).ok
