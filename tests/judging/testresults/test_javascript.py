"""The output of Jest, Vitest and Mocha as it was recorded, and of a real Node."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from judging.testresults.reading_lab import count_tests, failed, run
from judging.testresults.recordings import JAVASCRIPT, JEST, JEST_IDS, MOCHA, VITEST, VITEST_IDS

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
    """They are on stderr; a log may have that after all of stdout."""
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
    """Without a root, too, as far as a name and its folder go."""
    moved = javascript.parent / "moved"
    before = run(javascript, "node", "--test", "--test-reporter=tap")
    shutil.copytree(javascript, moved)
    after = run(moved, "node", "--test", "--test-reporter=tap")
    assert failed(before, str(javascript)) == failed(after, f"{moved}/")
    assert str(javascript.parent) not in str(failed(before))
