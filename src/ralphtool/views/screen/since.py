"""An ended run with its stories as they are now, as its report has them: the user may have decided about them since, or
rewritten the branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.record import runs
from ralphtool.record.event_parts import NextStep

if TYPE_CHECKING:
    from ralphtool.record.event_parts import StoryAfter
    from ralphtool.record.events import RunEnded
    from ralphtool.record.run_view import RunView
    from ralphtool.record.runs import RunSummary
    from ralphtool.record.view_parts import StoryView
    from ralphtool.views.report.facts import Facts


def update_run(run: RunSummary, recorded: RunView) -> RunView:
    """A copy of the view of an ended run, with its stories, result and next steps as they are now."""
    from ralphtool.views.report import from_record  # other pages don't need it
    from ralphtool.views.report.facts import RunKnowledge

    view = recorded.copy_closed(recorded.now, is_over=True)
    facts = from_record.build_facts(runs.read_summary(run.root, run.id), view, RunKnowledge())
    if view.end:
        view.end = _update_end(view.end, recorded, view, facts)
    return view


def _update_end(end: RunEnded, recorded: RunView, now: RunView, facts: Facts) -> RunEnded:
    rows = tuple(_update_row(one, recorded.stories.get(one.id), now.stories.get(one.id)) for one in end.stories)
    if rows != end.stories:
        end = structs.replace(end, stories=rows, result=facts.state, reason="")
    return structs.replace(end, next=tuple(NextStep(say=one.say, run=one.run) for one in facts.next))


def _update_row(row: StoryAfter, before: StoryView | None, now: StoryView | None) -> StoryAfter:
    """The row in the result. What has not changed stays in the words of the run."""
    if before is None or now is None or _describe(before) == _describe(now):
        return row
    told = {"state": now.state, "why": now.why, "proof": now.proof, "proof_why": now.proof_why, "commit": now.commit}
    return structs.replace(row, **told)


def _describe(story: StoryView) -> tuple[str, ...]:
    return story.state, story.proof, story.proof_why
