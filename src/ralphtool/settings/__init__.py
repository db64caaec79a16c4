"""The settings of a run: `.ralph/config.toml` and the flags, typed, and checked whole before anything runs.

Every setting is a field of a table below: its type says what it may be, the docstring under it what it does. The
page `docs/settings.md` and the help of the flags are generated from these. Errors name the line.

One file of over 500 lines: the tables are one list, and mostly documentation.
"""

from __future__ import annotations

import re
import typing
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from ralphtool.core import config, files
from ralphtool.errors import WrongSetting, shorten
from ralphtool.settings.describing import read_docstrings, write_default
from ralphtool.settings.executor import ExecutorSettings
from ralphtool.settings.otel import OtelSettings
from ralphtool.settings.positions import KeyPath, advise_on_line, find_broken_line, find_lines, find_nearest, join_keys
from ralphtool.settings.trackers import BeadsSettings, GithubSettings, SpecsSettings
from ralphtool.settings.values import (
    LIMIT,
    MOST_LANES,
    Argument,
    Attempts,
    BadValue,
    Budget,
    Count,
    Dollars,
    Environment,
    Lanes,
    Port,
    Seconds,
    Share,
    Switch,
    Text,
    Texts,
    TooBig,
    describe_dollars,
    describe_list,
    describe_text,
    describe_whole,
    find_kind,
    list_types,
    read_flag,
    read_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
__all__ = ["Settings", "load"]


def parse_duration(text: str | int | float) -> float:
    """Seconds, from `90s`, `30m`, `2h`, `1h30m`, or a number of seconds. 0 means no limit."""
    try:
        return typing.cast("float", read_value(Seconds, text))
    except BadValue:
        shown = shorten(text) if isinstance(text, str) else "that"
        raise WrongSetting(f"{shown} is not a duration: write 90s, 30m, 2h, 1h30m or a number of seconds") from None
    except TooBig as error:
        raise WrongSetting(f"that duration {error}") from None


# --- the settings -----------------------------------------------------------------------------------

GuardMode = Literal["off", "warn", "fail", "strict"]
Accepted = Literal["held", "unproven"]
Permissions = Literal["edit", "all"]
WorkspaceMode = Literal["auto", "box", "worktree", "here"]
SandboxMode = Literal["auto", "require"]
NetworkMode = Literal["allow", "on", "off"]
ExecutorName = Literal["local", "temporal"]
PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65535), describe_whole(1, "5432")]
CommandList = Annotated[Texts, describe_list("commands", '["make test"]')]


class RunSettings(Struct, frozen=True, kw_only=True):
    """`[run]`: how a run works on a change."""

    spec: Annotated[Text, describe_text("docs/plan.md")] | None = None
    """The format or the file of the change, if it is ambiguous: `openspec`, `docs/plan.md`."""
    agent: Annotated[Text, describe_text("claude", "NAME")] | None = None
    """The agent that writes the code: a built-in one, or a NAME of `[agents.NAME]`."""
    agents: Annotated[Texts, describe_list("names", '["claude", "codex"]')] = ()
    """The agents, in order: if one can't continue, the next one takes over."""
    attempts: Annotated[Attempts, LIMIT] = 3
    """The number of attempts at a story before you are asked."""
    max_iterations: Annotated[Count, LIMIT] = 0
    """The maximum number of iterations of a run; 0 is no limit."""
    max_time: Annotated[Seconds, LIMIT] = 0
    """The time limit of a run; 0 is no limit."""
    timeout: Annotated[Seconds, LIMIT] = 3600
    """The time limit of an iteration; 0 is no limit."""
    silence: Annotated[Seconds, LIMIT] = 900
    """How long an agent may print nothing before it is stopped; 0 is no limit."""
    patience: Seconds = 300
    """How long an agent may make no progress after a rate limit or an outage before it is stopped; 0 is no limit."""
    check_blockers: Switch = False
    """Let a read-only agent check a reported blocker that ralphtool can't check itself."""
    wait_for_answers: Seconds = 0
    """How long a run that has no other work waits for your answers before it ends; 0 means it doesn't wait."""
    strict_order: Switch = False
    """Let each story wait for all stories before it."""
    side_by_side: Lanes = 1
    """The number of stories to work on at once, each in its own box; at most 8, with workers 500."""
    speculate: Lanes = 2
    """How many stories may run their gates at once, assuming that the stories before them pass."""
    setup: Annotated[Texts, describe_list("commands", '["npm ci"]')] = ()
    """Commands that install what the project needs: at the start, and when a manifest or lock file changes."""
    guard: GuardMode = "fail"
    """What to do about cheating: "off", "warn", "fail" the attempt, "strict" (also for weaker tests; see guard.md)."""
    workspace: WorkspaceMode = "auto"
    """Where agents work: in a box, a worktree, or your own folder; "auto" is the first that is available."""
    executor: ExecutorName = "local"
    """Where iterations run: on this machine, or on the workers of the server in `[executor]`."""
    max_tokens: Annotated[Count, LIMIT] = 0
    """The token limit of a run; 0 is no limit."""
    max_cost: Annotated[Dollars, LIMIT] = 0
    """The cost limit of a run, in dollars; 0 is no limit."""
    story_tokens: Annotated[Count, LIMIT] = 0
    """The token limit of a story; 0 is no limit."""
    story_cost: Annotated[Dollars, LIMIT] = 0
    """The cost limit of a story, in dollars; 0 is no limit."""


class VerifySettings(Struct, frozen=True, kw_only=True):
    """`[verify]`: how a story is proven."""

    checks: CommandList | None = None
    """Commands that check the code, such as linters; inferred from the project if not given."""
    tests: CommandList | None = None
    """Commands that run tests; inferred from the project if not given."""
    timeout: Seconds = 1200
    """The time limit of each command; 0 is no limit."""


class ProofSettings(Struct, frozen=True, kw_only=True):
    """`[proof]`: what shows that a story is done."""

    replay: Switch = True
    """Whether the original tests are run on the new source if an attempt changed tests or their setup."""
    own_tests: Switch = True
    """Whether an attempt's new tests are run without its work: at least one must fail there."""
    may_change: Annotated[Texts, describe_list("path patterns", '["tests/legacy/**"]')] = ()
    """Tests that any story may change, as path patterns."""
    accept: Accepted = "held"
    """With "unproven", a run whose stories are done but not all proven also exits with 0."""


class BlockerSettings(Struct, frozen=True, kw_only=True):
    """`[blockers]`: what the project needs; checked when an agent reports that it is blocked."""

    variables: Annotated[Texts, describe_list("variable names", '["DATABASE_URL"]')] = ()
    """Environment variables that must be set."""
    files: Annotated[Texts, describe_list("paths", '["config/local.toml"]')] = ()
    """Files and folders that must exist, relative to the project's root."""
    commands: Annotated[Texts, describe_list("program names", '["psql"]')] = ()
    """Programs that must be on the PATH."""
    ports: Annotated[tuple[Port, ...], describe_list("ports or hosts with ports", '["5432", "db.local:5432"]')] = ()
    """Ports that must answer, on this machine or a host: `5432`, `db.local:5432`."""


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """`[sandbox]`: what agents and gates may reach from their box."""

    mode: SandboxMode = "auto"
    """With "require", a run without a box is refused."""
    network: NetworkMode = "allow"
    """"allow": the agent's own hosts and those in `hosts`; "on": everything; "off": nothing."""
    hosts: Annotated[Texts, describe_list("host names", '["packages.example.org", "*.internal.example"]')] = ()
    """Hosts that can be reached, in addition to the agent's own; `*.example.org` means all its subdomains."""
    ports: Annotated[tuple[PortNumber, ...], describe_list("port numbers", "[5432]")] = ()
    """Ports of this machine that can be reached, such as a database's."""
    read: Annotated[Texts, describe_list("paths", '["~/.config/tool"]')] = ()
    """Files and folders that are visible, read-only."""
    write: Annotated[Texts, describe_list("paths", '["~/.cache/tool"]')] = ()
    """Files and folders that are visible and writable."""
    env: Annotated[Texts, describe_list("variable names", '["NPM_TOKEN"]')] = ()
    """Secret environment variables to pass to agents and gates; without this, a box has only the agent's own."""


class NotifySettings(Struct, frozen=True, kw_only=True):
    """`[notify]`: the program to call when a run ends, or needs an answer."""

    command: Annotated[Texts, describe_list("non-empty strings", '["notify-send", "ralphtool"]')] = ()
    """A program and its arguments; it gets one JSON object on stdin."""


class MemorySettings(Struct, frozen=True, kw_only=True):
    """`[memory]`: the learnings in a prompt."""

    budget_tokens: Count = 2000
    """The maximum number of tokens for learnings in a prompt."""


class PromptSettings(Struct, frozen=True, kw_only=True):
    """`[prompt]`: the prompt of an agent."""

    budget_tokens: Budget = 30000
    """The maximum number of tokens in a whole prompt."""


class AgentSettings(Struct, frozen=True, kw_only=True):
    """`[agents.NAME]`: how to start one agent."""

    kind: Annotated[Text, describe_text("claude")] | None = None
    """The kind of agent, if the name is not a kind: this allows two of the same kind."""
    command: Annotated[Texts, describe_list("non-empty strings", '["my-agent", "--quiet"]')] = ()
    """The program and its arguments, if they differ from the default."""
    model: Annotated[Text, describe_text("opus")] | None = None
    """The model to use."""
    args: Annotated[tuple[Argument, ...], describe_list("strings", '["--verbose"]')] = ()
    """Arguments to add to the command."""
    env: Environment = {}
    """Environment variables to add."""
    permissions: Permissions | None = None
    """What it may do without asking: "edit" files and run ralphtool, or "all"; default: "all" in a box, else "edit"."""
    stop_at: Share | None = None
    """How much of its quota may be used before it pauses until the reset, if the agent reports its quota."""
    mcp: Switch | None = None
    """Whether it also gets ralphtool's commands as MCP tools; by default yes, unless permissions is set to "all"."""


class PriceSettings(Struct, frozen=True, kw_only=True):
    """`[prices.MODEL]`: the prices of a model, in dollars per million tokens, for agents that report only their tokens.

    MODEL is the model's name as the agent reports it or as in `[agents.NAME]`, or the name of the agent.
    """

    input: Dollars = 0.0
    """Price of input tokens."""
    output: Dollars = 0.0
    """Price of output tokens."""
    cached: Annotated[Dollars, describe_dollars("0.25")] | None = None
    """Price of cached input tokens; by default the price of input."""


class Settings(Struct, frozen=True, kw_only=True):
    """All of `.ralph/config.toml`."""

    run: RunSettings = RunSettings()
    verify: VerifySettings = VerifySettings()
    proof: ProofSettings = ProofSettings()
    memory: MemorySettings = MemorySettings()
    prompt: PromptSettings = PromptSettings()
    sandbox: SandboxSettings = SandboxSettings()
    blockers: BlockerSettings = BlockerSettings()
    executor: ExecutorSettings = ExecutorSettings()
    notify: NotifySettings = NotifySettings()
    otel: OtelSettings = OtelSettings()
    specs: SpecsSettings = SpecsSettings()
    agents: dict[str, AgentSettings] = {}
    prices: dict[str, PriceSettings] = {}


_TABLES: dict[str, type[Struct]] = {
    "run": RunSettings,
    "verify": VerifySettings,
    "proof": ProofSettings,
    "memory": MemorySettings,
    "prompt": PromptSettings,
    "sandbox": SandboxSettings,
    "blockers": BlockerSettings,
    "executor": ExecutorSettings,
    "notify": NotifySettings,
    "otel": OtelSettings,
}
# Tables of tables with fixed names.
_GROUPED_TABLES: dict[str, dict[str, type[Struct]]] = {"specs": {"github": GithubSettings, "beads": BeadsSettings}}
# Tables of tables whose names the user chooses.
_NAMED_TABLES: dict[str, type[Struct]] = {"agents": AgentSettings, "prices": PriceSettings}
_SECTIONS: dict[str, type[Struct]] = {
    **_TABLES,
    **{f"{group}.{name}": table for group, tables in _GROUPED_TABLES.items() for name, table in tables.items()},
    "agents.NAME": AgentSettings,
    "prices.MODEL": PriceSettings,
}
_NO_FLAGS = ("spec", "agents", "setup")  # the first is a flag of most commands; lists are for the file

_Table = TypeVar("_Table", bound=Struct)


@cache
def list_limits() -> tuple[str, ...]:
    """The names of the settings that limit a run, in the order of the file."""
    return tuple(key for key, hint in list_types(RunSettings).items() if LIMIT in getattr(hint, "__metadata__", ()))


# --- reading ----------------------------------------------------------------------------------------


def load(project: str, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a project. `flags` are named as in `[run]` and override the file; None means not given."""
    path = config.path_of(project)
    text = _read_config(path)
    settings = parse(text, path) if text else Settings()
    given = {name: _parse_flag(name, value) for name, value in (flags or {}).items() if value is not None}
    return structs.replace(settings, run=_check_lanes(structs.replace(settings.run, **given)))


def _check_lanes(run: RunSettings) -> RunSettings:
    for name in ("side_by_side", "speculate"):
        if run.executor == "local" and getattr(run, name) > MOST_LANES:
            raise WrongSetting(f'run.{name} is at most {MOST_LANES} on one machine: set executor = "temporal" for more')
    return run


def _read_config(path: str) -> str:
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise WrongSetting(f"{path} can't be read ({error.strerror}): check its permissions") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WrongSetting(f"{path}, line {line}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def parse(text: str, path: str) -> Settings:
    """The settings in a TOML text; errors name it as `path`."""
    text = text.removeprefix("\ufeff")
    settings, problems = _read_settings(_parse_toml(text, path))
    if problems:
        lines = find_lines(text)
        line, message = min((lines[problem.path], problem.message) for problem in problems)
        raise WrongSetting(f"{path}, line {line}: {message}")
    return settings


def _parse_toml(text: str, path: str) -> dict[str, Any]:
    import tomllib  # slow to import, and only needed if there is a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _build_toml_error(text, path, str(error)) from None
    except (ValueError, RecursionError):  # thousands of digits or brackets; these errors have no position
        raise WrongSetting(
            f"{path}, line {find_broken_line(text)}: too long or nested too deeply: shorten it"
        ) from None


def _build_toml_error(text: str, path: str, message: str) -> WrongSetting:
    found = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)\Z", message)
    said = message[: found.start()] if found else message
    # At the end of the document, the parser does not say where the open statement begins.
    line = int(found[1]) if found and found[1] else find_broken_line(text)
    return WrongSetting(f"{path}, line {line}: not valid TOML ({said[:200]}): {advise_on_line(text, line)}")


class _SettingProblem(NamedTuple):
    path: KeyPath
    message: str


def _read_settings(given: dict[str, Any]) -> tuple[Settings, list[_SettingProblem]]:
    problems: list[_SettingProblem] = []
    read: dict[str, Any] = {}
    for name, table in given.items():
        if name in _TABLES:
            read[name] = _read_table(_TABLES[name], table, (name,), problems)
        elif name in _GROUPED_TABLES and isinstance(table, dict):
            read[name] = _read_group(name, table, problems)
        elif name in _NAMED_TABLES and isinstance(table, dict):
            read[name] = {
                key: _read_table(_NAMED_TABLES[name], one, (name, key), problems) for key, one in table.items()
            }
        else:
            problems.append(_SettingProblem((name,), _describe_bad_table(name, table)))
    return Settings(**read), problems


def _read_group(name: str, given: dict[str, Any], problems: list[_SettingProblem]) -> SpecsSettings:
    known = _GROUPED_TABLES[name]
    read: dict[str, Any] = {}
    for key, one in given.items():
        if key in known:
            read[key] = _read_table(known[key], one, (name, key), problems)
        else:
            there = ", ".join(f"[{name}.{one}]" for one in known)
            problems.append(
                _SettingProblem((name, key), f"unknown table [{join_keys((name, key))}]: the tables are {there}")
            )
    return SpecsSettings(**read)


def _read_table(table: type[_Table], given: object, path: KeyPath, problems: list[_SettingProblem]) -> _Table:
    if not isinstance(given, dict):
        problems.append(_SettingProblem(path, f"{join_keys(path)} must be a table, as in [{join_keys(path)}]"))
        return table()
    types, read = list_types(table), {}
    for key, value in given.items():
        here = (*path, key)
        if key not in types:
            problems.append(
                _SettingProblem(here, f"unknown setting {join_keys(here)}: {_suggest_setting(table, here)}")
            )
            continue
        try:
            read[key] = read_value(types[key], value)
        except BadValue as error:
            to_blame = here if error.key is None else (*here, error.key)
            problems.append(
                _SettingProblem(to_blame, _describe_allowed(join_keys(here), f"{key} = ", types[key], error))
            )
        except TooBig as error:
            problems.append(_SettingProblem(here, f"{join_keys(here)} {error}"))
    return structs.replace(table(), **read)


def _parse_flag(name: str, value: object) -> object:
    """The value of a command-line flag; a string is parsed as the user typed it."""
    flag = "--" + name.replace("_", "-")
    hint = list_types(RunSettings).get(name)
    if hint is None:
        near = find_nearest(name, list_types(RunSettings))
        advice = f"did you mean --{near.replace('_', '-')}?" if near else "see ralphtool run --help"
        raise WrongSetting(f"unknown flag {flag}: {advice}")
    try:
        return read_flag(hint, value)
    except BadValue as error:
        raise WrongSetting(f"{flag}: {_describe_allowed('', f'{flag} ', hint, error)}") from None
    except TooBig as error:
        raise WrongSetting(f"{flag}: {error}") from None


# --- messages ---------------------------------------------------------------------------------------


def _describe_allowed(name: str, assigned: str, hint: Any, error: BadValue) -> str:
    """What a setting must be, in words and by example."""
    kind = find_kind(hint)
    example = f", as in {assigned}{kind.example}" if kind.example else ""
    return f"{name} must be {kind.words}{example}{error.hint}".lstrip()


def _describe_bad_table(name: str, given: object) -> str:
    if name == "agents":
        return "agents must hold tables, as in [agents.claude]: did you mean run.agents?"
    if name in _GROUPED_TABLES:
        return f"{name} must hold tables, as in [{name}.{next(iter(_GROUPED_TABLES[name]))}]"
    if name == "prices":
        return "prices must hold tables, as in [prices.gpt-5]"
    if not isinstance(given, dict):
        advice = _suggest_table(name) or "put it in a table, such as [run]"
        return f"unknown setting {join_keys((name,))}: {advice}"
    near = find_nearest(name, (*_TABLES, *_GROUPED_TABLES, *_NAMED_TABLES))
    advice = f"did you mean [{near}]?" if near else f"the tables are {', '.join(_SECTIONS)}"
    return f"unknown table [{join_keys((name,))}]: {advice}"


def _suggest_setting(table: type[Struct], path: KeyPath) -> str:
    """The nearest valid setting: with the same name, else in the same table, else in any; else a list of all."""
    near = find_nearest(path[-1], list_types(table))
    if near and not _find_tables(path[-1]):
        return f"did you mean {join_keys((*path[:-1], near))}?"
    return _suggest_table(path[-1]) or f"the settings are {', '.join(list_types(table))}"


def _suggest_table(key: str) -> str:
    near = find_nearest(key, {right for table in _SECTIONS.values() for right in list_types(table)})
    return f"did you mean {' or '.join(_find_tables(near))}?" if near else ""


def _find_tables(key: str) -> list[str]:
    return [f"{name}.{key}" for name, table in _SECTIONS.items() if key in list_types(table)]


# --- descriptions -----------------------------------------------------------------------------------


class SettingHelp(NamedTuple):
    """One setting in words."""

    table: str
    key: str
    default: str
    """As TOML; empty if there is none."""
    help: str
    words: str
    """What it may be: `a duration`."""
    metavar: str
    """What stands for its value in the help of its flag: `DURATION`."""

    @property
    def flag(self) -> str | None:
        """Its name on the command line of `ralphtool run`, if it has one."""
        is_flag = self.table == "run" and self.key not in _NO_FLAGS
        return build_flag(self.key) if is_flag else None


def build_flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def list_flags() -> list[tuple[str, bool]]:
    """The settings of `[run]` that are flags, and whether each is a switch; without their help, which is slow."""
    defaults = RunSettings()
    keys = [key for key in RunSettings.__struct_fields__ if key not in _NO_FLAGS]
    return [(key, isinstance(getattr(defaults, key), bool)) for key in keys]


def _describe_value(hint: Any) -> tuple[str, str]:
    kind = find_kind(hint)
    return kind.words, kind.metavar


@cache
def describe(section: str = "") -> tuple[SettingHelp, ...]:
    """Every setting, or those of one section, in the order of the file."""
    elsewhere = (BeadsSettings, ExecutorSettings, OtelSettings)
    docs = read_docstrings(__name__, *(table.__module__ for table in elsewhere))
    return tuple(
        SettingHelp(name, key, write_default(table, key), docs.get((table.__name__, key), ""), *_describe_value(hint))
        for name, table in _SECTIONS.items()
        if section in ("", name)
        for key, hint in list_types(table).items()
    )
