"""Who is at the other end of a connection: a page that an agent opened says nothing in a person's name.

An agent without a box can read the file with the secret. So a command is refused if the process that sends it was
started by a run, however indirectly: the same rule as for the commands in a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import locks
from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_agent(roots: Iterable[str], client: tuple[str, int] | None) -> bool:
    """Whether the other end is below a run of one of these projects."""
    owners = {pid for root in roots for pid in _list_owners(root)}
    return bool(owners) and client is not None and bool(owners & _list_ancestors(*client))


def _list_owners(root: str) -> list[int]:
    """The processes of the runs that are under way."""
    try:
        held = [locks.find_holder(root, change) for change in locks.list_locked_changes(root)]
    except (RalphError, OSError):
        return []
    return [lock.owner["pid"] for lock in held if lock and lock.owner]


def _list_ancestors(address: str, port: int) -> set[int]:
    """Those of the process that has this end of a connection, and itself; none if it is not on this machine."""
    import psutil  # which costs more than answering most requests

    found: set[int] = set()
    for one in psutil.net_connections("tcp"):
        if one.laddr and (one.laddr.ip, one.laddr.port) == (address, port) and one.pid:
            try:
                found |= {one.pid, *(above.pid for above in psutil.Process(one.pid).parents())}
            except psutil.Error:
                continue  # it has just ended
    return found
