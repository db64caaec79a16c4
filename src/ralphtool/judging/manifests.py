"""The files that declare which packages a project needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = frozenset(
    (
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"),
        *("pnpm-workspace.yaml", "bun.lock", "bun.lockb"),
        *("pyproject.toml", "setup.py", "setup.cfg", "uv.lock", "poetry.lock", "pdm.lock", "pylock.toml"),
        *("Pipfile", "Pipfile.lock", "environment.yml", "environment.yaml"),
        *("Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "mix.exs", "mix.lock"),
        *("go.mod", "go.sum", "Cargo.toml", "Cargo.lock"),
    )
)
_REQUIREMENTS = re.compile(r"[\w.-]*requirements[\w.-]*\.(?:txt|in)")


def has_manifest(paths: Iterable[str]) -> bool:
    """Whether one of the files declares the dependencies of a project."""
    names = (path.rpartition("/")[2] for path in paths)
    return any(name in _NAMES or _REQUIREMENTS.fullmatch(name) for name in names)
