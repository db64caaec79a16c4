"""Work that nothing else keeps: of iterations that were interrupted, or killed while it was being proven."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.workspace.snapshots import ProtectedWork

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository


def keep_commit(repository: Repository, run: str, commit: str) -> str:
    """Creates a ref for a commit, and returns it."""
    taken = repository.refs(layout.INTERRUPTED)
    ref = next(ref for number in count(1) if (ref := f"{layout.INTERRUPTED}{run}-{number}") not in taken)
    repository.set_refs({ref: commit})
    return ref


def take_protected(repository: Repository, change: str, run: str) -> list[ProtectedWork]:
    """Moves the work to refs of `run`, without work that was kept as an attempt by then."""
    own = f"{layout.PROVING}{change}"
    found = enumerate(repository.refs(own, f"{own}@*").items(), 1)
    taken = [_take(repository, ref, commit, f"{run}-proof-{number}") for number, (ref, commit) in found]
    return [work for work in taken if work]


def _take(repository: Repository, ref: str, commit: str, name: str) -> ProtectedWork | None:
    lines = repository.text("log", "-1", "--format=%(trailers:only,unfold)", commit).split("\n")
    told = dict(line.partition(": ")[::2] for line in lines)
    entry = told.get("Ralph-Entry", "")
    if entry and _is_settled(repository, entry, commit):
        repository.set_refs({ref: None})
        return None
    kept = layout.INTERRUPTED + name
    repository.set_refs({kept: commit, ref: None})
    return ProtectedWork(told.get("Ralph-Story", ""), entry, kept)


def _is_settled(repository: Repository, entry: str, commit: str) -> bool:
    """Whether it was kept as an attempt. An older attempt of that name is from before a history was removed."""
    attempt = repository.resolve(layout.ATTEMPTS + entry)
    return attempt is not None and _read_time(repository, attempt) >= _read_time(repository, commit)


def _read_time(repository: Repository, commit: str) -> int:
    return int(repository.text("log", "-1", "--format=%ct", commit))
