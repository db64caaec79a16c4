"""A project with branches, tags and a stash, and the workspaces of runs in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ralphtool.workspace.git import Repository
from ralphtool.workspace.in_place import InPlace
from ralphtool.workspace.worktree import Worktree

CHANGE = "add-login"


class Project:
    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "U")
        self.git("config", "user.email", "u@example.org")
        for text in ("first", "second"):
            (top / "a.txt").write_text(f"{text}\n")
            self.git("add", "--all")
            self.git("commit", "--quiet", f"--message={text}")
        self.git("branch", "old")
        self.git("tag", "v1")
        self.git("tag", "--annotate", "v2", "--message=v2")
        for text in ("one", "two"):
            (top / "a.txt").write_text(f"{text}\n")
            self.git("stash", "push", "--quiet", f"--message={text}")

    def git(self, *arguments: str) -> str:
        return run(self.top, "git " + " ".join(arguments))

    def state(self) -> list[str]:
        refs = self.git("for-each-ref", "refs/heads/main", "refs/heads/old", "refs/tags", "refs/stash")
        return [refs, self.git("stash", "list"), self.git("config", "--local", "--list")]

    def worktree(self, *told: str) -> Worktree:
        """`told` are parts of what it must say when it opens."""
        found = Repository.find(str(self.top))
        assert found is not None
        tree = Worktree(found, str(self.top), CHANGE)
        said = "\n".join(tree.open("run-1", []))
        assert all(part in said for part in told), said
        tree.begin(None)
        return tree

    def here_closed(self) -> InPlace:
        found = Repository.find(str(self.top))
        assert found is not None
        return InPlace(found, str(self.top), CHANGE)

    def here(self) -> InPlace:
        here = self.here_closed()
        here.open("run-1", [])
        here.begin(None)
        return here


def run(place: Path | str, command: str, **env: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", command], cwd=place, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout
