"""Why a gate can't run, if that is recognizable, and the command that installs what is missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

# How a program is usually installed in its language.
_PROGRAMS = {
    "uv": "pip install uv",
    "uvx": "pip install uv",
    "poetry": "pipx install poetry",
    "pdm": "pipx install pdm",
    "pipenv": "pipx install pipenv",
    "tox": "pipx install tox",
    "ruff": "pip install ruff",
    "mypy": "pip install mypy",
    "pytest": "pip install pytest",
    "flake8": "pip install flake8",
    "pyright": "pip install pyright",
    "pnpm": "npm install -g pnpm",
    "yarn": "npm install -g yarn",
    "bun": "npm install -g bun",
    "bundle": "gem install bundler",
} | {
    **dict.fromkeys(("node", "npm", "npx"), "install Node.js (nodejs.org)"),
    **dict.fromkeys(("cargo", "rustc"), "install Rust (rustup.rs)"),
    **dict.fromkeys(("python", "python3"), "install Python (python.org)"),
    "composer": "install Composer (getcomposer.org)",
    "php": "install PHP (php.net)",
    "ruby": "install Ruby (ruby-lang.org)",
    "go": "install Go (go.dev/dl)",
    "make": "install make (apt install make, xcode-select --install)",
    "mvn": "install Maven (maven.apache.org)",
    "gradle": "install Gradle (gradle.org)",
    "mix": "install Elixir (elixir-lang.org)",
    "dotnet": "install .NET (dot.net)",
    "swift": "install Swift (swift.org)",
}
_NODE = ("npm", "npx", "pnpm", "yarn", "bun", "node")
_PACKAGES = {
    "uv": "uv sync",
    "poetry": "poetry install",
    "pdm": "pdm install",
    "pipenv": "pipenv install --dev",
    "pnpm": "pnpm install",
    "yarn": "yarn install",
    "bun": "bun install",
    "go": "go mod download",
    "cargo": "cargo fetch",
    "mix": "mix deps.get",
    "bundle": "bundle install",
    "composer": "composer install",
}
# The messages of shells, make and uv about a missing program. The group is the program.
_NOT_FOUND = (
    re.compile(r"^\S*sh: (?:line )?(?:\d+: )?(\S+?): (?:command )?not found$", re.MULTILINE),
    re.compile(r"^(?:zsh|fish): (?:command not found|Unknown command): (\S+)$", re.MULTILINE),
    re.compile(r"^make(?:\[\d+\])?: (\S+): No such file or directory$", re.MULTILINE),
    re.compile(r"Failed to spawn: `([^`]+)`"),
    re.compile(r"^(?:/usr/bin/)?env: \W?([^\s'\"]+?)\W?: No such file or directory$", re.MULTILINE),
)
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_NO_NODE_MODULE = re.compile(r"Cannot find (?:module|package) '([^'./][^']*)'")


class GateCause(NamedTuple):
    text: str
    fix: str


def describe_install(program: str) -> str:
    """How to install a program."""
    if program.startswith("vendor/bin/"):
        return _PACKAGES["composer"]
    return _PROGRAMS.get(program, f"install {program}")


def find_cause(command: str, exit_code: int | None, output: str, names: Collection[str]) -> GateCause | None:
    """Why a gate is red, if something is not installed. `names` are the files in the project's root."""
    tool = _find_tool(command, names)
    if exit_code == 126:
        return GateCause("its program is not executable", "chmod +x that file")
    if tool in _NODE and "package.json" in names and "node_modules" not in names:
        return GateCause("its packages are not installed: there is no node_modules", _install_packages(tool, names))
    if missing := next((found[1] for mark in _NOT_FOUND if (found := mark.search(output))), ""):
        return GateCause(f"{missing} is not installed", _install_missing(missing, tool, names))
    if found := _NO_MODULE.search(output):
        return GateCause(
            f"the Python module {found[1]} is not installed", _install_module(found[1], tool, command, names)
        )
    if found := _NO_NODE_MODULE.search(output):
        return GateCause(f"the package {found[1]} is not installed", _install_packages(tool, names))
    if "missing go.sum entry" in output or "no required module provides package" in output:
        return GateCause("go.mod and go.sum don't have what the code imports", "go mod tidy")
    if exit_code == 127:
        return GateCause("a program in it is not installed", _install_packages(tool, names))
    return None


def _find_tool(command: str, names: Collection[str]) -> str:
    """The project's package manager: from the command, otherwise from the project's files (for `make test`)."""
    words = [word for word in command.split() if "=" not in word]
    first = words[0].rpartition("/")[2] if words else ""
    if first in _PACKAGES or first in _NODE or first.startswith("python"):
        return first
    locks = (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"))
    marks = (*locks, ("package.json", "npm"), ("pyproject.toml", "python"), ("requirements.txt", "python"))
    return next((tool for mark, tool in marks if mark in names), first)


def _install_packages(tool: str, names: Collection[str]) -> str:
    if tool in _PACKAGES:
        return _PACKAGES[tool]
    if tool in _NODE:
        return "npm ci" if "package-lock.json" in names else "npm install"
    needs = next(
        (name for name in ("requirements-dev.txt", "dev-requirements.txt", "requirements.txt") if name in names), ""
    )
    if needs:
        return f"python -m pip install -r {needs}"
    if {"pyproject.toml", "setup.py", "setup.cfg"} & set(names):
        return "python -m pip install -e ."
    return describe_install(tool) if tool else "install it"


def _install_missing(program: str, tool: str, names: Collection[str]) -> str:
    """Known programs have their own install command; all others come with the project's packages."""
    if tool == "uv" and program in _PROGRAMS:
        return f"uv add --dev {program}"
    return describe_install(program) if program in _PROGRAMS or not tool else _install_packages(tool, names)


def _install_module(module: str, tool: str, command: str, names: Collection[str]) -> str:
    if module in ("pytest", "tox", "mypy", "ruff"):
        adds = {"uv": f"uv add --dev {module}", "poetry": f"poetry add --group dev {module}"}
        python = command.split()[0] if "python" in command.split()[0] else "python"
        return adds.get(tool, f"{python} -m pip install {module}")
    return _install_packages(tool, names)
