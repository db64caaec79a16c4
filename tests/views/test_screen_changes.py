"""The keys of the full screen for changes: preview, filter, new, run, finish, and the diffs of attempts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab
from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot
from views.test_screen import EVIL, Record, _at_home, copied, drive, finished, record, seen, text_of, typed, watch

from ralphtool.record import runs
from ralphtool.record.events import IterationStarted, RunStarted, Ticked
from ralphtool.specs import Task
from ralphtool.views.screen import diff
from ralphtool.views.screen.base import NamedRow
from ralphtool.views.screen.record import WatchedRun

__all__ = ["_at_home", "copied", "finished", "record"]  # fixtures of the other file


def column_of(text: str, words: str) -> int:
    return next(line.index(words) for line in text.splitlines() if words in line)


def test_a_row_keeps_the_name_of_its_run() -> None:
    row = NamedRow(Text("· add-login"), Text("unfinished  1/2  2026-03-01 22:00  7 h 42 min  $20.10"))
    shown = Console(width=48, color_system=None)
    with shown.capture() as taken:
        shown.print(row)
    assert taken.get().rstrip() == "· add-login unfinished  1/2  2026-03-01 22:00  …"


# --- the preview ------------------------------------------------------------------------------------


def test_the_chosen_change_is_previewed(finished: Lab) -> None:
    wanted = ("? 2. Second: the variable SHOP_KEY is missing", "Last run  20", "1/2  unfinished", "! 1. First")

    async def act(pilot: Pilot[None]) -> None:
        text = await seen(
            pilot, *wanted, "· 2.1 Make c", "F Finish", "q Quit", "2 of 3 tasks, 1 of 2 stories, 1 not proven"
        )
        assert "1.1 Make a" not in text  # of a done story, only its name
        assert column_of(text, "Last run") < 5  # below the lists
        await pilot.resize_terminal(200, 50)
        text = await seen(pilot, *wanted, "Users want in.")
        while column_of(text, "Last run") < 80:  # beside them
            await pilot.pause(0.05)
            text = text_of(pilot)
        await pilot.resize_terminal(60, 12)
        text = await seen(pilot, "add-login", "Runs", "? Keys", "q Quit")
        while "Last run" in text:  # there is only room for the lists
            await pilot.pause(0.05)
            text = text_of(pilot)

    drive(finished.root, act)


def test_the_preview_goes_along_with_what_is_chosen(finished: Lab, tmp_path: Path) -> None:
    root = tmp_path / "both"
    shutil.copytree(finished.root, root, symlinks=True)
    place = root / "openspec/changes/zoo"
    place.mkdir()
    (place / "tasks.md").write_text("## 1. Cages\n\n- [ ] 1.1 Build a cage\n")

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "2.1 Make c")
        await pilot.press("down")
        text = await seen(pilot, "1.1 Build a cage", "none yet: r runs it")
        assert "d Diff" not in text
        assert "F Finish" not in text
        await pilot.press("tab")  # to the runs: the preview shows the run's change
        await seen(pilot, "2.1 Make c", "d Diff")
        (place / "tasks.md").write_bytes(b"\xff")
        await pilot.press("shift+tab", "u")
        await seen(pilot, "✗ zoo", "UTF-8")

    drive(root, act)


# --- ticks ------------------------------------------------------------------------------------------


def test_tasks_are_ticked_while_the_agent_works(record: Record) -> None:
    tick: dict[str, Any] = {"story": "1", "tasks_total": 1}

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "▸ 1. First", "· 1.1 a", "0/1")
        record.add("ticked", ticked=["1.1"], tasks_done=1, **tick)
        await seen(pilot, "✓ 1.1 a")
        await watch(pilot)
        text = await seen(pilot, "▸ 1. First", "✓ 1.1 a", "1/1")
        assert "2.1" not in text  # only of the story in progress
        record.add("ticked", ticked=[], tasks_done=0, **tick)
        await seen(pilot, "· 1.1 a", "0/1")
        record.add("iteration_started", story="2", attempt=1, attempts=3)
        text = await seen(pilot, "▸ 2. Second", "· 2.1 b")
        assert "1.1 a" not in text

    drive(record.root, act)


def test_of_many_tasks_those_around_the_first_open_one_are_shown() -> None:
    view, tasks = WatchedRun(), [Task(f"1.{number}", f"{EVIL} {number}", number < 5) for number in range(1, 31)]
    view.feed(RunStarted())
    assert view.render_tasks("1", tasks, 20) == []  # no agent works on it
    view.feed(IterationStarted(story="1", attempt=1))
    view.feed(Ticked(story="1", ticked=tuple(f"1.{number}" for number in range(1, 13)), tasks_done=12, tasks_total=30))
    lines = view.render_tasks("1", tasks, 20)
    assert [line.plain.split()[1] for line in lines[:-1]] == [f"1.{number}" for number in range(11, 19)]
    assert [line.plain.split()[0] for line in lines[:-1]] == ["✓", "✓", *"·" * 6]
    assert lines[-1].plain == "  and 22 more"
    assert all(line.cell_len <= 20 for line in lines)


def test_ticks_of_earlier_attempts_stay_until_others_are_told() -> None:
    view, task = WatchedRun(), Task("1.1", "a", True)
    view.feed(RunStarted())
    view.feed(Ticked(story="1", tasks_done=1, tasks_total=2))
    view.feed(IterationStarted(story="1", attempt=2))
    assert view.is_ticked("1", task)
    view.feed(Ticked(story="1", tasks_done=0, tasks_total=2))
    assert not view.is_ticked("1", task)


# --- diffs ------------------------------------------------------------------------------------------


def test_the_diff_of_every_attempt_is_shown(finished: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "d Diff")
        await pilot.press("d")
        await seen(pilot, "✗ add-login-2-1", "✓ add-login-1-1", "blocked: SHOP_KEY", "This attempt changed no file.")
        await pilot.press("down")
        await seen(pilot, "completed, commit", "1.txt", "+work")
        await pilot.press("escape", "tab", "enter", "d")
        await seen(pilot, "add-login-2-1")
        await pilot.press("escape", "l")
        await seen(pilot, "Log", "d Diff")
        await pilot.press("d")  # the first story is selected
        await seen(pilot, "+work")
        await pilot.resize_terminal(200, 50)
        await seen(pilot, "+work", "+- [x] 1.1 Make a")

    drive(finished.root, act)


def test_where_no_attempt_is_kept_it_says_so(record: Record) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "d Diff")
        await pilot.press("d")
        await seen(pilot, "this project is not", "repository")
        subprocess.run(["git", "init", "--quiet"], cwd=record.root, check=True)
        await pilot.press("escape", "d")
        await seen(pilot, "no attempt at add-login is kept")

    drive(record.root, act)


def test_a_diff_is_text_and_no_longer_than_can_be_read() -> None:
    lines = diff.render_diff(f"diff --git a b\n@@ -1 +1 @@\n+{EVIL}\n-\xff\tx".encode("latin-1", "replace"))
    assert [str(line.style) for line in lines] == ["bold", "cyan", "green", "red"]
    assert not {"\x1b", "\x07", "\u202e", "\t"} & set("".join(line.plain for line in lines))
    long = diff.render_diff(b"+x\n" * 6000)
    assert len(long) == 5001
    assert long[-1].plain == "and more: `ralphtool diff` shows all of it"
    assert long[-2].plain == "+x"


# --- the filter -------------------------------------------------------------------------------------


def test_the_lists_are_filtered(lab: Lab) -> None:
    for change in ("add-login", "add-export", "zoo"):
        lab.openspec("## 1. First\n\n- [ ] 1.1 a\n", change)
    Record(lab.root)

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-export", "zoo", "Runs")
        await pilot.press("slash", "escape")  # opened and closed again
        await pilot.press("slash", *"exp")
        text = await seen(pilot, "add-export", "esc Show all")
        assert "zoo" not in text
        assert "Runs" not in text
        await pilot.press("enter", "enter")
        await seen(pilot, "add-export  openspec", "About this change")
        await pilot.press("escape")
        await seen(pilot, "add-export", "esc Show all")
        await pilot.press("slash", *"expx")  # replaces the old filter
        await seen(pilot, "nothing matches expx: esc shows all")
        await pilot.press("enter", "escape")
        text = await seen(pilot, "add-login", "add-export", "zoo", "Runs", "q Quit")
        assert "Show all" not in text
        assert "nothing has" not in text

    drive(lab.root, act)


# --- new, run, finish -------------------------------------------------------------------------------


def test_a_change_is_begun(lab: Lab) -> None:
    lab.openspec()

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "n New")
        await pilot.press("n", "escape", "n")
        await seen(pilot, "What is the new change about?")
        await typed(pilot, "Export invoices")
        await seen(pilot, "export-invoices", "About this change", "0/")
        await pilot.press("escape")
        await seen(pilot, "add-login", "export-invoices")
        await pilot.press("n")
        await typed(pilot, "Export invoices")
        await seen(pilot, "export-invoices-2", "About this change")
        await pilot.press("escape")
        await seen(pilot, "export-invoices-2")
        await pilot.press("n")
        await typed(pilot, "...")
        await seen(pilot, "has no letters for a name")

    drive(lab.root, act)
    changes = json.loads(lab.run("list", "--json").stdout)["changes"]
    assert sorted(one["name"] for one in changes) == ["add-login", "export-invoices", "export-invoices-2"]


def test_a_change_is_run_from_the_first_page(lab: Lab) -> None:
    lab.repository().play(default=[{"say": "here I am"}, *DONE])

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "r Run")
        await pilot.press("r")
        await seen(pilot, "Run add-login with scripted?")
        await pilot.press("n")
        assert not runs.list_ids(str(lab.root))
        await pilot.press("r", "y")
        await seen(pilot, "2 of 2 stories are done", "here I am")

    drive(lab.root, act)
    assert lab.checkpoints() == ["1", "2"]


def test_a_change_is_finished(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "python3"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))

    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "F Finish")
        await pilot.press("F")
        text = await seen(pilot, "Finish add-login?", "1 story is not done yet", "m Merge", "s Squash", "n Not now")
        assert "Pull request" not in text
        await pilot.press("enter")  # Enter is not a yes
        gh = programs / "gh"
        gh.write_text("#!/bin/sh\nexit 1\n")
        gh.chmod(0o755)
        await pilot.press("F", "p")
        await seen(pilot, "add-login was not finished", "remote")
        assert os.path.exists(copied / ".git/refs/heads/ralph/add-login")
        await pilot.press("enter", "F", "s")
        await seen(pilot, "add-login: squash", "are staged in your working")
        assert (copied / "1.txt").read_text() == "work\n"
        assert not os.path.exists(copied / ".git/refs/heads/ralph/add-login")
        await pilot.press("enter", "F")
        await seen(pilot, "there is no branch ralph/add-login")

    drive(copied, act)
