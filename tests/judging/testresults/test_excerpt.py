"""The excerpt of a red command's output: what the failed test printed, although many others passed after it."""

from __future__ import annotations

import pytest

from ralphtool.judging.testresults.excerpt import cut_excerpt

MOST = 1500
MANY = range(150)
RULER = "=" * 70

GO = (
    "=== RUN   TestDelta",
    "    delta_test.go:7: bad",
    "--- FAIL: TestDelta (0.00s)",
    "=== RUN   TestZ",
    *(f"=== RUN   TestZ/{one}" for one in MANY),
    "--- PASS: TestZ (0.00s)",
    *(f"    --- PASS: TestZ/{one} (0.00s)" for one in MANY),
    "FAIL",
    "exit status 1",
    "FAIL\texample.com/shop\t0.003s",
)
GO_JSON = (
    '{"Action":"run","Package":"example.com/shop","Test":"TestDelta"}',
    '{"Action":"output","Package":"example.com/shop","Test":"TestDelta","Output":"    delta_test.go:7: bad\\n"}',
    '{"Action":"output","Package":"example.com/shop","Test":"TestDelta","Output":"--- FAIL: TestDelta (0.00s)\\n"}',
    '{"Action":"fail","Package":"example.com/shop","Test":"TestDelta","Elapsed":0}',
    *(f'{{"Action":"pass","Package":"example.com/shop","Test":"TestZ/{one}","Elapsed":0}}' for one in MANY),
)
UNITTEST = (
    RULER,
    "FAIL: test_delta (test_a.TestA.test_delta)",
    "-" * 70,
    "AssertionError: bad",
    *(f"test_{one} (test_z.TestZ.test_{one}) ... ok" for one in MANY),
    "Ran 81 tests in 0.002s",
    "FAILED (failures=1)",
)
CARGO = (
    "test tests::delta ... FAILED",
    "failures:",
    "---- tests::delta stdout ----",
    "thread 'tests::delta' panicked at src/lib.rs:7:9:",
    "bad",
    "failures:",
    "    tests::delta",
    "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
    *(f"test tests::other_{one} ... ok" for one in MANY),
)
TAP = (
    "# Subtest: delta",
    "not ok 1 - delta",
    "  ---",
    "  error: 'bad'",
    "  ...",
    *(
        line
        for one in MANY
        for line in (f"# Subtest: z {one}", f"ok {one} - z {one}", "  ---", "  duration_ms: 0.1", "  ...")
    ),
    "1..81",
)
NODE = ("✖ delta (0.5ms)", "  AssertionError: bad", *(f"✔ z {one} (0.1ms)" for one in MANY))
PYTEST = (
    "tests/test_a.py::test_delta FAILED  [  1%]",
    "E   AssertionError: bad",
    *(f"tests/test_z.py::test_{one} PASSED  [ 50%]" for one in MANY),
)
OUTPUTS = {
    "go": (GO, "example.com/shop.TestDelta"),
    "go -json": (GO_JSON, "example.com/shop.TestDelta"),
    "unittest -v": (UNITTEST, "test_delta (test_a.TestA.test_delta)"),
    "cargo": (CARGO, "shop unittests src/lib.rs tests::delta"),
    "TAP": (TAP, "delta"),
    "node": (NODE, "a.test.js > delta"),
    "pytest -v": (PYTEST, "tests/test_a.py::test_delta"),
}
QUIET = [name for name in OUTPUTS if name != "go -json"]


@pytest.mark.parametrize("name", QUIET)
def test_lines_about_tests_that_passed_take_no_room(name: str) -> None:
    """So the error is there even if no name of a failed test is known."""
    lines, _ = OUTPUTS[name]
    assert "bad" in "\n".join(lines)[:-MOST], "the end of the output does not have it"
    assert "bad" in cut_excerpt(lines, [], MOST)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_output_of_a_failed_test_is_there_however_much_others_print(name: str) -> None:
    lines, failed = OUTPUTS[name]
    noise = [f"debug: request {one} took a while" for one in range(400)]
    found = cut_excerpt([*noise, *lines, *noise, "the last line"], [failed], MOST)
    assert "bad" in found
    assert found.endswith("the last line")
    assert len(found) <= MOST


def test_the_end_is_enough_if_it_reaches_back_to_a_failed_test() -> None:
    noise = [f"debug: request {one} took a while" for one in range(400)]
    lines = [*noise, *GO]
    assert cut_excerpt(lines, ["example.com/shop.TestDelta"], MOST) == cut_excerpt(lines, [], MOST)


def test_a_test_is_not_taken_for_one_whose_name_begins_alike() -> None:
    lines = [
        *("=== RUN   TestZ/3", "    z_test.go:3: this one"),
        *(f"debug: request {one}" for one in range(400)),
        *("=== RUN   TestZ/33", "    z_test.go:33: another"),
        *("--- FAIL: TestZ/3 (0.00s)", "--- FAIL: TestZ/33 (0.00s)"),
    ]
    assert "z_test.go:3: this one" in cut_excerpt(lines, ["shop.TestZ/3"], 400)


def test_what_a_test_printed_before_it_failed_in_another_package_stays() -> None:
    """The same name may be that of a test that passed elsewhere."""
    lines = [
        *("=== RUN   TestSame", "--- PASS: TestSame (0.00s)", "ok  \ta\t0.01s"),
        *("=== RUN   TestSame", "    b_test.go:4: bad", "--- FAIL: TestSame (0.00s)", "FAIL"),
    ]
    assert cut_excerpt(lines, [], MOST).splitlines() == [
        *("=== RUN   TestSame", "=== RUN   TestSame", "    b_test.go:4: bad", "--- FAIL: TestSame (0.00s)", "FAIL"),
    ]
