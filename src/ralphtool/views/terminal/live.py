"""A run while it runs: what its events say, as a picture that keeps up, as lines, or as JSON.

Only the file of events is read, so it makes no difference who writes it, from where, or whether anybody looks on.
What can't be written (nobody reads the pipe, the terminal is gone) ends the looking on, never the run.
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

from ralphtool.core.text import writes_unicode
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
from ralphtool.record.run_view import RunView, seconds_of
from ralphtool.views.terminal import raw
from ralphtool.views.terminal.summary import (
    attempt,
    console,
    cut,
    duration,
    label,
    last_word,
    mark,
    money,
    one_line,
    outcome,
    tokens,
    told,
)
from ralphtool.views.terminal.tables import bar, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from ralphtool.record.events import Event, Waiting
    from ralphtool.record.follow import Stop
    from ralphtool.record.run_view import AttemptView, GateView

_TALLEST = 15  # lines of the picture
_NARROW = 60
_QUIET = 30  # seconds without a word from the agent that are worth a remark
# What stays on the screen above the picture; the rest can be seen in the picture itself.
_LASTING = (Verdict, Decision, Checkpoint, Question, Notice, Steered, Paused, Resumed, Answered)


class Picture:
    """What is known of a run, as it is drawn."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.run = RunView()

    def feed(self, event: Event) -> None:
        self.run.feed(event)

    # --- times

    def _since(self, began: float | None) -> str:
        return _clock(self.clock() - began if began else 0.0)

    def elapsed(self, event: Event) -> str:
        """How long the run was under way when the event happened."""
        at = seconds_of(event.at)
        return _clock((at or 0.0) - (self.run.began or at or 0.0))

    # --- telling what happened

    def told(self, event: Event) -> Text | None:
        """The event as one line; None if nobody needs to be told."""
        return told(event, self.name_of(getattr(event, "story", None)))

    def fact(self, event: Event) -> Text | None:
        """The same, only of what shall still be read when the picture has changed."""
        return self.told(event) if isinstance(event, _LASTING) else None

    @property
    def story_ids(self) -> list[str]:
        return [id for id, story in self.run.stories.items() if not story.is_late]

    def name_of(self, story: str | None) -> str:
        known = self.run.stories.get(story or "")
        return label(known.id, known.title) if known else label(story)

    # --- the picture

    def render(self, width: int, height: int) -> RenderableType:
        """The picture: never higher than the screen without a line, nor than what can be taken in at a glance."""
        room = max(1, min(_TALLEST, height - 1))
        foot = self._foot(width, room) if room > 4 else self._pause_lines()[: room - 1]
        head = [self._head(width), *([self._progress(width)] if room > 3 else [])][:room]
        rows = self._story_lines(width, max(0, room - len(head) - len(foot)))
        return Group(*(cut(line, width) for line in (*head, *rows, *foot)))

    def _head(self, width: int) -> Text:
        start = self.run.start
        about = "  ".join(filter(None, (one_line(start.agent, 60), one_line(start.branch or "", 60))))
        left = Text.assemble((one_line(start.change, 60) or "starting", "bold"), "  ", (about, "dim"))
        clock = "" if self.run.began is None else self._since(self.run.began)
        return _spread(left, Text(clock, style="bold"), width, "─" if writes_unicode() else "-")

    def _progress(self, width: int) -> Text:
        stories, spent = [self.run.stories[id] for id in self.story_ids], self.run.spent_so_far
        done = sum(story.state == "done" for story in stories)
        left = bar(done, len(stories), "green", f"{done} of {plural(len(stories), 'story', 'stories')}")
        is_counted = spent.input_tokens or spent.output_tokens
        parts = [f"{tokens(spent.input_tokens)} in", f"{tokens(spent.output_tokens)} out"] if is_counted else []
        cost = money(spent.cost)
        if width < _NARROW:
            parts = [] if cost else parts[1:]
        return _spread(left, Text("  ".join([*parts, *([cost] if cost else [])])), width)

    def _story_lines(self, width: int, room: int) -> list[Text]:
        """The stories around the one that is worked on: as many as there is room for."""
        ids = self.story_ids
        if len(ids) <= room:
            return [self._story_line(id, width) for id in ids]
        shown = max(room - 1, min(room, 1))
        focus = self._focus(ids)
        start = max(0, min(focus - shown // 2, len(ids) - shown))
        lines = [self._story_line(id, width) for id in ids[start : start + shown]]
        more = Text(f"  and {len(ids) - shown} more", style="dim")
        return [*lines, more] if room > shown else lines

    def _focus(self, ids: list[str]) -> int:
        now = self.run.attempt
        if now and now.start.story in ids:
            return ids.index(now.start.story)
        return next((number for number, id in enumerate(ids) if self.run.stories[id].state == "open"), 0)

    def at_work(self, story: str) -> AttemptView | None:
        return next((one for one in self.run.current.values() if one.start.story == story), None)

    def _story_line(self, id: str, width: int) -> Text:
        story, now, name = self.run.stories[id], self.at_work(id), self.name_of(id)
        tasks = f"{story.tasks_done}/{story.tasks_total}" if story.tasks_total else ""
        if now is None:
            style = "dim" if story.state in ("done", "skipped") else ""
            return _spread(Text.assemble(mark(story.state), " ", (name, style)), Text(tasks, "dim"), width)
        task = one_line(now.start.task or "", 20)
        left = Text.assemble(mark("current"), " ", (name, "bold"), f" (task {task})" if task else "")
        number = attempt(now.start.attempt, now.start.attempts)
        right = [*([tasks] if width >= _NARROW else []), number, self._since(now.began)]
        return _spread(left, Text("  ".join(filter(None, right))), width)

    def _gate_lines(self, width: int, most: int) -> list[Text]:
        """The last gates, but rather those that failed."""
        gates = self.run.gates
        ranked = sorted((not getattr(one.event, "ok", False), number) for number, one in enumerate(gates))
        kept = sorted(number for _, number in ranked[-most:])
        return [_spread(self._gate_line(one), self._gate_time(one), width) for one in map(gates.__getitem__, kept)]

    def _gate_line(self, gate: GateView) -> Text:
        event, command = gate.event, one_line(gate.event.command, 100)
        if isinstance(event, GateStarted):
            return Text.assemble("  ", mark("current"), " ", command)
        sign = mark("done" if event.ok else "failed")
        if not event.ok and (event.when == "before" or not event.new):
            sign.stylize("yellow")
        return Text.assemble("  ", sign, " ", command, (outcome(event), "dim" if event.ok else ""))

    def _gate_time(self, gate: GateView) -> Text:
        when = one_line(gate.event.when, 10)
        took = self._since(gate.began) if isinstance(gate.event, GateStarted) else duration(gate.event.seconds)
        return Text(f"{when}  {took}" if when == "before" else took, style="dim")

    def _foot(self, width: int, room: int) -> list[Text]:
        people = [*self._pause_lines(), *self._heard_lines(), *self._question_lines()]
        gates = self._gate_lines(width, 3 if room > 10 else 1)
        return [*gates, *self._activity(width), *people[: 3 if room > 8 else 1]]

    def _pause_lines(self) -> list[Text]:
        if self.run.paused is None:
            return []
        why = one_line(self.run.paused.why)
        going = "; what is under way goes on to its end" if self.run.current else ""
        return [Text(f"  paused{f': {why}' if why else ''}{going}", style="yellow")]

    def _heard_lines(self) -> list[Text]:
        line = self.run.steered and self.told(self.run.steered)
        return [Text.assemble("  ", line)] if line else []

    def _question_lines(self) -> list[Text]:
        number = sum(story.state == "waiting" for story in self.run.stories.values())
        if not number:
            return []
        told = f"{plural(number, 'question waits', 'questions wait')} for you: ralphtool questions"
        return [Text.assemble("  ", mark("waiting"), " ", (told, "yellow"))]

    def _activity(self, width: int) -> list[Text]:
        """What goes on now, in a line."""
        if self.run.waiting:
            return [self._wait_line(self.run.waiting)]
        now, gate = self.run.attempt, self.run.gates[-1] if self.run.gates else None
        if now is None or (gate and (gate.is_running or gate.event.when == "after")):
            return []
        if now.said is None:
            return [Text("  the agent starts", style="dim")]
        quiet = self.clock() - (seconds_of(now.said.at) or self.clock())
        remark = f"quiet for {_clock(quiet)}" if quiet >= _QUIET else ""
        return [_spread(Text.assemble("  ", last_word(now.said.event)), Text(remark, style="yellow"), width)]

    def _wait_line(self, event: Waiting) -> Text:
        until = event.until if isinstance(event.until, float) else seconds_of(event.until)
        end = (seconds_of(event.at) or self.clock()) + event.seconds if until is None else until
        return Text(f"  waiting {_clock(end - self.clock())} more: {one_line(event.why)}", style="yellow")


# --- words ------------------------------------------------------------------------------------------


def _clock(passed: float) -> str:
    minutes, second = divmod(int(max(0.0, min(passed, 1e9))), 60)
    return f"{minutes:02}:{second:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def _spread(left: Text, right: Text, width: int, fill: str = " ") -> Text:
    """One at each end of a line. What is at the right is short, and stays where there is any room for both."""
    room = width - right.cell_len - 1
    if not right.plain or room < 8:
        return left
    cut(left, room)
    gap = room - left.cell_len
    between = f" {fill * (gap - 1)} " if gap > 1 else " " * (gap + 1)
    return Text.assemble(left, (between, "dim"), right)


# --- looking on -------------------------------------------------------------------------------------


def as_json(path: str, stop: Stop, speed: float | None = None) -> None:
    """Every event as one line of JSON; with a `speed`, as it is played again."""
    raw.write(raw.every(path, stop) if speed is None else Replay(path, Picture, speed).lines(stop))


Line = TypeVar("Line", str, Text)


class Look(NamedTuple):
    """How somebody looks on."""

    speed: float | None = None  # as it is played again from its beginning, so much quicker than it was
    lead: int | None = None  # how many lines of what has happened before are wanted; all without it

    def at(self, path: str) -> Follower[Picture] | Replay[Picture]:
        if self.speed is None:
            return Follower(path, Picture, joins=self.lead is not None)
        return Replay(path, Picture, self.speed)


FROM_THE_START = Look()
JOINING = Look(lead=10)


def plain(path: str, stop: Stop, look: Look = FROM_THE_START) -> None:
    """One line for each event that matters."""
    raw.put(_plain_lines(look.at(path), stop, look.lead))


def _plain_lines(source: Follower[Picture] | Replay[Picture], stop: Stop, lead: int | None) -> Iterator[str | None]:
    lines: list[str] = []
    for event in source.events(stop):
        if event is None:
            yield from _led(lines, lead, ["..."], head=1)
            yield None
            lines, lead = [], None
        elif not isinstance(event, RunEnded) and (
            told := source.view.told(event)
        ):  # that, the summary tells, and better
            lines.append(f"[{source.view.elapsed(event)}] {told.plain}")


def _led(lines: list[Line], lead: int | None, gap: list[Line], head: int) -> list[Line]:
    """Of what had happened before somebody looked, the end, and so many lines of its head."""
    if lead is None or len(lines) <= head + lead:
        return lines
    return lines[:head] + gap + lines[-lead:]


def live(path: str, stop: Stop, look: Look = FROM_THE_START) -> None:
    """The picture, with what has happened above it. It goes away at the end; what has happened stays."""
    if not _can_draw():
        return plain(path, stop, look)
    try:
        _draw(look.at(path), stop, look.lead)
    except OSError:
        sys.stdout = None


def _can_draw() -> bool:
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
    return sys.stdout is not None and sys.stdout.isatty() and not dumb


def _draw(source: Follower[Picture] | Replay[Picture], stop: Stop, lead: int | None) -> None:
    screen = console()
    picture = Live(
        get_renderable=lambda: source.view.render(*_room(screen)),
        console=screen,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
    )
    with picture:
        screen.show_cursor(True)  # a picture that is killed can't show it again
        for facts in _facts(source, stop):
            with screen:  # in one write, so that nothing flickers
                if facts:
                    screen.print(Text("\n").join(_led(facts, lead, [Text("...", style="dim")], head=0)))
                picture.refresh()
            lead = None


def _room(screen: Console) -> tuple[int, int]:
    """What can be drawn on. COLUMNS and LINES may promise more than there is, and nothing would be in its place."""
    real = os.get_terminal_size(sys.stdout.fileno())
    width, height = screen.size
    return min(width, real.columns or width) - 1, min(height, real.lines or height)


def _facts(source: Follower[Picture] | Replay[Picture], stop: Stop) -> Iterator[list[Text]]:
    """What is to be written above the picture, whenever that has changed, were it only its clock."""
    facts: list[Text] = []
    changed, drawn = False, 0
    for event in source.events(stop):
        if event is not None:
            changed = True
            if fact := source.view.fact(event):
                facts.append(Text.assemble((f"{source.view.elapsed(event)}  ", "dim"), fact))
        elif changed or drawn != int(time.time()):
            yield facts
            facts, changed, drawn = [], False, int(time.time())


def still(path: str, at: str, stop: Stop) -> None:
    """The last picture of a run that is no more, as it was at a moment; without a terminal, its last lines."""
    if not _can_draw():
        plain(path, stop, JOINING)
        return
    moment = seconds_of(at)
    source = Follower(path, Picture if moment is None else partial(Picture, lambda: moment), joins=True)
    try:
        _draw(source, stop, JOINING.lead)
        screen = console()
        screen.print(source.view.render(*_room(screen)))
    except OSError:
        sys.stdout = None
