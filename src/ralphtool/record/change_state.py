"""How far a change is, beyond what spec, branch and history say: `.ralph/standing/<change>.json`.

It also makes an iteration count exactly once. The outcome is written here first, in one step; then it is carried out
(refs, question, and last the entry in the history). If the next run finds an outcome whose entry is missing from the
history, it carries it out again: every step may be repeated.
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
from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.receipt import Receipt
from ralphtool.judging.recovery import RecoveryDecision
from ralphtool.record import steering

if TYPE_CHECKING:
    from ralphtool.record.steering import SteeringCommand


class Question(Struct, frozen=True):
    """A question for a human: its file, and the parts that are shown in a list."""

    name: str
    text: str
    title: str = ""  # of the story
    missing: str = ""
    why: str = ""
    asked: str = ""  # when


class Outcome(Struct, frozen=True, kw_only=True):
    """The whole result of an iteration, ready to be carried out."""

    story: str
    entry: Entry
    learnings: tuple[Learning, ...] = ()
    showing: dict[str, str | None] = {}  # the learnings in its prompt: digests of their texts, with their ids
    commit: str | None = None
    tree: str | None = None  # of the checkpoint, if it is one
    question: Question | None = None
    proof: Receipt | None = None


class ReturnedWork(Struct, kw_only=True):
    """Work that conflicts with what other stories have done meanwhile."""

    text: str  # what its agent must know
    why: str = ""  # the same in one line, with the stories and files
    commit: str  # both in one tree
    base: str  # the checkpoint that it is based on
    in_conflict: list[str] = []  # files with markers
    own: list[str] = []  # files that the story had changed
    others: list[str] = []  # files that the other stories changed


class StoryState(Struct, kw_only=True):
    """The state of a story after its last iteration."""

    attempts: int = 0  # used since the beginning, or since a human answered
    in_chunks: bool = False
    kept: str | None = None  # the commit of a partial attempt to continue from
    cut_off: str | None = None  # the ref of work that a limit of the agent cut off, to continue from
    is_tried: bool = False  # an agent has started it: its ticks are no longer the user's
    completed: list[str] = []  # its tasks, for formats without boxes
    decision: RecoveryDecision | None = None
    entry: str | None = None
    status: str | None = None
    question: Question | None = None  # open, for a human
    guidance: str = ""  # for the next attempt
    asked: str = ""  # the question of the last attempt's agent
    error: str = ""  # the last output of the gates that the last attempt left red
    answer: str = ""  # a human's answer; valid for all later attempts
    told: list[str] = []  # a human's guidance; valid just as long
    proof: Receipt | None = None  # the evidence for its "done"
    since: int = 0  # the first iteration in the history that is about this story, if another one had its id before
    sent_back: ReturnedWork | None = None  # for its next attempt
    returns: int = 0  # how often it was sent back
    met: str = ""  # what it conflicted with, if resolving that has failed
    is_outdated: bool = False  # the user reworded it while an agent did it
    guarded: GuardedTests | None = None  # tests that it changed: as they were, they guard the later stories
    accused: list[str] = []  # tests whose old versions failed on the code of the last attempt

    def close_return(self) -> None:
        """The work that was sent back has been tried, successfully or not. `met` is kept until the story is done."""
        self.met = self.sent_back.why if self.sent_back else self.met
        self.cut_off = self.sent_back = None


class ChangeState(Struct, kw_only=True):
    spec: str = ""  # the format or file of the change
    stories: dict[str, StoryState] = {}
    outcome: Outcome | None = None
    baseline: Baseline | None = None
    paused: bool = False
    told: list[str] = []  # a human's guidance for all stories
    plan: str = ""  # the commit of the user's plan when an edit was last applied
    guards: list[GuardedTests] = []  # of done stories that are no longer in the plan
    finished: dict[str, Receipt] = {}  # of stories whose work `ralphtool finish` merged: their branch is gone
    heeded: list[str] = []  # ids of applied steering commands, until their files are removed

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


# --- steering and answers ---------------------------------------------------------------------------


def apply(current: ChangeState, said: SteeringCommand) -> None:
    """Puts a steering command into the change state. Actions that only the run can take are not taken here."""
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
    """Reopens a story that was done; `told` is added only once."""
    reset_attempts(state)
    state.kept, state.cut_off, state.status, state.proof, state.guarded = None, None, None, None, None
    state.completed, state.accused, state.guidance, state.error = [], [], "", ""
    state.decision = RecoveryDecision("retry", "", reason)
    state.told = [*[one for one in state.told if one != told], told][-steering.MAX_GUIDANCE :]


def is_rejected(state: StoryState) -> bool:
    """Whether a story that was done is open again, because a person rejected it. Only that leaves no status."""
    is_open = state.entry is not None and state.status is None and state.proof is None
    return is_open and state.decision is not None and state.decision.action == "retry"


def finish_accepted(state: StoryState, entry: str, tasks: list[str], proof: Receipt) -> None:
    """A person accepted an attempt: the story is done."""
    state.status, state.entry, state.proof, state.completed = "completed", entry, proof, tasks
    state.decision = RecoveryDecision("next", "", "you accepted it")
    state.attempts = max(state.attempts - 1, 0)  # only the unsuccessful ones count, and one of them is accepted
    state.kept, state.cut_off, state.guarded, state.is_tried, state.in_chunks = None, None, None, True, False
    state.guidance, state.error, state.answer, state.told, state.accused = "", "", "", [], []


def reset_attempts(state: StoryState) -> None:
    """Grants fresh attempts at a story; the guidance from the last one is kept."""
    state.question, state.attempts, state.in_chunks, state.asked = None, 0, False, ""
