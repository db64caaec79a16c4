"""Stories that are done, not proven, without anyone having been asked: `questions` and `list` name them."""

from __future__ import annotations

import pytest
from lab import DONE, Lab

WHY = "done, not proven: `false` was red before and is still red"


@pytest.fixture
def red(lab: Lab) -> Lab:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", tests=["false"], accept="held").play(default=DONE)
    lab.loop()
    return lab


def test_the_morning_starts_with_them(red: Lab) -> None:
    shown = red.run("questions").stdout
    assert "1. First  (add-login)\n" in shown
    assert f"  {WHY}\n" in shown
    assert "ralphtool accept 1\n" in shown
    assert "ralphtool reject 1 --why" in shown
    [one] = red.run("questions", "--json").json["questions"]
    assert (one["story"], one["missing"], one["is_done"], one["path"]) == ("1", WHY, True, None)
    assert "1 story is done, not proven: `ralphtool questions`" in red.run("list").stdout


@pytest.mark.parametrize("decision", [("accept", "1"), ("reject", "1", "--why", "no")])
def test_a_decision_ends_the_doubt(red: Lab, decision: tuple[str, ...]) -> None:
    assert red.run(*decision).exit_code == 0
    assert red.run("questions").stdout == "Nothing needs your answer.\n"
    assert "`ralphtool questions`" not in red.run("list").stdout


def test_settings_that_accept_unproven_stories_leave_no_doubt(red: Lab) -> None:
    red.configure(tests=["false"], accept="unproven")
    assert red.run("questions").stdout == "Nothing needs your answer.\n"
    assert "`ralphtool questions`" not in red.run("list").stdout


def test_settings_that_can_not_be_read_hide_nothing(red: Lab) -> None:
    red.write(".ralph/config.toml", "[proof]\naccept = 'unproven\n")
    assert WHY in red.run("questions").stdout
