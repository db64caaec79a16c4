"""What a file is to the tests, by its name and folder alone."""

from __future__ import annotations

from ralphtool.judging.guard.test_files import is_test

_CONFIG = frozenset(
    ("pytest.ini", "pytest.toml", "pyproject.toml", "setup.cfg", "tox.ini", "noxfile.py", "package.json", "Makefile")
    + ("makefile", "GNUmakefile", "justfile", "Taskfile.yml", ".coveragerc", "Cargo.toml", "go.mod", ".mocharc.json")
)
_SHADOW = ("pytest", "unittest", "_pytest", "sitecustomize.py", "usercustomize.py", "pytest.py", "unittest.py")


def find_role(path: str) -> str:
    parts = path.split("/")
    name = parts[-1]
    if name == "conftest.py":
        return "helper"
    if parts[0] in _SHADOW or name in _SHADOW or name.endswith(".pth") or path.endswith(".cargo/config.toml"):
        return "shadow"
    if "__snapshots__" in parts or name.endswith((".snap", ".ambr")):
        return "snapshot"
    if name in _CONFIG or name.startswith(("jest.config", "vitest.config", "vite.config", ".mocharc")):
        return "config"
    if is_test(path):
        return "test"
    if any(part in ("tests", "test", "__tests__", "testdata", "fixtures", "__mocks__", "spec") for part in parts[:-1]):
        return "fixture"
    return "docs" if name.endswith((".md", ".rst", ".txt")) else "source"
