"""The user's name for git in a box, whose home has no `.gitconfig`: tests that commit would fail without it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.executors.process import Confine
    from ralphtool.workspace.git import Repository

_FILE = "gitconfig"
_SYSTEM = "/etc/gitconfig"


def add_identity(confine: Confine, repository: Repository, folder: str) -> Confine:
    """Like `confine`, with the user's name and address for git if nothing else sets them.

    They are set as system configuration, which every other overrides: tests may set their own names. The box shows
    `folder` read-only.
    """
    path = os.path.join(folder, _FILE)
    if not os.path.exists(path):  # otherwise the run's first box has written it
        files.replace(path, _build_config(repository).encode("utf-8", "surrogateescape"))
    if not os.path.getsize(path):
        return confine

    def start(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], writable: Sequence[str], purpose: str = "agent"
    ) -> tuple[list[str], str, dict[str, str]]:
        words, place, inside = confine(argv, cwd, {"GIT_CONFIG_SYSTEM": path, **env}, writable, purpose)
        return list(words), place, dict(inside)

    return start


def _build_config(repository: Repository) -> str:
    known = {name: repository.text("config", "--get", f"user.{name}", check=False) for name in ("name", "email")}
    lines = [f"\t{name} = {_quote(value)}\n" for name, value in known.items() if value]
    if not lines:
        return ""
    include = f"[include]\n\tpath = {_SYSTEM}\n" if os.path.exists(_SYSTEM) else ""
    return "".join([include, "[user]\n", *lines])


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
