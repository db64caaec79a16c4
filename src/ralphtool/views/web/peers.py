"""Who is at the other end of a connection: a page that an agent opened says nothing in a person's name.

An agent without a box can read the file with the secret. So a command is refused if the process that sends it was
started by a run, however indirectly: the same rule as for the commands in a terminal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralphtool.core import locks
from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOKS, _BETWEEN = 10, 0.05  # and seconds between two of them
UNIX = "unix"  # the address of whoever comes by a socket in a folder


def is_agent(roots: Iterable[str], client: tuple[str, int] | None) -> bool:
    """Whether the other end is below a run of one of these projects, or has gone before that could be seen."""
    owners = {pid for root in roots for pid in _list_owners(root)}
    if not owners:
        return False
    found = _look_for_processes(*client) if client else None
    return found is None or bool(owners & found)


def _look_for_processes(address: str, port: int) -> set[int] | None:
    """Looks more than once: the system's list of connections may miss one while many others come and go."""
    for _ in range(_LOOKS):
        found = _find_processes(address, port)
        if found is not None:
            return found
        time.sleep(_BETWEEN)
    return None


def _list_owners(root: str) -> list[int]:
    """The processes of the runs that are under way."""
    try:
        held = [locks.find_holder(root, change) for change in locks.list_locked_changes(root)]
    except (RalphError, OSError):
        return []
    return [lock.owner["pid"] for lock in held if lock and lock.owner]


def _find_processes(address: str, port: int) -> set[int] | None:
    """The process at the other end and those above it; none of another user or another machine; None if it is gone.

    For a Unix socket, `port` is the process.
    """
    import psutil  # which costs more than answering most requests

    if address == UNIX:
        return _list_ancestors(port)
    if not address.startswith("127."):
        return set()
    ends = [one for one in psutil.net_connections("tcp") if one.laddr and tuple(one.laddr) == (address, port)]
    pids = [one.pid for one in ends if one.pid]
    if not pids:  # what another user has open has no number for us: a tunnel of ssh, for one
        return set() if any(one.status == psutil.CONN_ESTABLISHED for one in ends) else None
    found = [_list_ancestors(pid) for pid in pids]
    return None if None in found else {pid for one in found if one for pid in one}


def _list_ancestors(pid: int) -> set[int] | None:
    """Those of a process, and itself; None if it has ended."""
    import psutil

    try:
        return {pid, *(above.pid for above in psutil.Process(pid).parents())}
    except psutil.Error:
        return None
