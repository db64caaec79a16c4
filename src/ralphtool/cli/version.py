"""The version, with the commit that this copy of ralphtool was built from, if it is known."""

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
    """The commit that hatch_build.py put into the wheel, else that of the checkout; empty if there is neither."""
    try:
        with open(os.path.join(package, "commit.txt"), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return _ask_git(os.path.dirname(os.path.dirname(package)))


def _ask_git(checkout: str) -> str:
    # Without this check, git would answer for any repository that contains the installation.
    if not all(os.path.exists(os.path.join(checkout, name)) for name in (".git", "bin/ralphtool", "hatch_build.py")):
        return ""
    command = ["git", "-C", checkout, "rev-parse", "--verify", "--quiet", "HEAD"]
    # GIT_DIR and similar variables, which hooks set, would name another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL, env=env)
    except OSError:
        return ""
    return done.stdout.decode("ascii", "replace").strip() if not done.returncode else ""
