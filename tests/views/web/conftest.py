"""A browser for each worker, and servers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from views.browser import CHROMIUM
from views.web.pages import MILLISECONDS, QUIET, Server, Tab


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium: scripts/test installs it")
    expect.set_options(timeout=MILLISECONDS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET), timeout=MILLISECONDS)
        yield started
        started.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts the server of a project: `serve(lab, "--read-only")`."""
    started: list[Server] = []

    def start(project: Any, *options: str, roots: tuple[Path, ...] = ()) -> Server:
        started.append(Server(roots or (project.root,), project.env, *options))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens an address in a browser without cookies; at the end there must be no complaints."""
    opened: list[Tab] = []

    def start(address: str, **options: Any) -> Tab:
        opened.append(Tab(browser, address, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
