"""The spans of a run, from its events: run → attempt at a story → agent → tool; setup, gates, merges and waits.

The same events give the same spans with the same ids, whether they are read at once or as they arrive. A span
is returned when it has ended; spans that are open at the end of a run end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.record import trace_ids
from ralphtool.record.events import (
    Agent,
    Checkpoint,
    Decision,
    Denied,
    Gate,
    GateStarted,
    HandedOver,
    IterationStarted,
    Merged,
    Merging,
    Paused,
    Proof,
    Question,
    Queued,
    Reopened,
    Resumed,
    RunEnded,
    RunStarted,
    SentBack,
    Setup,
    Verdict,
    Waiting,
    WorkerJoined,
)
from ralphtool.record.view_parts import parse_time
from ralphtool.views.otel.attempt_spans import AttemptSpans, Trace
from ralphtool.views.otel.model import clean, clean_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphtool.record.events import Event
    from ralphtool.views.otel.model import OpenSpan, Span

_ENDS_WAIT = (IterationStarted, GateStarted, Gate, Verdict, Decision, Question, Paused, Resumed, Waiting, RunEnded)
_ENDS_JUDGED = (IterationStarted, Verdict, Waiting, Paused, RunEnded)  # no proof comes after one of these
_OF_NO_ATTEMPT = ("tip", "outside", "blind")  # gates outside attempts, unless they name an iteration


def build_spans(
    events: Iterable[Event], run: str = "", *, is_over: bool = True, read: Callable[[str], str] | None = None
) -> list[Span]:
    """All spans of a record; if the run is not over, those that have ended. With `read`, they have content."""
    events = list(events)
    named = run or next((event.run for event in events if isinstance(event, RunStarted)), "")
    builder = SpanBuilder(named, read)
    spans = [span for event in events for span in builder.feed(event)]
    return [*spans, *(builder.finish() if is_over else ())]


class SpanBuilder:
    """Takes the events of a run one by one; returns the spans that each of them ends."""

    def __init__(self, run: str, read: Callable[[str], str] | None = None) -> None:
        self._named = run, trace_ids.build_trace_id(run), read
        self._reset()

    def _reset(self) -> None:
        self._trace = Trace(*self._named, {})
        self._now = 0
        self._run: AttemptSpans | None = None
        self._under_way: dict[int, AttemptSpans] = {}  # attempts by number, the newest last
        self._judged: dict[int, tuple[AttemptSpans, int]] = {}  # and when each ended
        self._wait: OpenSpan | None = None
        self._wait_until = 0
        self.is_over = False

    @property
    def start(self) -> int:
        """When the run began, in nanoseconds."""
        return self._run.span.start if self._run else self._now

    def feed(self, event: Event) -> list[Span]:
        if isinstance(event, RunStarted):
            self._reset()  # a replaced record is read from its beginning
        if self.is_over:
            return []
        seconds = parse_time(event.at)
        at = self._now if seconds is None else round(seconds * 1e6) * 1000
        self._now = max(self._now, at)
        run = self._run = self._run or self._begin_run(at)
        ended = self._end_wait(at) if isinstance(event, _ENDS_WAIT) else []
        if isinstance(event, _ENDS_JUDGED):
            ended += self._end_judged()
        return ended + self._apply(event, at, run)

    def _begin_run(self, at: int) -> AttemptSpans:
        span = self._trace.open("run", 0, "invoke_workflow", at)
        told = {"gen_ai.operation.name": "invoke_workflow", "ralphtool.run": clean(self._trace.run)}
        span.attributes |= told
        return AttemptSpans(self._trace, span)

    def finish(self) -> list[Span]:
        """Ends all open spans: a run without an end in its record has died."""
        if self._run is None or self.is_over:
            return []
        self._run.span.fail("died")
        return self._close_all(self._now)

    def _close_all(self, at: int) -> list[Span]:
        ended = self._end_judged() + self._end_wait(at)
        for attempt in self._under_way.values():
            ended += attempt.cut_off(at)
        if self._run:
            ended += [*self._run.close_all(at), self._run.span.close(at)]
        self._under_way, self.is_over = {}, True
        return ended

    # --- the effect of each event ---------------------------------------------------------------

    def _apply(self, event: Event, at: int, run: AttemptSpans) -> list[Span]:
        """Passes the event to its attempt, or to the run."""
        if isinstance(event, Agent):
            return self._find(event.iteration).feed_agent(event.event, at)
        if isinstance(event, Setup):
            return self._find(event.iteration).feed_setup(event, at)
        if isinstance(event, GateStarted):
            return self._find_gate(event).begin_gate(event, at)
        if isinstance(event, Gate):
            return self._find_gate(event).feed_gate(event, at)
        if isinstance(event, IterationStarted):
            return self._begin_attempt(event, at, run)
        if isinstance(event, Queued | Merging | Merged | SentBack):
            return self._apply_merge(event, at)
        if isinstance(event, Verdict):
            return self._judge(event.iteration, event, at)
        if isinstance(event, Decision | Checkpoint | Proof):
            return self._apply_outcome(event, at)
        return self._apply_to_run(event, at, run)

    def _apply_to_run(self, event: Event, at: int, run: AttemptSpans) -> list[Span]:
        if isinstance(event, RunStarted):
            self._describe_run(event, run.span)
        elif isinstance(event, WorkerJoined):
            if event.iteration in self._under_way:
                self._under_way[event.iteration].join(event.worker, at)
        elif isinstance(event, Waiting | Paused):
            self._begin_wait(event, at, run)
        elif isinstance(event, Question | HandedOver | Reopened | Denied):
            _note_on_run(event, at, run.span)
        elif isinstance(event, RunEnded):
            run.span.attributes["ralphtool.result"] = clean(event.result)
            if event.result == "unfinished":
                run.span.fail("unfinished", event.reason if self._trace.has_content else "")
            return self._close_all(at)
        return []

    def _describe_run(self, event: RunStarted, span: OpenSpan) -> None:
        change = clean(event.change)
        span.name = f"invoke_workflow {change}".rstrip()
        span.attributes |= {"gen_ai.workflow.name": change, "ralphtool.change": change}
        span.attributes |= {"ralphtool.agent": clean(event.agent), "ralphtool.stories": len(event.stories)}

    # --- attempts -------------------------------------------------------------------------------

    def _find(self, iteration: int) -> AttemptSpans:
        """The attempt that an event belongs to. Old records don't say: then it is the newest."""
        last = next(reversed(self._under_way.values()), None)
        found = (self._under_way.get(iteration) if iteration else last) or self._run
        return found or self._begin_run(self._now)

    def _find_gate(self, event: GateStarted | Gate) -> AttemptSpans:
        belongs_to_run = not event.iteration and event.when in _OF_NO_ATTEMPT
        return self._run if belongs_to_run and self._run else self._find(event.iteration)

    def _begin_attempt(self, event: IterationStarted, at: int, run: AttemptSpans) -> list[Span]:
        number = event.iteration or event.number
        ended = self._cut_off(number, at)
        span = self._trace.open("story", number, f"story {event.story}", at, run.span.span_id)
        span.attributes |= {"ralphtool.story": clean(event.story), "ralphtool.attempt": event.attempt}
        span.attributes |= {"ralphtool.iteration": number, "ralphtool.agent": clean(event.agent)}
        if self._trace.has_content and event.title:
            span.attributes["ralphtool.story.title"] = clean_content(event.title)
        self._under_way[number] = AttemptSpans(self._trace, span, event, number)
        return ended

    def _cut_off(self, number: int, at: int) -> list[Span]:
        attempt = self._under_way.pop(number, None)
        return attempt.cut_off(at) if attempt else []

    def _apply_merge(self, event: Queued | Merging | Merged | SentBack, at: int) -> list[Span]:
        ended = self._find(event.iteration).feed_queue(event, at)
        return ended + (self._judge(event.iteration, event, at) if isinstance(event, SentBack) else [])

    def _judge(self, iteration: int, event: Verdict | SentBack, at: int) -> list[Span]:
        number = iteration or next(reversed(self._under_way), 0)
        attempt = self._under_way.pop(number, None)
        if attempt is None:
            return []
        self._judged[number] = attempt, at
        return attempt.judge(event, at)

    def _apply_outcome(self, event: Decision | Checkpoint | Proof, at: int) -> list[Span]:
        number = event.iteration or next(reversed(self._judged), 0)
        if number not in self._judged:
            return []
        span = self._judged[number][0].span
        if isinstance(event, Decision):
            span.attributes["ralphtool.decision"] = clean(event.action)
            return [] if span.attributes.get("ralphtool.verdict") == "completed" else self._end_judged(number)
        state = event.receipt.state if isinstance(event, Proof) else event.proof
        if state:
            span.attributes["ralphtool.proof"] = clean(state)
        if isinstance(event, Checkpoint) and event.commit:
            span.attributes["ralphtool.commit"] = clean(event.commit)
        return self._end_judged(number) if isinstance(event, Proof) else []

    def _end_judged(self, number: int | None = None) -> list[Span]:
        chosen = list(self._judged) if number is None else [number]
        return [attempt.span.close(at) for attempt, at in map(self._judged.pop, chosen)]

    # --- waits ----------------------------------------------------------------------------------

    def _begin_wait(self, event: Waiting | Paused, at: int, run: AttemptSpans) -> None:
        name = "wait" if isinstance(event, Waiting) else "pause"
        self._wait = self._trace.open("wait", 0, name, at, run.span.span_id)
        self._wait_until = at + round(event.seconds * 1e9) if isinstance(event, Waiting) and event.seconds else 0
        if self._trace.has_content and event.why:
            self._wait.attributes["ralphtool.why"] = clean_content(event.why)

    def _end_wait(self, at: int) -> list[Span]:
        wait, self._wait = self._wait, None
        return [wait.close(min(at, self._wait_until or at))] if wait else []


def _note_on_run(event: Question | HandedOver | Reopened | Denied, at: int, span: OpenSpan) -> None:
    if isinstance(event, HandedOver):
        told = {"ralphtool.from": clean(event.from_), "ralphtool.to": clean(event.to)}
        span.note("ralphtool.handed_over", at, {**told})
    elif isinstance(event, Denied):
        span.note("ralphtool.denied", at, {"server.address": clean(event.host), "server.port": event.port})
    else:
        name = "question" if isinstance(event, Question) else "reopened"
        span.note(f"ralphtool.{name}", at, {"ralphtool.story": clean(event.story)})
