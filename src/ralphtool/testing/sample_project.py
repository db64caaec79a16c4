"""A small project for runs, with a change, a scripted agent, and gates that need only Python."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ralphtool.core import layout
from ralphtool.testing.adapters import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

CHANGE = "add-counting"  # in files and scripts; each project has its own name for it
_FILES = {
    ".gitignore": "__pycache__/\n/installed\n",
    "shop.py": "def total(prices):\n    return sum(prices)\n",
    "test_shop.py": "import unittest\n\nimport shop\n\n\nclass TestShop(unittest.TestCase):\n"
    "    def test_total(self):\n        self.assertEqual(shop.total([1, 2]), 3)\n",
}
_GATE = "python3 -B -m unittest -v"  # no compiled files: they would hide an edit of the same size and second
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_TICK = 0.05  # seconds between two checks of a run
_MOST_OUTPUT = 4000  # characters that are shown if a promise is broken

Step = dict[str, Any]
Tables = dict[str, dict[str, Any]]


class SampleProject:
    """Everything is in `folder`. `command` starts ralphtool, `settings` are tables of its configuration.

    The name of its change includes the folder's, so that files of one project's change are not mistaken for another's.
    """

    def __init__(
        self,
        folder: str,
        command: Sequence[str],
        settings: Mapping[str, Any],
        env: Mapping[str, str],
        patience: float,
    ) -> None:
        self.root = os.path.join(folder, "project")
        self._change = f"{CHANGE}-{os.path.basename(folder)}"
        self._printed = os.path.join(folder, "printed")
        self._script = os.path.join(folder, "script.json")
        self._env = {**os.environ, **env}
        self._command = command
        self._settings = settings
        self._patience = patience
        os.makedirs(self.root)

    # --- before a run -----------------------------------------------------------------------------

    def make(self, files: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        """A repository whose first commit has these files, and those that all samples have."""
        for path, text in {**_FILES, **files}.items():
            self._write(path.replace(CHANGE, self._change), text.replace(CHANGE, self._change))
        self.git("init", "--quiet", "--initial-branch=main")
        for name, value in (("name", "Sample"), ("email", "sample@example.org")):
            self.git("config", f"user.{name}", value)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=first")
        own: Tables = {
            "run": {"agent": "scripted", "attempts": 3},
            "agents.scripted": {"args": [self._script]},
            "verify": {"tests": [_GATE]},
        }
        self._write(".ralph/config.toml", _spell(_join(own, settings, self._settings)))

    def _write(self, path: str, text: str) -> None:
        file = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)

    def play(self, turns: Iterable[Step]) -> None:
        """Sets what the agent does from now on."""
        with open(self._script, "w", encoding="utf-8") as file:
            file.write(json.dumps({"turn": list(turns)}).replace(CHANGE, self._change))

    # --- runs -------------------------------------------------------------------------------------

    def run(self) -> int:
        """One complete run; returns the exit code."""
        return self.run_until(lambda: False)

    def run_until(self, holds: Callable[[], bool]) -> int:
        """One run that is stopped by Ctrl-C once a condition holds."""
        latest = time.monotonic() + self._patience
        with open(self._printed, "ab") as file:
            run = self._start(file.fileno())
        while run.poll() is None and time.monotonic() < latest and not holds():
            time.sleep(_TICK)
        if run.poll() is None:
            run.send_signal(signal.SIGINT if holds() else signal.SIGTERM)
        try:
            run.wait(self._patience)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        if time.monotonic() > latest:
            raise ContractBroken(f"the run did not end within {self._patience:.0f} seconds")
        return run.returncode

    def _start(self, printed: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, "run", "--json", self._change],
            cwd=self.root,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )

    # --- after a run ------------------------------------------------------------------------------

    def read_last_output(self) -> str:
        """The end of what its runs have printed, so that a broken promise can be explained."""
        with suppress(FileNotFoundError), open(self._printed, encoding="utf-8", errors="replace") as file:
            return file.read()[-_MOST_OUTPUT:]
        return ""

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, env=self._env, capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace").rstrip("\n")

    def list_stories(self) -> list[str]:
        """The stories with a commit on the branch."""
        if not self.git("branch", "--list", layout.BRANCH + self._change):
            return []
        form = "--format=%(trailers:key=Ralph-Story,valueonly,separator=)"
        return sorted(line for line in self.git("log", form, layout.BRANCH + self._change).splitlines() if line)

    def read_branch(self) -> dict[str, str]:
        """Every file of the branch, without times."""
        branch = layout.BRANCH + self._change if self.git("branch", "--list", layout.BRANCH + self._change) else "main"
        paths = self.git("ls-tree", "-r", "--name-only", branch).splitlines()
        return {path: _MOMENT.sub("then", self.git("show", f"{branch}:{path}")) for path in paths}

    def read_events(self) -> list[dict[str, Any]]:
        """The events of all runs, the oldest first; without an incomplete last line."""
        runs = layout.runs(self.root)
        names = sorted(
            os.listdir(runs) if os.path.isdir(runs) else (),
            key=lambda name: _read_first_moment(os.path.join(runs, name)),
        )
        return [event for name in names for event in _read_events(os.path.join(runs, name, "events.jsonl"))]

    def read_history(self, kind: str) -> list[dict[str, Any]]:
        """The entries, or the learnings, of progress.json."""
        path = layout.history(self.root)
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return list(json.load(file)[kind])

    def read_log(self, path: str) -> str:
        """The output of a program, on both streams."""
        paths = [os.path.join(self.root, f"{path}{end}") for end in ("", ".err")]
        found = self.read_records()
        return b"".join(found.get(one, b"") for one in paths).decode("utf-8", "replace")

    def read_printed(self) -> bytes:
        """The output of all runs."""
        with open(self._printed, "rb") as file:
            return file.read()

    def read_records(self) -> dict[str, bytes]:
        """All of ralphtool's files, by path."""
        found = {}
        for folder, _, names in os.walk(layout.folder(self.root)):
            for path in (os.path.join(folder, name) for name in names):
                with open(path, "rb") as file:
                    found[path] = file.read()
        return found


def _read_events(path: str) -> list[dict[str, Any]]:
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        whole = file.read().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _read_first_moment(folder: str) -> str:
    return next((str(one["at"]) for one in _read_events(os.path.join(folder, "events.jsonl"))), "")


def _join(*parts: Mapping[str, Any]) -> Tables:
    """Merges tables; later ones take precedence."""
    joined: Tables = {}
    for part in parts:
        for name, table in part.items():
            joined[name] = {**joined.get(name, {}), **table}
    return joined


def _spell(tables: Tables) -> str:
    """As TOML: strings, numbers and lists of them are written as in JSON."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
