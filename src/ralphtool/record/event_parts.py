"""The parts of a run's events: stories, limits, totals, and the maximum of numbers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ralphtool.judging.receipt import ProofRun

_MAX_NUMBER = 10**15  # a larger number is not a real count
Count = Annotated[int, Meta(ge=0, le=_MAX_NUMBER)]
Number = Annotated[float, Meta(ge=0, le=_MAX_NUMBER)]
Whole = Annotated[int, Meta(ge=-_MAX_NUMBER, le=_MAX_NUMBER)]


class StoryBefore(Struct, frozen=True, kw_only=True):
    """A story when a run starts."""

    id: str = ""
    """its id"""
    title: str = ""
    """its title"""
    tasks_total: Count = 0
    """the number of its tasks"""
    tasks_done: Count = 0
    """the number of ticked ones"""
    done: bool = False
    """whether all of them are ticked"""
    state: str = ""
    """`done`, `waiting`, `skipped`, `open`; empty in old records"""
    optional: bool = False
    """whether the run may end without it"""
    depends_on: tuple[str, ...] = ()
    """the ids of the stories that must be done first"""
    proof: str = ""
    """if an earlier run completed it: `proven`, `held`, `unproven` or `accepted`; else empty"""


class RunLimits(Struct, frozen=True, kw_only=True):
    """The limits of a run, as in the settings; null if the record does not say."""

    attempts: Count | None = None
    """maximum attempts at a story"""
    max_iterations: Count | None = None
    """maximum iterations of the run"""
    max_time: Number | None = None
    """time of the run"""
    timeout: Number | None = None
    """time of an iteration"""
    silence: Number | None = None
    """time without output from the agent"""
    max_tokens: Count | None = None
    """tokens of the run"""
    max_cost: Number | None = None
    """dollars of the run"""
    story_tokens: Count | None = None
    """tokens of a story"""
    story_cost: Number | None = None
    """dollars of a story"""


class RunGates(Struct, frozen=True, kw_only=True):
    """The gates of a run."""

    commands: tuple[str, ...] = ()
    """the commands that verify a story"""


class RecordedFinding(Struct, frozen=True, kw_only=True):
    """Something suspicious or dishonest in a diff."""

    kind: str = ""
    """its kind"""
    path: str = ""
    """the file"""
    detail: str = ""
    """a description, in one line"""


class Durations(Struct, frozen=True, kw_only=True):
    """How long the parts of an iteration took, in seconds."""

    agent: Number = 0.0
    """the agent"""
    gates: Number = 0.0
    """the gates"""


class StoryAfter(Struct, frozen=True, kw_only=True):
    """A story when a run ends, and what the run spent on it."""

    id: str = ""
    """its id"""
    title: str = ""
    """its title"""
    optional: bool = False
    """whether the run may end without it"""
    state: str = ""
    """`done`, `waiting`, `failed`, `skipped`, `open`"""
    attempts: Count = 0
    """the number of attempts used"""
    why: str = ""
    """why it is not done"""
    failure: str = ""
    """what went wrong in its last attempt"""
    entry: str | None = None
    """the id of its last entry in progress.json"""
    question: str | None = None
    """the file with its question"""
    commit: str | None = None
    """its checkpoint"""
    proof: str = ""
    """if it is done: `proven`, `held`, `unproven`, `accepted`, or `ticked` if you ticked it; empty in old records"""
    proof_why: str = ""
    """why it is not proven"""
    weaker_tests: str = ""
    """the tests that still pass but were removed, skipped or weakened, and the old tests that it was allowed to break,
    in words"""
    seconds: Number = 0.0
    """agent and gates together"""
    agent_seconds: Number = 0.0
    """the agent"""
    gate_seconds: Number = 0.0
    """the gates"""
    input_tokens: Count = 0
    """input tokens"""
    output_tokens: Count = 0
    """output tokens"""
    cost: Number = 0.0
    """dollars"""


class Totals(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run spent. Unknown fields are left out."""

    seconds: Number | None = None
    """the whole run"""
    agent_seconds: Number | None = None
    """the agents"""
    gate_seconds: Number | None = None
    """the gates"""
    input_tokens: Count | None = None
    """input tokens"""
    output_tokens: Count | None = None
    """output tokens"""
    cost: Number | None = None
    """dollars"""
    iterations: Count | None = None
    """the number of iterations"""


class LastCheck(Struct, frozen=True, kw_only=True):
    """The gates on the branch's tip, at the end of a run."""

    ok: bool = False
    """whether all of them are green"""
    commit: str | None = None
    """the tip"""
    runs: tuple[ProofRun, ...] = ()
    """the commands that were run"""


class NextStep(Struct, frozen=True, kw_only=True):
    """Something that you can do after a run."""

    say: str = ""
    """what to do"""
    run: str | None = None
    """the command"""
