"""The result of a command that ran a change, as one object for programs: `ralphtool run --format json`.

It is built from the facts of a report, so only from the record; what the record can't contain (the exit code, an error
before the record existed, the requested files) is passed in. docs/ci.md is generated from the docstrings of the fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core.amounts import format_utc
from ralphtool.judging.proof_words import describe_proof

if TYPE_CHECKING:
    from ralphtool.views.report.facts import Facts, ReportStory

VERSION = 1  # of the object; adding fields does not change it, only a change of a field's meaning does


class FinalStory(Struct, frozen=True, kw_only=True):
    """A story at the end of the run."""

    id: str
    """its id"""
    title: str
    """its title"""
    state: str
    """`done`, `waiting` (it has a question for you), `failed`, `skipped`, `open`"""
    optional: bool
    """whether the run may end without it"""
    proof: str | None
    """if it is done: `proven`, `held`, `unproven`, `accepted` or `ticked`; else null"""
    why: str | None
    """why it is not done, or not proven"""
    attempts: int
    """the number of counted attempts in this run"""
    entry: str | None
    """its last attempt, for `ralphtool explain` and `ralphtool diff`"""
    commit: str | None
    """its commit on the branch"""
    question: str | None
    """if it needs your answer: the file of its question, relative to the project"""
    seconds: float
    """agent and gates together"""
    input_tokens: int | None
    """tokens read; null if the agent reported none"""
    output_tokens: int | None
    """tokens written; null if the agent reported none"""
    cost: float | None
    """dollars; null if the agent reported none"""


class FinalCounts(Struct, frozen=True, kw_only=True):
    """The number of stories of each kind."""

    stories: int = 0
    """all"""
    done: int = 0
    """done, proven or not"""
    proven: int = 0
    """of these, proven by their own tests"""
    held: int = 0
    """held by the existing tests"""
    accepted: int = 0
    """accepted by you"""
    ticked: int = 0
    """ticked by you before the first run"""
    unproven: int = 0
    """done, but not proven"""
    waiting: int = 0
    """waiting for your answer"""
    failed: int = 0
    """failed"""
    skipped: int = 0
    """skipped"""
    open: int = 0
    """not started, or not done yet"""


class FinalCheck(Struct, frozen=True, kw_only=True):
    """The gates on the branch's tip, at the end of the run."""

    ok: bool
    """whether all of them are green"""
    commit: str | None
    """the tip"""
    red: str | None
    """the red ones"""


class FinalUse(Struct, frozen=True, kw_only=True):
    """What the agents of the run used, as far as they reported it."""

    input_tokens: int | None = None
    """tokens read; null if no agent reported any"""
    output_tokens: int | None = None
    """tokens written; null if no agent reported any"""
    cost: float | None = None
    """dollars; null if no agent reported any"""


class FinalCommit(Struct, frozen=True, kw_only=True):
    """A commit that the run made."""

    story: str
    """the story that it completes"""
    commit: str
    """its id"""


class FinalStep(Struct, frozen=True, kw_only=True):
    """Something that you can do now."""

    say: str
    """what to do, in words"""
    run: str | None
    """the command"""


class FinalPaths(Struct, frozen=True, kw_only=True):
    """Files of the run; null where there is none."""

    record: str | None = None
    """its events, one JSON object per line: [events.md](events.md)"""
    report: str | None = None
    """the file of `--report`"""
    junit: str | None = None
    """the file of `--junit`"""


class FinalError(Struct, frozen=True, kw_only=True):
    """The error that kept the run from starting, or ended it."""

    code: str
    """the code, as in [agent-commands.md](agent-commands.md); `INTERNAL` for a bug in ralphtool"""
    message: str
    """what happened, and what to do"""


class FinalResult(Struct, frozen=True, kw_only=True):
    """One finished run."""

    version: int = VERSION
    """the version of this object: 1. Fields may be added; if the meaning of a field changes, so does the version"""
    run: str | None = None
    """the id of the run; null if none started"""
    change: str | None = None
    """the change; null if the command failed before it was known"""
    result: str
    """`done`; `unproven` (every story is done, but one is not proven or the last check is red); `unfinished`;
    `interrupted`; `nothing-to-do`; `refused` (no run started, `error` says why); `crashed` (a bug in ralphtool)"""
    exit_code: int
    """the exit code of the command"""
    headline: str | None = None
    """the result in one sentence"""
    reason: str | None = None
    """why the run ended"""
    error: FinalError | None = None
    """the error that kept it from starting, or ended it; else null"""
    stories: tuple[FinalStory, ...] = ()
    """the stories, in the order of the plan"""
    counts: FinalCounts = FinalCounts()
    """the number of stories of each kind"""
    last_check: FinalCheck | None = None
    """the gates on the branch's tip; null if they were not run"""
    began: str | None = None
    """when it started, in UTC"""
    seconds: float = 0.0
    """how long it took"""
    used: FinalUse = FinalUse()
    """what the agents used"""
    branch: str | None = None
    """the branch that has the work; null without git"""
    commits: tuple[FinalCommit, ...] = ()
    """the commits that this run made for stories, the oldest first"""
    next: tuple[FinalStep, ...] = ()
    """what you can do now"""
    paths: FinalPaths = FinalPaths()
    """the files of the run"""


class FinalResults(Struct, frozen=True, kw_only=True):
    """What `run --all --format json` prints: one object for all changes."""

    version: int = VERSION
    """the version of this object: 1"""
    exit_code: int
    """the exit code of the command: the highest of all runs"""
    error: FinalError | None = None
    """the error that kept the command from starting any run; else null"""
    changes: tuple[FinalResult, ...] = ()
    """an object as above for each change, in the order of the runs; a change that could not be read is `refused`"""


def build_result(facts: Facts, exit_code: int, paths: FinalPaths, error: FinalError | None = None) -> FinalResult:
    """For a run that has a record. If the record has no end, the exit code says what cut the run off."""
    return FinalResult(
        run=facts.run,
        change=facts.change,
        result=_choose_result(facts, exit_code),
        exit_code=exit_code,
        headline=facts.verdict,
        reason=facts.reason or None,
        error=error,
        stories=tuple(map(_build_story, facts.stories)),
        counts=count_stories(facts),
        last_check=_build_check(facts),
        began=format_utc(facts.began),
        seconds=round(facts.seconds, 3),
        used=_build_use(facts),
        branch=facts.branch or None,
        commits=tuple(FinalCommit(story=one.story, commit=one.commit) for one in facts.attempts if one.commit),
        next=tuple(FinalStep(say=one.say, run=one.run or None) for one in facts.next),
        paths=paths,
    )


def _choose_result(facts: Facts, exit_code: int) -> str:
    if exit_code == 3:
        return "crashed"
    if facts.state in ("done", "unproven", "unfinished"):
        return facts.state
    return "interrupted" if exit_code == 130 else "unfinished"


def _build_story(story: ReportStory) -> FinalStory:
    used, is_done = story.used, story.state == "done"
    entries = [one.entry for one in story.attempts if one.counts and one.entry]
    return FinalStory(
        id=story.id,
        title=story.title,
        state=story.state,
        optional=story.optional,
        proof=story.proof or None,
        why=(describe_proof(story.proof, story.proof_why) if story.is_unproven else "" if is_done else story.why)
        or None,
        attempts=sum(one.counts for one in story.attempts),
        entry=entries[-1] if entries else None,
        commit=story.commit or None,
        question=(story.question.path or None) if story.question and story.state == "waiting" else None,
        seconds=round(used.seconds, 3),
        input_tokens=used.input_tokens or None,
        output_tokens=used.output_tokens or None,
        cost=round(used.cost, 6) or None,
    )


def count_stories(facts: Facts) -> FinalCounts:
    done = [one.proof for one in facts.list_stories("done")]
    return FinalCounts(
        stories=len(facts.stories),
        done=len(done),
        proven=done.count("proven"),
        held=done.count("held"),
        accepted=done.count("accepted"),
        ticked=done.count("ticked"),
        unproven=done.count("unproven"),
        waiting=len(facts.list_stories("waiting")),
        failed=len(facts.list_stories("failed")),
        skipped=len(facts.list_stories("skipped")),
        open=len(facts.list_stories("open")),
    )


def _build_check(facts: Facts) -> FinalCheck | None:
    tip = facts.tip
    return None if tip is None else FinalCheck(ok=tip.ok, commit=tip.commit or None, red=tip.told or None)


def _build_use(facts: Facts) -> FinalUse:
    used = facts.used
    return FinalUse(
        input_tokens=used.input_tokens or None,
        output_tokens=used.output_tokens or None,
        cost=round(used.cost, 6) or None,
    )
