"""The full screen shows an ended run as it is now: what people decided since, and where its branch is."""

from __future__ import annotations

import pytest
from lab import Lab
from textual.pilot import Pilot
from views.test_screen import _at_home, drive, finished, seen

__all__ = ["_at_home", "finished"]  # fixtures of the other file


@pytest.fixture
def ended(finished: Lab, lab: Lab) -> Lab:
    return lab.copy(finished)


async def open_result(pilot: Pilot[None]) -> None:
    await seen(pilot, "add-login", "1 question needs your answer")
    await pilot.press("enter")
    await seen(pilot, "Last result")
    await pilot.press("o")
    await seen(pilot, "1 of 2 stories are done: 1 done, not proven", "! 1. First")


def test_a_story_that_is_rejected_is_open_at_once(ended: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await open_result(pilot)
        assert ended.run("reject", "1", "--why", "it logs passwords").exit_code == 0
        await seen(pilot, "0 of 2 stories are done", "· 1. First", "you rejected it: it logs passwords")
        await pilot.press("l")
        await seen(pilot, "Log", "· 1. First", "0 of 2 stories", "e shows the result")

    drive(ended.root, act, (100, 60))


def test_an_accepted_story_shows_its_new_claim(ended: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await open_result(pilot)
        assert ended.run("accept", "1").exit_code == 0
        await seen(pilot, "1 of 2 stories are done: 1 accepted by you", "✓ 1. First")

    drive(ended.root, act, (100, 60))


@pytest.mark.parametrize("page", ["result", "log"])
def test_a_branch_that_was_rewritten_is_compared_again(ended: Lab, page: str) -> None:
    newest = ended.git("rev-parse", "ralph/add-login")
    gone = ("0 of 2 stories", "its checkpoint is gone from the branch") if page == "result" else ("0 of 2 stories",)

    async def act(pilot: Pilot[None]) -> None:
        await open_result(pilot)
        if page == "log":
            await pilot.press("l")
        await seen(pilot, "1 of 2 stories", "! 1. First")
        ended.git("branch", "--force", "ralph/add-login", "main")
        await seen(pilot, *gone, "· 1. First")
        ended.git("branch", "--force", "ralph/add-login", newest)
        await seen(pilot, "1 of 2 stories", "! 1. First")

    drive(ended.root, act, (100, 60))


def test_the_page_of_a_change_is_read_again_when_its_branch_moves(ended: Lab) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await seen(pilot, "add-login", "1 question needs your answer")
        await pilot.press("enter")
        await seen(pilot, "! 1. First")
        ended.git("branch", "--force", "ralph/add-login", "main")
        await seen(pilot, "· 1. First")

    drive(ended.root, act, (100, 60))
