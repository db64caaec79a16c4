"""Why a gate is red, if that can be detected, and the command that fixes it."""

from __future__ import annotations

import pytest

from ralphtool.cli.gate_causes import find_cause

NPM = {"package.json", "package-lock.json", "node_modules"}
CASES: dict[str, tuple[str, int, str, set[str], str, str]] = {
    "no packages": ("npm test", 127, "sh: 1: jest: not found", {"package.json"}, "node_modules", "npm install"),
    "no packages, a lock": ("npm test", 1, "?", NPM - {"node_modules"}, "node_modules", "npm ci"),
    "no packages of pnpm": ("pnpm test", 1, "?", {"package.json", "pnpm-lock.yaml"}, "node_modules", "pnpm install"),
    "dash": ("npm test", 127, "sh: 1: jest: not found", NPM, "jest is not installed", "npm ci"),
    "bash": (
        "make test",
        2,
        "/bin/bash: line 1: pytest: command not found",
        {"uv.lock"},
        "pytest",
        "uv add --dev pytest",
    ),
    "make": ("make test", 2, "make: go: No such file or directory", set(), "go is", "install Go (go.dev/dl)"),
    "make and packages": ("make test", 2, "make: jest: No such file or directory", NPM, "jest is", "npm ci"),
    "uv": ("uv run pytest", 2, "error: Failed to spawn: `pytest`", {"uv.lock"}, "pytest", "uv add --dev pytest"),
    "a module of uv": (
        "uv run pytest",
        1,
        "E   ModuleNotFoundError: No module named 'flask'",
        set(),
        "flask",
        "uv sync",
    ),
    "no pytest": (
        *("python3 -m pytest", 1, "/usr/bin/python3: No module named pytest", {"requirements.txt"}),
        *("the Python module pytest is not installed", "python3 -m pip install pytest"),
    ),
    "a module": (
        *("python -m unittest", 1, "ModuleNotFoundError: No module named 'flask'", {"requirements.txt"}),
        *("flask", "python -m pip install -r requirements.txt"),
    ),
    "a module of a package": (
        *("python -m pytest", 2, "ModuleNotFoundError: No module named 'shop'", {"pyproject.toml"}),
        *("shop", "python -m pip install -e ."),
    ),
    "a package of node": ("npm test", 1, "Error: Cannot find module 'chalk'", NPM, "chalk", "npm ci"),
    "go": ("go test ./...", 1, "a.go:3: missing go.sum entry for module", {"go.mod"}, "go.sum", "go mod tidy"),
    "not executable": ("./check", 126, "sh: 1: ./check: Permission denied", set(), "executable", "chmod +x"),
    "something": ("poetry run x", 127, "", {"poetry.lock"}, "a program in it", "poetry install"),
}
UNKNOWN: tuple[tuple[str, int, str, set[str]], ...] = (
    ("npm test", 1, "Error: Cannot find module './shop'", NPM),
    ("python -m pytest", 1, "1 failed, 3 passed", {"pyproject.toml"}),
    ("make test", 2, "make: *** [test] Error 1", set()),
)


@pytest.mark.parametrize(("command", "code", "output", "names", "text", "fix"), CASES.values(), ids=CASES.keys())
def test_a_cause_that_is_known(command: str, code: int, output: str, names: set[str], text: str, fix: str) -> None:
    found = find_cause(command, code, f"some words\n{output}\nmore words", names)
    assert found is not None
    assert text in found.text
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(("command", "code", "output", "names"), UNKNOWN)
def test_what_is_not_known_is_not_guessed(command: str, code: int, output: str, names: set[str]) -> None:
    assert find_cause(command, code, output, names) is None
