"""The `ralphtool` command of this installation, and a replacement if it can't start.

pip writes the path of Python unquoted into the first line of a script. The system cuts that path at the first space, so
the script can't start in an environment whose path has one. A shell can handle such a path.
"""

from __future__ import annotations

import os
import shlex
import sys

_LONGEST_FIRST_LINE = 255  # bytes: Linux reads no more


def find_script() -> str:
    return os.path.join(os.path.dirname(sys.executable), "ralphtool")


def can_start(script: str) -> bool:
    """Whether the system can run the program that the script's first line names."""
    try:
        with open(script, "rb") as file:
            first = file.readline(4096).rstrip(b"\n")
    except OSError:
        return False
    words = first.removeprefix(b"#!").split()
    is_named = first.startswith(b"#!") and bool(words)
    return is_named and len(first) <= _LONGEST_FIRST_LINE and os.access(words[0], os.X_OK)


def build_startable(script: str) -> bytes:
    """The script, started by the shell; to Python, the shell's lines are a string."""
    python = shlex.quote(sys.executable)
    try:
        with open(script, "rb") as file:
            body = file.read().partition(b"\n")[2]
    except OSError:
        return os.fsencode(f'#!/bin/sh\nexec {python} -P -m ralphtool "$@"\n')
    return os.fsencode(f"#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n") + body
