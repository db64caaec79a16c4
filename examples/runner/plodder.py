"""The runner of `plodder`, a fictional agent that reads a prompt on standard input and prints JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.json import Decoder

from ralphtool.agents import End, Event, Job, Message, Start, Tool, Traits, Usage, failures
from ralphtool.agents.json_lines import Lines
from ralphtool.agents.program import Program


class Plodder(Program):
    program, package, oldest = "plodder", "npm install -g @example/plodder", (1, 2, 0)
    skips = "it can run any command and change any file that you can"
    kept_to = "edits files and ticks tasks, but runs no other command"

    tells = Traits(cost="tokens", read_only=True, config_paths=(".plodder/",), login_hint="run `plodder login`")

    def start(self, job: Job) -> Start:
        may = "look" if job.read_only else "all" if self.may_do_all else "edit"
        model = ["--model", self.model] if self.model else []
        return Start(argv=(*self.command, "--json", "--may", may, *model, *self.args), stdin=job.prompt, env=self.env)

    def reader(self, job: Job) -> PlodderLines:
        return PlodderLines()


class Line(Struct, frozen=True):
    event: str
    text: str = ""
    path: str = ""
    tokens: tuple[int, int] = (0, 0)
    status: int | None = None


class PlodderLines(Lines[Line]):
    decoder: ClassVar[Decoder[Any]] = Decoder(Line)
    answer: str | None = None  # its final message, once it reported that it was done

    def take(self, line: Line) -> Iterable[Event]:
        match line.event:
            case "says":
                return [Message(line.text), Usage(*line.tokens)]
            case "does":
                return [Tool(line.text, line.path)]
            case "fails":
                return [failures.failure(line.text, line.status)]
            case "done":
                self.answer = line.text
        return []

    def end(self, exit_code: int) -> End:
        return self.without_an_end(exit_code) if self.answer is None else End(True, self.answer, "done")
