"""The commands that install a project's packages, as `init` and notices suggest them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphtool.core import setup_inference


@pytest.mark.parametrize(
    ("names", "commands"),
    [
        ([], []),
        (["package.json"], ["npm install"]),
        (["package.json", "package-lock.json"], ["npm ci"]),
        (["package.json", "pnpm-lock.yaml", "package-lock.json"], ["pnpm install --frozen-lockfile"]),
        (["pyproject.toml", "uv.lock", "package.json"], ["npm install", "uv sync"]),
        (["requirements.txt"], ["python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"]),
        (["Gemfile", "composer.json"], ["bundle install", "composer install"]),
        (["go.mod", "Cargo.toml"], []),
    ],
)
def test_lock_files_tell_the_commands(tmp_path: Path, names: list[str], commands: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert setup_inference.infer(str(tmp_path)) == commands
    quoted = ", ".join(f'"{one}"' for one in commands)
    assert setup_inference.render(str(tmp_path)) == (f"setup = [{quoted}]" if quoted else 'setup = ["make install"]')
