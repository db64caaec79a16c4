"""A run while it runs: what its events say, as a picture that keeps up, as lines, or as JSON.

Only the file of events is read, so it makes no difference who writes it, from where, or whether anybody looks on.
What can't be written (nobody reads the pipe, the terminal is gone) ends the looking on, never the run.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ralphtool import quickjson
from ralphtool.events import Reader
from ralphtool.ui.summary import (
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
from ralphtool.ui.tables import bar, plural
from ralphtool.ui.terminal import writes_unicode

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    Event = dict[str, Any]

_PAUSE = 0.2  # seconds between two looks at the file
_TALLEST = 15  # lines of the picture
_NARROW = 60
_QUIET = 30  # seconds without a word from the agent that are worth a remark
# What stays on the screen above the picture; the rest can be seen in the picture itself.
_LASTING = ("verdict", "decision", "checkpoint", "question", "notice")


class _Story:
    def __init__(self, fields: Fields) -> None:
        self.label = label(fields)
        self.state = "done" if fields.is_true("done") else "open"
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
        self._spent = _Spent()  # by iterations that have their verdict
        self._spending = _Spent()  # by the one that is going on

    # --- taking events in

    def feed(self, event: Event) -> None:
        fields = Fields(event)
        type = fields.raw("type")
        if type == "agent":
            self._take_agent(fields)
        elif take := self._TAKES.get(type):
            self._waiting = None
            take(self, fields)

    def _take_agent(self, fields: Fields) -> None:
        """Agents may print thousands of lines a second, so this does next to nothing."""
        said = fields.inside("event")
        kind = said.raw("kind")
        if kind == "usage":
            self._spending = self._spending.plus(_Spent.of(said))
        elif kind != "output" or said.raw("text").strip():
            self._doing = fields

    def _take_start(self, fields: Fields) -> None:
        self._began = self._moment(fields)
        self._title = fields.text("change", 60)
        self._about = "  ".join(one for name in ("agent", "branch") if (one := fields.text(name, 60)))
        self._stories = {one.raw("id"): _Story(one) for one in fields.rows("stories")}
        self._now = self._doing = None

    def _take_iteration(self, fields: Fields) -> None:
        self._settle(self._spending)
        story = fields.raw("story")
        if story not in self._stories:
            self._stories[story] = _Story(Fields({"id": story, "title": fields.raw("title")}))
        self._stories[story].state = "open"
        self._now = _Iteration(story, self._moment(fields), attempt(fields), fields.text("task", 20))
        self._doing, self._gates = None, []

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
        if state and (story := self._stories.get(fields.raw("story"))):
            story.state = state

    def _take_question(self, fields: Fields) -> None:
        if story := self._stories.get(fields.raw("story")):
            story.state = "waiting"

    def _take_wait(self, fields: Fields) -> None:
        self._waiting = fields

    def _take_end(self, fields: Fields) -> None:
        self._now = self._doing = None
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
        "run_ended": _take_end,
    }

    # --- times

    def _moment(self, fields: Fields) -> float:
        found = _seconds(fields.raw("at"))
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
        foot = [*self._gate_lines(width, 3 if room > 10 else 1), *self._activity(width)] if room > 4 else []
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
        until = _seconds(fields.raw("until"))
        left = (self._moment(fields) + fields.number("seconds") if until is None else until) - self._clock()
        return Text(f"  waiting {_clock(left)} more: {fields.text('why')}", style="yellow")


# --- words ------------------------------------------------------------------------------------------


def _seconds(at: str) -> float | None:
    """A moment in RFC 3339 as seconds since the epoch."""
    try:
        found = datetime.fromisoformat(at)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(max(0.0, min(seconds, 1e9))), 60)
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


def _events(path: str, stop: threading.Event) -> Iterator[Event | None]:
    """The run's events until it ends or `stop` is set. None means that there is nothing more for the moment."""
    reader = Reader(path)
    while True:
        last = stop.is_set()  # asked before reading: what was written until then is still shown
        try:
            for event in reader.new():
                yield event
                if event["type"] == "run_ended":
                    last = True
                    break
        except OSError:
            pass  # it can't be read now; perhaps at the next look
        yield None
        if last:
            return
        stop.wait(_PAUSE)


def as_json(path: str, stop: threading.Event) -> None:
    """Every event as one line of JSON."""
    _write(None if event is None else _json(event) for event in _events(path, stop))


def _json(event: Event) -> str:
    try:
        return quickjson.dumps(event)
    except RecursionError:
        return quickjson.dumps({"at": Fields(event).raw("at"), "type": event["type"]})


def plain(path: str, stop: threading.Event) -> None:
    """One line for each event that matters."""
    _write(_plain_lines(path, stop))


def _plain_lines(path: str, stop: threading.Event) -> Iterator[str | None]:
    view = View()
    for event in _events(path, stop):
        if event is None:
            yield None
            continue
        view.feed(event)
        told = view.told(event) if event["type"] != "run_ended" else None  # which the summary tells, and better
        if told:
            yield f"[{view.elapsed(event)}] {told.plain}"


def _write(lines: Iterator[str | None]) -> None:
    """Writes lines, and hands them on whenever there is nothing more for the moment."""
    if sys.stdout is None:
        return
    try:
        for line in lines:
            sys.stdout.flush() if line is None else sys.stdout.write(f"{line}\n")
    except OSError:
        sys.stdout = None  # nobody reads on, so there is nothing to flush at the end


def live(path: str, stop: threading.Event) -> None:
    """The picture, with what has happened above it. It goes away at the end; what has happened stays."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return plain(path, stop)
    try:
        _draw(path, stop)
    except OSError:
        sys.stdout = None


def _draw(path: str, stop: threading.Event) -> None:
    screen, view = console(), View()
    picture = Live(
        get_renderable=lambda: view.render(*_room(screen)),
        console=screen,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
    )
    with picture:
        screen.show_cursor(True)  # a picture that is killed can't show it again
        for facts in _facts(path, stop, view):
            with screen:  # in one write, so that nothing flickers
                if facts:
                    screen.print(Text("\n").join(facts))
                picture.refresh()


def _room(screen: Console) -> tuple[int, int]:
    """What can be drawn on. COLUMNS and LINES may promise more than there is, and nothing would be in its place."""
    real = os.get_terminal_size(sys.stdout.fileno())
    width, height = screen.size
    return min(width, real.columns or width) - 1, min(height, real.lines or height)


def _facts(path: str, stop: threading.Event, view: View) -> Iterator[list[Text]]:
    """What is to be written above the picture, whenever that has changed, were it only its clock."""
    facts: list[Text] = []
    changed, drawn = False, 0
    for event in _events(path, stop):
        if event is not None:
            changed = True
            view.feed(event)
            if fact := view.fact(event):
                facts.append(Text.assemble((f"{view.elapsed(event)}  ", "dim"), fact))
        elif changed or drawn != int(time.time()):
            yield facts
            facts, changed, drawn = [], False, int(time.time())
