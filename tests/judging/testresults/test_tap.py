"""TAP as Mocha writes it; Node's is read in test_javascript.py."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import count_tests, failed
from judging.testresults.recordings import MOCHA_AS_TAP, TAP

from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), TAP.values(), ids=TAP)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


@pytest.mark.parametrize(
    "output",
    [
        MOCHA_AS_TAP.replace("ok 5 cart adds three items\n", ""),
        MOCHA_AS_TAP + "Bail out!\n",
    ],
    ids=lambda output: str(output)[:20],
)
def test_fewer_names_than_failures_are_no_answer(output: str) -> None:
    assert failed(output.encode()) is None
