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

from ralphtool.core import files, layout, project
from ralphtool.errors import CorruptState
from ralphtool.history.records import Entry, Learning
from ralphtool.judging.gates import Baseline
from ralphtool.judging.recovery import Decision
from ralphtool.record import steering

if TYPE_CHECKING:
    from ralphtool.record.steering import Said


class Question(Struct, frozen=True):
    """What a human is asked: the file that it becomes, and what of it is shown in a list."""

    name: str
    text: str
    title: str = ""  # of the story
    missing: str = ""
    why: str = ""
    asked: str = ""  # when


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
    answer: str = ""  # what a human answered; it holds for every attempt that follows
    told: list[str] = []  # what a human told unasked; it holds as long


class Standing(Struct, kw_only=True):
    spec: str = ""  # the format, or the file, that holds the change
    stories: dict[str, StoryStanding] = {}
    outcome: Outcome | None = None
    baseline: Baseline | None = None
    paused: bool = False
    told: list[str] = []  # what a human told for all stories
    heeded: list[str] = []  # ids of what a human said and is carried out, until its file is gone

    def story(self, id: str) -> StoryStanding:
        return self.stories.setdefault(id, StoryStanding())


def path_of(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return layout.change_state(root, change)


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
            f"{path} is damaged ({error}): move it away. Branch and history tell what is done; the count of attempts, "
            "what you told the agents, questions, skips and parts that were kept begin anew"
        ) from None


def save(root: str, change: str, standing: Standing) -> None:
    path = path_of(root, change)
    files.own_dir(os.path.dirname(path))
    files.replace(path, msgspec.json.encode(standing))


# --- what people say --------------------------------------------------------------------------------


def heed(standing: Standing, said: Said) -> None:
    """Makes what a person said a part of where the change stands. What only the run itself can do is not done here."""
    if said.action in ("pause", "resume"):
        standing.paused = said.action == "pause"
    elif said.story is not None:
        _heed_for(standing.story(said.story), said)
    elif said.action == "guide":
        standing.told = [*standing.told, said.text][-steering.MOST_TOLD :]
    elif said.action == "forget":
        standing.told = []
        for state in standing.stories.values():
            state.told = []


def _heed_for(state: StoryStanding, said: Said) -> None:
    match said.action:
        case "forget":
            state.told = []
        case "guide":
            state.told = [*state.told, said.text][-steering.MOST_TOLD :]
        case "skip":
            state.question = None
            state.decision = Decision("skip", "", f"you skipped it{said.text and f': {said.text}'}")
        case "retry":
            begin_anew(state)
            state.decision = Decision("retry", "", "you gave it fresh attempts")
            state.told = [*state.told, *filter(None, [said.text])][-steering.MOST_TOLD :]


def take_answer(state: StoryStanding, told: str) -> None:
    begin_anew(state)
    state.guidance, state.answer = "", told
    state.decision = Decision("manual", "", "you answered: it is taken up with that")


def begin_anew(state: StoryStanding) -> None:
    """Fresh attempts at a story; what the last one taught is still known."""
    state.question, state.attempts, state.in_chunks = None, 0, False
