"""Notifications for an absent user: their command is called when a run ends or a question needs an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ralphtool.core import quickjson, secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PATIENCE = 20.0  # seconds for one notification
_TICK = 0.1
_MOST_OUTPUT = 1 << 16  # bytes: the size of a pipe's buffer


class Notifier:
    """Calls the command of `[notify]`, and waits for it only at the end: a slow notification must not delay a run."""

    def __init__(self, command: Sequence[str], root: str, folder: str) -> None:
        self._command = command
        self._root = root
        self._log = os.path.join(folder, "notify.log")
        self._running: list[_NotifyProcess] = []
        self._failed = 0

    def tell(self, **fields: Any) -> str:
        """Starts the command with the fields as JSON on its standard input; returns the error, if any."""
        if not self._command:
            return ""
        self._check_processes(lambda: False)
        told = quickjson.dumps(secrets.mask({"project": self._root, **fields}, secrets.list_values()))
        try:
            self._running.append(_NotifyProcess(self._command, self._root, told.encode() + b"\n"))
        except OSError as error:
            return f"no notification was sent: {self._command[0]} can't be started ({error.strerror})"
        return ""

    def finish(self, is_hurried: Callable[[], bool] = lambda: False) -> str:
        """Waits for processes that still run, each up to its time limit; returns the error, if any."""
        while self._running:
            self._check_processes(is_hurried)
            time.sleep(_TICK if self._running else 0)
        return f"{self._failed} notifications failed: see {self._log}" if self._failed else ""

    def _check_processes(self, is_hurried: Callable[[], bool]) -> None:
        """Removes processes that have ended, and ends those that took too long."""
        for one in [one for one in self._running if one.is_over(is_hurried=is_hurried())]:
            self._running.remove(one)
            self._failed += one.process.returncode != 0
            self._note(one.said())

    def _note(self, data: bytes) -> None:
        if data:
            with open(self._log, "ab") as log:
                log.write(data)

    def close(self) -> None:
        """Ends all processes that still run."""
        for one in self._running:
            one.end()


class _NotifyProcess:
    """One call of the command. Its output stays in a pipe: a command that fills the pipe blocks, and is ended."""

    def __init__(self, command: Sequence[str], root: str, data: bytes) -> None:
        import tempfile  # slow, and most runs send no notification

        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            with tempfile.TemporaryFile() as stdin, os.fdopen(theirs, "wb") as out:
                stdin.write(data)
                stdin.seek(0)
                self.process = subprocess.Popen(
                    command, cwd=root, stdin=stdin, stdout=out, stderr=out, start_new_session=True
                )
        except OSError:
            os.close(self._pipe)
            raise
        self._began = time.monotonic()

    def is_over(self, *, is_hurried: bool) -> bool:
        if self.process.poll() is None and (is_hurried or time.monotonic() - self._began > _PATIENCE):
            self.end()
        return self.process.poll() is not None

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the leader of its own group
        self.process.wait()

    def said(self) -> bytes:
        """The contents of the pipe, without waiting for more: another process may still hold the other end open."""
        try:
            return os.read(self._pipe, _MOST_OUTPUT)
        except BlockingIOError:
            return b""
        finally:
            os.close(self._pipe)
