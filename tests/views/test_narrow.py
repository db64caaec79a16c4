"""What commands print on a terminal of 80 columns: no line is wider, and no word is broken."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios

import pytest
from history.documents import ENTRY, FULL, encoded
from lab import Lab
from project import COMMAND

from ralphtool.views.terminal.wrapping import glue, wrap

LONG = "Customers who have paid twice get the difference back, with a message that names the refunded-amount exactly"
TASKS = f"## 1. {LONG}\n- [ ] 1.1 {LONG}\n- [ ] 1.2 {LONG}\n"
CHANGE = "give-customers-who-have-paid-twice-the-difference-back"


def show(lab: Lab, *arguments: str, columns: int = 80) -> str:
    """What the command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**lab.env, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=lab.root, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    process.wait(120)
    return b"".join(chunks).decode()


@pytest.fixture
def wordy(lab: Lab) -> Lab:
    """A project in which everything has a long name."""
    lab.repository(TASKS, CHANGE, tests=["true"])
    learning = FULL["learnings"][0] | {"content": LONG, "type": "architecture-constraint", "source_prd_id": CHANGE}
    lab.write(".ralph/progress.json", encoded(FULL | {"entries": [ENTRY | {"summary": LONG}], "learnings": [learning]}))
    return lab


@pytest.mark.parametrize(
    "command",
    [
        "list",
        f"show {CHANGE}",
        "progress show",
        "progress learnings",
        "progress entries",
        "doctor",
        "init",
        "runs",
        "show no-such-change",
        "run --guard no-such-guard-but-one-with-a-very-long-name-that-needs-more-than-one-line-to-be-shown",
        "retry 1",
        "skip 1 --why because-it-is-not-needed",
        "guide 1 Use-the-new-interface",
        "pause",
        "resume",
        "reject 1",
        "finish",
    ],
)
def test_nothing_is_wider_than_the_terminal(wordy: Lab, command: str) -> None:
    shown, wide = (show(wordy, *command.split(), columns=columns) for columns in (80, 1000))
    too_wide = [line for line in shown.splitlines() if len(line.rstrip()) > 80 and " " in line.strip()]
    assert too_wide == []
    bars = set("█░▄▁▒#.")
    broken = {word for word in shown.split() if word not in wide.split() and not set(word) <= bars}
    assert broken == set()


def test_the_fields_of_the_list_stay_whole(wordy: Lab) -> None:
    lines = [line.strip() for line in show(wordy, "list", columns=64).splitlines()]
    assert "stories 0/1" in lines or any(line.endswith("tasks 0/2  stories 0/1") for line in lines), lines


def test_words_stay_whole() -> None:
    assert wrap("  a bc def", 6) == "  a bc\n   def"
    assert wrap("a  --dry-run-of-a-thing b", 8) == "a\n  --dry-run-of-a-thing\n  b"
    assert wrap("short", 80) == "short"
    assert wrap(f"see {glue('a b c')} d", 6) == "see\n  a b c\n  d", "a command stays whole"
    assert wrap("\x1b[1mab cd\x1b[0m", 5) == "\x1b[1mab cd\x1b[0m", "colours take no room"
    assert wrap("to see `a b c`, d", 6, 0) == "to see\n`a b c`,\nd", "a command in a sentence stays whole"
    assert wrap("it`s a b c", 4, 0) == "it`s\na b\nc", "a single backtick is a letter"
    assert wrap("日本 日本", 8, 0) == "日本\n日本", "wide letters take two columns"


def test_commands_stay_whole_at_40_columns(lab: Lab) -> None:
    """Without an agent: then a command installs one."""
    lab.repository(TASKS, CHANGE)
    lab.write(".ralph/config.toml", "")
    lab.env["PATH"] = "/usr/bin:/bin"
    for command in ("doctor", "init"):
        lines = [line.strip() for line in show(lab, command, columns=40).splitlines()]
        assert any("npm install -g @anthropic-ai/claude-code" in line for line in lines) or command == "init"
        assert "ralphtool doctor" in lines or command == "doctor"
    (lab.root / ".ralph/config.toml").unlink()
    assert "npm install -g @anthropic-ai/claude-code" in show(lab, "init", columns=40)
