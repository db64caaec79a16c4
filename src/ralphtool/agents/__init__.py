"""Agents: the outside programs that write code, and how they are driven.

A runner knows one kind of agent: how it is started, and what its output means. It starts nothing itself and
keeps no state between iterations; a reader lives for one of them. The loop knows no concrete agent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BUILT_IN = {
    "command": "ralphtool.agents.command:Command",
    "scripted": "ralphtool.agents.scripted:Scripted",
}
ENTRY_POINTS = "ralphtool.agents"

Trouble = Literal["rate-limit", "overload", "network", "login", "context", "other"]
TRANSIENT: tuple[Trouble, ...] = ("rate-limit", "overload", "network", "login")


# --- what an agent emits ----------------------------------------------------------------------------


class Event(Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """Something that an agent emitted, live."""


class Output(Event, frozen=True):
    """A piece of plain output, to be looked at only."""

    text: str


class Message(Event, frozen=True):
    """Something that the agent said."""

    text: str


class Tool(Event, frozen=True):
    """The agent uses a tool."""

    name: str
    detail: str = ""


class Usage(Event, frozen=True):
    """What has been used up since the last report; `cost` in dollars, where the agent tells it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class Failure(Event, frozen=True):
    """Something went wrong on the agent's side; the agent may go on."""

    trouble: Trouble
    text: str
    reset_at: float | None = None  # seconds since the epoch, where the agent tells when it can go on


class End(Event, frozen=True):
    """The agent's own terminal truth. `message` is its final message, or the end of it."""

    ok: bool
    message: str = ""
    reason: str = ""


# --- who drives it ----------------------------------------------------------------------------------


class Job(Struct, frozen=True, kw_only=True):
    """What one iteration asks of an agent."""

    prompt: str  # the path of the file that holds it
    root: str  # where it works
    attempt: int = 1
    read_only: bool = False


class Start(Struct, frozen=True, kw_only=True):
    """How the program is started. It gets our environment, the session's variables, and `env` besides."""

    argv: tuple[str, ...]
    stdin: str | None = None  # the path of a file; None is an empty one
    env: dict[str, str] = {}


class Reader(Protocol):
    """Makes events of one agent's standard output."""

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """Takes what has come, in pieces of any size."""
        ...

    def end(self, exit_code: int) -> End:
        """The program is gone; a negative code is the signal that ended it."""
        ...


class Runner(Protocol):
    """Drives one kind of agent."""

    name: str

    def check(self) -> None:
        """Raises InvalidValue, with what to do, if the program can't be started at all."""
        ...

    def start(self, job: Job) -> Start: ...

    def reader(self) -> Reader: ...


def make(name: str, options: Mapping[str, Any]) -> Runner:
    """The runner of that name. `options` is its table `[agents.NAME]`; one with a `command` can have any name."""
    kind = name if name in BUILT_IN else "command" if options.get("command") else None
    target = BUILT_IN[kind] if kind else _stranger(name)
    module, _, attribute = target.partition(":")
    found: Runner = getattr(importlib.import_module(module), attribute)(name, options)
    return found


def _stranger(name: str) -> str:
    from importlib.metadata import entry_points

    strangers = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name in strangers:
        return strangers[name]
    raise InvalidValue(
        f'there is no agent {shorten(name)}: give one as `--agent-command "…"`, or describe it in '
        f'.ralph/config.toml as [agents.{name}] with command = ["…"]'
    )


def texts(options: Mapping[str, Any], key: str) -> Sequence[str]:
    """A list of texts among an agent's options."""
    value: Sequence[str] = options.get(key) or ()
    return value
