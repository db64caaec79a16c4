"""Takes the pictures of the web page in docs/images, from a real run of three lanes with the scripted agent.

scripts/screenshots.py        needs what `scripts/test` has installed
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from browser import CHROMIUM
from playwright.sync_api import Browser, Page, expect, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
RALPHTOOL = [sys.executable, "-P", "-m", "ralphtool"]
STORIES = {
    "Log in with a password": ("Check the password", "Say what is wrong, and not which part"),
    "Reset a forgotten password": ("Send a link by mail", "Let a link expire after an hour"),
    "Lock an account after ten tries": ("Count the tries", "Unlock it after a day"),
    "Remember a device": ("Keep a token", "List the devices of a user"),
    "Sign out everywhere": ("Forget all tokens",),
    "Write the audit log": ("One line for each sign-in", "Never a password in it"),
}


def write_project(root: Path) -> None:
    change = root / "openspec/changes/add-login"
    change.mkdir(parents=True)
    tasks = []
    for number, (title, steps) in enumerate(STORIES.items(), 1):
        boxes = "\n".join(f"- [ ] {number}.{place} {text}" for place, text in enumerate(steps, 1))
        tasks.append(f"## {number}. {title}\n\n{boxes}\n")
    (change / "tasks.md").write_text("# Add login\n\n" + "\n".join(tasks))
    (change / "proposal.md").write_text("# Add login\n\nPeople have accounts, and get into them.\n")
    (root / "tests").mkdir()
    (root / "login.py").write_text('"""Accounts."""\n')
    (root / "tests/test_login.py").write_text(
        "import unittest\n\nclass TestLogin(unittest.TestCase):\n    def test_import(self):\n        import login\n"
    )
    (root / ".ralph").mkdir()
    (root / ".ralph/config.toml").write_text(
        '[run]\nagent = "scripted"\nside_by_side = 3\n\n[agents.scripted]\nargs = ["agent.json"]\n\n'
        '[verify]\ntests = ["python3 -m unittest discover -q tests"]\n'
    )
    (root / "agent.json").write_text(json.dumps({"turn": [build_turn(n) for n in range(1, 7)]}))
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "A project")):
        subprocess.run(["git", *words], cwd=root, check=True)


def build_turn(number: int) -> dict[str, Any]:
    """The first two succeed; the third needs an answer; the others are running when the picture is taken."""
    name = f"part{number}"
    test = (
        f"import unittest\n\nclass Test{number}(unittest.TestCase):\n    def test_{name}(self):\n"
        f"        from {name} import check\n        self.assertTrue(check())\n"
    )
    begin: list[dict[str, Any]] = [
        {"say": f"I read login.py and its tests, then I begin with {number}.1."},
        {"write": f"{name}.py", "text": "def check():\n    return True\n"},
        {"tick": f"{number}.1"},
        {"write": f"tests/test_{name}.py", "text": test},
        {"usage": {"input_tokens": 21000 + 900 * number, "output_tokens": 1900, "cost": 0.09 + number / 100}},
    ]
    if number == 3:
        return {"story": "3", "steps": [*begin, {"blocked": "the variable SMTP_PASSWORD is missing"}]}
    hold = [] if number < 3 else [{"run": "python3 -m unittest discover -q tests"}, {"hang": True}]
    return {"story": str(number), "steps": [*begin, *hold, {"tick": "all"}, {"complete": True}]}


def picture(browser: Browser, address: str, name: str, story: str = "", **options: Any) -> None:
    context = browser.new_context(device_scale_factor=1, **options)
    page = context.new_page()
    page.goto(address)
    page.locator(".runs a").first.click()
    page.locator("#log .e").first.wait_for()
    expect(page.locator(".lane")).to_have_count(3)
    if story:
        page.locator("#s-stories a").nth(0).click()
        page.locator("#story .attempt").first.wait_for()
        page.locator("#story summary", has_text="receipt").click()
        page.locator("#story .attempt > summary").first.click()
    page.mouse.move(0, 0)
    settle(page)
    page.screenshot(path=str(IMAGES / f"{name}.png"))
    context.close()


def settle(page: Page) -> None:
    """Waits until the fonts are loaded, and the last part has arrived."""
    page.evaluate("document.fonts.ready.then(() => true)")
    time.sleep(1)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    expect.set_options(timeout=120_000)
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        root = Path(place) / "shop"
        root.mkdir()
        names = {f"GIT_{role}_{key}": "me@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        os.environ |= names
        write_project(root)
        run = subprocess.Popen([*RALPHTOOL, "run", "--json"], cwd=root, stdout=subprocess.PIPE)
        server = subprocess.Popen([*RALPHTOOL, "web", "--json"], cwd=root, stdout=subprocess.PIPE)
        try:
            take_pictures(root, server)
        finally:
            for one in (server, run):
                one.send_signal(signal.SIGINT)
                one.communicate()


def take_pictures(root: Path, server: subprocess.Popen[bytes]) -> None:
    assert server.stdout
    address = json.loads(server.stdout.readline())["address"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        wide = {"width": 1280, "height": 1000}
        picture(browser, address, "web-light", viewport=wide, color_scheme="light")
        picture(browser, address, "web-dark", "1", viewport=wide, color_scheme="dark")
        picture(browser, address, "web-phone", viewport={"width": 390, "height": 844}, color_scheme="light")
        browser.close()


if __name__ == "__main__":
    main()
