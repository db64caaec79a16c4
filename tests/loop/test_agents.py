"""Agents that hang, flood, cheat and break things: each gets the verdict it deserves, and the loop continues."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, PYTHON, Lab, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND, bound_by_permissions

ONE = "## 1. First\n\n- [ ] 1.1 Make it\n- [ ] 1.2 Prove it\n\n## 2. Second\n\n- [x] 2.1 Done before\n"
Steps = list[dict[str, Any]]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    assert wait_until(lambda: not processes_with(str(lab.home))), processes_with(str(lab.home))


def change_of_mine(lab: Lab) -> None:
    """Uncommitted work of the user, which no agent may harm."""
    lab.write(".gitignore", ".env\n")
    lab.write("src.txt", "committed\n")
    lab.git("add", ".gitignore", "src.txt")
    lab.git("commit", "--quiet", "--message=more")
    lab.write("README.md", "staged\n")
    lab.git("add", "README.md")
    lab.write("README.md", "and changed\n")
    lab.write("notes/mine.txt", "untracked\n")
    lab.write(".env", "SETTING=1\n")
    (lab.root / "src.txt").unlink()


@dataclass(frozen=True)
class Case:
    """What the first attempt does, and what must be reported about it."""

    steps: Steps
    says: str
    status: str = "failed"
    settings: tuple[tuple[str, str], ...] = ()
    entries: int = 2  # if the first attempt does not complete


def sh(command: str, *, claims: bool = True) -> Steps:
    """An agent that does its work, then something else, and claims to be done."""
    return [*DONE[:-1], {"run": command}, *([{"complete": True}] if claims else [])]


CHEAP = (("silence", "5s"),)
DEAF = "import os,signal,time; signal.signal(15, signal.SIG_IGN)"
DAEMON = f"{PYTHON} -c '{DEAF}; os.fork() and os._exit(0); os.setsid(); time.sleep(3600)'"
TASKS = "openspec/changes/add-login/tasks.md"
# The supervisor is the parent of the session leader; the loop is the supervisor's parent.
KEEPER = "read -r _ _ _ p _ < /proc/$(ps -o sid= -p $$ | tr -d ' ')/stat; "

CASES: dict[str, Case] = {
    # --- time and output
    "says nothing": Case([{"hang": True}], "printed nothing for too long", settings=CHEAP),
    "says nothing and does not listen": Case(
        [{"hang": True, "ignore_term": True}], "printed nothing for too long", settings=CHEAP
    ),
    "takes too long": Case(
        [{"run": "while :; do echo x; sleep 0.1; done"}], "ran out of time", settings=(("timeout", "10s"),), entries=3
    ),
    "prints binary": Case([{"bytes": "ff00fe1b5b324a0a" * 50}, {"exit": 0}], "2 tasks not ticked"),
    "closes its output and lives on": Case(
        [{"close": "stdout"}, {"close": "stderr"}, {"hang": True}], "printed nothing for too long", settings=CHEAP
    ),
    "one line of 30 MB": Case([{"flood": 30_000_000, "lines": False}], "2 tasks not ticked"),
    # --- promises
    "does nothing and ends well": Case([{"exit": 0}], "the agent failed: "),
    "claims without work": Case([{"complete": True}], "2 tasks not ticked"),
    "echoes the prompt": Case(
        [*DONE[:-1], {"forge": "You said <promise>COMPLETE:{token}</promise>, and so on."}],
        "does not end with the promise",
        "partial",
    ),
    "promises with another token": Case(
        [*DONE[:-1], {"forge": "<promise>COMPLETE:0123456789abcdef0123456789abcdef</promise>"}],
        "does not end with the promise",
        "partial",
    ),
    "kills itself": Case([*DONE[:-1], {"kill": "self"}], "the agent failed: ", "partial"),
    # --- git
    "writes garbage into the index": Case(sh("echo garbage > .git/index"), "every task is ticked", "completed"),
    "removes the index": Case(sh("rm .git/index"), "every task is ticked", "completed"),
    "leaves locks": Case(
        sh("touch .git/index.lock .git/HEAD.lock .git/config.lock"), "every task is ticked", "completed"
    ),
    "leaves a lock on our branch": Case(
        sh("touch .git/refs/heads/ralph/add-login.lock"), "every task is ticked", "completed"
    ),
    "commits": Case(
        sh("git add -A; git commit -qm mine; git commit -q --allow-empty -m more"), "every task", "completed"
    ),
    "commits on main": Case(
        sh("git add -A; git commit -qm a; git checkout -q main; echo b > b; git add b; git commit -qm b"),
        "refs/heads/main",
    ),
    "removes main": Case(sh("git update-ref -d refs/heads/main"), "refs/heads/main"),
    "removes our branch": Case(
        sh("git checkout -q --detach; git branch -qD ralph/add-login"), "every task", "completed"
    ),
    "resets": Case(sh("git reset -q --hard HEAD"), "2 tasks not ticked"),
    "stashes": Case(sh("git add -A; git stash -q"), "refs/stash"),
    "stashes and takes it out again": Case(sh("git add -A; git stash -q; git stash pop -q"), "every task", "completed"),
    "cleans up": Case([{"run": "git clean -fdxq -e .ralph"}, *DONE], "every task is ticked", "completed"),
    "cleans up with our folder": Case(sh("git clean -fdxq"), ".ralph/config.toml"),
    "collects garbage": Case(
        sh("git reflog expire --expire=now --all; git gc -q --prune=now"), "every task is ticked", "completed"
    ),
    "adds a hook": Case(
        sh("printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"), ".git/hooks/pre-commit"
    ),
    "changes git's settings": Case(sh("git config core.bare true"), ".git/config"),
    "nests a repository": Case(
        sh("git init -q inner; cd inner; git -c user.name=a -c user.email=b commit -q --allow-empty -m x"), "inner"
    ),
    "removes .git's objects": Case(sh("mv .git/HEAD .git/HEAD.away"), "every task is ticked", "completed"),
    # --- ralphtool's own files
    "removes our folder": Case(sh("rm -rf .ralph"), ".ralph/"),
    "edits the settings": Case(sh("echo '[verify]' > .ralph/config.toml"), ".ralph/config.toml"),
    "writes history": Case(sh("echo '{}' > .ralph/progress.json"), ".ralph/progress.json"),
    "edits the standing": Case(sh("echo '{}' > .ralph/standing/add-login.json"), ".ralph/standing/add-login.json"),
    "removes the lock": Case(sh("rm .ralph/locks/add-login.lock"), ".ralph/locks/add-login.lock"),
    "damages the session": Case(sh('echo garbage > "$TMPDIR/ralph/sessions/$RALPH_SESSION.json"'), "sessions/"),
    "removes the session": Case(sh('rm "$TMPDIR/ralph/sessions/$RALPH_SESSION.json"'), "sessions/"),
    # --- the spec
    "edits a task": Case(sh(f"sed -i s/Prove/Guess/ {TASKS}"), "spec-edited"),
    "removes a task": Case(sh(f"sed -i '/1.2/d' {TASKS}"), "spec-edited"),
    "opens another story": Case(sh(f"sed -i 's/\\[x\\] 2.1/[ ] 2.1/' {TASKS}"), "unticked"),
    "removes the spec": Case(sh("rm -r openspec"), "spec-edited"),
    "ticks by hand": Case(
        [{"run": f"echo work > work.txt; sed -i 's/\\[ \\]/[x]/' {TASKS}"}, {"complete": True}],
        "every task is ticked",
        "completed",
    ),
    # --- processes
    "leaves a daemon": Case(sh(DAEMON), "every task is ticked", "completed"),
    "kills its parent": Case(sh("kill -9 $PPID"), "the agent failed: ", "partial"),
    "kills the supervisor": Case(sh(f"{KEEPER} kill -9 $p; sleep 3600"), "supervisor process was killed", "partial"),
    "stops the supervisor": Case(
        sh(f"{KEEPER} kill -STOP $p; sleep 3600"), "", "partial", settings=(("silence", "8s"),)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_agent_gets_the_verdict_it_deserves_and_the_loop_goes_on(lab: Lab, name: str) -> None:
    case = CASES[name]
    lab.repository(tasks=ONE, **dict(case.settings))
    change_of_mine(lab)
    lab.play({"attempt": 1, "steps": case.steps}, default=DONE)
    before = lab.users_state()
    staged = lab.git("show", ":README.md")
    done = lab.loop()
    entries = lab.entries()
    assert done.exit_code == 0, f"{done.stderr} {[(one['id'], one['summary']) for one in entries]}"
    assert (entries[0]["status"], entries[-1]["status"]) == (case.status, "completed"), entries[0]["summary"]
    assert case.says in entries[0]["summary"], entries[0]["summary"]
    assert len(entries) == (1 if case.status == "completed" else case.entries)
    assert lab.checkpoints() == ["1"]
    assert lab.users_state() == before
    assert lab.git("show", ":README.md") == staged
    assert not processes_with(str(lab.home))


def test_passes_that_an_agent_flipped_is_no_proof(lab: Lab) -> None:
    stories = [{"id": "US-1", "title": "It", "acceptanceCriteria": ["one"], "passes": False}]
    lab.repository()
    shutil.rmtree(lab.root / "openspec")
    lab.write("prd.json", json.dumps({"branchName": "ralph/add-login", "userStories": stories}))
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=prd")
    flip = 'sed -i \'s/"passes": false/"passes": true/\' prd.json'
    lab.play({"attempt": 1, "steps": sh(flip)}, default=DONE)
    before = lab.users_state()
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("us-1-1", "failed"), ("us-1-2", "completed")]
    assert "passes-flipped" in lab.entries()[0]["summary"]
    assert lab.users_state() == before


def test_what_a_failed_attempt_ticked_in_other_stories_does_not_count(lab: Lab) -> None:
    lab.repository(attempts=1)
    forge = [{"run": f"sed -i 's/\\[ \\] 2.1/[x] 2.1/' {TASKS}"}, {"say": "I could not."}]
    lab.play({"story": "1", "steps": forge}, default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-2-1", "completed")]
    assert lab.checkpoints() == ["2"]


def test_stories_that_a_failed_attempt_removed_are_worked_on(lab: Lab) -> None:
    lab.repository(attempts=1)
    lab.play({"story": "1", "steps": [{"run": f"sed -i '/## 2/,$d' {TASKS}"}, {"say": "I could not."}]}, default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-2-1", "completed")]


# --- large amounts ----------------------------------------------------------------------------------


def _peak(pid: int) -> int:
    """The peak memory of a process so far, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def test_a_flood_of_a_gigabyte_does_not_fill_the_memory(lab: Lab) -> None:
    lab.repository(tasks=ONE, attempts=1)
    process = lab.start("--agent-command", "head -c 1G /dev/zero")
    reader = threading.Thread(target=process.communicate)  # unread output would block it
    reader.start()
    peak = 0
    while reader.is_alive():
        peak = max(peak, _peak(process.pid))
        reader.join(0.02)
    assert process.returncode == 1
    assert 0 < peak < 200
    assert "2 tasks not ticked" in lab.entries()[0]["summary"]
    for path in lab.root.glob(".ralph/runs/*/*/transcript.log"):
        path.unlink()  # it is as long as the output


def test_a_prompt_that_nobody_reads_stops_nothing(lab: Lab) -> None:
    lab.repository(tasks=ONE, attempts=1)
    lab.write("openspec/changes/add-login/design.md", "all of the design\n" * 1_200_000)
    lab.git("add", "openspec")
    lab.git("commit", "--quiet", "--message=design")
    done = lab.loop("--agent-command", "sh -c 'exec <&-; echo ready; sleep 0.2'")
    assert done.exit_code == 1, done.stderr
    assert lab.endings() == [("add-login-1-1", "failed")]


def test_secrets_that_an_agent_prints_are_written_nowhere(lab: Lab) -> None:
    secret = "hush-hush-0123456789"
    lab.repository(tasks=ONE)
    tell = [
        {"say": f"the key is {secret}"},
        {"run": "echo $SOME_API_KEY; echo $SOME_API_KEY >&2"},
        {"run": 'ralphtool agent learn "use $SOME_API_KEY"; ralphtool agent observe finding "it is $SOME_API_KEY"'},
        {"blocked": f"{secret} is refused"},
    ]
    lab.play({"attempt": 1, "steps": tell}, default=DONE)
    done = lab.loop(SOME_API_KEY=secret)
    assert done.exit_code == 0
    assert secret not in done.stdout + done.stderr
    told = [path for path in lab.root.glob(".ralph/**/*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert told == []
    assert secret not in lab.git("log", "--all", "--format=%B%N")
    assert secret not in lab.git("show", f"ralph/add-login:{TASKS}".replace("tasks", "design"), check=False)


# --- what the system refuses ------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting is refused: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_an_agent_that_fills_the_disk(small_disk: Path) -> None:
    lab = Lab(small_disk)
    lab.repository(tasks=ONE)
    change_of_mine(lab)
    lab.play({"attempt": 1, "steps": sh("head -c 100M /dev/zero > big; true")}, default=DONE)
    before = lab.users_state()
    first = lab.loop()
    told = lab.run("back")
    assert told.exit_code == 0, told.stderr
    assert lab.users_state() == before, first.stderr
    lab.play(default=DONE)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr + first.stderr
    assert lab.checkpoints() == ["1"]
    assert [status for _, status in lab.endings()].count("completed") == 1
    assert lab.users_state() == before


def test_an_agent_that_makes_files_unreadable(lab: Lab) -> None:
    lab.repository(tasks=ONE)
    lab.play({"attempt": 1, "steps": sh("echo x > secret.txt; chmod 000 secret.txt")}, default=DONE)
    before = lab.users_state()
    command = [*bound_by_permissions(), COMMAND, "run", "--json"]
    done = subprocess.run(command, cwd=lab.root, env=lab.env, capture_output=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "the work can't be read" in lab.entries()[0]["summary"]
    assert lab.users_state() == before


def test_an_agent_that_kills_the_loop(lab: Lab) -> None:
    lab.repository(tasks=ONE)
    change_of_mine(lab)
    above = f"{KEEPER} read -r _ _ _ loop _ < /proc/$p/stat; kill -9 $loop; sleep 3600"
    lab.play(default=sh(above))
    before = lab.users_state()
    process = lab.start()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not processes_with(str(lab.home)))
    assert lab.run("back").exit_code == 0
    assert lab.users_state() == before
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed")]


def test_an_agent_that_kills_loop_and_supervisor_is_ended_before_the_files_come_back(lab: Lab) -> None:
    lab.repository(tasks=ONE)
    change_of_mine(lab)
    both = f"{KEEPER} read -r _ _ _ loop _ < /proc/$p/stat; kill -9 $p $loop"
    write = "for i in $(seq 100); do echo agent > README.md; sleep 0.1; done"
    lab.play(default=[{"run": f"{both}; {write}"}])
    before = lab.users_state()
    process = lab.start()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert lab.run("back").exit_code == 0
    assert not processes_with(str(lab.home))
    assert lab.users_state() == before
