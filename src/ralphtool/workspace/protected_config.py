"""Git's settings of a repository, if the user may change them while an agent works: only the agent's are reverted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core import files
from ralphtool.errors import GitError

if TYPE_CHECKING:
    from ralphtool.workspace.agent_trace import TracedGit
    from ralphtool.workspace.git import Repository

_HARMLESS = {("core.hookspath", (".husky",)), ("core.hookspath", (".husky/_",))}  # set by installing a common package

_Settings = dict[str, tuple[str, ...]]


class RevertedConfig(NamedTuple):
    named: list[str]  # the agent's settings
    others: list[str]  # those that may be the user's


def restore_config(repository: Repository, path: str, before: bytes, traced: TracedGit) -> RevertedConfig:
    try:
        old, new = _parse(repository, before), _parse(repository, _read(path))
    except GitError:  # with a broken file no git command works
        _write(path, before)
        return RevertedConfig(["a broken file"], [])
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    own = [key for key in changed if traced.has_set(key)]
    others = [key for key in changed if key not in own]
    if own and not others:
        _write(path, before)
    try:
        for key in own if others else ():
            _set(repository, path, key, old.get(key, ()))
    except GitError:  # a git command of the user's is writing to it
        own, others = [], changed
    # Git adds such settings to a branch by itself, and so do editors.
    told = [key for key in others if not key.startswith("branch.")]
    return RevertedConfig([key for key in own if (key, new.get(key, ())) not in _HARMLESS], told)


def _parse(repository: Repository, data: bytes) -> _Settings:
    listed = os.fsdecode(repository.run("config", "--file", "-", "--list", "-z", input=data))
    found: _Settings = {}
    for item in listed.split("\0")[:-1]:
        key, _, value = item.partition("\n")
        found[key] = (*found.get(key, ()), value)
    return found


def _set(repository: Repository, path: str, key: str, values: tuple[str, ...]) -> None:
    repository.run("config", "--file", path, "--unset-all", key, check=False)
    for value in values:
        repository.run("config", "--file", path, "--add", key, value)


def _read(path: str) -> bytes:
    try:
        return files.read(path)
    except OSError:
        raise GitError(f"{path} can't be read") from None


def _write(path: str, data: bytes) -> None:
    mode = os.stat(path).st_mode & 0o777 if os.path.isfile(path) else 0o644
    files.clear(path)
    files.create(path, data, mode)
