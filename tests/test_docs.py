"""The docs are correct: tests that they name exist, codes are listed, examples work."""

from __future__ import annotations

import ast
import json
import re
import types
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from project import REPOSITORY, TESTS

from ralphtool import errors
from ralphtool.cli.main import cli
from ralphtool.history import History, document, schema
from ralphtool.judging.guard.model import FindingKind
from ralphtool.settings import GuardMode
from ralphtool.testing import check_adapter

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
CONFORMANCE = (REPOSITORY / "docs/conformance.md").read_text()
WHY_SAFE = (REPOSITORY / "docs/why-safe.md").read_text()


def names_in(path: Path) -> set[str]:
    """Every test of a file, as `test_x` or `TestY::test_x`, and every class."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::([\w:]+)`", CONFORMANCE + WHY_SAFE)
    assert len(named) > 100
    names = {path.relative_to(TESTS).as_posix(): names_in(path) for path in TESTS.rglob("test_*.py")}
    assert [f"{file}::{name}" for file, name in named if name not in names.get(file, set())] == []


def test_every_requirement_names_a_test() -> None:
    lines = (CONFORMANCE + WHY_SAFE).split("\n")
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| requirement", "| what holds"))]
    assert len(rows) > 50
    assert [row for row in rows if "::" not in row.rsplit("|", 2)[1]] == []


def test_the_commands_in_the_readme_have_their_arguments() -> None:
    text = re.sub(r"^```.*?^```$", "", (REPOSITORY / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    named = [span.split() for span in re.findall(r"`ralphtool ([a-z][^`]*)`", text)]
    assert ["explain", "STORY"] in named
    for name, *arguments in named:
        command = cli.get_command(click.Context(cli), name)
        assert command, name
        required = [one.name for one in command.params if isinstance(one, click.Argument) and one.required]
        assert len(arguments) >= len(required), f"ralphtool {name} needs {required}"


def find_long_lines(text: str) -> list[str]:
    """Lines of prose over 100 characters. Tables, code blocks and lines that are one link or one word are exempt."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.split("\n") if len(line) > 100 and not line.startswith("|")]
    unbreakable = re.compile(r"\s*(?:[-*] +|\d+\. +)?(?:!?\[[^]]*\]\(\S+\)|`[^`]+`|\S+)")
    return [line for line in lines if not unbreakable.fullmatch(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_have_at_most_100_characters(page: Path) -> None:
    assert find_long_lines(page.read_text()) == []


def test_every_code_is_documented() -> None:
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    listed = re.findall(r"^\| ([A-Z_]+) \|", (REPOSITORY / "docs/agent-commands.md").read_text(), re.MULTILINE)
    assert set(listed) == codes - {"INTERNAL"}


def test_the_examples_of_events_have_only_kinds_of_findings_that_exist() -> None:
    events = [json.loads(line) for line in (REPOSITORY / "docs/events.jsonl").read_text().splitlines()]
    receipts = [event["receipt"] for event in events if "receipt" in event]
    found = [*(event.get("findings", []) for event in events), *(one["suspicions"] for one in receipts)]
    kinds = {one["kind"] for findings in found for one in findings}
    assert kinds
    assert kinds <= set(get_args(FindingKind))


def test_every_mode_of_the_guard_is_in_the_description_of_its_event() -> None:
    [row] = re.findall(r"^\| `guard` \| (.*) \|$", (REPOSITORY / "docs/events.md").read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row)[1:] == list(get_args(GuardMode))


def test_the_adapter_of_the_docs_keeps_the_contract(tmp_path: Path) -> None:
    [code, *_] = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/specs.md").read_text(), re.DOTALL)
    plans = types.ModuleType("plans")
    exec(compile(code, "docs/specs.md", "exec"), vars(plans))
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "move.md").write_text("## Pack\n- [ ] books\n- [ ] plates\n")
    check_adapter(plans, str(tmp_path), "move")
    assert "- [x] plates" in (tmp_path / "plans" / "move.md").read_text()


def test_scripts_can_be_run() -> None:
    for name in ("demo", "demo-workers", "test", "check", "bench", "truth", "docs"):
        script = REPOSITORY / "scripts" / name
        assert script.stat().st_mode & 0o100, name
        assert f"scripts/{name}" in "".join(page.read_text() for page in PAGES)


# --- docs/progress-json.md --------------------------------------------------------------------------

PROGRESS = (REPOSITORY / "docs/progress-json.md").read_text()


def fields_of(definition: dict[str, Any]) -> tuple[set[str], set[str]]:
    return set(definition["properties"]), set(definition["required"])


def test_the_example_of_progress_json_is_valid() -> None:
    [example] = re.findall(r"```json\n(.*?)```", PROGRESS, re.DOTALL)
    progress = document.parse(example.encode())
    assert progress.entries[0].observations[1].related_learning_id == progress.learnings[0].id


def test_the_fields_of_progress_json_are_those_of_the_schema() -> None:
    whole = schema.build_schema()
    wanted = [fields_of(whole), *(fields_of(whole["$defs"][name]) for name in ("Entry", "Observation"))]
    wanted += [fields_of(whole["$defs"][name]) for name in ("IterationContext", "Learning", "Pattern")]
    table = PROGRESS.partition("| | fields |")[2].partition("\n\n")[0]
    rows = [row.split("|")[2] for row in table.splitlines() if row.count("|") == 3 and "---" not in row]
    told = [(set(re.findall(r"\w+", row)), set(re.findall(r"\*\*(\w+)\*\*", row))) for row in rows]
    assert told == wanted


def test_the_words_of_progress_json_are_those_of_the_schema() -> None:
    names = {"entry": "Entry", "observation": "Observation", "context": "IterationContext"}
    names |= {"learning": "Learning", "pattern": "Pattern"}
    found = re.findall(r"^\| (\w+)\.(\w+) \| (.*) \|$", PROGRESS, re.MULTILINE)
    told = {(names[kind], field): set(words.split(", ")) for kind, field, words in found}
    definitions = schema.build_schema()["$defs"].items()
    fields = [(kind, name, field) for kind, one in definitions for name, field in one["properties"].items()]
    assert told == {(kind, name): set(field["enum"]) for kind, name, field in fields if "enum" in field}


def test_the_example_of_writing_works(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PROGRESS, re.DOTALL)
    exec(compile(example.replace("path/to/project", str(tmp_path)), "example", "exec"), {})
    history = History(str(tmp_path))
    [entry], [learning] = history.entries(), history.learnings()
    assert entry.observations[0].related_learning_id == learning.id
    assert learning.source_entry_id == entry.id
