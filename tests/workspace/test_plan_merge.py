"""An edited plan: which story is which now, and which boxes are ticked, as a table."""

from __future__ import annotations

import pytest

from ralphtool.specs import Story, Task
from ralphtool.workspace.plan_merge import PlanEdit, compare


def read(text: str) -> list[Story]:
    """`1 Title: a, b*` is a story with two tasks, the second one ticked."""
    stories = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        head, _, tasks = line.partition(":")
        id, _, title = head.partition(" ")
        listed = enumerate(filter(None, map(str.strip, tasks.split(","))), 1)
        stories.append(
            Story(id, title, [Task(f"{id}.{n}", word.rstrip("*"), word.endswith("*")) for n, word in listed])
        )
    return stories


PLAN = "1 Read: parse, check\n2 Write: format, save\n3 Serve: listen"
RUN = "1 Read: parse*, check*\n2 Write: format, save\n3 Serve: listen"  # as the branch has it: the first is done
ONE = ("1.1", "1.2")

CASES = {
    "nothing": (PLAN, PlanEdit(done_tasks=ONE)),
    "a new story at the end": (f"{PLAN}\n4 Log: print", PlanEdit(added=("4",), done_tasks=ONE)),
    "a new story in the middle": (
        "1 Read: parse, check\n2 Log: print\n3 Write: format, save\n4 Serve: listen",
        PlanEdit(added=("2",), renamed=(("2", "3"), ("3", "4")), done_tasks=ONE),
    ),
    "a new story at the beginning": (
        "1 Log: print\n2 Read: parse, check\n3 Write: format, save\n4 Serve: listen",
        PlanEdit(added=("1",), renamed=(("1", "2"), ("2", "3"), ("3", "4")), done_tasks=("2.1", "2.2")),
    ),
    "one that is gone": (
        "1 Read: parse, check\n3 Serve: listen",
        PlanEdit(removed=("2",), done_tasks=ONE),
    ),
    "a done one that is gone": (
        "2 Write: format, save\n3 Serve: listen",
        PlanEdit(removed=("1",)),
    ),
    "another one in its place": (
        "1 Read: parse, check\n2 Something wholly different: dig a hole\n3 Serve: listen",
        PlanEdit(added=("2",), removed=("2",), done_tasks=ONE),
    ),
    "another one in the place of a done one": (
        "1 Something wholly different: dig a hole\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(added=("1",), removed=("1",)),
    ),
    "an open one that is reworded": (
        "1 Read: parse, check\n2 Write it: format well, save\n3 Serve: listen",
        PlanEdit(reworded=("2",), done_tasks=ONE),
    ),
    "a done one that is reworded": (
        "1 Read: parse all, check\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(changed_when_done=("1",), done_tasks=ONE),
    ),
    "a done one with another task in the place of one": (
        "1 Read: parse, delete old accounts\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(reopened=("1",), done_tasks=("1.1",)),
    ),
    "a done one in another place and with another title": (
        "1 Log: print\n2 Load: parse, check\n3 Write: format, save\n4 Serve: listen",
        PlanEdit(
            added=("1",),
            changed_when_done=("2",),
            renamed=(("1", "2"), ("2", "3"), ("3", "4")),
            done_tasks=("2.1", "2.2"),
        ),
    ),
    "a new task in a done one": (
        "1 Read: parse, check, count\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(reopened=("1",), done_tasks=ONE),
    ),
    "a task less in a done one": (
        "1 Read: parse\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(changed_when_done=("1",), done_tasks=("1.1",)),
    ),
    "tasks in another order": (
        "1 Read: check, parse\n2 Write: format, save\n3 Serve: listen",
        PlanEdit(changed_when_done=("1",), done_tasks=ONE),
    ),
    "stories in another order": (
        "1 Serve: listen\n2 Write: format, save\n3 Read: parse, check",
        PlanEdit(renamed=(("3", "1"), ("1", "3")), done_tasks=("3.1", "3.2")),
    ),
    "a box that the user ticks": (
        "1 Read: parse, check\n2 Write: format*, save\n3 Serve: listen",
        PlanEdit(done_tasks=(*ONE, "2.1")),
    ),
    "the ticks of the run": (RUN, PlanEdit(done_tasks=ONE)),
    "no story at all": ("", PlanEdit(removed=("1", "2", "3"))),
}


@pytest.mark.parametrize(("edited", "expected"), CASES.values(), ids=CASES)
def test_an_edit_is_what_the_user_did(edited: str, expected: PlanEdit) -> None:
    assert compare(read(PLAN), read(RUN), read(edited)) == expected


def test_a_box_that_the_user_opens_again_is_open() -> None:
    found = compare(read(RUN), read(RUN), read("1 Read: parse*, check\n2 Write: format, save\n3 Serve: listen"))
    assert found == PlanEdit(reopened=("1",), done_tasks=("1.1",))


def test_a_box_that_was_rejected_stays_open_though_the_users_copy_has_its_tick() -> None:
    found = compare(read(RUN), read(PLAN), read(f"{RUN}\n4 Log: print"))
    assert found == PlanEdit(added=("4",))


def test_two_stories_with_one_title_are_told_apart_by_their_tasks_and_then_by_their_order() -> None:
    old = "1 Fix: a*\n2 Fix: b"
    assert compare(read("1 Fix: a\n2 Fix: b"), read(old), read("1 Fix: b\n2 Fix: a")).done_tasks == ("2.1",)
    same = compare(read("1 Fix: a\n2 Fix: a"), read("1 Fix: a*\n2 Fix: a"), read("1 Fix: a\n2 Fix: a\n3 Fix: a"))
    assert (same.done_tasks, same.added) == (("1.1",), ("3",))


FALSELY_DONE = {
    "an open one with the title of a done one that is gone": (
        "1 Tests: the login form is tried*\n2 Tests: prices are summed",
        "1 Tests: prices are summed, with tax",
        PlanEdit(removed=("1",), reworded=("1",), renamed=(("2", "1"),)),
    ),
    "an open one, with another title, in the place of a done one that is gone": (
        "1 Make the login page: it works*\n2 Make the signup page: it works",
        "1 Make the sign-up page nice: it works",
        PlanEdit(removed=("1",), reworded=("1",), renamed=(("2", "1"),)),
    ),
    "a new one that shares only what all say with a done one": (
        "1 Discounts: take 10 % off*, a test proves it*\n2 Delivery: add the costs, a test proves it",
        "1 Invoices: print the sum, a test proves it\n2 Delivery: add the costs, a test proves it",
        PlanEdit(added=("1",), removed=("1",)),
    ),
}


@pytest.mark.parametrize(("ours", "edited", "expected"), FALSELY_DONE.values(), ids=FALSELY_DONE)
def test_what_nobody_did_does_not_count_as_done(ours: str, edited: str, expected: PlanEdit) -> None:
    assert compare(read(ours.replace("*", "")), read(ours), read(edited)) == expected


def test_it_is_told_in_one_line() -> None:
    edit = PlanEdit(added=("4",), removed=("2",), reworded=("3",), changed_when_done=("1",))
    assert edit.describe("login") == (
        "you edited the plan of login: new: story 4; removed: story 2; reworded: story 3; "
        "already done before you reworded it: story 1 (`ralphtool reject 1` reopens it)"
    )
    assert PlanEdit(done_tasks=("1",)).describe("login") == ""
