"""mini-swe-agent. It prints for people, and records its work in a trajectory: a JSON file, written after each step."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import DecodeError, Raw, Struct

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
    describe_exit,
    log_files,
    program,
)
from ralphtool.agents.program import HOSTS, KEYS, Program
from ralphtool.errors import InvalidValue
from ralphtool.typed import build_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TRAJECTORY = "mini.traj.json"
_NOTE = """\
Your final message is the text that you write next to the command that submits your work: put the promise that you are
asked for there, as the last line.
"""


class Mini(Program):
    program = "mini"
    package = "python -m pip install mini-swe-agent"
    oldest = (2, 4, 0)
    asks_version = "--help"  # it has no flag for its version, but prints it first, unless it is set to be silent
    when_asked: ClassVar[dict[str, str]] = {"MSWEA_SILENT_STARTUP": ""}
    skips = "it runs every command that its model asks for"
    kept_to = "can only run commands, and asks before each one"
    needs_all = True
    tells = Traits(
        cost="told",
        hosts=HOSTS,
        needs=("${XDG_CONFIG_HOME:-~/.config}/mini-swe-agent",),
        login_hint="run `mini-extra config setup`, or set the API key of your model's provider",
        credentials=Credentials(variables=KEYS),
    )

    def check(self) -> None:
        if not self.may_do_all:
            raise InvalidValue(
                f"{self.name} {self.kept_to}, so it can't work unattended: set "
                f'permissions = "all" in [agents.{self.name}] to let it run any command without asking'
            )
        super().check()

    def start(self, job: Job) -> Start:
        trajectory = os.path.join(job.folder, _TRAJECTORY)
        if os.path.lexists(trajectory):
            os.remove(trajectory)  # from an interrupted iteration
        argv = [*self.command, "--yolo", "--exit-immediately", "--output", trajectory]
        if self.model:
            argv += ["--model", self.model]
        if job.cost:
            argv += ["--cost-limit", f"{job.cost:.4f}"]
        argv += [*self._base_config(), *self.args, "--config", _write_task(job)]
        return Start(argv=tuple(argv), env=self._defaults() | self.env)

    def reader(self, job: Job) -> MiniReader:
        return MiniReader(job.folder, shows=not job.is_past)

    def _base_config(self) -> list[str]:
        """Its default configuration must be named, since it drops it if given another one: ours has only the task."""
        if any(one in ("-c", "--config") or one.startswith("--config=") for one in self.args):
            return []
        return ["--config", self._find_setting("MSWEA_MINI_CONFIG_PATH") or "mini.yaml"]

    def _defaults(self) -> dict[str, str]:
        """Makes it ask nothing on its first start, and accept models with unknown prices."""
        wanted = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
        return {name: value for name, value in wanted.items() if not self._find_setting(name)}

    def _find_setting(self, name: str) -> str:
        """The user's setting, from the environment or from mini's own file."""
        return self.env.get(name) or os.environ.get(name) or _read_own_settings(os.environ | self.env).get(name, "")


def _read_own_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The contents of its settings file."""
    home = env.get("HOME", "")
    usual = (
        env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"),
        os.path.join(home, "Library/Application Support"),
    )
    folders = [env.get("MSWEA_GLOBAL_CONFIG_DIR") or "", *(os.path.join(one, "mini-swe-agent") for one in usual)]
    path = next((path for one in folders if one and os.path.isfile(path := os.path.join(one, ".env"))), None)
    text = log_files.read_log(path).decode("utf-8", "replace") if path else ""
    pairs = (line.removeprefix("export ").partition("=") for line in text.splitlines() if line.startswith(_OURS))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


_OURS = ("MSWEA_", "export MSWEA_")


def _write_task(job: Job) -> str:
    """The path of a configuration that contains the prompt, which may be too long for an argument."""
    with open(job.prompt, encoding="utf-8", errors="replace") as file:
        text = f"{_NOTE}\n{file.read()}"
    path = os.path.join(job.folder, f"{os.path.basename(job.prompt)}.mini.yaml")
    return program.write_file(path, f'{{"run": {{"task": {_quote(text)}}}}}\n')


def _quote(text: str) -> str:
    """A text in YAML: as in JSON, but without surrogate pairs."""
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", json.dumps(text, ensure_ascii=False))


# --- its trajectory ---------------------------------------------------------------------------------


class MiniStats(Struct, frozen=True):
    instance_cost: float | None = None


class TrajectoryInfo(Struct, frozen=True):
    exit_status: str | None = None
    submission: str | None = None
    model_stats: MiniStats | None = None


class Trajectory(Struct, frozen=True):
    info: TrajectoryInfo
    messages: list[Raw] = []


class TokenDetails(Struct, frozen=True):
    cached_tokens: int | None = None


class MiniTokens(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None


class ModelResponse(Struct, frozen=True):
    model: str | None = None
    usage: MiniTokens | None = None


_NOT_RUN = "action was not executed"


class CommandAction(Struct, frozen=True):
    command: str = ""


class MessageExtra(Struct, frozen=True):
    actions: list[CommandAction] = []
    response: ModelResponse | None = None
    exception_str: str | None = None
    raw_output: Any = None  # of a command
    returncode: Any = None
    exception_info: Any = None

    def result(self) -> Result | None:
        """The result of a command; the one that submits the work counts as not run."""
        if not isinstance(self.raw_output, str) or self.exception_info == _NOT_RUN:
            return None
        problem = self.exception_info if isinstance(self.exception_info, str) else ""
        return Result(self.raw_output or problem, self.returncode in (0, None))


class TrajectoryMessage(Struct, frozen=True):
    role: str | None = None
    content: str | None = None
    extra: MessageExtra = MessageExtra()


_LONGEST_LINE = 64 << 10
_TRAJECTORIES, _MESSAGES = build_decoder(Trajectory), build_decoder(TrajectoryMessage)
_RETRY = re.compile(rb"Retrying \S{1,300} in [\d.]+ seconds as it raised (.+)")


class MiniReader(log_files.LogFileReader):
    def __init__(self, folder: str, *, shows: bool = True) -> None:
        super().__init__(shows=shows)
        self._path = os.path.join(folder, _TRAJECTORY)
        self._info: TrajectoryInfo | None = None
        self._begun = b""  # the incomplete last line of standard error
        self._error = ""
        self._message = ""

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        """Output of models and commands goes to standard output, so at least the start of a line here is mini's own."""
        super().feed_errors(chunk)
        *lines, last = (self._begun + chunk).split(b"\n")
        self._begun = last[-_LONGEST_LINE:]
        found = filter(None, map(_RETRY.match, lines))
        return [log_files.failure(one[1].decode("utf-8", "replace")) for one in found]

    def rest(self) -> Iterable[Event]:
        trajectory = _decode_trajectory(log_files.read_log(self._path))
        if trajectory is None:
            return ()
        self._info = trajectory.info
        said = [one for raw in trajectory.messages if (one := _decode_message(raw)) is not None]
        self._message = next((one.content or "" for one in reversed(said) if one.role == "assistant"), "")
        return [*_read_events(said), *_read_usage(said, trajectory.info), *self._failed(said)]

    def end(self, exit_code: int) -> End:
        status = self._info.exit_status if self._info else None
        message = self._message  # its submission is only the output of a command
        if status == "Submitted" and exit_code == 0:
            return End(True, message[-log_files.TAIL :], status)
        said = self._error or status or self.last_error()
        reason = f"it did not submit its work ({describe_exit(exit_code)}){': ' if said else ''}{said[:300]}"
        return End(False, message[-log_files.TAIL :], reason)

    def _failed(self, said: list[TrajectoryMessage]) -> Iterator[Failure]:
        """An error ends it, and is in the last message."""
        last = said[-1] if said else TrajectoryMessage()
        if last.role == "exit" and last.extra.exception_str is not None:
            kind = f"{self._info.exit_status if self._info else ''}: "
            self._error = kind + last.extra.exception_str.removeprefix("litellm.").removeprefix(kind)
            yield log_files.failure(self._error)


def _decode_trajectory(data: bytes) -> Trajectory | None:
    try:
        return _TRAJECTORIES.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None  # missing, incomplete, or something else


def _decode_message(raw: Raw) -> TrajectoryMessage | None:
    try:
        return _MESSAGES.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_events(said: list[TrajectoryMessage]) -> Iterator[Event]:
    for one in said:
        if one.role == "assistant" and one.content:
            yield Message(one.content)
        for action in one.extra.actions if one.role == "assistant" else ():
            yield Tool("bash", action.command.partition("\n")[0][:200])
        if (result := one.extra.result()) is not None:
            yield result


def _read_usage(said: list[TrajectoryMessage], info: TrajectoryInfo) -> Iterator[Usage]:
    responses = [one.extra.response for one in said if one.extra.response]
    tokens = [one.usage for one in responses if one.usage]
    if not tokens:
        return
    yield Usage(
        sum(one.prompt_tokens or 0 for one in tokens),
        sum(one.completion_tokens or 0 for one in tokens),
        (info.model_stats.instance_cost or None) if info.model_stats else None,  # 0 if it does not know the prices
        sum(one.prompt_tokens_details.cached_tokens or 0 for one in tokens if one.prompt_tokens_details),
        next((one.model or "" for one in responses), ""),
    )
