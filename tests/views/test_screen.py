"""The full screen, driven by Textual's pilot: each page by keys and by mouse, steering a run, and bad input."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab
from patience import PATIENCE
from rich.style import Style
from textual.pilot import Pilot
from textual.widgets import OptionList, RichLog
from views.run_events import NOON, THREE, all_typed, iteration

from ralphtool.core import session
from ralphtool.record import questions, runs, steering
from ralphtool.record.event_parts import StoryBefore
from ralphtool.record.events import IterationStarted, RunStarted, Steered
from ralphtool.record.follow import decode_all
from ralphtool.views import project_data as data
from ralphtool.views.screen import RalphApp
from ralphtool.views.screen.base import Page
from ralphtool.views.screen.record import MAX_ACTIVITIES, FollowedRun, WatchedRun
from ralphtool.views.screen.watch import WatchPage

Event = dict[str, Any]
Drive = Callable[[Pilot[None]], Awaitable[None]]
EVIL = "[bold red]x[/] \x1b[31mred\x1b]0;t\x07 \u202eback [@click=app.quit]q[/] [/oops]"


def drive(root: Path, act: Drive, size: tuple[int, int] = (80, 24), encoding: str = "utf-8") -> RalphApp:
    """Opens the screen in a project, and does something with it."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            async with asyncio.timeout(PATIENCE):
                await act(pilot)

    app = RalphApp(str(root), encoding)
    # A browser of another test of this worker keeps the loop of this thread, which is not used meanwhile.
    browsers = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        asyncio.run(run())
    finally:
        asyncio._set_running_loop(browsers)
    return app


def text_of(pilot: Pilot[None]) -> str:
    """The screen as text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def seen(pilot: Pilot[None], *wanted: str) -> str:
    """The screen as text, once all these texts are on it."""
    end = time.monotonic() + PATIENCE / 2
    while not all(one in (text := text_of(pilot)) for one in wanted):
        assert time.monotonic() < end, f"{wanted} was not seen in\n{text}"
        await pilot.pause(0.03)
    return text


async def settled(pilot: Pilot[None], *wanted: str) -> str:
    """The same, once nothing moves any more, so that it can be clicked."""
    before, text = "", await seen(pilot, *wanted)
    while before != text:
        await pilot.pause(0.05)
        before, text = text, await seen(pilot, *wanted)
    return text


async def typed(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*("space" if one == " " else one for one in text), "enter")
    await pilot.pause()


async def watch(pilot: Pilot[None]) -> None:
    """Goes from the first page to the run in progress."""
    await seen(pilot, "running")
    await pilot.press("w")


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is in this process: it and its runs write into folders of the test."""
    for name in ("HOME", "TMPDIR"):
        folder = tmp_path / f"own-{name.lower()}"
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A project whose run has ended: the first story is done, the second needs an answer."""
    lab = Lab(tmp_path_factory.mktemp("finished")).repository()
    learnt = {"learn": "Files have to be short", "type": "codebase-pattern"}
    lab.play(
        {"story": "1", "steps": [{"say": "I make a and b"}, learnt, *DONE]},
        {"story": "2", "steps": [{"blocked": "SHOP_KEY is not set"}]},
    )
    assert lab.loop("add-login").exit_code == 1
    return lab


@pytest.fixture
def copied(finished: Lab, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    root = tmp_path / "project"
    shutil.copytree(finished.root, root, symlinks=True)
    return root


# --- a made-up record -------------------------------------------------------------------------------


class Record:
    """The record of a run whose owner is this process: it is in progress until its end is written."""

    def __init__(self, root: Path, pid: int | None = None) -> None:
        self.root = root
        self.id = "add-login-20260301-220000-1a2b"
        self.path = root / ".ralph/runs" / self.id / "events.jsonl"
        self.path.parent.mkdir(parents=True)
        stories = [{"id": id, "title": title, "tasks_total": 2, "tasks_done": 0} for id, title in TITLES.items()]
        self.add(
            "run_started", run=self.id, change="add-login", agent="claude", pid=pid or os.getpid(), stories=stories
        )
        self.add("iteration_started", story="1", attempt=1, attempts=3, agent="claude")

    def add(self, type: str, **fields: Any) -> None:
        self.write({"at": session.now(), "type": type, **fields})

    def say(self, kind: str, **fields: Any) -> None:
        self.add("agent", event={"kind": kind, **fields})

    def write(self, *events: Event) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in events))

    def said(self) -> list[tuple[str, str | None, str]]:
        return [(one.action, one.story, one.text) for one in steering.list_pending(str(self.root), "add-login")]


TITLES = {"1": "First", "2": "Second"}


@pytest.fixture
def record(lab: Lab) -> Record:
    lab.openspec("## 1. First\n\n- [ ] 1.1 a\n\n## 2. Second\n\n- [ ] 2.1 b\n")
    return Record(lab.root)


# --- the pages --------------------------------------------------------------------------------------


def test_a_page_that_was_left_while_it_read_shows_nothing_more(finished: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login", "unfinished")
        await pilot.press("enter")
        await seen(pilot, "Users want in.")
        page = pilot.app.screen
        assert isinstance(page, Page)
        assert await page.run_in_thread(lambda: 1) == 1
        await pilot.press("escape")
        await seen(pilot, "Changes", "Runs")
        with pytest.raises(asyncio.CancelledError):
            await page.run_in_thread(lambda: 1)
        await pilot.press("q")

    assert drive(finished.root, act).return_code == 0


def test_a_page_that_reads_while_the_screen_is_closed_shows_nothing_more(finished: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login", "unfinished")
        page = pilot.app.screen
        await page.remove()  # as when the app ends: it is still on the stack
        assert page in pilot.app.screen_stack
        assert isinstance(page, Page)
        with pytest.raises(asyncio.CancelledError):
            await page.run_in_thread(lambda: 1)
        pilot.app.exit(None, 0)

    assert drive(finished.root, act).return_code == 0


def test_every_page_is_reached_by_keys(finished: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login", "1 question needs your answer", "2 of 3 tasks, 1 of 2 stories", "unfinished")
        text = await seen(pilot, "enter Open", "u Refresh", "? Keys", "q Quit")
        assert "w Watch" not in text
        await pilot.press("?")
        await seen(pilot, "refresh the lists", "watch the current run", "runs continue")
        await pilot.press("ctrl+c")
        await pilot.press("enter")
        await seen(pilot, "! 1. First", "? 2. Second", "Proposal", "Users want in.")
        await pilot.press("down")
        await seen(pilot, "Make a", "Good password", "the user is in", "r Run")
        await pilot.press("o")
        await seen(
            pilot,
            "1 of 2 stories are done: 1 done, not proven: there is no gate; 1 needs your",
            f"ralphtool report {runs.list_ids(str(finished.root))[0]}",
        )
        await pilot.press("end")
        await seen(pilot, "attempt 1: completed", "1.txt", "commit", "Files have to be short")
        await pilot.press("l")
        await seen(pilot, "Log", "? 2. Second", "the agent reported a blocker")
        await pilot.press("tab", "home")
        await seen(pilot, "I make a and b")
        await pilot.press("escape", "escape", "escape", "escape")
        await seen(pilot, "Changes", "Runs")
        await pilot.press("q")

    assert drive(finished.root, act).return_code == 0


def test_every_page_is_reached_by_mouse(finished: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        async def click(words: str) -> None:
            lines = (await settled(pilot, words)).splitlines()
            row = next(number for number, line in enumerate(lines) if words in line)
            await pilot.click(offset=(lines[row].index(words) + 1, row))
            await pilot.pause()

        await click("add-login")
        await click("1. First")
        await seen(pilot, "Make a")
        await click("Last result")
        await click("l Log")
        await click("2. Second")
        await seen(pilot, "2. Second needs your answer")

    drive(finished.root, act)


def test_where_there_is_nothing_it_says_what_to_do(tmp_path: Path) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "There are no changes here", "ralphtool new")
        await pilot.press("enter", "w")
        assert "w Watch" not in text_of(pilot)

    drive(tmp_path, act)


def test_settings_that_can_not_be_read_say_why_and_hide_no_run(record: Record) -> None:
    (record.root / ".ralph/config.toml").write_text("spec = [")

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "config.toml", "w Watch", "Runs", "add-login", "running")
        (record.root / ".ralph/config.toml").write_text("")
        await pilot.press("u")
        text = await seen(pilot, "Changes")
        assert "config.toml" not in text

    drive(record.root, act)


def test_a_change_that_can_not_be_read_says_why(lab: Lab) -> None:
    lab.openspec()
    (lab.root / "openspec/changes/add-login/tasks.md").write_bytes(b"\xff")

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "✗ add-login", "tasks.md", "UTF-8")
        await pilot.press("enter")
        await seen(pilot, "Stories", "tasks.md", "save the file as UTF-8")
        lab.openspec("## 1. First\n\n- [ ] 1.1 a\n- [x] 1.2 b\n")  # shown without a key press
        await seen(pilot, "1. First", "1/2")

    drive(lab.root, act)


def test_what_other_runs_learnt_is_not_told(finished: Lab) -> None:
    root = str(finished.root)
    run = runs.read_summary(root, runs.list_ids(root)[0])
    assert [one.content for one in data.list_learnings(root, run)] == ["Files have to be short"]
    run.last = "2001-01-01T00:00:00+02:00"
    assert not data.list_learnings(root, run)
    run.last, run.began = "2101-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    assert not data.list_learnings(root, run)


# --- running ----------------------------------------------------------------------------------------


def test_a_run_is_begun_and_watched_until_its_result(lab: Lab) -> None:
    go = lab.root.parent / "go"
    wait = {"run": f"while [ ! -e {go} ]; do sleep 0.05; done"}
    lab.repository().play({"story": "1", "steps": [{"say": "look [bold]here[/]"}, wait, *DONE]}, default=DONE)

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login")
        await pilot.press("enter")
        await seen(pilot, "r Run")
        await pilot.press("r")
        await seen(pilot, "Run add-login with scripted?")
        assert not runs.list_ids(str(lab.root))
        await pilot.press("enter")
        await seen(pilot, "look [bold]here[/]", "▸ 1. First", "attempt 1 of 3", "x Stop")
        go.touch()
        await seen(pilot, "2 of 2 stories are done", "✓ 2. Second")
        await pilot.press("e")
        await seen(pilot, "2 of 2 stories are done", "ralphtool report")
        depth = len(pilot.app.screen_stack)
        await pilot.press("l")
        await seen(pilot, "Log")
        await pilot.press("e")
        await seen(pilot, "ralphtool report")
        assert len(pilot.app.screen_stack) == depth
        while list(Path(os.environ["TMPDIR"]).glob("ralph/screen/*.log")):  # it is removed when the process has ended
            await pilot.pause(0.05)

    drive(lab.root, act)
    assert lab.checkpoints() == ["1", "2"]


def test_a_run_that_does_not_start_says_why(lab: Lab) -> None:
    lab.repository(agent="nobody")

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login")
        await pilot.press("enter")
        await seen(pilot, "r Run")
        await pilot.press("r", "y", "escape")  # the message also appears on another page
        await seen(pilot, "add-login did not start", "nobody")
        assert not list(Path(os.environ["TMPDIR"]).glob("ralph/screen/*.log"))
        await pilot.press("o", "space")
        await seen(pilot, "add-login did not start")
        await pilot.press("enter")
        await seen(pilot, "Changes")
        await pilot.press("enter")
        await seen(pilot, "r Run")
        lab.write(".ralph/config.toml", "")
        await pilot.press("r")
        await seen(pilot, "no agent is configured yet")

    drive(lab.root, act)
    assert not runs.list_ids(str(lab.root))


# --- steering ---------------------------------------------------------------------------------------


def test_a_question_is_answered_in_place(copied: Path) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "1 question needs your answer")
        await pilot.press("tab", "enter")
        await seen(pilot, "a Answer")
        await pilot.press("a")
        await seen(pilot, "2. Second needs your answer", "SHOP_KEY is not set", "enter Send")
        await pilot.press("ctrl+c", "l")
        await seen(pilot, "? 2. Second", "a Answer")
        await pilot.press("k")
        await seen(pilot, "story 1 of add-login is done: there is nothing to skip")
        await pilot.press("down", "enter")
        await seen(pilot, "2. Second needs your answer")
        await pilot.press("enter")
        await typed(pilot, "use b")
        await seen(pilot, "story 2 continues with your answer; add-login is not running now")
        shutil.rmtree(copied / ".ralph/standing")
        await pilot.press("a", "q")  # `q` is not sent as an answer, and does not close the screen either
        await seen(pilot, "No question of add-login needs your answer")
        await pilot.press("escape")
        (copied / ".ralph/standing").mkdir()
        standing.rename(copied / ".ralph/standing/add-login.json")

    standing = Path(shutil.copy(copied / ".ralph/standing/add-login.json", copied / "kept"))
    drive(copied, act)
    [asked] = questions.list_open(str(copied), "add-login")
    assert asked.answer == "use b"


def test_a_story_that_has_another_number_by_now_is_not_decided_about(copied: Path) -> None:
    """The pages of an ended run have the numbers of that run; the plan was edited since."""
    plan = copied / "openspec/changes/add-login/tasks.md"
    later = (
        plan.read_text().replace("## 2.", "## 3.").replace(" 2.", " 3.").replace("## 1.", "## 2.").replace(" 1.", " 2.")
    )

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "1 question needs your answer")
        await pilot.press("tab", "enter")
        await seen(pilot, "a Answer")
        await pilot.press("l")
        await seen(pilot, "? 2. Second", "a Answer")
        plan.write_text(f"## 1. Zeroth\n\n- [ ] 1.1 Zero\n\n{later}")
        depth = len(pilot.app.screen_stack)
        for key in ("a", "g", "k", "t"):
            await pilot.press("down", key)  # from the first story to the second, and back
            await seen(pilot, f"story {2 if key in 'ak' else 1} is not clear")
            assert len(pilot.app.screen_stack) == depth, f"{key} opened a dialog"

    drive(copied, act)
    assert steering.list_pending(str(copied), "add-login") == []


def test_what_is_said_reaches_the_run(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        await seen(pilot, "▸ 1. First", "p Pause", "x Stop")
        await pilot.press("x")
        await seen(pilot, "y Stop now", "a After this iteration", "n Keep running")
        await pilot.press("enter", "k", "enter", "t", "y")  # Enter confirms neither, and no retry is possible now
        await pilot.pause()
        assert record.said() == []
        await pilot.press("g")
        await typed(pilot, "hi")
        await pilot.press("down", "t", "y", "k", "y", "p")
        await pilot.pause()
        record.add("paused", why="you paused it")
        await seen(pilot, "p Resume", "paused: you paused it")
        await pilot.press("p", "x", "a", "x", "y")
        await pilot.pause()

    drive(record.root, act)
    assert record.said() == [
        ("guide", "1", "hi"),
        ("retry", "2", ""),
        ("skip", "2", ""),
        ("pause", None, ""),
        ("resume", None, ""),
        ("stop-after", None, ""),
        ("stop", None, ""),
    ]
    words = steering.list_pending(str(record.root), "add-login")
    assert {one.run for one in words if one.action.startswith("stop")} == {record.id}


def test_stories_begin_as_earlier_runs_left_them_and_stay_done() -> None:
    states = ("waiting", "skipped", "done", "open", "evil", "")
    view = WatchedRun()
    view.feed(RunStarted(stories=tuple(StoryBefore(id=one, state=one) for one in states)))
    view.feed(Steered(action="skip", story="done"))
    view.feed(Steered(action="skip", story="open"))
    view.feed(Steered(action="retry", story="waiting"))
    assert [one.state for one in view.stories] == ["open", "skipped", "done", "skipped", "open", "open"]
    view.feed(IterationStarted(story="evil", title="long " * 9, attempt=1, attempts=3))
    rows = [view.render_row(one, width) for one in states for width in (1, 10, 28)]
    assert [row.cell_len <= width for row, width in zip(rows, (1, 10, 28) * 6, strict=True)] == [True] * 18
    assert view.render_row("evil", 28).plain.endswith("00:00")


def test_the_mark_goes_along_with_the_run_until_somebody_moves_it(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        await seen(pilot, "▸ 1. First")
        shown = pilot.app.screen.query_one("#stories", OptionList)
        record.add("iteration_started", story="2", attempt=1, attempts=3)
        await seen(pilot, "▸ 2. Second")
        assert shown.highlighted == 1
        await pilot.press("up")
        record.add("iteration_started", story="1", attempt=2, attempts=3)
        record.add("iteration_started", story="2", attempt=2, attempts=3)
        await seen(pilot, "attempt 2 of 3", "▸ 2. Second")
        assert shown.highlighted == 0

    drive(record.root, act)


def test_what_is_refused_is_told(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        await seen(pilot, "x Stop")
        (record.root / ".ralph/steering").write_text("in the way")
        await pilot.press("p")
        await seen(pilot, "steering")

    drive(record.root, act)
    assert (record.root / ".ralph/steering").read_text() == "in the way"


# --- records of all kinds ---------------------------------------------------------------------------


def test_a_run_that_died_says_so(lab: Lab) -> None:
    lab.openspec()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    record = Record(lab.root, gone.pid)

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "the last run died")
        await pilot.press("tab", "enter")
        await seen(pilot, "This run died", "ralphtool run add-login")
        await pilot.press("l")
        text = await seen(pilot, "This run died", "resumes where it stopped", "▸ 1. First")
        assert "Pause" not in text

    drive(record.root, act)


def test_results_are_folded_and_unfolded(record: Record) -> None:
    record.say("tool", name="Bash", detail="ls")
    record.say("result", text="\n".join(f"line {number}" for number in range(9)))
    record.say("usage", input_tokens=1500, output_tokens=10)

    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        text = await seen(pilot, "Bash ls", "line 2", "6 more lines", "1.5k in")
        assert "line 3" not in text
        await pilot.press("f")
        await seen(pilot, "line 8")
        await pilot.press("f")
        await seen(pilot, "6 more lines")

    drive(record.root, act)


def test_a_flood_is_passed_over_and_keys_still_work(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        await seen(pilot, "▸ 1. First")
        page = pilot.app.screen
        assert isinstance(page, WatchPage)
        for number in range(8):
            at = session.now()
            record.write(
                *(
                    {"at": at, "type": "agent", "event": {"kind": "output", "text": f"{number}-{one}"}}
                    for one in range(1000)
                )
            )
            await pilot.pause(0.05)
        await seen(pilot, "7-999")
        shown = [strip.text.strip() for strip in page.query_one(RichLog).lines]
        assert "things more; `ralphtool logs` has them all" in " ".join(shown)
        assert len(page.following.view.activities) == MAX_ACTIVITIES
        assert len(shown) < 1600
        await pilot.press("p")
        await pilot.pause()
        assert record.said() == [("pause", None, "")]

    drive(record.root, act)


def judged(view: WatchedRun) -> int:
    return sum(one.verdict is not None for one in view.run.attempts)


def test_a_long_record_is_shown_at_once_and_exactly_in_the_end(record: Record) -> None:
    at = session.now()
    usage = {"at": at, "type": "agent", "event": {"kind": "usage", "input_tokens": 1, "output_tokens": 1, "cost": 0.5}}
    word = {"at": at, "type": "agent", "event": {"kind": "message", "text": "w" * 200}}
    gate = {"at": at, "type": "gate", "when": "after", "command": "pytest", "ok": True, "seconds": 1}
    verdict = {"at": at, "type": "verdict", "story": "1", "attempt": 1, "status": "completed", "summary": "well done"}
    record.write(usage, *[word] * 3000, gate, verdict, *[word] * 3000, usage)
    record.add("iteration_started", story="2", attempt=1, attempts=3)
    record.write(*[word] * 3000)

    following = FollowedRun(runs.read_summary(str(record.root), record.id))
    assert [one.id for one in following.view.stories] == ["1", "2"]
    assert following.view.activities[-1].describe()[0].plain == "w" * 200
    assert not judged(following.view)
    for _ in range(1000):
        following.read()
        if not following.is_behind:
            break
    whole = WatchedRun()
    for event in decode_all(record.path.read_bytes().splitlines()):
        whole.feed(event)
    assert not following.is_behind
    assert judged(following.view) == 1
    following.view.is_over = whole.is_over = True  # so that both clocks stop
    assert following.view.render_head(80) == whole.render_head(80)
    assert [following.view.render_row(id, 40) for id in TITLES] == [whole.render_row(id, 40) for id in TITLES]
    assert [one.describe() for one in following.view.activities] == [one.describe() for one in whole.activities]


def test_a_record_that_is_no_record_harms_nothing(record: Record) -> None:
    with record.path.open("ab") as file:
        file.write(
            b"\x00\xff garbage\n[1]\n"
            + b"x" * 100_000
            + b'\n{"type": 5}\n{"type":"verdict","story":[],"files":7}\n{"cut'
        )

    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        await seen(pilot, "1. First: attempt 1 of 3")
        record.path.unlink()
        await pilot.pause(0.3)
        record.path.mkdir()
        await pilot.pause(0.3)
        await seen(pilot, "First")
        await pilot.press("escape", "u")
        await seen(pilot, "Changes")

    drive(record.root, act)


def test_hostile_texts_stay_texts(lab: Lab) -> None:
    lab.openspec(f"## 1. {EVIL}\n\n- [ ] 1.1 {EVIL}\n")
    lab.write("openspec/changes/add-login/proposal.md", EVIL)
    record = Record(lab.root)
    record.add("iteration_started", story=EVIL, title=EVIL, attempt=1, agent=EVIL)
    for kind in ("message", "result", "output"):
        record.say(kind, text=EVIL)
    record.say("tool", name=EVIL, detail=EVIL)
    record.add("gate", when=EVIL, command=EVIL, ok=False, new=[EVIL], log=EVIL)
    record.add("notice", text=EVIL)

    async def act(pilot: Pilot[None]) -> None:
        texts = [await seen(pilot, "add-login")]
        await pilot.press("enter")
        texts.append(await seen(pilot, "[bold red]x[/]"))
        await pilot.press("down")
        texts.append(await seen(pilot, "1.1 [bold red]x[/]"))
        await pilot.press("w")
        texts.append(await seen(pilot, "[bold red]x[/]", "[@click=app.quit]"))
        await pilot.press("down", "down", "g")
        texts.append(await seen(pilot, "Guidance for the agent", "[bold red]x[/]"))
        await pilot.press("escape")
        record.add(
            "verdict", story=EVIL, attempt=1, status=EVIL, summary=EVIL, reasons=[EVIL], files=[EVIL], entry=EVIL
        )
        row = {"id": EVIL, "title": EVIL, "state": "failed", "why": EVIL}
        record.add("run_ended", result=EVIL, reason=EVIL, stories=[row], next=[{"say": EVIL, "run": EVIL}])
        await seen(pilot, "e Result")
        await pilot.press("e")
        texts.append(await seen(pilot, "the result of", "[bold red]x[/]", "\\u202eback"))
        for text in texts:
            assert not {"\x1b", "\x07", "\u202e"} & set(text)

    drive(lab.root, act, (100, 40))


# --- rooms of all sizes -----------------------------------------------------------------------------


def test_it_fits_every_terminal(record: Record) -> None:
    record.say("message", text="word " * 100)
    record.add("question", story="2", path="x", missing="y")

    async def resized(pilot: Pilot[None], *wanted: str) -> None:
        await pilot.resize_terminal(20, 5)
        assert " ".join((await seen(pilot, "too small")).split()) == "too small: 40×10 at least"
        await pilot.resize_terminal(80, 24)
        await seen(pilot, *wanted)

    async def act(pilot: Pilot[None]) -> None:
        await resized(pilot, "Changes", "Runs", "add-login", "running", "q Quit")
        await pilot.press("enter")
        await seen(pilot, "1. First", "Proposal", "w Watch", "q Quit")
        await pilot.press("w")
        keys = ("a Answer", "g Guide", "p Pause", "x Stop", "k Skip", "esc Back", "? Keys", "q Quit")
        await resized(pilot, "▸ 1. First", "word word", "1 story needs your answer", "attempt 1 of 3", *keys)
        assert "Retry" not in text_of(pilot)
        await pilot.press("down")
        await seen(pilot, "t Retry", *keys)
        await pilot.press("g")
        await seen(pilot, "Guidance for the agent", "enter Send")
        for size in ((1, 1), (40, 10)):
            await pilot.resize_terminal(*size)
            assert len(text_of(pilot).splitlines()) <= size[1]
        await seen(pilot, "Guidance for the agent", "enter Send")

    drive(record.root, act)


def test_a_narrow_terminal_shows_the_key_that_lists_the_others(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login", "? Keys", "q Quit")
        await pilot.resize_terminal(80, 24)
        while not (await seen(pilot, "? Keys", "q Quit")).rstrip().endswith("q Quit"):
            await pilot.pause(0.03)
        await pilot.resize_terminal(40, 12)
        await watch(pilot)
        await seen(pilot, "? Keys", "q Quit")

    drive(record.root, act, (40, 12))


def test_a_terminal_without_other_letters_gets_none(record: Record) -> None:
    record.say("message", text="caf\xe9")

    async def act(pilot: Pilot[None]) -> None:
        await watch(pilot)
        text = await seen(pilot, "> 1. First", "caf\\xe9", "+- Stories ---")
        assert text.isascii()

    drive(record.root, act, encoding="ascii")


def test_without_colours_there_are_none(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login")
        styles: list[Style] = []
        while not any(style.underline for style in styles):  # underlining marks the chosen row
            await pilot.pause(0.05)
            strips = pilot.app.screen._compositor.render_strips()
            styles = [segment.style for strip in strips for segment in strip if segment.style]
        assert {style.color.name for style in styles if style.color} <= {"default"}
        assert {style.bgcolor.name for style in styles if style.bgcolor} <= {"default"}

    drive(record.root, act)


def test_where_several_work_at_once_each_line_says_whose_it_is() -> None:
    view = WatchedRun()
    said_by = [
        (2, {"kind": "message", "text": "first\nsecond"}),
        (3, {"kind": "tool", "name": "Edit", "detail": "a.py"}),
    ]
    happened = [THREE, *(iteration(str(number), iteration=number) for number in (2, 3))]
    happened += [
        {"at": NOON, "type": "agent", "story": str(number), "iteration": number, "event": one}
        for number, one in said_by
    ]
    for event in all_typed(happened):
        view.feed(event)
    lines = [line.plain for one in list(view.activities)[-2:] for line in one.describe()]
    assert lines == ["2  first", "second", "3  ▸ Edit a.py"]


def test_the_log_of_a_run_names_when_a_gate_ran_as_other_views_do() -> None:
    view = WatchedRun()
    gate: dict[str, Any] = {"at": NOON, "type": "gate", "command": "pytest", "ok": True, "seconds": 1}
    for event in all_typed([THREE, gate | {"when": "tip"}, gate | {"when": "after"}]):
        view.feed(event)
    lines = [line.plain for one in list(view.activities)[-2:] for line in one.describe()]
    assert [line.partition("  ")[0] for line in lines] == ["✓ at the end of the run: pytest", "✓ pytest"]
