"""The parts of the page that show a run, as elements: its head, questions, lanes, stories. Texts are sanitized here.

Times are `time` elements with the timestamp as data: the page does the counting, so no updates are sent for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralphtool import agents
from ralphtool.core.amounts import (
    format_cost,
    format_day_and_time,
    format_duration,
    format_time_of_day,
    format_tokens,
    format_utc,
    pluralize,
)
from ralphtool.judging import proof_words
from ralphtool.views import look
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.elements import build_bar, tag
from ralphtool.views.terminal.event_lines import format_gate_result, render_agent_event
from ralphtool.views.terminal.phrases import (
    choose_gate_mark,
    choose_mark,
    describe_gate_time,
    describe_workers,
    format_attempt,
    format_story,
    render_mark,
    shorten_middle,
)
from ralphtool.views.terminal.summary import describe_run_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.record.questions import OpenQuestion
    from ralphtool.record.runs import RunSummary
    from ralphtool.record.view_parts import AttemptView, GateView, StoryView
    from ralphtool.specs import Task
    from ralphtool.views.report.elements import Element
    from ralphtool.views.web.watched import WatchedView

_MOST_STORIES, _MOST_TASKS, _MOST_GATES, _MOST_LANES, _MOST_DOUBTS, _OPEN_CARDS = 500, 100, 6, 32, 50, 3
_clean = formatting.clean_line
REOPENED = {  # claims of a story that was done when the run ended: why it is open again
    "rejected": "you rejected it",
    "gone": "its checkpoint is gone from the branch",
    "unticked": "its tasks are not ticked any more",
}


class Shown(NamedTuple):
    """All that the page shows of a run at one time."""

    run: RunSummary
    view: WatchedView
    state: str
    project: str
    asked: Sequence[OpenQuestion]
    proofs: Mapping[str, str] | None  # the current claims of the stories, if people may have decided since
    tasks: Mapping[str, Sequence[Task]]
    newer: str = ""  # the newest run of the change, if this is an older one
    read_only: bool = False

    @property
    def is_alive(self) -> bool:
        return self.state in ("running", "paused")

    def find_proof(self, story: StoryView) -> str:
        """What a story that is done claims; one of `REOPENED` if it is open again since."""
        if self.proofs is None or story.proof in ("", "ticked"):  # there is no receipt for these
            return story.proof
        return self.proofs.get(story.id, story.proof)


def build_sections(shown: Shown) -> dict[str, Element]:
    return {
        "head": tag(
            "div",
            *(_build_title(shown), _build_progress(shown), _build_numbers(shown), _build_notice(shown)),
            data_state=shown.state,
            data_title=_find_title(shown),
        ),
        "controls": tag("div", _list_controls(shown), class_="controls"),
        "ask": tag("div", _fold_cards([*(_build_question(shown, one) for one in shown.asked), *_list_doubts(shown)])),
        "lanes": tag("div", _list_lanes(shown), class_=f"lanes {'live' if shown.is_alive else ''}".strip()),
        "stories": tag("ul", _list_rows(shown), class_="rows"),
    }


def build_moment(name: str, seconds: float) -> Element:
    """A time that the page counts from: `since` is a running clock, `at` shows how long ago it was."""
    exact = format_day_and_time(seconds)
    return tag("time", exact, title=exact, datetime=format_utc(seconds), **{f"data-{name}": int(seconds)})


def build_state(state: str) -> Element:
    """The state of a run."""
    return build_chip(state, look.RUNS[state].words if state in look.RUNS else state)


def build_sign(mark: str) -> Element:
    """Hidden from screen readers: it would only repeat the words next to it."""
    return tag("span", render_mark(mark)[0], class_=f"sign is-{mark}", aria_hidden="true")


def build_chip(state: str, words: str) -> Element:
    return tag("span", words, class_=f"chip is-{state}")


# --- the head ---------------------------------------------------------------------------------------


def _find_title(shown: Shown) -> str:
    return _clean(shown.view.start.title or shown.run.change, 200) or "a run"


def _build_title(shown: Shown) -> Element:
    start = shown.view.start
    about = [_clean(start.agent, 60), f"branch {shorten_middle(_clean(start.branch, 200), 60)}" if start.branch else ""]
    return tag(
        "div",
        tag("h1", _find_title(shown), " ", build_state(shown.state)),
        tag("p", " · ".join(filter(None, about)), class_="soft"),
        data_key="title",
    )


def _build_progress(shown: Shown) -> Element | None:
    stories = shown.view.stories.values()
    if not stories:
        return None
    names = [_choose_mark(shown, one) for one in stories]
    said = f"{len(_list_done(shown))} of {pluralize(len(names), 'story', 'stories')} done"
    parts = [(kind, names.count(kind)) for kind in look.STORIES]
    return build_bar(parts, role="img", aria_label=said, data_key="progress")


def _list_done(shown: Shown) -> list[StoryView]:
    """The stories that are done and were not reopened since."""
    done = [one for one in shown.view.stories.values() if one.state == "done"]
    return [one for one in done if shown.find_proof(one) not in REOPENED]


def _choose_mark(shown: Shown, story: StoryView) -> str:
    if _find_attempt(shown, story.id):
        return "current"
    proof = shown.find_proof(story)
    return "open" if story.state == "done" and proof in REOPENED else choose_mark(story.state, proof)


def _find_attempt(shown: Shown, story: str) -> AttemptView | None:
    if not shown.is_alive:
        return None
    return next((one for one in reversed(shown.view.current.values()) if one.start.story == story), None)


def _build_numbers(shown: Shown) -> Element:
    view, used = shown.view, shown.view.spent_so_far
    done = _list_done(shown)
    claims = proof_words.describe_short_counts(proof_words.count_states(shown.find_proof(one) for one in done))
    tiles = [
        ("stories done", f"{len(done)} of {len(view.stories)}", claims),
        ("time", _build_time(shown), ""),
        ("attempts", str(sum(one.counts for one in view.attempts)), _describe_uncounted(shown)),
        ("cost", format_cost(used.cost), ""),
        ("tokens", format_tokens(used.input_tokens + used.output_tokens) if used.input_tokens else "", ""),
        *(_build_quota(one) for one in view.quotas.values()),
    ]
    parts = [_build_number(name, value, more) for name, value, more in tiles if value]
    return tag("dl", parts, class_="numbers", data_key="numbers")


def _describe_uncounted(shown: Shown) -> str:
    """Without those in progress, which have a card."""
    others = [one for one in shown.view.attempts if not one.counts and (one.status or not shown.is_alive)]
    return ", ".join(wording.count_attempts(others))


def _build_time(shown: Shown) -> Element | str:
    view = shown.view
    if view.began is None:
        return ""
    if shown.is_alive:
        return build_moment("since", view.began)
    return format_duration(max(0.0, view.now - view.began))


def _build_quota(quota: agents.Quota) -> tuple[str, str, str]:
    reset = f"until {format_time_of_day(quota.reset_at)}" if quota.reset_at and quota.reset_at < 7e9 else ""
    return _clean(f"quota {quota.name}", 40), f"{max(0.0, min(quota.used, 9.99)):.0%}", reset


def _build_number(name: str, value: Element | str, more: str) -> Element:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else None), data_key=name)


def _build_notice(shown: Shown) -> Element | None:
    """What the run as a whole is waiting for, or its result."""
    words, tone = _describe_whole(shown)
    if shown.newer:
        link = tag("a", "There is a newer run", href=f"#/{shown.project}/{shown.newer}")
        return tag("p", link, " of this change. ", _clean(words, 1000), class_="notice", data_key="notice")
    return tag("p", _clean(words, 1000), class_=f"notice is-{tone}", data_key="notice") if words else None


def _describe_whole(shown: Shown) -> tuple[str, str]:
    view = shown.view
    if view.end:
        return f"At its end: {describe_run_end(view.end)}", shown.state
    if not shown.is_alive:
        return "This run ended without recording its end: it was killed, or it crashed. No work is lost.", "died"
    if view.paused or view.is_pause_requested:
        return "Paused." if view.paused else "It pauses after the current iterations.", "paused"
    return (f"Waiting: {view.waiting.why}", "paused") if view.waiting else ("", "")


# --- actions ----------------------------------------------------------------------------------------


def build_button(words: str, do: str, **more: str) -> Element:
    """`do` is the action that the page sends; `ask` is a question to confirm it, `text` whether a text is wanted."""
    attributes = {f"data-{name}": value for name, value in more.items() if value}
    return tag("button", words, type="button", data_do=do, **attributes)


def _list_controls(shown: Shown) -> list[Element]:
    change = shown.run.change
    report = tag("a", "Report", href=f"#/{shown.project}/{shown.run.id}/report", class_="button", data_key="report")
    if not change or shown.read_only or shown.view.start.purpose == "plan":
        return [report]
    if not shown.is_alive:
        is_over = shown.state == "done" or shown.newer
        return [report] if is_over else [build_button("Continue", "run", change=change, key="run"), report]
    pause = ("Resume", "resume") if shown.view.is_pause_requested else ("Pause", "pause")
    guide = "What should the agents know, from the next prompt on?"
    after = "Stop after this iteration? Running agents finish first; nothing new is started."
    stop = "Stop now? Running agents are stopped; their work so far is kept, and the run can be resumed."
    return [
        build_button(pause[0], pause[1], change=change, key="pause"),
        build_button("Guide", "guide", change=change, ask=guide, text="required", key="guide"),
        build_button("Stop after this iteration", "stop-after", change=change, ask=after, key="after"),
        build_button("Stop now", "stop", change=change, ask=stop, key="stop"),
        report,
    ]


def _fold_cards(cards: list[Element]) -> list[Element]:
    """The first few; the others are folded, so that they don't push the run out of sight."""
    first, rest = cards[:_OPEN_CARDS], cards[_OPEN_CARDS:]
    words = pluralize(len(rest), "more needs your answer", "more need your answer")
    return [*first, tag("details", tag("summary", words), rest, data_key="more")] if rest else first


def _build_question(shown: Shown, one: OpenQuestion) -> Element:
    name = format_story(_clean(one.story, 60), _clean(one.title, 160))
    missing, story = formatting.clean_block(one.missing), shown.view.stories.get(one.story)
    if story is not None and story.state == "done":
        return _build_doubt(shown, story)
    return tag(
        "article",
        tag(
            "h3",
            name,
            " ",
            build_chip("open", "answered") if one.answer else build_chip("waiting", look.STORIES["waiting"].words),
        ),
        tag("blockquote", missing) if missing else None,
        tag("p", _clean(one.why, 1000), class_="soft") if one.why and one.missing not in one.why else None,
        _build_answer(one, name) if one.answer or not shown.read_only else None,
        class_="card is-waiting",
        data_key=f"{one.story}-{one.asked}",
        data_form=True,
    )


def _build_answer(one: OpenQuestion, name: str) -> list[Element]:
    if one.answer:
        answer = tag("blockquote", formatting.clean_block(one.answer))
        return [tag("p", "You answered; the story resumes with this:"), answer]
    button = build_button("Answer", "answer", change=one.change, story=one.story)
    return [_build_field(f"Your answer for {name}", "What should the agent know or do?"), _build_buttons(button)]


def _build_field(label: str, hint: str) -> Element:
    return tag("textarea", rows=2, aria_label=label, placeholder=hint, maxlength=16000)


def _build_buttons(*buttons: Element) -> Element:
    return tag("p", buttons, class_="controls")


def list_judgements(change: str, story: str, name: str) -> list[Element]:
    """The decisions that are possible about completed work."""
    about = {"change": change, "story": story, "text": "optional"}
    rejected = f"Reject {name}? Its work is reverted on the branch, and the story is open again."
    return [
        build_button("Accept", "accept", ask=f"Accept {name} as it is?", **about),
        build_button("Reject", "reject", ask=rejected, **about),
    ]


def _list_doubts(shown: Shown) -> list[Element]:
    """The stories that are done but not proven, after the run has ended as unproven."""
    if shown.state != "unproven":
        return []
    asked = {one.story for one in shown.asked}
    doubtful = [one for one in _list_done(shown) if shown.find_proof(one) == "unproven"]
    return [_build_doubt(shown, one) for one in doubtful if one.id not in asked][:_MOST_DOUBTS]


def _build_doubt(shown: Shown, story: StoryView) -> Element:
    """Only a person can decide whether it is good enough."""
    name = format_story(_clean(story.id, 60), _clean(story.title, 160))
    return tag(
        "article",
        tag("h3", name, " ", build_chip("unproven", look.STORIES["unproven"].words)),
        tag("blockquote", _clean(story.proof_why, 1000)) if story.proof_why else None,
        None if shown.read_only else _build_buttons(*list_judgements(shown.run.change, story.id, name)),
        class_="card is-waiting",
        data_key=f"doubt-{story.id}",
    )


# --- progress ---------------------------------------------------------------------------------------


def _list_lanes(shown: Shown) -> list[Element]:
    if not shown.is_alive:
        return []
    current = list(shown.view.current.items())[:_MOST_LANES]
    nothing = tag("p", "No agent is running now.", class_="soft", data_key="none")
    return [_build_lane(shown, number, one) for number, one in current] or [nothing]


def _build_lane(shown: Shown, number: int, one: AttemptView) -> Element:
    story = shown.view.stories.get(one.start.story)
    name = format_story(_clean(one.start.story, 60), _clean(story.title if story else one.start.title, 160))
    about = [format_attempt(one.start.attempt, one.start.attempts), _clean(one.start.agent, 60)]
    about.append(describe_workers([one.worker], clean=_clean))
    if one.start.task:
        about.append(f"task {_clean(one.start.task, 20)}")
    phase = look.PHASES.get(one.phase, "")
    return tag(
        "article",
        tag("h3", name, " ", build_chip("waiting" if one.phase else "running", phase) if phase else None),
        tag("p", " · ".join(filter(None, about)), " · ", build_moment("since", one.began), class_="soft"),
        _build_activity(one),
        tag("ul", [_build_gate(gate) for gate in one.last_gates[-_MOST_GATES:]], class_="gates"),
        class_="lane card is-running",
        data_key=str(number),
        data_story=one.start.story,
    )


def _build_activity(one: AttemptView) -> Element | None:
    """What its agent did last."""
    if one.last_event is None or isinstance(one.last_event.event, agents.End) or one.phase:
        return None
    return tag("p", _clean(render_agent_event(one.last_event.event).plain, 300), class_="doing")


def _build_gate(gate: GateView) -> Element:
    when = describe_gate_time(gate.event.when, _clean)
    command = tag("code", _clean(gate.event.command, 120))
    if gate.is_running:
        return tag("li", build_chip("running", "running"), " ", command, tag("span", f" {when}", class_="soft"))
    mark = choose_gate_mark(gate.event.when, gate.event.ok)  # type: ignore[union-attr]
    chip = build_chip(mark, "green" if gate.event.ok else "red")  # type: ignore[union-attr]
    told = _clean(format_gate_result(gate.event))  # type: ignore[arg-type]
    return tag("li", chip, " ", command, tag("span", f"{told} {when}", class_="soft"))


def _list_rows(shown: Shown) -> list[Element]:
    stories = list(shown.view.stories.values())
    rows = [_build_row(shown, one) for one in stories[:_MOST_STORIES]]
    more = len(stories) - len(rows)
    return [*rows, *([tag("li", f"and {more} more", class_="soft", data_key="more")] if more > 0 else [])]


def _build_row(shown: Shown, story: StoryView) -> Element:
    mark, now = _choose_mark(shown, story), _find_attempt(shown, story.id)
    name = format_story(_clean(story.id, 60), _clean(story.title, 160))
    link = f"#/{shown.project}/{shown.run.id}/story/{_quote(story.id)}"
    return tag(
        "li",
        tag(
            "a",
            build_sign(mark),
            tag("span", name, class_="name"),
            tag("span", _list_remarks(shown, story, now), class_="soft"),
            href=link,
        ),
        tag("ul", [_build_task(story, one) for one in _list_tasks(shown, story, now)], class_="tasks"),
        data_key=story.id,
    )


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _list_remarks(shown: Shown, story: StoryView, now: AttemptView | None) -> list[object]:
    proof = shown.find_proof(story)
    words = "" if story.state == "open" else look.STORIES[story.state].words
    if any(one.story == story.id and one.answer for one in shown.asked):
        words = "answered"
    if story.state == "done":
        words = f"{REOPENED[proof]}: open again" if proof in REOPENED else proof_words.describe_proof(proof)
    parts: list[object] = [_clean(words, 60)] if words and not now else []
    if story.tasks_total and story.state != "done":
        parts.append(f"{story.tasks_done} of {pluralize(story.tasks_total, 'task', 'tasks')}")
    if now:
        parts += filter(None, [look.PHASES.get(now.phase), describe_workers([now.worker], clean=_clean)])
        parts.append(build_moment("since", now.began))
    elif len(story.attempts) > 1:
        parts += wording.count_attempts(story.attempts)
    return [[" · " if number else None, one] for number, one in enumerate(parts)]


def _list_tasks(shown: Shown, story: StoryView, now: AttemptView | None) -> Sequence[Task]:
    """The tasks of a story in progress."""
    return shown.tasks.get(story.id, ())[:_MOST_TASKS] if now else ()


def _build_task(story: StoryView, task: Task) -> Element:
    is_known = story.ticked or not story.tasks_done  # otherwise they are older, and only their number is recorded
    is_done = task.id in story.ticked if is_known else task.done
    said = "done: " if is_done else ""
    return tag(
        "li",
        build_sign("done" if is_done else "open"),
        tag("span", said, class_="unseen"),
        _clean(f"{task.id} {task.text}", 300),
        data_key=task.id,
    )
