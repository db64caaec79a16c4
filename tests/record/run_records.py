"""Records of runs that tests write line by line, and a terminal to view them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lab import Lab
from patience import PATIENCE
from project import COMMAND, Ralph

Event = dict[str, Any]
NOON = "2026-03-01T12:00:00.000000Z"


def moment(seconds: float = 0) -> str:
    """The time in so many seconds."""
    found = datetime.now(UTC) + timedelta(seconds=seconds)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{found.microsecond:06}Z"


def started(change: str = "add-login", stories: int = 2, at: str = NOON, **more: Any) -> Event:
    made = [
        {"id": str(n), "title": f"Story {n}", "tasks_total": 1, "tasks_done": 0, "done": False} for n in range(stories)
    ]
    about = {"change": change, "agent": "claude", "branch": f"ralph/{change}", "pid": 0, "stories": made}
    return {"at": at, "type": "run_started", **about, **more}


def ended(result: str = "done", **more: Any) -> Event:
    stories = [{"id": str(n), "title": f"Story {n}", "state": "done", "attempts": 1} for n in range(2)]
    about = {"result": result, "reason": "", "stories": stories, "spent": {"cost": 1.5}, "next": []}
    return {"at": "2026-03-01T13:02:03.000000Z", "type": "run_ended", **about, **more}


def verdict(story: str, status: str = "completed", **more: Any) -> Event:
    return {"at": NOON, "type": "verdict", "story": story, "status": status, **more}


def line(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def put(root: Path, id: str, *events: Event | bytes) -> Path:
    """Writes a record."""
    path = root / ".ralph/runs" / id / "events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(one if isinstance(one, bytes) else line(one) for one in events))
    return path


class Terminal:
    """The command in a real terminal."""

    def __init__(self, ralph: Ralph, *arguments: str, columns: int = 80, rows: int = 24, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=ralph.root,
            env={**ralph.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def shows(self, *words: str, seconds: float = PATIENCE) -> str:
        """The output, once it contains these words."""
        end = time.monotonic() + seconds
        while not all(word in self.seen for word in words):
            assert time.monotonic() < end, f"{words} not in\n{self.seen}"
            self._read(end)
        return self.seen

    def rest(self, seconds: float = PATIENCE) -> tuple[str, int]:
        """The whole output, and the exit code."""
        end = time.monotonic() + seconds
        while self._read(end):
            assert time.monotonic() < end, self.seen
        return self.seen, self.process.wait(seconds)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
        try:
            block = os.read(self._ours, 65536) if ready else b""
        except OSError:  # how the system reports the end of a terminal
            return False
        self.seen += block.decode("utf-8", "replace")
        return True

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(120)
        os.close(self._ours)


ID = "add-login-20260301-120000-1a2b"


def records(lab: Lab) -> Iterator[Path]:
    return lab.root.glob(".ralph/runs/*/events.jsonl")
