"""The environments that the `setup` commands prepare: packages and programs in folders of the project."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralphtool.workspace.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVIRONMENTS = frozenset((".venv", "venv", "env", "node_modules", "vendor", ".bundle"))
# What package managers write into an environment: a folder of sources may have any of these names, too.
_WRITTEN = re.compile(
    r"(?P<python>.+)/pyvenv\.cfg"
    r"|(?P<node>(?:.*?/)?node_modules)/\.(?:package-lock\.json|modules\.yaml|yarn-integrity|yarn-state\.yml|bin/.*)"
    r"|(?P<php>(?:.*/)?vendor)/composer/installed\.json"
)


class NeverSetUp:
    """Part of a workspace that is the user's own folder, and has the user's environment."""

    lost_environments: Sequence[str] = ()

    def needs_setup(self, commands: Sequence[str]) -> bool:
        return False

    def has_other_packages(self) -> bool:
        return False

    def skip_packages(self) -> None:
        pass

    def mark_set_up(self, commands: Sequence[str]) -> None:
        pass


def find_environments(project: str, paths: Sequence[str]) -> tuple[str, ...]:
    """The environments that have these files. Their paths are relative to the project's folder in the repository."""
    folders = [path.split("/")[:-1] for path in paths]
    known = {"/".join(one[: at + 1]) for one in folders for at, name in enumerate(one) if name in ENVIRONMENTS}
    known |= {os.path.dirname(path) for path in paths if path.endswith("/pyvenv.cfg")}
    outermost = (one for one in known if not Paths(known - {one}).cover(one))
    return tuple(sorted(one.removeprefix(project) for one in outermost))


def find_installed(paths: Sequence[str]) -> dict[str, list[str]]:
    """The environments that a package manager has filled, with their files among these."""
    found = {str(match[match.lastgroup]) for match in map(_WRITTEN.fullmatch, paths) if match and match.lastgroup}
    outermost = [one for one in sorted(found) if not Paths(found - {one}).cover(one)]
    return {one: [path for path in paths if path.startswith(f"{one}/")] for one in outermost}
