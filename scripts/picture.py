"""Generates docs/images/live.svg: the live view of a real run of the sample shop with the scripted agent.

.venv/bin/python scripts/picture.py

The run is that of `scripts/demo`. Its record is drawn as in `ralphtool watch`, at the moment when the second attempt at
story 3 runs its gates. The picture loads nothing: no fonts, no styles, no scripts.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from ralphtool.record import events
from ralphtool.record.view_parts import parse_time
from ralphtool.views.terminal.picture import RunDisplay

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/images/live.svg"
RALPHTOOL = [sys.executable, "-P", "-m", "ralphtool"]
WIDTH, FACTS = 96, 7  # characters of a line, and lines about earlier events
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
NORMAL = [(60, 64, 72), (214, 92, 92), (118, 186, 102), (214, 172, 86)]
NORMAL += [(97, 150, 220), (178, 120, 205), (86, 182, 194), (208, 212, 220)]
THEME = TerminalTheme((24, 26, 31), (208, 212, 220), NORMAL)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        lines = run_shop(Path(place)).read_bytes().splitlines()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(list(take_until_moment(lines))), encoding="utf-8")


def run_shop(place: Path) -> Path:
    """The record of a run of the sample, in its own folder."""
    project, home = place / "shop", place / "home"
    shutil.copytree(ROOT / "examples/shop", project)
    home.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("SHOP_PAYMENT_KEY", "NO_COLOR")}
    env |= {"HOME": str(home), "TMPDIR": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {f"GIT_{role}_{key}": "demo@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    for words in (("init", "-q", "-b", "main"), ("add", "--all"), ("commit", "-qm", "A small shop")):
        subprocess.run(["git", *words], cwd=project, env=env, check=True)
    subprocess.run([*RALPHTOOL, "run", "add-discounts"], cwd=project, env=env, stdout=subprocess.DEVNULL)
    [record] = (project / ".ralph/runs").glob("*/events.jsonl")
    return record


def take_until_moment(lines: list[bytes]) -> Iterator[events.Event]:
    """The events up to the moment of the picture."""
    is_near = False
    for line in lines:
        event = events.decode(line)
        if event is None:
            continue
        yield event
        if isinstance(event, events.IterationStarted):
            is_near = (event.story, event.attempt) == ("3", 2)
        if is_near and isinstance(event, events.GateStarted) and event.when == "replay":
            return
    raise SystemExit("the run never came to the second attempt at story 3: look at it with scripts/demo")


def draw(taken: list[events.Event]) -> str:
    now = parse_time(taken[-1].at) or 0.0
    display = RunDisplay(lambda: now)
    facts = []
    for event in taken:
        display.feed(event)
        if fact := display.describe_lasting(event):
            facts.append(Text.assemble((f"{display.format_elapsed(event)}  ", "dim"), *fact))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, markup=False)
    for line in facts[-FACTS:]:
        console.print(line)
    console.print(display.render(WIDTH, 30))
    return export(console)


def export(console: Console) -> str:
    """The picture, without the web fonts of rich's own template."""
    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = re.sub(r"<!--.*?-->\s*", "", template, flags=re.DOTALL).replace("Fira Code, monospace", FONTS)
    svg = console.export_svg(title="ralphtool run", theme=THEME, code_format=template, unique_id="live")
    if re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/)", svg):
        raise SystemExit("the picture would load something: look at the template of this version of rich")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    main()
