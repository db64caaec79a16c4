"""opencode. It has no final event: its work is done if its last step ended with "stop" and no error came after that.

It reports retries only in its log, so the log is printed to standard error.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder

from ralphtool.agents import (
    Credentials,
    End,
    Event,
    Failure,
    Job,
    Message,
    Result,
    Start,
    Tool,
    Traits,
    Trouble,
    Usage,
    failures,
)
from ralphtool.agents.json_lines import Lines
from ralphtool.agents.program import HOSTS, KEYS, Program
from ralphtool.errors import InvalidValue
from ralphtool.typed import build_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CONTENT = "OPENCODE_CONFIG_CONTENT"  # it merges this with the user's own files
_ENVIRONMENT = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
_READER = "ralphtool-reader"

# The last matching rule decides. Rules of an agent come after all others. Output must not be redirected to files.
# Rules see only a command's text, so anything that could turn it into another command is refused.
_COMMANDS = {"*": "deny", "ralphtool agent *": "allow"} | {
    f"ralphtool agent *{trick}*": "deny" for trick in (">", "`", "$(", "${")
}
_EDITING = {
    "edit": "allow",
    "bash": _COMMANDS,
    "webfetch": "deny",
    "websearch": "deny",
    "ralphtool_*": "allow",
}
_LOOKING = {
    "*": "deny",
    "read": {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"},
    "glob": "allow",
    "grep": "allow",
    "list": "allow",
    "ralphtool_*": "allow",
}


# The agent could have written the project's configuration and plugins itself; and these rules would override ours.
_CLOSED = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_PERMISSION": ""}


class OpenCode(Program):
    program = "opencode"
    package = "npm install -g opencode-ai"
    oldest = (1, 18, 0)
    skips = "it can run any command and change any file that you can, except what its own configuration denies"
    kept_to = "edits files in the project and ticks tasks, but runs no other commands"
    tells = Traits(
        cost="told",
        read_only=True,
        drafts=True,
        mcp=True,
        needs=(
            *("${XDG_CONFIG_HOME:-~/.config}/opencode", "${XDG_DATA_HOME:-~/.local/share}/opencode"),
            *("${XDG_STATE_HOME:-~/.local/state}/opencode", "${XDG_CACHE_HOME:-~/.cache}/opencode"),
            *("${OPENCODE_CONFIG:-~/.opencode}", "${OPENCODE_CONFIG_DIR:-~/.opencode}"),
        ),
        config_paths=(".opencode/", "opencode.json", "opencode.jsonc"),
        hosts=(*HOSTS, "opencode.ai", "models.dev"),
        login_hint="run `opencode auth login`",
        credentials=Credentials(
            variables=KEYS,
            files=("${XDG_DATA_HOME:-~/.local/share}/opencode/auth.json",),
        ),
    )

    def start(self, job: Job) -> Start:
        """`--dir`, because it trusts PWD more than its working directory. With a title it asks the model for none."""
        argv = [*self.command, "run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
        argv += ["--dir", os.path.abspath(job.root), "--title", "ralphtool"]
        if self.model:
            argv += ["--model", self.model]
        argv += self._build_mode_arguments(job)
        env = _ENVIRONMENT | self.env | {_CONTENT: self._content(job)}
        if job.read_only or not self.may_do_all:
            env |= _CLOSED
        return Start(argv=tuple(argv), stdin=job.prompt, env=env)

    def reader(self, job: Job) -> OpenCodeReader:
        return OpenCodeReader()

    def _build_mode_arguments(self, job: Job) -> list[str]:
        if job.read_only:
            return [*_drop_agent_option(self.args), "--agent", _READER]
        return [*(["--auto"] if self.may_do_all else []), *self.args]

    def _content(self, job: Job) -> str:
        given = self.env.get(_CONTENT) or os.environ.get(_CONTENT) or "{}"
        try:
            theirs = json.loads(given)
        except ValueError as error:
            raise InvalidValue(f"{_CONTENT} is not valid JSON ({error}): correct it, or unset it") from None
        if not isinstance(theirs, dict):
            raise InvalidValue(f"{_CONTENT} is not a JSON object: correct it, or unset it")
        return json.dumps(_merge_tables(theirs, self._config(job)))

    def _config(self, job: Job) -> dict[str, Any]:
        """A refused action must be reported to the model, and not end the run."""
        config: dict[str, Any] = {"experimental": {"continue_loop_on_deny": True}}
        if job.read_only:
            config["agent"] = {_READER: {"mode": "primary", "permission": _LOOKING | _build_drafting(job.draft)}}
        elif not self.may_do_all:
            config["permission"] = _EDITING | ({"bash": "deny"} if job.mcp else {})
        if job.mcp:
            server = {"type": "local", "command": list(job.mcp.command), "environment": job.mcp.env, "enabled": True}
            config["mcp"] = {"ralphtool": server}
        return config


def _build_drafting(folder: str) -> dict[str, Any]:
    """Rules that let it write into one folder. Its paths are relative to the project, which may be elsewhere; but the
    end of the folder's path, which contains the name of the run, is enough to identify it."""
    if not folder:
        return {}
    end = "/".join(folder.split("/")[-3:])
    only = {"*": "deny", f"*{end}/*": "allow"}
    return {"edit": only, "external_directory": only}


def _merge_tables(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Merges key by key; ours take precedence."""
    both = {
        key: _merge_tables(theirs[key], value) for key, value in ours.items() if _are_tables(theirs.get(key), value)
    }
    return theirs | ours | both


def _are_tables(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


def _drop_agent_option(args: Sequence[str]) -> list[str]:
    """If two agents are named, it uses its default one, which may change everything."""
    kept: list[str] = []
    rest = iter(args)
    for one in rest:
        if one == "--agent":
            next(rest, None)
        elif not one.startswith("--agent="):
            kept.append(one)
    return kept


# --- what it prints ---------------------------------------------------------------------------------


class TextPart(Struct, frozen=True):
    text: str = ""
    message_id: str | None = field(name="messageID", default=None)
    synthetic: bool | None = None  # sent as the user, by the program itself


class TextLine(Struct, frozen=True, tag="text", tag_field="type"):
    part: TextPart


class StartLine(Struct, frozen=True, tag="step_start", tag_field="type"):
    part: TextPart


class ToolMetadata(Struct, frozen=True):
    exit: int | None = None


class ToolState(Struct, frozen=True):
    input: dict[str, Any] | None = None
    status: Any = None
    output: Any = None
    error: Any = None
    metadata: Raw = Raw()  # for some tools as large as the output

    def result(self) -> Result:
        text = next((one for one in (self.output, self.error) if isinstance(one, str)), "")
        return Result(text, self.status != "error" and not self._exit_code())

    def _exit_code(self) -> int:
        try:
            return (_ABOUT.decode(self.metadata).exit if self.metadata else None) or 0
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return 0


_ABOUT = build_decoder(ToolMetadata)


class ToolPart(Struct, frozen=True):
    tool: str
    state: ToolState | None = None


class OpenCodeToolLine(Struct, frozen=True, tag="tool_use", tag_field="type"):
    part: ToolPart


class CachedTokens(Struct, frozen=True):
    read: int | None = None
    write: int | None = None


class OpenCodeTokens(Struct, frozen=True):
    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache: CachedTokens | None = None

    def usage(self, cost: float | None) -> Usage:
        """A cost of 0 means that it does not know the price."""
        cache = self.cache or CachedTokens()
        cached = cache.read or 0
        read = (self.input or 0) + (cache.write or 0) + cached
        return Usage(read, (self.output or 0) + (self.reasoning or 0), cost or None, cached)


class FinishPart(Struct, frozen=True):
    reason: str | None = None
    message_id: str | None = field(name="messageID", default=None)
    tokens: OpenCodeTokens | None = None
    cost: float | None = None


class FinishLine(Struct, frozen=True, tag="step_finish", tag_field="type"):
    part: FinishPart


class OpenCodeErrorData(Struct, frozen=True, rename="camel"):
    message: str | None = None
    ref: str | None = None  # identifies an internal error in its log
    status_code: int | None = None
    response_headers: dict[str, Any] | None = None


class OpenCodeError(Struct, frozen=True):
    name: str | None = None
    data: OpenCodeErrorData | None = None


class OpenCodeErrorLine(Struct, frozen=True, tag="error", tag_field="type"):
    error: OpenCodeError


_NAMES: dict[str | None, Trouble] = {"ContextOverflowError": "context", "ProviderAuthError": "login"}
_VALUE = rb'("(?:[^"\\]|\\.)*"|\S+)'
_LOGGED = re.compile(rb'message="stream error" .*?\berror\.error=' + _VALUE)
_FAULT = re.compile(rb"message=failed ref=\S+ error=" + _VALUE)
_SMALL = re.compile(rb"\bsmall=true\b")  # side requests, such as for titles
_CLASS = re.compile(r"\A\w*Error: ")
_CUT = "the model's answer was cut off"
_LONGEST = 64 << 10  # bytes of a line of the log


class OpenCodeReader(Lines["StartLine | TextLine | OpenCodeToolLine | FinishLine | OpenCodeErrorLine"]):
    decoder: ClassVar[Decoder[Any]] = build_decoder(
        StartLine | TextLine | OpenCodeToolLine | FinishLine | OpenCodeErrorLine
    )

    def __init__(self) -> None:
        super().__init__()
        self._log = b""  # the incomplete last line
        self._logged = ""  # the last error in the log
        self._fault = ""  # an internal error, such as an unknown model
        self._told: Failure | None = None  # the last error that it reported as an event
        self._begun_by: str | None = None  # the message of an unfinished step
        self._finish: FinishPart | None = None
        self._error: Failure | None = None  # an error after the last step
        self._speaker: str | None = None
        self._said: list[str] = []

    def take(self, line: StartLine | TextLine | OpenCodeToolLine | FinishLine | OpenCodeErrorLine) -> Iterable[Event]:
        match line:
            case StartLine():
                self.is_over = False
                return self._begin_step(line.part.message_id)
            case TextLine():
                return self._read_text(line.part)
            case OpenCodeToolLine():
                tool = Tool(line.part.tool, _find_detail(line.part))
                return (tool, line.part.state.result()) if line.part.state else (tool,)
            case FinishLine():
                self.is_over = line.part.reason == "stop"
                return self._end_step(line.part)
            case OpenCodeErrorLine():
                self._told = self._error = _build_failure(line.error)
                return () if self._fault else (self._error,)

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        super().feed_errors(chunk)
        *lines, last = (self._log + chunk).split(b"\n")
        self._log = last[:_LONGEST]
        return [event for line in lines for event in self._read_log(line)]

    def end(self, exit_code: int) -> End:
        """It exits with 1 even for an error that it recovered from."""
        if self._error is not None:
            return End(False, self._message(), self._fault or self._error.text)
        if self._finish is None:
            return self.without_an_end(exit_code)
        expected = 0 if self._told is None else 1
        # It has no terminal event: if it lingers after its last step, we end it ourselves.
        if self._finish.reason == "stop" and exit_code in (expected, -signal.SIGTERM, 128 + signal.SIGTERM):
            return End(True, self._message(), "stop")
        ended = f"its last step ended with {self._finish.reason}, exit status {exit_code}"
        complaint = self._complaint()
        return End(False, self._message(), f"{ended}: {complaint}" if complaint else ended)

    def _read_text(self, part: TextPart) -> Iterable[Event]:
        if part.synthetic:
            return ()
        if part.message_id != self._speaker:
            self._speaker = part.message_id
            self._said.clear()
        self._said.append(part.text)
        return (Message(part.text),)

    def _message(self) -> str:
        is_last = self._finish is None or self._finish.message_id in (self._speaker, None)
        return "\n".join(self._said) if is_last else ""

    def _begin_step(self, message_id: str | None) -> Iterable[Event]:
        """If a step starts twice in the same message, its first answer broke off; not even the log reports that."""
        is_again = message_id is not None and message_id == self._begun_by
        self._begun_by = message_id
        return (Failure("network", _CUT),) if is_again else ()

    def _end_step(self, part: FinishPart) -> Iterable[Event]:
        self._begun_by = None
        self._finish, self._error, self._logged = part, None, ""
        usage = (part.tokens or OpenCodeTokens()).usage(part.cost)
        if part.reason == "unknown" and not usage.output_tokens:
            self._error = Failure("network", _CUT)
            return (usage, self._error)
        return (usage,)

    def _read_log(self, line: bytes) -> Iterable[Event]:
        if fault := _FAULT.search(line):
            self._fault = _unquote(fault[1])
            return (failures.failure(self._fault),)
        found = _LOGGED.search(line)
        return self._read_retry(_CLASS.sub("", _unquote(found[1]))) if found and not _SMALL.search(line) else ()

    def _read_retry(self, text: str) -> Iterable[Event]:
        """An error as text only. If the text is unknown but the request is retried, it was a server error."""
        if self._told is not None and self._told.text == text:
            return ()  # already reported, with its status
        failure = failures.failure(text)
        if failure.trouble == "other" and text == self._logged:
            failure = Failure("overload", text)
        self._logged = text
        return (failure,)


def _unquote(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text.strip('"')


def _find_detail(part: ToolPart) -> str:
    given = (part.state.input if part.state else None) or {}
    values = (given.get(key) for key in ("command", "filePath", "path", "pattern", "url", "description", "name"))
    text = next((value for value in values if isinstance(value, str) and value), "")
    return " ".join(text.split())[:200]


def _build_failure(error: OpenCodeError) -> Failure:
    data = error.data or OpenCodeErrorData()
    text = data.message or error.name or "an error without a message"
    if error.name in _NAMES or data.ref:
        return Failure(_NAMES.get(error.name, "other"), text[:4000])
    return failures.failure(text, data.status_code, _parse_reset_time(data.response_headers or {}))


def _parse_reset_time(headers: dict[str, Any]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return time.time() + float(headers[name]) * unit
        except (KeyError, TypeError, ValueError):
            continue
    return None
