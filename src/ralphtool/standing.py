"""How far a change is, beyond what spec, branch and history say: `.ralph/standing/<change>.json`.

It is also what makes an iteration count exactly once. The outcome is written here first, in one step; then it is
carried out (refs, question, and the entry of the history as the last thing). Whoever starts next finds an outcome whose
entry is not in the history yet, and carries it out again: every step may be done twice.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import files, project
from ralphtool.errors import CorruptState
from ralphtool.history.records import Entry, Learning
from ralphtool.recovery import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping


class Question(Struct, frozen=True):
    """What a human is asked: the file that it becomes."""

    name: str
    text: str


class Outcome(Struct, frozen=True, kw_only=True):
    """All that an iteration came to, ready to be carried out."""

    story: str
    entry: Entry
    learnings: tuple[Learning, ...] = ()
    showing: dict[str, str | None] = {}  # what was learnt and was in its prompt: digests of the words, and ids
    commit: str | None = None
    tree: str | None = None  # of the checkpoint, if it is one
    question: Question | None = None


class StoryStanding(Struct, kw_only=True):
    """Where a story stands after its last iteration."""

    attempts: int = 0  # used up since the beginning, or since a human answered
    in_chunks: bool = False
    kept: str | None = None  # the commit of a partial attempt to go on from
    cut_off: str | None = None  # the ref of what a limit of the agent's cut off, to go on from
    is_tried: bool = False  # an agent has begun with it: its ticks are no longer the user's
    completed: list[str] = []  # its tasks, for formats without boxes
    decision: Decision | None = None
    entry: str | None = None
    status: str | None = None
    question: Question | None = None  # that waits for a human
    guidance: str = ""  # for the next attempt
    error: str = ""  # what the gates printed last that the last attempt left red
    answer: str = ""  # what a human told; it holds for every attempt that follows


class Baseline(Struct, frozen=True):
    """Which gates were red before a story began: the failing tests of each; None stands for the whole command."""

    key: str
    red: dict[str, list[str] | None] = {}


class Standing(Struct, kw_only=True):
    stories: dict[str, StoryStanding] = {}
    outcome: Outcome | None = None
    baseline: Baseline | None = None

    def story(self, id: str) -> StoryStanding:
        return self.stories.setdefault(id, StoryStanding())


def path_of(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return os.path.join(root, ".ralph", "standing", f"{change}.json")


def load(root: str, change: str) -> Standing:
    path = path_of(root, change)
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return Standing()
    try:
        return msgspec.json.decode(data, type=Standing)
    except msgspec.DecodeError as error:
        raise CorruptState(
            f"{path} is damaged ({error}): remove it; branch and history tell what is done, and only the count "
            "of attempts begins anew"
        ) from None


def save(root: str, change: str, standing: Standing) -> None:
    path = path_of(root, change)
    files.own_dir(os.path.dirname(path))
    files.replace(path, msgspec.json.encode(standing))


# --- questions for a human --------------------------------------------------------------------------

_ANSWER = "## Answer"
_HINT = (
    "<!-- Write below this line what the agent should know or do, and save: the story is taken up with your answer and "
    "fresh attempts, by a run that goes on, or by the next one. -->"
)


def question(prd_id: str, fields: Mapping[str, str]) -> Question:
    """One file that a person can read, and answer in place."""
    parts = [f"# {prd_id}: a question for you\n\nprd_id: {prd_id}\n"]
    parts += [f"## {title}\n\n{text.strip()}\n" for title, text in fields.items() if text.strip()]
    parts.append(f"{_ANSWER}\n\n{_HINT}\n")
    return Question(f"{prd_id[-200:]}.md", "\n".join(parts))


def path_of_question(root: str, question: Question) -> str:
    return os.path.join(root, ".ralph", "questions", question.name)


def answer(path: str) -> str | None:
    """What a person answered; None while the question waits."""
    try:
        text = files.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None  # a `git clean` is no answer
    before, hint, told = text.replace("\r\n", "\n").rpartition(_HINT)
    if not hint:  # they have removed it
        return told.rpartition(_ANSWER)[2].strip() or None
    return f"{before.rpartition(_ANSWER)[2].strip()}\n{told.strip()}".strip() or None


def ask(root: str, question: Question) -> None:
    """Writes the question, unless it is there already and somebody may be answering it."""
    path = path_of_question(root, question)
    files.own_dir(os.path.dirname(path))
    if os.path.lexists(path):
        asked = question.text.partition(_ANSWER)[0].encode("utf-8", "replace")
        if files.read(path).replace(b"\r\n", b"\n").startswith(asked):
            return
        put_away(path)  # an earlier one, which was answered
    files.create(path, question.text.encode("utf-8", "replace"), 0o644)


def put_away(path: str) -> None:
    """Keeps an answered question among the answered ones."""
    if not os.path.lexists(path):
        return
    folder, name = os.path.split(path)
    answered = os.path.join(folder, "answered")
    files.own_dir(answered)
    number = 1
    while os.path.lexists(place := os.path.join(answered, f"{name.removesuffix('.md')}-{number}.md")):
        number += 1
    os.rename(path, place)
    files.sync_folder(place)
