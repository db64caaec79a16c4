"""The scripted agent: plays a script instead of asking a model. See docs/scripted-agent.md.

For demonstrations, for our own tests, and for people who want to see how their gates judge good and bad work.
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
    read_list,
    scripted_program,
)
from ralphtool.agents.json_lines import Lines
from ralphtool.errors import InvalidValue, shorten
from ralphtool.typed import build_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# A file that is started by its path is compiled each time; a loader caches the compiled code.
_START = """\
import sys, importlib.machinery
del sys.argv[0]
exec(importlib.machinery.SourceFileLoader("scripted_program", sys.argv[0]).get_code("scripted_program"))
"""


class Scripted:
    """`args` contains the script's path."""

    traits = Traits(cost="told", example='args = ["script.toml"]')

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._args = tuple(read_list(options, "args"))
        self._env = dict(options.get("env") or {})

    def check(self) -> None:
        problems = scripted_program.find_problems(self._script_path())
        if problems:
            raise InvalidValue("the script is invalid:\n" + "\n".join(problems))

    def start(self, job: Job) -> Start:
        # By its path, not with -m: so only the standard library is loaded, and nothing from the tree that it works
        # in. With -P, our modules next to it can't shadow those of the standard library either.
        argv = (sys.executable, "-P", "-c", _START, os.path.abspath(scripted_program.__file__), self._script_path())
        draft = {"RALPH_DRAFT": job.draft} if job.draft else {}
        return Start(argv=argv, stdin=job.prompt, env={"RALPH_ATTEMPT": str(job.attempt), **draft, **self._env})

    def reader(self, job: Job) -> ScriptedReader:
        return ScriptedReader()

    def _script_path(self) -> str:
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


class ScriptedLineBase(Struct, frozen=True, tag_field="type"):
    """One line of the player's output; unknown fields are ignored."""


class ScriptedMessageLine(ScriptedLineBase, frozen=True, tag="message"):
    text: str


class ScriptedToolLine(ScriptedLineBase, frozen=True, tag="tool"):
    name: str
    detail: str = ""


class ScriptedUsageLine(ScriptedLineBase, frozen=True, tag="usage"):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost: Amount | None = None


class ScriptedErrorLine(ScriptedLineBase, frozen=True, tag="error"):
    trouble: Trouble
    text: str = ""
    reset_in: Amount | None = None


class ScriptedEndLine(ScriptedLineBase, frozen=True, tag="end"):
    ok: bool
    message: str = ""
    reason: str = ""


ScriptedLine = ScriptedMessageLine | ScriptedToolLine | ScriptedUsageLine | ScriptedErrorLine | ScriptedEndLine


class ScriptedReader(Lines[ScriptedLine]):
    """Turns the player's lines into events."""

    decoder: ClassVar[Decoder[Any]] = build_decoder(ScriptedLine)
    longest = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self._end: ScriptedEndLine | None = None

    def take(self, line: ScriptedLine) -> Iterable[Event]:
        if isinstance(line, ScriptedEndLine):
            self._end, self.is_over = line, True
            return ()
        return (_build_event(line),)

    def end(self, exit_code: int) -> End:
        if self._end:
            return End(self._end.ok, self._end.message, self._end.reason)
        return self.without_an_end(exit_code)


def _build_event(line: ScriptedMessageLine | ScriptedToolLine | ScriptedUsageLine | ScriptedErrorLine) -> Event:
    match line:
        case ScriptedMessageLine():
            return Message(line.text)
        case ScriptedToolLine():
            return Tool(line.name, line.detail)
        case ScriptedUsageLine():
            return Usage(line.input_tokens, line.output_tokens, line.cost)
        case ScriptedErrorLine():
            reset_at = None if line.reset_in is None else time.time() + line.reset_in
            return Failure(line.trouble, line.text, reset_at)
