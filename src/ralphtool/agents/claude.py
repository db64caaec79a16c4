"""Claude Code. Its exit code says nothing about the result; its `result` event does."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec import Raw, Struct, ValidationError, field, structs
from msgspec.json import Decoder

from ralphtool.agents import (
    Credentials,
    End,
    Event,
    Failure,
    Job,
    McpServer,
    Message,
    Quota,
    Result,
    Start,
    Tool,
    Traits,
    Usage,
    failures,
)
from ralphtool.agents.json_lines import Lines
from ralphtool.agents.program import Program, write_file
from ralphtool.typed import build_decoder, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OURS = ("Bash(ralphtool agent:*)", "mcp__ralphtool")
_READING = "Read,Grep,Glob"
_DRAFTING = f"{_READING},Write,Edit"
_Kind = TypeVar("_Kind")
_MOST = 1e9  # dollars; a larger number must be an error
_LEAST_BUDGET = 0.01  # dollars; the smallest that it accepts
_LONGEST_DELAY = 35 * 24 * 3600 * 1000  # milliseconds; no subscription has a longer wait
_LONGEST_INPUT = 64 << 10  # bytes; a longer input of a tool is not read


class Claude(Program):
    title = "Claude Code"
    program = "claude"
    package = "npm install -g @anthropic-ai/claude-code"
    oldest = (2, 0, 0)
    skips = "it can run any command and change any file that you can"
    kept_to = "edits, moves and deletes files in the project, and ticks tasks, but runs no other commands"
    tells = Traits(
        cost="told",
        read_only=True,
        drafts=True,
        mcp=True,
        needs=("${CLAUDE_CONFIG_DIR:-~/.claude}", "~/.claude.json"),
        config_paths=(".claude/", ".mcp.json"),
        # The model, and login renewal: `console` in older versions.
        hosts=("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai"),
        login_hint="start `claude` and type /login, or set ANTHROPIC_API_KEY",
        credentials=Credentials(
            variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            files=("${CLAUDE_CONFIG_DIR:-~/.claude}/.credentials.json",),
            asks=("auth", "status"),
            asks_since=(2, 1, 41),
        ),
    )

    def start(self, job: Job) -> Start:
        argv = [*self.command, "-p", "--output-format", "stream-json", "--verbose", *self._permissions(job)]
        if self.model:
            argv += ["--model", self.model]
        if job.mcp:
            argv += ["--mcp-config", _write_mcp_config(job.mcp, job.folder)]
        if job.cost:
            argv += ["--max-budget-usd", f"{max(job.cost, _LEAST_BUDGET):.2f}"]
        env = _ENVIRONMENT | (_WITH_TOOLS if job.mcp else {}) | _build_sandbox_variables() | self.env
        # The user's own arguments may include one that permits everything.
        return Start(argv=(*argv, *(() if job.read_only else self.args)), stdin=job.prompt, env=env)

    def reader(self, job: Job) -> ClaudeReader:
        return ClaudeReader(reads_all=job.is_past)

    def _permissions(self, job: Job) -> list[str]:
        if job.read_only and job.draft:  # in its rules, absolute paths begin with two slashes
            allowed = ["--add-dir", job.draft, "--allowedTools", f"Edit(/{job.draft}/**)"]
            return ["--permission-mode", "default", "--tools", _DRAFTING, "--strict-mcp-config", *allowed]
        if job.read_only:
            return ["--permission-mode", "plan", "--tools", _READING, "--strict-mcp-config"]
        if self.may_do_all:
            return ["--dangerously-skip-permissions"]
        return ["--permission-mode", "acceptEdits", "--allowedTools", *_OURS]


# Its telemetry would only slow it down. Without attachments, a file that a text merely mentions (@~/.netrc) is not sent
# along. A background command would make it continue after its final message.
_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
# Our tools must be available from the first request: not hidden behind a search, and waited for on a busy machine too.
_WITH_TOOLS = {"ENABLE_TOOL_SEARCH": "false", "MCP_CONNECT_TIMEOUT_MS": "30000"}


def _build_sandbox_variables() -> dict[str, str]:
    """As root, Claude Code refuses to skip permissions unless this variable says that it runs in a sandbox."""
    return {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}


def _write_mcp_config(mcp: McpServer, folder: str) -> str:
    """`alwaysLoad`, since it does not wait for other servers."""
    server = {"command": mcp.command[0], "args": list(mcp.command[1:]), "env": mcp.env, "alwaysLoad": True}
    return write_file(os.path.join(folder, "mcp.json"), json.dumps({"mcpServers": {"ralphtool": server}}))


# --- what it prints ---------------------------------------------------------------------------------


class ClaudeTokens(Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None

    @property
    def cached(self) -> int:
        return self.cache_read_input_tokens or 0

    @property
    def read(self) -> int:
        return (self.input_tokens or 0) + (self.cache_creation_input_tokens or 0) + self.cached


class MessageBlock(Struct, frozen=True):
    """A block of a message: text, the use of a tool, or others that don't matter."""

    type: str = ""
    text: str | None = None
    name: str | None = None
    input: Raw = Raw()


class AssistantMessage(Struct, frozen=True):
    content: list[MessageBlock] = []
    id: str | None = None
    model: str | None = None
    usage: ClaudeTokens | None = None


class AssistantLine(Struct, frozen=True, tag="assistant", tag_field="type"):
    message: AssistantMessage
    parent_tool_use_id: str | None = None  # set for a subagent


class ToolResultPart(Struct, frozen=True):
    """A part of a tool's result: text, or something that can't be shown."""

    type: str = ""
    text: str | None = None


class ToolResultBlock(Struct, frozen=True):
    """A block of a user message; those of type `tool_result` matter."""

    type: str = ""
    content: str | list[ToolResultPart] | None = None
    is_error: bool | None = None

    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "\n".join(one.text or f"[{one.type[:40]}]" for one in parts)


class UserMessage(Struct, frozen=True):
    content: list[ToolResultBlock] = []


class UserLine(Struct, frozen=True, tag="user", tag_field="type"):
    """Results of tools, sent as the user."""

    message: UserMessage


class SystemLine(Struct, frozen=True, tag="system", tag_field="type"):
    subtype: str | None = None
    error: str | None = None
    error_status: int | None = None
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: Any = None

    @property
    def retry_at(self) -> float | None:
        """The time of its next retry."""
        told = self.retry_delay_ms
        return time.time() + told / 1000 if type(told) in (int, float) and 0 < told < _LONGEST_DELAY else None


class RateLimit(Struct, frozen=True, rename="camel"):
    status: str | None = None
    resets_at: float | None = None
    utilization: float | None = None
    rate_limit_type: str | None = None
    is_using_overage: bool | None = None  # it continues, at extra cost


class RateLimitLine(Struct, frozen=True, tag="rate_limit_event", tag_field="type"):
    rate_limit_info: RateLimit


class ModelUsage(Struct, frozen=True, rename="camel"):
    """The total usage of one model."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class ClaudeResultLine(Struct, frozen=True, tag="result", tag_field="type"):
    """How it ended. Unexpected values in other fields must not hide that."""

    is_error: bool = True
    subtype: Any = None
    result: Any = None
    api_error_status: Any = None
    total_cost_usd: Any = None
    usage: Any = None
    model_usage: Any = field(default=None, name="modelUsage")
    errors: Any = None

    @property
    def text(self) -> str:
        return self.result if isinstance(self.result, str) else ""

    @property
    def status(self) -> int | None:
        return self.api_error_status if type(self.api_error_status) is int else None

    @property
    def cost(self) -> float | None:
        told = self.total_cost_usd
        return float(told) if type(told) in (int, float) and 0 <= told < _MOST else None

    @property
    def complaints(self) -> list[str]:
        return [str(error)[:1000] for error in self.errors] if isinstance(self.errors, list) else []

    def total(self) -> Usage:
        """By model, since its own total omits the usage of subagents."""
        spent = list(_convert_or(self.model_usage, dict[str, ModelUsage], {}).values())
        if not spent:
            whole = _convert_or(self.usage, ClaudeTokens, ClaudeTokens())
            return Usage(whole.read, whole.output_tokens or 0, None, whole.cached)
        cached = sum(one.cache_read_input_tokens for one in spent)
        fresh = sum(one.input_tokens + one.cache_creation_input_tokens for one in spent)
        return Usage(fresh + cached, sum(one.output_tokens for one in spent), None, cached)


def _convert_or(given: Any, kind: type[_Kind], otherwise: _Kind) -> _Kind:
    try:
        return convert(given, kind)
    except ValidationError:
        return otherwise


ClaudeLine = AssistantLine | UserLine | SystemLine | RateLimitLine | ClaudeResultLine


class ToolInput(Struct, frozen=True):
    """The most informative inputs of a tool; the rest, which may be a whole file, is not even decoded."""

    command: Any = None
    file_path: Any = None
    path: Any = None
    pattern: Any = None
    url: Any = None
    query: Any = None
    description: Any = None


_INPUT = build_decoder(ToolInput)


class ClaudeReader(Lines[ClaudeLine]):
    decoder: ClassVar[Decoder[Any]] = build_decoder(ClaudeLine)
    bulk = b'{"type":"user",'  # results of tools, which are most of the output

    def __init__(self, *, reads_all: bool = False) -> None:
        super().__init__(reads_all=reads_all)
        self._result: ClaudeResultLine | None = None
        self._counted: set[str] = set()  # messages whose usage was counted; each block of a message repeats it
        self._told = Usage()
        self._reset_at: float | None = None

    def take(self, line: ClaudeLine) -> Iterable[Event]:
        match line:
            case UserLine():
                heard = line.message.content
                return [Result(one.text(), not one.is_error) for one in heard if one.type == "tool_result"]
            case AssistantLine():
                self.is_over = False
                return self._said(line)
            case SystemLine(subtype="api_retry"):
                return (self._read_retry(line),)
            case RateLimitLine():
                return self._read_limit(line.rate_limit_info)
            case ClaudeResultLine():
                self._result, self.is_over = line, True
        return ()

    def _read_retry(self, line: SystemLine) -> Failure:
        again = f" (retrying, {line.attempt} of {line.max_retries})" if line.attempt else ""
        if line.error_status is None:  # there was no response
            return Failure("network", f"the API can't be reached{again}", line.retry_at)
        reset_at = max(self._reset_at or 0.0, line.retry_at or 0.0) or None
        return failures.failure(f"{line.error or 'an error'}{again}", line.error_status, reset_at)

    def _said(self, line: AssistantLine) -> list[Event]:
        said, events = line.message, list[Event]()
        if said.model == "<synthetic>":
            return events  # from the program, not the model; an error is reported with the result
        if said.usage and said.id and said.id not in self._counted:
            self._counted.add(said.id)
            events.append(self._count_usage(said.usage.read, said.usage.output_tokens or 0, said.usage.cached, None))
        for block in said.content:
            if block.type == "tool_use" and block.name:
                events.append(Tool(block.name, _find_detail(block.input)))
            elif block.type == "text" and block.text and not line.parent_tool_use_id:
                events.append(Message(block.text))
        return events

    def _count_usage(self, read: int, written: int, cached: int, cost: float | None) -> Usage:
        told = self._told
        self._told = Usage(told.input_tokens + read, told.output_tokens + written, None, told.cached_tokens + cached)
        return Usage(read, written, cost, cached)

    def _read_limit(self, limit: RateLimit) -> Iterator[Event]:
        is_over = limit.status == "rejected"
        name = (limit.rate_limit_type or "").replace("_", "-")
        if is_over and not limit.is_using_overage:
            self._reset_at = limit.resets_at
        if is_over or limit.utilization is not None:
            yield Quota(1.0 if is_over else limit.utilization or 0.0, limit.resets_at, name)
        if is_over and not limit.is_using_overage:
            yield Failure("rate-limit", f"the {name} limit is reached", limit.resets_at)

    def rest(self) -> Iterable[Event]:
        events = [*super().rest()]
        if self._result:
            events += self._read_result(self._result)
        return events

    def _read_result(self, result: ClaudeResultLine) -> Iterator[Event]:
        total, told = result.total(), self._told
        yield self._count_usage(
            max(total.input_tokens - told.input_tokens, 0),
            max(total.output_tokens - told.output_tokens, 0),
            max(total.cached_tokens - told.cached_tokens, 0),
            result.cost,
        )
        if result.is_error and result.subtype == "success":  # its subtype for API errors
            text = result.text or "; ".join(result.complaints) or "an API error"
            yield failures.failure(text, result.status, self._reset_at)

    def end(self, exit_code: int) -> End:
        result = self._result
        if result is None:
            return self.without_an_end(exit_code)
        if not result.is_error:
            return End(True, result.text)
        named = [] if result.subtype in ("success", None) else [str(result.subtype), *result.complaints]
        return End(False, result.text, "; ".join(named) or result.text or "it reported an error")


def _find_detail(given: Raw) -> str:
    """The most informative input of a tool, as one line."""
    if memoryview(given).nbytes > _LONGEST_INPUT:
        return ""
    try:
        values = _INPUT.decode(given)
    except (ValueError, RecursionError):
        return ""
    for text in structs.astuple(values):
        if isinstance(text, str):
            return text.strip().partition("\n")[0][:200]
    return ""
