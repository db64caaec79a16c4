"""Codex. Its stream reports no cost, tokens only at the end, and errors only as text.

Further data is in its own record of the conversation: see codex_rollout.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, structs
from msgspec.json import Decoder

from ralphtool.agents import (
    Credentials,
    End,
    Event,
    Failure,
    Job,
    McpServer,
    Message,
    Output,
    Result,
    Start,
    Tool,
    Traits,
    Usage,
    failures,
)
from ralphtool.agents.codex_rollout import RolloutFile
from ralphtool.agents.json_lines import Lines
from ralphtool.agents.program import Program
from ralphtool.core import files, layout
from ralphtool.typed import build_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STATUS = re.compile(r"(?:unexpected|last) status:? (\d{3})\b")
_NO_KEY = "Missing environment variable"  # followed by whatever name is in its configuration
_RECONNECTING = "Reconnecting"  # older versions give no reason
_READING = "Reading prompt from stdin..."
_LONG = 10_000  # characters; a longer command is not parsed


class Codex(Program):
    program = "codex"
    package = "npm install -g @openai/codex"
    oldest = (0, 130, 0)
    skips = "it can run any command and change any file that you can"
    kept_to = (
        "runs commands and edits files in its own sandbox: unless its configuration says otherwise, it can write "
        "only to the project and the temporary folder, can't commit, and has no network"
    )
    tells = Traits(
        cost="tokens",
        read_only=True,
        drafts=True,
        mcp=True,
        needs=("${CODEX_HOME:-~/.codex}",),
        config_paths=(".codex/",),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        login_hint="run `codex login`, or set CODEX_API_KEY",
        credentials=Credentials(
            variables=("CODEX_API_KEY",),
            asks=("login", "status"),
            elsewhere=(("${CODEX_HOME:-~/.codex}/config.toml", "model_provider"),),
        ),
    )

    def start(self, job: Job) -> Start:
        argv = [*self.command, "exec", "--json", "--skip-git-repo-check", *self._permissions(job), *_SETTINGS]
        if self.model:
            argv += ["--model", self.model]
        if job.mcp:
            argv += ["-c", _PATIENCE, "-c", f"mcp_servers.ralphtool={_format_server(job.mcp)}"]
        args = _filter_arguments(self.args) if job.read_only else self.args
        return Start(argv=(*argv, *args), stdin=job.prompt, env=self.env)

    def reader(self, job: Job) -> CodexReader:
        return CodexReader(self._home(), self.model)

    def _permissions(self, job: Job) -> list[str]:
        """In this mode it never asks: whatever the sandbox forbids simply fails."""
        if self.is_boxed:  # its own sandbox does not work inside another one
            return ["--dangerously-bypass-approvals-and-sandbox"]
        if job.read_only and job.draft:
            return ["--sandbox", "workspace-write", "--cd", job.draft, *_DRAFTING]
        if job.read_only:
            return ["--sandbox", "read-only"]
        if self.may_do_all:
            return ["--dangerously-bypass-approvals-and-sandbox"]
        return ["--sandbox", "workspace-write", *(f"--add-dir={folder}" for folder in _list_own_folders(job))]

    def _home(self) -> str:
        home = self.env.get("HOME") or os.path.expanduser("~")
        return self.env.get("CODEX_HOME") or os.environ.get("CODEX_HOME") or os.path.join(home, ".codex")


# A login shell would remove our command from PATH.
_SETTINGS = ("-c", "allow_login_shell=false", "-c", "analytics.enabled=false")
# By default its sandbox permits writing not only to the folder that it was started in, but also to these.
_DRAFTING = (
    *("-c", "sandbox_workspace_write.exclude_slash_tmp=true", "-c", "sandbox_workspace_write.writable_roots=[]"),
    *("-c", "sandbox_workspace_write.exclude_tmpdir_env_var=true"),
)
_PATIENCE = "mcp_optional_startup_grace_ms=15000"  # by default it starts without our tools after a second


def _filter_arguments(args: tuple[str, ...]) -> list[str]:
    """Those of the user's own arguments that choose and configure the model; others might permit more."""
    found: list[str] = []
    for flag, value in pairwise(args):
        is_setting = flag in ("-c", "--config") and not value.strip().startswith(("sandbox", "approval", "mcp_servers"))
        if is_setting or flag in ("-m", "--model", "-p", "--profile"):
            found += [flag, value]
    return found


def _list_own_folders(job: Job) -> list[str]:
    """The folders that `ralphtool agent` writes to outside the working tree: sessions, and a project elsewhere."""
    parts = job.folder.split(os.sep)
    records = os.sep.join(parts[: parts.index(layout.FOLDER) + 1]) if layout.FOLDER in parts else ""
    wanted = [records, *(os.path.join(files.tmp_dir(), name) for name in ("ralph", "ralphtool"))]
    return [folder for folder in wanted if folder and os.path.isdir(folder)]


def _format_server(mcp: McpServer) -> str:
    """An inline table of TOML. It approves our tools, since the agent runs unattended."""
    command, *args = (_quote(part) for part in mcp.command)
    env = ", ".join(f"{_quote(name)} = {_quote(value)}" for name, value in mcp.env.items())
    approved = 'default_tools_approval_mode = "approve"'
    return f"{{command = {command}, args = [{', '.join(args)}], env = {{{env}}}, {approved}}}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- what it prints ---------------------------------------------------------------------------------


class CodexItem(Struct, frozen=True):
    """An action or a message. Which fields are set depends on the type."""

    type: str = ""
    id: Any = None
    text: Any = None
    message: Any = None
    command: Any = None
    changes: Any = None
    server: Any = None
    tool: Any = None
    arguments: Any = None
    query: Any = None
    status: Any = None
    exit_code: Any = None
    aggregated_output: Any = None
    result: Any = None
    error: Any = None

    def use(self) -> Tool | None:
        match self.type:
            case "command_execution":
                return Tool("shell", _shorten_line(_unwrap_command(str(self.command))))
            case "file_change":
                return Tool("edit", _shorten_line(", ".join(_list_paths(self.changes))))
            case "mcp_tool_call":
                return Tool(f"{self.server}.{self.tool}", _shorten_line(json.dumps(self.arguments)))
            case "collab_tool_call":
                return Tool(str(self.tool))
            case "web_search" if self.query:
                return Tool("search", _shorten_line(str(self.query)))
        return None

    def told(self) -> Result | None:
        """The result of a completed item."""
        ok = self.status in ("completed", None) and self.exit_code in (0, None) and self.error is None
        match self.type:
            case "command_execution":
                return Result(self.aggregated_output if isinstance(self.aggregated_output, str) else "", ok)
            case "file_change" if not ok:  # if it succeeded, its paths say enough
                return Result(_error_text(self.error), ok)
            case "mcp_tool_call":
                return Result(_error_text(self.error) or _result_text(self.result), ok)
        return None


class ThreadLine(Struct, frozen=True, tag="thread.started", tag_field="type"):
    thread_id: str = ""


class ItemStartedLine(Struct, frozen=True, tag="item.started", tag_field="type"):
    item: CodexItem


class ItemCompletedLine(Struct, frozen=True, tag="item.completed", tag_field="type"):
    item: CodexItem


class CodexErrorLine(Struct, frozen=True, tag="error", tag_field="type"):
    message: Any = None


class TurnFailedLine(Struct, frozen=True, tag="turn.failed", tag_field="type"):
    error: Any = None


class TurnCompletedLine(Struct, frozen=True, tag="turn.completed", tag_field="type"):
    usage: Any = None


CodexLine = ThreadLine | ItemStartedLine | ItemCompletedLine | CodexErrorLine | TurnFailedLine | TurnCompletedLine


class CodexReader(Lines[CodexLine]):
    decoder: ClassVar[Decoder[Any]] = build_decoder(CodexLine)

    def __init__(self, home: str, model: str = "") -> None:
        super().__init__()
        self._record = RolloutFile(home)
        self._model = model
        self._told = Usage()
        self._shown: set[str] = set()  # tools, by the id of their item
        self._message = ""
        self._error = ""
        self._ending: TurnFailedLine | TurnCompletedLine | None = None

    def take(self, line: CodexLine) -> Iterable[Event]:
        match line:
            case ThreadLine():
                self._record.thread = line.thread_id
            case ItemStartedLine():
                return self._read_item(line.item)
            case ItemCompletedLine():
                result = line.item.told()
                return (*self._read_item(line.item), result) if result else self._read_item(line.item)
            case CodexErrorLine():
                self._error = _error_text(line.message)
                return (_build_failure(self._error),)
            case TurnFailedLine():
                self._ending, self.is_over = line, True
                return self._failed(_error_text(line.error))
            case TurnCompletedLine():
                self._ending, self.is_over = line, True
        return ()

    def rest(self) -> Iterable[Event]:
        yield from super().rest()
        if isinstance(self._ending, TurnCompletedLine):
            yield from self._usage(self._ending.usage)
        if (count := self._record.read_last_count()) is None:
            return
        yield from self._usage(count.total())
        quotas = count.quotas()
        yield from quotas
        used_up = [quota.reset_at for quota in quotas if quota.used >= 1 and quota.reset_at]
        is_over = (
            not isinstance(self._ending, TurnCompletedLine) and _build_failure(self._error).trouble == "rate-limit"
        )
        if used_up and is_over:  # its message has only minutes, in local time
            yield _build_failure(self._error, max(used_up))

    def end(self, exit_code: int) -> End:
        match self._ending:
            case TurnCompletedLine():
                return End(True, self._message, "completed")
            case TurnFailedLine():
                return End(False, self._message, self._error[:300] or "the turn failed")
        return self.without_an_end(exit_code)

    def _read_item(self, item: CodexItem) -> Iterator[Event]:
        if item.type == "agent_message" and isinstance(item.text, str):
            self._message = item.text
            yield Message(item.text)
        elif item.type == "reasoning" and isinstance(item.text, str):  # the only sign of activity during long reasoning
            yield Message(item.text)
        elif item.type == "error":  # a warning: it continues
            yield Output(_shorten_line(_error_text(item.message)))
        elif str(item.id) not in self._shown and (tool := item.use()):
            self._shown.add(str(item.id))
            self._message = ""  # an earlier message is not the final one
            yield tool

    def _failed(self, text: str) -> Iterator[Event]:
        """Usually it has already reported the same error."""
        if text != self._error:
            self._error = text
            yield _build_failure(text)

    def _usage(self, counts: Any) -> list[Event]:
        """All counts are totals since the start."""
        total, told = _parse_counts(counts), self._told
        more = [max(now - before, 0) for now, before in zip(_usage_tuple(total), _usage_tuple(told), strict=True)]
        if not any(more):
            return []
        self._told = total
        return [Usage(more[0], more[1], cached_tokens=more[2], model=self._model)]

    def _complaint(self) -> str:
        """A backtrace may follow the error, and the notice that it reads its prompt is not an error."""
        lines = self._errors.decode("utf-8", "replace").split("\n")
        errors = [line.strip() for line in lines if line.lower().startswith("error:")]
        last = errors[-1][:300] if errors else super()._complaint()
        return "" if last == _READING else last


def _build_failure(text: str, reset_at: float | None = None) -> Failure:
    found = _STATUS.search(text)
    status = int(found[1]) if found else 401 if _NO_KEY in text else None
    failed = failures.failure(text, status, reset_at)
    is_cut_off = failed.trouble == "other" and text.startswith(_RECONNECTING)
    return structs.replace(failed, trouble="network") if is_cut_off else failed


def _error_text(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error or "")


def _result_text(result: Any) -> str:
    """The text that a tool of an MCP server returned."""
    parts = result.get("content") if isinstance(result, dict) else None
    found = [one.get("text") for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in found if isinstance(text, str))


def _shorten_line(text: str) -> str:
    return " ".join(text[:400].split())[:200]


def _list_paths(changes: Any) -> list[str]:
    given = changes if isinstance(changes, list) else ()
    return [str(change["path"]) for change in given if isinstance(change, dict) and "path" in change]


def _unwrap_command(command: str) -> str:
    """The command in `/bin/bash -c 'command'`."""
    try:
        parts = shlex.split(command) if len(command) < _LONG else []
    except ValueError:
        return command
    return parts[2] if len(parts) == 3 and parts[1] in ("-c", "-lc") else command


def _parse_counts(counts: Any) -> Usage:
    def count(name: str) -> int:
        value = counts.get(name) if isinstance(counts, dict) else None
        return value if isinstance(value, int) else 0

    return Usage(count("input_tokens"), count("output_tokens"), cached_tokens=count("cached_input_tokens"))


def _usage_tuple(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens
