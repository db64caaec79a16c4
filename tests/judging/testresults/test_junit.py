"""JUnit reports: what is read from them, and the commands that name them."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import failed_junit

from ralphtool.judging.testresults import find_junit_paths


def suite_of(*cases: str, attributes: str = "") -> bytes:
    return f"<testsuites><testsuite name='s' {attributes}>{''.join(cases)}</testsuite></testsuites>".encode()


def test_junit_tells_files_apart() -> None:
    cases = [f"<testcase name='same' file='{name}/a.php' classname='C'><error/></testcase>" for name in ("one", "two")]
    assert failed_junit(suite_of(*cases)) == {"s > one/a.php > C > same", "s > two/a.php > C > same"}


def test_a_suite_that_failed_as_a_whole_is_named() -> None:
    assert failed_junit(suite_of("<testcase name='fine'/>", "<error/>")) == {"s > (as a whole)"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<testsuites/>",
        b"no xml at all",
        suite_of("<testcase name='fine'/>"),
        suite_of("<testcase name='later'><skipped/></testcase>"),
        suite_of("<testcase name='fine'/>", attributes="errors='1'"),
        suite_of("<testsuite errors='1'/>", "<testcase name='bad'><failure/></testcase>"),
        suite_of("<testcase name='bad'><failure/></testcase>")[:-5],
        suite_of("<testcase name='bad'><failure/></testcase>") * 2,
        b"<?xml version='1.0' encoding='nowhere'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        b"<?xml version='1.0' encoding='rot13'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        b"<?xml version='1.0' encoding='shift_jis'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        suite_of("<testcase name='\xff'><failure/></testcase>").replace("ÿ".encode(), b"\xff"),
    ],
)
def test_a_report_that_names_no_failure_is_no_answer(data: bytes) -> None:
    assert failed_junit(data) is None


@pytest.mark.parametrize(
    "declared",
    [
        "<!DOCTYPE x>",
        "<!DOCTYPE x SYSTEM 'file:///etc/hostname'>",
        "<!DOCTYPE x [<!ENTITY who SYSTEM 'file:///etc/hostname'>]>",
        "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY who '&a;&a;&a;&a;'>]>",
    ],
)
def test_document_types_are_refused(declared: str) -> None:
    report = suite_of("<testcase name='bad'><failure/></testcase>")
    assert failed_junit(report) == {"s > bad"}
    assert failed_junit(declared.encode() + report) is None


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("pytest --junitxml=out.xml -q", ["out.xml"]),
        ("pytest --junit-xml out/r.xml; echo done", ["out/r.xml"]),
        ("pytest --junitxml=a.xml && vitest run --reporter=junit --outputFile=b.xml", ["a.xml", "b.xml"]),
        ("vitest --outputFile.junit 'with space.xml'", ["with space.xml"]),
        ("gotestsum --junitfile unit.xml -- ./...", ["unit.xml"]),
        ("(pytest --junitxml=out.xml)", ["out.xml"]),
        ("pytest --junitxml=out.xml>log", ["out.xml"]),
        ("phpunit --log-junit j.xml # all", ["j.xml"]),
        ("pytest --junitxml=$OUT/r.xml", []),
        ("pytest --junitxml=~/r.xml", []),
        ("pytest --junitxml", []),
        ("pytest --junitxml && true", []),
        ("pytest --junitxml=", []),
        ("pytest --junitxml='never ends", []),
        ("pytest --junitxmlish=a.xml", []),
        ("", []),
    ],
)
def test_report_files_are_found_in_commands(command: str, paths: list[str]) -> None:
    assert find_junit_paths(command) == paths
