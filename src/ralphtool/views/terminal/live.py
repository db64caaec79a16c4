"""A run while it runs: what its events say, as a picture that keeps up, as lines, or as JSON.

Only the file of events is read, so it makes no difference who writes it, from where, or whether anybody looks on.
What can't be written (nobody reads the pipe, the terminal is gone) ends the looking on, never the run.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ralphtool.core.text import writes_unicode
from ralphtool.record.follow import Follower, Replay, is_word, seconds
from ralphtool.views.terminal import raw
from ralphtool.views.terminal.summary import (
    STATES,
    Fields,
    attempt,
    console,
    cut,
    duration,
    label,
    last_word,
    mark,
    money,
    outcome,
    tokens,
    told,
)
from ralphtool.views.terminal.tables import bar, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from ralphtool.views.terminal.raw import Stop

    Event = dict[str, Any]

_TALLEST = 15  # lines of the picture
_NARROW = 60
_QUIET = 30  # seconds without a word from the agent that are worth a remark
# What stays on the screen above the picture; the rest can be seen in the picture itself.
_LASTING = ("verdict", "decision", "checkpoint", "question", "notice", "steered", "paused", "resumed", "answered")
_BEGINNINGS = ("open", "done", "waiting", "skipped")  # states in which a run finds its stories
_ASIDE = ("steered", "paused", "resumed", "answered")  # people speak while the run waits, and it still does


class _Story:
    def __init__(self, fields: Fields) -> None:
        self.label = label(fields)
        told = fields.raw("state")  # as the runs before have left it
        self.state = told if told in _BEGINNINGS else "done" if fields.is_true("done") else "open"
        self.tasks_total = fields.whole("tasks_total")
        self.tasks_done = fields.whole("tasks_done")


class _Iteration(NamedTuple):
    story: str
    began: float
    attempt: str
    task: str


class _Gate(NamedTuple):
    fields: Fields
    began: float
    running: bool


class _Spent(NamedTuple):
    input_tokens: float = 0
    output_tokens: float = 0
    cost: float = 0

    @classmethod
    def of(cls, fields: Fields) -> _Spent:
        return cls(fields.number("input_tokens"), fields.number("output_tokens"), fields.number("cost"))

    def plus(self, other: _Spent) -> _Spent:
        return _Spent(*map(sum, zip(self, other, strict=True)))


class View:
    """What is known of a run after the events that it was fed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began: float | None = None
        self._title = ""
        self._about = ""
        self._stories: dict[str, _Story] = {}
        self._now: _Iteration | None = None
        self._gates: list[_Gate] = []
        self._doing: Fields | None = None  # the last word of the agent; looked into only when it is shown
        self._waiting: Fields | None = None
        self._paused: Fields | None = None
        self._heard: Fields | None = None  # what a person said last, until an agent is told
        self._spent = _Spent()  # by iterations that have their verdict
        self._spending = _Spent()  # by the one that is going on

    # --- taking events in

    def feed(self, event: Event) -> None:
        fields = Fields(event)
        type = fields.raw("type")
        if type == "agent":
            self._take_agent(fields)
        elif take := self._TAKES.get(type):
            if type not in _ASIDE:
                self._waiting = None
            take(self, fields)

    def _take_agent(self, fields: Fields) -> None:
        """Agents may print thousands of lines a second, so this does next to nothing."""
        said = fields.inside("event")
        if said.raw("kind") == "usage":
            self._spending = self._spending.plus(_Spent.of(said))
        elif is_word(said):
            self._doing = fields

    def _take_start(self, fields: Fields) -> None:
        self._began = self._moment(fields)
        self._title = fields.text("change", 60)
        self._about = "  ".join(one for name in ("agent", "branch") if (one := fields.text(name, 60)))
        self._stories = {one.raw("id"): _Story(one) for one in fields.rows("stories")}
        self._now = self._doing = self._paused = self._heard = None

    def _take_iteration(self, fields: Fields) -> None:
        self._settle(self._spending)
        story = fields.raw("story")
        if story not in self._stories:
            self._stories[story] = _Story(Fields({"id": story, "title": fields.raw("title")}))
        self._stories[story].state = "open"
        self._now = _Iteration(story, self._moment(fields), attempt(fields), fields.text("task", 20))
        self._doing, self._paused, self._heard, self._gates = None, None, None, []

    def _take_gate_start(self, fields: Fields) -> None:
        if self._gates and self._gates[-1].fields.raw("when") != fields.raw("when"):
            self._gates = []
        self._gates.append(_Gate(fields, self._moment(fields), running=True))

    def _take_gate(self, fields: Fields) -> None:
        if self._gates and self._gates[-1].running:
            self._gates.pop()
        self._take_gate_start(fields)
        self._gates[-1] = self._gates[-1]._replace(running=False)

    def _take_verdict(self, fields: Fields) -> None:
        spent = _Spent.of(fields)
        self._settle(spent if any(spent) else self._spending)
        if story := self._stories.get(fields.raw("story")):
            story.state = STATES.get(fields.raw("status"), "open")
            if fields.whole("tasks_total"):
                story.tasks_done, story.tasks_total = fields.whole("tasks_done"), fields.whole("tasks_total")
        self._now = self._doing = None
        self._gates = []

    def _settle(self, spent: _Spent) -> None:
        self._spent, self._spending = self._spent.plus(spent), _Spent()

    def _take_decision(self, fields: Fields) -> None:
        state = {"skip": "skipped", "manual": "waiting"}.get(fields.raw("action"))
        if state:
            self._set(fields, state)

    def _take_question(self, fields: Fields) -> None:
        self._set(fields, "waiting")

    def _take_answer(self, fields: Fields) -> None:
        self._set(fields, "open")

    def _set(self, fields: Fields, state: str) -> None:
        if story := self._stories.get(fields.raw("story")):
            story.state = state

    def _take_steering(self, fields: Fields) -> None:
        self._heard = fields
        story = self._stories.get(fields.raw("story"))
        if story and story.state != "done":  # of what is done there is nothing to skip, nor to try again
            story.state = {"skip": "skipped", "retry": "open"}.get(fields.raw("action"), story.state)

    def _take_pause(self, fields: Fields) -> None:
        self._paused = fields

    def _take_resume(self, fields: Fields) -> None:
        self._paused = self._heard = None

    def _take_wait(self, fields: Fields) -> None:
        self._waiting = fields

    def _take_end(self, fields: Fields) -> None:
        self._now = self._doing = self._paused = self._heard = None
        for one in fields.rows("stories"):
            if story := self._stories.get(one.raw("id")):
                story.state = one.raw("state")

    _TAKES: ClassVar[dict[str, Callable[[View, Fields], None]]] = {
        "run_started": _take_start,
        "iteration_started": _take_iteration,
        "gate_started": _take_gate_start,
        "gate": _take_gate,
        "verdict": _take_verdict,
        "decision": _take_decision,
        "question": _take_question,
        "waiting": _take_wait,
        "steered": _take_steering,
        "paused": _take_pause,
        "resumed": _take_resume,
        "answered": _take_answer,
        "run_ended": _take_end,
    }

    # --- times

    def _moment(self, fields: Fields) -> float:
        found = seconds(fields.raw("at"))
        return self._clock() if found is None else found

    def _since(self, began: float) -> str:
        return _clock(self._clock() - began)

    def elapsed(self, event: Event) -> str:
        """How long the run was going on when the event happened."""
        now = self._moment(Fields(event))
        return _clock(now - (now if self._began is None else self._began))

    # --- telling what happened

    def told(self, event: Event) -> Text | None:
        """The event as one line; None if nobody needs to be told."""
        fields = Fields(event)
        return told(fields, self._name(fields))

    def fact(self, event: Event) -> Text | None:
        """The same, only of what shall still be read when the picture has changed."""
        return self.told(event) if Fields(event).raw("type") in _LASTING else None

    def _name(self, fields: Fields) -> str:
        story = self._stories.get(fields.raw("story"))
        return story.label if story else label(Fields({"id": fields.raw("story")}))

    # --- the picture

    def render(self, width: int, height: int) -> RenderableType:
        """The picture: never higher than the screen without a line, nor than what can be taken in at a glance."""
        room = max(1, min(_TALLEST, height - 1))
        foot = self._foot(width, room) if room > 4 else self._pause_lines()[: room - 1]
        head = [self._head(width), *([self._progress(width)] if room > 3 else [])][:room]
        rows = self._story_lines(width, max(0, room - len(head) - len(foot)))
        return Group(*(cut(line, width) for line in (*head, *rows, *foot)))

    def _head(self, width: int) -> Text:
        left = Text.assemble((self._title or "starting", "bold"), "  ", (self._about, "dim"))
        clock = "" if self._began is None else self._since(self._began)
        return _spread(left, Text(clock, style="bold"), width, "─" if writes_unicode() else "-")

    def _progress(self, width: int) -> Text:
        done = sum(story.state == "done" for story in self._stories.values())
        left = bar(done, len(self._stories), "green", f"{done} of {plural(len(self._stories), 'story', 'stories')}")
        spent = self._spent.plus(self._spending)
        parts = [f"{tokens(spent.input_tokens)} in", f"{tokens(spent.output_tokens)} out"] if any(spent[:2]) else []
        cost = money(spent.cost)
        if width < _NARROW:
            parts = [] if cost else parts[1:]
        return _spread(left, Text("  ".join([*parts, *([cost] if cost else [])])), width)

    def _story_lines(self, width: int, room: int) -> list[Text]:
        """The stories around the one that is worked on: as many as there is room for."""
        ids = list(self._stories)
        if len(ids) <= room:
            return [self._story_line(id, width) for id in ids]
        shown = max(room - 1, min(room, 1))
        focus = ids.index(self._now.story) if self._now else self._first_open(ids)
        start = max(0, min(focus - shown // 2, len(ids) - shown))
        lines = [self._story_line(id, width) for id in ids[start : start + shown]]
        more = Text(f"  and {len(ids) - shown} more", style="dim")
        return [*lines, more] if room > shown else lines

    def _first_open(self, ids: list[str]) -> int:
        return next((number for number, id in enumerate(ids) if self._stories[id].state == "open"), 0)

    def _story_line(self, id: str, width: int) -> Text:
        story, now = self._stories[id], self._now
        tasks = f"{story.tasks_done}/{story.tasks_total}" if story.tasks_total else ""
        if now is None or now.story != id:
            style = "dim" if story.state in ("done", "skipped") else ""
            return _spread(Text.assemble(mark(story.state), " ", (story.label, style)), Text(tasks, "dim"), width)
        left = Text.assemble(mark("current"), " ", (story.label, "bold"), f" (task {now.task})" if now.task else "")
        right = [*([tasks] if width >= _NARROW else []), now.attempt, self._since(now.began)]
        return _spread(left, Text("  ".join(filter(None, right))), width)

    def _gate_lines(self, width: int, most: int) -> list[Text]:
        """The last gates, but rather those that failed."""
        gates = self._gates
        ranked = sorted((one.running or not one.fields.is_true("ok"), number) for number, one in enumerate(gates))
        kept = sorted(number for _, number in ranked[-most:])
        return [_spread(self._gate_line(one), self._gate_time(one), width) for one in map(gates.__getitem__, kept)]

    def _gate_line(self, gate: _Gate) -> Text:
        fields = gate.fields
        command = fields.text("command", 100)
        if gate.running:
            return Text.assemble("  ", mark("current"), " ", command)
        ok = fields.is_true("ok")
        known = fields.raw("when") == "before" or not fields.count("new")
        sign = mark("done" if ok else "failed")
        if not ok and known:
            sign.stylize("yellow")
        return Text.assemble("  ", sign, " ", command, (outcome(fields), "dim" if ok else ""))

    def _gate_time(self, gate: _Gate) -> Text:
        when = gate.fields.text("when", 10)
        took = self._since(gate.began) if gate.running else duration(gate.fields.number("seconds"))
        return Text(f"{when}  {took}" if when == "before" else took, style="dim")

    def _foot(self, width: int, room: int) -> list[Text]:
        people = [*self._pause_lines(), *self._heard_lines(), *self._question_lines()]
        gates = self._gate_lines(width, 3 if room > 10 else 1)
        return [*gates, *self._activity(width), *people[: 3 if room > 8 else 1]]

    def _pause_lines(self) -> list[Text]:
        if self._paused is None:
            return []
        why = self._paused.text("why")
        going = "; what is under way goes on to its end" if self._now else ""
        return [Text(f"  paused{f': {why}' if why else ''}{going}", style="yellow")]

    def _heard_lines(self) -> list[Text]:
        line = self._heard and told(self._heard, self._name(self._heard))
        return [Text.assemble("  ", line)] if line else []

    def _question_lines(self) -> list[Text]:
        number = sum(story.state == "waiting" for story in self._stories.values())
        if not number:
            return []
        told = f"{plural(number, 'question waits', 'questions wait')} for you: ralphtool questions"
        return [Text.assemble("  ", mark("waiting"), " ", (told, "yellow"))]

    def _activity(self, width: int) -> list[Text]:
        """What goes on now, in a line."""
        if self._waiting:
            return [self._wait_line(self._waiting)]
        gate = self._gates[-1] if self._gates else None
        if self._now is None or (gate and (gate.running or gate.fields.raw("when") == "after")):
            return []
        if self._doing is None:
            return [Text("  the agent starts", style="dim")]
        quiet = self._clock() - self._moment(self._doing)
        remark = f"quiet for {_clock(quiet)}" if quiet >= _QUIET else ""
        word = last_word(self._doing.inside("event"))
        return [_spread(Text.assemble("  ", word), Text(remark, style="yellow"), width)]

    def _wait_line(self, fields: Fields) -> Text:
        until = seconds(fields.raw("until"))
        left = (self._moment(fields) + fields.number("seconds") if until is None else until) - self._clock()
        return Text(f"  waiting {_clock(left)} more: {fields.text('why')}", style="yellow")


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
    raw.write(raw.every(path, stop) if speed is None else Replay(path, View, speed).events(stop))


Line = TypeVar("Line", str, Text)


class Look(NamedTuple):
    """How somebody looks on."""

    speed: float | None = None  # as it is played again from its beginning, so much quicker than it was
    lead: int | None = None  # how many lines of what has happened before are wanted; all without it

    def at(self, path: str) -> Follower[View] | Replay[View]:
        if self.speed is None:
            return Follower(path, View, joins=self.lead is not None)
        return Replay(path, View, self.speed)


FROM_THE_START = Look()
JOINING = Look(lead=10)


def plain(path: str, stop: Stop, look: Look = FROM_THE_START) -> None:
    """One line for each event that matters."""
    raw.put(_plain_lines(look.at(path), stop, look.lead))


def _plain_lines(source: Follower[View] | Replay[View], stop: Stop, lead: int | None) -> Iterator[str | None]:
    lines: list[str] = []
    for event in source.events(stop):
        if event is None:
            yield from _led(lines, lead, ["..."], head=1)
            yield None
            lines, lead = [], None
        elif event["type"] != "run_ended" and (told := source.view.told(event)):  # that, the summary tells, and better
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


def _draw(source: Follower[View] | Replay[View], stop: Stop, lead: int | None) -> None:
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


def _facts(source: Follower[View] | Replay[View], stop: Stop) -> Iterator[list[Text]]:
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
    moment = seconds(at)
    source = Follower(path, View if moment is None else partial(View, lambda: moment), joins=True)
    try:
        _draw(source, stop, JOINING.lead)
        screen = console()
        screen.print(source.view.render(*_room(screen)))
    except OSError:
        sys.stdout = None
