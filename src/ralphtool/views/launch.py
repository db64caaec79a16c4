"""Starts a run that is independent of the screen: it continues when the screen is closed, killed or lost."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from ralphtool.core import files
from ralphtool.core.text import make_lines_printable
from ralphtool.errors import RalphError
from ralphtool.record import runs

_LAST = 4000  # bytes shown of a run's output


class Launch:
    """A run that was started, until it has a record or has ended without one."""

    def __init__(self, root: str, change: str, ref: str) -> None:
        self.root = root
        self.change = change
        self._known = set(runs.list_ids(root))
        self.id: str | None = None  # of the run, as soon as it has a record
        self.is_reported = False  # whether its start or failure has been shown
        self._output = files.private_path("ralph", "screen", f"{change[:90]}-{os.getpid()}-{os.urandom(4).hex()}.log")
        files.make_private_folders(self._output)
        self._process = self._start(["run", change, "--spec", ref])

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        # -P: files in the project's folder must not shadow Python's library.
        command = [sys.executable, "-P", "-m", "ralphtool", *arguments]
        fd = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, start_new_session=True
            )
        finally:
            os.close(fd)

    @property
    def has_ended(self) -> bool:
        """Must be polled regularly: a process that has ended stays a zombie until then."""
        return self._process.poll() is not None

    def find_run(self) -> None:
        """Checks whether the run has a record by now."""
        self.id = next((id for id in runs.list_ids(self.root) if id not in self._known and self._is_ours(id)), None)

    def _is_ours(self, id: str) -> bool:
        try:
            return runs.read_summary(self.root, id).pid == self._process.pid
        except (RalphError, OSError):
            return False

    def remove_output(self) -> None:
        """Removes the command's output: the run has its record, or its error was reported."""
        with suppress(OSError):  # then it stays among the temporary files
            files.remove(self._output)

    def read_error(self) -> str:
        """The command's output, if the run ended before it had a record."""
        try:
            told = files.read(self._output)[-_LAST:].decode("utf-8", "replace").strip()
        except OSError as error:
            told = str(error)
        return (
            make_lines_printable(told.removeprefix("Error: "))
            or f"it ended at once, with status {self._process.poll()}"
        )
