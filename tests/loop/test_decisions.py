"""A person's decisions during a run, decisions that an agent forges, and kills in the middle of a decision."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, PYTHON, Lab, Process, kill, wait_until
from patience import PATIENCE
from properties import THOROUGH, sample

from ralphtool.core import locks, sender
from ralphtool.history import History
from ralphtool.record import change_state, steering

TWO = "## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n"
REFUSED: list[dict[str, Any]] = [{"run": "echo refused > {story}.txt"}, {"say": "I give up"}]
ME = "Tester <tester@example.org>"


def held(lab: Lab) -> list[dict[str, Any]]:
    """Steps of an agent that works until the file `go` exists."""
    return [{"run": f"touch {lab.tmp}/began; while [ ! -e {lab.tmp}/go ]; do sleep 0.05; done"}, *DONE]


def seen(lab: Lab, type: str) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] == type]


def on_branch(lab: Lab, path: str) -> str:
    return lab.git("show", f"ralph/add-login:{path}", check=False)


def finish(lab: Lab, process: Process) -> int:
    (lab.tmp / "go").touch()
    process.communicate(timeout=PATIENCE)
    return process.returncode


def begin(lab: Lab, *turns: dict[str, Any], **config: Any) -> Process:
    """Starts a run, and waits until its held agent is working."""
    lab.repository(TWO, **config)
    lab.play(*turns, default=DONE)
    process = lab.start()
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)
    return process


# --- while an agent works ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["here", "worktree"])
def test_an_earlier_attempt_is_accepted_while_the_next_one_works(lab: Lab, kind: str) -> None:
    turns: list[dict[str, Any]] = [{"story": "1", "attempt": 1, "steps": REFUSED}, {"story": "1", "steps": held(lab)}]
    process = begin(lab, *turns, workspace=kind, attempts=5)
    try:
        told = lab.run("accept", "1", "--why", "good enough")
        assert "add-login-1-1 is accepted as it is (the run of" in told.stdout, told.stderr
        finish(lab, process)
    finally:
        kill(process)
    assert lab.checkpoints() == ["1", "2"]
    assert on_branch(lab, "1.txt") == "refused"
    assert [id for id, _ in lab.endings()] == ["add-login-1-1", "add-login-1-2", "add-login-2-1"], "it was no attempt"
    [said] = seen(lab, "steered")
    assert (said["action"], said["by"], said["text"]) == ("accept", ME, "good enough")
    [proof] = [one for one in seen(lab, "proof") if one["receipt"]["state"] == "accepted"]
    assert (proof["story"], proof["iteration"], proof["entry"], proof["receipt"]["by"]) == ("1", 0, "add-login-1-2", ME)
    rows = seen(lab, "run_ended")[-1]["stories"]
    assert [row["state"] for row in rows] == ["done", "done"]
    assert list(lab.root.glob(".ralph/steering/*/*.json")) == []


@pytest.mark.parametrize("kind", ["here", "worktree"])
def test_a_story_that_is_rejected_is_done_again_in_the_same_run(lab: Lab, kind: str) -> None:
    process = begin(lab, {"story": "2", "attempt": 1, "steps": held(lab)}, workspace=kind)
    try:
        told = lab.run("reject", "1", "--why", "wrong colour")
        assert "story 1 of add-login is open again" in told.stdout, told.stderr
        finish(lab, process)
    finally:
        kill(process)
    assert lab.checkpoints() == ["1", "2", "1"]
    [reopened] = seen(lab, "reopened")
    assert (reopened["story"], reopened["why"], reopened["by"]) == ("1", "wrong colour", ME)
    prompt = sorted(lab.root.glob(".ralph/runs/*/*add-login-1-2/prompt.md"))[-1].read_text()
    assert "was rejected: wrong colour" in prompt
    assert "[ ]" not in on_branch(lab, "openspec/changes/add-login/tasks.md")


def test_what_can_not_be_done_is_said_at_once_and_not_to_the_run(lab: Lab) -> None:
    process = begin(lab, {"story": "1", "steps": held(lab)})
    try:
        told = lab.run("accept", "1")
        assert (told.exit_code, "has no attempt yet" in told.stderr) == (1, True)
        assert "nothing to reject" in lab.run("reject", "2").stdout
        assert (finish(lab, process), seen(lab, "steered")) == (0, [])
    finally:
        kill(process)


# --- forged by an agent -----------------------------------------------------------------------------


def forge(lab: Lab, pid: str) -> dict[str, Any]:
    """A step of an agent that writes what `ralphtool accept` writes, with the id of a given process."""
    program = (
        "import json, os, sys, time\n"
        f"folder = {str(lab.root)!r} + '/.ralph/steering/add-login'\n"
        "os.makedirs(folder, exist_ok=True)\n"
        f"pid = {pid}\n"
        "fields = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()\n"
        "boot = open('/proc/sys/kernel/random/boot_id').read().strip()\n"
        "sender = {'pid': pid, 'start_time': f'{boot}/{fields[19]}'}\n"
        "for action in ('accept', 'reject'):\n"
        "    told = {'action': action, 'story': '1', 'text': '', 'run': None, 'at': '', 'by': 'you'}\n"
        "    told['sender'] = sender\n"
        "    open(f'{folder}/{time.time_ns():020}-00.json', 'w').write(json.dumps(told))\n"
        "time.sleep(1.5)\n"
    )
    path = lab.tmp / "forge.py"
    path.write_text(program)
    return {"run": f"{PYTHON} {path} accept reject"}


@pytest.mark.parametrize("pid", ["os.getpid()", "os.getppid()", "1", "int(os.environ['RUN'])"])
def test_a_decision_that_an_agent_writes_does_not_count(lab: Lab, pid: str) -> None:
    lab.env["RUN"] = str(os.getpid())
    lab.repository(TWO, attempts=2)
    lab.play({"story": "1", "steps": [{"run": "echo x > 1.txt"}, forge(lab, pid), {"say": "no"}]}, default=DONE)
    lab.loop()
    assert lab.checkpoints() == ["2"]
    assert seen(lab, "steered") == []
    assert any("no running command of yours sent it" in one["text"] for one in seen(lab, "notice"))
    assert list(lab.root.glob(".ralph/steering/*/*.json")) == []


@pytest.mark.parametrize("way", ["env -u RALPH_TOKEN -u RALPH_SESSION", "setsid env -u RALPH_TOKEN -u RALPH_SESSION"])
def test_an_agent_is_known_by_the_run_that_it_works_for(lab: Lab, way: str) -> None:
    lab.repository(TWO, attempts=2)
    step = {"run": f"{way} ralphtool accept 1 2> {lab.tmp}/told"}
    lab.play(
        {"story": "1", "attempt": [2], "steps": [step, {"say": "no"}]}, {"story": "1", "steps": REFUSED}, default=DONE
    )
    lab.loop()
    assert "for people" in (lab.tmp / "told").read_text()
    assert (lab.checkpoints(), seen(lab, "steered")) == (["2"], [])


def test_a_decision_without_a_command_behind_it_is_dropped_by_the_next_run(lab: Lab) -> None:
    lab.repository(TWO, attempts=1)
    lab.play({"story": "1", "steps": REFUSED}, default=DONE)
    lab.loop()
    steering.send(str(lab.root), "add-login", "accept", "1", by="you", entry=None, sender=None)
    lab.loop()
    assert (lab.checkpoints(), seen(lab, "steered")) == (["2"], [])


def test_only_a_process_that_is_alive_called_so_and_not_ours_is_believed() -> None:
    waiting = [PYTHON, "-c", "import time; time.sleep(3600)", "accept"]
    with subprocess.Popen(waiting) as below:
        described = {"pid": below.pid, "start_time": locks.read_start_time(below.pid)}
        program = (
            f"from ralphtool.core import sender; print(*[sender.is_outside({described!r}, w) for w in ('accept', 'x')])"
        )
        try:
            assert not sender.is_outside(described, "accept"), "we have started it"
            assert subprocess.check_output([PYTHON, "-c", program], text=True).split() == ["True", "False"]
            assert not sender.is_outside({**described, "start_time": "another"}, "accept")
        finally:
            below.kill()
    for nonsense in (described, None, {}, {"pid": "1"}, {"pid": 10**30}, {"pid": -5}, [1]):
        assert not sender.is_outside(nonsense, "accept")


# --- killed in the middle ---------------------------------------------------------------------------

KILLER = """
import os, signal, sys
root, limit, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0

def hook(event, args):
    global count
    if event == "subprocess.Popen":
        words = list(map(str, args[1]))
        counts = "update-ref" in words or ("read-tree" in words and "-u" in words)
    elif event == "open":
        counts = isinstance(args[0], (str, bytes)) and root in os.fsdecode(args[0]) and bool(args[2] & 3)
    else:
        counts = event in ("os.rename", "os.remove", "os.link", "os.mkdir") and root in os.fsdecode(args[0])
    count += counts
    if counts and count == limit:
        os.kill(os.getpid(), signal.SIGKILL)

from ralphtool.cli.main import main
sys.addaudithook(hook)
sys.exit(main(command))
"""


def describe(lab: Lab) -> Any:
    """What must be the same, however often the command was interrupted."""
    state = change_state.load(str(lab.root), "add-login").story("1")
    proof = state.proof and (state.proof.state, state.proof.why, state.proof.by)
    tip = lab.git("rev-parse", "ralph/add-login^{tree}")
    status = lab.git("status", "--porcelain", "--untracked-files=no")
    endings = [(one.id, one.status) for one in History(str(lab.root)).entries()]
    return tip, proof, state.status, state.attempts, state.told, state.question, endings, status


def fingerprint(lab: Lab) -> Any:
    """The state that the next command finds: kills that leave the same state are checked only once."""
    state = change_state.load(str(lab.root), "add-login")
    said = len(list(lab.root.glob(".ralph/steering/*/*.json")))
    outcome = state.outcome and (state.outcome.story, state.outcome.entry.status)
    return repr((describe(lab), said, outcome, len(state.heeded), lab.question().exists()))


@pytest.mark.parametrize("is_checked_out", [False, True])
@pytest.mark.parametrize("action", ["accept", "reject"])
def test_a_decision_that_is_cut_off_anywhere_is_finished_by_saying_it_again(
    lab: Lab, tmp_path: Path, action: str, is_checked_out: bool
) -> None:
    lab.repository(TWO, attempts=1)
    lab.play({"story": "1", "steps": REFUSED if action == "accept" else DONE}, default=DONE)
    lab.loop()
    if is_checked_out:
        lab.git("checkout", "--quiet", "ralph/add-login")
    old, saved = describe(lab), tmp_path / "saved"
    shutil.copytree(lab.root, saved, symlinks=True)
    words = [action, "1", "--why", "so it is"]
    assert lab.run(*words).exit_code == 0
    new, number, tips, judged = describe(lab), 0, set(), set()
    assert new != old
    while True:
        number += 1 if THOROUGH or action == "reject" else 4  # a rejection has few steps
        shutil.rmtree(lab.root)
        shutil.copytree(saved, lab.root, symlinks=True)
        command = [PYTHON, "-c", KILLER, str(lab.root), str(number), *words]
        done = subprocess.run(command, cwd=lab.root, env=lab.env, capture_output=True, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr.decode()
        tip, *_ = describe(lab)
        tips.add(tip)
        assert tip in (old[0], new[0]), f"at {number}"
        if (left := fingerprint(lab)) not in judged:
            judged.add(left)
            again = lab.run(*words)
            assert again.exit_code == 0, f"at {number}: {again.stderr}"
            assert describe(lab) == new, f"at {number}"
    assert (number > 10, len(tips), len(judged) > 3) == (True, 2, True)


def test_the_next_run_goes_on_after_a_decision_that_was_cut_off(lab: Lab) -> None:
    lab.repository(TWO, attempts=1)
    lab.play({"story": "1", "steps": REFUSED}, default=DONE)
    lab.loop()
    saved = lab.tmp / "saved"
    shutil.copytree(lab.root, saved, symlinks=True)
    for number in sample(range(3, 24, 5), 2):
        shutil.rmtree(lab.root)
        shutil.copytree(saved, lab.root, symlinks=True)
        command = [PYTHON, "-c", KILLER, str(lab.root), str(number), "accept", "1"]
        subprocess.run(command, cwd=lab.root, env=lab.env, capture_output=True, check=False)
        lab.play(default=[{"say": "never"}])
        lab.loop()
        kept = [status for id, status in lab.endings() if id.startswith("add-login-1-")]
        is_accepted = lab.checkpoints() == ["2", "1"]
        assert kept == ["failed", "completed"] if is_accepted else kept == ["failed"], f"at {number}"
        assert json.loads((lab.root / ".ralph/standing/add-login.json").read_bytes())["heeded"] == []
