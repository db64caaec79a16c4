"""Shared by these tests: reading an output, and running a real test program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from patience import PATIENCE

from ralphtool.judging.testresults import find_failed_in_junit, find_failed_tests, read_outcomes
from ralphtool.judging.testresults.model import Counts


def failed(output: bytes, root: str = "") -> set[str] | None:
    found = find_failed_tests(output, root)
    return None if found is None else set(found)


def count_tests(output: bytes) -> Counts | None:
    found = read_outcomes(output)
    return None if found is None else found.counts


def failed_junit(data: bytes, root: str = "") -> set[str] | None:
    found = find_failed_in_junit(data, root)
    return None if found is None else set(found)


def run(folder: Path, *command: str) -> bytes:
    """The output of a failing command, as in a gate's log."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
    )
    assert done.returncode != 0, done.stdout.decode()
    return done.stdout
