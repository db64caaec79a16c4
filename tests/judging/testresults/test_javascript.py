"""Recorded output of Jest, Vitest and Mocha, and output of a real Node."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from judging.testresults.reading_lab import count_tests, failed, run
from judging.testresults.recordings import JAVASCRIPT, JEST, JEST_IDS, MOCHA, MOCHA_IDS, VITEST, VITEST_IDS, load

from ralphtool.judging.testresults import read_outcomes
from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), JAVASCRIPT.values(), ids=JAVASCRIPT)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


@pytest.mark.parametrize(
    "output",
    [
        JEST.replace("  ● is odd 2\n", ""),
        JEST.replace("FAIL ./broken.test.js\n  ● Test suite failed to run\n", ""),
        VITEST.replace("a.test.js\x1b[2m > \x1b[22mis odd 2", ""),
        VITEST + "     Errors  1 error\n",
        MOCHA.replace("  3) cart\n", ""),
    ],
    ids=lambda output: str(output)[:20],
)
def test_fewer_names_than_failures_are_no_answer(output: str) -> None:
    assert failed(output.encode()) is None


def test_vitest_may_name_its_failures_after_its_summary() -> None:
    """They go to stderr; in a log, that may come after all of stdout."""
    begin, end = VITEST.index("\x1b[31m⎯"), VITEST.index("\x1b[2m Test Files")
    stdout, stderr = VITEST[:begin] + VITEST[end:], VITEST[begin:end]
    assert failed((stdout + stderr).encode()) == VITEST_IDS
    assert failed((stdout + stderr[: len(stderr) // 2]).encode()) is None


def test_the_same_failure_shown_twice_is_one() -> None:
    head, _, tail = JEST.partition("Test Suites:")
    again = head[head.index("FAIL ./a.test.js") :]
    assert failed(f"{head}Summary of all failing tests\n{again}Test Suites:{tail}".encode()) == JEST_IDS


# --- node, for real ---------------------------------------------------------------------------------

NODE = """
import { test, describe, it } from 'node:test'
import assert from 'node:assert'
describe('cart', () => {
  describe('adds', () => {
    it('two # items', () => { assert.equal(1 + 1, 3) })
    it('three items', () => {})
  })
  it.skip('later', () => {})
  it.todo('some day', () => { throw new Error('todo') })
})
test('same name', () => { console.log('not ok 7 - fake\\n✖ fake (1ms)'); throw new Error('boom') })
"""


@pytest.fixture
def javascript(tmp_path: Path) -> Path:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    (tmp_path / "b").mkdir()
    (tmp_path / "a.test.mjs").write_text(NODE)
    (tmp_path / "b/a.test.mjs").write_text(
        "import { test } from 'node:test'\ntest('same name', () => { throw new Error() })\n"
    )
    (tmp_path / "broken.test.mjs").write_text("import './nowhere.mjs'\n")
    return tmp_path


def test_node_names_its_failures_as_spec(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=spec")
    ids = {"a.test.mjs > two # items", "a.test.mjs > same name", "b/a.test.mjs > same name", "broken.test.mjs"}
    assert failed(output, str(javascript)) == ids
    assert count_tests(output) == Counts(1, 4, 2)
    lines = output.splitlines(keepends=True)
    assert all(failed(b"".join(lines[:end]), str(javascript)) in (None, ids) for end in range(len(lines)))


def test_node_names_its_failures_as_junit(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=junit")
    assert failed(output, str(javascript)) == {
        "cart > adds > test > two # items",
        "test > same name",
        "test > same name #2",
        "test > broken.test.mjs",
    }
    assert count_tests(output) == Counts(1, 4, 2)


def test_node_names_its_failures_as_tap(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=tap")
    ids = {
        "a.test.mjs > cart > adds > two # items",
        "a.test.mjs > same name",
        "b/a.test.mjs > same name",
        "broken.test.mjs",
    }
    assert failed(output, str(javascript)) == ids
    assert count_tests(output) == Counts(1, 4, 2)
    lines = output.splitlines(keepends=True)
    assert all(failed(b"".join(lines[:end]), str(javascript)) in (None, ids) for end in range(len(lines)))


def test_ids_do_not_depend_on_where_it_ran(javascript: Path) -> None:
    """Without a root too, as far as a name and its folder go."""
    moved = javascript.parent / "moved"
    before = run(javascript, "node", "--test", "--test-reporter=tap")
    shutil.copytree(javascript, moved)
    after = run(moved, "node", "--test", "--test-reporter=tap")
    assert failed(before, str(javascript)) == failed(after, f"{moved}/")
    assert str(javascript.parent) not in str(failed(before))


# --- passed tests -----------------------------------------------------------------------------------


def names(output: str) -> tuple[set[str], set[str], set[str]]:
    found = read_outcomes(output.encode())
    assert found
    assert found.passed is not None
    assert found.failed is not None
    return set(found.passed), set(found.failed), set(found.skipped)


def test_jest_names_what_passed_when_it_is_verbose() -> None:
    passed, failed_names, _ = names(JEST)
    assert passed == {"a.test.js > cart \u203a adds \u203a three items", "a.test.js > is odd 1", "ok.test.js > fine"}
    assert {"a.test.js > same name", "a.test.js > cart \u203a adds \u203a two items"} <= failed_names


def test_vitest_names_what_passed_when_it_is_verbose() -> None:
    passed, failed_names, skipped = names(load("vitest-verbose"))
    each = ["cart > adds", "cart > in > deep", "dup", "dup #2", "dup > x"]
    assert passed == {"c.test.js > good", *(f"{file}.test.js > {name}" for file in "ab" for name in each)}
    assert failed_names == {"c.test.js > bad"}
    assert {"a.test.js > cart > in > sk", "a.test.js > later"} <= skipped


def test_mocha_names_what_passed() -> None:
    passed, failed_names, _ = names(MOCHA)
    assert passed == {"cart > adds > three items"}
    assert failed_names == MOCHA_IDS


def test_without_names_only_the_number_is_known() -> None:
    found = read_outcomes(b"PASS a.test.js\n\nTest Suites: 1 passed, 1 total\nTests:       3 passed, 3 total\n")
    assert found
    assert (found.counts, found.passed, found.failed) == (Counts(3, 0, 0), None, frozenset())


@pytest.mark.parametrize(
    ("noise", "real"),
    [
        ("Tests:       2 failed, 3 total", "Test Suites: 1 passed, 1 total\nTests:       3 passed, 3 total"),
        ("      Tests  2 failed | 1 passed (3)", " Test Files  1 passed (1)\n      Tests  3 passed (3)"),
        ("  9 passing (1ms)\n  2 failing", "  3 passing (5ms)"),
        ("\u2139 fail 2", "\u2139 tests 3\n\u2139 pass 3\n\u2139 fail 0"),
        ("Ran 2 tests in 0.1s\n\nFAILED (failures=2)", "Ran 3 tests in 0.1s\n\nOK"),
        ("2 examples, 2 failures", "3 examples, 0 failures"),
    ],
)
def test_a_number_of_failures_that_a_test_prints_counts_nothing(noise: str, real: str) -> None:
    """A real test program names the failures that it counts."""
    counted = count_tests(f"{noise}\n{real}\n".encode())
    assert counted
    assert counted.failed == 0


@pytest.mark.parametrize(
    "summary",
    [
        "Test Suites: 1 failed, 1 passed, 2 total\nTests:       3 passed, 3 total",
        " Test Files  1 failed | 1 passed (2)\n      Tests  3 passed (3)",
        " Test Files  1 passed (1)\n      Tests  3 passed (3)\n     Errors  1 error",
    ],
)
def test_a_file_that_can_not_be_loaded_is_a_failure(summary: str) -> None:
    assert count_tests(summary.encode()) == Counts(3, 1, 0)


def test_a_test_that_passes_when_it_is_repeated_is_no_failure() -> None:
    output = " \u2713 a.test.js > flaky (retry x2) 5ms\n\n Test Files  1 passed (1)\n      Tests  1 passed (1)\n"
    assert names(output) == ({"a.test.js > flaky"}, set(), set())
