"""The scripted agent: plays a script instead of asking a model. See docs/scripted-agent.md.

For demonstrations, for our own tests, and for people who want to see what their gates make of good and bad work.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder

from ralphtool.agents import End, Event, Failure, Job, Message, Start, Tool, Trouble, Usage, play, texts
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST_LINE = 1 << 20  # bytes; no event of ours is longer, and a flood without an end shall fill no memory


class Scripted:
    """`args` holds the script's path."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._args = tuple(texts(options, "args"))
        self._env = dict(options.get("env") or {})

    def check(self) -> None:
        problems = play.script_problems(self._script())
        if problems:
            raise InvalidValue("the script can't be played:\n" + "\n".join(problems))

    def start(self, job: Job) -> Start:
        # By its path, not with -m: so nothing but the standard library is loaded, and nothing from the tree that
        # it works in. With -P, our modules beside it can't be taken for the standard library's either.
        argv = (sys.executable, "-P", os.path.abspath(play.__file__), self._script())
        return Start(argv=argv, stdin=job.prompt, env={"RALPH_ATTEMPT": str(job.attempt), **self._env})

    def reader(self) -> Lines:
        return Lines()

    def _script(self) -> str:
        if len(self._args) != 1:
            given = f"{len(self._args)} arguments" if self._args else "no script"
            raise InvalidValue(
                f"the agent {shorten(self.name)} has {given}: name its script in .ralph/config.toml as "
                f'[agents.{self.name}] with args = ["path/to/script.toml"]'
            )
        return os.path.abspath(self._args[0])


# --- what the player prints -------------------------------------------------------------------------

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class Line(Struct, frozen=True, tag_field="type"):
    """One line of the player's output; fields that we don't know are passed over."""


class MessageLine(Line, frozen=True, tag="message"):
    text: str


class ToolLine(Line, frozen=True, tag="tool"):
    name: str
    detail: str = ""


class UsageLine(Line, frozen=True, tag="usage"):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost: Amount = 0.0


class ErrorLine(Line, frozen=True, tag="error"):
    trouble: Trouble
    text: str = ""
    reset_in: Amount | None = None


class EndLine(Line, frozen=True, tag="end"):
    ok: bool
    message: str = ""
    reason: str = ""


AnyLine = MessageLine | ToolLine | UsageLine | ErrorLine | EndLine
_DECODER: Decoder[AnyLine] = Decoder(AnyLine)


def _decoded(line: bytes | bytearray) -> AnyLine | None:
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError):  # DecodeError and UnicodeDecodeError are ValueErrors
        return None  # not an event: it stands in the transcript for whoever wants to know


class Lines:
    """Makes events of the player's lines; those that are too long are dropped, whatever they hold."""

    def __init__(self) -> None:
        self._begun = bytearray()  # the line that has not ended yet
        self._too_long = False
        self._end: EndLine | None = None

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """Keeps the terminal event for `end`: nothing is over before the program is."""
        start = 0
        events: list[Event] = []
        while (stop := chunk.find(b"\n", start)) >= 0:
            self._add(chunk, start, stop)
            if event := self._take():
                events.append(event)
            start = stop + 1
        self._add(chunk, start, len(chunk))
        return events

    def end(self, exit_code: int) -> End:
        self._take()
        if self._end:
            return End(self._end.ok, self._end.message, self._end.reason)
        ending = f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"
        return End(False, reason=f"ended without a final event ({ending})")

    def _add(self, chunk: bytes, start: int, stop: int) -> None:
        if self._too_long or len(self._begun) + stop - start > _LONGEST_LINE:
            self._too_long = True
            self._begun.clear()
        else:
            self._begun += chunk[start:stop]

    def _take(self) -> Event | None:
        """The line that has just ended, as an event."""
        line = None if self._too_long or not self._begun else _decoded(self._begun)
        self._begun.clear()
        self._too_long = False
        if isinstance(line, EndLine):
            self._end = line
            return None
        return _event(line) if line else None


def _event(line: MessageLine | ToolLine | UsageLine | ErrorLine) -> Event:
    match line:
        case MessageLine():
            return Message(line.text)
        case ToolLine():
            return Tool(line.name, line.detail)
        case UsageLine():
            return Usage(line.input_tokens, line.output_tokens, line.cost)
        case ErrorLine():
            reset_at = None if line.reset_in is None else time.time() + line.reset_in
            return Failure(line.trouble, line.text, reset_at)
