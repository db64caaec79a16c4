"""The settings of a run: `.ralph/config.toml` and the flags, typed, and checked whole before anything runs.

Every setting is a field of a table below: its type says what it may be, the docstring under it what it does. The
page `docs/settings.md` and the help of the flags are made from these. What is wrong is told with its line.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import sys
import tomllib
import typing
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from ralphtool.core import config, files
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Path = tuple[str, ...]  # of a setting: ("run", "timeout")


__all__ = ["Settings", "load"]


class Wrong(InvalidValue):
    """A setting or a flag that can't be used."""

    exit_code = 2


# --- what a setting may be --------------------------------------------------------------------------

_MOST = 10**12  # of tokens, dollars, attempts: beyond that somebody's finger stayed on a key
_LONGEST = 366 * 24 * 3600  # the clocks of the system refuse what is much longer
_DURATION = re.compile(r"(?:([0-9.]+)h)? ?(?:([0-9.]+)m)? ?(?:([0-9.]+)s)?|([0-9.]+)")


class _Unfit(Exception):
    """A value that its setting can't take; `step` is the key inside it that is to blame, if it is a table."""

    def __init__(self, hint: str = "", step: str | None = None) -> None:
        self.hint = hint
        self.step = step


class _Kind(NamedTuple):
    """One kind of value: in words, by example (as TOML), and how it is read from TOML and from a flag's text.

    Reading raises _Unfit for what is not of the kind, and OverflowError for too much of it.
    """

    words: str
    example: str
    read: Callable[[Any], object]
    typed: Callable[[str], object] = str


def duration(text: str | int | float) -> float:
    """Seconds, from `90s`, `30m`, `2h`, `1h30m`, or a number of seconds. 0 means no limit."""
    try:
        return _seconds(text)
    except _Unfit:
        shown = shorten(text) if isinstance(text, str) else "that"
        raise Wrong(f"{shown} is no duration: write 90s, 30m, 2h, 1h30m or a number of seconds") from None
    except OverflowError as error:
        raise Wrong(f"that duration {error}") from None


def _seconds(value: object) -> float:
    return float(_number(_spelled_out(value) if isinstance(value, str) else value, _LONGEST, "a year"))


def _spelled_out(text: str) -> float | None:
    found = _DURATION.fullmatch(text.strip())
    if found is None or not found[0]:
        return None
    try:
        return sum(float(part or 0) * size for part, size in zip(found.groups(), (3600, 60, 1, 1), strict=True))
    except ValueError:  # 1.2.3
        return None


def _number(value: object, most: int, in_words: str) -> int | float:
    # True is an int, but nobody means it so; and nan compares with nothing.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _Unfit
    if value > most:
        raise OverflowError(f"is too big: {in_words} is the most")
    return abs(value)  # TOML knows -0.0


def _dollars(value: object) -> float:
    return float(_number(value, _MOST, str(_MOST)))


def _whole(least: int, value: object) -> int:
    number = _number(value, _MOST, str(_MOST))
    if not isinstance(number, int) or number < least:
        raise _Unfit
    return number


def _share(value: object) -> float:
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", value.strip()) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:
        raise _Unfit
    return float(found[1]) / 100


def _number_of(text: str) -> object:
    """The number that a flag's text is, as TOML would have it; else the text, which is then unfit."""
    try:
        return int(text) if re.fullmatch(r"-?[0-9]{1,100}", text) else float(text)
    except ValueError:
        return text


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Unfit
    return value


def _truth_of(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _can_be_passed_on(value: object) -> bool:
    """No program can be given a NUL, and no file of ours half a character."""
    return isinstance(value, str) and not any(mark == "\0" or "\ud800" <= mark <= "\udfff" for mark in value)


def _says_something(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and _can_be_passed_on(value)


def _is_port(value: object) -> bool:
    """A port, or a host and a port."""
    found = (
        re.fullmatch(r"(?:[A-Za-z0-9._-]+:|\[[0-9a-f:.]+\]:)?([0-9]{1,5})", value) if isinstance(value, str) else None
    )
    return found is not None and 0 < int(found[1]) < 65536


def _text(value: object) -> str:
    if not _says_something(value):
        raise _Unfit
    return str(value)


def _texts(fits: Callable[[object], bool], value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _Unfit
    for number, one in enumerate(value, 1):
        if not fits(one):
            raise _Unfit(f": look at item {number}")
    return tuple(value)


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Unfit
    for name, text in value.items():
        if not name or "=" in name or not _can_be_passed_on(name) or not _can_be_passed_on(text):
            raise _Unfit(f": look at {_dotted((name,))}", name)
    return dict(value)


def _choice(choices: tuple[str, ...], value: object) -> str:
    if value in choices:
        return str(value)
    near = _nearest(value, choices) if isinstance(value, str) else None
    raise _Unfit(f": did you mean {json.dumps(near)}?" if near else "")


def _whole_from(least: int, example: str) -> _Kind:
    return _Kind(f"a whole number of {least} or more", example, partial(_whole, least), _number_of)


def _text_as(example: str) -> _Kind:
    return _Kind("a text that is not empty", json.dumps(example), _text)


def _list_of(what: str, example: str, fits: Callable[[object], bool] = _says_something) -> _Kind:
    return _Kind(f"a list of {what}", example, partial(_texts, fits))


def _one_of(literal: object) -> _Kind:
    choices = typing.get_args(literal)
    *others, last = map(json.dumps, choices)
    return _Kind(f"{', '.join(others)} or {last}", "", partial(_choice, choices))


Guard = Literal["off", "warn", "fail"]
Permissions = Literal["edit", "all"]
Workspace = Literal["here", "worktree"]

Seconds = Annotated[float, _Kind("a duration", '"30m"', _seconds)]
Attempts = Annotated[int, _whole_from(1, "3")]
Budget = Annotated[int, _whole_from(1, "20000")]
Count = Annotated[int, _whole_from(0, "20")]
Dollars = Annotated[float, _Kind("a number of 0 or more", "2.50", _dollars, _number_of)]
Share = Annotated[float | None, _Kind("a share", '"80%"', _share)]
Switch = Annotated[bool, _Kind("true or false", "true", _switch, _truth_of)]
Names = Annotated[tuple[str, ...], _list_of("names", '["claude", "codex"]')]
Commands = Annotated[tuple[str, ...], _list_of("commands", '["npm ci"]')]
Gates = Annotated[tuple[str, ...] | None, _list_of("commands", '["make test"]')]
Arguments = Annotated[tuple[str, ...], _list_of("texts", '["--verbose"]', _can_be_passed_on)]
Environment = Annotated[dict[str, str], _Kind("a table of texts", '{ PORT = "8080" }', _environment)]


# --- the settings -----------------------------------------------------------------------------------


class Run(Struct, frozen=True, kw_only=True):
    """`[run]`: how a change is worked through."""

    spec: Annotated[str | None, _text_as("docs/plan.md")] = None
    """The format or the file of the change, where that is not plain: `openspec`, `docs/plan.md`."""
    agent: Annotated[str | None, _text_as("claude")] = None
    """The agent that writes the code: a built-in one, or a NAME of `[agents.NAME]`."""
    agents: Names = ()
    """The agents in the order in which work is handed over when one can't go on."""
    attempts: Attempts = 3
    """How often a story is tried before a human is asked."""
    max_iterations: Count = 0
    """How many iterations a run may have; 0 is no limit."""
    max_time: Seconds = 0
    """How long a run may take; 0 is no limit."""
    timeout: Seconds = 3600
    """How long an iteration may take; 0 is no limit."""
    silence: Seconds = 900
    """How long an agent may put out nothing before it is ended; 0 is no limit."""
    patience: Seconds = 300
    """How long an agent may try again by itself, against a limit or an outage, before it is ended; 0 is no limit."""
    check_blockers: Switch = False
    """Whether an agent in its read-only mode looks into a claimed blocker that we can't look up ourselves."""
    wait_for_answers: Seconds = 0
    """How long a run with nothing else to do waits for your answers before it ends; 0 is not at all."""
    strict_order: Switch = False
    """Whether every story waits for all before it."""
    setup: Commands = ()
    """Commands that make a workspace ready to work in."""
    guard: Annotated[Guard, _one_of(Guard)] = "fail"
    """What comes of cheating: nothing, a warning, or a failed attempt."""
    workspace: Annotated[Workspace, _one_of(Workspace)] = "here"
    """Where agents work: in your own tree, or in a worktree beside it (see `setup`)."""
    max_tokens: Count = 0
    """How many tokens a run may use; 0 is no limit."""
    max_cost: Dollars = 0
    """How many dollars a run may cost; 0 is no limit."""
    story_tokens: Count = 0
    """How many tokens a story may use; 0 is no limit."""
    story_cost: Dollars = 0.0
    """How many dollars a story may cost; 0 is no limit."""


class Verify(Struct, frozen=True, kw_only=True):
    """`[verify]`: how a story is proven."""

    checks: Gates = None
    """Commands that look at the code, as linters do; inferred from the project if not given."""
    tests: Gates = None
    """Commands that run tests; inferred from the project if not given."""
    timeout: Seconds = 1200
    """How long one of these commands may take; 0 is no limit."""


class Blockers(Struct, frozen=True, kw_only=True):
    """`[blockers]`: what the project needs to have; looked up when an agent says that it is blocked."""

    variables: Annotated[tuple[str, ...], _list_of("names of variables", '["DATABASE_URL"]')] = ()
    """Variables of the environment."""
    files: Annotated[tuple[str, ...], _list_of("paths", '["config/local.toml"]')] = ()
    """Files and folders, from the project's root."""
    commands: Annotated[tuple[str, ...], _list_of("names of programs", '["psql"]')] = ()
    """Programs that have to be on the PATH."""
    ports: Annotated[tuple[str, ...], _list_of("ports or hosts with ports", '["5432", "db.local:5432"]', _is_port)] = ()
    """Ports that have to answer, here or on a host: `5432`, `db.local:5432`."""


class Notify(Struct, frozen=True, kw_only=True):
    """`[notify]`: who is told when a run ends, or a question waits."""

    command: Annotated[tuple[str, ...], _list_of("texts, none of them empty", '["notify-send", "ralphtool"]')] = ()
    """A program and its arguments; it gets one JSON object on its standard input."""


class Memory(Struct, frozen=True, kw_only=True):
    """`[memory]`: what the next iteration knows."""

    budget_tokens: Count = 2000
    """How many tokens of a prompt what was learnt may take up."""


class Prompt(Struct, frozen=True, kw_only=True):
    """`[prompt]`: what an agent is given to read."""

    budget_tokens: Budget = 30000
    """How many tokens a whole prompt may have."""


class Agent(Struct, frozen=True, kw_only=True):
    """`[agents.NAME]`: how one agent is called."""

    kind: Annotated[str | None, _text_as("claude")] = None
    """Which kind of agent it is, if its name does not say that: so there can be two of a kind."""
    command: Annotated[tuple[str, ...], _list_of("texts, none of them empty", '["my-agent", "--quiet"]')] = ()
    """The program and its arguments, if they are not the usual ones."""
    model: Annotated[str | None, _text_as("opus")] = None
    """The model that the agent is told to use."""
    args: Arguments = ()
    """Arguments that are added to the command."""
    env: Environment = {}
    """Variables that are added to the environment."""
    permissions: Annotated[Permissions, _one_of(Permissions)] = "edit"
    """What it may do unasked: edit files and use our own commands, or all that you can."""
    stop_at: Share = None
    """How much of its quota may be used before it has to rest until the quota is reset, where it tells that."""
    mcp: Annotated[bool | None, _Kind("true or false", "true", _switch, _truth_of)] = None
    """Whether it gets our commands as MCP tools too; if not given, only where it may not run any command it likes."""


class Price(Struct, frozen=True, kw_only=True):
    """`[prices.MODEL]`: what a model costs, for agents that tell their tokens only; dollars for a million of them.

    MODEL is the model's name as the agent tells it or as `[agents.NAME]` has it, or the name of the agent.
    """

    input: Dollars = 0.0
    """What it reads."""
    output: Dollars = 0.0
    """What it writes."""
    cached: Annotated[float | None, _Kind("a number of 0 or more", "0.25", _dollars, _number_of)] = None
    """What it reads from its cache; as other input if not given."""


class Settings(Struct, frozen=True, kw_only=True):
    """All of `.ralph/config.toml`."""

    run: Run = Run()
    verify: Verify = Verify()
    memory: Memory = Memory()
    prompt: Prompt = Prompt()
    blockers: Blockers = Blockers()
    notify: Notify = Notify()
    agents: dict[str, Agent] = {}
    prices: dict[str, Price] = {}


_TABLES: dict[str, type[Struct]] = {
    "run": Run,
    "verify": Verify,
    "memory": Memory,
    "prompt": Prompt,
    "blockers": Blockers,
    "notify": Notify,
}
_NAMED: dict[str, type[Struct]] = {"agents": Agent, "prices": Price}  # tables of tables, whose names anybody chooses
_SECTIONS: dict[str, type[Struct]] = {**_TABLES, "agents.NAME": Agent, "prices.MODEL": Price}
_NO_FLAGS = ("spec", "agents", "setup")  # the first is a flag of most commands; lists are for the file

_Table = TypeVar("_Table", bound=Struct)


@cache
def _kinds(table: type[Struct]) -> dict[str, _Kind]:
    hints = typing.get_type_hints(table, include_extras=True)
    return {key: hints[key].__metadata__[-1] for key in table.__struct_fields__}


# --- reading ----------------------------------------------------------------------------------------


def load(project: str, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a project. `flags` are named as in `[run]` and win over the file; None is one not given."""
    path = config.path_of(project)
    settings = parse(_content(path), path)
    given = {name: _flag(name, value) for name, value in (flags or {}).items() if value is not None}
    return structs.replace(settings, run=structs.replace(settings.run, **given))


def _content(path: str) -> str:
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise Wrong(f"{path} can't be read ({error.strerror}): mend that") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Wrong(f"{path}, line {line}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def parse(text: str, path: str) -> Settings:
    """The settings that a text in TOML holds; `path` is what errors call it."""
    text = text.removeprefix("\ufeff")
    settings, problems = _read_whole(_toml(text, path))
    if problems:
        lines = _lines(text)
        line, message = min((lines[problem.path], problem.message) for problem in problems)
        raise Wrong(f"{path}, line {line}: {message}")
    return settings


def _toml(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(text, path, str(error)) from None
    except (ValueError, RecursionError):  # of thousands of digits, or of brackets; neither tells where
        raise Wrong(f"{path}, line {_broken_line(text)}: this is more than can be read: shorten it") from None


def _not_toml(text: str, path: str, message: str) -> Wrong:
    found = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)\Z", message)
    said = message[: found.start()] if found else message
    line = int(found[1]) if found and found[1] else _broken_line(text)  # the end tells nothing of the beginning
    return Wrong(f"{path}, line {line}: this is no TOML: {said[:200]}: mend that line")


class _Problem(NamedTuple):
    path: Path
    message: str


def _read_whole(given: dict[str, Any]) -> tuple[Settings, list[_Problem]]:
    problems: list[_Problem] = []
    read: dict[str, Any] = {}
    for name, table in given.items():
        if name in _TABLES:
            read[name] = _read_table(_TABLES[name], table, (name,), problems)
        elif name in _NAMED and isinstance(table, dict):
            read[name] = {key: _read_table(_NAMED[name], one, (name, key), problems) for key, one in table.items()}
        else:
            problems.append(_Problem((name,), _no_table(name, table)))
    return Settings(**read), problems


def _read_table(table: type[_Table], given: object, path: Path, problems: list[_Problem]) -> _Table:
    if not isinstance(given, dict):
        problems.append(_Problem(path, f"{_dotted(path)} must be a table, as in [{_dotted(path)}]"))
        return table()
    kinds, read = _kinds(table), {}
    for key, value in given.items():
        here = (*path, key)
        if key not in kinds:
            problems.append(_Problem(here, f"there is no setting {_dotted(here)}: {_advice(table, here)}"))
            continue
        try:
            read[key] = kinds[key].read(value)
        except _Unfit as error:
            to_blame = here if error.step is None else (*here, error.step)
            problems.append(_Problem(to_blame, _unfit(_dotted(here), f"{key} = ", kinds[key], error)))
        except OverflowError as error:
            problems.append(_Problem(here, f"{_dotted(here)} {error}"))
    return structs.replace(table(), **read)


def _flag(name: str, value: object) -> object:
    """What a flag of the command line says; a text if it comes as it was typed."""
    flag = "--" + name.replace("_", "-")
    kind = _kinds(Run).get(name)
    if kind is None:
        near = _nearest(name, _kinds(Run))
        advice = f"did you mean --{near.replace('_', '-')}?" if near else "see ralphtool run --help"
        raise Wrong(f"there is no flag {flag}: {advice}")
    try:
        return kind.read(kind.typed(value) if isinstance(value, str) else value)
    except _Unfit as error:
        raise Wrong(f"{flag}: {_unfit('', f'{flag} ', kind, error)}") from None
    except OverflowError as error:
        raise Wrong(f"{flag}: {error}") from None


# --- what to say ------------------------------------------------------------------------------------


def _unfit(name: str, assigned: str, kind: _Kind, error: _Unfit) -> str:
    example = f", as in {assigned}{kind.example}" if kind.example else ""
    return f"{name} must be {kind.words}{example}{error.hint}".lstrip()


def _no_table(name: str, given: object) -> str:
    if name == "agents":
        return "agents must hold tables, as in [agents.claude]: did you mean run.agents?"
    if name == "prices":
        return "prices must hold tables, as in [prices.gpt-5]"
    if not isinstance(given, dict):
        return f"there is no setting {_dotted((name,))}: {_elsewhere(name) or 'settings stand in tables, as in [run]'}"
    near = _nearest(name, (*_TABLES, *_NAMED))
    advice = f"did you mean [{near}]?" if near else f"there are {', '.join(_SECTIONS)}"
    return f"there is no table [{_dotted((name,))}]: {advice}"


def _advice(table: type[Struct], path: Path) -> str:
    """The nearest right setting: one of that very name, else one of the same table, else any; else what there is."""
    near = _nearest(path[-1], _kinds(table))
    if near and not _homes(path[-1]):
        return f"did you mean {_dotted((*path[:-1], near))}?"
    return _elsewhere(path[-1]) or f"there are {', '.join(_kinds(table))}"


def _elsewhere(key: str) -> str:
    near = _nearest(key, {right for table in _SECTIONS.values() for right in _kinds(table)})
    return f"did you mean {' or '.join(_homes(near))}?" if near else ""


def _homes(key: str) -> list[str]:
    return [f"{name}.{key}" for name, table in _SECTIONS.items() if key in _kinds(table)]


def _nearest(wrong: str, right: Iterable[str]) -> str | None:
    """Case, and dashes for underscores, are no difference. A monster of a key is near to nothing."""
    found = difflib.get_close_matches(wrong[:80].lower().replace("-", "_"), sorted(right), n=1)
    return found[0] if found else None


def _dotted(path: Path) -> str:
    """As TOML has it. Keys come out of a file that anybody may have written, so odd ones are quoted and cut."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else shorten(key) for key in path)


# --- on which line ----------------------------------------------------------------------------------

# What can hold a line end or a bracket without its meaning, and these themselves.
_PIECE = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]''', re.DOTALL
)
_DEEPEST = 4  # agents.NAME.env.VARIABLE


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header and each assignment, with the number of its first line; blank lines and comments too.

    True up to the first that is no TOML: where a quote or a bracket is left open, the rest may be anything.
    """
    line, start, depth = 1, 0, 0
    for piece in _PIECE.finditer(text + "\n"):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece[0], 0)
        if piece[0] == "\n" and depth == 0:
            statement = text[start : piece.end()]
            yield line, statement
            line, start = line + statement.count("\n"), piece.end()
    yield line, text[start:]


def _lines(text: str) -> dict[Path, int]:
    """On which line each setting is first named. The parser tells no positions, but parses single statements too."""
    found: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        is_header = statement.lstrip().startswith("[")
        paths = list(_paths(tomllib.loads(statement), () if is_header else table))
        if is_header:
            table = max(paths, key=len)
        for path in paths:
            found.setdefault(path, line)
    return found


def _paths(given: object, path: Path) -> Iterator[Path]:
    if isinstance(given, dict) and len(path) < _DEEPEST:
        for key, value in given.items():
            yield (*path, key)
            yield from _paths(value, (*path, key))


def _broken_line(text: str) -> int:
    """The line of the first statement that can't be parsed by itself; else of the last, which contradicts another."""
    line = 1
    for line, statement in _statements(text.rstrip()):
        try:
            tomllib.loads(statement)
        except (ValueError, RecursionError):
            return line
    return line


# --- for people -------------------------------------------------------------------------------------


class Described(NamedTuple):
    """One setting in words."""

    table: str
    key: str
    default: str
    """As TOML; empty where there is none."""
    help: str
    words: str
    """What it may be: `a duration`."""

    @property
    def flag(self) -> str | None:
        """Its name on the command line of `ralphtool run`, if it has one."""
        is_flag = self.table == "run" and self.key not in _NO_FLAGS
        return "--" + self.key.replace("_", "-") if is_flag else None


def describe() -> list[Described]:
    """Every setting, in the order of the file."""
    docs = _docstrings()
    rows = []
    for name, table in _SECTIONS.items():
        empty = table()
        for key, kind in _kinds(table).items():
            default = _as_toml(getattr(empty, key), is_duration=kind.read is _seconds)
            rows.append(Described(name, key, default, docs.get((table.__name__, key), ""), kind.words))
    return rows


def _as_toml(value: object, *, is_duration: bool) -> str:
    if value is None:
        return ""
    if is_duration and isinstance(value, int | float):
        size, unit = next(((n, u) for n, u in ((3600, "h"), (60, "m")) if value and value % n == 0), (1, "s"))
        return f'"{value / size:g}{unit}"' if value else '"0"'
    return json.dumps(value)  # which looks the same for all that is a default here


def _docstrings() -> dict[tuple[str, str], str]:
    """The docstring under each field. Python throws them away, so they are read from the source, where there is one.

    By its lines: every run wants the help of its flags, and parsing the source would take a quarter of its start.
    """
    try:
        source = inspect.getsource(sys.modules[__name__])
    except OSError:
        return {}
    found: dict[tuple[str, str], str] = {}
    table = field = ""
    for line in source.splitlines():
        if line.startswith("class "):
            table = line[len("class ") :].partition("(")[0]
        elif line.startswith('    """') and line.endswith('"""') and field:
            found[table, field] = line.strip()[3:-3]
        name = line[4:].partition(":")[0] if line.startswith("    ") else ""
        field = name if name.isidentifier() else ""
    return found
