"""Puts the commit that is built into wheels and source distributions, for `ralphtool --version`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IN_SOURCE = "src/ralphtool/commit.txt"
_IN_PACKAGE = "ralphtool/commit.txt"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Nothing is written into the checkout: there, git knows better than a file that stays behind."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable installation asks git; a source distribution has the file already.
        if version == "editable" or os.path.exists(os.path.join(self.root, _IN_SOURCE)):
            return
        commit = read_head(self.root)
        if commit:
            self._folder = tempfile.TemporaryDirectory()
            path = os.path.join(self._folder.name, "commit.txt")
            with open(path, "w", encoding="ascii") as file:
                file.write(f"{commit}\n")
            build_data["force_include"][path] = _IN_SOURCE if self.target_name == "sdist" else _IN_PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def read_head(root: str) -> str:
    """The commit of the checkout; empty without git, and where `root` only lies somewhere in another repository."""
    if not os.path.exists(os.path.join(root, ".git")):
        return ""
    command = ["git", "-C", root, "rev-parse", "--verify", "--quiet", "HEAD"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env)
    except OSError:
        return ""
    return done.stdout.strip() if not done.returncode else ""
