"""Rules for every spec format: what follows from the stories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from project import Ralph
from specs.formats import open_spec

from ralphtool import specs
from ralphtool.errors import SpecError
from ralphtool.specs import Story, Task, markdown


def story(id: str, *, done: bool = False, optional: bool = False, depends_on: Sequence[str] = ()) -> Story:
    return Story(id, f"Story {id}", [Task(f"{id}.1", "work", done)], None, optional, depends_on)


def next_id(*stories: Story) -> str | None:
    found = specs.next_story(stories)
    return found.id if found else None


def test_stories_come_in_order_and_do_not_wait_for_each_other() -> None:
    assert next_id(story("1"), story("2")) == "1"
    assert next_id(story("1", done=True), story("2")) == "2"
    assert next_id(story("1", done=True), story("2", done=True)) is None


def test_a_story_waits_for_those_it_depends_on() -> None:
    assert next_id(story("1", depends_on=["2"]), story("2")) == "2"
    assert next_id(story("1", depends_on=["2"]), story("2", done=True)) == "1"
    assert next_id(story("1", depends_on=["2", "3"]), story("2", done=True), story("3")) == "3"


def test_optional_stories_come_last() -> None:
    assert next_id(story("1", optional=True), story("2")) == "2"
    assert next_id(story("1", optional=True), story("2", done=True)) == "1"


def test_an_optional_story_that_others_wait_for_is_given() -> None:
    assert next_id(story("1", optional=True), story("2", depends_on=["1"])) == "1"


def test_optional_stories_never_keep_a_change_from_being_complete() -> None:
    assert specs.is_complete([story("1", done=True), story("2", optional=True)])
    assert not specs.is_complete([story("1"), story("2", optional=True, done=True)])
    assert not specs.is_complete([])


def test_a_story_without_tasks_is_never_done_nor_handed_out() -> None:
    empty = Story("1", "Prose", [])
    assert not empty.done
    assert specs.next_story([empty]) is None
    assert not specs.is_complete([story("2", done=True), empty])


def test_a_story_is_done_without_its_optional_tasks() -> None:
    must, may = Task("1.1", "must", True), Task("1.2", "may", False, optional=True)
    assert Story("1", "A", [must, may]).done
    assert not Story("1", "A", [Task("1.1", "must", False), may]).done
    assert not Story("1", "A", [may]).done  # if all are optional, the story consists of them


def test_what_is_put_aside_is_not_handed_out() -> None:
    blocked = Story("1", "A", [Task("1.1", "x", False)], put_aside="blocked")
    assert specs.next_story([blocked, story("2")]) is not blocked
    assert specs.next_story([blocked]) is None
    assert not specs.is_complete([blocked, story("2", done=True)])


def test_optional_last_and_complete_without_them_by_command(ralph: Ralph) -> None:
    ralph.openspec("## 1. Extra (optional)\n- [ ] 1.1 gild\n\n## 2. Must\n- [ ] 2.1 build\n").begin()
    assert ralph.agent("status").json["story"]["id"] == "2"
    ralph.agent("task", "done", "2.1")
    status = ralph.agent("status").json
    assert status["change_complete"] is True
    assert status["change"] == {"stories_done": 1, "stories_total": 2}
    assert ralph.agent("session", "next-story").json["story_id"] == "1"
    ralph.agent("task", "done", "1.1")
    assert ralph.agent("session", "next-story").json == {"complete": True}


@pytest.mark.parametrize(
    ("stories", "message"),
    [
        ([story("1", depends_on=["7"])], r"x\.md: story 1 depends on 7, which does not exist"),
        ([story("1", depends_on=["1"])], r"story 1 depends on itself"),
        ([story("1", depends_on=["2"]), story("2", depends_on=["1"])], r"1, 2 depend on each other"),
        (
            [story("1", depends_on=["3"]), story("2", depends_on=["1"]), story("3", depends_on=["2"]), story("4")],
            r"stories 1, 2, 3 depend",
        ),
        ([story("1"), story("1")], r"task id '1\.1' is used twice"),
        ([Story("1", "a", []), Story("1", "b", [])], r"story id '1' is used twice"),
    ],
)
def test_what_would_stall_or_confuse_a_run_is_refused(stories: list[Story], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        specs.check(stories, "x.md")


def test_a_story_behind_a_circle_is_not_blamed_alone() -> None:
    ring = [story("1", depends_on=["2"]), story("2", depends_on=["1"]), story("3", depends_on=["1"])]
    with pytest.raises(SpecError, match="depend on each other"):
        specs.check(ring, "x.md")


def test_dependencies_that_meet_again_are_no_circle() -> None:
    specs.check(
        [story("1"), story("2", depends_on=["1"]), story("3", depends_on=["1"]), story("4", depends_on=["2", "3"])], ""
    )


@pytest.mark.parametrize(
    ("title", "above", "optional"),
    [
        ("Polish (optional)", (), True),
        ("Polish (OPTIONAL)", (), True),
        ("Polish", ("Optional",), True),
        ("Polish", ("Tasks", "Future"), True),
        ("Polish", ("Nice to Have",), True),
        ("Polish", ("nice-to-have:",), True),
        ("Polish", ("Future Work",), True),
        ("Optional", (), True),
        ("4. Nice to Have", (), True),
        ("Polish", ("Tasks",), False),
        ("Optional chaining in the parser", (), False),
        ("Futures and promises", (), False),
        ("Parse", ("Optional arguments",), False),
    ],
)
def test_optional_by_heading_or_by_section(title: str, above: tuple[str, ...], optional: bool) -> None:
    assert markdown.is_optional(title, above) is optional


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Build (depends on 1, 2)", ("1", "2")),
        ("Build (Depends on 1)", ("1",)),
        ("Build (depends on: 1 and 2.)", ("1", "2")),
        ("Build (depends on stories 1; #3) now", ("1", "3")),
        ("Build (depends on 3.1)", ("3.1",)),
        ("Build (depends on Clean up)", ("clean-up",)),
        ("Build (depends on the weather)", ()),
        ("Build depends on 1", ()),
        ("Build", ()),
        ("İlk İş (depends on 1)", ("1",)),  # letters whose lower case is longer must not shift the text
    ],
)
def test_dependencies_named_in_a_heading(ralph: Ralph, title: str, expected: tuple[str, ...]) -> None:
    others = "".join(
        f"## {head}\n- [ ] {n}.7 x\n" for n, head in enumerate(["1. A", "2. B", "3. C", "3.1 D", "Clean up"])
    )
    ralph.openspec(f"{others}## 9. {title}\n- [ ] 9.1 x\n")
    by_id = {story.id: story.depends_on for story in open_spec(ralph, "add-login").stories()}
    assert by_id["9"] == expected
