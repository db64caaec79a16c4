"""Who sent a command to a run: a person's own process, or one that the run itself has started.

A file proves nothing, since an agent can write it too. A process that is alive can be looked at.
"""

import os

from ralphtool.core import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


VIA = "RALPH_VIA"  # in the environment of a command that a page of ours runs for a person


def describe_via() -> "dict[str, str]":
    """How a person said it, where that is not in a terminal."""
    return {"via": via} if (via := os.environ.get(VIA, "")) == "web" else {}


def describe() -> "dict[str, Any]":
    """What names this process, for as long as it is alive."""
    return {"pid": os.getpid(), "start_time": locks.read_start_time(os.getpid())}


def is_outside(described: object, word: str) -> bool:
    """Whether a process is alive, was called with a word, and was not started by this one, however indirectly."""
    import psutil  # which costs more than reading a command

    if not isinstance(described, dict) or type(described.get("pid")) is not int:
        return False
    pid = described["pid"]
    try:
        process = psutil.Process(pid)
        words, above = process.cmdline(), {one.pid for one in process.parents()}
    except (psutil.Error, ValueError, OverflowError):
        return False
    started = locks.read_start_time(pid)  # read last: the process that was looked at is the one that is meant
    is_same = started is not None and started == described.get("start_time")
    return is_same and word in words and os.getpid() not in {pid, *above}
