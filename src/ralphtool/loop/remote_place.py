"""A workspace of a run whose iterations happen on other machines: files for git to merge, and no program."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue
from ralphtool.loop.run_place import RunPlace
from ralphtool.settings.executor import apply_environment, is_loopback
from ralphtool.workspace.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.executors import LaneExecutor
    from ralphtool.executors.temporal.link import Link
    from ralphtool.settings import Settings
    from ralphtool.workspace.box import Box
    from ralphtool.workspace.git import Repository


class RemotePlace(RunPlace, frozen=True, kw_only=True):
    """One workspace of a run on workers."""

    link: Link
    remote: Remote

    @contextmanager
    def open(self) -> Iterator[LaneExecutor]:
        from ralphtool.executors.temporal.client import RemoteContext, TemporalExecutor

        yield TemporalExecutor(
            RemoteContext(
                link=self.link,
                remote=self.remote,
                workspace=cast("Box", self.workspace),
                log=self.log,
                settings=self.settings,
                run=self.run,
                change=self.spec.change,
                spec=self.spec.ref,
                prd_ids=self.prd_ids,
                folder=self.folder,
            )
        )


@contextmanager
def open_places(repository: Repository | None, settings: Settings) -> Iterator[Callable[..., RemotePlace]]:
    """What makes the workspaces of a run, while the connection to the server is open."""
    from ralphtool.executors.temporal.link import Link

    remote = find_remote(repository, settings)
    link = Link.open(apply_environment(settings.executor))
    try:
        yield partial(RemotePlace, link=link, remote=remote)
    finally:
        link.close()


def find_remote(repository: Repository | None, settings: Settings) -> Remote:
    """What loop and workers exchange commits by. On one machine the project's own repository will do."""
    if repository is None:
        raise InvalidValue("work on other machines travels as commits: make this folder a git repository (`git init`)")
    named = settings.executor.remote
    if not named and not is_loopback(apply_environment(settings.executor).address):
        raise InvalidValue(
            'executor.remote is not set: name a git repository that you and the workers reach, as in remote = "…"'
        )
    if named and os.path.isdir(os.path.join(repository.top, os.path.expanduser(named))):
        named = os.path.join(repository.top, os.path.expanduser(named))
    return Remote(repository, named or _ensure_exchange(repository))


def _ensure_exchange(repository: Repository) -> str:
    """A repository for workers of this very machine, which borrows the project's own objects."""
    place = os.path.join(layout.in_git(repository.common), "exchange.git")
    if not os.path.isdir(os.path.join(place, "refs")):
        repository.run("init", "--quiet", "--bare", place, own_index=False)
    own = os.fsencode(os.path.join(repository.common, "objects")) + b"\n"
    files.replace(os.path.join(place, "objects", "info", "alternates"), own)
    return place
