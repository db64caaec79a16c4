"""Recorded output of RSpec."""

from __future__ import annotations

import pytest
from judging.testresults.reading_lab import count_tests, failed
from judging.testresults.recordings import RSPEC, RUBY

from ralphtool.judging.testresults.model import Counts


@pytest.mark.parametrize(("output", "ids", "counts"), RUBY.values(), ids=RUBY)
def test_what_failed_is_read(output: str, ids: set[str], counts: Counts | None) -> None:
    assert failed(output.encode()) == ids
    assert count_tests(output.encode()) == counts


def test_fewer_names_than_failures_are_no_answer() -> None:
    output = RSPEC.replace("rspec ./spec/a_spec.rb:7 # cart same\n", "")
    assert failed(output.encode()) is None
