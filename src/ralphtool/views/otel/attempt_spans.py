"""The spans of one attempt at a story: its agent with the tools, its setup, its gates, its merge.

The record says when a tool was called, and only sometimes when it returned: a tool lasts until its result, or until
the agent's next tool or message. An agent's span begins when the previous step of its attempt has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import agents
from ralphtool.record import trace_ids
from ralphtool.record.events import Merging, Queued, SentBack, Verdict
from ralphtool.views.otel.model import OpenSpan, clean, clean_content, clean_name
from ralphtool.views.otel.providers import find_provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.record.events import AgentEvent, Gate, GateStarted, IterationStarted, Merged, Setup
    from ralphtool.views.otel.model import Attributes, Span

_RED_IS_WANTED = ("own-tests", "own-tests-again", "blind")  # tests must fail without the work, and on broken source
_FAILED = ("failed", "blocked")
_MOST_MESSAGES = 20  # the last ones are kept
_MOST_GATES = 1000  # that have not ended yet


class Trace(Struct, frozen=True):
    """What all spans of a run have in common."""

    run: str
    id: str
    read: Callable[[str], str] | None
    """Reads a file that the record names; None if content is not wanted"""
    counts: dict[tuple[str, int], int]
    """The number of spans of each kind in an iteration. If an iteration's number is used again, counting continues"""

    @property
    def has_content(self) -> bool:
        return self.read is not None

    def read_file(self, path: str) -> str:
        return self.read(path) if self.read and path else ""

    def open(self, kind: str, number: int, name: str, start: int, parent: str = "") -> OpenSpan:
        nth = self.counts.get((kind, number), 0)
        self.counts[kind, number] = nth + 1
        return OpenSpan(
            trace_id=self.id,
            span_id=trace_ids.build_span_id(self.run, kind, number, nth),
            parent_id=parent,
            name=clean_name(name),
            start=start,
        )


class AttemptSpans:
    """The open spans of an attempt. Number 0 has the run's own span, and everything outside attempts."""

    def __init__(self, trace: Trace, span: OpenSpan, start: IterationStarted | None = None, number: int = 0) -> None:
        self.trace = trace
        self.span = span
        self.number = number
        self._agent_name = start.agent if start else ""
        self._prompt = f"{start.directory}/prompt.md" if start and start.directory else ""
        self._anchor = span.start  # when the step before the agent ended
        self._agent: OpenSpan | None = None
        self._messages: list[str] = []
        self._trouble = ""
        self._tool: OpenSpan | None = None
        self._gates: dict[tuple[str, str], OpenSpan] = {}
        self._merge: OpenSpan | None = None  # or the wait for it
        self._cost: float | None = None  # as far as its agents have reported it

    def _open(self, kind: str, name: str, start: int, parent: OpenSpan | None = None) -> OpenSpan:
        return self.trace.open(kind, self.number, name, start, (parent or self.span).span_id)

    def close_all(self, at: int) -> list[Span]:
        """Ends all open spans, except the attempt's own."""
        left = [*self._gates.values(), *([self._merge] if self._merge else [])]
        ended = [*self._end_agent(at), *(span.close(at) for span in left)]
        self._gates, self._merge = {}, None
        return ended

    def cut_off(self, at: int) -> list[Span]:
        """Ends all spans of an attempt without a verdict."""
        self._set_reported_cost()
        return [*self.close_all(at), self.span.close(at)]

    def _set_reported_cost(self) -> None:
        """Without a verdict, its cost is known from its agents only."""
        if self._cost is not None:
            self.span.attributes["ralphtool.cost"] = self._cost

    def join(self, worker: str, at: int) -> None:
        """A worker on another machine has started the attempt."""
        self._anchor = at
        self.span.attributes["ralphtool.worker"] = clean(worker)

    # --- the agent ------------------------------------------------------------------------------

    def feed_agent(self, said: AgentEvent, at: int) -> list[Span]:
        agent = self._agent or self._begin_agent(at)
        if isinstance(said, agents.Tool):
            ended = self._end_tool(at)
            self._begin_tool(said, agent, at)
            return ended
        if isinstance(said, agents.Result):
            return self._end_tool(at, said)
        if isinstance(said, agents.Usage):
            _add_usage(agent.attributes, said, self._agent_name)
            self._cost = self._cost if said.cost is None else (self._cost or 0.0) + said.cost
        elif isinstance(said, agents.Message):
            self._keep_message(said.text)
            return self._end_tool(at)
        elif isinstance(said, agents.Failure):
            self._trouble = said.trouble
        elif isinstance(said, agents.End):
            self._apply_end(said, agent)
            return self._end_agent(at)
        return []

    def _begin_agent(self, at: int) -> OpenSpan:
        name = clean_name(self._agent_name)
        agent = self._agent = self._open("agent", f"invoke_agent {name}".rstrip(), min(self._anchor, at))
        told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": find_provider(name)}
        agent.attributes |= told | {"gen_ai.agent.name": name} | self._name_story()
        if prompt := self.trace.read_file(self._prompt):
            agent.attributes["gen_ai.input.messages"] = _encode_messages("user", [prompt])
        return agent

    def _name_story(self) -> Attributes:
        names = ("ralphtool.story", "ralphtool.attempt", "ralphtool.worker")
        return {name: self.span.attributes[name] for name in names if name in self.span.attributes}

    def _keep_message(self, text: str) -> None:
        if self.trace.has_content:
            self._messages = [*self._messages[1 - _MOST_MESSAGES :], text]

    def _apply_end(self, said: agents.End, agent: OpenSpan) -> None:
        if said.message and said.message not in self._messages[-1:]:
            self._keep_message(said.message)
        if not said.ok:
            agent.fail(self._trouble or "_OTHER", said.reason if self.trace.has_content else "")

    def _end_agent(self, at: int) -> list[Span]:
        ended = self._end_tool(at)
        if self._agent:
            if self._messages:
                self._agent.attributes["gen_ai.output.messages"] = _encode_messages("assistant", self._messages)
            ended.append(self._agent.close(at))
            self._anchor = at
        self._agent, self._messages, self._trouble = None, [], ""
        return ended

    def _begin_tool(self, said: agents.Tool, agent: OpenSpan, at: int) -> None:
        name = clean_name(said.name)
        tool = self._tool = self._open("tool", f"execute_tool {name}", at, agent)
        tool.attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if self.trace.has_content and said.detail:
            tool.attributes["gen_ai.tool.call.arguments"] = clean_content(said.detail)

    def _end_tool(self, at: int, result: agents.Result | None = None) -> list[Span]:
        tool, self._tool = self._tool, None
        if tool is None:
            return []
        if result and self.trace.has_content:
            tool.attributes["gen_ai.tool.call.result"] = clean_content(result.text)
        if result and not result.ok:
            tool.fail("_OTHER")
        return [tool.close(at)]

    # --- setup and gates ------------------------------------------------------------------------

    def feed_setup(self, event: Setup, at: int) -> list[Span]:
        setup = self._open("setup", "setup", at - round(event.seconds * 1e9))
        setup.attributes |= {"ralphtool.command": clean(event.command), "ralphtool.ok": event.ok}
        self._apply_exit(setup, event, at)
        return [setup.close(at)]

    def begin_gate(self, event: GateStarted, at: int) -> list[Span]:
        if len(self._gates) < _MOST_GATES:
            self._gates[event.when, event.command] = self._open_gate(event, at)
        return []

    def _open_gate(self, event: GateStarted | Gate, start: int) -> OpenSpan:
        gate = self._open("gate", f"gate {event.when}".rstrip(), start)
        gate.attributes |= {"ralphtool.gate.when": clean(event.when), "ralphtool.command": clean(event.command)}
        gate.attributes |= self._name_story()
        return gate

    def feed_gate(self, event: Gate, at: int) -> list[Span]:
        gate = self._gates.pop((event.when, event.command), None)
        gate = gate or self._open_gate(event, at - round(event.seconds * 1e9))
        gate.attributes |= {"ralphtool.ok": event.ok, "ralphtool.gate.failed_tests": len(event.failed)}
        self._apply_exit(gate, event, at)
        if self.trace.has_content:
            told = {"tally": event.tally or "", "failed": "\n".join(event.failed), "new": "\n".join(event.new)}
            gate.attributes |= {f"ralphtool.gate.{key}": clean_content(text) for key, text in told.items() if text}
        return [gate.close(at)]

    def _apply_exit(self, span: OpenSpan, event: Gate | Setup, at: int) -> None:
        if event.exit_code is not None:
            span.attributes["process.exit.code"] = event.exit_code
        if not event.ok and getattr(event, "when", "") not in _RED_IS_WANTED:
            span.fail("red")
        if output := self.trace.read_file(event.log):
            span.attributes["ralphtool.output"] = clean_content(output)
        self._anchor = at

    # --- side by side ---------------------------------------------------------------------------

    def feed_queue(self, event: Queued | Merging | Merged | SentBack, at: int) -> list[Span]:
        ended = self._end_merge(event, at)
        if isinstance(event, Queued | Merging):
            is_merge = isinstance(event, Merging)
            merge = self._merge = self._open(*(("merge", "merge") if is_merge else ("queue", "wait for merge")), at)
            merge.attributes |= self._name_story()
            merge.attributes |= {"ralphtool.merge.upon": clean(event.upon)} if isinstance(event, Merging) else {}
        return ended

    def _end_merge(self, event: Queued | Merging | Merged | SentBack, at: int) -> list[Span]:
        merge, self._merge = self._merge, None
        if merge is None:
            return []
        if isinstance(event, SentBack):
            merge.fail(event.why or "_OTHER")
        return [merge.close(at)]

    # --- the end --------------------------------------------------------------------------------

    def judge(self, event: Verdict | SentBack, at: int) -> list[Span]:
        """Ends all open spans, except the attempt's own: it stays open for its proof."""
        told, is_sent_back = self.span.attributes, isinstance(event, SentBack)
        status = "sent-back" if isinstance(event, SentBack) else event.status
        told["ralphtool.verdict"] = clean(status)
        if isinstance(event, Verdict):
            counted = {"ralphtool.tasks_done": event.tasks_done, "ralphtool.tasks_total": event.tasks_total}
            used = {"ralphtool.input_tokens": event.input_tokens, "ralphtool.output_tokens": event.output_tokens}
            told |= counted | used | ({} if event.cost is None else {"ralphtool.cost": float(event.cost)})
        else:
            self._set_reported_cost()
        summary = event.summary if isinstance(event, Verdict) and self.trace.has_content else ""
        if summary:
            told["ralphtool.summary"] = clean_content(summary)
        if is_sent_back or status in _FAILED:
            self.span.fail(status, summary)
        return self.close_all(at)


def _add_usage(told: Attributes, usage: agents.Usage, agent: str) -> None:
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cached_tokens:
        counts["cache_read.input_tokens"] = usage.cached_tokens
    for name, count in counts.items():
        before = told.get(f"gen_ai.usage.{name}", 0)
        told[f"gen_ai.usage.{name}"] = count + (before if isinstance(before, int) else 0)
    if usage.cost is not None:
        spent = told.get("ralphtool.cost", 0.0)
        told["ralphtool.cost"] = usage.cost + (spent if isinstance(spent, float) else 0.0)
    if usage.model:
        model = clean_name(usage.model)
        told |= {"gen_ai.request.model": model, "gen_ai.response.model": model}
        told["gen_ai.provider.name"] = find_provider(clean_name(agent), model)


def _encode_messages(role: str, texts: list[str]) -> str:
    """Messages in the conventions' format for attributes that can only be strings."""
    parts = [{"type": "text", "content": clean_content(text)} for text in texts]
    return msgspec.json.encode([{"role": role, "parts": parts}]).decode()
