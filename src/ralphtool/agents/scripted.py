"""The scripted agent: plays a script instead of asking a model. See docs/scripted-agent.md.

For demonstrations, for our own tests, and for people who want to see what their gates make of good and bad work.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta, Struct
from msgspec.json import Decoder

from ralphtool.agents import (
    End,
    Event,
    Failure,
    Job,
    Message,
    Start,
    Tool,
    Traits,
    Trouble,
    Usage,
    scripted_program,
    texts,
)
from ralphtool.agents.json_lines import Lines
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Scripted:
    """`args` holds the script's path."""

    traits = Traits(cost="told", example='args = ["script.toml"]')

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._args = tuple(texts(options, "args"))
        self._env = dict(options.get("env") or {})

    def check(self) -> None:
        problems = scripted_program.script_problems(self._script())
        if problems:
            raise InvalidValue("the script can't be played:\n" + "\n".join(problems))

    def start(self, job: Job) -> Start:
        # By its path, not with -m: so nothing but the standard library is loaded, and nothing from the tree that
        # it works in. With -P, our modules beside it can't be taken for the standard library's either.
        argv = (sys.executable, "-P", os.path.abspath(scripted_program.__file__), self._script())
        return Start(argv=argv, stdin=job.prompt, env={"RALPH_ATTEMPT": str(job.attempt), **self._env})

    def reader(self, job: Job) -> PlayedLines:
        return PlayedLines()

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
    cost: Amount | None = None


class ErrorLine(Line, frozen=True, tag="error"):
    trouble: Trouble
    text: str = ""
    reset_in: Amount | None = None


class EndLine(Line, frozen=True, tag="end"):
    ok: bool
    message: str = ""
    reason: str = ""


AnyLine = MessageLine | ToolLine | UsageLine | ErrorLine | EndLine


class PlayedLines(Lines[AnyLine]):
    """Makes events of the player's lines."""

    decoder: ClassVar[Decoder[Any]] = Decoder(AnyLine)
    longest = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self._end: EndLine | None = None

    def take(self, line: AnyLine) -> Iterable[Event]:
        if isinstance(line, EndLine):
            self._end, self.is_over = line, True
            return ()
        return (_event(line),)

    def end(self, exit_code: int) -> End:
        if self._end:
            return End(self._end.ok, self._end.message, self._end.reason)
        return self.without_an_end(exit_code)


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
