"""The loop is killed while it applies an edited plan: the next run applies it, once, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lab import DONE, Lab, processes_with, wait_until
from patience import PATIENCE

PLAN = "## 1. First\n\n- [ ] 1.1 Make one\n\n## 2. Second\n\n- [ ] 2.1 Make two\n"
EDITED = "## 1. First\n\n- [ ] 1.1 Make one\n\n## 2. Reworded\n\n- [ ] 2.1 Make 2\n\n## 3. Third\n\n- [ ] 3.1 Make 3\n"
TASKS = "openspec/changes/add-login/tasks.md"
# A git that kills the loop that called it, before or after the call with a given number.
DEADLY = """#!/bin/bash
if grep -qz "^run$" "/proc/$PPID/cmdline" && grep -q ralphtool "/proc/$PPID/cmdline"; then
  echo "$*" >> "$CALLS"
  if [ "$(wc -l < "$CALLS")" = "$KILL_AT" ]; then
    [ "$WHEN" = before ] && kill -9 "$PPID" && exit 1
    {git} "$@"; kill -9 "$PPID"; exit
  fi
fi
exec {git} "$@"
"""


def put_deadly_git(lab: Lab, folder: Path, number: int, when: str) -> None:
    folder.mkdir()
    script = folder / "git"
    script.write_text(DEADLY.replace("{git}", shutil.which("git") or "git"))
    script.chmod(0o755)
    lab.env |= {"PATH": f"{folder}:{lab.env['PATH']}", "CALLS": str(folder / "calls"), "KILL_AT": str(number)}
    lab.env["WHEN"] = when
    (folder / "calls").touch()


def edit_plan(lab: Lab, workspace: str) -> None:
    lab.repository(PLAN, workspace=workspace).play(default=[{"run": "date +%N > made-$$.txt"}, *DONE])
    lab.loop("--max-iterations", "1")
    assert lab.checkpoints() == ["1"]
    lab.write(TASKS, EDITED)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("workspace", ["worktree", "here"])
@pytest.mark.parametrize("number", range(3, 55, 4))
def test_a_kill_while_the_plan_is_taken_up_loses_nothing(
    lab: Lab, tmp_path: Path, number: int, workspace: str, when: str
) -> None:
    edit_plan(lab, workspace)
    usual = lab.env["PATH"]
    put_deadly_git(lab, tmp_path / "deadly", number, when)
    killed = lab.start(stdout=subprocess.PIPE)  # not warm: git kills it by its command line
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -9, (tmp_path / "deadly/calls").read_text()
    assert wait_until(lambda: not processes_with(f"CALLS={tmp_path}{os.sep}"))
    lab.env["PATH"] = usual
    result = lab.loop()
    assert result.exit_code == 0, (result.stderr, lab.events()[-1])
    assert lab.checkpoints() == ["1", "2", "3"]
    assert lab.git("show", f"ralph/add-login:{TASKS}") == EDITED.replace("[ ]", "[x]").rstrip()
    assert (lab.root / TASKS).read_text() == EDITED
    assert lab.git("fsck", "--connectivity-only", "--no-dangling") == ""
    started = [event["story"] for event in lab.events() if event["type"] == "iteration_started"]
    assert set(started) == {"1", "2", "3"}
    assert started.count("1") == 1, "what was done is not done again"
