"""Checks the process at the other end of a connection: an agent must not act in a person's name.

An agent without a box can read the file with the secret. So a command is refused if the process that sends it was
started by a run, directly or indirectly: the same rule as for commands in a terminal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralphtool.core import locks
from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOKS, _BETWEEN = 10, 0.05  # tries, and seconds between them
UNIX = "unix"  # the address of clients of a Unix socket


def is_agent(roots: Iterable[str], client: tuple[str, int] | None) -> bool:
    """Whether the client is a descendant of a run of these projects, or was gone before that could be checked."""
    owners = {pid for root in roots for pid in _list_owners(root)}
    if not owners:
        return False
    found = _look_for_processes(*client) if client else None
    return found is None or bool(owners & found)


def _look_for_processes(address: str, port: int) -> set[int] | None:
    """Retries: the system's list of connections may miss one while many others come and go."""
    for _ in range(_LOOKS):
        found = _find_processes(address, port)
        if found is not None:
            return found
        time.sleep(_BETWEEN)
    return None


def _list_owners(root: str) -> list[int]:
    """The processes of the runs in progress."""
    try:
        held = [locks.find_holder(root, change) for change in locks.list_locked_changes(root)]
    except (RalphError, OSError):
        return []
    return [lock.owner["pid"] for lock in held if lock and lock.owner]


def _find_processes(address: str, port: int) -> set[int] | None:
    """The client process and its ancestors; empty for another user or another machine; None if it is gone.

    For a Unix socket, `port` is the process id.
    """
    import psutil  # its import costs more than answering most requests

    if address == UNIX:
        return _list_ancestors(port)
    if not address.startswith("127."):
        return set()
    ends = [one for one in psutil.net_connections("tcp") if one.laddr and tuple(one.laddr) == (address, port)]
    pids = [one.pid for one in ends if one.pid]
    if not pids:  # the system hides the process ids of other users, for example of an ssh tunnel
        return set() if any(one.status == psutil.CONN_ESTABLISHED for one in ends) else None
    found = [_list_ancestors(pid) for pid in pids]
    return None if None in found else {pid for one in found if one for pid in one}


def _list_ancestors(pid: int) -> set[int] | None:
    """A process and its ancestors; None if it has ended."""
    import psutil

    try:
        return {pid, *(above.pid for above in psutil.Process(pid).parents())}
    except psutil.Error:
        return None
