"""The command `ralphtool` of this installation, and one that starts where that can't.

pip writes the path of Python into the first line of a script as it is. The system ends that path at the first blank,
so in an environment whose path has one, the script can't start. A shell can be told such a path.
"""

from __future__ import annotations

import os
import shlex
import sys

_LONGEST_FIRST_LINE = 255  # bytes: Linux reads no more


def find_script() -> str:
    return os.path.join(os.path.dirname(sys.executable), "ralphtool")


def can_start(script: str) -> bool:
    """Whether the system finds the program that the script's first line names."""
    try:
        with open(script, "rb") as file:
            first = file.readline(4096).rstrip(b"\n")
    except OSError:
        return False
    words = first.removeprefix(b"#!").split()
    is_named = first.startswith(b"#!") and bool(words)
    return is_named and len(first) <= _LONGEST_FIRST_LINE and os.access(words[0], os.X_OK)


def build_startable(script: str) -> bytes:
    """The script, started by the shell; Python takes the shell's lines for a string."""
    python = shlex.quote(sys.executable)
    try:
        with open(script, "rb") as file:
            body = file.read().partition(b"\n")[2]
    except OSError:
        return os.fsencode(f'#!/bin/sh\nexec {python} -P -m ralphtool "$@"\n')
    return os.fsencode(f"#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n") + body
