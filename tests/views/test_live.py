"""What people see of a run: the picture, the lines, the JSON, the summary; and docs/events.md, which describes it."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE
from project import REPOSITORY
from properties import examples
from rich.cells import cell_len
from views.run_events import (
    FIVE,
    NASTY,
    NOON,
    THREE,
    Event,
    all_typed,
    at,
    clock,
    drawn,
    encoded,
    ended,
    gate,
    iteration,
    said,
    started,
    story,
    told,
    typed,
)
from views.tmux import BASE, Terminal

from ralphtool import agents
from ralphtool.record import events
from ralphtool.record.lines import LineReader, parse_fields
from ralphtool.record.log import Log
from ralphtool.record.run_end import RunEnd
from ralphtool.views.terminal import live, summary
from ralphtool.views.terminal.picture import RunDisplay

DOC = (REPOSITORY / "docs/events.md").read_text()


def picture(happened: list[Event], width: int = 80, height: int = 24, now: int = 70) -> list[str]:
    """The lines of the picture after these events."""
    view = RunDisplay(clock(now))
    for event in all_typed(happened):
        view.feed(event)
    return drawn(view, width, height)


# --- the picture ------------------------------------------------------------------------------------


def test_the_picture_before_the_first_event() -> None:
    assert picture([])[0].startswith("starting")


def test_the_picture_shows_where_the_run_is() -> None:
    lines = picture([THREE, iteration("2", 2, begun=10), said("message", 65, text="I look at the form")])
    assert re.fullmatch(r"add-login  claude  ralph/add-login ─+ 01:10", lines[0])
    assert "1 of 3 stories" in lines[1]
    assert re.fullmatch(r"✓ 1\. Set up +4/4", lines[2])
    assert re.fullmatch(r"▸ 2\. Login form +0/4  attempt 2 of 3  01:00", lines[3])
    assert re.fullmatch(r"· 3\. Sign out +0/4", lines[4])
    assert lines[5].strip() == "I look at the form"


def test_the_clocks_tick() -> None:
    happened = [THREE, iteration("2", begun=10)]
    assert picture(happened, now=20)[3].endswith("00:10")
    assert picture(happened, now=3 * 3600)[0].endswith("3:00:00")
    assert picture(happened, now=-60)[0].endswith("00:00")


def test_the_picture_fits_a_small_screen() -> None:
    many = started(*(story(str(number), f"A story with a rather long title {number}") for number in range(1, 31)))
    lines = picture([many, iteration("17", 2), said("tool", name="Edit", detail="src/" + "x" * 200)], 40, 10)
    assert len(lines) <= 9
    assert max(map(cell_len, lines)) <= 40
    assert any(line.startswith("▸ 17.") and line.endswith("attempt 2 of 3  01:10") for line in lines)
    assert any("Edit src/xxx" in line for line in lines)
    assert sum(" more" in line for line in lines) == 1


@pytest.mark.parametrize(("width", "height"), [(1, 1), (5, 2), (20, 3), (20, 5), (39, 9), (60, 14), (300, 100)])
def test_the_picture_fits_every_screen(width: int, height: int) -> None:
    many = started(*(story(str(number), f"Story {number} 漢字") for number in range(100)))
    happened = [many, iteration("50"), gate("a", True), gate("b", False), gate("c", True), gate("d", True)]
    lines = picture(happened, width, height)
    assert len(lines) <= max(1, min(15, height - 1))
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (said("tool", 70, name="Edit", detail="src/login.py"), "Edit src/login.py"),
        (said("output", 70, text="first\n\x1b[32mlast\x1b[0m\n\n"), "last"),
        (said("failure", 70, trouble="overload", text="busy"), "overload: busy"),
        (said("end", 70, ok=True), "the agent has ended"),
        (said("message", 0, text="hm"), "hm quiet for 01:10"),
    ],
)
def test_what_the_agent_does_now(event: Event, shown: str) -> None:
    last = picture([THREE, iteration("2"), event])[-1]
    assert " ".join(last.split()) == shown


def test_an_agent_that_has_not_said_anything_yet() -> None:
    assert picture([THREE, iteration("2")])[-1].strip() == "the agent starts"


def test_gates_and_their_times() -> None:
    begun = {"at": at(60), "type": "gate_started", "when": "after", "command": "mypy ."}
    red = gate("pytest -q", False, tally="212 passed, 1 failed", new=["tests/a.py::b"], failed=["tests/a.py::b"])
    lines = picture([THREE, iteration("2"), gate("ruff check", True), red, begun])
    assert [" ".join(line.split()) for line in lines[-3:]] == [
        "✓ ruff check 12 s",
        "✗ pytest -q: 212 passed, 1 failed, 1 newly red 12 s",
        "▸ mypy . 00:10",
    ]


def test_gates_before_the_work_make_room_for_those_after_it() -> None:
    lines = picture([THREE, iteration("2"), gate("pytest", False, when="before"), gate("pytest", True)])
    assert [line.split()[0] for line in lines[-2:]] == ["·", "✓"]


def test_of_many_gates_those_that_failed_are_shown() -> None:
    happened = [gate("a", False), *(gate(name, True) for name in "bcdef")]
    lines = picture([THREE, iteration("2"), *happened])
    assert [line.split()[1].rstrip(":") for line in lines[-3:]] == ["a", "e", "f"]


def test_what_was_spent_is_counted_once() -> None:
    used = said("usage", input_tokens=400_000, output_tokens=9_300, cost=0.5)
    verdict = {"at": at(9), "type": "verdict", "story": "2", "status": "failed"}
    both = {**verdict, "input_tokens": 1_000_000, "output_tokens": 20_000, "cost": 1.25}
    assert picture([THREE, iteration("2"), used, used])[1].endswith("800k in  18.6k out  $1.00")
    assert picture([THREE, iteration("2"), used, used, both])[1].endswith("1M in  20k out  $1.25")
    assert picture([THREE, iteration("2"), used, verdict, iteration("2"), used])[1].endswith("18.6k out  $1.00")
    assert picture([THREE, iteration("2"), used, iteration("2"), used])[1].endswith("18.6k out  $1.00")
    assert picture([THREE, iteration("2"), used], width=40)[1].endswith("stories          $0.50")


@pytest.mark.parametrize(
    ("happened", "mark"),
    [
        ([{"type": "verdict", "story": "2", "status": "completed"}], "·"),
        ([{"type": "verdict", "story": "2", "status": "completed"}, {"type": "checkpoint", "story": "2"}], "✓"),
        ([{"type": "verdict", "story": "2", "status": "failed"}], "✗"),
        ([{"type": "verdict", "story": "2", "status": "partial"}], "·"),
        ([{"type": "verdict", "story": "2", "status": "failed"}, iteration("2", 2)], "▸"),
        ([{"type": "decision", "story": "2", "action": "skip"}], "-"),
        ([{"type": "decision", "story": "2", "action": "manual"}], "?"),
        ([{"type": "question", "story": "2"}], "?"),
        ([ended({"id": "2", "state": "done"})], "✓"),
    ],
)
def test_the_marks_of_a_story(happened: list[Event], mark: str) -> None:
    assert picture([THREE, *happened])[3].startswith(f"{mark} 2. Login form")


def test_waiting_counts_down() -> None:
    wait = {"at": at(0), "type": "waiting", "seconds": 100, "until": at(100), "why": "rate limit"}
    assert picture([THREE, wait])[-1].strip() == "waiting 00:30 more: rate limit"
    del wait["until"]
    assert picture([THREE, wait])[-1].strip() == "waiting 00:30 more: rate limit"
    assert "waiting" not in picture([THREE, wait, iteration("2")])[-1]


# --- hostile texts ----------------------------------------------------------------------------------


def test_nothing_in_a_text_is_more_than_text() -> None:
    lines = picture([started(story("2", NASTY)), iteration("2"), said("message", 70, text=NASTY)], width=160)
    assert all(line.isprintable() for line in lines)
    for line in (lines[2], lines[-1]):
        assert r"[red]mine[/red] :smile: \x9b31m \u202edlrow \x00 \x1b" in line


def test_an_endless_text_is_cut() -> None:
    huge = "x" * 5_000_000
    [line] = told({"at": NOON, "type": "notice", "text": huge})
    assert len(line) < 400
    assert picture([started(story("2", huge)), iteration("2"), said("output", text=huge)])[2].endswith("01:10")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(NASTY) | st.just("2"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted(set(re.findall(r"`(\w+)`", DOC)))
KNOWN = sorted(re.findall(r"^## (\w+)$", DOC, re.MULTILINE))
ROW = st.dictionaries(st.sampled_from(NAMES), JSON | st.just("2"), max_size=8)
FIELD = (
    JSON | st.lists(ROW, max_size=3) | ROW | st.sampled_from(["2", "before", "after", "failed", "done", "tool", NOON])
)
HOSTILE = st.builds(
    lambda kind, fields: {**fields, "type": kind},
    st.sampled_from(KNOWN) | JSON,
    st.dictionaries(st.sampled_from([*NAMES, "at", "kind", "id"]), FIELD, max_size=10),
)


WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("inf"),
    float("nan"),
    "",
    NASTY,
    [],
    [None, 1, NASTY, []],
    {},
    {"id": [], "x": 1},
)


def spoilt(value: Any) -> Iterator[Any]:
    """The value with one thing in it wrong, in every way."""
    yield from WRONG
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        for wrong in spoilt(inner):
            copy = value.copy()
            copy[key] = wrong
            yield copy


@pytest.mark.parametrize("name", re.findall(r"^## (\w+)$", DOC, re.MULTILINE))
def test_no_field_has_to_be_what_it_should_be(name: str) -> None:
    for event in spoilt(example(name)):
        view = RunDisplay(clock(0))
        happened = (THREE, iteration("2"), event, said("message", text="hm"), event)
        for one in all_typed(happened):
            view.feed(one)
            line = view.describe(one)
            assert line is None or line.plain.isprintable()
        assert all(line.isprintable() for line in drawn(view, 80, 24))
        assert not isinstance(typed(event), events.RunEnded) or shown(event)[0].endswith(".")


def test_a_run_that_begins_twice() -> None:
    lines = picture([THREE, iteration("2"), started(story("7", "Other"))])
    assert re.fullmatch(r"· 7\. Other +0/4", lines[2])
    assert picture([started(*(story(str(number), "x") for number in range(30))), iteration("20"), THREE], height=4)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(HOSTILE, max_size=6), st.integers(1, 120), st.integers(1, 40))
def test_no_event_breaks_the_picture(happened: list[Event], width: int, height: int) -> None:
    view = RunDisplay(clock(0))
    for event in all_typed(happened):
        view.feed(event)
        line = view.describe(event)
        assert line is None or line.plain.isprintable()
        assert re.fullmatch(r"(\d+:)?\d\d:\d\d", view.format_elapsed(event))
    lines = drawn(view, width, height)
    assert len(lines) <= max(1, min(15, height - 1))
    assert all(line.isprintable() and cell_len(line) <= width for line in lines)


@settings(max_examples=examples(80), deadline=None)
@given(HOSTILE, st.text(), st.sampled_from(["utf-8", "ascii"]))
def test_no_event_breaks_the_summary(event: Event, change: str, encoding: str) -> None:
    out = shown({**event, "type": "run_ended"}, change, encoding)
    assert all(line.isprintable() for line in out)
    assert out[0].endswith(".")


# --- lines ------------------------------------------------------------------------------------------


def test_what_is_told_of_each_event() -> None:
    seconds = {"agent": 240.0, "gates": 12.0}
    lines = told(
        THREE,
        iteration("2", 2, task="2.3"),
        {"type": "setup", "command": "npm ci", "ok": False, "exit_code": 1, "seconds": 3, "log": "a.log"},
        said("output", text="not told"),
        said("message", text="not told"),
        said("failure", trouble="rate-limit", text="come back later"),
        {"type": "gate_started", "when": "after", "command": "not told"},
        gate("pytest", False, new=["a::b"], failed=["a::b", "c"], tally="1 failed", log="b.log"),
        gate("pytest", False, failed=["c"]),
        {"type": "verdict", "story": "2", "attempt": 2, "status": "failed", "reasons": ["red"], "seconds": seconds},
        {"type": "decision", "story": "2", "action": "retry", "reason": "one is left"},
        {"type": "decision", "story": "2", "action": "next", "reason": "not told"},
        {"type": "checkpoint", "story": "2", "commit": "9f2c1b7d0e5a4c3b", "subject": "Login form"},
        {"type": "question", "story": "3", "path": ".ralph/questions/3.md", "missing": "a password"},
        {"type": "notice", "text": "no tests"},
        {"type": "waiting", "seconds": 300, "why": "rate limit"},
        {"type": "unheard_of", "text": "not told"},
        ended({"id": "1", "state": "done"}, {"id": "2", "state": "waiting"}),
    )
    assert lines == [
        "add-login: 3 stories, 1 done, claude, branch ralph/add-login",
        "2. Login form: attempt 2 of 3, claude, task 2.3",
        "setup failed: npm ci (exit code 1, 3 s) a.log",
        "agent: rate-limit: come back later",
        "gate failed after the work: pytest: 1 failed, 1 newly red (12 s) a::b b.log",
        "gate failed after the work: pytest: nothing newly red (12 s)",
        "✗ 2. Login form: failed (attempt 2, 4 min 12 s): red",
        "2. Login form: retrying: one is left",
        "checkpoint 9f2c1b7d0e Login form",
        "? 3. Sign out needs your answer: .ralph/questions/3.md (a password)",
        "no tests",
        "waiting 5 min: rate limit",
        "1 of 2 stories are done; 1 needs your answer.",
    ]


def test_a_gate_names_its_story_where_the_line_before_is_about_another() -> None:
    verdict = {"type": "verdict", "story": "3", "attempt": 1, "status": "failed", "reasons": ["red"], "iteration": 2}
    lines = told(
        THREE,
        iteration("2", iteration=1),
        iteration("3", iteration=2),
        gate("pytest", True, story="3", iteration=2),
        verdict,
        gate("pytest", True, story="2", iteration=1),
        gate("ruff", True, story="2", iteration=1),
    )
    assert [line.partition(": ")[0] for line in lines[-4:]] == [
        "3. Sign out",
        "✗ 3. Sign out",
        "2. Login form",
        "gate passed after the work",
    ]


# --- the summary ------------------------------------------------------------------------------------


def shown(event: Event, change: str = "add-login", encoding: str = "utf-8") -> list[str]:
    """The summary, as written to a file: the same for the typed event and for its bare fields."""
    end, fields = typed(event), parse_fields(encoded(event))
    assert isinstance(end, events.RunEnded)
    assert fields is not None
    lines = written(end, change, encoding)
    assert written(RunEnd(fields), change, encoding) == lines
    return lines


def written(end: RunEnd | events.RunEnded, change: str, encoding: str) -> list[str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with contextlib.redirect_stdout(out):
        summary.print_summary(end, change)
    out.seek(0)
    return out.read().rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("states", "result", "first"),
    [
        (["done"] * 4, "done", "4 of 4 stories are done."),
        (["done"], "done", "The story is done."),
        ([], "done", "There was nothing to do."),
        ([], "unfinished", "The run ended with an error."),
        (["done", "skipped"], "done", "1 of 2 stories are done; 1 was skipped."),
        (
            ["done", "done", "done", "waiting", "failed"],
            "unfinished",
            "3 of 5 stories are done; 1 needs your answer; 1 failed.",
        ),
        (["done", "open"], "interrupted", "Interrupted; run it again and it resumes where it stopped."),
        (["done"], "unfinished", "1 of 1 story is done."),
    ],
)
def test_the_first_line_says_it_all(states: list[str], result: str, first: str) -> None:
    stories = [{"id": str(number), "state": state} for number, state in enumerate(states)]
    assert shown(ended(*stories, result=result))[0] == first


def test_times_that_are_more_than_the_run_took_say_why() -> None:
    spent = {"seconds": 60.0, "agent_seconds": 200.0, "gate_seconds": 20.0}
    [line] = [one for one in shown(ended({"id": "1", "state": "done"}, spent=spent)) if one.startswith("This run took")]
    assert line == "This run took 1 min (agent 3 min 20 s, gates 20 s, some of them at the same time)"


def test_the_summary() -> None:
    assert shown(FIVE) == [
        "1 of 5 stories are done; 1 needs your answer; 1 failed; 1 was skipped; 1 is open.",
        "Nothing more can be done.",
        "",
        "Done",
        "  ✓ 1. Set up  (commit 41b0c2d9a8)",
        "",
        "Needs your answer",
        "  ? 2. Form",
        "      no mail server",
        "      .ralph/questions/2.md",
        "",
        "Failed",
        "  ✗ 3. Out  (3 attempts)",
        "      pytest is red",
        "",
        "Skipped",
        "  - 4. Hints",
        "      optional",
        "",
        "Open",
        "  · 5. Later",
        "",
        "This run took 1 h (agent 11 min 40 s), 4 iterations, 1.2M tokens in, 0 out, $1.50",
        "         TIME   COST  STORY",
        "        1 min         1. Set up",
        "  11 min 40 s  $1.50  3. Out",
        "",
        "Next steps",
        "  Answer, then:",
        "    ralphtool  run 'add login'",
        "  Or sleep on.",
    ]


def test_a_question_is_in_the_summary() -> None:
    row = {"id": "2", "title": "Form", "state": "waiting", "question": "2.md"}
    why = "two attempts in a row ended with the same question"
    asked = shown(ended({**row, "why": why, "failure": "Which colour?"}))
    assert asked[asked.index("  ? 2. Form") + 1 :][:3] == ["      Which colour?", f"      {why}", "      2.md"]
    blocked = shown(ended({**row, "why": "confirmed: no mail server", "failure": "no mail server"}))
    assert blocked[blocked.index("  ? 2. Form") + 1 :][:2] == ["      confirmed: no mail server", "      2.md"]


def test_a_single_story_needs_no_table() -> None:
    one = {"id": "1", "title": "Set up", "state": "done", "seconds": 60}
    assert not any("TIME" in line for line in shown(ended(one, result="done")))


# --- files, pipes and terminals ---------------------------------------------------------------------


WATCH = """
import sys, threading, time
from ralphtool.record import events, lines
from ralphtool.views.terminal import live, summary
how, path, *more = sys.argv[1:]
shows = {"plain": live.print_lines, "as_json": live.print_json, "live": live.show_live}
if how != "nothing":
    thread = threading.Thread(target=shows[how], args=(path, threading.Event()))
    thread.start()
    thread.join(40)
if "summary" in more:
    for event in map(events.decode, lines.LineReader(path).new()):
        if isinstance(event, events.RunEnded):
            summary.print_summary(event, "add-login")
sys.stderr.write("the run goes on")
"""
RUN = [THREE, iteration("2"), said("output", text=NASTY), {"at": at(75), "type": "notice", "text": "café [b]"}, FIVE]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The events of a whole run."""
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in RUN))
    return path


def watch(how: str, path: Path, *more: str, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Watches in a separate process; `shell` is appended to its command line."""
    command = ["sh", "-c", f'"$@" {shell}', "sh", sys.executable, "-c", WATCH, how, str(path), *more]
    environment = {**BASE, **env}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=PATIENCE)


def test_plain_lines(log: Path) -> None:
    done = watch("plain", log, "summary")
    lines = done.stdout.split("\n")
    assert lines[:3] == [
        "[00:00] add-login: 3 stories, 1 done, claude, branch ralph/add-login",
        "[00:00] 2. Login form: attempt 1 of 3, claude",
        "[01:15] café [b]",
    ]
    assert "\n".join(lines[3:]).rstrip() == "\n".join(shown(FIVE))
    assert done.stderr == "the run goes on"


def test_without_a_terminal_the_picture_is_plain_lines(log: Path) -> None:
    assert watch("live", log).stdout == watch("plain", log).stdout != ""


def test_where_unicode_cant_be_written_it_is_not(log: Path) -> None:
    done = watch("plain", log, "summary", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert "[01:15] caf\\xe9 [b]" in done.stdout
    assert "+ 1. Set up" in done.stdout
    assert done.stderr == "the run goes on"


def test_json_has_every_event_as_a_line_of_ascii(log: Path) -> None:
    done = watch("as_json", log)
    assert [json.loads(line) for line in done.stdout.splitlines()] == RUN
    assert all(line.isascii() and line.isprintable() for line in done.stdout.splitlines())


def test_json_that_is_nested_as_deeply_as_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    depths = range(950, 1001)
    nested = [f'{{"type": "notice", "number": {depth}, "text": {"[" * depth}{"]" * depth}}}\n' for depth in depths]
    path.write_text("".join(nested) + '{"type": "run_ended"}\n')
    done = watch("as_json", path)
    assert json.loads(done.stdout.splitlines()[-1]) == {"type": "run_ended"}
    assert done.stderr == "the run goes on"


def test_json_of_a_number_that_no_json_has(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"at": "now", "type": "verdict", "cost": 1e999}\n{"type": "run_ended"}\n')
    done = watch("as_json", path)
    assert list(map(json.loads, done.stdout.splitlines())) == [{"at": "now", "type": "verdict"}, {"type": "run_ended"}]


@pytest.mark.parametrize("more", [["summary"], []], ids=["summary", "no summary"])
@pytest.mark.parametrize("how", ["plain", "as_json", "live"])
def test_a_reader_that_goes_away_does_not_hurt(log: Path, how: str, more: list[str]) -> None:
    """Far more than a pipe holds, so that the writer gets an error."""
    line = json.dumps({"at": NOON, "type": "notice", "text": "x" * 250}) + "\n"
    log.write_text(json.dumps(THREE) + "\n" + 2000 * line + json.dumps(FIVE) + "\n")
    done = watch(how, log, *more, shell="| head -1")
    assert done.stdout.count("\n") == 1
    assert "add-login" in done.stdout
    assert done.stderr == "the run goes on"


@pytest.mark.parametrize("how", ["plain", "as_json", "nothing"])
def test_nobody_who_reads_does_not_hurt(log: Path, how: str) -> None:
    """So little output that it would only be written when the process ends."""
    done = watch(how, log, *(["summary"] if how == "nothing" else []), shell="| true")
    assert (done.stdout, done.stderr) == ("", "the run goes on")


def test_a_reader_of_the_summary_that_goes_away_does_not_hurt(log: Path) -> None:
    log.write_text(json.dumps(ended(*(story(str(number), "x" * 100) for number in range(5000)))) + "\n")
    done = watch("nothing", log, "summary", shell="| head -1")
    assert done.stdout == "0 of 5000 stories are done; 5000 are open.\n"
    assert done.stderr == "the run goes on"


def test_a_closed_standard_output_does_not_hurt(log: Path) -> None:
    for how in ("plain", "as_json", "live"):
        done = watch(how, log, "summary", shell=">&-")
        assert (done.stdout, done.stderr) == ("", "the run goes on")


def test_stopping_shows_what_was_written_until_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stop = tmp_path / "events.jsonl", threading.Event()
    path.write_text(json.dumps(THREE) + "\n" + '{"type": "notice", "text": "half')
    stop.set()
    for look in (live.print_json, live.print_lines):
        look(str(path), stop)
    first, second, rest = capsys.readouterr().out.split("\n")
    assert json.loads(first) == THREE
    assert second.startswith("[00:00] add-login")
    assert rest == ""


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stop = tmp_path / "events.jsonl", threading.Event()
    thread = threading.Thread(target=live.print_lines, args=(str(path), stop))
    thread.start()
    try:
        writer = Log(str(path))
        writer.add(events.Notice(text="here it comes"))
        writer.add(events.RunEnded(result="done"))
        writer.close()
        thread.join(120)
        assert not thread.is_alive()
    finally:
        stop.set()
    assert "here it comes" in capsys.readouterr().out


def in_terminal(how: str, path: Path, columns: int = 80, **env: str) -> str:
    """Everything that is written to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**BASE, "TERM": "xterm-256color", **env}
    command = [sys.executable, "-c", WATCH, how, str(path), "summary"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        out = b""
        with contextlib.suppress(OSError):  # how the system reports the end of a terminal
            while block := os.read(ours, 65536):
                out += block
        os.close(ours)
        assert process.wait(120) == 0
    return out.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_colours_unless_they_are_not_wanted(log: Path) -> None:
    assert COLOUR.search(in_terminal("live", log))
    without = in_terminal("live", log, NO_COLOR="1")
    assert not COLOUR.search(without)
    assert "of 3 stories" in without


def test_a_dumb_terminal_gets_lines(log: Path) -> None:
    out = in_terminal("live", log, TERM="dumb")
    assert "\x1b" not in out
    assert "[01:15] café [b]" in out


def test_a_terminal_without_unicode_gets_ascii(log: Path) -> None:
    out = in_terminal("live", log, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert out.isascii()
    assert "+ 1. Set up" in out
    assert r"caf\xe9 [b]" in out


def test_the_summary_fits_a_narrow_terminal(log: Path) -> None:
    out = in_terminal("plain", log, columns=30, NO_COLOR="1").replace("\r", "").partition("Nothing more")[2]
    lines = [line.rstrip() for line in out.split("\n")]
    assert max(map(len, lines)) <= 30
    assert "    ralphtool  run 'add login'" in lines
    assert "  11 min 40 s  $1.50  3. Out" in lines
    assert lines[lines.index("Next steps") - 1] == ""


# --- a real terminal --------------------------------------------------------------------------------


SHOW = """
import json, os, sys, threading, time
from ralphtool.record import events
from ralphtool.record.log import Log
from ralphtool.views.terminal import live, summary
import views.run_events as given

def wait_for(name):
    for _ in range(2400):
        if os.path.exists(name):
            return
        time.sleep(0.05)

path = sys.argv[1]
log = Log(path)
stop = threading.Event()
thread = threading.Thread(target=live.show_live, args=(path, stop))
thread.start()
def add(event):
    log.note(events.decode(json.dumps(event).encode()))
add(given.THREE)
add(given.iteration("2", 2))
for number in range(5000):
    add(given.said("output", text=f"{number}: {given.NASTY}"))
add(given.said("tool", name="Edit", detail="src/login.py"))
wait_for(path + ".1")
sys.stderr.write("a word from elsewhere\\n")
add({"type": "gate_started", "when": "after", "command": "pytest -q"})
add(given.gate("pytest -q", True, tally="212 passed"))
wait_for(path + ".2")
add({"type": "verdict", "story": "2", "attempt": 2, "status": "completed", "summary": "The form is there."})
add({"type": "checkpoint", "story": "2", "commit": "9f2c1b7d0e5a4c3b"})
add({"type": "notice", "text": "[bold]no markup[/bold]"})
wait_for(path + ".3")
add(given.FIVE)
thread.join(120)
summary.print_summary(given.typed(given.FIVE), "add-login")
"""


@pytest.mark.parametrize("terminal", [(80, 40), (40, 40)], indirect=True, ids=["80 wide", "40 wide"])
def test_a_run_in_a_real_terminal(terminal: Terminal, tmp_path: Path) -> None:
    script, path = tmp_path / "show.py", tmp_path / "events"
    script.write_text(SHOW)
    terminal.type(f"PS1='ready> '; clear; {sys.executable} {script} {path}")

    seen = terminal.screen("▸ 2. Login form", "attempt 2 of 3", "Edit src/login.py", "1 of 3 stories")
    assert seen.count("add-login  claude") == 1
    (tmp_path / "events.1").touch()
    seen = terminal.screen("✓ pytest -q: 212 passed", "a word from elsewhere")
    assert seen.index("a word from elsewhere") < seen.index("1 of 3 stories")
    (tmp_path / "events.2").touch()
    seen = terminal.screen("2 of 3 stories", "The form is there.", "[bold]no markup[/bold]")
    assert seen.index("no markup") < seen.index("2 of 3 stories")
    assert seen.count("2 of 3 stories") == seen.count("add-login  claude") == 1
    (tmp_path / "events.3").touch()

    seen = terminal.screen("Or sleep on.\nready>")
    assert "The form is there." in seen
    assert "2 of 3 stories" not in seen
    assert seen.count("▸") == 0
    assert terminal("display-message", "-p", "#{cursor_flag}#{alternate_on}").strip() == "10"
    terminal.type("stty -a | grep -c ' echo '; echo still $((40 + 2))")
    assert "\n1\nstill 42\n" in terminal.screen("still 42\nready>")


@pytest.mark.parametrize("terminal", [(40, 10)], indirect=True, ids=["40x10"])
def test_the_picture_stays_on_a_small_screen_whatever_the_environment_says(terminal: Terminal, tmp_path: Path) -> None:
    script, path = tmp_path / "show.py", tmp_path / "events"
    script.write_text(SHOW)
    terminal.type(f"PS1='ready> '; clear; COLUMNS=100 LINES=50 {sys.executable} {script} {path}")
    terminal.screen("▸ 2. Login form", "Edit src/login.py", "1 of 3 stories")
    for number in (1, 2):
        (tmp_path / f"events.{number}").touch()
    seen = terminal.screen("2 of 3 stories", "✓ 2. Login form", "· 3. Sign out")
    assert seen.count("of 3 stories") == 1
    (tmp_path / "events.3").touch()
    assert "Next steps" in terminal.screen("Or sleep on.\nready>")


# --- docs/events.md ---------------------------------------------------------------------------------


SECTIONS: dict[str, str] = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL))


def example(name: str) -> Event:
    [line] = re.findall(r"```json\n(.*)\n```", SECTIONS[name])
    value = json.loads(line)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_of_an_event_has_the_fields_that_are_documented(name: str) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", SECTIONS[name].partition("| kind |")[0], re.MULTILINE)
    event = example(name)
    assert event["type"] == name
    assert list(event) == ["at", "type", *listed]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["at"])


@pytest.mark.parametrize(
    ("name", "field"), [("run_started", "stories"), ("run_ended", "stories"), ("run_ended", "next")]
)
def test_what_is_listed_in_brackets_is_in_the_example(name: str, field: str) -> None:
    [inside] = re.findall(rf"^\| `{field}` \| .*?\[(.*)\] \|$", SECTIONS[name], re.MULTILINE)
    names = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", inside))
    assert [list(one) for one in example(name)[field]] == [names] * len(example(name)[field])


def test_the_examples_can_be_read_as_a_run(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(example(name)) + "\n" for name in SECTIONS))
    found = list(filter(None, map(parse_fields, LineReader(str(path)).new())))
    assert [event["type"] for event in found] == list(SECTIONS)
    assert len(told(*found)) == len(SECTIONS) - len(["gate_started", "agent", "ticked", "merged", "resumed"])


def test_the_events_of_agents_are_those_that_there_are() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?): ", SECTIONS["agent"].partition("| kind |")[2], re.MULTILINE)
    listed = {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows}
    kinds = agents.Event.__subclasses__()
    assert listed == {kind.__name__.lower(): list(kind.__struct_fields__) for kind in kinds}
