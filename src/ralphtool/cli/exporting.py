"""Starts the export of a run to OpenTelemetry in a separate process, independent of the run."""

from __future__ import annotations

import os
import subprocess
import sys

from ralphtool.core.text import make_printable
from ralphtool.views.terminal.wrapping import echo

_LOG = "otel.log"


def start_export(root: str, record: str, endpoint: str) -> None:
    """Follows the record from now on. Errors only go to `otel.log` next to it."""
    folder = os.path.dirname(record)
    # -P: files in the project's folder must not shadow Python's library.
    command = [sys.executable, "-P", "-m", "ralphtool", "otel", "--follow", f"--to={endpoint}"]
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(os.path.join(folder, _LOG), flags, 0o600)
        try:
            subprocess.Popen(
                [*command, "--", os.path.basename(folder)],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                start_new_session=True,
            )
        finally:
            os.close(fd)
    except OSError as error:
        echo(make_printable(f"Warning: the run is not exported to OpenTelemetry ({error.strerror})"), err=True)
