"""What people have decided about the stories of a run since it ended. Its record is closed by then, so it lacks that.

`accept` and `reject` take effect at once: the change state has them. `retry`, `skip` and guidance wait for the next run
as files; once that has begun, they are in its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.errors import RalphError
from ralphtool.record import change_state, runs, steering
from ralphtool.record.change_state import StoryState
from ralphtool.record.events import Steered, decode
from ralphtool.record.lines import LineReader, read_type
from ralphtool.record.view_parts import StoryView, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.record.run_view import RunView
    from ralphtool.record.runs import RunSummary

_TOLD = ("guide", "retry", "skip", "accept", "reject")  # the others are about a run in progress
_MOST = 50  # decisions, and later runs that are searched for them


class Decisions(Struct, frozen=True):
    """What was decided since a run ended."""

    newer: str = ""  # the newest run of the change, if it is a later one
    told: tuple[Steered, ...] = ()  # in order
    waiting: tuple[Steered, ...] = ()  # those of them that the next run will apply
    stories: dict[str, StoryState] = {}  # the current state of the stories
    after: float = 0.0  # when the run ended


NOTHING = Decisions()


def read_decisions(run: RunSummary) -> Decisions:
    """Nothing for a run in progress, and as much as can be read."""
    if run.state in ("running", "paused") or not run.change:
        return NOTHING
    try:
        later = list(_list_later_runs(run))
        waiting = tuple(_list_waiting(run, later[0].last if later else run.last))
        recorded = [event for one in reversed(later[:_MOST]) for event in _list_recorded(one)]
        stories = change_state.load(run.root, run.change).stories
    except (RalphError, OSError):
        return NOTHING  # then only what the record says
    newer = later[0].id if later else ""
    return Decisions(newer, (*recorded, *waiting)[-_MOST:], waiting, stories, parse_time(run.last) or 0.0)


def _list_later_runs(run: RunSummary) -> Iterator[RunSummary]:
    """The newest first."""
    for id in runs.list_ids(run.root):
        if id == run.id:
            return
        if runs.parse_change(id) == run.change[:90] and (one := runs.read_summary(run.root, id)).change == run.change:
            yield one


def _list_waiting(run: RunSummary, since: str) -> Iterator[Steered]:
    """The commands that no run has recorded."""
    after = parse_time(since) or 0.0
    for one in steering.list_pending(run.root, run.change):
        if one.action in _TOLD and (parse_time(one.at) or 0.0) > after:
            yield Steered(at=one.at, action=one.action, story=one.story, text=one.text, by=one.by, via=one.via)


def _list_recorded(run: RunSummary) -> Iterator[Steered]:
    for line in LineReader(run.path).new_without_prose():
        event = decode(line) if read_type(line) == b"steered" else None
        if isinstance(event, Steered) and event.action in _TOLD:
            yield event


# --- the effect -------------------------------------------------------------------------------------


def apply_decisions(view: RunView, made: Decisions) -> bool:
    """Changes the stories of a closed view to what they are since; returns whether that changed any."""
    before = [(one.state, one.proof) for one in view.stories.values()]
    for id, state in made.stories.items():
        if story := view.stories.get(id):
            _update_story(story, state, made.after)
    for event in made.waiting:
        if story := view.stories.get(event.story or ""):
            story.steer(event.action, event.text)
    return before != [(one.state, one.proof) for one in view.stories.values()]


def _update_story(story: StoryView, state: StoryState, after: float) -> None:
    if state.proof and state.proof.state == "accepted":
        if (parse_time(state.proof.at) or 0.0) > after:
            story.accept(state.proof)
    elif story.state == "done" and (why := _explain_reopening(state)):
        story.reopen(why)


def _explain_reopening(state: StoryState) -> str:
    """Why a story that was done is open again; empty if it is not."""
    return state.decision.reason if state.decision and change_state.is_rejected(state) else ""


def describe_since_attempt(root: str, change: str, entry: str) -> list[str]:
    """What was decided about a story since this attempt at it, if it is the last one."""
    current = change_state.load(root, change)
    id, state = next(((id, one) for id, one in current.stories.items() if one.entry == entry), ("", StoryState()))
    told = [f"{why}; story {id} is open again" for why in filter(None, [_explain_reopening(state)])]
    story = StoryView(id=id)
    for one in steering.list_pending(root, change, current.heeded):
        if one.story == id and one.action in ("skip", "retry"):
            story.steer(one.action, one.text)
    return [*told, *filter(None, [story.why])]
