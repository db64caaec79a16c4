"""The report's page in a real browser: Debian's chromium, driven through a pipe. `scripts/test` installs it."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from project import COMMAND
from views.browser import CHROMIUM
from views.night import HOSTILE, a_night

PHONE, DESK = 360, 1200
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)

# Chromium reads from descriptor 3 and writes to 4, whatever the numbers of our ends are.
PLUG = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: scripts/test installs it")


class Browser:
    """One tab. Commands and events are JSON, each followed by a NUL, over two pipes."""

    def __init__(self, folder: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        profile = f"--user-data-dir={folder / 'profile'}"
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PLUG,
                str(theirs_in),
                str(theirs_out),
                str(CHROMIUM),
                *QUIET,
                profile,
                "about:blank",
            ],
            env={**os.environ, "HOME": str(folder)},
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        said = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            said["sessionId"] = self._session
        os.write(self._out, json.dumps(said).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            self.events.append(told)
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            block = os.read(self._in, 1 << 20) if ready else b""
            assert block, "the browser has ended, or says nothing any more"
            self._rest += block
        one, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(one)
        return told

    def open(self, path: Path, *, width: int = DESK, scheme: str = "light") -> None:
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width == PHONE
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self) -> bytes:
        """The whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def told(self, *methods: str) -> list[Any]:
        return [one["params"] for one in self.events if one.get("method") in methods]

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGKILL)  # the group that was created for it
        self._process.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a night with hostile texts from an agent."""
    root = tmp_path_factory.mktemp("night")
    a_night().write(root)
    path = root / "report.html"
    subprocess.run([COMMAND, "report", "--output", str(path)], cwd=root, check=True, capture_output=True)
    return path


def test_nothing_is_loaded_nothing_runs_and_nothing_is_complained_about(browser: Browser, page: Path) -> None:
    browser.open(page)
    requests = [one["request"]["url"] for one in browser.told("Network.requestWillBeSent")]
    assert requests == [page.as_uri()]
    assert browser.told("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    assert browser.told("Page.javascriptDialogOpening") == []
    assert browser.ask("document.compatMode") == "CSS1Compat"


def test_a_page_that_loads_something_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    other.write_text('<!doctype html><title>x</title><img src="missing.png"><script>console.error("x")</script>')
    browser.open(other)
    requests = [one["request"]["url"] for one in browser.told("Network.requestWillBeSent")]
    assert requests == [other.as_uri(), other.with_name("missing.png").as_uri()]
    assert browser.told("Runtime.consoleAPICalled")


def test_hostile_text_is_seen_and_makes_no_element(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.ask("document.querySelectorAll('script, img, iframe, object, link, form').length") == 0
    assert browser.ask("document.querySelectorAll('style').length") == 1
    seen = browser.ask("document.querySelector('.part-failed li').textContent")
    assert seen.startswith(HOSTILE.split(" ]]>")[0])
    assert r"\x00 \ud800 \u202eevil" in seen
    assert "\u202e" not in browser.ask("document.documentElement.innerHTML")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(browser: Browser, page: Path, scheme: str) -> None:
    browser.open(page, width=PHONE, scheme=scheme)
    browser.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.ask("window.innerWidth") == PHONE
    assert browser.ask("document.scrollingElement.scrollWidth") == PHONE
    wide = "[...document.querySelectorAll('.scroll')].map(one => one.scrollWidth > one.clientWidth)"
    assert browser.ask(wide) == [True, False]  # the timeline scrolls inside its own box; the table is now a list
    seen = "[...document.querySelectorAll('td.n:not(:empty)')].map(one => one.getBoundingClientRect())"
    assert browser.ask(f"{seen}.length") > 50
    assert browser.ask(f"{seen}.every(one => one.width > 40 && one.left >= 0 && one.right <= innerWidth)") is True
    assert browser.ask("[...document.querySelectorAll('td.n')].every(one => one.dataset.label)") is True


def test_a_table_fits_a_desk_without_scrolling(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.ask("[...document.querySelectorAll('.scroll')].every(one => one.scrollWidth <= one.clientWidth)")


CONTRAST = """
(() => {
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (/^rgb\\(/.test(colour)) return parts(colour);
    }
  };
  const ratio = one => {
    const pair = [light(parts(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
    return (pair[0] + .05) / (pair[1] + .05);
  };
  const words = 'h1, h2, h3, p, li, dt, dd, td, th, a, small, .chip, .soft';
  return Math.min(...[...document.querySelectorAll(words)].map(ratio));
})()
"""


def test_dark_is_dark_and_both_can_be_read(browser: Browser, page: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        colours[scheme] = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert browser.ask(CONTRAST) >= 4.5, scheme
    assert colours == {"light": "rgb(250, 249, 246)", "dark": "rgb(21, 24, 27)"}


def test_the_keyboard_reaches_everything(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    takes = "one => { one.focus(); return document.activeElement === one }"
    assert browser.ask(f"[...document.querySelectorAll('a, summary, .scroll')].every({takes})") is True
    levels = browser.ask("[...document.querySelectorAll('h1, h2, h3')].map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert browser.ask("document.querySelector('.timeline svg').querySelectorAll('.bar > title').length") == 11
