"""What makes a drafted story unfit for a run: a table, and examples that are fine."""

from __future__ import annotations

import pytest

from ralphtool.judging.draft_rules import MOST_STORIES, MOST_TASKS, find_problems
from ralphtool.specs import Story, Task

GOOD = ("`export.py` writes one line for each row", "A test in `tests/test_export.py` fails without it")


def story(id: str = "1", *texts: str, title: str = "", done: bool = False, **more: object) -> Story:
    tasks = [Task(f"{id}.{number}", text, done) for number, text in enumerate(texts or GOOD, 1)]
    return Story(id, title or f"Story {id}", tasks, **more)  # type: ignore[arg-type]


def test_good_stories_have_no_problem() -> None:
    assert find_problems([story("1"), story("2", depends_on=["1"]), story("3", optional=True)], scenarios=1) == []


def test_a_format_without_scenarios_needs_none() -> None:
    assert find_problems([story()], scenarios=None) == []


BAD = {
    "no stories": ([], 1, [("no-stories", "")]),
    "no boxes": ([Story("1", "Export", [])], 1, [("no-boxes", "1")]),
    "ticked": ([story(done=True)], 1, [("ticked", "1")]),
    "too many tasks": ([story("1", *GOOD * 5)], 1, [("too-big", "1")]),
    "too many words": ([story("1", *GOOD, description="very " * 600)], 1, [("too-big", "1")]),
    "one task for many things": ([story("1", "Test `a`, `b`, `c`, `d`, `e` and `f`")], 1, [("too-big", "1")]),
    "too many stories": ([story(str(id)) for id in range(MOST_STORIES + 1)], 1, [("too-many", "")]),
    "no way to prove it": ([story("1", "Write the code", "Make it fast")], 1, [("no-proof", "1")]),
    "vague": ([story("1", "The export works properly, with tests")], 1, [("no-proof", "1")]),
    "open end": ([story("1", "Test commas, quotes, etc.")], 1, [("no-proof", "1")]),
    "an empty task": ([story("1", *GOOD, "  ")], 1, [("no-proof", "1")]),
    "no scenario": ([story()], 0, [("no-scenarios", "")]),
    "all optional": ([story(optional=True)], 1, [("all-optional", "")]),
    "one title twice": (
        [story("1", title="Write it"), story("2", title="write  IT")],
        1,
        [("same-title", "2")],
    ),
    "it needs what is optional": (
        [story("1", optional=True), story("2", depends_on=["1"])],
        1,
        [("needs-optional", "2")],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_stories_are_told_by_their_rule(case: str) -> None:
    stories, scenarios, expected = BAD[case]
    found = find_problems(stories, scenarios)
    assert [(one.rule, one.story) for one in found] == expected
    assert all(": " in one.text for one in found), "each says what is wrong, and what to do"


PROVABLE = [
    "Der Test test_export.py zeigt es",
    "`npm run check` ist grün",
    "The command exits with 2 for a missing file",
    "When the list is empty, then only the header is written",
    "A wrong date is rejected",
]


@pytest.mark.parametrize("text", PROVABLE)
def test_what_can_be_seen_counts_as_proof(text: str) -> None:
    assert find_problems([story("1", text)], None) == []


def test_a_story_may_have_as_many_tasks_as_fit() -> None:
    assert find_problems([story("1", *[f"A test shows case {number}" for number in range(MOST_TASKS)])], None) == []


def test_the_description_can_have_the_proof() -> None:
    described = Story("1", "Export", [Task("1.1", "Write the exporter", False)], "Proven by `make test`.")
    assert find_problems([described], None) == []


def test_code_makes_a_vague_word_a_name() -> None:
    assert find_problems([story("1", "`cleanup` removes the file, and a test shows it")], None) == []
