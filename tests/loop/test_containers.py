"""A run as a container starts it: no terminal, no home, no name for git, files of another user, process 1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, ignores_term, kill, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND
from sandbox.boxes import needs_box, needs_root

KINDS = [pytest.param("box", marks=needs_box), "worktree", "here"]
INIT = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")  # the program is process 1
TRIAL = subprocess.run([*INIT, "true"], capture_output=True, check=False) if shutil.which("unshare") else None
needs_pid_namespace = pytest.mark.skipif(
    TRIAL is None or TRIAL.returncode != 0, reason="there is no namespace for processes here"
)


def start(lab: Lab, *before: str, **more: str | None) -> subprocess.Popen[bytes]:
    """Starts a run without a terminal; None as the value of a variable unsets it."""
    env = {name: value for name, value in (lab.env | {"CI": "true"} | more).items() if value is not None}
    env.pop("TERM", None)
    return subprocess.Popen(
        [*before, COMMAND, "run", "--format", "json"],
        cwd=lab.root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[dict[str, Any], str]:
    """The object that the run printed, and its stderr."""
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    finally:
        kill(process)
    told = json.loads(stdout)
    assert told["exit_code"] == process.returncode
    return told, stderr.decode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("home", [None, "", "/", "/no/such/home"])
def test_a_home_is_not_needed(lab: Lab, kind: str, home: str | None) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n", workspace=kind)
    lab.play(default=[{"run": 'mkdir -p "${HOME:-$PWD}" && test -n "$PWD"'}, *DONE])
    told, stderr = finish(start(lab, HOME=home))
    assert (told["result"], stderr) == ("done", "")


@needs_box
def test_a_temporary_folder_beside_the_agents_program_can_be_written(lab: Lab) -> None:
    """The box shows the program's folder read-only, which covers everything inside it."""
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n", workspace="box")
    lab.play(default=[{"run": 'touch "$TMPDIR/x"'}, *DONE])
    temporary = lab.script.parent / "temporary"
    temporary.mkdir()
    told, _ = finish(start(lab, HOME="/", TMPDIR=str(temporary)))
    assert told["result"] == "done"
    assert not (temporary / "x").exists()


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_closed_streams_are_no_trouble(lab: Lab, closed: str) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n").play(default=DONE)
    told, _ = finish(start(lab, "sh", "-c", f'exec "$@" {closed}', "sh"))
    assert told["result"] == "done"


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_name_for_git_commits_are_those_of_ralphtool(lab: Lab, kind: str) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n", workspace=kind).play(default=DONE)
    lab.git("config", "--unset", "user.name")
    lab.git("config", "--unset", "user.email")
    told, _ = finish(start(lab, HOME="/"))
    assert told["result"] == "done"
    assert lab.git("log", "-1", "--format=%an <%ae>", told["commits"][0]["commit"]) == "ralphtool <ralphtool@localhost>"


@needs_root
def test_files_of_another_user_are_refused_with_the_command_that_allows_them(lab: Lab) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n").play(default=DONE)
    for path in [lab.root, *lab.root.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    told, stderr = finish(start(lab))
    command = f"git config --global --add safe.directory {lab.root}"
    assert (told["result"], told["error"]["code"]) == ("refused", "GIT_ERROR")
    assert command in told["error"]["message"]
    assert "belongs to another user" in stderr
    subprocess.run(command.split(), env=lab.env, check=True)
    assert finish(start(lab))[0]["result"] == "done"


@needs_root
def test_a_user_without_a_name_or_a_home_can_run() -> None:
    """As in a container that is started with a numeric user id."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other users
        top = Path(folder).resolve()
        lab = Lab(top).repository("## 1. One\n\n- [ ] 1.1 a\n", workspace="auto").play(default=DONE)
        for path in [top, *top.rglob("*")]:
            os.chown(path, 12345, 12345, follow_symlinks=False)
        user = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
        assert finish(start(lab, *user, HOME="/"))[0]["result"] == "done"


@needs_pid_namespace
def test_as_process_1_it_ends_in_good_order_when_it_is_asked_to(lab: Lab) -> None:
    """The kernel drops signals to process 1 that it has no handler for."""
    lab.repository().play(default=[{"hang": True}])
    lab.env["MARK"] = marker = f"first-{os.getpid()}"
    process = start(lab, *INIT)
    assert wait_until(lambda: ignores_term(marker))
    [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert Path(f"/proc/{first}/status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1] == "1"
    os.kill(int(first), signal.SIGTERM)
    told, _ = finish(process)
    assert (told["result"], told["exit_code"]) == ("interrupted", 130)
    assert processes_with(marker) == []


@needs_pid_namespace
def test_as_process_1_it_leaves_no_zombies(lab: Lab) -> None:
    """Orphans of an agent become children of process 1, unless a ralphtool process adopts them."""
    orphans = "for i in 1 2 3; do (setsid sh -c : &) ; done; sleep 0.3"
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n\n## 2. Two\n\n- [ ] 2.1 b\n")
    count = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 ' > {story}.txt; true"
    lab.play(default=[{"run": orphans}, {"run": count}, *DONE[1:]])
    told, _ = finish(start(lab, *INIT))
    assert told["result"] == "done"
    assert [lab.git("show", f"{told['branch']}:{story}.txt") for story in ("1", "2")] == ["0", "0"]
