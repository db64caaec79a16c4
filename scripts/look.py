"""Takes pictures of every view of a recorded night, for review when a view changes: light and dark, phone and desktop.

scripts/look.py [FOLDER]        writes to build/look; needs what `scripts/test` has installed
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from browser import CHROMIUM  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from rich.console import Console  # noqa: E402
from views.night import RUN, a_night  # noqa: E402

from ralphtool.record import events, runs  # noqa: E402
from ralphtool.record.lines import LineReader  # noqa: E402
from ralphtool.record.view_parts import parse_time  # noqa: E402
from ralphtool.views.screen import RalphApp  # noqa: E402
from ralphtool.views.screen.base import Navigate  # noqa: E402
from ralphtool.views.terminal.picture import RunDisplay  # noqa: E402

RALPHTOOL = [sys.executable, "-P", "-m", "ralphtool"]
SIZES = ((360, 780), (1280, 900))
LONG = "Pay by invoice 請求書払い 🧾 for every customer of the shop in every country, with all taxes, " * 3
HALF = 0.45  # of the events: the live view shows a run in the middle of its work


def write_project(root: Path, name: str) -> Path:
    """A project with a recorded night; one story's title and the branch's name are much too long."""
    change = root / "openspec/changes/add-login"
    change.mkdir(parents=True)
    (change / "tasks.md").write_text("# Add login\n\n## 1. Set up the project\n\n- [x] 1.1 Do it\n")
    path = a_night().write(root)
    lines = path.read_text().split("\n")
    first = json.loads(lines[0])
    first["stories"][8]["title"] = LONG
    first["branch"] = f"ralph/{name}-{'and-everything-that-belongs-to-it-' * 4}end"
    path.write_text("\n".join([json.dumps(first), *lines[1:]]))
    return path


def draw_live(path: Path, folder: Path) -> None:
    """The live view at three widths, as text and as SVG."""
    lines = list(LineReader(str(path)).new())
    known = [event for event in map(events.decode, lines[: int(len(lines) * HALF)]) if event]
    now = parse_time(known[-1].at) or 0.0
    for width in (50, 80, 120):
        view = RunDisplay(lambda: now)
        for event in known:
            view.feed(event)
        screen = Console(width=width, record=True, file=io.StringIO(), force_terminal=True, highlight=False)
        screen.print(view.render(width - 1, 30))
        (folder / f"live-{width}.txt").write_text(screen.export_text(clear=False))
        (folder / f"live-{width}.svg").write_text(screen.export_svg(title="ralphtool run"))


async def draw_screen(root: Path, folder: Path) -> None:
    """The full screen: its first page, and the page of a finished run."""
    for width, height in ((80, 24), (120, 40)):
        app = RalphApp(str(root))
        async with app.run_test(size=(width, height)) as pilot:
            await pilot.pause(1)
            (folder / f"screen-home-{width}.svg").write_text(app.export_screenshot())
            app.post_message(Navigate("result", runs.read_summary(str(root), RUN)))
            await pilot.pause(1)
            (folder / f"screen-result-{width}.svg").write_text(app.export_screenshot())


@contextlib.contextmanager
def serve(root: Path) -> Iterator[str]:
    server = subprocess.Popen([*RALPHTOOL, "web", "--json"], cwd=root, stdout=subprocess.PIPE)
    assert server.stdout
    try:
        yield json.loads(server.stdout.readline())["address"]
    finally:
        server.terminate()
        server.communicate()


def photograph(browser: Browser, address: str, folder: Path, name: str) -> None:
    """A page at each size, light and dark; the web page is opened at its first run."""
    for width, height in SIZES:
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab = context.new_page()
            tab.goto(address)
            if name == "web":
                tab.locator(".runs a").first.click()
                tab.locator("#log .e").first.wait_for()
            tab.screenshot(path=str(folder / f"{name}-{width}-{scheme}.png"), full_page=name == "report")
            context.close()


def photograph_drawings(browser: Browser, folder: Path) -> None:
    """Converts the drawings to PNG, which more programs can show."""
    for path in sorted(folder.glob("*.svg")):
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.goto(path.as_uri())
        tab.locator("svg").first.screenshot(path=str(path.with_suffix(".png")))
        tab.close()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/look").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        root = Path(place) / "shop"
        path = write_project(root, "add-login")
        os.chdir(root)
        draw_live(path, folder)
        asyncio.run(draw_screen(root, folder))
        report = folder / "report.html"
        report.unlink(missing_ok=True)
        subprocess.run([*RALPHTOOL, "report", "--format", "html", "--output", str(report)], cwd=root, check=True)
        with sync_playwright() as playwright, serve(root) as address:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            photograph(browser, report.as_uri(), folder, "report")
            photograph(browser, address, folder, "web")
            photograph_drawings(browser, folder)
            browser.close()
    sys.stdout.write(f"The pictures are in {folder}.\n")


if __name__ == "__main__":
    main()
