"""What the page shows of a run, as elements: built from events, without a server or a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from views.night import RUN, Night

from ralphtool.record import events
from ralphtool.record.runs import RunSummary
from ralphtool.views.report.elements import build_tree
from ralphtool.views.web import panels
from ralphtool.views.web.watched import WatchedView


def read_words(tree: Any) -> str:
    """All text in it."""
    return tree if isinstance(tree, str) else " ".join(read_words(one) for one in tree[2:])


class Seen:
    """The sections of the page after some events."""

    def __init__(self, tmp_path: Path, night: Night, state: str = "running", **more: Any) -> None:
        view = WatchedView()
        for line in night.lines:
            event = events.decode(line)
            assert event
            view.feed(event)
        run = RunSummary(str(tmp_path), RUN)
        shown = panels.Shown(run, view, state, "p", more.get("asked", ()), more.get("proofs"), {})
        self.trees = {name: build_tree(one) for name, one in panels.build_sections(shown).items()}

    def __getitem__(self, name: str) -> str:
        return " ".join(read_words(self.trees[name]).split())

    def list_buttons(self) -> list[str]:
        return [one[1]["data-do"] for one in self.trees["controls"][2:] if "data-do" in one[1]]  # type: ignore[index]


def begin(*stories: str) -> Night:
    night = Night()
    night.start(("Form", "Mail", "Pay"))
    for number, story in enumerate(stories, 1):
        about: dict[str, Any] = {"number": number, "iteration": number, "story": story, "attempt": 1, "attempts": 3}
        night.add("iteration_started", agent="claude", entry=f"add-login-{story}-1", **about)
    return night


def test_every_lane_says_where_it_is(tmp_path: Path) -> None:
    night = begin("1", "2", "3")
    night.add("agent", event={"kind": "tool", "name": "Bash", "detail": "pytest -q"}, iteration=1, story="1")
    night.add("queued", story="2", iteration=2, waiting=1)
    night.add("merging", story="3", iteration=3, upon="abc", others=["1"])
    night.add("gate_started", when="after", command="pytest -q tests", iteration=3, story="3")
    seen = Seen(tmp_path, night)
    lanes = [read_words(one) for one in seen.trees["lanes"][2:]]  # type: ignore[index]
    assert ["1. Form" in lanes[0], "2. Mail" in lanes[1], "3. Pay" in lanes[2]] == [True] * 3
    assert "Bash pytest -q" in lanes[0]
    assert "waits to be merged" in lanes[1]
    assert "being proven" in lanes[2]
    assert "pytest -q tests" in lanes[2]
    assert seen["stories"].count("waits to be merged") == seen["stories"].count("being proven") == 1


def test_what_can_be_done_depends_on_the_run(tmp_path: Path) -> None:
    night = begin("1")
    assert Seen(tmp_path, night).list_buttons() == ["pause", "guide", "stop-after", "stop"]
    night.add("steered", action="pause")
    assert Seen(tmp_path, night).list_buttons() == ["resume", "guide", "stop-after", "stop"]
    assert Seen(tmp_path, night, "died").list_buttons() == ["run"]
    assert Seen(tmp_path, night, "done").list_buttons() == []


@pytest.mark.parametrize(
    ("type", "fields", "state", "words"),
    [
        ("paused", {"why": "you asked for it"}, "paused", "Paused."),
        ("steered", {"action": "pause"}, "running", "It pauses after the current iterations."),
        ("waiting", {"seconds": 60, "until": "", "why": "the quota is used up"}, "running", "the quota is used up"),
        ("notice", {"text": "x"}, "died", "This run ended without recording its end"),
        ("run_ended", {"result": "interrupted"}, "interrupted", "Interrupted"),
    ],
)
def test_the_head_says_what_the_run_waits_for(
    tmp_path: Path, type: str, fields: dict[str, Any], state: str, words: str
) -> None:
    night = begin("1")
    night.add(type, **fields)
    assert words in Seen(tmp_path, night, state)["head"]


def test_what_people_decided_after_a_run_is_shown(tmp_path: Path) -> None:
    night = begin("1", "2")
    for number, story in enumerate(("1", "2"), 1):
        about: dict[str, Any] = {"entry": f"add-login-{story}-1", "story": story, "iteration": number}
        night.add("verdict", status="completed", attempt=1, **about)
        night.add("checkpoint", story=story, commit="abc", subject="x", proof="unproven", iteration=number)
    night.add("run_ended", result="unproven")
    before = Seen(tmp_path, night, "unproven", proofs={"1": "unproven", "2": "unproven"})
    assert before["ask"].count("done, not proven") == 2
    after = Seen(tmp_path, night, "unproven", proofs={"1": "accepted", "2": "rejected"})
    assert after["ask"] == ""
    assert "accepted by you" in after["stories"]
    assert "you rejected it: open again" in after["stories"]
    unknown = Seen(tmp_path, night, "unproven", proofs={})
    assert "rejected" not in unknown["stories"], "a state that was removed is nobody's word"


def test_what_was_sent_back_or_put_off_is_no_attempt(tmp_path: Path) -> None:
    night = begin("1", "2")
    night.add("verdict", status="transient", story="1", iteration=1)
    night.add("iteration_started", story="1", iteration=3, number=3)
    night.add("sent_back", story="1", iteration=3, why="conflict", others=["3"], files=["a.py"])
    assert "attempts 0 2 not counted" in Seen(tmp_path, night)["head"]
    night.add("iteration_started", story="1", iteration=4, number=4)
    night.add("verdict", status="failed", story="1", iteration=4)
    seen = Seen(tmp_path, night)
    assert "attempts 1 2 not counted" in seen["head"]
    assert "1 attempt · 2 not counted" in seen["stories"]


def test_names_of_stories_never_leave_their_link(tmp_path: Path) -> None:
    night = Night()
    night.add("run_started", change="add-login", stories=[{"id": '../x?a=b&c#/"', "title": "odd"}])
    tree = json.dumps(Seen(tmp_path, night).trees["stories"])
    assert "#/p/add-login-20260301-220000-1a2b/story/..%2Fx%3Fa%3Db%26c%23%2F%22" in tree
