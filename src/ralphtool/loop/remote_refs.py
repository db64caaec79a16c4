"""The refs of orders and their results: removed when their run is over, here and on the remote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import MsgspecError

from ralphtool.core.layout import ORDERS, RESULTS, SENT
from ralphtool.executors.orders import ORDER_FILE, decode_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.remote import Remote

_AT_ONCE = 500  # refs in one push: the length of a command line is limited


def clear(remote: Remote, run: str) -> None:
    """Removes the refs of a finished run, except those of orders that the next run resumes."""
    _clear(remote, lambda one: one == run)


def clear_earlier(remote: Remote, is_earlier: Callable[[str], bool]) -> None:
    """Removes the refs of killed runs, except those of orders that must still be resumed."""
    _clear(remote, is_earlier)


def _clear(remote: Remote, is_over: Callable[[str], bool]) -> None:
    spared = {_find_name(remote.repository, commit) for commit in remote.repository.refs(SENT).values()}

    def is_left(ref: str) -> bool:
        name = ref.removeprefix(ORDERS).removeprefix(RESULTS)
        return name not in spared and is_over(name.partition("/")[0])

    _remove(remote, filter(is_left, remote.list(f"{ORDERS}*", f"{RESULTS}*")))
    _remove_here(remote.repository, filter(is_left, remote.repository.refs(ORDERS, RESULTS)))


def _find_name(repository: Repository, commit: str) -> str:
    """The name of an order; empty for an order of another version, which no run resumes."""
    try:
        return decode_order(repository.files_at(repository.tree_of(commit), ORDER_FILE)[ORDER_FILE]).name
    except (MsgspecError, KeyError):
        return ""


def _remove(remote: Remote, refs: Iterable[str]) -> None:
    wanted = list(refs)
    for begin in range(0, len(wanted), _AT_ONCE):
        remote.push(dict.fromkeys(wanted[begin : begin + _AT_ONCE]))


def _remove_here(repository: Repository, refs: Iterable[str]) -> None:
    repository.set_refs(dict.fromkeys(refs))
