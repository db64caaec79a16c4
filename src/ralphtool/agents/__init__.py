"""Agents: the outside programs that write code, and how they are driven.

A runner knows one kind of agent: how it is started, and what its output means. It starts nothing itself and
keeps no state between iterations; a reader lives for one of them. The loop knows no concrete agent.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from ralphtool.core import spelling
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Credentials",
    "End",
    "Event",
    "Failure",
    "Job",
    "McpServer",
    "Message",
    "Output",
    "Quota",
    "Reader",
    "Result",
    "Runner",
    "Start",
    "Tool",
    "Traits",
    "Usage",
    "make",
]

# In the order in which one that is installed is proposed. mini can only be run with all permissions, so it comes late.
BUILT_IN = {
    "claude": "ralphtool.agents.claude:Claude",
    "codex": "ralphtool.agents.codex:Codex",
    "gemini": "ralphtool.agents.gemini:Gemini",
    "opencode": "ralphtool.agents.opencode:OpenCode",
    "aider": "ralphtool.agents.aider:Aider",
    "mini": "ralphtool.agents.mini:Mini",
    "command": "ralphtool.agents.command:Command",
    "scripted": "ralphtool.agents.scripted:Scripted",
}
ENTRY_POINTS = "ralphtool.agents"

Trouble = Literal["rate-limit", "overload", "network", "login", "context", "other"]
TRANSIENT: tuple[Trouble, ...] = ("rate-limit", "overload", "network", "login")
_MOST = 10**15  # a bigger number in a record is not a real count
_Count = Annotated[int, Meta(ge=0, le=_MOST)]


# --- what an agent emits ----------------------------------------------------------------------------


class Event(Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """Something that an agent emitted, live. Its kinds are documented in docs/events.md, which is made from here."""


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


class Result(Event, frozen=True):
    """What a tool gave back. Where several are used at once, results come in any order. Some agents don't report them,
    and of Claude's only short ones are read while it runs: `ralphtool logs` shows them all."""

    text: str
    ok: bool = True


class Usage(Event, frozen=True):
    """What has been used up since the last report."""

    input_tokens: _Count = 0
    """all input, including cached input"""
    output_tokens: _Count = 0
    cost: Annotated[float, Meta(ge=0, le=_MOST)] | None = None
    """dollars, null if the agent does not report it; a reported cost also covers earlier usage without one"""
    cached_tokens: _Count = 0
    """the part of the input that came from a cache"""
    model: str = ""


class Quota(Event, frozen=True):
    """How much of what a subscription allows in a time is used up."""

    used: float
    """1.0 is all of it"""
    reset_at: float | None = None
    """seconds since the epoch"""
    name: str = ""


class Failure(Event, frozen=True):
    """Something went wrong on the agent's side; the agent may continue, and often retries by itself."""

    trouble: Trouble
    """one of `rate-limit`, `overload`, `network`, `login`, `context`, `other`"""
    text: str
    reset_at: float | None = None
    """seconds since the epoch, if the agent says when it can continue"""


class End(Event, frozen=True):
    """The agent has ended, and says so itself."""

    ok: bool
    message: str = ""
    """its final message, or the end of it"""
    reason: str = ""


# --- who drives it ----------------------------------------------------------------------------------


class Job(Struct, frozen=True, kw_only=True):
    """What one iteration asks of an agent."""

    prompt: str  # the path of the file that holds it
    root: str  # where it works
    folder: str = ""  # of the iteration's records: a runner may put files for its agent there
    attempt: int = 1
    read_only: bool = False  # look at everything, change nothing
    draft: str = ""  # a folder that it may write to all the same, where it only looks at everything else
    cost: float = 0.0  # how many dollars it may still cost; 0 is no limit
    mcp: McpServer | None = None
    is_past: bool = False  # its records are only read again, perhaps while it still runs: nothing is tidied up


class McpServer(Struct, frozen=True):
    """How an agent starts our MCP server, `ralphtool mcp`."""

    command: tuple[str, ...]
    env: dict[str, str]


class Start(Struct, frozen=True, kw_only=True):
    """How the program is started. It gets our environment, the session's variables, and `env` besides."""

    argv: tuple[str, ...]
    stdin: str | None = None  # the path of a file; None is an empty one
    env: dict[str, str] = {}
    folders: tuple[str, ...] = ()  # outside of the project, that it writes to


class Credentials(Struct, frozen=True, kw_only=True):
    """What shows that an agent's user is logged in, without asking anybody but the program itself.

    Paths may begin with `~` or with `${VARIABLE:-otherwise}`; others are of the project.
    """

    variables: tuple[str, ...] = ()  # one that is set is enough
    files: tuple[str, ...] = ()  # and so is one that is there
    asks: tuple[str, ...] = ()  # arguments with which the program ends with 0 if he is, with 1 if not
    asks_since: tuple[int, int, int] = (0, 0, 0)  # an older version might take them for a prompt
    elsewhere: tuple[tuple[str, str], ...] = ()  # files, and a word in each: then he may be in a way that nobody sees
    is_all: bool = False  # there is no other way


class Traits(Struct, frozen=True, kw_only=True):
    """What can be expected of a runner's agent."""

    cost: Literal["told", "tokens", "none"] = "none"  # what it tells about what it uses up
    read_only: bool = False  # it has a mode in which it changes nothing
    drafts: bool = False  # and one in which it changes nothing but what is in one folder
    mcp: bool = False  # it takes our MCP server
    is_kept: bool = False  # it may not do all that its user can
    login_hint: str = ""  # how its user gets it to know him
    credentials: Credentials = Credentials()
    # Files of a project, in any of its folders, that tell it what it may do: names as a shell takes them, with a `/` at
    # the end for a folder. No agent that may not do all is to change one.
    config_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # what its program has to reach; `*.example.org` is all below it
    # Files and folders of its own that it reads and writes, as those of `Credentials`: a box shows them.
    needs: tuple[str, ...] = ()
    example: str = ""  # a line for its table in the settings
    notices: tuple[str, ...] = ()  # what its user should know before it is let loose


class Reader(Protocol):
    """Makes events of what one agent prints, in one iteration."""

    is_over: bool  # its own last word has come: it has nothing more to do but to end

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """Takes what has come on standard output, in pieces of any size."""
        ...

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        """The same for standard error."""
        ...

    def rest(self) -> Iterable[Event]:
        """The program is gone: what could not be told before."""
        ...

    def end(self, exit_code: int) -> End:
        """The last word, after `rest`; a negative code is the signal that ended the program."""
        ...


class Runner(Protocol):
    """Drives one kind of agent."""

    name: str
    traits: Traits

    def check(self) -> None:
        """Raises InvalidValue, with what to do, if the program can't be started at all."""
        ...

    def start(self, job: Job) -> Start: ...

    def reader(self, job: Job) -> Reader: ...


def list_runners() -> list[Runner]:
    """One runner of each kind, without options. One that needs some, or whose package is broken, is left out."""
    found = []
    for name in [*BUILT_IN, *(name for name in _read_entry_points() if name not in BUILT_IN)]:
        with suppress(InvalidValue, AttributeError, LookupError, TypeError, ValueError):
            found.append(make(name, {}))
    return found


def is_agent_config(path: str, runners: Iterable[Runner]) -> bool:
    """Whether a file of a project tells one of these agents what it may do."""
    *folders, name = path.split("/")
    rules = [rule for one in runners for rule in one.traits.config_paths]
    return any(
        any(fnmatchcase(folder, rule[:-1]) for folder in folders) if rule.endswith("/") else fnmatchcase(name, rule)
        for rule in rules
    )


def make(name: str, options: Mapping[str, Any], configured: Iterable[str] = ()) -> Runner:
    """The runner of that name. `options` is its table `[agents.NAME]`: one with a `kind` or a `command` can have any
    name. `configured` are the names of all such tables: one of them may have been meant."""
    kind = options.get("kind") or (name if name in BUILT_IN or not options.get("command") else "command")
    target = BUILT_IN.get(kind) or _find_entry_point(kind, configured)
    module, _, attribute = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # other people's code may raise anything when it is imported
        raise InvalidValue(
            f"the agent {shorten(name)} can't be loaded from {target} ({error}): check its name, and install it for "
            "the Python that runs ralphtool, or put its folder on PYTHONPATH"
        ) from None
    found: Runner = made(name, options)
    return found


def _read_entry_points() -> dict[str, str]:
    """The kinds of agents that other packages bring."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _find_entry_point(name: str, configured: Iterable[str]) -> str:
    """Where the runner of a kind is that is not ours: an entry point, or the dotted path of its class."""
    strangers = _read_entry_points()
    if name in strangers or ":" in name:
        return strangers.get(name, name)
    near = spelling.suggest(name, [*BUILT_IN, *strangers, *configured])
    raise InvalidValue(
        f"unknown agent {shorten(name)}: {near}{' If not, ' if near else ''}"
        f'use `--agent-command "…"`, or define it in '
        f'.ralph/config.toml as [agents.{name}] with command = ["…"]'
    )


def read_list(options: Mapping[str, Any], key: str) -> Sequence[str]:
    """A list of texts among an agent's options."""
    value: Sequence[str] = options.get(key) or ()
    return value
