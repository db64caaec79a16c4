"""A run on other machines: every view names the worker of a story; for a local run none says anything more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from views.night import RUN
from views.run_events import NASTY, THREE, Event, all_typed, at, clock, drawn, iteration, told, typed
from views.web.test_panels import Seen, begin

from ralphtool.record import events, iterations, runs
from ralphtool.record.run_view import RunView
from ralphtool.views.report import from_record, junit, markdown, page
from ralphtool.views.screen.record import WatchedRun
from ralphtool.views.screen.result import _render_stories
from ralphtool.views.terminal.conversation import Conversation
from ralphtool.views.terminal.phrases import describe_workers
from ralphtool.views.terminal.picture import RunDisplay
from ralphtool.views.web import log_items

BEGUN = iteration("2", iteration=1)


def worker(name: str, seconds: int = 0, story: str = "2", number: int = 1) -> Event:
    return {"at": at(seconds), "type": "worker", "worker": name, "story": story, "iteration": number}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), ""),
        ([""], ""),
        ([" \n"], ""),
        (["build-7"], "on build-7"),
        (["a", "b"], "on a, b"),
        (["a", "b", "c", "d", "e"], "on a, b, c, 2 more"),
        (["x" * 30], f"on {'x' * 24}…"),
        (["\x1b[31mred\x1b[0m \u202e"], r"on red \u202e"),
    ],
)
def test_who_worked_on_it_in_a_few_words(names: list[str], words: str) -> None:
    assert describe_workers(names) == words


# --- lines and the picture --------------------------------------------------------------------------


def test_a_line_says_who_takes_it_and_says_it_once() -> None:
    happened = [worker("build-7", 1), worker("build-7", 2), worker("build-9", 3), worker("build-7", 4)]
    assert told(THREE, BEGUN, *happened, worker("build-7", 5, "", 0))[2:] == [
        "2. Login form: on worker build-7",
        "2. Login form: on worker build-9",
        "2. Login form: on worker build-7",
        "the last check: on worker build-7",
    ]
    again = iteration("2", 2, iteration=2)
    assert told(THREE, BEGUN, happened[0], again, worker("build-7", 9, number=2))[-1].endswith("on worker build-7")


def test_a_name_is_a_text_like_all_others() -> None:
    [line] = told(worker(NASTY + "x" * 10_000))
    assert line.isprintable()
    assert len(line) < 60
    assert told(worker("")) == []


def picture(*happened: Event, width: int = 79) -> str:
    view = RunDisplay(clock(70))
    for event in all_typed((THREE, BEGUN, *happened)):
        view.feed(event)
    return next(line for line in drawn(view, width, 24) if line.startswith("▸"))


def test_the_picture_says_who_works_on_a_story() -> None:
    assert re.fullmatch(r"▸ 2\. Login form +0/4  on build-7  attempt 1 of 3  01:10", picture(worker("build-7")))
    assert re.fullmatch(r"▸ 2\. Login form +0/4  attempt 1 of 3  01:10", picture())


def test_the_picture_has_room_for_a_name_or_leaves_it_out() -> None:
    assert re.fullmatch(r"▸ 2\. Login form +attempt 1 of 3  01:10", picture(worker("build-7"), width=59))
    for name in ("x" * 500, NASTY):
        line = picture(worker(name), width=60)
        assert line.startswith("▸ 2. Login")
        assert line.endswith("attempt 1 of 3  01:10")


# --- the full screen --------------------------------------------------------------------------------


def watched(*happened: Event) -> WatchedRun:
    view = WatchedRun()
    for event in all_typed((THREE, BEGUN, *happened)):
        view.feed(event)
    return view


def test_the_full_screen_says_who_works_on_a_story() -> None:
    view = watched(worker("build-7", 1), worker("build-7", 2), worker("build-9", 3))
    assert view.now == "attempt 1 of 3 on build-9: 2. Login form"
    lines = [line.plain for one in view.activities for line in one.describe()]
    assert [line for line in lines if "on worker" in line] == [
        "2. Login form: on worker build-7",
        "2. Login form: on worker build-9",
    ]
    assert re.search(r"  0/4  on build-9  [\d:]+$", view.render_row("2", 60).plain)
    assert "build" not in view.render_row("2", 40).plain
    assert watched().now == "attempt 1 of 3: 2. Login form"
    assert re.fullmatch(r"▸ 2\. Login form +  0/4  [\d:]+", watched().render_row("2", 60).plain)


@pytest.mark.parametrize("name", [NASTY, "漢字" * 20, "x" * 500])
def test_a_row_is_one_line_whatever_the_name(name: str) -> None:
    row = watched(worker(name)).render_row("2", 60)
    assert row.cell_len == 60
    assert re.search(r"  \d+:\d\d:\d\d$", row.plain), "the clock is whole"
    assert row.plain.isprintable()


def test_the_result_says_who_worked_on_an_attempt() -> None:
    verdict = {"at": at(9), "type": "verdict", "story": "2", "iteration": 1, "attempt": 1, "entry": "add-login-2-1"}
    verdict["status"] = "failed"
    lines = [line.plain for line in _render_stories(watched(worker("build-7"), worker("build-9"), verdict))]
    assert "  ✗ attempt 1: failed  add-login-2-1  on build-7, build-9" in lines
    assert "  ✗ attempt 1: failed  add-login-2-1" in [line.plain for line in _render_stories(watched(verdict))]


# --- the report -------------------------------------------------------------------------------------


def write_night(root: Path, *names: str) -> str:
    """One attempt on these workers, with a gate and a cost."""
    night = begin("2")
    for name in names:
        night.add("worker", worker=name, story="2", iteration=1)
    gate = {"when": "after", "command": "pytest -q", "ok": True, "seconds": 5.0, "iteration": 1, "story": "2"}
    night.add("gate", minutes=9, **gate)
    spent: dict[str, Any] = {"seconds": {"agent": 60.0, "gates": 5.0}, "input_tokens": 900, "cost": 0.75}
    night.add("verdict", story="2", iteration=1, entry="add-login-2-1", attempt=1, status="completed", **spent)
    night.add("run_ended", result="done", stories=[{"id": "2", "title": "Mail", "state": "done", "attempts": 1}])
    return str(night.write(root))


def report(root: Path, *names: str) -> dict[str, str]:
    write_night(root, *names)
    facts = from_record.read_facts(runs.read_summary(str(root), RUN))
    return {"markdown": markdown.render(facts), "html": page.render(facts, {}), "junit": junit.render(facts)}


def test_the_report_says_who_worked_on_an_attempt_and_what_it_cost(tmp_path: Path) -> None:
    seen = report(tmp_path, "build-7", "build-9")
    [row] = [line for line in seen["markdown"].splitlines() if line.startswith("| add-login-2-1")]
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["completed", "1 min", "5 s", "$0.75", "build-7, build-9"]
    assert "- workers: build-7, build-9" in seen["markdown"]
    assert ">on build-7, build-9</span>" in seen["html"]
    assert "attempt 1 on build-7, build-9: completed after" in seen["html"], "the timeline too"
    assert '<property name="workers" value="build-7, build-9"' in seen["junit"]


def test_the_report_of_a_run_at_home_has_no_word_of_workers(tmp_path: Path) -> None:
    seen = report(tmp_path)
    body = {**seen, "html": seen["html"].partition("</style>")[2]}
    assert [name for name, text in body.items() if "worker" in text or " on build" in text] == []


def test_a_hostile_name_stays_text_in_a_report(tmp_path: Path) -> None:
    seen = report(tmp_path, f"<script>|`x`\u202e{'y' * 500}", " ")
    assert "<script" not in seen["html"] + seen["markdown"].replace("\\<script", "")
    assert not [text for text in seen.values() if "\u202e" in text or "y" * 30 in text]


def test_the_title_of_a_log_says_where_its_agent_was(tmp_path: Path) -> None:
    path = Path(write_night(tmp_path, "build-7"))
    (path.parent / "001-add-login-2-1").mkdir()
    attempt = iterations.find(str(tmp_path), "add-login-2-1").read_attempt()
    assert attempt is not None
    [title, _] = Conversation().render_title("x", attempt.start, attempt.worker_names)
    assert title.endswith("attempt 1 of 3, by claude, on build-7")
    assert Conversation().render_title("x", attempt.start)[0].endswith("attempt 1 of 3, by claude")


# --- the web page -----------------------------------------------------------------------------------


def test_the_page_says_who_works_on_a_story(tmp_path: Path) -> None:
    night = begin("1", "2")
    night.add("worker", worker="build-7", story="1", iteration=1)
    seen = Seen(tmp_path, night)
    assert "attempt 1 of 3 · claude · on build-7 · " in seen["lanes"]
    assert "of 4 tasks · on build-7 · " in re.sub(" +", " ", seen["stories"])
    assert (seen["lanes"].count("build-7"), seen["stories"].count("build-7")) == (1, 1)
    night.add("queued", story="1", iteration=1, waiting=1)
    assert "build-7" not in Seen(tmp_path, night)["lanes"], "nobody works on what waits"


def test_a_hostile_name_stays_text_on_the_page(tmp_path: Path) -> None:
    night = begin("1")
    night.add("worker", worker=f"\u202e\x1b[31m{'y' * 500}", story="1", iteration=1)
    trees = json.dumps(Seen(tmp_path, night).trees, ensure_ascii=False)
    assert "on \\\\u202eyyy" in trees
    assert "y" * 30 not in trees


def test_the_log_of_the_page_says_who_takes_it_and_says_it_once(tmp_path: Path) -> None:
    happened = [THREE, BEGUN, worker("build-7", 1), worker("build-7", 2), worker("build-9", 3), worker("a", 4, "", 0)]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in happened))
    view = RunView()
    for event in all_typed(happened):
        view.feed(event)
    lines = [one[4] for one in log_items.read_batch(str(path), 0, view.stories).items]
    assert lines[2:] == [
        "2. Login form: on worker build-7",
        "2. Login form: on worker build-9",
        "the last check: on worker a",
    ]
    place = path.read_bytes().index(json.dumps(happened[3]).encode())
    later = [one[4] for one in log_items.read_batch(str(path), place, view.stories).items]
    assert later == lines[3:], "wherever it is read from"
    assert isinstance(typed(happened[3]), events.WorkerJoined)
