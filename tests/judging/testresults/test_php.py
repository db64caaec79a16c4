"""Recorded output of PHPUnit."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import count_tests, failed
from judging.testresults.recordings import PHP, PHPUNIT

from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), PHP.values(), ids=PHP)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


def test_fewer_names_than_failures_are_no_answer() -> None:
    output = PHPUNIT.replace("2) CartTest", "3) CartTest")
    assert failed(output.encode()) is None
