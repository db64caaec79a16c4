"""The runner in docs/agents.md works as described: it keeps the contract, and does a real run with a real program.

So does the example with the scripted model.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from project import REPOSITORY

from ralphtool import agents
from ralphtool.agents import Failure, Job, Message, Runner, Tool, Usage
from ralphtool.errors import InvalidValue
from ralphtool.testing import check_runner

EXAMPLE = REPOSITORY / "examples/runner"
CODE = (EXAMPLE / "plodder.py").read_text()
PROJECT = (EXAMPLE / "pyproject.toml").read_text()
BLOCKS = re.findall(r"```(?:python|toml)\n(.*?)```", (REPOSITORY / "docs/agents.md").read_text(), re.DOTALL)
CLAUDE = REPOSITORY / ".tools/agents/claude/node_modules/.bin"

RECORDING = b"""\
plodder 1.2.0, at your service
{"event": "says", "text": "Let me see.", "tokens": [1200, 30]}
{"event": "does", "text": "edit", "path": "first.txt"}
{"event": "thinks", "text": "Hm."}
{"event": "fails", "text": "slow down", "status": 429}
{"event": "done", "text": "All is done."}
"""

# The agent program that people would install.
PROGRAM = f"""\
#!{sys.executable}
import json, pathlib, re, subprocess, sys

if "--version" in sys.argv:
    print("plodder 1.2.3")
    sys.exit()

def tell(event, **more):
    print(json.dumps({{"event": event, **more}}), flush=True)

prompt = sys.stdin.read()
token = re.search("^token: (.+)$", prompt, re.MULTILINE)[1]
tell("says", text=" ".join(sys.argv[1:]), tokens=[1200, 30])
tell("does", text="edit", path="first.txt")
pathlib.Path("first.txt").write_text("work\\n")
subprocess.run(["ralphtool", "agent", "task", "done", "1.1"], check=True, stdout=subprocess.DEVNULL)
tell("done", text=f"All is done.\\n\\n<promise>COMPLETE:{{token}}</promise>")
"""


def installed(folder: Path) -> str:
    """The paths for Python on which the example is found as if pip had installed it."""
    project = tomllib.loads(PROJECT)["project"]
    info = folder / "ralphtool_plodder-1.0.dist-info"
    info.mkdir(parents=True)
    points = [f"{name} = {value}" for name, value in project["entry-points"]["ralphtool.agents"].items()]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[ralphtool.agents]", *points]) + "\n")
    return os.pathsep.join([str(folder), str(EXAMPLE)])


@pytest.fixture
def plodder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runner]:
    """Creates the runner, with the options of its table."""
    for place in installed(tmp_path / "site").split(os.pathsep):
        monkeypatch.syspath_prepend(place)
    return lambda **options: agents.make("plodder", options)


# --- the runner -------------------------------------------------------------------------------------


def test_it_is_short_and_the_docs_show_it_word_for_word() -> None:
    assert len(CODE.splitlines()) < 60
    assert CODE in BLOCKS
    assert any(block in PROJECT and "entry-points" in block for block in BLOCKS)


def test_it_keeps_the_contract(plodder: Callable[..., Runner], tmp_path: Path) -> None:
    check_runner(plodder(), str(tmp_path / "work"), RECORDING)
    reader = plodder().reader(Job(prompt="", root=""))
    told = [*reader.feed(RECORDING), *reader.rest()]
    assert told[:3] == [Message("Let me see."), Usage(1200, 30), Tool("edit", "first.txt")]
    assert [(one.trouble, one.text) for one in told[3:] if isinstance(one, Failure)] == [("rate-limit", "slow down")]
    assert reader.end(1) == agents.End(True, "All is done.", "done")


def test_the_test_of_the_docs_passes(plodder: Callable[..., Runner], tmp_path: Path) -> None:
    [code] = [block for block in BLOCKS if "check_runner(" in block]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/agents.md", "exec"), names)
    names["test_plodder"](tmp_path)
    with pytest.raises(AssertionError, match="ends with success"):
        check_runner(names["Plodder"]("plodder", {}), str(tmp_path / "cut"), RECORDING.rpartition(b'{"event"')[0])


@pytest.mark.parametrize(
    ("options", "read_only", "may"),
    [({}, False, "edit"), ({"permissions": "all"}, False, "all"), ({"permissions": "all"}, True, "look")],
)
def test_what_it_may_do(plodder: Callable[..., Runner], options: Any, read_only: bool, may: str) -> None:
    start = plodder(model="slow", args=["--calm"], **options).start(Job(prompt="p", root="r", read_only=read_only))
    assert start.argv == ("plodder", "--json", "--may", may, "--model", "slow", "--calm")


def test_a_program_that_is_not_there_is_told_with_how_to_get_it(
    plodder: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidValue, match="npm install -g @example/plodder"):
        plodder().check()


def test_a_real_run_with_a_real_program(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    program = tmp_path / "bin/plodder"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    lab.env |= {"PATH": f"{program.parent}{os.pathsep}{lab.env['PATH']}", "PYTHONPATH": installed(tmp_path / "site")}
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", tests=["test -e first.txt"])
    lab.write(
        ".ralph/config.toml",
        '[run]\nworkspace = "here"\n[agents.plodder]\nmodel = "slow"\n[prices.slow]\ninput = 1000.0\noutput = 0.0\n'
        '[verify]\nchecks = []\ntests = ["test -e first.txt"]\n',
    )
    result = lab.loop("--agent", "plodder", "--max-iterations", "1")
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert lab.git("show", "ralph/add-login:first.txt") == "work"
    events = lab.events(result)
    [said] = [one["event"]["text"] for one in events if one.get("event", {}).get("kind") == "message"]
    assert said == "--json --may edit --model slow"
    [verdict] = [one for one in events if one["type"] == "verdict"]
    assert (verdict["input_tokens"], verdict["output_tokens"], verdict["cost"]) == (1200, 30, 1.2)
    assert any("ticks tasks, but runs no other command" in one.get("text", "") for one in events)


# --- the scripted model -----------------------------------------------------------------------------


def test_the_example_with_the_scripted_model_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real program, as people would write such a test."""
    [code] = [block for block in BLOCKS if "ModelServer(" in block]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/agents.md", "exec"), names)
    monkeypatch.setenv("PATH", f"{CLAUDE}{os.pathsep}{os.environ['PATH']}")
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test(tmp_path)
    assert (tmp_path / "project/hello.txt").read_text() == "hi\n"
