"""A run as a live picture: a few lines at the bottom of a terminal."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ralphtool.core.amounts import format_cost, format_duration, format_stopwatch, format_tokens, pluralize
from ralphtool.core.text import can_write_unicode
from ralphtool.judging.proof_words import SHORT_WORDS
from ralphtool.record.events import (
    Answered,
    Checkpoint,
    Decision,
    Denied,
    GateStarted,
    Notice,
    Paused,
    PlanEdited,
    Proof,
    Question,
    Reopened,
    SentBack,
    Steered,
    Verdict,
    WorkspaceChosen,
)
from ralphtool.record.follow import Follower
from ralphtool.record.view_parts import parse_time
from ralphtool.views import look
from ralphtool.views.terminal.drawing import build_console, truncate
from ralphtool.views.terminal.event_lines import format_gate_result, name_change, render_agent_event
from ralphtool.views.terminal.phrases import (
    choose_gate_mark,
    choose_mark,
    describe_workers,
    flatten,
    format_attempt,
    is_expected,
    render_mark,
    shorten_middle,
)
from ralphtool.views.terminal.run_lines import RunLines, keep_recent
from ralphtool.views.terminal.styled import assemble
from ralphtool.views.terminal.tables import render_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from ralphtool.record.events import Event, Waiting
    from ralphtool.record.follow import Replay, StopSignal
    from ralphtool.record.view_parts import AttemptView, GateView, StoryView
    from ralphtool.views.terminal.styled import StyledLine

_TALLEST = 15  # lines of the picture
_NARROW = 60
_LEAST_BRANCH = 12  # columns: a shorter part of a branch is useless
_QUIET = 30  # seconds without output from the agent before a remark
_SHORT_TIMES = {  # of gates, if there is little room
    "replay": "old tests",
    "replay-again": "old tests again",
    "own-tests": "without the work",
    "own-tests-again": "the same again",
    "after-again": "with the work again",
    "guarded": "earlier tests as they were",
    "guarded-before": "the same, without the work",
    "guarded-again": "the same again",
    "build": "for the next tests",
    "tip": "at the end",
    "outside": "your folder",
    "before-again": "once more",
    "same-files": "with your uncommitted files",
    "blind": "source broken on purpose",
}
# These stay on the screen above the picture; the others can be seen in the picture itself.
_LASTING = (
    *(Verdict, Decision, Checkpoint, SentBack, Proof, Reopened, PlanEdited, Question, Notice, Denied, WorkspaceChosen),
    *(Steered, Paused, Answered),
)


class RunDisplay(RunLines):
    """The state of a run, and how it is drawn."""

    def _format_since(self, began: float | None) -> str:
        return format_stopwatch(self.clock() - began if began else 0.0)

    @property
    def story_ids(self) -> list[str]:
        return [id for id, story in self.run.stories.items() if not story.is_late]

    def describe_lasting(self, event: Event) -> StyledLine | None:
        """The event as one line, if it must stay readable after the picture has changed."""
        return self.describe(event) if isinstance(event, _LASTING) else None

    # --- the picture

    def render(self, width: int, height: int) -> RenderableType:
        """The picture: at least one line shorter than the screen, and small enough to take in at a glance."""
        room = max(1, min(_TALLEST, height - 1))
        foot = self._render_foot(width, room) if room > 4 else self._render_pause()[: room - 1]
        head = [self._render_head(width), *([self._render_progress(width)] if room > 3 else [])][:room]
        rows = self._render_stories(width, max(0, room - len(head) - len(foot)))
        return Group(*(truncate(line, width) for line in (*head, *rows, *foot)))

    def _render_head(self, width: int) -> Text:
        start = self.run.start
        clock = "" if self.run.began is None else self._format_since(self.run.began)
        name, agent = name_change(start, 60) or "starting", flatten(start.agent, 60)
        room = width - cell_len(name) - cell_len(agent) - len(clock) - 6  # spaces between them
        branch = shorten_middle(flatten(start.branch or "", 200), room) if room >= _LEAST_BRANCH else ""
        left = Text.assemble((name, "bold"), "  ", ("  ".join(filter(None, (agent, branch))), "dim"))
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
        """The stories around the current one, as many as fit."""
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
            return self._render_resting_story(story, name, tasks, width)
        task = flatten(now.start.task or "", 20)
        left = Text.assemble(render_mark("current"), " ", (name, "bold"), f" (task {task})" if task else "")
        number = look.PHASES.get(now.phase) or format_attempt(now.start.attempt, now.start.attempts)
        about = [tasks, describe_workers([now.worker], width // 5)] if width >= _NARROW else []
        right = [*about, number, self._format_since(now.began)]
        return _align_ends(left, Text("  ".join(filter(None, right))), width)

    def _render_resting_story(self, story: StoryView, name: str, tasks: str, width: int) -> Text:
        mark = choose_mark(story.state, story.proof)
        claim = SHORT_WORDS.get(story.proof, "") if story.state == "done" and width >= _NARROW else ""
        right = Text("  ".join(filter(None, (claim, tasks))), "yellow" if mark == "unproven" else "dim")
        style = "dim" if mark in ("done", "skipped") else ""
        return _align_ends(Text.assemble(render_mark(mark), " ", (name, style)), right, width)

    def _render_gates(self, width: int, most: int) -> list[Text]:
        """The last gates; failed ones have priority."""
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
        is_fine = is_expected(event.when, event.ok)
        sign, style = render_mark(choose_gate_mark(event.when, event.ok))
        if not is_fine and (event.when == "before" or not event.new):
            style = "yellow"
        return Text.assemble("  ", (sign, style), " ", command, (format_gate_result(event), "dim" if is_fine else ""))

    def _render_gate_time(self, gate: GateView) -> Text:
        when = _SHORT_TIMES.get(gate.event.when) or flatten(gate.event.when, 10)
        took = (
            self._format_since(gate.began)
            if isinstance(gate.event, GateStarted)
            else format_duration(gate.event.seconds)
        )
        return Text(took if when in ("", "after") else f"{when}  {took}", style="dim")

    def _render_foot(self, width: int, room: int) -> list[Text]:
        people = [*self._render_pause(), *self._render_steering(), *self._render_questions()]
        gates = self._render_gates(width, 3 if room > 10 else 1)
        return [*gates, *self._render_activity(width), *people[: 3 if room > 8 else 1]]

    def _render_pause(self) -> list[Text]:
        if self.run.paused is None:
            return []
        why = flatten(self.run.paused.why)
        going = "; current iterations finish first" if self.run.current else ""
        return [Text(f"  paused{f': {why}' if why else ''}{going}", style="yellow")]

    def _render_steering(self) -> list[Text]:
        line = self.run.steered and self.describe(self.run.steered)
        return [Text.assemble("  ", *line)] if line else []

    def _render_questions(self) -> list[Text]:
        number = sum(story.state == "waiting" for story in self.run.stories.values())
        if not number:
            return []
        told = f"{pluralize(number, 'question needs', 'questions need')} your answer: ralphtool questions"
        return [Text.assemble("  ", render_mark("waiting"), " ", (told, "yellow"))]

    def _render_activity(self, width: int) -> list[Text]:
        """The current activity, in one line; with several agents, a line for each."""
        if self.run.waiting:
            return [self._render_wait(self.run.waiting)]
        if len(self.run.current) > 1:
            return [self._render_lane(one) for one in self.run.current.values() if one.last_event and not one.phase]
        now, gate = self.run.attempt, self.run.gates[-1] if self.run.gates else None
        if now is None or (gate and (gate.is_running or gate.event.when != "before")):
            return []
        if now.last_event is None:
            return [Text("  the agent starts", style="dim")]
        quiet = self.clock() - (parse_time(now.last_event.at) or self.clock())
        remark = f"quiet for {format_stopwatch(quiet)}" if quiet >= _QUIET else ""
        return [
            _align_ends(
                Text.assemble("  ", *render_agent_event(now.last_event.event)), Text(remark, style="yellow"), width
            )
        ]

    def _render_lane(self, attempt: AttemptView) -> Text:
        """The current activity of one of several agents."""
        said = render_agent_event(attempt.last_event.event) if attempt.last_event else ()
        return Text.assemble("  ", (f"{flatten(attempt.start.story, 20)} ", "dim"), *said)

    def _render_wait(self, event: Waiting) -> Text:
        until = event.until if isinstance(event.until, float) else parse_time(event.until)
        end = (parse_time(event.at) or self.clock()) + event.seconds if until is None else until
        return Text(f"  waiting {format_stopwatch(end - self.clock())} more: {flatten(event.why)}", style="yellow")


def _align_ends(left: Text, right: Text, width: int, fill: str = " ") -> Text:
    """A text at each end of a line. The right one is short, and is left out only if there is no room for both."""
    room = width - right.cell_len - 1
    if not right.plain or room < 8:
        return left
    truncate(left, room)
    gap = room - left.cell_len
    between = f" {fill * (gap - 1)} " if gap > 1 else " " * (gap + 1)
    return Text.assemble(left, (between, "dim"), right)


def draw(source: Follower[RunDisplay] | Replay[RunDisplay], stop: StopSignal, lead: int | None) -> None:
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
        screen.show_cursor(True)  # a killed process can't show it again
        for facts in _collect_facts(source, stop):
            with screen:  # in one write, to avoid flicker
                if facts:
                    kept = keep_recent(facts, lead, [assemble(("...", "dim"))], head=0)
                    screen.print(Text("\n").join(Text.assemble(*one) for one in kept))
                picture.refresh()
            lead = None


def _measure_screen(screen: Console) -> tuple[int, int]:
    """The usable size. COLUMNS and LINES may be larger than the real screen, which would break the picture."""
    real = os.get_terminal_size(sys.stdout.fileno())
    width, height = screen.size
    return min(width, real.columns or width) - 1, min(height, real.lines or height)


def _collect_facts(source: Follower[RunDisplay] | Replay[RunDisplay], stop: StopSignal) -> Iterator[list[StyledLine]]:
    """Yields the new lines above the picture whenever the picture must be redrawn, if only for its clock."""
    facts: list[StyledLine] = []
    changed, drawn = False, 0
    for event in source.follow_events(stop):
        if event is not None:
            changed = True
            if fact := source.view.describe_lasting(event):
                facts.append(assemble((f"{source.view.format_elapsed(event)}  ", "dim"), fact))
        elif changed or drawn != int(time.time()):
            yield facts
            facts, changed, drawn = [], False, int(time.time())


def draw_last(path: str, at: float | None, stop: StopSignal, lead: int | None) -> None:
    """The picture as it was at a given time; it stays on the screen."""
    source = Follower(path, RunDisplay if at is None else partial(RunDisplay, lambda: at), joins=True)
    draw(source, stop, lead)
    screen = build_console()
    screen.print(source.view.render(*_measure_screen(screen)))
