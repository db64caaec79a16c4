"""The full screen in a real terminal, with the real command: from choosing a change to its result; and killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import DONE, Lab, wait_until
from patience import PATIENCE
from project import COMMAND

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


class Terminal:
    """A real terminal with a shell in it."""

    def __init__(self, lab: Lab) -> None:
        self._command = ["tmux", "-S", str(lab.root.parent / "tmux")]
        self._env = lab.env
        self._cwd = lab.root
        self("-f", "/dev/null", "-u", "new-session", "-d", "-x", "80", "-y", "24", "sh")

    def __call__(self, *arguments: str) -> str:
        command = [*self._command, *arguments]
        done = subprocess.run(
            command, env=self._env, cwd=self._cwd, check=True, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout

    def close(self) -> None:
        subprocess.run(
            [*self._command, "kill-server"], env=self._env, check=False, capture_output=True, timeout=PATIENCE
        )

    def press(self, *keys: str) -> None:
        self("send-keys", *keys)

    def screen(self, *wanted: str) -> str:
        """The screen as text, once all these texts are on it."""
        seen = ""
        for _ in range(2400):
            seen = self("capture-pane", "-p")
            if all(one in seen for one in wanted):
                return seen
            time.sleep(0.05)
        raise AssertionError(f"{wanted} was not seen in\n{seen}")

    def open(self) -> None:
        self.press(f"PS1='ready> '; clear; {COMMAND}; echo status $?", "Enter")
        self.screen("Changes", "add-login", "q Quit")


@pytest.fixture
def waiting(lab: Lab) -> Lab:
    """A project whose agent waits, in the first story, for a file `go` beside the project."""
    wait = {"run": f"while [ ! -e {lab.root.parent}/go ]; do sleep 0.05; done"}
    lab.repository().play({"story": "1", "steps": [{"say": "here I am"}, wait, *DONE]}, default=DONE)
    return lab


@pytest.fixture
def terminal(waiting: Lab) -> Iterator[Terminal]:
    started = Terminal(waiting)
    yield started
    started.close()


def begin(terminal: Terminal) -> None:
    """Opens the screen, chooses the change, reads it and runs it."""
    terminal.open()
    terminal.press("Enter")
    terminal.screen("1. First", "Users want in.", "r Run")
    terminal.press("r")
    terminal.screen("Run add-login with scripted?")
    terminal.press("y")
    terminal.screen("here I am", "▸ 1. First", "x Stop")


def test_from_choosing_a_change_to_its_result(waiting: Lab, terminal: Terminal) -> None:
    begin(terminal)
    terminal("resize-window", "-x", "20", "-y", "5")
    terminal.screen("too small: 40×10 at", "least")
    terminal("resize-window", "-x", "90", "-y", "30")
    terminal.screen("here I am", "▸ 1. First", "x Stop")
    [screen] = screens(waiting)
    os.kill(screen, signal.SIGTERM)
    terminal.screen("ready>")
    assert terminal("display-message", "-p", "#{cursor_flag}#{alternate_on}").strip() == "10"
    terminal.open()
    terminal.press("w")
    terminal.screen("here I am", "▸ 1. First", "x Stop")
    (waiting.root.parent / "go").touch()
    terminal.screen("2 of 2 stories are done", "! 2. Second")
    terminal.press("e")
    terminal.screen("the result of add-login", "ralphtool report", "ralphtool accept 1")
    terminal.press("q")
    terminal.screen("status 0\nready>")
    assert terminal("display-message", "-p", "#{cursor_flag}#{alternate_on}").strip() == "10"
    assert waiting.checkpoints() == ["1", "2"]


def screens(lab: Lab) -> list[int]:
    """The processes that show the screen: the command without arguments, running in this project."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            here = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if words[1:] == [COMMAND.encode(), b""] and here == str(lab.root):
            found.append(int(pid))
    return found


def test_a_run_goes_on_when_its_screen_is_killed(waiting: Lab, terminal: Terminal) -> None:
    begin(terminal)
    [screen] = screens(waiting)
    os.kill(screen, signal.SIGKILL)
    assert wait_until(lambda: not screens(waiting))
    terminal.close()  # and its terminal ends as well
    (waiting.root.parent / "go").touch()
    assert wait_until(lambda: waiting.events()[-1]["type"] == "run_ended")
    assert waiting.events()[-1]["result"] == "done"
    assert waiting.checkpoints() == ["1", "2"]
