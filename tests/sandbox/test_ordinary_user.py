"""The promises about the user's own tree hold for an ordinary user as well as for root."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile

import pytest
from project import REPOSITORY
from properties import THOROUGH, sample
from sandbox.stage import ORDINARY, become_user, ensure_user

FILES = sample(("tests/sandbox/test_users_tree.py", "tests/sandbox/test_users_branch.py"), 2)
SHARE = [] if THOROUGH else ["-m", "not slow", "-k", "box"]
PYTEST = (sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *SHARE)


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as an ordinary user already")
def test_as_an_ordinary_user() -> None:
    ensure_user(ORDINARY)
    user = pwd.getpwnam(ORDINARY)
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="ralph-ordinary-") as name:
        os.chown(name, user.pw_uid, user.pw_gid)
        done = subprocess.run(
            [*become_user(user, name, [REPOSITORY]), *PYTEST, f"--basetemp={name}/tests", *FILES],
            cwd=REPOSITORY,
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
            | {"HOME": name, "TMPDIR": name, "USER": ORDINARY, "LOGNAME": ORDINARY},
            capture_output=True,
            text=True,
            timeout=1500,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, "a box can be had as root, and not by an ordinary user"
