"""Who sent a command to a run: a person's process, or one that the run itself started.

A file proves nothing, since an agent can write it too. A live process can be inspected.
"""

import os

from ralphtool.core import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


VIA = "RALPH_VIA"  # in the environment of a command that our web page runs for a person


def describe_via() -> "dict[str, str]":
    """How a person sent the command, if not from a terminal."""
    return {"via": via} if (via := os.environ.get(VIA, "")) == "web" else {}


def describe() -> "dict[str, Any]":
    """Identifies this process for as long as it is alive."""
    return {"pid": os.getpid(), "start_time": locks.read_start_time(os.getpid())}


def is_outside(described: object, word: str) -> bool:
    """Whether a process is alive, has this word in its command line, and was not started by us, even indirectly."""
    import psutil  # importing it costs more than reading a command

    if not isinstance(described, dict) or type(described.get("pid")) is not int:
        return False
    pid = described["pid"]
    try:
        process = psutil.Process(pid)
        words, above = process.cmdline(), {one.pid for one in process.parents()}
    except (psutil.Error, ValueError, OverflowError):
        return False
    started = locks.read_start_time(pid)  # read last, which proves that the right process was inspected
    is_same = started is not None and started == described.get("start_time")
    return is_same and word in words and os.getpid() not in {pid, *above}
