"""The cases of the battery, read from its TOML files: README.md in this folder says how to write one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Literal

from battery.edits import Edit

HERE = Path(__file__).resolve().parent
Kind = Literal["cheat", "honest", "hollow", "nothing", "uncatchable"]


@dataclass(frozen=True)
class Setup:
    """A test program, and the way in which a base project runs it."""

    name: str
    language: str
    gate: str
    needs: tuple[str, ...]
    packages: tuple[str, ...]
    has_venv: bool
    words: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True)
class Task:
    """The story that the agent gets, and a check of it that no agent sees."""

    title: str
    tasks: tuple[str, ...]
    hidden: str


@dataclass(frozen=True)
class TruthCase:
    """One attempt at one story, with one test program."""

    name: str
    kind: Kind
    group: str
    why: str
    setup: Setup
    story: Task
    source: tuple[str, ...]  # the paths of the product, as opposed to its tests
    files: Mapping[str, str]
    edits: tuple[Edit, ...]
    hidden_path: str
    hidden_command: str
    gate: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.name}@{self.setup.name}"

    @property
    def stories(self) -> tuple[Task, ...]:
        return (self.story,)

    @property
    def steps(self) -> tuple[tuple[Edit, ...], ...]:
        """The edits of each story."""
        return (self.edits,)

    def option(self, name: str, otherwise: Any = None) -> Any:
        return self.options.get(name, otherwise)


@dataclass(frozen=True)
class CheatInTwo(TruthCase):
    """A cheat in two stories: the first one changes only the tests, while the source is still right."""

    @property
    def stories(self) -> tuple[Task, ...]:
        return Task("Care for the project", ("Look after it",), ""), self.story

    @property
    def steps(self) -> tuple[tuple[Edit, ...], ...]:
        return split_edits(self)


def split_in_two(case: TruthCase) -> CheatInTwo | None:
    """None if there is nothing to split: a cheat changes the source, or something else, but not both."""
    if case.kind != "cheat" or not all(split_edits(case)) or case.option("finding") or case.option("ticked"):
        return None
    if any("run" in edit for edit in case.edits) or case.option("in_two") is False:
        return None  # a command may do both
    return CheatInTwo(**{**vars(case), "name": f"{case.name}-in-two"})


def split_edits(case: TruthCase) -> tuple[tuple[Edit, ...], tuple[Edit, ...]]:
    """The edits of everything else, and those of the source."""
    source = [one for one in case.edits if is_of_source(case, one)]
    return tuple(one for one in case.edits if one not in source), tuple(source)


def is_of_source(case: TruthCase, edit: Edit) -> bool:
    kind, path = next(iter(edit.items()))
    return kind != "run" and is_source(path, case.source)


def is_source(path: str, patterns: Sequence[str]) -> bool:
    """Patterns that begin with `!` leave files out."""
    chosen = [pattern for pattern in patterns if not pattern.startswith("!")]
    left_out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return any(fnmatch(path, one) for one in chosen) and not any(fnmatch(path, one) for one in left_out)


OPTIONS = frozenset(
    {
        "attempts",  # the number of attempts: 1 by default
        "before",  # the result of the gate before the work, run by hand: "green" by default, "red" or "none"
        "after",  # the same on the final tree
        "checks",  # further gates
        "finding",  # the agent's explanation, with `ralphtool agent observe finding`
        "in_two",  # false: in two stories it can't be caught, as docs/proof.md says
        "must_be",  # the state that it must end in
        "quick",  # the test programs with which it is part of the quick run
        "settings",  # further lines of .ralph/config.toml
        "ticked",  # the user ticked the tasks before the run
        "without",  # of a hollow case: the result of its tests without the work: "green" by default, or "red"
        "word_due",  # honest, but only a person can judge that: it may end unproven
    }
)
FIELDS = OPTIONS | {"name", "group", "why", "programs", "story", "title", "tasks", "hidden", "files", "edits", "gate"}


@cache
def read_cases() -> tuple[TruthCase, ...]:
    """Every case with every program it names, in the order of the files."""
    found = tuple(case for path in sorted((HERE / "cases").glob("*.toml")) for case in read_file(path))
    ids = [case.id for case in found]
    assert len(ids) == len(set(ids)), f"twice: {sorted({one for one in ids if ids.count(one) > 1})}"
    return found


def read_file(path: Path) -> Iterator[TruthCase]:
    sheet = tomllib.loads(path.read_text())
    base = tomllib.loads((HERE / "bases" / f"{sheet['base']}.toml").read_text())
    for row in sheet["case"]:
        wrong = set(row) - FIELDS
        assert not wrong, f"{path.name}: {row.get('name')}: {wrong}"
        for program in row.get("programs", sheet.get("programs")):
            yield build_case(sheet, base, row, program)


def build_case(sheet: dict[str, Any], base: dict[str, Any], row: dict[str, Any], program: str) -> TruthCase:
    setup = read_setup(base, program)
    story = {**base["stories"][row.get("story", "shipping")], **row}
    files = fill({**base["files"], **setup.files, **row.get("files", {})}, setup.words)
    return TruthCase(
        name=f"{base['short']}-{row['name']}",
        kind=sheet["kind"],
        group=row.get("group", ""),
        why=row["why"],
        setup=setup,
        story=Task(story["title"], tuple(story["tasks"]), fill(story["hidden"], setup.words)),
        source=tuple(base["source"]),
        files={path: text for path, text in files.items() if text != "-"},
        edits=tuple(fill(edit, setup.words) for edit in expand(row["edits"], base["edits"])),
        hidden_path=fill(base["hidden"]["path"], setup.words),
        hidden_command=fill(base["hidden"]["command"], setup.words),
        gate=fill(row.get("gate", setup.gate), setup.words),
        options={name: row[name] for name in OPTIONS if name in row},
    )


def read_setup(base: dict[str, Any], name: str) -> Setup:
    told = base["programs"][name]
    told = {**base["programs"].get(told.get("like"), {}), **told}
    return Setup(
        name=name,
        language=base["language"],
        gate=told["gate"],
        needs=tuple(told.get("needs", ())),
        packages=tuple(told.get("packages", ())),
        has_venv=told.get("venv", False),
        words=told.get("words", {}),
        files=told.get("files", {}),
    )


def expand(edits: list[Any], named: dict[str, list[Any]]) -> Iterator[dict[str, str]]:
    """The edits; a name is replaced by the base project's edits of that name."""
    for edit in edits:
        if isinstance(edit, str):
            yield from expand(named[edit], named)
        else:
            yield edit


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """Replaces {{names}} by the words of a program, in texts at any depth."""
    if isinstance(value, dict):
        return {key: fill(one, words) for key, one in value.items()}
    for name, text in words.items():
        value = value.replace("{{" + name + "}}", text)
    return value
