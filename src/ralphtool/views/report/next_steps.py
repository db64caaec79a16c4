"""The next steps in a report. Those in the record are as old as the end of the run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal

from ralphtool.core import layout
from ralphtool.core.text import make_printable
from ralphtool.errors import RalphError
from ralphtool.record import advice, change_flag, change_state, run_command
from ralphtool.record.event_parts import NextStep, StoryAfter
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.facts import ReportStep
from ralphtool.workspace import revert
from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphtool.record.decisions import Decisions
    from ralphtool.record.events import RunEnded
    from ralphtool.record.runs import RunSummary
    from ralphtool.views.report.facts import ReportStory

    WorkPlace = Literal["branch", "finished", "unknown"]
_MOST = 20
_NEEDS_BRANCH = ("git log ", "ralphtool finish ", "ralphtool accept ", "ralphtool reject ")


def clean_command(text: str) -> str:
    """With all its spaces: people copy it."""
    return make_printable(text[:2000])


def list_next_steps(
    run: RunSummary,
    end: RunEnded | None,
    stories: Sequence[ReportStory],
    made: Decisions,
    place: WorkPlace,
    *,
    is_changed: bool,
) -> Iterator[ReportStep]:
    """`is_changed` says whether the stories have changed since the run."""
    recorded = end.next[:_MOST] if end else ()
    steps = _list_new_steps(run, recorded, stories, made) if is_changed else recorded
    old = () if place == "branch" else _NEEDS_BRANCH
    told = [one for one in steps if not (made.newer or (one.run or "").startswith(old))]
    yield from place_answers(told, {story.id: answer for story, answer in _list_answers(stories, recorded)})
    if recorded and place == "finished":
        kept = formatting.clean_line(layout.FINISHED + run.change, 300)
        yield ReportStep("review the finished work", f"git log -p {shlex.quote(kept)}")
    if made.newer:
        yield ReportStep("see the newest run of this change", f"ralphtool report {run.change}")
    else:
        yield from _list_continuations(run, has_others=bool(steps))


def _list_continuations(run: RunSummary, *, has_others: bool) -> Iterator[ReportStep]:
    change = f" {run.change}" if run.change else ""
    if run.state == "running":
        yield ReportStep("watch it", f"ralphtool watch {shlex.quote(formatting.clean_line(run.id, 200))}")
    elif run.state == "paused":
        yield ReportStep("resume it", f"ralphtool resume{change}")
    elif run.purpose == "plan" and run.state != "done":
        yield ReportStep("draft it again", 'ralphtool plan "…"')
    elif run.state == "died" or (not has_others and run.state not in ("done", "unproven")):
        yield ReportStep("continue where it stopped", clean_command(run_command.build_resuming(run)))


def place_answers(steps: Sequence[NextStep], answers: Mapping[str, ReportStep]) -> Iterator[ReportStep]:
    """The steps, with each answer where the run had advised it: steps such as "or try it again" follow it."""
    asked = [next((id for id in answers if _is_answer(one, id)), None) for one in steps]
    yield from (answer for id, answer in answers.items() if id not in asked)
    for one, id in zip(steps, asked, strict=True):
        if id is not None:
            yield answers[id]
        elif not (one.run or "").startswith("ralphtool answer "):
            yield ReportStep(formatting.clean_line(one.say), clean_command(one.run or ""))


def _is_answer(step: NextStep, story: str) -> bool:
    return f"{step.run or ''} ".startswith(f"ralphtool answer {story} ")


def _list_answers(
    stories: Sequence[ReportStory], recorded: Sequence[NextStep]
) -> Iterator[tuple[ReportStory, ReportStep]]:
    """Replaces the run's own advice: people may have answered since, and earlier runs may have asked."""
    for story in stories:
        asked = story.question
        if story.state == "waiting" and asked and asked.is_open and not asked.answer:
            said = [one.say for one in recorded if _is_answer(one, story.id)]
            say = formatting.clean_line(said[0]) if said else f"answer story {story.id}'s question"
            yield story, ReportStep(say, wording.build_answer_command(story))


def find_place(run: RunSummary) -> WorkPlace:
    """Where the work of the run's change is: on its branch, unless `ralphtool finish` or the user has ended that."""
    try:
        repository = Repository.find(run.root) if run.branch else None
        if repository is None or repository.resolve(layout.BRANCHES + run.change):
            return "branch"  # without git, it is as the record says
        return "finished" if repository.resolve(layout.FINISHED + run.change) else "unknown"
    except (RalphError, OSError):
        return "branch"  # then only what the record says


# --- after decisions --------------------------------------------------------------------------------


def _list_new_steps(
    run: RunSummary, recorded: Sequence[NextStep], stories: Sequence[ReportStory], made: Decisions
) -> list[NextStep]:
    """What the run would advise if it ended now."""
    rows = [_build_row(one) for one in stories]
    flag = change_flag.build(run.change, run.root)
    steps = list(advice.advise_on_stories(run.change, rows, flag, made.stories, has_branch=bool(run.branch)))
    if all(row.state == "done" or row.optional for row in rows) or not advice.can_continue(rows, {}):
        return [*steps, *_advise_on_branch(run)]
    if run.state == "died":
        return steps  # `_list_continuations` adds how to continue
    told = next((one for one in recorded if (one.run or "").startswith("ralphtool run ")), None)
    return [*steps, told or NextStep(say="continue", run=run_command.build_resuming(run))]


def _build_row(story: ReportStory) -> StoryAfter:
    counted = [one.entry for one in story.attempts if one.counts and one.entry]
    state = "open" if story.state == "failed" and not counted else story.state  # it has nothing to explain
    entry = counted[-1] if counted else None
    return StoryAfter(id=story.id, state=state, optional=story.optional, proof=story.proof, entry=entry)


def _advise_on_branch(run: RunSummary) -> Iterator[NextStep]:
    try:
        repository = Repository.find(run.root)
        if repository is not None and repository.resolve(layout.BRANCHES + run.change):
            place = SpecPlace(repository, run.root, run.change, change_state.load(run.root, run.change).spec)
            yield from advice.advise_on_branch(repository, run.change, revert.list_conflicts(place))
    except (RalphError, OSError):
        return  # then there is nothing to review
