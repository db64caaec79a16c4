"""What is suggested for a project without gates of its own, whose parts have some."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab

from ralphtool.core import gate_commands


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for name in ("web-app", "api", "docs", "node_modules", ".hidden", "my app"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "go.mod").touch()
    (tmp_path / "web-app/package.json").write_text('{"scripts": {"test": "jest", "lint": "eslint ."}}')
    (tmp_path / "web-app/go.mod").unlink()
    return tmp_path


def test_the_commands_of_the_parts_are_suggested(parts: Path) -> None:
    found = gate_commands.suggest(str(parts))
    assert found.checks == ["cd api && go vet ./...", "cd web-app && npm run lint"]
    assert found.tests == ["cd api && go test ./...", "cd web-app && npm test"]
    assert not gate_commands.infer(str(parts)), "they are not used unasked"


def test_a_project_without_parts_is_told_the_setting(tmp_path: Path) -> None:
    told = "set checks and tests under [verify] in .ralph/config.toml"
    assert gate_commands.explain_missing(str(tmp_path)) == told
    assert gate_commands.explain_missing(str(tmp_path / "missing")) == told


def test_the_settings_that_init_writes_have_them_as_an_example(lab: Lab) -> None:
    lab.write("api/go.mod", "")
    lab.run("init", "--agent", "claude", "--yes")
    assert '# tests = ["cd api && go test ./..."]\n' in lab.read(".ralph/config.toml")
    told = " ".join(lab.run("doctor").stdout.split())
    assert 'to fix: set checks and tests under [verify] in .ralph/config.toml, such as `tests = ["cd api' in told
