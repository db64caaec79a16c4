"""What a scripted model does, turn by turn, for any agent.

A scenario chooses a turn for a request. `script` builds one from a list: the number of the model's messages in the
conversation decides the turn, so a fresh conversation begins at the first, and a repeated request gets the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

_TOKEN = re.compile(r"^token: ([0-9a-f]{32})\s*$", re.MULTILINE)
_TITLE = re.compile(r"title generator|generate .{0,60}\btitle\b", re.IGNORECASE)


class Request(Struct, frozen=True, kw_only=True):
    """A request of an agent."""

    dialect: str
    model: str = ""
    system: str = ""
    prompt: str  # all texts of the user's side, without tool results
    step: int  # the number of the model's earlier messages
    tools: tuple[str, ...] = ()  # that the model may call
    results: tuple[str, ...] = ()  # of tools, the latest one last
    stream: bool = True
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}

    @property
    def token(self) -> str:
        """The token in the prompt of a `ralphtool run`; empty in other prompts."""
        found = _TOKEN.search(self.prompt)
        return found[1] if found else ""

    @property
    def promise(self) -> str:
        """The promise that such a prompt requires."""
        return f"<promise>COMPLETE:{self.token}</promise>" if self.token else ""

    @property
    def asks_for_title(self) -> bool:
        """Agents ask for a title of the conversation, besides the work, and at any time."""
        return not self.tools and _TITLE.search(self.system) is not None


class Turn(Struct, frozen=True):
    """What the model does on a request."""


class Say(Turn, frozen=True):
    """It says something, and is done. `{promise}` and `{token}` are replaced by those of the prompt."""

    text: str


class Write(Turn, frozen=True):
    """It writes a file, with the agent's tool for that."""

    path: str
    content: str


class Run(Turn, frozen=True):
    """It runs a command, with the agent's tool for that."""

    command: str


class Mcp(Turn, frozen=True):
    """It calls a tool of an MCP server, by the agent's name for it."""

    tool: str
    arguments: dict[str, Any] = {}


class Call(Turn, frozen=True):
    """It calls a tool by its exact name."""

    tool: str
    arguments: dict[str, Any] = {}


class All(Turn, frozen=True):
    """Several turns in one answer: agents without tools ask only once."""

    turns: tuple[Turn, ...]


class Hindrance(Turn, frozen=True, kw_only=True):
    """A failure that happens `times` times, or forever, before the next turn."""

    times: int | None = None


class Fail(Hindrance, frozen=True, kw_only=True):
    """The server returns an error. `reset_in`, in seconds, is reported in the dialect's own way."""

    status: int
    message: str = ""
    reset_in: float | None = None
    headers: dict[str, str] = {}


class TooLong(Hindrance, frozen=True, kw_only=True):
    """The server returns the error that the conversation exceeds the model's context."""


class Cut(Hindrance, frozen=True, kw_only=True):
    """The connection breaks in the middle of the answer."""

    text: str = "I was about to say something of some length, but"


class Silence(Hindrance, frozen=True, kw_only=True):
    """The server accepts the request and never responds, until the other side, or the test, gives up."""


class Drip(Turn, frozen=True):
    """It says something, word by word, with a pause in seconds before each."""

    text: str
    pause: float = 0.2


Scenario = Callable[[Request], Turn]


def script(*turns: Turn) -> Scenario:
    """The turns, one after another, in every conversation; a hindrance comes before the turn that follows it."""
    used = [0] * len(turns)

    def choose(request: Request) -> Turn:
        if request.asks_for_title:
            return Say("A title")
        place = 0
        for number, turn in enumerate(turns):
            if place == request.step and _is_left(turn, used[number]):
                used[number] += 1
                return turn
            place += not isinstance(turn, Hindrance)
        return Say("I have nothing more to say.")

    return choose


def _is_left(turn: Turn, used: int) -> bool:
    return not isinstance(turn, Hindrance) or turn.times is None or used < turn.times
