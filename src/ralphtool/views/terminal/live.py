"""A run while it runs: what its events say, as a picture that keeps up, as lines, or as JSON.

Only the file of events is read, so the run may be another process, and does not depend on this view. When the output
can't be written (the pipe is closed, the terminal is gone), the view ends, never the run.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ralphtool.core.text import can_write_unicode
from ralphtool.record.events import (
    Answered,
    Checkpoint,
    Decision,
    GateStarted,
    Notice,
    Paused,
    Question,
    Resumed,
    RunEnded,
    Steered,
    Verdict,
)
from ralphtool.record.follow import Follower, Replay
from ralphtool.record.run_view import RunView, parse_time
from ralphtool.views.terminal import raw
from ralphtool.views.terminal.summary import (
    build_console,
    describe_event,
    flatten,
    format_attempt,
    format_cost,
    format_duration,
    format_gate_result,
    format_story,
    format_tokens,
    render_agent_event,
    render_mark,
    truncate,
)
from ralphtool.views.terminal.tables import pluralize, render_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from ralphtool.record.events import Event, Waiting
    from ralphtool.record.follow import StopSignal
    from ralphtool.record.run_view import AttemptView, GateView

_TALLEST = 15  # lines of the picture
_NARROW = 60
_QUIET = 30  # seconds without a word from the agent that are worth a remark
# What stays on the screen above the picture; the rest can be seen in the picture itself.
_LASTING = (Verdict, Decision, Checkpoint, Question, Notice, Steered, Paused, Resumed, Answered)


class RunDisplay:
    """What is known of a run, as it is drawn."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.run = RunView()

    def feed(self, event: Event) -> None:
        self.run.feed(event)

    # --- times

    def _format_since(self, began: float | None) -> str:
        return _format_clock(self.clock() - began if began else 0.0)

    def format_elapsed(self, event: Event) -> str:
        """How long the run was under way when the event happened."""
        at = parse_time(event.at)
        return _format_clock((at or 0.0) - (self.run.began or at or 0.0))

    # --- telling what happened

    def describe(self, event: Event) -> Text | None:
        """The event as one line; None if nobody needs to be told."""
        return describe_event(event, self.format_name(getattr(event, "story", None)))

    def describe_lasting(self, event: Event) -> Text | None:
        """The same, only of what shall still be read when the picture has changed."""
        return self.describe(event) if isinstance(event, _LASTING) else None

    @property
    def story_ids(self) -> list[str]:
        return [id for id, story in self.run.stories.items() if not story.is_late]

    def format_name(self, story: str | None) -> str:
        known = self.run.stories.get(story or "")
        return format_story(known.id, known.title) if known else format_story(story)

    # --- the picture

    def render(self, width: int, height: int) -> RenderableType:
        """The picture: never higher than the screen without a line, nor than what can be taken in at a glance."""
        room = max(1, min(_TALLEST, height - 1))
        foot = self._render_foot(width, room) if room > 4 else self._render_pause()[: room - 1]
        head = [self._render_head(width), *([self._render_progress(width)] if room > 3 else [])][:room]
        rows = self._render_stories(width, max(0, room - len(head) - len(foot)))
        return Group(*(truncate(line, width) for line in (*head, *rows, *foot)))

    def _render_head(self, width: int) -> Text:
        start = self.run.start
        about = "  ".join(filter(None, (flatten(start.agent, 60), flatten(start.branch or "", 60))))
        left = Text.assemble((flatten(start.change, 60) or "starting", "bold"), "  ", (about, "dim"))
        clock = "" if self.run.began is None else self._format_since(self.run.began)
        return _align_ends(left, Text(clock, style="bold"), width, "─" if can_write_unicode() else "-")

    def _render_progress(self, width: int) -> Text:
        stories, spent = [self.run.stories[id] for id in self.story_ids], self.run.spent_so_far
        done = sum(story.state == "done" for story in stories)
        left = render_bar(done, len(stories), "green", f"{done} of {pluralize(len(stories), 'story', 'stories')}")
        is_counted = spent.input_tokens or spent.output_tokens
        parts = (
            [f"{format_tokens(spent.input_tokens)} in", f"{format_tokens(spent.output_tokens)} out"]
            if is_counted
            else []
        )
        cost = format_cost(spent.cost)
        if width < _NARROW:
            parts = [] if cost else parts[1:]
        return _align_ends(left, Text("  ".join([*parts, *([cost] if cost else [])])), width)

    def _render_stories(self, width: int, room: int) -> list[Text]:
        """The stories around the one that is worked on: as many as there is room for."""
        ids = self.story_ids
        if len(ids) <= room:
            return [self._render_story(id, width) for id in ids]
        shown = max(room - 1, min(room, 1))
        focus = self._find_focus(ids)
        start = max(0, min(focus - shown // 2, len(ids) - shown))
        lines = [self._render_story(id, width) for id in ids[start : start + shown]]
        more = Text(f"  and {len(ids) - shown} more", style="dim")
        return [*lines, more] if room > shown else lines

    def _find_focus(self, ids: list[str]) -> int:
        now = self.run.attempt
        if now and now.start.story in ids:
            return ids.index(now.start.story)
        return next((number for number, id in enumerate(ids) if self.run.stories[id].state == "open"), 0)

    def find_attempt(self, story: str) -> AttemptView | None:
        return next((one for one in self.run.current.values() if one.start.story == story), None)

    def _render_story(self, id: str, width: int) -> Text:
        story, now, name = self.run.stories[id], self.find_attempt(id), self.format_name(id)
        tasks = f"{story.tasks_done}/{story.tasks_total}" if story.tasks_total else ""
        if now is None:
            style = "dim" if story.state in ("done", "skipped") else ""
            return _align_ends(Text.assemble(render_mark(story.state), " ", (name, style)), Text(tasks, "dim"), width)
        task = flatten(now.start.task or "", 20)
        left = Text.assemble(render_mark("current"), " ", (name, "bold"), f" (task {task})" if task else "")
        number = format_attempt(now.start.attempt, now.start.attempts)
        right = [*([tasks] if width >= _NARROW else []), number, self._format_since(now.began)]
        return _align_ends(left, Text("  ".join(filter(None, right))), width)

    def _render_gates(self, width: int, most: int) -> list[Text]:
        """The last gates, but rather those that failed."""
        gates = self.run.gates
        ranked = sorted((not getattr(one.event, "ok", False), number) for number, one in enumerate(gates))
        kept = sorted(number for _, number in ranked[-most:])
        return [
            _align_ends(self._render_gate(one), self._render_gate_time(one), width)
            for one in map(gates.__getitem__, kept)
        ]

    def _render_gate(self, gate: GateView) -> Text:
        event, command = gate.event, flatten(gate.event.command, 100)
        if isinstance(event, GateStarted):
            return Text.assemble("  ", render_mark("current"), " ", command)
        sign = render_mark("done" if event.ok else "failed")
        if not event.ok and (event.when == "before" or not event.new):
            sign.stylize("yellow")
        return Text.assemble("  ", sign, " ", command, (format_gate_result(event), "dim" if event.ok else ""))

    def _render_gate_time(self, gate: GateView) -> Text:
        when = flatten(gate.event.when, 10)
        took = (
            self._format_since(gate.began)
            if isinstance(gate.event, GateStarted)
            else format_duration(gate.event.seconds)
        )
        return Text(f"{when}  {took}" if when == "before" else took, style="dim")

    def _render_foot(self, width: int, room: int) -> list[Text]:
        people = [*self._render_pause(), *self._render_steering(), *self._render_questions()]
        gates = self._render_gates(width, 3 if room > 10 else 1)
        return [*gates, *self._render_activity(width), *people[: 3 if room > 8 else 1]]

    def _render_pause(self) -> list[Text]:
        if self.run.paused is None:
            return []
        why = flatten(self.run.paused.why)
        going = "; what is under way goes on to its end" if self.run.current else ""
        return [Text(f"  paused{f': {why}' if why else ''}{going}", style="yellow")]

    def _render_steering(self) -> list[Text]:
        line = self.run.steered and self.describe(self.run.steered)
        return [Text.assemble("  ", line)] if line else []

    def _render_questions(self) -> list[Text]:
        number = sum(story.state == "waiting" for story in self.run.stories.values())
        if not number:
            return []
        told = f"{pluralize(number, 'question waits', 'questions wait')} for you: ralphtool questions"
        return [Text.assemble("  ", render_mark("waiting"), " ", (told, "yellow"))]

    def _render_activity(self, width: int) -> list[Text]:
        """What goes on now, in a line."""
        if self.run.waiting:
            return [self._render_wait(self.run.waiting)]
        now, gate = self.run.attempt, self.run.gates[-1] if self.run.gates else None
        if now is None or (gate and (gate.is_running or gate.event.when == "after")):
            return []
        if now.last_event is None:
            return [Text("  the agent starts", style="dim")]
        quiet = self.clock() - (parse_time(now.last_event.at) or self.clock())
        remark = f"quiet for {_format_clock(quiet)}" if quiet >= _QUIET else ""
        return [
            _align_ends(
                Text.assemble("  ", render_agent_event(now.last_event.event)), Text(remark, style="yellow"), width
            )
        ]

    def _render_wait(self, event: Waiting) -> Text:
        until = event.until if isinstance(event.until, float) else parse_time(event.until)
        end = (parse_time(event.at) or self.clock()) + event.seconds if until is None else until
        return Text(f"  waiting {_format_clock(end - self.clock())} more: {flatten(event.why)}", style="yellow")


# --- words ------------------------------------------------------------------------------------------


def _format_clock(passed: float) -> str:
    minutes, second = divmod(int(max(0.0, min(passed, 1e9))), 60)
    return f"{minutes:02}:{second:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def _align_ends(left: Text, right: Text, width: int, fill: str = " ") -> Text:
    """One at each end of a line. What is at the right is short, and stays where there is any room for both."""
    room = width - right.cell_len - 1
    if not right.plain or room < 8:
        return left
    truncate(left, room)
    gap = room - left.cell_len
    between = f" {fill * (gap - 1)} " if gap > 1 else " " * (gap + 1)
    return Text.assemble(left, (between, "dim"), right)


# --- looking on -------------------------------------------------------------------------------------


def print_json(path: str, stop: StopSignal, speed: float | None = None) -> None:
    """Every event as one line of JSON; with a `speed`, as it is played again."""
    raw.write_events(
        raw.follow_lines(path, stop) if speed is None else Replay(path, RunDisplay, speed).play_lines(stop)
    )


TextT = TypeVar("TextT", str, Text)


class WatchOptions(NamedTuple):
    """How somebody looks on."""

    speed: float | None = None  # as it is played again from its beginning, so much quicker than it was
    lead: int | None = None  # how many lines of what has happened before are wanted; all without it

    def open_source(self, path: str) -> Follower[RunDisplay] | Replay[RunDisplay]:
        if self.speed is None:
            return Follower(path, RunDisplay, joins=self.lead is not None)
        return Replay(path, RunDisplay, self.speed)


FROM_THE_START = WatchOptions()
JOINING = WatchOptions(lead=10)


def print_lines(path: str, stop: StopSignal, look: WatchOptions = FROM_THE_START) -> None:
    """One line for each event that matters."""
    raw.write_lines(_format_lines(look.open_source(path), stop, look.lead))


def _format_lines(
    source: Follower[RunDisplay] | Replay[RunDisplay], stop: StopSignal, lead: int | None
) -> Iterator[str | None]:
    lines: list[str] = []
    for event in source.follow_events(stop):
        if event is None:
            yield from _keep_recent(lines, lead, ["..."], head=1)
            yield None
            lines, lead = [], None
        elif not isinstance(event, RunEnded) and (
            told := source.view.describe(event)
        ):  # that, the summary tells, and better
            lines.append(f"[{source.view.format_elapsed(event)}] {told.plain}")


def _keep_recent(lines: list[TextT], lead: int | None, gap: list[TextT], head: int) -> list[TextT]:
    """Of what had happened before somebody looked, the end, and so many lines of its head."""
    if lead is None or len(lines) <= head + lead:
        return lines
    return lines[:head] + gap + lines[-lead:]


def show_live(path: str, stop: StopSignal, look: WatchOptions = FROM_THE_START) -> None:
    """The picture, with what has happened above it. It goes away at the end; what has happened stays."""
    if not _can_draw():
        return print_lines(path, stop, look)
    try:
        _draw(look.open_source(path), stop, look.lead)
    except OSError:
        sys.stdout = None


def _can_draw() -> bool:
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
    return sys.stdout is not None and sys.stdout.isatty() and not dumb


def _draw(source: Follower[RunDisplay] | Replay[RunDisplay], stop: StopSignal, lead: int | None) -> None:
    screen = build_console()
    picture = Live(
        get_renderable=lambda: source.view.render(*_measure_screen(screen)),
        console=screen,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
    )
    with picture:
        screen.show_cursor(True)  # a picture that is killed can't show it again
        for facts in _collect_facts(source, stop):
            with screen:  # in one write, so that nothing flickers
                if facts:
                    screen.print(Text("\n").join(_keep_recent(facts, lead, [Text("...", style="dim")], head=0)))
                picture.refresh()
            lead = None


def _measure_screen(screen: Console) -> tuple[int, int]:
    """What can be drawn on. COLUMNS and LINES may promise more than there is, and nothing would be in its place."""
    real = os.get_terminal_size(sys.stdout.fileno())
    width, height = screen.size
    return min(width, real.columns or width) - 1, min(height, real.lines or height)


def _collect_facts(source: Follower[RunDisplay] | Replay[RunDisplay], stop: StopSignal) -> Iterator[list[Text]]:
    """What is to be written above the picture, whenever that has changed, were it only its clock."""
    facts: list[Text] = []
    changed, drawn = False, 0
    for event in source.follow_events(stop):
        if event is not None:
            changed = True
            if fact := source.view.describe_lasting(event):
                facts.append(Text.assemble((f"{source.view.format_elapsed(event)}  ", "dim"), fact))
        elif changed or drawn != int(time.time()):
            yield facts
            facts, changed, drawn = [], False, int(time.time())


def show_last(path: str, at: str, stop: StopSignal) -> None:
    """The last picture of a run that is no more, as it was at a moment; without a terminal, its last lines."""
    if not _can_draw():
        print_lines(path, stop, JOINING)
        return
    moment = parse_time(at)
    source = Follower(path, RunDisplay if moment is None else partial(RunDisplay, lambda: moment), joins=True)
    try:
        _draw(source, stop, JOINING.lead)
        screen = build_console()
        screen.print(source.view.render(*_measure_screen(screen)))
    except OSError:
        sys.stdout = None
