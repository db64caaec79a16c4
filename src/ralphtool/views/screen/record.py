"""A run's record as the full screen follows it: read in slices, and only what can be shown is kept.

A record may have a million lines, and an agent may add a thousand a second. So a slice ends when its time is up, and
only the last few hundred activities of agents are kept.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ralphtool import agents
from ralphtool.core.amounts import format_duration, pluralize
from ralphtool.record.events import Agent, Gate, IterationStarted, WorkerJoined
from ralphtool.record.follow import Follower
from ralphtool.record.view_parts import parse_time
from ralphtool.views import project_data as data
from ralphtool.views import receipts
from ralphtool.views.screen import since
from ralphtool.views.terminal.drawing import truncate
from ralphtool.views.terminal.event_lines import describe_event, format_gate_result, render_agent_event
from ralphtool.views.terminal.phrases import (
    choose_gate_mark,
    describe_gate_time,
    describe_workers,
    flatten,
    format_attempt,
    make_writable,
    render_mark,
)
from ralphtool.views.terminal.picture import RunDisplay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.events import AgentEvent, Event
    from ralphtool.record.runs import RunSummary
    from ralphtool.specs import Task

MAX_ACTIVITIES = 400  # activities of agents that can be scrolled back to
_SLICE = 0.03  # seconds of reading, before other work gets its turn
_NEAR = 512 << 10  # bytes at the end of a record that are read in full
_TASKS = 8  # of the story in progress
_FOLDED, _UNFOLDED = 3, 60  # lines of a tool's result


class Activity(NamedTuple):
    """One event, formatted only when it is shown."""

    number: int
    event: Event
    name: str  # of the story
    label: str = ""  # its story, if several are in progress

    def describe(self, *, unfolded: bool = False) -> list[Text]:
        if isinstance(self.event, Gate):
            return self._add_label([_render_gate(self.event)])
        if isinstance(self.event, Agent):
            return self._add_label(_render_event(self.event.event, _UNFOLDED if unfolded else _FOLDED))
        line = describe_event(self.event, self.name)
        words = [Text.assemble(*line)] if line else []
        return [Text(), *words] if words and isinstance(self.event, IterationStarted) else words

    def _add_label(self, lines: list[Text]) -> list[Text]:
        if self.label and lines:
            words = Text.assemble((f"{self.label}  ", "dim"), lines[0])
            words.no_wrap, words.overflow = lines[0].no_wrap, lines[0].overflow
            lines = [words, *lines[1:]]
        return lines


def _render_gate(event: Gate) -> Text:
    sign = render_mark(choose_gate_mark(event.when, event.ok))
    when = ("" if event.when in ("", "after") else f"{describe_gate_time(event.when)}: ", "dim")
    took = (f"  {format_duration(event.seconds)}", "dim")
    return _disable_wrap(Text.assemble(sign, " ", when, f"{flatten(event.command)}{format_gate_result(event)}", took))


def _disable_wrap(words: Text) -> Text:
    words.no_wrap, words.overflow = True, "ellipsis"
    return words


def _render_event(said: AgentEvent, most: int) -> list[Text]:
    match said:
        case agents.Message():
            return [Text(line) for line in split_lines(said.text)]
        case agents.Result():
            return _fold_lines(split_lines(said.text), most)
        case agents.Tool():
            return [_disable_wrap(Text.assemble(render_mark("current"), " ", *render_agent_event(said)))]
        case agents.Output() if not said.text.strip():
            return []
    return [Text.assemble(*render_agent_event(said))]


def _fold_lines(lines: list[str], most: int) -> list[Text]:
    shown = lines if len(lines) <= most + 1 else lines[:most]
    words = [_disable_wrap(Text(f"    {line}", style="dim")) for line in shown]
    if len(lines) > len(shown):
        words.append(Text(f"    {pluralize(len(lines) - len(shown), 'more line', 'more lines')}", style="dim italic"))
    return words


def render_receipt(receipt: Receipt) -> list[Text]:
    """The proof of a story's "done"."""
    style = "yellow" if receipt.state == "unproven" else "green"
    rows = [Text.assemble("  ", (f"{row.label:<9} ", "dim"), row.text) for row in receipts.list_rows(receipt)]
    return [Text(receipts.describe_receipt(receipt), style=style), *rows]


def render_task(task: Task, is_done: bool) -> Text:
    """A task in one line, below its story."""
    mark, text = render_mark("done" if is_done else "open"), flatten(task.text, 300)
    return _disable_wrap(Text.assemble("  ", mark, f" {flatten(task.id, 40)} ", (text, "dim" if is_done else "")))


def split_lines(text: str, longest: int = 20_000) -> list[str]:
    """An untrusted text as lines that are safe to show."""
    return [
        make_writable(line.expandtabs(4).rstrip()) for line in text[:longest].strip().replace("\r\n", "\n").split("\n")
    ]


class StoryListItem(NamedTuple):
    id: str
    state: str
    is_current: bool


_PHASES = {"waiting": "queued", "merging": "proving"}  # of a story, if several are in progress
_WIDE, _WIDEST = 34, 48
_WORKER = 10  # characters of a worker's name beside its story


class WatchedRun(RunDisplay):
    """The state of a run, and its last activities."""

    def __init__(self) -> None:
        super().__init__(self._read_clock)
        self.is_over = False
        self._last = ""  # the time of the last event
        self.activities: deque[Activity] = deque(maxlen=MAX_ACTIVITIES)
        self.count = 0
        self.recorded = self.run  # `run` may have the stories of an ended run as they are now

    def feed(self, event: Event) -> None:
        self.run = self.recorded
        super().feed(event)
        self._last = event.at or self._last
        if isinstance(event, Agent) and isinstance(event.event, agents.Usage | agents.Quota):
            return  # counted, but not shown
        if isinstance(event, WorkerJoined) and self.is_known_worker(event):
            return
        self.count += 1
        story = getattr(event, "story", None)
        label = flatten(story, 20) if story and len(self.run.current) > 1 else ""
        self.activities.append(Activity(self.count, event, self.format_name(story), label))

    def _read_clock(self) -> float:
        """The clock stops with the run."""
        last = parse_time(self._last) if self.is_over else None
        return time.time() if last is None else last

    # --- for the screen

    @property
    def stories(self) -> list[StoryListItem]:
        return [
            StoryListItem(id, self.run.stories[id].state, self.find_attempt(id) is not None) for id in self.story_ids
        ]

    def render_head(self, width: int) -> Text:
        return Text("\n").join([self._render_head(width), self._render_progress(width)])

    def render_row(self, story: str, width: int) -> Text:
        """One line, however narrow. The attempt's number is shown above the log instead."""
        now, one = self.find_attempt(story), self.run.stories[story]
        if now is None:
            return truncate(self._render_story(story, width), width)
        tasks = f"{one.tasks_done}/{one.tasks_total}  " if one.tasks_total else ""
        phase = f"{word}  " if (word := _PHASES.get(now.phase)) and width >= _WIDE else ""
        worker = describe_workers([now.worker], _WORKER) if width >= _WIDEST else ""
        right = Text(f"  {tasks}{phase}{worker}{'  ' * bool(worker)}{self._format_since(now.began)}")
        left = truncate(
            Text.assemble(render_mark("current"), " ", (self.format_name(story), "bold")), width - right.cell_len
        )
        left.pad_right(width - right.cell_len - left.cell_len)
        return truncate(left.append(right), width)

    def is_ticked(self, story: str, task: Task) -> bool:
        """Whether a task is ticked by now. In a story in progress, the agent's ticks count."""
        one = self.run.stories.get(story)
        if one is None or self.find_attempt(story) is None:
            return task.done
        is_known = one.ticked or not one.tasks_done  # otherwise they are older, and only their number is recorded
        return task.id in one.ticked if is_known else task.done

    def render_tasks(self, story: str, tasks: Sequence[Task], width: int) -> list[Text]:
        """The tasks of a story in progress, one per line; if there are many, those around the first open one."""
        if self.find_attempt(story) is None:
            return []
        marked = [(task, self.is_ticked(story, task)) for task in tasks]
        first = next((number for number, (_, is_done) in enumerate(marked) if not is_done), len(marked))
        start = max(0, min(first - 2, len(marked) - _TASKS))
        lines = [truncate(render_task(task, is_done), width) for task, is_done in marked[start : start + _TASKS]]
        hidden = len(marked) - len(lines)
        return [*lines, *([truncate(Text(f"  and {hidden} more", style="dim"), width)] if hidden else [])]

    @property
    def now(self) -> str:
        """The current attempt, in a few words."""
        now = self.run.attempt
        if now is None:
            return ""
        number = format_attempt(now.start.attempt, now.start.attempts)
        about = " ".join(filter(None, [number, describe_workers([now.worker])]))
        return ": ".join(filter(None, [about, self.format_name(now.start.story)]))

    def render_foot(self, width: int) -> list[Text]:
        """The gates of this iteration, and what the run is waiting for."""
        waiting = [self._render_wait(self.run.waiting)] if self.run.waiting else []
        return [*self._render_gates(width, 4), *waiting, *self._render_pause()]


class FollowedRun:
    """A run's record, followed while it is shown."""

    def __init__(self, run: RunSummary) -> None:
        self.run = run
        self._follower = Follower(run.path, WatchedRun, joins=True, detail=_NEAR)
        self._seen: tuple[int, ...] = ()
        self.read(0.0)

    @property
    def view(self) -> WatchedRun:
        return self._follower.view

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read now."""
        return self._follower.is_behind

    def read(self, seconds: float = _SLICE) -> None:
        """Continues to read, for `seconds` at most."""
        try:
            self._follower.read(seconds)
        except OSError:
            pass  # it can't be read now; the next read tries again

    def may_have_changed(self) -> bool:
        """Whether the stories of an ended run may be other than when this was last asked."""
        if self.view.recorded.end is None or self.is_behind:
            return False
        before, self._seen = self._seen, data.read_fingerprint(self.run.root)
        return before != self._seen

    def find_current(self) -> Callable[[], None]:
        """Reads the stories as they are now, which takes a while. Calling the result shows them."""
        view = self.view
        now = since.update_run(self.run, view.recorded)
        return lambda: setattr(view, "run", now)
