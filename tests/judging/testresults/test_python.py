"""The output of pytest and unittest, from real runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from judging.testresults.reading_lab import count_tests, failed, failed_junit, run
from judging.testresults.recordings import CARGO, GO_TEXT, JEST

from ralphtool.judging.testresults import find_junit_paths, read_outcomes
from ralphtool.judging.testresults.model import Counts

# --- pytest, for real -------------------------------------------------------------------------------

SUITE = """
import os, subprocess, sys, unittest, pytest

def test_two():
    print("FAILED tests/fake.py::test_fake - no")
    print("=" * 27, "short test summary info", "=" * 28)
    print("FAILED tests/fake.py::test_other - no")
    assert 1 + 1 == 3

def test_fine():
    print("=" * 27, "short test summary info", "=" * 28)
    print("FAILED tests/fake.py::test_passing - no")

@pytest.mark.parametrize("text", ["a - b", "e", "f g"])
def test_param(text):
    assert text == "e", "a - message [with] - all"

@pytest.fixture
def bad():
    raise RuntimeError("bad")

def test_setup(bad):
    pass

@pytest.fixture
def late():
    yield
    raise RuntimeError("late")

def test_both(late):
    assert False

@pytest.mark.skip
def test_later():
    pass

@pytest.mark.xfail
def test_expected():
    assert False

class TestGroup:
    def test_two(self):
        assert False
"""
PYTEST_IDS = {
    "tests/test_a.py::test_two",
    "tests/sub/test_b.py::test_two",
    "tests/test_a.py::test_param[a - b]",
    "tests/test_a.py::test_param[f g]",
    "tests/test_a.py::test_setup",
    "tests/test_a.py::test_both",
    "tests/test_a.py::test_both #2",
    "tests/test_a.py::TestGroup::test_two",
}


def run_pytest(folder: Path, *options: str) -> bytes:
    return run(folder, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)


def write(folder: Path, **files: str) -> Path:
    """`sub_test_b` is the file `tests/sub/test_b.py`."""
    for name, text in files.items():
        file = folder / "tests" / f"{name.replace('sub_', 'sub/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write(tmp_path, test_a=SUITE, sub_test_b="def test_two():\n    assert False\n")


@pytest.mark.parametrize("options", ["", "-q", "-v", "-rA", "--tb=no", "-q -rA --tb=short --color=yes", "-vv -n2"])
def test_pytest_names_its_failures(suite: Path, options: str) -> None:
    output = run_pytest(suite, *options.split())
    assert failed(output, str(suite)) == PYTEST_IDS
    assert count_tests(output) == Counts(2, 8, 2)


def test_pytest_that_stops_early_names_what_it_saw(suite: Path) -> None:
    assert failed(run_pytest(suite, "-q", "-x")) == {"tests/sub/test_b.py::test_two"}


@pytest.mark.parametrize("options", ["-v", "-q"])
def test_a_printed_summary_ends_no_run(tmp_path: Path, options: str) -> None:
    text = "def test_two():\n    print('5 passed in 0.01s')\n    assert False\ndef test_three():\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text), options)
    assert failed(output) == {"tests/test_a.py::test_two", "tests/test_a.py::test_three"}
    assert options == "-q" or count_tests(output) == Counts(0, 2, 0)


def test_dashes_in_the_name_of_a_folder_begin_no_message() -> None:
    line = "FAILED my - tests/test_a.py::test_a - assert 0"
    output = f"=== short test summary info ===\n{line}\n1 failed in 0.10s\n"
    assert failed(output.encode()) == {"my - tests/test_a.py::test_a"}


def test_where_an_object_lay_is_no_part_of_an_id(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('it', [object()], ids=str)\ndef test_it(it):\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text))
    assert failed(output) == {"tests/test_a.py::test_it[<object object at 0x…>]"}


def test_subtests_have_ids_of_their_own(tmp_path: Path) -> None:
    text = (
        "def test_all(subtests):\n    for i in range(3):\n        with subtests.test(i=i):\n            assert i == 1\n"
    )
    node = "tests/test_a.py::test_all"
    assert failed(run_pytest(write(tmp_path, test_a=text))) == {node, f"{node} (i=0)", f"{node} (i=2)"}


def test_a_file_that_can_not_be_imported_is_its_own_id(suite: Path) -> None:
    write(suite, test_broken="import nowhere\n", test_worse="def (\n")
    for options in ((), ("-q", "--tb=no")):
        assert failed(run_pytest(suite, *options)) == {"tests/test_broken.py", "tests/test_worse.py"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-v", "import os\ndef test_bad(): assert False\ndef test_end(): os.abort()\n"),
        ("-q", "import os\ndef test_bad(): assert False\ndef test_end(): os.abort()\n"),
        ("-v", "def test_bad(): assert False\ndef test_end(): raise KeyboardInterrupt\n"),
        ("-q", "def test_bad(): assert False\ndef test_end(): raise KeyboardInterrupt\n"),
        ("-q", "import pytest\ndef test_bad(): assert False\ndef test_end(): pytest.exit('enough', 1)\n"),
        ("-q", ""),
    ],
    ids=["abort", "quiet abort", "interrupt", "quiet interrupt", "exit", "no tests"],
)
def test_pytest_that_did_not_get_through_names_nothing(tmp_path: Path, options: str, text: str) -> None:
    assert failed(run_pytest(write(tmp_path, test_a=text), options)) is None


def test_an_internal_error_names_nothing(suite: Path) -> None:
    write(
        suite, conftest="def pytest_runtest_logfinish(nodeid):\n    if 'both' in nodeid: raise RuntimeError(nodeid)\n"
    )
    output = run_pytest(suite, "-q")
    assert b"INTERNALERROR" in output
    assert failed(output) is None


@pytest.mark.parametrize("options", ["-v", "-q -rA"])
def test_pytest_without_its_end_names_nothing(suite: Path, options: str) -> None:
    lines = run_pytest(suite, *options.split()).rstrip(b"\n").split(b"\n")
    for end in range(0, len(lines)):
        assert failed(b"\n".join(lines[:end])) is None


def test_hidden_failures_are_no_answer(suite: Path) -> None:
    assert failed(run_pytest(suite, "-rE")) is None
    assert failed(run_pytest(suite, "-qq")) is None


def test_a_run_of_pytest_inside_a_test_is_not_ours(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner", test_in="def test_in():\n    assert False\n")
    outer = (
        "import subprocess, sys\ndef test_out():\n"
        f"    subprocess.run([sys.executable, '-m', 'pytest', {str(inner)!r}], cwd={str(inner)!r})\n"
        "    assert False\n"
    )
    output = run_pytest(write(tmp_path / "outer", test_out=outer))
    assert b"FAILED tests/test_in.py::test_in" in output
    assert failed(output) == {"tests/test_out.py::test_out"}
    assert count_tests(output) == Counts(0, 1, 0)
    assert failed(run_pytest(tmp_path / "outer", "-rN")) is None


def test_what_tests_print_of_other_programs_is_not_ours(tmp_path: Path) -> None:
    text = f"def test_out():\n    print({JEST + GO_TEXT + CARGO!r})\n    assert False\n"
    assert failed(run_pytest(write(tmp_path, test_a=text))) == {"tests/test_a.py::test_out"}


@pytest.mark.parametrize("options", ["", "-q"])
def test_one_run_after_the_other_counts_both(tmp_path: Path, options: str) -> None:
    one = run_pytest(write(tmp_path, test_a="def test_a():\n    assert False\n"), *options.split())
    output = one + one.replace(b"test_a", b"test_b")
    assert failed(output) == {"tests/test_a.py::test_a", "tests/test_b.py::test_b"}
    assert count_tests(output) == Counts(0, 2, 0)
    assert failed(output[: output.rindex(b" in ")]) is None


def test_a_junit_file_tells_the_same(suite: Path) -> None:
    command = f"{sys.executable} -m pytest -p no:cacheprovider --junitxml=out/report.xml"
    run(suite, *command.split())
    (path,) = find_junit_paths(command)
    data = (suite / path).read_bytes()
    assert failed_junit(data, str(suite)) == {
        "pytest > tests.test_a > test_two",
        "pytest > tests.sub.test_b > test_two",
        "pytest > tests.test_a > test_param[a - b]",
        "pytest > tests.test_a > test_param[f g]",
        "pytest > tests.test_a > test_setup",
        "pytest > tests.test_a > test_both",
        "pytest > tests.test_a > test_both #2",
        "pytest > tests.test_a.TestGroup > test_two",
    }
    assert failed(b"noise\n" + data) == failed_junit(data)
    assert count_tests(data) == Counts(2, 8, 2)


def test_reports_and_runs_can_be_one_inside_the_other(tmp_path: Path) -> None:
    report = "<testsuite name='s'>\n<testcase name='bad'><failure/></testcase>\n</testsuite>"
    text = f"def test_out():\n    print({report!r})\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text))
    assert report.encode() in output
    assert failed(output) == {"tests/test_a.py::test_out"}
    around = report.replace(
        "<failure/>", f"<failure/><system-out><![CDATA[\n{output.decode().replace(']]', '')}\n]]></system-out>"
    )
    assert failed(around.replace(report, "").encode()) == {"s > bad"}


# --- unittest, for real -----------------------------------------------------------------------------

UNITTEST = '''
import unittest

class TestCart(unittest.TestCase):
    def test_two(self):
        """Says what it is for."""
        print("FAIL: test_fake (tests.TestCart.test_fake)")
        self.assertEqual(1 + 1, 3)
    def test_error(self):
        raise RuntimeError("FAILED (failures=7)")
    def test_parts(self):
        for i in range(3):
            with self.subTest("part", i=i):
                self.assertEqual(i, 1)
    def test_fine(self):
        pass
    @unittest.skip("later")
    def test_later(self):
        pass
    @unittest.expectedFailure
    def test_expected(self):
        self.fail()
    @unittest.expectedFailure
    def test_unexpected(self):
        pass

class TestBroken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no")
    def test_never(self):
        pass
'''


@pytest.mark.parametrize("options", [(), ("-v",), ("-b",)])
def test_unittest_names_its_failures(tmp_path: Path, options: tuple[str, ...]) -> None:
    write(
        tmp_path,
        __init__="",
        test_a=UNITTEST,
        test_b=UNITTEST.partition("class TestBroken")[0],
        test_c="import nowhere",
    )
    output = run(tmp_path, sys.executable, "-m", "unittest", *options)
    names = ("test_two", "test_error", "test_unexpected")
    plain = {f"{name} (tests.test_{file}.TestCart.{name})" for file in "ab" for name in names}
    parts = {f"test_parts (tests.test_{file}.TestCart.test_parts) [part] (i={i})" for file in "ab" for i in (0, 2)}
    broken = {"setUpClass (tests.test_a.TestBroken)", "tests.test_c (unittest.loader._FailedTest.tests.test_c)"}
    assert failed(output) == plain | parts | broken
    counts = count_tests(output)
    assert counts is not None
    assert (counts.failed, counts.skipped) == (12, 4)


def test_unittest_without_its_end_names_nothing(tmp_path: Path) -> None:
    lines = run(write(tmp_path, __init__="", test_a=UNITTEST), sys.executable, "-m", "unittest").split(b"\n")
    last = max(at for at, line in enumerate(lines) if line.startswith(b"FAILED ("))
    for end in range(last + 1):
        assert failed(b"\n".join(lines[:end])) is None


@pytest.mark.parametrize(
    "lines",
    [
        "a.py::test_a[x PASSED y] PASSED [ 50%]\na.py::test_b SKIPPED (not now) [100%]",
        "[gw0] [ 50%] PASSED a.py::test_a[x PASSED y]\n[gw1] [100%] SKIPPED a.py::test_b",
    ],
)
def test_pytest_names_what_passed_when_it_is_verbose(lines: str) -> None:
    found = read_outcomes(f"= test session starts =\n{lines}\n= 1 passed, 1 skipped in 0.10s =\n".encode())
    assert found
    assert (found.passed, found.skipped) == (frozenset({"a.py::test_a[x PASSED y]"}), frozenset({"a.py::test_b"}))


@pytest.mark.parametrize(
    "output",
    ["no tests ran in 0.01s\n", "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", "Ran 0 tests in 0.000s\n\nOK\n"],
)
def test_a_run_without_tests_is_recognised(output: str) -> None:
    assert count_tests(output.encode()) == Counts(0, 0, 0)
