"""Reports that programs were asked to write, besides their output."""

from __future__ import annotations

import time
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging.testresults.recordings import JEST

from ralphtool.judging.testresults import find_failed_tests, read_outcomes
from ralphtool.judging.testresults.model import Counts

BEGAN = "2026-11-16T15:22:22.185993+00:00"
BAD = "<failure message='x'/>"


def case(name: str, inside: str = "", group: str = "tests.test_a", file: str = "tests/test_a.py") -> str:
    place = f" file={quoteattr(file)}" if file else ""
    return f"<testcase classname={quoteattr(group)} name={quoteattr(name)}{place}>{inside}</testcase>"


def report(*cases: str, began: str = BEGAN, seconds: float = 1.0, failures: int = 0) -> bytes:
    suite = f"<testsuite name='pytest' failures='{failures}' timestamp='{began}' time='{seconds}'>"
    text = f"<?xml version='1.0' encoding='utf-8'?><testsuites>{suite}{''.join(cases)}</testsuite></testsuites>"
    return text.encode()


def counts(printed: str, *written: bytes) -> Counts | None:
    found = read_outcomes(printed.encode(), "", written)
    return found.counts if found else None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (case("test_x"), "tests/test_a.py::test_x"),
        (case("test_x", group="tests.test_a.TestX.TestY"), "tests/test_a.py::TestX::TestY::test_x"),
        (case("test_x[a.B::c]"), "tests/test_a.py::test_x[a.B::c]"),
        (case("test_x", file=""), "tests/test_a.py::test_x"),
        (case("test_x", group="tests.test_a.TestX", file=""), "tests/test_a.py::TestX::test_x"),
        (case("test_x", group="tests.test_b.TestX"), "tests/test_b.py::TestX::test_x"),
        (case("test_x[a\nb]").replace("\n", "&#10;"), "tests/test_a.py::test_x[a?b]"),
        (case("test_é"), "tests/test_a.py::test_é"),
        (case("test_x[<object object at 0x7fbb4c7ab210>]"), "tests/test_a.py::test_x[<object object at 0x…>]"),
    ],
)
def test_ids_are_those_that_pytest_prints(written: str, name: str) -> None:
    found = read_outcomes(b"1 passed in 0.10s", "", [report(written)])
    assert found
    assert found.passed == frozenset({name})


def test_long_names_stay_distinct() -> None:
    found = read_outcomes(b"", "", [report(case("test_" + "x" * 10000), case("test_" + "x" * 10001))])
    assert found
    assert found.passed is not None
    assert len(found.passed) == 2
    assert all(len(name) < 500 for name in found.passed)


def test_a_file_that_can_not_be_imported_has_its_path() -> None:
    broken = case("tests.test_a", "<error message='collection failure'/>", group="")
    assert find_failed_tests(b"", "", [report(broken, failures=1)]) == frozenset({"tests/test_a.py"})


def test_a_test_that_was_repeated_is_one_test() -> None:
    """A plugin that repeats failed tests writes a test once for each run, but only its last result."""
    assert counts("1 passed, 1 rerun in 0.10s", report(case("test_x"), case("test_x"))) == Counts(1, 0, 0)
    assert counts("1 passed, 1 error in 0.10s", report(case("test_x", "<error/>"))) == Counts(0, 1, 0)


# --- when the output contradicts the report ---------------------------------------------------------

GREEN = report(case("test_x"), case("test_y"))
RED = report(case("test_x"), case("test_y", BAD), failures=1)
NAMED = "= short test summary info =\nFAILED tests/test_a.py::test_y - x\n1 failed, 1 passed in 0.10s\n"


@pytest.mark.parametrize(
    ("printed", "written", "expected"),
    [
        ("2 passed in 0.10s\n", GREEN, Counts(2, 0, 0)),
        ("", GREEN, Counts(2, 0, 0)),
        ("", RED, Counts(1, 1, 0)),
        ("5 passed in 0.10s\n", RED, Counts(1, 1, 0)),
        ("1 failed, 1 passed in 0.10s\n", RED, Counts(1, 1, 0)),
        (NAMED, RED, Counts(1, 1, 0)),
        (NAMED, GREEN, Counts(1, 1, 0)),
        ("2 failed in 0.10s\n", GREEN, Counts(0, 0, 0)),
        ("2 failed in 0.10s\n50 passed in 0.10s\n2 passed in 0.10s\n", GREEN, Counts(2, 0, 0)),
        ("5 passed in 0.10s\n1 failed, 1 passed in 0.10s\n", RED, Counts(1, 1, 0)),
        ("2 passed in 0.10s\n", b"", Counts(2, 0, 0)),
        ("2 passed in 0.10s\n", GREEN[:-30], Counts(2, 0, 0)),
        ("2 passed in 0.10s\n", b"<testsuites/>", Counts(2, 0, 0)),
        ("2 passed in 0.10s\n", b"\x00\xff", Counts(2, 0, 0)),
        ("2 passed in 0.10s\n", b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + GREEN, Counts(2, 0, 0)),
    ],
)
def test_the_report_is_believed_and_the_worse_counts(printed: str, written: bytes, expected: Counts) -> None:
    assert counts(printed, written) == expected


def test_two_runs_are_added_up() -> None:
    later = report(case("test_z", BAD), began=BEGAN.replace(":22.", ":52."), failures=1)
    assert counts("2 passed in 0.10s\n1 failed in 0.10s\n", GREEN, later) == Counts(2, 1, 0)
    assert find_failed_tests(b"2 passed in 0.10s\n1 failed in 0.10s\n", "", [GREEN, later]) == frozenset(
        {"tests/test_a.py::test_z"}
    )


def test_a_run_within_another_was_started_by_a_test() -> None:
    inner = report(case("test_z", BAD), began=BEGAN.replace(":22.", ":23."), failures=1)
    outer = report(case("test_x"), case("test_y"), seconds=9.0)
    assert counts("2 passed in 9.10s\n", inner, outer) == Counts(2, 0, 0)
    assert counts("", inner, outer) == Counts(2, 0, 0)


GREEN_NAMES = ("tests/test_a.py::test_x", "tests/test_a.py::test_y")
JEST_NAMES = ("a.test.js > cart \u203a adds \u203a three items", "a.test.js > is odd 1", "ok.test.js > fine")


def test_other_programs_in_the_same_command_are_read_from_the_output() -> None:
    found = read_outcomes(f"2 passed in 0.10s\n{JEST}".encode(), "", [GREEN])
    assert found
    assert found.counts == Counts(5, 4, 2)
    assert found.passed == frozenset({*GREEN_NAMES, *JEST_NAMES})


def test_a_report_of_any_program_gives_names_to_the_output_that_counts_the_same() -> None:
    suite = "<testsuite name='a.test.js'><testcase name='one'/><testcase name='two'><skipped/></testcase></testsuite>"
    written = f"<testsuites>{suite}</testsuites>".encode()
    printed = "Test Suites: 1 passed, 1 total\nTests: 1 skipped, 1 passed, 2 total\n"
    for output in (printed, ""):
        found = read_outcomes(output.encode(), "", [written])
        assert found
        assert (found.counts, found.passed) == (Counts(1, 0, 1), frozenset({"a.test.js > one"}))
    other = read_outcomes(printed.replace("1 passed", "3 passed").encode(), "", [written])
    assert other
    assert (other.counts, other.passed) == (Counts(3, 0, 1), None)


# --- Node -------------------------------------------------------------------------------------------

NODE = b"""<?xml version="1.0" encoding="utf-8"?><testsuites>
<testcase name="adds" classname="test"/><testcase name="adds" classname="test"/>
<testsuite name="cart"><testcase name="deep" classname="test"/>
<testcase name="some day" classname="test"><skipped type="todo"/><failure/></testcase></testsuite>
<!-- pass 99 --><!-- tests 4 --><!-- pass 3 --><!-- fail 0 --><!-- cancelled 0 --><!-- skipped 0 --><!-- todo 1 -->
</testsuites>"""


def test_the_last_comments_of_node_count() -> None:
    found = read_outcomes(b"", "", [NODE])
    assert found
    assert (found.counts, found.passed) == (Counts(3, 0, 1), frozenset({"adds", "adds #2", "cart > deep"}))


def test_a_summary_that_a_test_of_node_prints_is_not_believed() -> None:
    forged = (
        "\u2139 tests 9\n\u2139 pass 9\n\u2139 fail 2\n\u2139 tests 4\n\u2139 pass 3\n\u2139 fail 0\n\u2139 todo 1\n"
    )
    assert counts(forged, NODE) == Counts(3, 0, 1)


# --- many tests, and hostile ones -------------------------------------------------------------------


def test_20000_tests_are_read_in_well_under_a_second() -> None:
    written = report(*(case(f"test_{i}[{i}]", BAD if i % 1000 == 0 else "") for i in range(20000)), failures=20)
    printed = b"".join(b"tests/test_a.py::test_%d[%d] PASSED [ 50%%]\n" % (i, i) for i in range(20000))
    began = time.process_time()
    found = read_outcomes(printed + b"20 failed, 19980 passed in 9.10s\n", "", [written])
    assert time.process_time() - began < 2  # about 0.3 s on an idle machine
    assert found
    assert found.counts == Counts(19980, 20, 0)
    assert found.passed is not None
    assert len(found.passed) == 19980


@given(st.lists(st.binary(max_size=200) | st.sampled_from([GREEN, RED, NODE, GREEN[:-9]]), max_size=4), st.text())
def test_nothing_that_is_written_crashes_it(written: list[bytes], printed: str) -> None:
    found = read_outcomes(printed.encode("utf-8", "replace"), "/src", written)
    assert found is None or min(found.counts.passed, found.counts.failed, found.counts.skipped) >= 0
