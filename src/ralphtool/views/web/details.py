"""Parts that are read only when they are opened: a story with its attempts and diffs, a gate's output, the report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from ralphtool.core import files, layout
from ralphtool.errors import UnsafePath
from ralphtool.views.report import diffs, formatting, from_record, learnt, page, timeline
from ralphtool.views.report.elements import tag
from ralphtool.views.terminal.phrases import describe_gate_time
from ralphtool.views.web.panels import REOPENED, build_button, list_judgements

if TYPE_CHECKING:
    from ralphtool.record.runs import RunSummary
    from ralphtool.record.view_parts import AttemptView, GateView
    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Facts, ReportStory
    from ralphtool.views.web.watched import WatchedRun

_OUTPUT = 64 << 10  # bytes shown of the end of a gate's output


def build_report(run: RunSummary) -> Element:
    facts = from_record.read_facts(run)
    facts = msgspec.structs.replace(facts, knowledge=learnt.look_up(run.root, facts))
    return tag("div", page.build_report(facts, diffs.read_diffs(run.root, facts.attempts)), class_="report")


def build_timeline(facts: Facts) -> Element:
    return tag("div", timeline.draw(facts) or tag("p", "There are no attempts yet.", class_="soft"))


def build_story(watched: WatchedRun, facts: Facts, id: str, *, read_only: bool) -> Element | None:
    """Everything about one story, and what a person can decide about it."""
    shown = formatting.clean_line(id, 60)
    story = next((one for one in facts.stories if one.id == shown), None)
    known = watched.view.stories.get(id)
    if story is None or known is None:
        return None
    story = _update_story(watched, story, id)
    controls = [] if read_only else _list_controls(watched, story, id)
    outputs = [_build_outputs(one) for one in known.attempts if one.gates]
    return tag(
        "div",
        page.build_story(story, diffs.read_diffs(watched.run.root, story.attempts)),
        tag("div", controls, class_="controls"),
        tag("h3", "Output of the gates") if outputs else None,
        outputs,
    )


def _update_story(watched: WatchedRun, story: ReportStory, id: str) -> ReportStory:
    """Applies decisions that were made after the run, as the list of stories does."""
    now = watched.find_proof(id)
    if now in REOPENED:
        return msgspec.structs.replace(story, state="open", proof="", receipt=None, why=REOPENED[now])
    return msgspec.structs.replace(story, proof=now) if story.state == "done" and now != story.proof else story


def _list_controls(watched: WatchedRun, story: ReportStory, id: str) -> list[Element]:
    about = {"change": watched.run.change, "story": id}
    if not about["change"]:
        return []
    accept, reject = list_judgements(about["change"], id, story.name)
    if story.state == "done":
        return [*([accept] if story.is_unproven else []), reject]
    guide = f"What should the agent of {story.name} know?"
    tried = any(one.counts for one in story.attempts)
    return [
        build_button("Guide", "guide", ask=guide, text="required", **about),
        build_button("Retry", "retry", ask=f"Give {story.name} fresh attempts?", text="optional", **about),
        build_button("Skip", "skip", ask=f"Skip {story.name}?", text="optional", **about),
        *([accept] if tried else []),
    ]


def _build_outputs(attempt: AttemptView) -> Element:
    number = attempt.start.iteration or attempt.start.number
    rows = [_build_output(number, place, gate) for place, gate in enumerate(attempt.gates) if not gate.is_running]
    return tag("div", tag("p", f"iteration {number}", class_="soft"), rows)


def _build_output(iteration: int, place: int, gate: GateView) -> Element:
    when = describe_gate_time(gate.event.when, formatting.clean_line)
    command = tag("code", formatting.clean_line(gate.event.command, 200))
    head = tag("summary", command, " ", tag("span", when, class_="soft"))
    return tag("details", head, data_load=f"gate?iteration={iteration}&gate={place}")


def read_gate_output(watched: WatchedRun, iteration: int, place: int) -> Element | None:
    """The end of a gate's output. The record names the file, which must be in the run's own folder."""
    attempts = watched.view.attempts
    found = next((one for one in attempts if iteration == (one.start.iteration or one.start.number)), None)
    if found is None or not 0 <= place < len(found.gates):
        return None
    log = getattr(found.gates[place].event, "log", "")
    parts = [_read_end(watched.run, f"{log}{ending}") for ending in ("", ".err")] if log else []
    text = "\n".join(filter(None, parts))
    return tag("pre", text or "It printed nothing, or its log is gone.", tabindex=0, class_="output")


def _read_end(run: RunSummary, path: str) -> str:
    if "\0" in path:
        return ""
    folder = os.path.join(os.path.realpath(layout.run(run.root, run.id)), "")
    inside = os.path.normpath(os.path.join(folder, path))
    # A folder in between may be a link by now: an agent without a box can write there.
    if not os.path.join(os.path.realpath(os.path.dirname(inside)), "").startswith(folder):
        return ""
    try:
        fd = files.open_in_project(inside)
    except (OSError, UnsafePath):
        return ""
    try:
        size = os.fstat(fd).st_size
        data = files.read_at(fd, max(0, size - _OUTPUT), size)
    finally:
        os.close(fd)
    return formatting.clean_block(data.decode("utf-8", "replace"), 2 * _OUTPUT)
