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

_LAST = 4000  # bytes of what a run printed that are shown


class Launch:
    """A run that was begun, until it has a record of its own or has ended without one."""

    def __init__(self, root: str, change: str, ref: str) -> None:
        self.root = root
        self.change = change
        self._known = set(runs.list_ids(root))
        self.id: str | None = None  # of the run, as soon as it has a record
        self.is_reported = False  # whether somebody knows what became of it
        self._output = files.private_path("ralph", "screen", f"{change[:90]}-{os.getpid()}-{os.urandom(4).hex()}.log")
        files.make_private_folders(self._output)
        self._process = self._start(["run", change, "--spec", ref])

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        # -P: nothing in the project's folder may be taken for a part of Python's library.
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
        """To be asked now and then: the system keeps a process that has ended until somebody asks for it."""
        return self._process.poll() is not None

    def find_run(self) -> None:
        """Looks whether the run has a record by now."""
        self.id = next((id for id in runs.list_ids(self.root) if id not in self._known and self._is_ours(id)), None)

    def _is_ours(self, id: str) -> bool:
        try:
            return runs.read_summary(self.root, id).pid == self._process.pid
        except (RalphError, OSError):
            return False

    def remove_output(self) -> None:
        """Removes what the command printed: the run has its record, or its error was told."""
        with suppress(OSError):  # then it stays where temporary files are
            files.remove(self._output)

    def read_error(self) -> str:
        """What the command printed, for a run that ended before it began."""
        try:
            told = files.read(self._output)[-_LAST:].decode("utf-8", "replace").strip()
        except OSError as error:
            told = str(error)
        return (
            make_lines_printable(told.removeprefix("Error: "))
            or f"it ended at once, with status {self._process.poll()}"
        )
