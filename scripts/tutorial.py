"""Plays the tutorial pages: writes the files that they show and runs their commands, in a separate folder.

    .venv/bin/python scripts/tutorial.py        puts the current output of the commands into the pages
    .venv/bin/python scripts/tutorial.py docs/second-day.md        only into this one

A block that begins with a comment like `# shop.py` is that file. In a block of the language `console`, `$ ` begins a
command, and the rest is its output. Volatile parts of the output are ignored in comparisons.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs/tutorial.md", ROOT / "docs/second-day.md")
HOME = "/home/me"
_LONGEST = 900  # seconds for a command
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\A# (\S+\.\w+)\n")
_VOLATILE = (
    (re.compile(r"\bralphtool \d+\.\d+\.\d+(?: \([0-9a-f]{7}\))?"), "RALPHTOOL"),  # a checkout names its commit
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "COMMIT"),
    (re.compile(r"\b[A-Z][a-z]{2} \d{1,2} [A-Z][a-z]{2} \d{4}\b"), "DAY"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?Z?)?)?(?: UTC)?"), "WHEN"),
    (re.compile(r"\b\d{1,2}:\d\d(?::\d\d)?\b"), "CLOCK"),
    (re.compile(r"\b(?:\d+ h(?: \d\d min)?|\d+ min(?: \d\d s)?|\d+(?:\.\d+)? ?m?s|\d+ seconds?)\b"), "LONG"),
    # The history has whole seconds: the attempts of a fast machine may take none.
    (re.compile(r"(?<=attempts), LONG(?=\.)"), ""),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"git \d+\.\d+[.\d]*"), "git VERSION"),
    (re.compile(r"Python 3\.[\d.]+(?:rc\d+)?, \w+"), "PYTHON"),
    # If no box is available, the output says so.
    (re.compile(r"work happens in (?:a box|a worktree|your own folder).*"), "WORKSPACE"),
    (re.compile(r"^. sandbox .*(?:\n +to fix: .*)?", re.MULTILINE), "SANDBOX"),
    (re.compile(r"^nothing is wrong.*", re.MULTILINE), "SUMMARY"),
    (re.compile(r"/\S*/ralphtool/PLAN-learnings"), "/tmp/ralphtool/PLAN-learnings"),
)


class Step:
    """A command of the page, and its output."""

    def __init__(self, command: str, output: str) -> None:
        self.command = command
        self.output = output


def masked(text: str) -> str:
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())  # columns may be wider


def steps(block: str) -> list[Step]:
    """The commands of a block, each with its output."""
    found: list[Step] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Step(line[2:].rstrip("\n"), ""))
        elif found:
            found[-1].output += line
    return found


class Shell:
    """A shell that runs all commands, like a reader's, so that `&` and `wait` work."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._printed = Path(environment["TMPDIR"]) / "printed"
        self._at = 0
        commands, places = os.pipe(), os.pipe()
        taken, given = commands[0], places[1]
        loop = f'while IFS= read -r -d "" line <&{taken}; do eval "$line" {taken}<&- {given}>&-; pwd >&{given}; done'
        with self._printed.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "-c", loop],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(taken, given),
            )
        for fd in (taken, given):
            os.close(fd)
        self._commands, self._places = os.fdopen(commands[1], "wb"), os.fdopen(places[0], "rb")

    def run(self, command: str) -> tuple[str, Path]:
        """The output of a command on both streams, and the working directory after it."""
        self._commands.write(command.encode() + b"\0")
        self._commands.flush()
        if not select.select([self._places], [], [], _LONGEST)[0]:
            raise TimeoutError(f"{command} has not ended after {_LONGEST} seconds")
        where = Path(self._places.readline().decode().strip())
        with self._printed.open("rb") as output:
            output.seek(self._at)
            data = output.read()
        self._at += len(data)
        shown = f"{HOME}/{where.name}"
        return data.decode().replace(os.path.realpath(where), shown).replace(str(where), shown), where

    def close(self) -> None:
        self._commands.close()
        self._bash.wait(_LONGEST)
        self._places.close()


def play(page: Path, folder: Path, environment: dict[str, str]) -> Iterator[tuple[Step, str]]:
    """Every command of a page, with its current output."""
    place = folder
    with closing(Shell(folder, environment)) as shell:
        for language, body in _BLOCK.findall(page.read_text()):
            if named := _FILE.match(body):
                path = place / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body if path.suffix in (".py", ".toml") else body[named.end() :])
            elif language == "console":
                for step in steps(body):
                    printed, place = shell.run(step.command)
                    assert "```" not in printed, f"the page can't show this: {step.command}"
                    yield step, printed


def environment(folder: Path) -> dict[str, str]:
    """The environment of a new user: no settings, no agent, no colours."""
    home, tmp = folder / "home", folder / "tmp"
    for path in (home, tmp):
        path.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Me\nemail = me@example.org\n")
    programs = os.pathsep.join([str(ROOT / ".venv/bin"), os.environ.get("PATH", os.defpath)])
    return {"PATH": programs, "HOME": str(home), "TMPDIR": str(tmp), "LC_ALL": "C.UTF-8"}


def renew(page: Path) -> None:
    """Puts the current output of the commands into a page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder)
        text = page.read_text()
        at = 0
        for step, printed in play(page, folder, env):
            old = f"$ {step.command}\n{step.output}"
            at = text.index(old, at)
            new = f"$ {step.command}\n{printed.rstrip()}\n" if printed.strip() else f"$ {step.command}\n"
            end = "\n" if step.output.endswith("\n\n") else ""  # keep a blank line before the next command
            text = text[:at] + new + end + text[at + len(old) :]
            at += len(new)
    page.write_text(text)


def main() -> int:
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        renew(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
