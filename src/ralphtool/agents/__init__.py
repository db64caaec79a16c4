"""Agents: the third-party programs that write code, and how they are driven.

A runner knows one kind of agent: how to start it, and what its output means. It starts nothing itself and
keeps no state between iterations; a reader lives for one iteration. The loop knows no concrete agent.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from ralphtool.errors import InvalidValue, WrongSetting, shorten

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

# In the order in which installed agents are proposed. mini works only with all permissions, so it comes late.
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
_MOST = 10**15  # a larger number in a record is not a real count
_Count = Annotated[int, Meta(ge=0, le=_MOST)]


# --- what an agent emits ----------------------------------------------------------------------------


class Event(Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """Something that an agent emitted while it ran. docs/events.md, generated from these classes, lists the kinds."""


class Output(Event, frozen=True):
    """A piece of plain output, for display only."""

    text: str


class Message(Event, frozen=True):
    """A message from the agent."""

    text: str


class Tool(Event, frozen=True):
    """The agent uses a tool."""

    name: str
    detail: str = ""


class Result(Event, frozen=True):
    """The result of a tool. If several tools run at once, their results come in any order. Some agents don't report
    results. Claude's long ones are not read while it runs: `ralphtool logs` shows them all."""

    text: str
    ok: bool = True


class Usage(Event, frozen=True):
    """What the agent has used since its last report."""

    input_tokens: _Count = 0
    """all input, including cached input"""
    output_tokens: _Count = 0
    cost: Annotated[float, Meta(ge=0, le=_MOST)] | None = None
    """dollars, null if the agent does not report it; a reported cost also covers earlier usage without one"""
    cached_tokens: _Count = 0
    """the part of the input that came from a cache"""
    model: str = ""


class Quota(Event, frozen=True):
    """How much of a subscription's quota is used."""

    used: float
    """1.0 is all of it"""
    reset_at: float | None = None
    """seconds since the epoch"""
    name: str = ""


class Failure(Event, frozen=True):
    """The agent reported an error; it may continue, and often retries by itself."""

    trouble: Trouble
    """one of `rate-limit`, `overload`, `network`, `login`, `context`, `other`"""
    text: str
    reset_at: float | None = None
    """seconds since the epoch, if the agent says when it can continue"""


class End(Event, frozen=True):
    """The agent reported its own end."""

    ok: bool
    message: str = ""
    """its final message, or the end of it"""
    reason: str = ""


def describe_exit(exit_code: int) -> str:
    return f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"


# --- how an agent is driven -------------------------------------------------------------------------


class Job(Struct, frozen=True, kw_only=True):
    """The work of an agent in one iteration."""

    prompt: str  # the path of a file
    root: str  # the folder that it works in
    folder: str = ""  # the iteration's records: a runner may put files for its agent there
    attempt: int = 1
    read_only: bool = False  # it may read everything and change nothing
    draft: str = ""  # a folder that it may write to even if `read_only` is set
    cost: float = 0.0  # the dollars that it may still cost; 0 means no limit
    mcp: McpServer | None = None
    is_past: bool = False  # its records are only read again, perhaps while it still runs: nothing is cleaned up


class McpServer(Struct, frozen=True):
    """How an agent starts ralphtool's MCP server, `ralphtool mcp`."""

    command: tuple[str, ...]
    env: dict[str, str]


class Start(Struct, frozen=True, kw_only=True):
    """How to start the program. It gets ralphtool's environment, the session's variables, and `env`."""

    argv: tuple[str, ...]
    stdin: str | None = None  # the path of a file; None means empty input
    env: dict[str, str] = {}
    folders: tuple[str, ...] = ()  # outside the project that it writes to


class Credentials(Struct, frozen=True, kw_only=True):
    """How to find out whether an agent's user is logged in, by asking no program but the agent itself.

    Paths may begin with `~` or with `${VARIABLE:-otherwise}`; others are relative to the project.
    """

    variables: tuple[str, ...] = ()  # any one that is set is enough
    files: tuple[str, ...] = ()  # any one that exists is enough
    asks: tuple[str, ...] = ()  # arguments with which the program exits with 0 if logged in, with 1 if not
    asks_since: tuple[int, int, int] = (0, 0, 0)  # an older version might treat them as a prompt
    elsewhere: tuple[tuple[str, str], ...] = ()  # files, each with a word that hints at an uncheckable login
    is_all: bool = False  # there is no other way


class Traits(Struct, frozen=True, kw_only=True):
    """The capabilities and needs of a runner's agent."""

    cost: Literal["told", "tokens", "none"] = "none"  # what it reports about its usage
    read_only: bool = False  # it has a mode in which it changes nothing
    drafts: bool = False  # it has a mode in which it changes only files in one folder
    mcp: bool = False  # it can use our MCP server
    is_kept: bool = False  # its permissions are restricted
    login_hint: str = ""  # how its user logs in
    credentials: Credentials = Credentials()
    # Files of a project, in any of its folders, that configure what it may do: shell patterns, with a `/` at the end
    # for a folder. No agent with restricted permissions may change one.
    config_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # hosts that its program must reach; `*.example.org` includes all subdomains
    # Its own files and folders that it reads and writes, with paths as in `Credentials`: a box mounts them.
    needs: tuple[str, ...] = ()
    example: str = ""  # a line for its table in the settings
    notices: tuple[str, ...] = ()  # what its user should know before it starts


class Reader(Protocol):
    """Turns the output of one agent in one iteration into events."""

    is_over: bool  # its terminal event was read: it only needs to exit

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """Reads a piece of standard output, of any size."""
        ...

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        """Reads a piece of standard error."""
        ...

    def rest(self) -> Iterable[Event]:
        """The remaining events, once the program is gone."""
        ...

    def end(self, exit_code: int) -> End:
        """The last event, after `rest`; a negative code is the signal that ended the program."""
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
    """One runner of each kind, without options. A kind that needs options, or whose package is broken, is left out."""
    found = []
    for name in [*BUILT_IN, *(name for name in _read_entry_points() if name not in BUILT_IN)]:
        with suppress(InvalidValue, AttributeError, LookupError, TypeError, ValueError):
            found.append(make(name, {}))
    return found


def is_agent_config(path: str, runners: Iterable[Runner]) -> bool:
    """Whether a file of a project configures what one of these agents may do."""
    *folders, name = path.split("/")
    rules = [rule for one in runners for rule in one.traits.config_paths]
    return any(
        any(fnmatchcase(folder, rule[:-1]) for folder in folders) if rule.endswith("/") else fnmatchcase(name, rule)
        for rule in rules
    )


def make(name: str, options: Mapping[str, Any], configured: Iterable[str] = ()) -> Runner:
    """The runner of that name. `options` is its table `[agents.NAME]`: with a `kind` or a `command`, it can have any
    name. `configured` are the names of all such tables, for suggestions."""
    kind = options.get("kind") or (name if name in BUILT_IN or not options.get("command") else "command")
    target = BUILT_IN.get(kind) or _find_entry_point(kind, configured)
    module, _, attribute = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # third-party code may raise anything on import
        raise InvalidValue(
            f"the agent {shorten(name)} can't be loaded from {target} ({error}): check its name, and install it for "
            "the Python that runs ralphtool, or put its folder on PYTHONPATH"
        ) from None
    found: Runner = made(name, options)
    return found


def _read_entry_points() -> dict[str, str]:
    """The kinds of agents that other packages provide."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _find_entry_point(name: str, configured: Iterable[str]) -> str:
    """The location of a third-party runner: from an entry point, or the dotted path of its class."""
    strangers = _read_entry_points()
    if name in strangers or ":" in name:
        return strangers.get(name, name)
    from ralphtool.core import spelling  # needed only for the error

    near = spelling.suggest(name, [*BUILT_IN, *strangers, *configured])
    raise WrongSetting(
        f"unknown agent {shorten(name)}: {near}{' If not, ' if near else ''}"
        f'define it in .ralph/config.toml as [agents.{name}] with command = ["…"], or use '
        '`ralphtool run --agent-command "…"`'
    )


def read_list(options: Mapping[str, Any], key: str) -> Sequence[str]:
    """A list of strings among an agent's options."""
    value: Sequence[str] = options.get(key) or ()
    return value
