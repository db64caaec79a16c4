"""The run drawn as a picture: a lane for each story, its attempts coloured by verdict, gates, waits and questions.

Horizontal positions are percentages of the width, so that the picture fits a phone and a wide screen and its text keeps
its size. Every mark has a title, for readers who can't see it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralphtool.core.amounts import format_duration, format_time_of_day, pluralize
from ralphtool.views import look
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.elements import tag
from ralphtool.views.terminal.phrases import describe_gate_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.record.view_parts import Wait
    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Facts, ReportAttempt, ReportGate, ReportOccurrence, ReportStory

_MOST_LANES = 80
_ABOVE, _LANE, _AXIS = 28, 54, 26  # heights; the first only if something is drawn there
_BAR, _BAR_HEIGHT, _GATE, _GATE_HEIGHT = 22, 17, 42, 4  # within a lane
_LEAST = 0.3  # minimum width in percent
_ROOM_FOR_A_NUMBER, _ROOM_FOR_WORDS = 2.6, 5  # percent
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_DAY = 86_400
_TICKS = 8  # maximum
_MARKS = {
    "question": ("?", "a question for you"),
    "answer": ("✎", "your answer"),
    "you": ("»", "your command"),
    "hand-over": ("→", "another agent continues"),
    "sent-back": ("↩", "sent back: it conflicts with other work"),
}
_LEGEND = (
    *((f"v-{name}", one.words) for name, one in look.ATTEMPTS.items()),
    ("gate-green", "gate, green"),
    ("gate-red", "gate, red"),
    ("wait", "waiting or paused"),
)


class _Scale:
    """Maps times to positions in percent, and stories to lanes."""

    def __init__(self, facts: Facts, stories: list[ReportStory]) -> None:
        self.began = facts.began
        self.length = max(facts.ended - facts.began, 1.0)
        self.lanes = {story.id: number for number, story in enumerate(stories)}
        marks = [one for one in facts.happenings if one.kind in _MARKS and one.story not in self.lanes]
        self.top = _ABOVE if facts.waits or marks else 0
        self.bottom = self.top + _LANE * len(stories)

    def lane(self, number: int) -> int:
        return self.top + _LANE * number

    def at(self, moment: float) -> float:
        return round(min(max(0.4 + 99.2 * (moment - self.began) / self.length, 0.4), 99.6), 3)

    def span(self, began: float, ended: float) -> tuple[float, float]:
        left = self.at(began)
        return left, max(_LEAST, round(self.at(ended) - left, 3))

    def ticks(self) -> Iterator[tuple[float, str]]:
        days = (_DAY * number for number in (1, 2, 5, 10, 30, 100, 365, 3650))
        step = next((one for one in (*_STEPS, *days) if self.length / one <= _TICKS), _DAY * 36_500)
        offset = time.localtime(self.began).tm_gmtoff
        moment = -(-(self.began + offset) // step) * step - offset
        while moment <= self.began + self.length:
            yield self.at(moment), _format_tick(moment, step)
            moment += step


def _format_tick(moment: float, step: int) -> str:
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < _DAY else "%d %b"
    return time.strftime(form, time.localtime(moment))


def draw(facts: Facts) -> Element | None:
    """The picture and its legend; None if nothing was tried."""
    stories = [one for one in facts.stories if one.attempts]
    if not stories:
        return None
    shown = stories[:_MOST_LANES]
    more = (
        f"{pluralize(len(stories) - len(shown), 'more story is', 'more stories are')} not drawn."
        if len(stories) > len(shown)
        else None
    )
    return tag(
        "figure",
        tag("div", _draw_picture(facts, shown), class_="scroll", tabindex=0, role="region", aria_label="Timeline"),
        tag("figcaption", _build_legend(facts), tag("p", more) if more else None),
        class_="timeline",
    )


def _draw_picture(facts: Facts, stories: list[ReportStory]) -> Element:
    scale = _Scale(facts, stories)
    return tag(
        "svg",
        tag("title", f"Timeline of {facts.change}", id="timeline-title"),
        tag("desc", _describe_picture(facts, stories), id="timeline-text"),
        tag("defs", _draw_hatch()),
        [_draw_lane_ground(scale.lane(number)) for number, _ in enumerate(stories)],
        [_draw_tick(place, label, scale) for place, label in scale.ticks()],
        [_draw_wait(one, scale) for one in facts.waits],
        [_draw_lane(story, scale.lane(number), scale) for number, story in enumerate(stories)],
        [_draw_mark(one, scale) for one in facts.happenings if one.kind in _MARKS],
        role="img",
        aria_labelledby="timeline-title timeline-text",
        width="100%",
        height=scale.bottom + _AXIS,
    )


def _describe_picture(facts: Facts, stories: list[ReportStory]) -> str:
    counted = pluralize(len(stories), "story", "stories")
    return f"{counted} over {wording.describe_time(facts)}; the list of stories below says the same in words."


def _draw_hatch() -> Element:
    line = tag("path", d="M0 0V8", class_="hatch")
    return tag(
        "pattern", line, id="hatch", width=8, height=8, patternUnits="userSpaceOnUse", patternTransform="rotate(45)"
    )


def _draw_lane_ground(top: int) -> Element:
    return tag("rect", x=0, y=top + _BAR - 3, width="100%", height=_BAR_HEIGHT + 6, rx=5, class_="ground")


def _draw_tick(place: float, label: str, scale: _Scale) -> list[Element]:
    anchor = "start" if place < 3 else "end" if place > 97 else "middle"
    return [
        tag("line", x1=f"{place}%", x2=f"{place}%", y1=scale.top, y2=scale.bottom, class_="grid"),
        tag("text", label, x=f"{place}%", y=scale.bottom + 17, text_anchor=anchor, class_="axis"),
    ]


def _draw_wait(one: Wait, scale: _Scale) -> Element:
    left, width = scale.span(one.began, one.ended)
    said = f"{'paused' if one.kind == 'pause' else 'waited'} {format_duration(one.ended - one.began)}"
    place: dict[str, str | int] = {
        "x": f"{left}%",
        "y": scale.top - 6,
        "width": f"{width}%",
        "height": scale.bottom - scale.top + 6,
    }
    return tag(
        "g",
        tag("title", f"{format_time_of_day(one.began)}: {said}: {one.why}"),
        tag("rect", **place, class_="wait-ground"),
        tag("rect", **place, class_="lines", fill="url(#hatch)"),
        tag("text", said, x=f"{left}%", y=scale.top - 12, class_="axis") if width > _ROOM_FOR_WORDS else None,
        class_="wait",
    )


def _draw_lane(story: ReportStory, top: int, scale: _Scale) -> Element:
    return tag(
        "g",
        tag("text", formatting.clean_line(story.name, 90), x=0, y=top + 13, class_="lane"),
        [_draw_bar(one, top, scale) for one in story.attempts],
        [_draw_gate(gate, top, scale) for one in story.attempts for gate in one.gates],
    )


def _draw_bar(one: ReportAttempt, top: int, scale: _Scale) -> Element:
    left, width = scale.span(one.began, one.ended)
    middle = round(left + width / 2, 3)
    symbol = look.ATTEMPTS[look.find_attempt_name(one.status)].symbol
    sign = f"{one.number} {symbol}" if one.counts else symbol
    number = tag("text", sign, x=f"{middle}%", y=top + _BAR + 13, text_anchor="middle", class_="on-bar")
    return tag(
        "g",
        tag("title", _describe_attempt(one)),
        tag("rect", x=f"{left}%", y=top + _BAR, width=f"{width}%", height=_BAR_HEIGHT, rx=3),
        number if width > _ROOM_FOR_A_NUMBER else None,
        class_=f"bar v-{look.find_attempt_name(one.status)}",
    )


def _describe_attempt(one: ReportAttempt) -> str:
    took = format_duration(one.ended - one.began)
    why = f": {'; '.join(one.reasons)}" if one.reasons else ""
    name = " ".join(filter(None, [wording.name_attempt(one), wording.describe_workers(one)]))
    return f"{format_time_of_day(one.began)}, {name}: {one.status} after {took}{why}"


def _draw_gate(gate: ReportGate, top: int, scale: _Scale) -> Element:
    left, width = scale.span(gate.began, gate.ended)
    colour = "green" if gate.is_fine else "red"
    ending = "green" if gate.ok else "red"
    when = describe_gate_time(gate.when, formatting.clean_line)
    title = f"gate {when}, {ending}: {gate.command} {gate.told}".strip()
    return tag(
        "rect",
        tag("title", title),
        x=f"{left}%",
        y=top + _GATE,
        width=f"{width}%",
        height=_GATE_HEIGHT,
        class_=f"gate-{colour}",
    )


def _draw_mark(one: ReportOccurrence, scale: _Scale) -> Element:
    """In the lane of its story, next to the attempt that it follows; otherwise above all lanes."""
    lane = scale.lanes.get(one.story)
    y = scale.top - 14 if lane is None else scale.lane(lane) + _BAR + _BAR_HEIGHT / 2
    place = scale.at(one.at)
    return tag(
        "g",
        tag("title", f"{format_time_of_day(one.at)}, {one.kind}: {one.text}"),
        tag("circle", cx=f"{place}%", cy=y, r=9),
        tag("text", _MARKS[one.kind][0], x=f"{place}%", y=y + 4.5, text_anchor="middle"),
        transform=None if lane is None else "translate(9 0)",
        class_=f"mark mark-{one.kind}",
    )


def _build_legend(facts: Facts) -> Element:
    """Only what is in the picture."""
    present = {f"v-{look.find_attempt_name(one.status)}" for one in facts.attempts}
    present |= {"gate-green" if gate.is_fine else "gate-red" for one in facts.attempts for gate in one.gates}
    present |= {"wait"} if facts.waits else set()
    rows = [tag("li", tag("i", class_=f"key {name}"), said) for name, said in _LEGEND if name in present]
    kinds = dict.fromkeys(one.kind for one in facts.happenings if one.kind in _MARKS)
    rows += [tag("li", tag("i", _MARKS[kind][0], class_=f"key mark-{kind}"), _MARKS[kind][1]) for kind in kinds]
    return tag("ul", rows, class_="legend")
