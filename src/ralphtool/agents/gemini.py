"""Gemini CLI. Its `result` event says how it ended; HTTP statuses of errors, and retries, are on standard error.

Two of its modes are not used. Without a terminal, the model can leave plan mode by itself, and then may do
everything; and the mode that accepts edits also accepts every redirection of a permitted command. Instead, our own
policy says what is permitted. It ends with a denial, so no rule of the user or the project can extend it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec import Struct, ValidationError, structs
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
    Usage,
    failures,
)
from ralphtool.agents.json_lines import Lines
from ralphtool.agents.program import Program, write_file
from ralphtool.core import files
from ralphtool.errors import InvalidValue, shorten
from ralphtool.typed import build_decoder, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphtool.agents import McpServer

_Kind = TypeVar("_Kind", bound=Struct)
_OWN = "${GEMINI_CLI_HOME:-~}/.gemini"  # the folder of the user's settings

# It refuses to work in a folder that is not trusted; a user who starts a run trusts the project's.
_ENVIRONMENT = {"GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
# The folders of an administrator's policies. If there are any, it ignores ours.
_ADMINISTRATED = ("/etc/gemini-cli/policies", "/Library/Application Support/GeminiCli/policies")
_EDITING = """\
[[rule]]
toolName = ["write_file", "replace"]
decision = "allow"
priority = 900

[[rule]]
toolName = "run_shell_command"
commandPrefix = "ralphtool agent"
decision = "allow"
priority = 900

[[rule]]
toolName = "*"
mcpName = "ralphtool"
decision = "allow"
priority = 900

[[rule]]
toolName = ["enter_plan_mode", "exit_plan_mode"]
decision = "deny"
priority = 900
"""
# Arguments are matched as JSON, where quotation marks in a text are escaped. A tool is offered to the model only if a
# rule allows it for all arguments: so everything is allowed, and paths elsewhere are denied.
_DRAFTING = """\
[[rule]]
toolName = ["write_file", "replace"]
argsPattern = {pattern}
decision = "deny"
priority = 950

[[rule]]
toolName = ["write_file", "replace"]
decision = "allow"
priority = 900
"""
_READING = """\
[[rule]]
toolName = ["list_directory", "read_file", "read_many_files", "grep_search", "glob"]
decision = "allow"
priority = 890

[[rule]]
toolName = "*"
decision = "deny"
priority = 880
"""


class Gemini(Program):
    program = "gemini"
    package = "npm install -g @google/gemini-cli"
    oldest = (0, 45, 2)
    skips = "it can run any command and change any file that you can"
    kept_to = "edits files in the project's folder, which it trusts, and ticks tasks, but runs no other commands"
    tells = Traits(
        cost="tokens",
        needs=(_OWN,),
        config_paths=(".gemini/",),
        # With an API key, with Vertex AI, and with a Google account.
        hosts=(
            *("generativelanguage.googleapis.com", "aiplatform.googleapis.com", "cloudcode-pa.googleapis.com"),
            *("oauth2.googleapis.com", "www.googleapis.com"),
        ),
        login_hint="start `gemini` once and log in, or set GEMINI_API_KEY",
        credentials=Credentials(
            variables=("GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
            files=(f"{_OWN}/oauth_creds.json", f"{_OWN}/gemini-credentials.json"),
            elsewhere=(
                (f"{_OWN}/settings.json", "selectedType"),
                *((path, "GOOGLE_") for path in (".gemini/.env", ".env", f"{_OWN}/.env", "~/.env")),
                *((path, "GEMINI_") for path in (".gemini/.env", ".env", f"{_OWN}/.env", "~/.env")),
            ),
            is_all=True,
        ),
    )

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, options)
        takes_policies = not any(map(_has_policies, _ADMINISTRATED))
        self.traits = structs.replace(
            self.traits, read_only=takes_policies, drafts=takes_policies, mcp=takes_policies or self.may_do_all
        )

    def start(self, job: Job) -> Start:
        argv = [*self.command, "--output-format", "stream-json", *self._permissions(job)]
        if self.model:
            argv += ["--model", self.model]
        env = _ENVIRONMENT | self.env
        home = _make_linked_home(job.mcp, _linked_home_path(job), _find_home(self.env)) if job.mcp else ""
        if home:
            env["GEMINI_CLI_HOME"] = home
        # The user's own arguments may include one that permits everything.
        args = () if job.read_only else self.args
        return Start(argv=(*argv, *args), stdin=_write_prompt(job), env=env, folders=(home,) if home else ())

    def reader(self, job: Job) -> GeminiReader:
        return GeminiReader("" if job.is_past else _linked_home_path(job))

    def _permissions(self, job: Job) -> list[str]:
        if self.may_do_all and not job.read_only:
            return ["--approval-mode", "yolo"]
        name, rules = ("reading", _READING) if job.read_only else ("editing", f"{_EDITING}\n{_READING}")
        more = []
        if job.read_only and job.draft:
            name, rules = "drafting", f"{_build_drafting_rules(job.draft)}\n{_READING}"
            more = ["--include-directories", job.draft]
        policy = _write_policy(job, f"gemini-{name}.toml", rules)
        return ["--approval-mode", "default", "--admin-policy", policy, *more]


def _build_drafting_rules(folder: str) -> str:
    """Permits only files below one folder, without `..` in their paths."""
    inside = re.escape(json.dumps(folder, ensure_ascii=False)[1:-1])
    pattern = rf'"file_path":"(?:(?!{inside}/)|[^"]*\.\.)'
    return _DRAFTING.format(pattern=json.dumps(pattern, ensure_ascii=False))


def _has_policies(folder: str) -> bool:
    return os.path.isdir(folder) and any(name.endswith(".toml") for name in os.listdir(folder))


def _write_policy(job: Job, name: str, rules: str) -> str:
    path = os.path.join(job.folder, name)
    if "," in path:  # it would look for two files, find neither, and start without a policy
        raise InvalidValue(
            f"gemini can't read a policy from {shorten(path)}: move the project to a path without a comma"
        )
    return write_file(path, rules)


def _write_prompt(job: Job) -> str:
    """With every `@` escaped: it would send along each file that is merely mentioned (npm's `@types`, `@~/.netrc`)."""
    with open(job.prompt, encoding="utf-8", errors="replace") as file:
        return write_file(os.path.join(job.folder, "gemini-prompt.md"), file.read().replace("@", "\\@"))


# --- our MCP server ---------------------------------------------------------------------------------


def _find_home(env: Mapping[str, str]) -> str:
    variables = os.environ | env
    return variables.get("GEMINI_CLI_HOME") or variables.get("HOME") or os.path.expanduser("~")


def _linked_home_path(job: Job) -> str:
    """Outside the project, so that neither a search nor another agent finds the linked files."""
    name = hashlib.sha256(os.path.abspath(job.folder).encode()).hexdigest()[:16]
    return files.private_path("ralph", "gemini", name)


def _make_linked_home(mcp: McpServer, ours: str, home: str) -> str:
    """Links to the user's settings, plus one extension: the only way to add a server for one run.

    System settings would work too, but it accepts them only from files that root owns.
    """
    files.clear(ours)
    files.make_private_folders(ours)
    place = ".gemini"
    for name in ("extensions", "ralphtool"):
        _link_all(os.path.join(home, place), os.path.join(ours, place), but=name)
        place = os.path.join(place, name)
    extension = os.path.join(ours, place)
    os.makedirs(extension, exist_ok=True)
    server = {"command": mcp.command[0], "args": list(mcp.command[1:]), "env": mcp.env}
    described = {"name": "ralphtool", "version": "1.0.0", "mcpServers": {"ralphtool": server}}
    write_file(os.path.join(extension, "gemini-extension.json"), json.dumps(described))
    # If extensions need to be allowed, one without an origin makes the program exit.
    origin = {"source": extension, "type": "local"}
    write_file(os.path.join(extension, ".gemini-extension-install.json"), json.dumps(origin))
    return ours


def _link_all(source: str, target: str, *, but: str) -> None:
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source) if os.path.isdir(source) else ():
        link = os.path.join(target, name)
        if name != but and not os.path.lexists(link):
            os.symlink(os.path.join(source, name), link)


# --- what it prints ---------------------------------------------------------------------------------


class InitLine(Struct, frozen=True, tag="init", tag_field="type"):
    pass


class GeminiMessageLine(Struct, frozen=True, tag="message", tag_field="type"):
    role: str
    content: str


class GeminiToolLine(Struct, frozen=True, tag="tool_use", tag_field="type"):
    tool_name: str
    parameters: Any = None


class GeminiToolResultLine(Struct, frozen=True, tag="tool_result", tag_field="type"):
    status: str
    output: str | None = None
    error: Any = None


class GeminiErrorLine(Struct, frozen=True, tag="error", tag_field="type"):
    message: str


class GeminiResultLine(Struct, frozen=True, tag="result", tag_field="type"):
    status: str
    error: Any = None  # these two are decoded only after the status is known
    stats: Any = None


class GeminiTokens(Struct, frozen=True):
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0


class GeminiStats(Struct, frozen=True):
    models: dict[str, GeminiTokens] = {}


class GeminiError(Struct, frozen=True):
    message: str = ""


_KEPT = 64 << 10  # bytes of a message: more than enough for a promise
_HALF = 64 << 10  # bytes of a line on standard error
_DETAILS = ("command", "file_path", "dir_path", "path", "pattern", "query", "prompt")
_RETRY = re.compile(r"Attempt \d+ failed(?: with status (\d{3})|(:))?")
_LAST_TRY = "Max attempts reached"
_NO_LOGIN = re.compile(r"^.*(?:GEMINI_API_KEY|auth method|authenticat).*$", re.MULTILINE | re.IGNORECASE)
_STATUS = re.compile(r'"code": ?(\d{3})|^ *status: (\d{3})', re.MULTILINE)
_CAUSE = re.compile(r"\[cause\]: (.+)")
_RESET = re.compile(r"Suggested retry after ([\d.]+)s\b")

GeminiLine = InitLine | GeminiMessageLine | GeminiToolLine | GeminiToolResultLine | GeminiErrorLine | GeminiResultLine


class GeminiReader(Lines[GeminiLine]):
    decoder: ClassVar[Decoder[Any]] = build_decoder(GeminiLine)

    def __init__(self, home: str = "") -> None:
        super().__init__()
        self._home = home  # the folder of links, removed at the end
        self._has_begun = False
        self._half = b""  # the incomplete last line of standard error
        self._message = ""  # its text since it last used a tool
        self._problem = ""
        self._result: GeminiResultLine | None = None

    def take(self, line: GeminiLine) -> Iterable[Event]:
        match line:
            case InitLine():
                self._has_begun = True
            case GeminiMessageLine(role="assistant"):
                self._message = (self._message + line.content)[-_KEPT:]
            case GeminiToolLine():
                return [*self._said(is_over=False), Tool(line.tool_name, _find_detail(line.parameters))]
            case GeminiToolResultLine():
                return [
                    Result(
                        line.output or _convert_or_default(line.error, GeminiError).message, line.status == "success"
                    )
                ]
            case GeminiErrorLine():
                self._problem = line.message
                return [failures.failure(line.message)]
            case GeminiResultLine():
                self._result, self.is_over = line, True
                self._problem = _convert_or_default(line.error, GeminiError).message or self._problem
        return ()

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        super().feed_errors(chunk)
        *lines, half = (self._half + chunk).split(b"\n")
        self._half = half[-_HALF:]
        return [event for line in lines for event in _read_retry(line.decode("utf-8", "replace"))]

    def rest(self) -> Iterable[Event]:
        if self._home:
            files.clear(self._home)
        events = [*super().rest(), *self._said()]
        if self._result is None:
            return events + self._find_refusal()
        events += _read_usage(self._result)
        return events if self._result.status == "success" else [*events, self._failure()]

    def end(self, exit_code: int) -> End:
        if self._result is None:
            return self.without_an_end(exit_code)
        if self._result.status == "success":
            return End(True, self._message, "success")
        return End(False, self._message, " ".join(self._problem.split())[:300] or self._result.status)

    def _said(self, *, is_over: bool = True) -> list[Event]:
        text = self._message
        self._message = text if is_over else ""
        return [Message(text)] if text.strip() else []

    def _failure(self) -> Failure:
        """The failure that ended it. If the message lacks the HTTP status or the cause, standard error has it."""
        told = self._errors.decode("utf-8", "replace")
        found = _STATUS.findall(self._problem) or _STATUS.findall(told)
        cause = _CAUSE.search(told)
        text = f"{self._problem} ({cause[1].strip()})" if cause else self._problem
        return _build_failure(text, int("".join(found[-1])) if found else None)

    def _find_refusal(self) -> list[Event]:
        """It exited before it began: most often the user is not logged in."""
        found = None if self._has_begun else _NO_LOGIN.search(self._errors.decode("utf-8", "replace"))
        return [failures.failure(found[0], 401)] if found else []


def _convert_or_default(value: Any, kind: type[_Kind]) -> _Kind:
    try:
        return convert(value, kind)
    except ValidationError:
        return kind()


def _read_usage(line: GeminiResultLine) -> Iterable[Usage]:
    for model, told in _convert_or_default(line.stats, GeminiStats).models.items():
        # Reasoning tokens are only in the total.
        written = max(told.output_tokens, told.total_tokens - told.input_tokens)
        if told.input_tokens or written:
            yield Usage(told.input_tokens, written, cached_tokens=told.cached, model=model)


def _read_retry(line: str) -> Iterable[Failure]:
    found = _RETRY.match(line)
    if found and _LAST_TRY not in line:
        is_quota = found[2] and failures.classify_text(line) == "other"  # only quota errors have a colon there
        status = 429 if is_quota else found[1]
        yield _build_failure(line[:1000], int(status) if status else None)


def _build_failure(text: str, status: int | None) -> Failure:
    reset = _RESET.search(text)
    return failures.failure(text, status, time.time() + float(reset[1]) if reset else None)


def _find_detail(parameters: Any) -> str:
    if not isinstance(parameters, dict):
        return ""
    told = next((parameters[name] for name in _DETAILS if isinstance(parameters.get(name), str)), "")
    return next(iter(told.strip().splitlines()), "")[:200]
