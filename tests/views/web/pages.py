"""The real server and a real browser, for the tests of the web page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patience import PATIENCE
from playwright.sync_api import Browser, BrowserContext, Page
from project import REPOSITORY

AXE = REPOSITORY / ".tools/axe/node_modules/axe-core/axe.min.js"
MILLISECONDS = PATIENCE * 1000
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


class Server:
    """`ralphtool web`, until it is closed or killed."""

    def __init__(self, roots: Sequence[Path], env: Mapping[str, str], *options: str) -> None:
        command = [sys.executable, "-P", "-m", "ralphtool", "web", *map(str, roots), "--json", *options]
        self.process = subprocess.Popen(
            command, cwd=roots[0], env={**env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout
        self.told: dict[str, Any] = json.loads(self.process.stdout.readline())

    @property
    def address(self) -> str:
        return str(self.told["address"])

    @property
    def port(self) -> int:
        return int(self.address.partition("/#")[0].rpartition(":")[2])

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


class Tab:
    """A page in its own browser context, with its complaints."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(MILLISECONDS)
        self.complaints: list[str] = []
        self.page = self._open(address)

    def _open(self, address: str) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.goto(address)
        return page

    def open_another(self, address: str) -> Page:
        return self._open(address)

    def read_log(self) -> list[str]:
        """The text of all rows of the log."""
        rows: list[str] = self.page.eval_on_selector_all("#log .e", "rows => rows.map(row => row.textContent)")
        return rows

    def close(self) -> None:
        self.context.close()
