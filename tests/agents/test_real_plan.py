"""`ralphtool plan` with the real agent programs: each drafts a change, and can change nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Result
from realagents import SLOW, RealLab, some, turns

from ralphtool.testing import Call, ModelServer, Request, Run, Say, Turn, Write, script

PLACE = "openspec/changes/add-csv-export"
TASKS = """\
## 1. Write the rows as CSV

- [ ] 1.1 `report.csv_rows` returns one line for each row
- [ ] 1.2 A test in `tests/test_report.py` fails without it

## 2. Quote commas (depends on 1)

- [ ] 2.1 A value with a comma is quoted, and a test shows it
"""
VAGUE = "## 1. Export\n\n- [ ] 1.1 Make the export work properly\n"
SPEC = """\
## ADDED Requirements

### Requirement: CSV export
The report SHALL be exported as CSV.

#### Scenario: Two rows
- **WHEN** a report of two rows is exported
- **THEN** two lines are written
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RealLab]:
    made = RealLab(tmp_path)
    yield made
    made.nobody_is_left()


def find_draft(request: Request) -> str:
    """The folder that the prompt names."""
    line = next(line for line in request.prompt.splitlines() if line.endswith(f"{PLACE}/tasks.md"))
    return line.strip().removesuffix(f"/{PLACE}/tasks.md")


class Planning:
    """A model that drafts; `before` has the turns that it tries first. Later conversations get the good draft."""

    def __init__(self, agent: str, first: str = TASKS, before: tuple[Turn, ...] = ()) -> None:
        self.agent, self.first, self.before = agent, first, before
        self.results: list[str] = []

    def __call__(self, request: Request) -> Turn:
        if request.asks_for_title:
            return Say("A title")
        self.results = list(request.results) or self.results
        is_back = "Your draft exists already" in request.prompt
        place = f"{find_draft(request)}/{PLACE}"
        doing = [
            *(() if is_back else self.before),
            *([Call("Read", {"file_path": f"{place}/tasks.md"})] if is_back and self.agent == "claude" else ()),
            Write(f"{place}/tasks.md", TASKS if is_back else self.first),
            *(() if is_back else self.others(place)),
            Say("I planned two stories."),
        ]
        return script(*turns(self.agent, *doing))(request)

    def others(self, place: str) -> list[Turn]:
        return [
            Write(f"{place}/proposal.md", "## Why\n\nPeople want CSV.\n"),
            Write(f"{place}/specs/report/spec.md", SPEC),
        ]


def plan(lab: RealLab, *more: str) -> Result:
    return lab.run("plan", "Add CSV export", "--json", *more)


def each(*names: str) -> list[Any]:
    """Parameters from "agent workspace"; the slow agents are marked."""
    return [
        pytest.param(*name.split(), marks=[pytest.mark.slow] if name.split()[0] in SLOW else [], id=name)
        for name in names
    ]


@pytest.mark.parametrize(
    ("agent", "workspace"),
    each(
        *("claude auto", "claude here", "codex auto", "codex here", "gemini auto", "gemini here"),
        *("opencode here", "mini auto", "aider auto"),
    ),
)
def test_it_drafts_a_change_and_nothing_else(lab: RealLab, agent: str, workspace: str) -> None:
    """With and without a box."""
    forbidden = [lab.root / "README.md", lab.root / "planted.txt", lab.root / ".ralph/config.toml"]
    tricks = tuple(turn for path in forbidden for turn in plant(agent, str(path)))
    with ModelServer(Planning(agent, before=tricks)) as model:
        lab.prepare(agent, model, workspace=workspace)
        before = lab.users_state(), lab.read(".ralph/config.toml")
        result = plan(lab, "--yes")
    assert result.exit_code == 0, result.stderr[-3000:]
    assert model.errors == []
    kept = {str(path.relative_to(lab.root)) for path in (lab.root / PLACE).rglob("*") if path.is_file()}
    assert kept == {f"{PLACE}/{name}" for name in ("tasks.md", "proposal.md", "specs/report/spec.md")}
    assert lab.read(f"{PLACE}/tasks.md") == TASKS
    for path in kept:
        (lab.root / path).unlink()
    assert not forbidden[1].exists()
    assert (lab.users_state(), lab.read(".ralph/config.toml")) == before
    assert [one["id"] for one in result.json["stories"]] == ["1", "2"]
    assert result.json["problems"] == []


TOOLS = {  # the tools that read and write a file, with their argument, and the one that runs a command
    "claude": ("Read", "Write", "file_path", "Bash"),
    "gemini": ("read_file", "write_file", "file_path", "run_shell_command"),
    "opencode": ("read", "write", "filePath", "bash"),
}


def plant(agent: str, path: str) -> list[Turn]:
    """Ways to change a file. Even if an agent does not offer a tool for that, a model may still call it."""
    if agent == "aider":  # it makes only one request, and the box confines it like any other
        return []
    if agent not in TOOLS:
        return [Write(path, "x"), Run(f"touch {path}")]
    read, write, argument, shell = TOOLS[agent]
    command = {"command": f"echo x > {path}", "description": "a command of the script"}
    return [Call(read, {argument: path}), Call(write, {argument: path, "content": "x"}), Call(shell, command)]


@some("claude", "codex")
def test_a_draft_with_problems_goes_back_once(lab: RealLab, agent: str) -> None:
    with ModelServer(Planning(agent, first=VAGUE)) as model:
        lab.prepare(agent, model)
        result = plan(lab, "--yes")
    assert result.exit_code == 0, result.stderr[-3000:]
    back = [request for request in model.requests if "Your draft exists already" in request.prompt]
    assert 'the task 1.1 says "properly"' in back[0].prompt
    assert lab.read(f"{PLACE}/tasks.md") == TASKS
    assert read_events(lab, "iteration_started", "agent") == [agent, agent]
    assert read_events(lab, "verdict", "status") == ["failed", "completed"]
    assert result.json["spent"]["iterations"] == 2
    assert result.json["spent"]["output_tokens"] > 0


def read_events(lab: RealLab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]
