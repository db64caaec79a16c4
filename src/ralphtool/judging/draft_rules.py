"""Whether a drafted change can be run: its stories are small, have boxes, and can be proven. Values in, values out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.specs import Story

MOST_TASKS = 8  # that one iteration can do
MOST_STORIES = 20
_MOST_WORDS = 500  # in a story with its tasks
_MOST_PLACES = 5  # folders or files that one task may name before it is more than one task
# What can show that a task is done. The words are often the same in other human languages; code in backticks counts.
_PROOF = re.compile(
    r"`[^`]+`|\btest|\b(assert|reject|accept|return|print|fail|exit|verif|refus|respond|show)\w*|"
    r"\b(checks?|checked|pass(es)?|prov(e|es|en|ed)|proofs?|answers?|given|when|then|scenarios?|benchmarks?)\b",
    re.IGNORECASE,
)
# Words that leave open when a task is done.
_VAGUE = re.compile(
    r"\b(etc\.?|and so on|as needed|as necessary|if (needed|necessary)|where appropriate|tbd|to be decided|"
    r"properly|nicely|user[- ]friendly|clean ?up|improve|polish|various|misc\w*|some tests|more tests)(?=\W|$)",
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`]+`")


class DraftProblem(Struct, frozen=True, kw_only=True):
    """Something in a draft that would cost attempts; `story` is empty if it concerns the whole change."""

    rule: str
    text: str  # what is wrong, and what to do
    story: str = ""


def find_problems(stories: Sequence[Story], scenarios: int | None) -> list[DraftProblem]:
    """The problems of a draft's stories. `scenarios` is the number of scenarios; None if the format has none."""
    return [*_check_change(stories, scenarios), *(problem for story in stories for problem in _check_story(story))]


def _check_change(stories: Sequence[Story], scenarios: int | None) -> Iterator[DraftProblem]:
    if not stories:
        yield DraftProblem(
            rule="no-stories", text="there is no story with a box: write a heading with boxes for each story"
        )
        return
    if len(stories) > MOST_STORIES:
        told = f"{len(stories)} stories are too many for one change: keep at most {MOST_STORIES} that belong together"
        yield DraftProblem(rule="too-many", text=told)
    if all(story.optional for story in stories):
        told = "every story is optional, so nothing is required: mark only what can be left out"
        yield DraftProblem(rule="all-optional", text=told)
    if scenarios == 0:
        told = "no scenario describes how the finished change behaves: write at least one, with given, when and then"
        yield DraftProblem(rule="no-scenarios", text=told)
    yield from _check_titles(stories)
    yield from _check_needed(stories)


def _check_titles(stories: Sequence[Story]) -> Iterator[DraftProblem]:
    seen: dict[str, str] = {}
    for story in stories:
        other = seen.setdefault(" ".join(story.title.casefold().split()), story.id)
        if other != story.id:
            told = f"it has the same title as story {other}: give each story its own title"
            yield DraftProblem(rule="same-title", story=story.id, text=told)


def _check_needed(stories: Sequence[Story]) -> Iterator[DraftProblem]:
    optional = {story.id for story in stories if story.optional}
    for story in stories:
        if not story.optional and (needs := [id for id in story.depends_on if id in optional]):
            told = f"it depends on {', '.join(needs)}, which is optional: make both optional, or neither"
            yield DraftProblem(rule="needs-optional", story=story.id, text=told)


def _check_story(story: Story) -> Iterator[DraftProblem]:
    if not story.tasks:
        yield DraftProblem(
            rule="no-boxes", story=story.id, text=("it has no box: add the tasks that show when it is done")
        )
        return
    if ticked := [task.id for task in story.tasks if task.done]:
        told = f"{', '.join(ticked)} is already ticked, but nothing is done yet: leave every box open"
        yield DraftProblem(rule="ticked", story=story.id, text=told)
    yield from _check_size(story)
    yield from _check_proof(story)


def _check_size(story: Story) -> Iterator[DraftProblem]:
    words = sum(len(text.split()) for text in (story.title, story.description or "", *_list_texts(story)))
    if len(story.tasks) > MOST_TASKS:
        told = f"{len(story.tasks)} tasks are too many for one iteration: split it into stories of at most {MOST_TASKS}"
        yield DraftProblem(rule="too-big", story=story.id, text=told)
    elif words > _MOST_WORDS:
        told = f"{words} words are too many for one iteration: split it into stories of at most {_MOST_WORDS}"
        yield DraftProblem(rule="too-big", story=story.id, text=told)
    for task in story.tasks:
        if len(set(_CODE.findall(task.text))) > _MOST_PLACES:
            told = f"the task {task.id} names {len(set(_CODE.findall(task.text)))} things: write one task for each"
            yield DraftProblem(rule="too-big", story=story.id, text=told)


def _check_proof(story: Story) -> Iterator[DraftProblem]:
    if not any(_PROOF.search(text) for text in (*_list_texts(story), story.description or "")):
        told = "nothing in it can be proven: name a test or a command that fails before the work and passes after it"
        yield DraftProblem(rule="no-proof", story=story.id, text=told)
    for task in story.tasks:
        vague = _VAGUE.search(task.text)
        if not task.text.strip():
            told = f"the task {task.id} is empty: say what is true when it is done"
            yield DraftProblem(rule="no-proof", story=story.id, text=told)
        elif vague and not _CODE.search(task.text):
            told = f'the task {task.id} says "{vague[0]}", which no test can check: say exactly what is true afterwards'
            yield DraftProblem(rule="no-proof", story=story.id, text=told)


def _list_texts(story: Story) -> list[str]:
    return [task.text for task in story.tasks]
