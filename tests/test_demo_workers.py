"""Runs scripts/demo-workers: a real server, two workers as separate processes, one of which is killed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE
from project import REPOSITORY


def is_set_up() -> bool:
    """Whether the script would leave .venv alone (see `make_venv` in scripts/_setup.sh): the tests run in it."""
    parts = (REPOSITORY / name for name in ("pyproject.toml", "requirements-dev.txt", "bin/ralphtool"))
    wanted = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    ready = REPOSITORY / ".venv/ready"
    return ready.exists() and ready.read_text().startswith(wanted)


@pytest.mark.skipif(not is_set_up(), reason="scripts/test sets .venv up first")
def test_the_demo_does_what_it_promises(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    command = [REPOSITORY / "scripts/demo-workers"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for words in ("is killed in the middle of story 1", "Its agent has ended too.", "4 of 4 stories are done"):
        assert words in done.stdout
    assert os.listdir(str(tmp_path)) == [], "it tidies up"
