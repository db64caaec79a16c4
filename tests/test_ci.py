"""The files for CI: they are YAML, every command in them exists, and the steps of the action work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]
from lab import DONE, Lab
from msgspec import structs
from patience import PATIENCE
from project import COMMAND, REPOSITORY

from ralphtool.cli.main import cli
from ralphtool.views.report import final

ACTION = REPOSITORY / "action.yml"
FILES = [ACTION, *sorted((REPOSITORY / "examples/ci").glob("*.yml"))]
PAGE = (REPOSITORY / "docs/ci.md").read_text()


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a document, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)


def commands_in(text: str) -> list[list[str]]:
    """The words of each `ralphtool` command of a script; shell variables become `x`."""
    plain = re.sub(r"\$\{(\w+):\+([^}]*)\}", r"\2", text)
    lines = [line.strip().removeprefix("exec ") for line in plain.split("\n")]
    ours = [line for line in lines if re.match(r"ralphtool \w", line)]
    return [shlex.split(re.sub(r"\$\{?\w+\}?", "x", re.split(r" [>|]| \|\|", line)[0])) for line in ours]


def check_command(words: list[str]) -> None:
    """Parses it like a real command line, but runs nothing."""
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None, words
    command.make_context(words[1], list(words[2:]), click.Context(cli, info_name="ralphtool"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_command_in_a_file_is_one_of_ours(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    found = [words for text in texts_in(document) for words in commands_in(text)]
    assert found or "OWNER/ralphtool@main" in path.read_text()
    for words in found:
        check_command(words)


def test_every_command_of_the_page_is_one_of_ours() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    inline = [text for text in re.findall(r"`(ralphtool [^`]+)`", PAGE) if " run " in text or " finish " in text]
    found = [words for text in [*blocks, *inline] for words in commands_in(text)]
    assert len(found) >= 2
    for words in found:
        check_command(words)


def test_a_wrong_option_in_such_a_file_would_be_found() -> None:
    [words] = commands_in('  exec ralphtool run ${A:+"$A"} --max-tme "$B" > x.json')
    with pytest.raises(click.UsageError, match="max-tme"):
        check_command(words)


def test_the_workflow_gives_the_action_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((REPOSITORY / "examples/ci/github-workflow.yml").read_text())
    [step] = [one for one in workflow["jobs"]["run"]["steps"] if "ralphtool@" in one.get("uses", "")]
    action = yaml.safe_load(ACTION.read_text())
    assert set(step["with"]) <= set(action["inputs"])
    used = re.findall(r"steps\.ralphtool\.outputs\.(\w+)", (REPOSITORY / "examples/ci/github-workflow.yml").read_text())
    assert set(used) <= set(action["outputs"])


def test_the_workflow_keeps_the_state_of_a_job_that_failed() -> None:
    workflow = yaml.safe_load((REPOSITORY / "examples/ci/github-workflow.yml").read_text())
    steps = {one["uses"].partition("@")[0]: one for one in workflow["jobs"]["run"]["steps"] if "uses" in one}
    restore, save = steps["actions/cache/restore"]["with"], steps["actions/cache/save"]["with"]
    assert steps["actions/cache/save"]["if"] == "always()"
    assert (restore["path"], restore["key"]) == (save["path"], save["key"])


def test_the_example_of_the_page_is_such_an_object() -> None:
    [text] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    told = json.loads(text)
    inner = {
        "counts": final.FinalCounts,
        "last_check": final.FinalCheck,
        "used": final.FinalUse,
        "paths": final.FinalPaths,
    }
    rows = {"stories": final.FinalStory, "commits": final.FinalCommit, "next": final.FinalStep}
    assert list(told) == names_of(final.FinalResult)
    assert all(list(told[name]) == names_of(kind) for name, kind in inner.items())
    assert all(list(row) == names_of(kind) for name, kind in rows.items() for row in told[name])


def names_of(kind: Any) -> list[str]:
    return [field.encode_name for field in structs.fields(kind)]


def run_step(lab: Lab, step: dict[str, Any], values: dict[str, str], **files: Path) -> int:
    """Runs a step as CI does: `${{ … }}` is filled in, and bash runs the script."""

    def fill(text: str) -> str:
        return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: values[found[1]], text)

    env = lab.env | {name: str(path) for name, path in files.items()}
    env |= {name: fill(text) for name, text in step.get("env", {}).items()}
    env["PATH"] = f"{Path(COMMAND).parent}:{env['PATH']}"
    script = lab.root.parent / "step.sh"
    script.write_text(step["run"])
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(words, cwd=lab.root, env=env, check=False, timeout=PATIENCE).returncode


@pytest.mark.parametrize(("accept", "result", "code"), [("unproven", "done", 0), ("held", "unproven", 1)])
def test_the_steps_of_the_action_work(lab: Lab, tmp_path: Path, accept: str, result: str, code: int) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n", accept=accept).play(default=DONE)
    lab.git("clone", "--quiet", "--bare", str(lab.root), str(tmp_path / "remote.git"))
    lab.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    steps = {one["name"]: one for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}
    values = {"inputs.change": "", "inputs.agent": "scripted", "inputs.max-time": "5m", "inputs.max-cost": "0"}
    values["steps.install.outputs.folder"] = str(tmp_path)
    assert run_step(lab, steps["Fetch the branches of earlier runs"], values) == 0
    assert run_step(lab, steps["Run the change"], values) == code
    output, summary = tmp_path / "output", tmp_path / "summary"
    assert run_step(lab, steps["Read the result"], values, GITHUB_OUTPUT=output) == 0
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert told == {"result": result, "commits": "1", "change": "add-login"}
    values["steps.result.outputs.change"] = told["change"]
    assert run_step(lab, steps["Show the report"], values, GITHUB_STEP_SUMMARY=summary) == 0
    assert summary.read_text().startswith("# ")
    assert ET.parse(tmp_path / "stories.xml").getroot().attrib["failures"] == str(code)


def test_the_action_tells_a_run_that_left_no_result(lab: Lab, tmp_path: Path) -> None:
    steps = {one["name"]: one for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}
    values, output = {"steps.install.outputs.folder": str(tmp_path)}, tmp_path / "output"
    (tmp_path / "result.json").write_text("")
    assert run_step(lab, steps["Read the result"], values, GITHUB_OUTPUT=output) == 0
    assert "result=crashed" in output.read_text()


def test_the_action_passes_no_name_on_that_would_be_more_than_one_line(lab: Lab, tmp_path: Path) -> None:
    steps = {one["name"]: one for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}
    values, output = {"steps.install.outputs.folder": str(tmp_path)}, tmp_path / "output"
    told = {"result": "refused", "commits": [], "change": "x\ncommits=5"}
    (tmp_path / "result.json").write_text(json.dumps(told))
    assert run_step(lab, steps["Read the result"], values, GITHUB_OUTPUT=output) == 0
    assert output.read_text() == "result=refused\ncommits=0\nchange=\n"
