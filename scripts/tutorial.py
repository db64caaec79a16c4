"""Plays docs/tutorial.md: writes the files that it shows and runs the commands that it names, in a folder of its own.

    .venv/bin/python scripts/tutorial.py        puts what the commands print now into the page

A block that begins with a comment like `# shop.py` is that file. In a block of the language `console`, `$ ` begins a
command, and what follows is what it prints. What differs from time to time is compared as if it did not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/tutorial.md"
HOME = "/home/me/shop"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\A# (\S+\.\w+)\n")
_VOLATILE = (
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "COMMIT"),
    (re.compile(r"\b[A-Z][a-z]{2} \d{1,2} [A-Z][a-z]{2} \d{4}\b"), "DAY"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?Z?)?)?(?: UTC)?"), "WHEN"),
    (re.compile(r"\b\d{1,2}:\d\d(?::\d\d)?\b"), "CLOCK"),
    (re.compile(r"\b\d+(?:\.\d+)? ?m?s\b|\b\d+ (?:seconds?|min)\b"), "LONG"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"git \d+\.\d+[.\d]*"), "git VERSION"),
    (re.compile(r"Python 3\.[\d.]+(?:rc\d+)?, \w+"), "PYTHON"),
    (re.compile(r"/\S*/ralphtool/PLAN-learnings"), "/tmp/ralphtool/PLAN-learnings"),
)


class Step:
    """A command of the page, and what it prints."""

    def __init__(self, command: str, output: str) -> None:
        self.command = command
        self.output = output


def masked(text: str) -> str:
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())  # columns may be wider


def steps(block: str) -> list[Step]:
    """The commands of a block, each with what follows it."""
    found: list[Step] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Step(line[2:].rstrip("\n"), ""))
        elif found:
            found[-1].output += line
    return found


def play(folder: Path, environment: dict[str, str]) -> Iterator[tuple[Step, str]]:
    """Every command of the page, with what it printed now."""
    place = folder
    for language, body in _BLOCK.findall(PAGE.read_text()):
        if named := _FILE.match(body):
            path = place / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body if path.suffix in (".py", ".toml") else body[named.end() :])
        elif language == "console":
            for step in steps(body):
                printed, place = run(step.command, place, environment)
                assert "```" not in printed, f"the page can't show this: {step.command}"
                yield step, printed


def run(command: str, place: Path, environment: dict[str, str]) -> tuple[str, Path]:
    """What a command prints on both of its streams, and where it leaves us."""
    done = subprocess.run(
        ["bash", "-c", f'{command}\ncode=$?\npwd >"$PLACE"\nexit $code'],
        cwd=place,
        env={**environment, "PLACE": str(Path(environment["TMPDIR"]) / "place")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    where = Path((Path(environment["TMPDIR"]) / "place").read_text().strip())
    return done.stdout.decode().replace(os.path.realpath(where), HOME).replace(str(where), HOME), where


def environment(folder: Path) -> dict[str, str]:
    """As a newcomer has it: no settings of his own, no agent, no colours."""
    home, tmp = folder / "home", folder / "tmp"
    for path in (home, tmp):
        path.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Me\nemail = me@example.org\n")
    programs = os.pathsep.join([str(ROOT / ".venv/bin"), os.environ.get("PATH", os.defpath)])
    return {"PATH": programs, "HOME": str(home), "TMPDIR": str(tmp), "LC_ALL": "C.UTF-8"}


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder)
        text = PAGE.read_text()
        at = 0
        for step, printed in play(folder, env):
            old = f"$ {step.command}\n{step.output}"
            at = text.index(old, at)
            new = f"$ {step.command}\n{printed.rstrip()}\n" if printed.strip() else f"$ {step.command}\n"
            end = "\n" if step.output.endswith("\n\n") else ""  # a blank line before the next command stays
            text = text[:at] + new + end + text[at + len(old) :]
            at += len(new)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
