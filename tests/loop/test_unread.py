"""Guidance from a person reaches the next attempt, or a notice says that no attempt will read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, wait_until
from patience import PATIENCE

from ralphtool.loop.unread import StoryOutlook, UnreadGuidance, explain_unread
from ralphtool.record.steering import SteeringCommand

ONE = "## 1. First\n\n- [ ] 1.1 Make a\n"
TWO = ONE + "\n## 2. Second\n\n- [ ] 2.1 Make b\n"
GIVES_UP: list[dict[str, Any]] = [{"say": "I give up."}]


def guide(story: str | None, action: Any = "guide") -> SteeringCommand:
    return SteeringCommand("id", action, story, "Use cents", None, "")


TABLE: list[tuple[str | None, dict[str, StoryOutlook], bool, str]] = [
    ("1", {"1": "open"}, False, ""),
    ("1", {"1": "open"}, True, "kept for the next run"),
    ("1", {"1": "done"}, False, "ralphtool reject 1"),
    ("1", {"1": "done"}, True, "ralphtool reject 1"),
    ("1", {"1": "waiting"}, False, "ralphtool answer 1"),
    ("1", {"1": "waiting"}, True, "ralphtool retry 1"),
    ("1", {"1": "skipped"}, False, "ralphtool retry 1"),
    ("9", {"1": "done"}, True, ""),
    (None, {"1": "done", "2": "open"}, False, ""),
    (None, {"1": "done", "2": "open"}, True, "kept for the next one"),
    (None, {"1": "done", "2": "waiting"}, True, "kept for the next one"),
    (None, {"1": "done", "2": "done"}, True, "every story is done"),
]


@pytest.mark.parametrize(("story", "outlooks", "is_over", "words"), TABLE)
def test_why_no_attempt_reads_it(
    story: str | None, outlooks: dict[str, StoryOutlook], is_over: bool, words: str
) -> None:
    told = explain_unread(story, outlooks, "", is_over=is_over)
    assert words in told
    assert bool(told) == bool(words)


@pytest.mark.parametrize("outlook", ["done", "waiting", "skipped"])
def test_its_commands_name_the_change_if_there_are_others(outlook: StoryOutlook) -> None:
    told = explain_unread("1", {"1": outlook}, " --change sounds", is_over=False)
    commands = told.split("`")[1::2]
    assert commands
    assert all(command.endswith(" --change sounds") for command in commands)


WAITING: dict[str, StoryOutlook] = {"1": "waiting", "2": "open"}


def test_it_is_mentioned_once() -> None:
    unread = UnreadGuidance()
    unread.add([guide("1"), guide("1"), guide("2"), guide("1", "pause")])
    assert len(unread.drain(WAITING, "", is_over=False)) == 1
    assert unread.drain(WAITING, "", is_over=False) == []
    assert len(unread.drain(WAITING, "", is_over=True)) == 1, "that of the other story"


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ("read 1", ["2"]),
        ("read 2", ["1"]),
        ("forget 1", ["2", None]),
        ("forget all", []),
        ("nothing", ["1", "2", None]),
    ],
)
def test_what_was_read_or_taken_back_is_not_mentioned(after: str, left: list[str | None]) -> None:
    unread = UnreadGuidance()
    unread.add([guide("1"), guide("2"), guide(None)])
    what, _, story = after.partition(" ")
    if what == "read":
        unread.mark_read(story)
    elif what == "forget":
        unread.add([guide(None if story == "all" else story, "forget")])
    assert len(unread.drain({"1": "open", "2": "open"}, "", is_over=True)) == len(left)


def told_during(lab: Lab, steps: list[dict[str, Any]], *words: str, **config: Any) -> list[str]:
    """Sends guidance while the agent works on story 1; returns the notices about it."""
    lab.repository(config.pop("tasks", ONE), **config)
    held = {"run": f"touch {lab.tmp}/began; while [ ! -e {lab.tmp}/go ]; do sleep 0.05; done"}
    lab.play({"story": "1", "attempt": 1, "steps": [held, *steps]}, default=DONE)
    process = lab.start()
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)
    assert lab.run("guide", *words).exit_code == 0
    (lab.tmp / "go").touch()
    process.communicate(timeout=PATIENCE)
    return [event["text"] for event in lab.events() if event["type"] == "notice" and "has used" in event["text"]]


def test_what_is_said_in_the_last_attempt_waits_with_the_question(lab: Lab) -> None:
    [notice] = told_during(lab, GIVES_UP, "1", "Use cents", attempts=1)
    assert 'ralphtool answer 1 "…"' in notice
    assert "needs your answer first" in lab.run("guide", "1", "And no floats").stdout
    lab.play(default=DONE)
    assert lab.run("retry", "1").exit_code == 0
    assert lab.loop().exit_code == 0
    prompts = sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    assert "A human says: Use cents" in prompts[-1].read_text()


def test_what_is_said_while_a_story_gets_done_came_too_late(lab: Lab) -> None:
    [notice] = told_during(lab, DONE, "1", "Use cents", tasks=TWO)
    assert "ralphtool reject 1" in notice
    assert "is done" in lab.run("guide", "1", "Use cents").stdout


def test_what_is_said_to_all_in_the_last_attempt_of_all(lab: Lab) -> None:
    assert told_during(lab, DONE, "Use cents") == [
        "every story is done, and no attempt has used your last guidance for all stories"
    ]


def test_what_the_next_attempt_reads_needs_no_notice(tmp_path: Path) -> None:
    assert told_during(Lab(tmp_path), GIVES_UP, "1", "Use cents", attempts=2) == []
