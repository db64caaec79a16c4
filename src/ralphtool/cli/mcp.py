"""`ralphtool mcp`: the agent's commands as tools of the Model Context Protocol, over stdin and stdout.

A tool is a command of `ralphtool agent …`: it runs in this process and returns the same JSON object,
also for errors, so that a model can read what went wrong and correct its call.
"""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ralphtool import __version__
from ralphtool.cli import agent
from ralphtool.core import quickjson, session
from ralphtool.errors import UsageError, shorten

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

INSTRUCTIONS = """\
You work on one story of a written change. Call `context` first: it returns the story, its tasks, and what \
earlier iterations learnt. Call `task_done` as soon as a task is finished, and `learn` when you discover something \
that the next agent should know: it starts with an empty memory. An answer with "success": false says what is \
wrong and what to do."""


class Argument(NamedTuple):
    """One argument of a tool. Words are in the command's order; an option may be left out."""

    name: str
    about: str
    choices: tuple[str, ...] = ()
    is_option: bool = False

    def schema(self) -> dict[str, Any]:
        choices = {"enum": list(self.choices)} if self.choices else {}
        return {"type": "string", "description": self.about, **choices}


class AgentTool(NamedTuple):
    """A command for agents, as a model sees it."""

    name: str
    command: str
    about: str
    arguments: tuple[Argument, ...] = ()
    changes: bool = True  # whether it writes anything
    repeatable: bool = True  # whether repeating it changes nothing more

    def to_mcp(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            description=self.about,
            input_schema={
                "type": "object",
                "properties": {one.name: one.schema() for one in self.arguments},
                "required": [one.name for one in self.arguments if not one.is_option],
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(
                read_only_hint=not self.changes,
                destructive_hint=False,
                idempotent_hint=self.repeatable,
                open_world_hint=False,
            ),
        )


def _option(name: str, about: str, choices: tuple[str, ...] = ()) -> Argument:
    return Argument(name, about, choices, is_option=True)


_CONTEXT = AgentTool(
    "context",
    "context",
    "Everything about your story: its description, its tasks with their ids, the proposal and design "
    "of the change, the scenarios it must satisfy, what earlier iterations learnt, and the commands that will verify "
    "your work. Call it before you begin; it changes nothing.",
    changes=False,
)
_STATUS = AgentTool(
    "status",
    "status",
    "How many tasks of your story, and how many stories of the change, are done; whether the story and the change are "
    "complete. It changes nothing.",
    changes=False,
)
_RECALL = AgentTool(
    "recall",
    "recall",
    "Ask what earlier iterations learnt about something: up to ten learnings and patterns that match, from "
    "everything known in this project. Use it when something fails, looks odd, or is done in a way you don't "
    "understand.",
    (Argument("text", "What you want to know, or the error message itself."),),
    changes=False,
)
_TASK_DONE = AgentTool(
    "task_done",
    "task done",
    "Mark one task of your story as done, once the work is finished and works. Only tasks of your own story; "
    "repeating it is harmless. The answer lists the ids that remain and, when none do, the scenarios to check.",
    (Argument("id", 'The id of the task as `context` gives it, as a string: "1.2", or "T004".'),),
)
_LEARN = AgentTool(
    "learn",
    "learn",
    "Record something that you discovered and that the next agent must know: a required command, a pitfall, a "
    "decision and its reason. The next agent starts with an empty memory and reads this. One fact per call, "
    "understandable on its own. Not for progress reports.",
    (
        Argument("text", "What you learnt, in one sentence or a few. Markdown is fine."),
        _option("task", 'The id of the task that it came from: "1.2".'),
        _option("type", "The kind of learning; inferred if left out.", session.LEARNING_TYPES),
    ),
    repeatable=False,
)
_PATTERN = AgentTool(
    "pattern",
    "pattern",
    "Record a pattern of this code base that new code should follow: how something is named, laid out, tested or "
    "built here.",
    (
        Argument("name", 'A short name for it, in one line: "Repository classes".'),
        Argument("description", "What to do, and where to find an example."),
        _option("type", "The kind of pattern.", session.PATTERN_TYPES),
    ),
    repeatable=False,
)
_OBSERVE = AgentTool(
    "observe",
    "observe",
    "Record an observation about this iteration: a blocker (what prevents you from finishing the story, or a "
    "decision that only a human can make, as a question), a finding (a problem or noteworthy fact outside your "
    "story), or a completion (what you finished).",
    (
        Argument("type", "blocker, finding or completion.", session.OBSERVATION_TYPES),
        Argument("title", "What it is, in one line."),
        _option("description", "The details: what you saw, what you tried."),
        _option("file", "The file it is about, relative to the project."),
        _option("category", "What it is about.", session.CATEGORIES),
        _option("severity", "How bad it is.", session.SEVERITIES),
    ),
    repeatable=False,
)
TOOLS = {tool.name: tool for tool in (_CONTEXT, _RECALL, _TASK_DONE, _LEARN, _PATTERN, _OBSERVE, _STATUS)}


def call_tool(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The tool's answer, and whether it is an error."""
    try:
        tool = _find_tool(name)
        words, options = _split_arguments(tool, arguments)
    except UsageError as error:
        return agent.build_error(str(error), error.code), True
    answered, exit_code = agent.perform(tool.command, words, options)
    return answered, exit_code != 0


def _find_tool(name: str) -> AgentTool:
    if name not in TOOLS:
        raise UsageError(f"unknown tool {shorten(name)}: use one of {', '.join(TOOLS)}")
    return TOOLS[name]


def _split_arguments(tool: AgentTool, arguments: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    known = [one.name for one in tool.arguments]
    for name in arguments:
        if name not in known:
            raise UsageError(
                f"{tool.name} has no argument {shorten(name)}; its arguments are {', '.join(known) or 'none'}"
            )
    words = [_check_text(tool, one, arguments.get(one.name)) for one in tool.arguments if not one.is_option]
    # Models tend to fill in every argument; they use null for those that they would leave out.
    given = [one for one in tool.arguments if one.is_option and arguments.get(one.name) is not None]
    return words, {one.name: _check_text(tool, one, arguments[one.name]) for one in given}


def _check_text(tool: AgentTool, argument: Argument, value: object) -> str:
    if value is None:
        raise UsageError(f"{tool.name} needs {argument.name}: {argument.about}")
    # A number is not an id: 2.10 would become 2.1, which is another task.
    if not isinstance(value, str):
        raise UsageError(f"{argument.name} must be a string, not {shorten(quickjson.dumps(value))}: {argument.about}")
    return value


# --- the protocol -----------------------------------------------------------------------------------


def serve() -> None:
    """Answers until stdin ends."""
    # A thread waits for stdin, and Python would wait for that thread. A kill is safe: all writes survive it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve)
    except* BrokenPipeError:
        pass  # the agent is gone


async def _serve() -> None:
    one_at_a_time = anyio.CapacityLimiter(1)  # so that calls are recorded in order

    async def call(_: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        work = partial(call_tool, asked.name, asked.arguments or {})
        answered, is_error = await anyio.to_thread.run_sync(work, limiter=one_at_a_time)
        text = types.TextContent(type="text", text=quickjson.dumps(answered))
        return types.CallToolResult(content=[text], structured_content=answered, is_error=is_error)

    server = Server(
        "ralphtool", version=__version__, instructions=INSTRUCTIONS, on_list_tools=_list_tools, on_call_tool=call
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _list_tools(_: ServerRequestContext[Any], __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tool.to_mcp() for tool in TOOLS.values()])
