"""Telling somebody who is not there: a command of the user's is called when a run ends or a question waits."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

from ralphtool import quickjson, secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE = 20.0  # seconds at the end of a run for those that still tell somebody


class Notifier:
    """Calls the command of `[notify]`, and waits for it only at the end: nobody's phone holds up a night's work."""

    def __init__(self, command: Sequence[str], root: str, folder: str) -> None:
        self._command = command
        self._root = root
        self._log = os.path.join(folder, "notify.log")
        self._running: list[subprocess.Popen[bytes]] = []

    def tell(self, **fields: Any) -> str:
        """Starts the command with the fields as JSON on its standard input; tells what went wrong with that."""
        if not self._command:
            return ""
        told = quickjson.dumps(secrets.masked({"project": self._root, **fields}, secrets.values()))
        with tempfile.TemporaryFile() as data, open(self._log, "ab") as log:
            data.write(told.encode() + b"\n")
            data.seek(0)
            try:
                self._running.append(
                    subprocess.Popen(
                        self._command, cwd=self._root, stdin=data, stdout=log, stderr=log, start_new_session=True
                    )
                )
            except OSError as error:
                return f"nobody could be notified: {self._command[0]} can't be started ({error.strerror})"
        return ""

    def finish(self) -> str:
        """Waits a little for those that are still at it, and ends them then; tells what went wrong."""
        until = time.monotonic() + _PATIENCE
        failed = [one for one in self._running if not self._ended_well(one, until)]
        return f"{len(failed)} of {len(self._running)} notifications failed; see {self._log}" if failed else ""

    def _ended_well(self, process: subprocess.Popen[bytes], until: float) -> bool:
        try:
            return process.wait(max(0.0, until - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # which is a group of its own, and was not waited for yet
            process.wait()
            return False
