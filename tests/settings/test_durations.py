"""Which texts and numbers are durations, and how long each is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from properties import examples

from ralphtool import settings
from ralphtool.errors import WrongSetting


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("1h5s", 3605),
        ("1.5h", 5400),
        (" 90 ", 90),
        ("90", 90),
        ("0", 0),
        ("0s", 0),
        ("0.5", 0.5),
        (90, 90),
        (0, 0),
        (1.5, 1.5),
        ("8784h", 31622400),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert settings.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "h", "90 s", "1m1h", "1h30", "5d", "500ms", "-5", "-5m", "1.2.3", ".", "1e3", "٣m", "30M", "nan", "s30"],
)
def test_no_durations(text: str) -> None:
    with pytest.raises(WrongSetting, match="is not a duration: write 90s, 30m, 2h, 1h30m or a number of seconds"):
        settings.parse_duration(text)


@pytest.mark.parametrize("number", [-1, -0.1, float("nan"), True, None])
def test_numbers_that_are_no_durations(number: Any) -> None:
    with pytest.raises(WrongSetting, match="is not a duration"):
        settings.parse_duration(number)


@pytest.mark.parametrize("text", ["8785h", "9" * 5000, "9" * 5000 + "h", 10**400, float("inf"), 31622401])
def test_endless_durations(text: str | float) -> None:
    with pytest.raises(WrongSetting, match="that duration is too big: the maximum is a year"):
        settings.parse_duration(text)


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=examples(500))
@given(st.one_of(st.text(), st.text("0123456789.hms "), st.integers(), st.floats(), st.booleans()))
def test_a_duration_is_one_or_a_read_error(value: Any) -> None:
    try:
        seconds = settings.parse_duration(value)
    except WrongSetting:
        seconds = 0
    assert 0 <= seconds <= 366 * 86400
