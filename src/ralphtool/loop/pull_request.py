"""Pushes a branch for review, and opens a pull request with gh. Nothing else in ralphtool pushes a branch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import layout
from ralphtool.errors import GitError, InvalidValue

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository

_LONGEST_BODY = 60_000  # characters; GitHub allows 65,536
_INSTALL = "install gh (https://cli.github.com), or push the branch yourself: git push -u {remote} {branch}"


class PullRequest(Struct, frozen=True):
    url: str
    remote: str


def open_pull_request(repository: Repository, change: str, title: str, body: str) -> PullRequest:
    """Pushes the branch of a change and opens a pull request for the user's current branch; for an existing pull
    request, the push alone is enough."""
    branch, remote = layout.branch(change), _find_remote(repository)
    base = _find_base(repository, remote)
    if shutil.which("gh") is None:
        raise InvalidValue(f"gh is not installed: {_INSTALL.format(remote=remote, branch=branch)}")
    _check_login(repository.top)
    _push(repository.top, remote, branch)
    with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
        path = os.path.join(folder, "body.md")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(body[:_LONGEST_BODY] or title)
        words = ("pr", "create", "--head", branch, "--base", base, "--title", title, "--body-file", path)
        made = _run_gh(repository.top, *words)
    if made.returncode == 0:
        return PullRequest(made.stdout.strip().split("\n")[-1], remote)
    if known := _find_open(repository.top, branch):
        return PullRequest(known, remote)
    raise GitError(
        f"{branch} is pushed to {remote}, but gh did not open a pull request: {_first_line(made.stderr)}; try again, "
        "or open it by hand"
    )


def _find_remote(repository: Repository) -> str:
    """The remote of the user's branch, else origin, else the first one."""
    known = repository.text("remote").split()
    if not known:
        raise GitError("this repository has no remote: add one with `git remote add origin URL`")
    name = repository.head().removeprefix("refs/heads/")
    own = repository.text("config", "--get", f"branch.{name}.remote", check=False)
    return own if own in known else "origin" if "origin" in known else known[0]


def _find_base(repository: Repository, remote: str) -> str:
    """The target branch: the user's current branch, by its name on the remote."""
    name = repository.head().removeprefix("refs/heads/")
    if not repository.head().startswith("refs/heads/") or name.startswith("ralph/"):
        raise GitError("no branch is checked out: run `git switch BRANCH` first, with the branch to merge into")
    merged = repository.text("config", "--get", f"branch.{name}.merge", check=False)
    return merged.removeprefix("refs/heads/") or name


def _check_login(top: str) -> None:
    if _run_gh(top, "auth", "status").returncode != 0:
        raise InvalidValue("gh is not logged in: run `gh auth login`; nothing was pushed")


def _push(top: str, remote: str, branch: str) -> None:
    command = ["git", "push", "--force-with-lease", "--set-upstream", remote, f"{branch}:{branch}"]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise GitError(f"git could not push {branch} to {remote}: {_last_line(done.stderr)}")


def _find_open(top: str, branch: str) -> str:
    found = _run_gh(top, "pr", "view", branch, "--json", "url,state")
    try:
        told = json.loads(found.stdout)
        return str(told["url"]) if found.returncode == 0 and told["state"] == "OPEN" else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _run_gh(top: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"}
    return subprocess.run(
        ["gh", *arguments], cwd=top, env=env, capture_output=True, text=True, errors="replace", check=False
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "no error message")


def _last_line(text: str) -> str:
    return _first_line("\n".join(reversed(text.split("\n"))))
