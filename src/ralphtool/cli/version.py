"""The version, with the commit that this copy of ralphtool was made from, where that is known."""

from __future__ import annotations

import os
import subprocess

import ralphtool

_PACKAGE = os.path.dirname(os.path.abspath(ralphtool.__file__))
_SHORT = 7  # digits, as git itself shortens a commit


def describe_version() -> str:
    """`0.1.0 (abc1234)`, or `0.1.0` alone."""
    commit = read_commit(_PACKAGE)
    return f"{ralphtool.__version__} ({commit[:_SHORT]})" if commit else ralphtool.__version__


def read_commit(package: str) -> str:
    """The commit that hatch_build.py put into the wheel, else that of the checkout; empty where there is neither."""
    try:
        with open(os.path.join(package, "commit.txt"), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return _ask_git(os.path.dirname(os.path.dirname(package)))


def _ask_git(checkout: str) -> str:
    # Without this look, git would answer for any repository that an installation happens to lie in.
    if not all(os.path.exists(os.path.join(checkout, name)) for name in (".git", "bin/ralphtool", "hatch_build.py")):
        return ""
    command = ["git", "-C", checkout, "rev-parse", "--verify", "--quiet", "HEAD"]
    # GIT_DIR and its like, as hooks set them, would name another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL, env=env)
    except OSError:
        return ""
    return done.stdout.decode("ascii", "replace").strip() if not done.returncode else ""
