"""Whether a program is installed and new enough: real programs, which answer, hang, or have children."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lab import processes_with, wait_until

from ralphtool.agents import make, program
from ralphtool.agents.program import Program
from ralphtool.errors import InvalidValue


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def claude(**options: Any) -> Program:
    made = make("claude", options)
    assert isinstance(made, Program)
    return made


HANGS = [
    "exec sleep 3600",
    "echo 9.9.9\nsleep 3600",
    "sleep 3600 &\nexec sleep 3600",
    "trap '' TERM HUP INT\nsleep 3600\nsleep 3600",
    "(sleep 3600; sleep 3600) &\necho 9.9.9",  # it answers, but its child keeps the pipe open
]


@pytest.mark.parametrize("body", HANGS)
def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    path = write(tmp_path / "claude", body)
    monkeypatch.setattr(program.Program, "patience", 0.5)
    told = r"--version` printed no version \('no response within 0\.5 seconds'\): .*`npm install -g @anthropic-ai"
    with pytest.raises(InvalidValue, match=told):
        claude(command=[path], env={"MARK": str(tmp_path)}).check()  # its children are found by this mark, too
    assert wait_until(lambda: processes_with(str(tmp_path)) == [])


def test_it_is_looked_for_on_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "own/claude", "echo 9.9.9")
    write(tmp_path / "usual/claude", "echo 0.0.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'usual'}{os.pathsep}{os.environ['PATH']}")
    claude(env={"PATH": f"{tmp_path / 'own'}{os.pathsep}/usr/bin:/bin"}).check()
    with pytest.raises(InvalidValue, match=r"claude 0\.0\.1 is too old"):
        claude().check()
    with pytest.raises(InvalidValue, match="was not found: install it with"):
        claude(env={"PATH": str(tmp_path / "nowhere")}).check()


def test_its_own_variables_are_there_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper, or Node itself, may need them to start at all."""
    path = write(tmp_path / "claude", '[ "$KEY:$OTHER" = own:usual ] && echo 9.9.9')
    monkeypatch.setenv("KEY", "usual")
    monkeypatch.setenv("OTHER", "usual")
    claude(command=[path], env={"KEY": "own"}).check()
    with pytest.raises(InvalidValue, match="it printed nothing"):
        claude(command=[path]).check()
