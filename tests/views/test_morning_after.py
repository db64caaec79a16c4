"""What people see after a run that was killed, was interrupted, or has asked a question."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until
from patience import PATIENCE
from project import COMMAND

TWO = "## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n"
ASKS: list[dict[str, Any]] = [{"blocked": "STRIPE_API_KEY is not set"}]


def begin(lab: Lab, workspace: str = "here") -> subprocess.Popen[bytes]:
    """Starts a run with plain output, and waits until its agent works."""
    lab.repository(TWO, workspace=workspace).play(default=[{"run": f"touch {lab.tmp}/began; sleep 3600"}])
    process = subprocess.Popen(
        [COMMAND, "run"], cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)
    return process


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_after_a_kill_the_command_that_helps_is_named(lab: Lab, workspace: str) -> None:
    process = begin(lab, workspace)
    assert "ralphtool run add-login" not in lab.run("list").stdout + lab.run("runs").stdout, "it is alive"
    kill(process)
    resume = "`ralphtool run add-login` resumes where it stopped"
    assert f"its last run died: {resume}" in lab.run("list").stdout
    assert f" died: {resume}" in lab.run("runs").stdout
    assert ("until the run of" in lab.run("list").stdout) is False, "no run is there that could be over"
    assert ("`ralphtool back`" in lab.run("list").stdout) == (workspace == "here")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert "resumes" not in lab.run("list").stdout + lab.run("runs").stdout
    assert "died" in lab.run("runs").stdout, "the run of then is still listed"


def test_an_interrupted_run_says_it_once(lab: Lab) -> None:
    process = begin(lab)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    told = (out + errors).decode().lower()
    assert told.count("interrupted") == 1, told
    assert "interrupted; run it again and it resumes where it stopped." in told
    assert lab.run("watch").stdout.lower().count("interrupted") == 1
    head = lab.run("report").stdout.partition("\n## ")[0]
    assert head.lower().count("interrupted") == 1, "the table of attempts names how each ended, as always"


def steps(lab: Lab) -> list[str]:
    return [one["run"] for one in json.loads(lab.run("report", "--json").stdout)["next"]]


def test_the_next_steps_of_a_report_agree_with_its_questions(lab: Lab) -> None:
    lab.repository(TWO).play({"story": "1", "steps": ASKS}, {"story": "2", "steps": ASKS})
    assert lab.loop().exit_code == 1
    assert steps(lab) == ['ralphtool answer 1 "…"', 'ralphtool answer 2 "…"', "ralphtool run add-login"]
    assert lab.run("answer", "1", "Use the fake").exit_code == 0
    assert steps(lab) == ['ralphtool answer 2 "…"', "ralphtool run add-login"], "it is answered"
    assert lab.run("report").stdout.count('ralphtool answer 2 "…"') == 2, "with the question, and as a step"
    assert 'ralphtool answer 1 "…"' not in lab.run("report").stdout


def test_a_report_of_a_run_that_was_killed_names_the_questions_of_earlier_runs(lab: Lab) -> None:
    lab.repository(TWO).play({"story": "1", "steps": ASKS}, default=[{"run": f"touch {lab.tmp}/began; sleep 3600"}])
    process = lab.start()
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)
    kill(process)
    assert steps(lab) == ['ralphtool answer 1 "…"', "ralphtool run add-login"]
    assert os.path.exists(lab.root / ".ralph/questions/add-login-1.md")
