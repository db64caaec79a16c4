"""A real terminal with a shell in it, which tests type into and read."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from patience import PATIENCE
from project import TESTS

# Without variables that change Python's output or the width of the terminal.
BASE = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TMUX")}
BASE |= {"PYTHONUNBUFFERED": "", "PYTHONIOENCODING": "utf-8"}


class Terminal:
    """A real terminal with a shell in it."""

    def __init__(self, top: Path, columns: int, lines: int) -> None:
        self._socket = str(top / "tmux")
        self._env = {**BASE, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(TESTS)}
        self("-f", "/dev/null", "-u", "new-session", "-d", "-x", str(columns), "-y", str(lines), "sh")

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(
            command, env=self._env, check=True, capture_output=True, text=True, timeout=PATIENCE
        ).stdout

    def type(self, text: str) -> None:
        self("send-keys", "-l", text)
        self("send-keys", "Enter")

    def screen(self, *wanted: str) -> str:
        """The screen as text, once all these texts are on it."""
        seen = ""
        for _ in range(2400):
            seen = self("capture-pane", "-p")
            if all(one in seen for one in wanted):
                return seen
            time.sleep(0.05)
        raise AssertionError(f"{wanted} was not seen in\n{seen}")
