"""A project whose stories are worked on side by side, and what must be true of it afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Process
from patience import PATIENCE

NEEDS_BOXES = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
ONE, SECOND, THIRD, FOURTH = (f"## {number}. Story {number}\n\n- [ ] {number}.1 Write it\n" for number in range(1, 5))
TWO, FOUR = f"{ONE}\n{SECOND}", f"{ONE}\n{SECOND}\n{THIRD}\n{FOURTH}"
GATE = "sh gate.sh"  # each test runs it often, and Python would take ten times as long to start
# Green if no part is empty, and at most one says `alone`.
CODE = """\
alone=0 count=0
for part in parts/*.txt; do
  [ -e "$part" ] || continue
  count=$((count + 1))
  grep -q '[^[:space:]]' "$part" || exit 1
  if grep -q alone "$part"; then alone=$((alone + 1)); fi
done
echo "$count parts"
[ "$alone" -le 1 ]
"""


def part(text: str = "fine", name: str = "{story}") -> dict[str, Any]:
    return {"run": f"mkdir -p parts && echo '{text}' > parts/{name}.txt"}


END: list[dict[str, Any]] = [{"tick": "all"}, {"complete": True}]
WRITES = [part(), *END]


def make(lab: Lab, tasks: str = FOUR, **config: Any) -> Lab:
    """Creates the project, with a folder that agents in different boxes share."""
    (lab.root.parent / "meet").mkdir()
    lab.write("gate.sh", CODE)
    lab.repository(tasks, workspace="box", tests=[GATE], **{"side_by_side": 4, **config})
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + f'[sandbox]\nwrite = ["{meet(lab)}"]\n')
    return lab


def meet(lab: Lab) -> Path:
    return lab.root.parent / "meet"


def wait_for_all(lab: Lab, count: int) -> dict[str, Any]:
    """Each agent waits until all have started."""
    place = meet(lab)
    return {"run": f"touch {place}/begun-{{story}}; {wait_for_begun(place, count)}"}


def wait_for_begun(place: Path, count: int) -> str:
    """A command that waits until so many have started; it starts few programs, since many wait at the same time."""
    files = f"{place}/begun-*"
    return f"set -- {files}; while [ $# -lt {count} ] || [ ! -e $1 ]; do sleep 0.05; set -- {files}; done"


def check_commits(lab: Lab) -> None:
    """Each commit of the branch is green by itself."""
    for commit in lab.git("rev-list", "main..ralph/add-login").splitlines():
        folder = lab.root.parent / "commits" / commit
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=lab.root, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        done = subprocess.run(GATE, shell=True, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, (commit, done.stdout)


def check_left(lab: Lab) -> None:
    """The lanes leave nothing behind."""
    assert len(lab.git("worktree", "list").splitlines()) == 2  # the user's, and the one that the next run starts with
    assert sorted(path.name for path in (lab.root / ".git/ralph/worktrees").iterdir()) == ["add-login"]
    assert sorted(path.name for path in (lab.root / ".git/ralph/boxes").iterdir()) == ["add-login"]
    assert lab.git("for-each-ref", "refs/ralph/proving") == ""


def list_stories(lab: Lab) -> list[str]:
    """The stories with a commit, oldest first."""
    told = lab.git("log", "--reverse", "--format=%(trailers:key=Ralph-Story,valueonly,separator=)", "ralph/add-login")
    return [line for line in told.splitlines() if line]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["type"] == kind]


def set_gate(lab: Lab, gate: str) -> None:
    was = lab.read(".ralph/config.toml")
    lab.write(".ralph/config.toml", was.replace(json.dumps([GATE]), json.dumps([gate])))


def end(run: Process, how: int) -> None:
    run.send_signal(how)
    run.communicate(timeout=PATIENCE)
