"""Durations, times, costs and counts: one way to write each, in every view."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import ralphtool
from ralphtool.core import amounts

DURATIONS = [
    (0, "0 s"),
    (-3, "0 s"),
    (0.004, "0.1 s"),
    (0.42, "0.4 s"),
    (3, "3 s"),
    (4.2, "4.2 s"),
    (9.94, "9.9 s"),
    (9.96, "10 s"),
    (45.4, "45 s"),
    (59.6, "1 min"),
    (60, "1 min"),
    (123, "2 min 03 s"),
    (3599.4, "59 min 59 s"),
    (3599.6, "1 h"),
    (3900, "1 h 05 min"),
    (7199, "2 h"),
    (27 * 3600 + 61, "27 h 01 min"),
]
COSTS = [(0, ""), (0.001, "<$0.01"), (0.005, "$0.01"), (1.234, "$1.23"), (1234.5, "$1,234.50")]
TOKENS = [
    (999_949, "999.9k"),
    (999_950, "1M"),
    (0, "0"),
    (950, "950"),
    (1000, "1k"),
    (12_340, "12.3k"),
    (4_000_000, "4M"),
    (2.5e9, "2.5G"),
]
STOPWATCH = [(-1, "00:00"), (5, "00:05"), (245, "04:05"), (3723, "1:02:03")]


@pytest.mark.parametrize(("seconds", "text"), DURATIONS)
def test_durations(seconds: float, text: str) -> None:
    assert amounts.format_duration(seconds) == text


@pytest.mark.parametrize(("dollars", "text"), COSTS)
def test_costs(dollars: float, text: str) -> None:
    assert amounts.format_cost(dollars) == text


@pytest.mark.parametrize(("number", "text"), TOKENS)
def test_tokens(number: float, text: str) -> None:
    assert amounts.format_tokens(number) == text


@pytest.mark.parametrize(("passed", "text"), STOPWATCH)
def test_times_that_tick(passed: float, text: str) -> None:
    assert amounts.format_stopwatch(passed) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 stories"), (1, "1 story"), (2, "2 stories")])
def test_counts(number: int, text: str) -> None:
    assert amounts.pluralize(number, "story", "stories") == text


def test_times_are_those_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert amounts.format_utc(1772402400) == "2026-03-01T22:00:00Z"
        assert amounts.format_day_and_time(1772402400) == "Sun 1 Mar 2026, 17:00 EST"
        assert amounts.format_time_of_day(1772402400) == "17:00"
        assert amounts.format_recorded_time("2026-03-01T22:00:00Z") == "2026-03-01 17:00"
        assert amounts.format_recorded_time("no time") == ""
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_other_module_writes_costs_or_durations_by_itself() -> None:
    """A format like `${cost:.2f}` or `{minutes}m{seconds:02}s` belongs to `amounts` alone."""
    own = re.compile(r"\$\{[^}]*:,?\.2f\}|\}m\{|\}h\{|\} min\b|:\.\df\} s\b|:g\} s\b")
    source = Path(ralphtool.__file__).parent
    files = [path for room in ("views", "cli") for path in (source / room).rglob("*.py") if path.name != "amounts.py"]
    found = [f"{path}:{line}" for path in files for line in path.read_text().split("\n") if own.search(line)]
    assert len(files) > 50
    assert found == []
