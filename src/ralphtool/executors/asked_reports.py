"""Asks test programs for machine-readable results through their environment, and collects their reports.

The command of a gate stays as the user wrote it. The added variables also reach programs that are not test programs,
and must have no effect there:

- pytest writes a JUnit report: `PYTEST_ADDOPTS`. Its family `xunit1` names files, so that ids equal pytest's node ids.
- go names passing tests: `GOFLAGS=-test.v`. Only `go test` knows that flag, and others ignore it; `-v` would make
  `go build` and `go vet` print what they compile.
- node writes a JUnit report besides its output: `NODE_OPTIONS`, if the command runs `node --test` without another
  reporter, and only if that version of node accepts it: a flag that it refuses ends every node program, even npm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from ralphtool.core import files, layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

_MOST_BYTES = 64 << 20  # of one report
_MOST_REPORTS = 100
_CONFIGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_JUNIT = re.compile(r"junit-?xml")
_NODE_TEST = re.compile(r"\bnode\b[^;&|\n]* --test(?![\w-])")
_PACKAGE_RUNNER = re.compile(r"\b(?:npm|pnpm|yarn)\b")
_WORD = re.compile(r"[\w:.-]+")
# What programs print when they refuse the additions: then the command must run without them.
_REFUSALS = (
    b"unrecognized arguments: --junitxml=",
    b"is not allowed in NODE_OPTIONS",
    b"must match the number of specified '--test-reporter-destination'",
    b"parsing $GOFLAGS",
)
_PROBE = (
    "const flags = process.allowedNodeEnvironmentFlags;"
    "flags.has('--test-reporter') && flags.has('--test-reporter-destination')"
    " && require('node:test/reporters').junit ? process.versions.node : ''"
)


def is_refusal(output: bytes) -> bool:
    """Returns whether a program refused to run because of the added variables."""
    return any(words in output for words in _REFUSALS)


class AskedReports:
    """A fresh folder for the reports of one command, and the environment that asks for them."""

    def __init__(self, command: str, root: str, env: Mapping[str, str]) -> None:
        self._command, self._root, self._given = command, root, env
        self._folder = ""
        self._collected: list[str] = []

    def __enter__(self) -> AskedReports:
        with suppress(OSError):  # without a folder for reports, the output is read
            self._folder = tempfile.mkdtemp(prefix=layout.TEST_REPORTS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folders(self) -> tuple[str, ...]:
        """Where programs write their reports."""
        return (self._folder,) if self._folder else ()

    # --- asking ---------------------------------------------------------------------------------

    def build_environment(self) -> dict[str, str]:
        """Returns the given environment with the requests appended to its values."""
        added = {"GOFLAGS": self._ask_go()}
        if self._folder:
            added |= {"PYTEST_ADDOPTS": self._ask_pytest(), "NODE_OPTIONS": self._ask_node()}
        return {**self._given, **{name: value for name, value in added.items() if value}}

    def _ask_pytest(self) -> str:
        given = self._given.get("PYTEST_ADDOPTS", "")
        if _JUNIT.search(f"{self._command} {given}") or any(_JUNIT.search(text) for text in self._read_configs()):
            return given  # it has its own report, or wants none
        # tox and nox run pytest more than once, and pytest expands variables; an unknown one stays as it is.
        path = os.path.join(self._folder, "pytest-$TOX_ENV_NAME-$NOX_CURRENT_SESSION-$PYTEST_XDIST_WORKER.xml")
        return f'{given} "--junitxml={path}" -o junit_family=xunit1'.strip()

    def _read_configs(self) -> Iterator[str]:
        for name in _CONFIGS:
            yield _read_text(os.path.join(self._root, name))

    def _ask_go(self) -> str:
        given = self._given.get("GOFLAGS") or _find_saved_goflags(self._given)
        has_results = any(word in given.split() for word in ("-v", "-json", "-test.v"))
        return given if has_results else f"{given} -test.v".strip()

    def _ask_node(self) -> str:
        given = self._given.get("NODE_OPTIONS", "")
        script = "\n".join([self._command, *self._find_package_scripts()])
        if not _NODE_TEST.search(script) or "--test-reporter" in f"{script} {given}":
            return given
        version = _probe_node(self._given.get("PATH", ""), self._root)
        if not version:
            return given
        usual = "spec" if int(version.partition(".")[0]) >= 23 else "tap"
        path = os.path.join(self._folder, "node.xml")
        wanted = [("--test-reporter", usual), ("--test-reporter-destination", "stdout")]
        wanted += [("--test-reporter", "junit"), ("--test-reporter-destination", f'"{path}"')]
        return " ".join([given, *(f"{option}={value}" for option, value in wanted)]).strip()

    def _find_package_scripts(self) -> list[str]:
        """Returns the scripts of package.json that the command runs, and those that they run."""
        try:
            scripts = msgspec.json.decode(_read_text(os.path.join(self._root, "package.json"))).get("scripts")
        except (msgspec.DecodeError, AttributeError):
            return []
        wanted, found = [self._command], dict[str, str]()
        while wanted and isinstance(scripts, dict):
            script = wanted.pop()
            for word in _WORD.findall(script) if _PACKAGE_RUNNER.search(script) else ():
                name = "test" if word == "t" else word
                if name not in found and isinstance(scripts.get(name), str):
                    found[name] = scripts[name]
                    wanted.append(scripts[name])
        return list(found.values())

    # --- collecting -----------------------------------------------------------------------------

    def collect(self) -> None:
        """Moves reports that are complete aside, so that the next process does not overwrite them."""
        for path in self._list_files():
            if len(self._collected) < _MOST_REPORTS and _is_complete(path):
                aside = os.path.join(self._folder, f"{len(self._collected)}.collected")
                with suppress(OSError):
                    os.rename(path, aside)
                    self._collected.append(aside)

    def read(self) -> list[bytes]:
        """Returns the reports in the order in which they were collected. The caller must handle broken ones."""
        self.collect()
        return [data for path in self._collected if (data := read_report(path))]

    def _list_files(self) -> list[str]:
        """Returns the reports; they may be in subfolders, since the name of a session may contain a slash."""
        if not self._folder:
            return []
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self._folder) for name in names]
        return sorted(path for path in found if path.endswith(".xml"))


def _read_text(path: str) -> str:
    try:
        with open(files.open_plain(path), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def read_report(path: str) -> bytes:
    """Returns a report; empty if there is none, or if it is too long."""
    try:
        with open(files.open_plain(path), "rb") as file:
            return file.read() if os.fstat(file.fileno()).st_size <= _MOST_BYTES else b""
    except OSError:
        return b""


def _is_complete(path: str) -> bool:
    try:
        with open(files.open_plain(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 100))
            return file.read().rstrip().endswith((b"</testsuites>", b"</testsuite>"))
    except OSError:
        return False


def _find_saved_goflags(env: Mapping[str, str]) -> str:
    """Returns the value that `go env -w GOFLAGS=…` saved: a variable in the environment would override it."""
    config = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", ""), ".config")
    places = [env.get("GOENV") or os.path.join(config, "go", "env")]
    places.append(os.path.join(env.get("HOME", ""), "Library", "Application Support", "go", "env"))
    for line in "\n".join(map(_read_text, places)).splitlines():
        if line.startswith("GOFLAGS="):
            return line.partition("=")[2]
    return ""


@cache
def _probe_node(search_path: str, root: str) -> str:
    """Returns the version of node that a command would run; empty if it can't write a report."""
    node = shutil.which("node", path=search_path)
    if not node:
        return ""
    try:
        done = subprocess.run([node, "-p", _PROBE], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = done.stdout.strip()
    return found if done.returncode == 0 and found.partition(".")[0].isdecimal() else ""
