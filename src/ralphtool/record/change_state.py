"""How far a change is, beyond what spec, branch and history say: `.ralph/standing/<change>.json`.

It is also what makes an iteration count exactly once. The outcome is written here first, in one step; then it is
carried out (refs, question, and the entry of the history as the last thing). The next run that finds an outcome whose
entry is not in the history yet carries it out again: every step may be done twice.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import typed
from ralphtool.core import files, layout, project
from ralphtool.errors import CorruptState
from ralphtool.history.records import Entry, Learning
from ralphtool.judging.gates import Baseline
from ralphtool.judging.receipt import Receipt
from ralphtool.judging.recovery import RecoveryDecision
from ralphtool.record import steering

if TYPE_CHECKING:
    from ralphtool.record.steering import SteeringCommand


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
    proof: Receipt | None = None


class ReturnedWork(Struct, kw_only=True):
    """Work that does not go together with what others have done meanwhile."""

    text: str  # what its agent has to know
    why: str = ""  # the same in a line, with the stories and the files
    commit: str  # both in one tree
    base: str  # the checkpoint that this is upon
    in_conflict: list[str] = []  # files with markers
    own: list[str] = []  # files that the story had changed
    others: list[str] = []  # files that the others have changed


class StoryState(Struct, kw_only=True):
    """Where a story stands after its last iteration."""

    attempts: int = 0  # used up since the beginning, or since a human answered
    in_chunks: bool = False
    kept: str | None = None  # the commit of a partial attempt to go on from
    cut_off: str | None = None  # the ref of what a limit of the agent's cut off, to go on from
    is_tried: bool = False  # an agent has begun with it: its ticks are no longer the user's
    completed: list[str] = []  # its tasks, for formats without boxes
    decision: RecoveryDecision | None = None
    entry: str | None = None
    status: str | None = None
    question: Question | None = None  # that waits for a human
    guidance: str = ""  # for the next attempt
    asked: str = ""  # what the agent of the last attempt wanted to know
    error: str = ""  # what the gates printed last that the last attempt left red
    answer: str = ""  # what a human answered; it holds for every attempt that follows
    told: list[str] = []  # what a human told unasked; it holds as long
    proof: Receipt | None = None  # what its "done" rests on
    since: int = 0  # the first iteration in the history that is about this story, if it got its id later than others
    sent_back: ReturnedWork | None = None  # for its next attempt
    returns: int = 0  # how often it was sent back for that
    met: str = ""  # what it did not go together with, if trying to resolve that has failed
    accused: list[str] = []  # tests as they were that failed on the code of the last attempt

    def close_return(self) -> None:
        """Work that was sent back was taken up, for good or ill. What it met is worth knowing until it is done."""
        self.met = self.sent_back.why if self.sent_back else self.met
        self.cut_off = self.sent_back = None


class ChangeState(Struct, kw_only=True):
    spec: str = ""  # the format, or the file, that holds the change
    stories: dict[str, StoryState] = {}
    outcome: Outcome | None = None
    baseline: Baseline | None = None
    paused: bool = False
    told: list[str] = []  # what a human told for all stories
    plan: str = ""  # the commit of the plan as its user had it, when an edit of theirs was last taken up
    heeded: list[str] = []  # ids of what a human said and is carried out, until its file is gone

    def story(self, id: str) -> StoryState:
        return self.stories.setdefault(id, StoryState())


def path_of(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return layout.change_state(root, change)


def load(root: str, change: str) -> ChangeState:
    path = path_of(root, change)
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return ChangeState()
    try:
        return typed.decode(data, ChangeState)
    except msgspec.DecodeError as error:
        raise CorruptState(
            f"{path} is damaged ({error}): move it away. What is done is known from the branch and the history; "
            "attempt counts, guidance, questions, skips and partial work are reset"
        ) from None


def save(root: str, change: str, current: ChangeState) -> None:
    path = path_of(root, change)
    files.ensure_folder(os.path.dirname(path))
    files.replace(path, msgspec.json.encode(current))


# --- what people say --------------------------------------------------------------------------------


def apply(current: ChangeState, said: SteeringCommand) -> None:
    """Makes what a person said a part of where the change stands. What only the run itself can do is not done here."""
    if said.action in ("pause", "resume"):
        current.paused = said.action == "pause"
    elif said.story is not None:
        _apply_to_story(current.story(said.story), said)
    elif said.action == "guide":
        current.told = [*current.told, said.text][-steering.MAX_GUIDANCE :]
    elif said.action == "forget":
        current.told = []
        for state in current.stories.values():
            state.told = []


def _apply_to_story(state: StoryState, said: SteeringCommand) -> None:
    match said.action:
        case "forget":
            state.told = []
        case "guide":
            state.told = [*state.told, said.text][-steering.MAX_GUIDANCE :]
        case "skip":
            state.question = None
            state.decision = RecoveryDecision("skip", "", f"you skipped it{said.text and f': {said.text}'}")
        case "retry":
            reset_attempts(state)
            state.decision = RecoveryDecision("retry", "", "you asked to try it again")
            state.told = [*state.told, *filter(None, [said.text])][-steering.MAX_GUIDANCE :]


def apply_answer(state: StoryState, told: str) -> None:
    reset_attempts(state)
    state.guidance, state.answer = "", told
    state.decision = RecoveryDecision("manual", "", "you answered: it continues with your answer")


def begin_anew(state: StoryState, reason: str, told: str) -> None:
    """A story that was done begins anew; what the agent has to know is told once."""
    reset_attempts(state)
    state.kept, state.cut_off, state.status, state.proof = None, None, None, None
    state.completed, state.accused, state.guidance, state.error = [], [], "", ""
    state.decision = RecoveryDecision("retry", "", reason)
    state.told = [*[one for one in state.told if one != told], told][-steering.MAX_GUIDANCE :]


def finish_accepted(state: StoryState, entry: str, tasks: list[str], proof: Receipt) -> None:
    """A person has accepted an attempt: the story is done."""
    state.status, state.entry, state.proof, state.completed = "completed", entry, proof, tasks
    state.decision = RecoveryDecision("next", "", "you accepted it")
    state.kept, state.cut_off, state.is_tried, state.in_chunks = None, None, True, False
    state.guidance, state.error, state.answer, state.told, state.accused = "", "", "", [], []


def reset_attempts(state: StoryState) -> None:
    """Fresh attempts at a story; what the last one taught is still known."""
    state.question, state.attempts, state.in_chunks, state.asked = None, 0, False, ""
